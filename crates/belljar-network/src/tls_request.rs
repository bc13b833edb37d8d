//! The request for TLS that the code writes within a connection, and its detection.
//!
//! ```text
//! token (16 bytes) │ length (4 bytes, big-endian) │ JSON
//! ```

use serde::Deserialize;

/// The length of the token.
pub(crate) const TOKEN: usize = 16;

/// The first byte of every token. It begins no text in UTF-8, so that a short write of text never waits for the rest of
/// a token.
pub(crate) const TOKEN_START: u8 = 0xf5;

/// The most bytes of the JSON.
const MAX_REQUEST: usize = 1 << 20;

/// The most protocols of ALPN.
const MAX_PROTOCOLS: usize = 16;

/// A request for TLS.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct TlsRequest {
    /// The name of the server. That of the connection, if `None`.
    pub(crate) server_hostname: Option<String>,
    /// Protocols that the code offers.
    pub(crate) alpn: Vec<String>,
    /// The certificate has to be valid.
    pub(crate) verify: bool,
    /// The certificate has to be for the name.
    pub(crate) check_hostname: bool,
    /// Certificate authorities instead of those of the host.
    pub(crate) ca: Option<String>,
    /// The lowest version, as Python's `ssl.TLSVersion` writes it.
    pub(crate) minimum: Option<String>,
    /// The code makes TLS itself, which is passed on unread. The host sets it, never the code.
    #[serde(skip)]
    pub(crate) passes: bool,
}

impl TlsRequest {
    fn parse(json: &[u8]) -> Result<Self, String> {
        // A list would be read as the fields in their order.
        if json.trim_ascii_start().first() != Some(&b'{') {
            return Err("failed to parse the request for TLS: it is not an object".to_owned());
        }
        let request: Self =
            serde_json::from_slice(json).map_err(|error| format!("failed to parse the request for TLS: {error}"))?;
        let is_protocol = |protocol: &String| (1..=255).contains(&protocol.len());
        if request.alpn.len() > MAX_PROTOCOLS || !request.alpn.iter().all(is_protocol) {
            return Err("failed to read the request for TLS: too many or too long protocols".to_owned());
        }
        Ok(request)
    }
}

/// The detection of a request at the beginnings of writes.
#[derive(Debug, Default)]
pub(crate) enum TlsScan {
    /// No write began with the token.
    #[default]
    Watching,
    /// The bytes of what may be a request.
    Partial(Vec<u8>),
    /// A request was found. There is one in a connection.
    Found,
}

/// The result of a write.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ScanResult<'a> {
    /// Bytes for the server: those that were held back, and those of this write.
    Plain(Vec<u8>, &'a [u8]),
    /// The bytes are held back.
    Incomplete,
    /// A request, and the bytes after it.
    Request(Box<TlsRequest>, &'a [u8]),
}

impl TlsScan {
    /// Adds the bytes of one write.
    ///
    /// # Errors
    /// Returns the reason if a request is not valid.
    pub(crate) fn write<'a>(&mut self, token: &[u8; TOKEN], data: &'a [u8]) -> Result<ScanResult<'a>, String> {
        let mut bytes = match self {
            Self::Found => return Ok(ScanResult::Plain(Vec::new(), data)),
            Self::Watching if data.is_empty() || !begins(token, data) => {
                return Ok(ScanResult::Plain(Vec::new(), data));
            }
            Self::Watching => Vec::new(),
            Self::Partial(bytes) => std::mem::take(bytes),
        };
        let mut rest = data;
        // First the token and the length, then as much as the length says.
        for _ in 0..2 {
            let take = needed(&bytes)?.saturating_sub(bytes.len()).min(rest.len());
            let (next, after) = rest.split_at(take);
            bytes.extend_from_slice(next);
            rest = after;
            if !begins(token, &bytes) {
                *self = Self::Watching;
                return Ok(ScanResult::Plain(bytes, rest));
            }
        }
        if bytes.len() < TOKEN + 4 || bytes.len() < needed(&bytes)? {
            *self = Self::Partial(bytes);
            return Ok(ScanResult::Incomplete);
        }
        *self = Self::Found;
        let request = TlsRequest::parse(bytes.get(TOKEN + 4..).unwrap_or_default())?;
        Ok(ScanResult::Request(Box::new(request), rest))
    }
}

/// Returns whether the bytes are the beginning of the token, or begin with it.
fn begins(token: &[u8; TOKEN], bytes: &[u8]) -> bool {
    bytes.iter().zip(token).all(|(byte, expected)| byte == expected)
}

/// Returns the length of the request whose first bytes are given.
fn needed(bytes: &[u8]) -> Result<usize, String> {
    let Some(length) = bytes.get(TOKEN..TOKEN + 4).and_then(|length| <[u8; 4]>::try_from(length).ok()) else {
        return Ok(TOKEN + 4);
    };
    let length = u32::from_be_bytes(length) as usize;
    if length > MAX_REQUEST {
        return Err(format!("failed to read the request for TLS: {length} bytes are more than {MAX_REQUEST}"));
    }
    Ok(TOKEN + 4 + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN_BYTES: [u8; TOKEN] = *b"\xf5123456789abcdef";

    fn message() -> Vec<u8> {
        let json = br#"{"server_hostname":"a.example","verify":true,"alpn":["http/1.1"],"other":1}"#;
        [TOKEN_BYTES.as_slice(), &(json.len() as u32).to_be_bytes(), json].concat()
    }

    #[test]
    fn a_request_is_found_in_any_split() {
        let message = [message().as_slice(), b"after"].concat();
        for size in 1..message.len() {
            let mut scan = TlsScan::default();
            let mut after = Vec::new();
            let mut found = None;
            for chunk in message.chunks(size) {
                match scan.write(&TOKEN_BYTES, chunk).unwrap() {
                    ScanResult::Plain(before, data) => after.extend([before.as_slice(), data].concat()),
                    ScanResult::Incomplete => {}
                    ScanResult::Request(request, data) => {
                        found = Some(request);
                        after.extend_from_slice(data);
                    }
                }
            }
            assert_eq!(found.unwrap().server_hostname.as_deref(), Some("a.example"));
            assert_eq!(after, b"after", "writes of {size}");
        }
    }

    #[test]
    fn other_bytes_pass() {
        let mut scan = TlsScan::default();
        assert_eq!(scan.write(&TOKEN_BYTES, b"text").unwrap(), ScanResult::Plain(Vec::new(), b"text"));
        let within = [b"x".as_slice(), &message()].concat();
        assert_eq!(scan.write(&TOKEN_BYTES, &within).unwrap(), ScanResult::Plain(Vec::new(), &within));
        assert_eq!(scan.write(&TOKEN_BYTES, b"\xf512").unwrap(), ScanResult::Incomplete);
        let ScanResult::Plain(before, after) = scan.write(&TOKEN_BYTES, b"3x").unwrap() else { panic!() };
        assert_eq!([before.as_slice(), after].concat(), b"\xf5123x");
    }

    #[test]
    fn there_is_one_request_in_a_connection() {
        let mut scan = TlsScan::default();
        let message = message();
        assert!(matches!(scan.write(&TOKEN_BYTES, &message).unwrap(), ScanResult::Request(_, b"")));
        assert_eq!(scan.write(&TOKEN_BYTES, &message).unwrap(), ScanResult::Plain(Vec::new(), &message));
    }

    #[test]
    fn invalid_requests_are_errors() {
        for (length, json) in [(u32::MAX, "{}"), (2, "[]"), (3, "{x}"), (18, r#"{"alpn":["","abc"]"#)] {
            let message = [TOKEN_BYTES.as_slice(), &length.to_be_bytes(), json.as_bytes()].concat();
            assert!(TlsScan::default().write(&TOKEN_BYTES, &message).is_err(), "{json}");
        }
    }
}

//! Heads of requests and responses: strict parsing, framing, and writing.

use crate::policy::rules::is_same_header;

/// The most bytes of a head.
pub(crate) const MAX_HEAD: usize = 64 * 1024;

/// The most headers.
const MAX_HEADERS: usize = 128;

/// Headers that determine where a message ends and whom it is for. Some servers read `_` as `-`.
const FRAMING_HEADERS: [&str; 3] = ["content-length", "transfer-encoding", "host"];

/// A header: its name as it was written, and its value.
pub(crate) type Header = (String, Vec<u8>);

/// The head of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestHead {
    pub(crate) method: String,
    /// The path and the query, or `*`.
    pub(crate) target: String,
    /// 1 for HTTP/1.1, 0 for HTTP/1.0.
    pub(crate) version: u8,
    pub(crate) headers: Vec<Header>,
}

/// The head of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResponseHead {
    pub(crate) version: u8,
    pub(crate) status: u16,
    pub(crate) reason: String,
    pub(crate) headers: Vec<Header>,
}

/// The end of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// There is no body.
    None,
    /// The body has this many bytes.
    Length(u64),
    /// The body is in chunks.
    Chunked,
    /// The body ends with the connection.
    UntilClose,
}

/// Returns the length of the head at the beginning of the bytes, or `None` if it is incomplete. `searched` bytes were
/// searched before.
pub(crate) fn head_length(bytes: &[u8], searched: usize) -> Option<usize> {
    let from = searched.saturating_sub(3);
    let found = bytes.get(from..)?.windows(4).position(|window| window == b"\r\n\r\n")?;
    Some(from + found + 4)
}

/// Parses the head of a request.
///
/// # Errors
/// Returns the reason if it is not valid, or if servers could read it in different ways.
pub(crate) fn parse_request(bytes: &[u8]) -> Result<RequestHead, String> {
    check_lines(bytes)?;
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) if length == bytes.len() => {}
        Ok(_) => return Err("the head of the request is incomplete".to_owned()),
        Err(error) => return Err(format!("the head of the request is not valid: {error}")),
    }
    let (Some(method), Some(target), Some(version)) = (request.method, request.path, request.version) else {
        return Err("the head of the request is incomplete".to_owned());
    };
    if !target.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
        return Err("the target of the request contains characters that are not allowed".to_owned());
    }
    Ok(RequestHead { method: method.to_owned(), target: target.to_owned(), version, headers: owned(request.headers)? })
}

/// Parses the head of a response.
///
/// # Errors
/// Returns the reason if it is not valid.
pub(crate) fn parse_response(bytes: &[u8]) -> Result<ResponseHead, String> {
    check_lines(bytes)?;
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    match response.parse(bytes) {
        Ok(httparse::Status::Complete(length)) if length == bytes.len() => {}
        Ok(_) => return Err("the head of the response is incomplete".to_owned()),
        Err(error) => return Err(format!("the head of the response is not valid: {error}")),
    }
    let (Some(status), Some(version)) = (response.code, response.version) else {
        return Err("the head of the response is incomplete".to_owned());
    };
    let reason = response.reason.unwrap_or_default().to_owned();
    Ok(ResponseHead { version, status, reason, headers: owned(response.headers)? })
}

/// Parses the trailers of a body, which end with an empty line.
pub(crate) fn parse_trailers(bytes: &[u8]) -> Result<Vec<Header>, String> {
    check_lines(bytes)?;
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    match httparse::parse_headers(bytes, &mut headers) {
        Ok(httparse::Status::Complete((length, headers))) if length == bytes.len() => owned(headers),
        Ok(_) => Err("the trailers are incomplete".to_owned()),
        Err(error) => Err(format!("the trailers are not valid: {error}")),
    }
}

/// Checks that lines end with CR LF, that there are no other control characters, and that no line continues another.
fn check_lines(bytes: &[u8]) -> Result<(), String> {
    let mut previous = b'\n';
    for (index, byte) in bytes.iter().enumerate() {
        let is_valid = match byte {
            b'\n' => previous == b'\r',
            b'\r' => bytes.get(index + 1) == Some(&b'\n'),
            b'\t' | b' ' => previous != b'\n',
            byte => *byte >= 0x20 && *byte != 0x7f,
        };
        if !is_valid {
            return Err("the head contains a control character, a line that does not end with CR LF, or one that \
                        continues another"
                .to_owned());
        }
        previous = *byte;
    }
    if bytes.starts_with(b"\r\n") && bytes.len() > 2 {
        return Err("the head begins with an empty line".to_owned());
    }
    Ok(())
}

fn owned(headers: &[httparse::Header<'_>]) -> Result<Vec<Header>, String> {
    let mut owned = Vec::with_capacity(headers.len());
    for header in headers {
        let name = header.name.to_ascii_lowercase();
        if name.contains('_') && FRAMING_HEADERS.contains(&name.replace('_', "-").as_str()) {
            return Err(format!("the header {} is ambiguous", header.name));
        }
        owned.push((header.name.to_owned(), header.value.to_vec()));
    }
    Ok(owned)
}

/// Returns the values of a header.
pub(crate) fn values<'a>(headers: &'a [Header], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    headers.iter().filter(move |(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_slice())
}

/// Removes a header, also with `_` instead of `-`.
pub(crate) fn remove(headers: &mut Vec<Header>, name: &str) {
    headers.retain(|(key, _)| !is_same_header(key, name));
}

/// Returns whether a header whose values are lists contains a token.
pub(crate) fn has_token(headers: &[Header], name: &str, token: &str) -> bool {
    values(headers, name)
        .flat_map(|value| value.split(|byte| *byte == b','))
        .any(|item| item.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
}

impl RequestHead {
    /// Returns the framing of the body.
    ///
    /// # Errors
    /// Returns the reason if it is ambiguous.
    pub(crate) fn framing(&self) -> Result<Framing, String> {
        explicit_framing(&self.headers, self.version).map(|framing| framing.unwrap_or(Framing::None))
    }

    /// Returns the head as bytes.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = format!("{} {} HTTP/1.{}\r\n", self.method, self.target, self.version).into_bytes();
        write_headers(&mut bytes, &self.headers);
        bytes
    }
}

impl ResponseHead {
    /// Returns the framing of the body of a response to a request of the method.
    ///
    /// # Errors
    /// Returns the reason if it is ambiguous.
    pub(crate) fn framing(&self, method: &str) -> Result<Framing, String> {
        let explicit = explicit_framing(&self.headers, self.version)?;
        if method == "HEAD" || self.status < 200 || self.status == 204 || self.status == 304 {
            return Ok(Framing::None);
        }
        Ok(explicit.unwrap_or(Framing::UntilClose))
    }

    /// Returns whether the server closes the connection after the response.
    pub(crate) fn closes(&self) -> bool {
        if self.version == 0 {
            return !has_token(&self.headers, "connection", "keep-alive");
        }
        has_token(&self.headers, "connection", "close")
    }

    /// Returns the head as bytes.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = format!("HTTP/1.{} {:03} {}\r\n", self.version, self.status, self.reason).into_bytes();
        write_headers(&mut bytes, &self.headers);
        bytes
    }
}

/// Writes headers and the empty line.
pub(crate) fn write_headers(bytes: &mut Vec<u8>, headers: &[Header]) {
    for (name, value) in headers {
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
}

fn explicit_framing(headers: &[Header], version: u8) -> Result<Option<Framing>, String> {
    let lengths: Vec<&[u8]> = values(headers, "content-length").collect();
    let encodings: Vec<&[u8]> = values(headers, "transfer-encoding").collect();
    match (lengths.as_slice(), encodings.as_slice()) {
        ([], []) => Ok(None),
        ([length], []) => {
            let text = std::str::from_utf8(length).unwrap_or_default();
            let is_number = (1..=18).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
            match text.parse() {
                Ok(length) if is_number => Ok(Some(Framing::Length(length))),
                _ => Err("Content-Length is not a number".to_owned()),
            }
        }
        ([], [encoding]) if version == 1 && encoding.eq_ignore_ascii_case(b"chunked") => Ok(Some(Framing::Chunked)),
        ([], [_]) => Err("Transfer-Encoding is not `chunked`".to_owned()),
        ([], _) => Err("there is more than one Transfer-Encoding".to_owned()),
        (_, []) => Err("there is more than one Content-Length".to_owned()),
        _ => Err("there are both Content-Length and Transfer-Encoding".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framing(text: &str) -> Result<Framing, String> {
        parse_request(text.as_bytes())?.framing()
    }

    #[test]
    fn requests_are_parsed_and_written() {
        let text = "POST /a?b=c HTTP/1.1\r\nHost: a.example\r\nX-Empty: \r\ncontent-length: 5\r\n\r\n";
        let head = parse_request(text.as_bytes()).unwrap();
        assert_eq!(head.framing(), Ok(Framing::Length(5)));
        assert_eq!(String::from_utf8(head.to_bytes()).unwrap(), text);
        assert_eq!(head_length(format!("{text}body").as_bytes(), 0), Some(text.len()));
        assert_eq!(head_length(format!("{text}body").as_bytes(), text.len() - 1), Some(text.len()));
        assert_eq!(framing("GET / HTTP/1.1\r\n\r\n"), Ok(Framing::None));
        assert_eq!(framing("GET / HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n"), Ok(Framing::Chunked));
    }

    #[test]
    fn ambiguous_requests_are_refused() {
        for text in [
            "GET / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
            "GET / HTTP/1.1\r\nContent-Length: 1, 1\r\n\r\n",
            "GET / HTTP/1.1\r\nContent-Length: +1\r\n\r\n",
            "GET / HTTP/1.1\r\nContent-Length: \r\n\r\n",
            "GET / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
            "GET / HTTP/1.1\r\nContent_Length: 1\r\n\r\n",
            "GET / HTTP/1.1\r\nTransfer_Encoding: chunked\r\n\r\n",
            "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
            "GET / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            "GET / HTTP/1.1\r\nTransfer-Encoding: xchunked\r\n\r\n",
            "GET / HTTP/1.1\r\nTransfer-Encoding: \"chunked\"\r\n\r\n",
            "GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
            "GET / HTTP/1.1\r\nTransfer-Encoding : chunked\r\n\r\n",
            "GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n",
            "GET / HTTP/1.1\r\n A: b\r\n\r\n",
            "GET / HTTP/1.1\nA: b\r\n\r\n",
            "GET / HTTP/1.1\r\nA: b\nC: d\r\n\r\n",
            "GET / HTTP/1.1\r\nA: b\rC: d\r\n\r\n",
            "GET / HTTP/1.1\r\nA: b\0\r\n\r\n",
            "GET / HTTP/1.1\r\nA: b\x7f\r\n\r\n",
            "GET / HTTP/1.1\r\nA\r\n\r\n",
            "GET / HTTP/1.1\r\n: b\r\n\r\n",
            "GET  / HTTP/1.1\r\n\r\n",
            "GET / x HTTP/1.1\r\n\r\n",
            "GET /# HTTP/1.1\r\n\r\n",
            "GET /ü HTTP/1.1\r\n\r\n",
            "GET / HTTP/2.0\r\n\r\n",
            "GET / HTTP/0.9\r\n\r\n",
            "GET /\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\n",
            "\r\nGET / HTTP/1.1\r\n\r\n",
            "\x16\x03\x01\r\n\r\n",
        ] {
            assert!(framing(text).is_err(), "{text:?}");
        }
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(129));
        assert!(framing(&many).is_err());
    }

    #[test]
    fn responses_have_their_framing() {
        let framing = |text: &str, method: &str| parse_response(text.as_bytes()).and_then(|head| head.framing(method));
        assert_eq!(framing("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", "GET"), Ok(Framing::Length(3)));
        assert_eq!(framing("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", "HEAD"), Ok(Framing::None));
        assert_eq!(framing("HTTP/1.1 304 x\r\nContent-Length: 3\r\n\r\n", "GET"), Ok(Framing::None));
        assert_eq!(framing("HTTP/1.0 200\r\n\r\n", "GET"), Ok(Framing::UntilClose));
        assert!(framing("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n", "GET").is_err());
        assert!(framing("HTTP/1.1 200 OK\nContent-Length: 3\r\n\r\n", "GET").is_err());
        assert!(framing("ICY 200 OK\r\n\r\n", "GET").is_err());
    }
}

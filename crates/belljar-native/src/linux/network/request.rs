//! The requests of the proxy's clients: `CONNECT host:port`, and requests with an absolute target
//! (`GET http://host/`).

use std::io;

use bytes::{Buf as _, BytesMut};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use super::socks::{self, Reply};

/// The longest head of a request, in bytes.
const MAX_HEAD: usize = 64 << 10;
/// The largest number of headers.
const MAX_HEADERS: usize = 128;
/// Headers that end at the proxy, which sets `Host` by the target as RFC 9112 demands.
const DROPPED_HEADERS: [&str; 4] = ["host", "proxy-connection", "proxy-authorization", "keep-alive"];

/// A client of the proxy.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    /// Bytes that have arrived and were not used.
    pub(crate) buffer: BytesMut,
}

/// The request of a client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ProxyRequest {
    /// A connection, by HTTP.
    Connect { host: String, port: u16 },
    /// A connection, by SOCKS5.
    Socks { host: String, port: u16 },
    /// A request by HTTP without TLS, whose new head is given.
    Forward { host: String, port: u16, head: Vec<u8> },
}

/// A request that is not valid.
#[derive(Debug)]
pub(crate) enum RequestError {
    /// An answer by HTTP: the status and the reason.
    Http(u16, String),
    /// A reply by SOCKS5.
    Socks(Reply),
    /// The client has closed the connection, or speaks another protocol.
    Closed,
}

impl From<io::Error> for RequestError {
    fn from(_: io::Error) -> Self {
        Self::Closed
    }
}

impl Client {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream, buffer: BytesMut::new() }
    }

    /// Reads the request.
    ///
    /// # Errors
    /// Returns an error for a request that is not valid.
    pub(crate) async fn request(&mut self) -> Result<ProxyRequest, RequestError> {
        self.fill().await?;
        match self.buffer.first() {
            Some(&socks::VERSION) => socks::read(self).await,
            Some(byte) if byte.is_ascii_alphabetic() => self.http_request().await,
            _ => Err(RequestError::Closed),
        }
    }

    async fn http_request(&mut self) -> Result<ProxyRequest, RequestError> {
        loop {
            if let Some((length, request)) = parse(&self.buffer)? {
                self.buffer.advance(length);
                return Ok(request);
            }
            if self.buffer.len() > MAX_HEAD {
                return Err(RequestError::Http(
                    431,
                    format!("the head of the request is longer than {MAX_HEAD} bytes"),
                ));
            }
            self.fill().await?;
        }
    }

    /// Reads more bytes into the buffer.
    ///
    /// # Errors
    /// Returns an error at the end of the stream.
    pub(crate) async fn fill(&mut self) -> io::Result<()> {
        match self.stream.read_buf(&mut self.buffer).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// Reads exactly as many bytes as there is space.
    pub(crate) async fn read_exact(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        while self.buffer.len() < bytes.len() {
            self.fill().await?;
        }
        self.buffer.copy_to_slice(bytes);
        Ok(())
    }
}

/// Parses a head, if it is complete. Returns its length and the request.
fn parse(bytes: &[u8]) -> Result<Option<(usize, ProxyRequest)>, RequestError> {
    let invalid = |reason: String| RequestError::Http(400, format!("this is a proxy: {reason}"));
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) if length <= MAX_HEAD => length,
        Ok(httparse::Status::Complete(_)) => {
            return Err(RequestError::Http(431, format!("the head of the request is longer than {MAX_HEAD} bytes")));
        }
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(invalid(format!("failed to parse the request: {error}"))),
    };
    let (method, target) = (request.method.unwrap_or_default(), request.path.unwrap_or_default());
    if method == "CONNECT" {
        let (host, port) = authority(target).ok_or_else(|| invalid("write CONNECT host:port".to_owned()))?;
        let port = port.ok_or_else(|| invalid("write CONNECT host:port".to_owned()))?;
        return Ok(Some((length, ProxyRequest::Connect { host, port })));
    }
    let Some((scheme, rest)) = target.split_once("://") else {
        return Err(invalid("the target of the request is not `http://host/…`".to_owned()));
    };
    if !scheme.eq_ignore_ascii_case("http") {
        return Err(invalid(format!("for {:.20}: send CONNECT host:port", scheme)));
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (named, path) = rest.split_at(end);
    let (host, port) = authority(named).ok_or_else(|| invalid("the target of the request has no host".to_owned()))?;
    let version = request.version.unwrap_or_default();
    let is_upgrade = request.headers.iter().any(|header| header.name.eq_ignore_ascii_case("upgrade"));
    let slash = if path.starts_with('/') { "" } else { "/" };
    let mut head = format!("{method} {slash}{path} HTTP/1.{version}\r\nHost: {named}\r\n").into_bytes();
    for header in request.headers.iter() {
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        if DROPPED_HEADERS.into_iter().any(is) || !is_upgrade && is("connection") {
            continue;
        }
        for part in [header.name.as_bytes(), b": ", header.value, b"\r\n"] {
            head.extend_from_slice(part);
        }
    }
    // The client's next request may be to another host.
    head.extend_from_slice(if is_upgrade { b"\r\n" } else { b"Connection: close\r\n\r\n" });
    Ok(Some((length, ProxyRequest::Forward { host, port: port.unwrap_or(80), head })))
}

/// Splits `host`, `host:port`, `[address]` or `[address]:port`.
fn authority(text: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (text, None),
    };
    let is_port = |port: &&str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let port = match port {
        None => None,
        Some(port) => Some(Some(port).filter(is_port)?.parse().ok().filter(|port| *port != 0)?),
    };
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if host.is_empty() || host.contains('@') {
        return None;
    }
    Some((host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<ProxyRequest, u16> {
        match parse(text.as_bytes()) {
            Ok(Some((length, request))) => {
                assert_eq!(length, text.len());
                Ok(request)
            }
            Err(RequestError::Http(status, _)) => Err(status),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn requests_for_connections_are_parsed() {
        let connect = |host: &str, port| Ok(ProxyRequest::Connect { host: host.to_owned(), port });
        assert_eq!(parsed("CONNECT a.example:443 HTTP/1.1\r\nHost: b.example\r\n\r\n"), connect("a.example", 443));
        assert_eq!(parsed("CONNECT [::1]:8080 HTTP/1.0\r\n\r\n"), connect("::1", 8080));
        for target in ["a.example", "a.example:", "a.example:0", "a.example:65536", "a.example:+80", ":80", "u@a:80"] {
            assert_eq!(parsed(&format!("CONNECT {target} HTTP/1.1\r\n\r\n")), Err(400), "{target}");
        }
    }

    #[test]
    fn forwarded_requests_end_their_connection() {
        let head = "POST http://a.example:8080/x?y HTTP/1.1\r\nHost: b.example\r\nProxy-Connection: keep-alive\r\n\
                    Proxy-Authorization: Basic eA==\r\nConnection: keep-alive\r\nContent-Length: 3\r\n\r\n";
        let Ok(ProxyRequest::Forward { host, port, head }) = parsed(head) else { panic!("it is not forwarded") };
        assert_eq!((host.as_str(), port), ("a.example", 8080));
        assert_eq!(
            String::from_utf8(head).unwrap(),
            "POST /x?y HTTP/1.1\r\nHost: a.example:8080\r\nContent-Length: 3\r\nConnection: close\r\n\r\n"
        );
        let upgrade = "HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        let asked = parsed(&format!("GET http://a.example?x {upgrade}"));
        let Ok(ProxyRequest::Forward { head, .. }) = asked else { panic!("it is not forwarded") };
        assert_eq!(String::from_utf8(head).unwrap(), format!("GET /?x {upgrade}"));
    }

    #[test]
    fn malformed_requests_are_refused() {
        for text in [
            "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "GET https://a.example/ HTTP/1.1\r\n\r\n",
            "GET ftp://a.example/ HTTP/1.1\r\n\r\n",
            "GET http:///x HTTP/1.1\r\n\r\n",
            "GET http://user:password@a.example/ HTTP/1.1\r\n\r\n",
            "GET http://a.example/ HTTP/2.0\r\n\r\n",
            "GET http://a.example/ HTTP/1.1\r\nHo st: a\r\n\r\n",
            "GET http://a.example/ HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
        ] {
            assert_eq!(parsed(text), Err(400), "{text}");
        }
        assert!(parse(b"GET http://a.example/ HT").unwrap().is_none());
    }
}

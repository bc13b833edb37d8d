//! The removal of secrets from responses.

use std::io::Write as _;
use std::thread::sleep;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};

use crate::client::{Response, Setup, World};
use crate::secrets::SECRET;
use crate::server::{Request, Server, Stream, http, read_request, response, tls};

fn world(server: &Server) -> World {
    let policy = format!("allow = ['a.test:{}']\nresolve = {{ 'a.test' = '127.0.0.1' }}", server.port);
    Setup::new(&policy).secret("TOKEN", &format!("a.test:{}", server.port), SECRET).build()
}

fn https(answer: impl Fn(&Request) -> Vec<u8> + Send + Sync + 'static) -> Server {
    Server::start_tls(tls(&["a.test"]), http(answer))
}

/// Sends the placeholder to the server and returns the response.
fn echoed(server: &Server) -> Response {
    let world = world(server);
    let client = world.connect_tls("a.test", server.port);
    client.get("/", &format!("X-Key: {}\r\nAccept-Encoding: gzip\r\n", world.placeholder("TOKEN")))
}

fn key(request: &Request) -> String {
    let key = request.header("x-key").unwrap().to_owned();
    assert_eq!(key, SECRET);
    key
}

/// The encodings of the secret in which an echo server may return it.
fn encodings() -> Vec<String> {
    let percent: String = SECRET
        .bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'0'..=b'9' => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        })
        .collect();
    vec![
        SECRET.to_owned(),
        STANDARD.encode(SECRET),
        STANDARD.encode(format!("a:{SECRET}")),
        STANDARD.encode(format!("ab:{SECRET}:x")),
        STANDARD.encode(format!("{SECRET}:xy")),
        URL_SAFE_NO_PAD.encode(SECRET),
        URL_SAFE_NO_PAD.encode(format!("u:{SECRET}")),
        percent.to_ascii_lowercase(),
        percent,
        SECRET.bytes().map(|byte| format!("{byte:02x}")).collect(),
        SECRET.bytes().map(|byte| format!("{byte:02X}")).collect(),
        SECRET.replace('/', "\\/"),
    ]
}

/// Returns whether a text has so much of an encoding that the secret could be computed from it.
fn leaks(text: &str, encoding: &str) -> bool {
    let longest =
        (0..encoding.len()).any(|start| encoding.get(start..start + 8).is_some_and(|part| text.contains(part)));
    longest || text.contains(SECRET)
}

#[test]
fn bodies_with_a_length_are_scrubbed_in_every_encoding() {
    for encoding in encodings() {
        let body = format!("<{encoding}>");
        let sent = body.clone();
        let server = https(move |request| {
            key(request);
            response(sent.as_bytes())
        });
        let answer = echoed(&server);
        assert_eq!(answer.body.len(), body.len());
        assert!(!leaks(&answer.text(), &encoding), "{encoding}: {}", answer.text());
        assert!(answer.text().starts_with('<') && answer.text().ends_with('>'));
    }
}

#[test]
fn headers_reasons_and_trailers_are_scrubbed() {
    let server = https(|request| {
        let key = key(request);
        format!(
            "HTTP/1.1 200 {key}\r\nLocation: https://b.test/?{key}\r\nX-{key}x: a\r\nTransfer-Encoding: chunked\r\n\r\n\
             0\r\nX-Trailer: {key}\r\n\r\n"
        )
        .replace(&format!("X-{key}x: a\r\n"), "")
        .into_bytes()
    });
    let world = world(&server);
    let client = world.connect_tls("a.test", server.port);
    client.send(&format!(
        "GET / HTTP/1.1\r\nHost: a.test\r\nX-Key: {}\r\nConnection: close\r\n\r\n",
        world.placeholder("TOKEN")
    ));
    client.connection.shutdown(false, true);
    let text = String::from_utf8(client.read_rest()).unwrap();
    assert!(text.ends_with(&format!("0\r\nX-Trailer: {}\r\n\r\n", "*".repeat(SECRET.len()))), "{text}");
    assert!(text.contains("Location: https://b.test/?***") && !text.contains(SECRET), "{text}");
}

/// Returns a server that writes the answer in pieces of one byte.
fn slow_server(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Server {
    Server::start_tls(tls(&["a.test"]), move |stream: &mut dyn Stream, seen| {
        let request = read_request(stream, seen).unwrap();
        for byte in answer(&key(&request)) {
            stream.write_all(&[byte]).unwrap();
            stream.flush().unwrap();
        }
    })
}

#[test]
fn single_bytes_are_scrubbed() {
    for encoding in encodings() {
        let sent = encoding.clone();
        let server = slow_server(move |_| response(sent.as_bytes()));
        let text = echoed(&server).text();
        assert_eq!(text.len(), encoding.len());
        assert!(!leaks(&text, &encoding), "{encoding}: {text}");
    }
}

#[test]
fn chunks_of_one_byte_are_scrubbed() {
    let server = slow_server(|key| {
        let mut answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        for byte in format!("<{key}>").bytes() {
            answer.extend([b"1;x=y\r\n".as_slice(), &[byte], b"\r\n"].concat());
        }
        answer.extend(b"0\r\n\r\n");
        answer
    });
    assert_eq!(echoed(&server).text(), format!("<{}>", "*".repeat(SECRET.len())));
}

#[test]
fn bodies_until_the_end_are_scrubbed() {
    let server = slow_server(|key| format!("HTTP/1.1 200 OK\r\n\r\n<{key}").into_bytes());
    assert_eq!(echoed(&server).text(), format!("<{}", "*".repeat(SECRET.len())));
}

fn compressed(encoding: &str, text: &[u8]) -> Vec<u8> {
    let body = if encoding == "gzip" {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    } else {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    };
    let head = format!("HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), &body].concat()
}

#[test]
fn compressed_bodies_are_scrubbed() {
    for encoding in ["gzip", "deflate"] {
        let server = https(move |request| compressed(encoding, format!("<{}>", key(request)).as_bytes()));
        let answer = echoed(&server);
        assert_eq!(answer.text(), format!("<{}>", "*".repeat(SECRET.len())));
        assert!(!answer.head.to_ascii_lowercase().contains("content-encoding"));
    }
}

/// Attack: encodings that cannot be searched.
#[test]
fn responses_that_cannot_be_searched_are_refused() {
    for head in [
        "Content-Encoding: br",
        "Content-Encoding: zstd",
        "Content-Encoding: gzip, gzip",
        "Content-Encoding: gzip\r\nContent-Encoding: gzip",
    ] {
        let server = https(move |request| {
            format!("HTTP/1.1 200 OK\r\n{head}\r\nContent-Length: {}\r\n\r\n{}", SECRET.len(), key(request))
                .into_bytes()
        });
        let answer = echoed(&server);
        assert_eq!(answer.status, 502, "{head}");
        assert!(answer.text().contains("cannot be searched for secrets"), "{}", answer.text());
    }
}

/// Attack: a response that becomes much larger than it is.
#[test]
fn a_gzip_bomb_is_refused() {
    let bomb = compressed("gzip", &vec![0; 100 << 20]);
    let server = https(move |_| bomb.clone());
    let world = world(&server);
    let client = world.connect_tls("a.test", server.port);
    client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    let received = client.read_rest().len();
    assert!(received < 4 << 20, "{received}");
    assert!(world.records.wait(1)[0].error.as_deref().unwrap().contains("1000 times"));
}

/// Attack: the secret in pieces, by ranges of an echo.
#[test]
fn ranges_are_not_asked_for() {
    let server = https(|request| response(request.head.as_bytes()));
    let world = world(&server);
    let client = world.connect_tls("a.test", server.port);
    let text = client.get("/", "Range: bytes=0-3\r\nIf-Range: \"x\"\r\n").text();
    assert!(!text.to_ascii_lowercase().contains("range"), "{text}");
}

#[test]
fn the_end_of_a_message_that_begins_like_a_secret_arrives() {
    let server = Server::start_tls(tls(&["a.test"]), |stream, seen| {
        let request = read_request(stream, seen).unwrap();
        let key = key(&request);
        stream
            .write_all(
                format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab {}\r\n", &key[..2]).as_bytes(),
            )
            .unwrap();
        stream.flush().unwrap();
        // The next message follows only after the code has the first one.
        sleep(Duration::from_millis(1));
        let next = read_request(stream, seen).unwrap();
        assert!(next.head.starts_with("GET /next"));
        stream.write_all(format!("{:x}\r\n{}!\r\n0\r\n\r\n", key.len() - 1, &key[2..]).as_bytes()).unwrap();
    });
    let world = world(&server);
    let client = world.connect_tls("a.test", server.port);
    client
        .write_all(
            format!("GET / HTTP/1.1\r\nHost: a.test\r\nX-Key: {}\r\n\r\n", world.placeholder("TOKEN")).as_bytes(),
        )
        .unwrap();
    let mut text = Vec::new();
    while !String::from_utf8_lossy(&text).contains(&SECRET[..2]) {
        text.extend(client.read_some(1000).unwrap());
    }
    client.write_all(b"GET /next HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
    let rest = String::from_utf8(client.read_rest()).unwrap();
    assert!(rest.contains(&format!("{}!", "*".repeat(SECRET.len() - 2))), "{rest}");
}

#[test]
fn hosts_without_secrets_are_relayed_unchanged() {
    let server = https(|request| {
        let is_gzip = request.header("accept-encoding") == Some("gzip");
        if is_gzip { compressed("gzip", SECRET.as_bytes()) } else { response(b"no") }
    });
    let world = crate::client::world(server.port);
    let client = world.connect_tls("a.test", server.port);
    let answer = client.get("/", "Accept-Encoding: gzip\r\n");
    assert!(answer.head.contains("Content-Encoding: gzip") && answer.body.starts_with(&[0x1f, 0x8b]));
}

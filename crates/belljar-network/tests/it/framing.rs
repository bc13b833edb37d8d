//! Responses of hostile servers.

use crate::client::Setup;
use crate::server::{Server, read_request};

fn policy(port: u16) -> String {
    format!("resolve = {{ 'a.test' = '127.0.0.1' }}\n[[allow.'a.test:{port}']]\nmatch = {{ path = '/**' }}")
}

/// Lets a server answer a request, and checks that the response is refused before any of it reaches the code.
fn refused(answer: &[u8], reason: &str) {
    let sent = answer.to_vec();
    let server = Server::start(move |stream, seen| {
        read_request(stream, seen).unwrap();
        drop(stream.write_all(&sent));
        let mut byte = [0];
        drop(stream.read(&mut byte));
    });
    let world = Setup::new(&policy(server.port)).build();
    let client = world.connect("a.test", server.port);
    client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert_eq!(String::from_utf8_lossy(&client.read_rest()), "");
    let record = &world.records.wait(1)[0];
    let error = record.error.as_deref().unwrap();
    assert!(record.allowed && error.contains(reason), "{error}");
}

#[test]
fn ambiguous_lengths_are_refused() {
    refused(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", "more than one");
    refused(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "both");
    refused(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "not `chunked`");
    refused(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "not a number");
}

#[test]
fn heads_that_are_not_valid_are_refused() {
    refused(b"HTTP/1.1 200 OK\nContent-Length: 1\r\n\r\na", "CR LF");
    refused(b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n", "continues another");
    refused(b"HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n", "control character");
    refused(b"ICY 200 OK\r\n\r\n", "not valid");
    refused(b"not http at all\r\n\r\n", "not valid");
}

#[test]
fn endless_heads_are_refused() {
    refused(&[b"HTTP/1.1 200 OK\r\n".as_slice(), &b"X: yyyyyyyy\r\n".repeat(20_000)].concat(), "longer than");
    refused(&[b"HTTP/1.1 200 ".as_slice(), &b"x".repeat(100_000)].concat(), "longer than");
    refused(&[b"HTTP/1.1 200 OK\r\n".as_slice(), &b"X: y\r\n".repeat(200), b"\r\n"].concat(), "not valid");
}

#[test]
fn endless_interim_responses_are_refused() {
    let server = Server::start(|stream, seen| {
        read_request(stream, seen).unwrap();
        while stream.write_all(b"HTTP/1.1 102 Processing\r\n\r\n").is_ok() {}
    });
    let world = Setup::new(&policy(server.port)).build();
    let client = world.connect("a.test", server.port);
    client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert!(client.read_rest().len() < 1000);
    assert!(world.records.wait(1)[0].error.as_deref().unwrap().contains("too many interim responses"));
}

#[test]
fn bytes_that_were_not_asked_for_do_not_become_a_response() {
    let server = Server::start(|stream, seen| {
        read_request(stream, seen).unwrap();
        let answer =
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged";
        stream.write_all(answer).unwrap();
        drop(read_request(stream, seen));
    });
    let world = Setup::new(&policy(server.port)).build();
    let client = world.connect("a.test", server.port);
    assert_eq!(client.get("/", "").text(), "ok");
    assert_eq!(client.read_rest(), b"");
}

//! Attacks on the separation of requests and on the host of a connection. Each resets the connection, and nothing of
//! the request reaches the server.

use crate::client::Setup;
use crate::server::{Server, http, response};

fn policy(port: u16) -> String {
    format!("resolve = {{ 'a.test' = '127.0.0.1' }}\n[[allow.'a.test:{port}']]\nmatch = {{ method = ['GET', 'POST'] }}")
}

/// Sends a request and checks that it is refused for the reason.
fn refused(request: &str, reason: &str) {
    let server = Server::start(http(|_| response(b"reached")));
    let world = Setup::new(&policy(server.port)).build();
    let client = world.connect("a.test", server.port);
    client.send(request);
    let rest = client.read_rest();
    assert_eq!(String::from_utf8_lossy(&rest), "", "{request:?}");
    let records = world.records.wait(1);
    let error = records[0].error.clone().unwrap();
    assert!(!records[0].allowed && error.contains(reason), "{request:?}: {error}");
    assert_eq!(server.seen(), "", "{request:?}");
}

#[test]
fn both_lengths_are_refused() {
    refused(
        "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "both",
    );
    refused(
        "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
        "both",
    );
}

#[test]
fn repeated_lengths_are_refused() {
    refused("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\nabcd", "more than one");
    refused("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4, 4\r\n\r\nabcd", "not a number");
}

#[test]
fn hidden_transfer_encodings_are_refused() {
    for encoding in ["xchunked", "chunked, identity", "identity, chunked", "chunked\x0b", "\"chunked\"", "chunked;q=1"]
    {
        let request = format!("POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: {encoding}\r\n\r\n0\r\n\r\n");
        refused(&request, "");
    }
    refused("POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n", "not valid");
    refused("POST / HTTP/1.1\r\nHost: a.test\r\nTransfer_Encoding: chunked\r\n\r\n0\r\n\r\n", "ambiguous");
    refused("POST / HTTP/1.0\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "not `chunked`");
}

#[test]
fn folded_lines_are_refused() {
    refused("GET / HTTP/1.1\r\nHost: a.test\r\nX: a\r\n b\r\n\r\n", "continues another");
    refused("GET / HTTP/1.1\r\nHost: a.test\r\nX: a\r\n\tb\r\n\r\n", "continues another");
}

#[test]
fn line_feeds_without_carriage_returns_are_refused() {
    refused("GET / HTTP/1.1\nHost: a.test\r\n\r\n", "CR LF");
    refused("GET / HTTP/1.1\r\nHost: a.test\nX: y\r\n\r\n", "CR LF");
    refused("GET / HTTP/1.1\r\nHost: a.test\rX: y\r\n\r\n", "CR LF");
}

#[test]
fn control_characters_are_refused() {
    refused("GET / HTTP/1.1\r\nHost: a.test\r\nX: a\0b\r\n\r\n", "control character");
    refused("GET / HTTP/1.1\r\nHost: a.test\r\nX: a\x7fb\r\n\r\n", "control character");
}

#[test]
fn several_hosts_are_refused() {
    refused("GET / HTTP/1.1\r\nHost: a.test\r\nHost: evil.test\r\n\r\n", "more than one Host");
    refused("GET / HTTP/1.1\r\nHost: a.test\r\nhost: a.test\r\n\r\n", "more than one Host");
    refused("GET / HTTP/1.1\r\n\r\n", "no Host");
}

#[test]
fn a_host_unlike_the_connection_is_refused() {
    for host in [
        "evil.test",
        "b.a.test",
        "a.test.evil.test",
        "a.test:1",
        "a.test:",
        "a.test@evil.test",
        "evil.test,a.test",
        "127.0.0.1",
        "[a.test]",
        "a.test/",
        "a.test evil.test",
        "",
    ] {
        refused(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"), "is not that of the connection");
    }
}

#[test]
fn absolute_targets_of_other_hosts_are_refused() {
    refused("GET http://evil.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", "on another host");
    refused("GET http://a.test@evil.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", "on another host");
    refused("GET http://a.test:1/ HTTP/1.1\r\nHost: a.test\r\n\r\n", "on another host");
    refused("GET https://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n", "scheme");
    refused("GET file:///etc/passwd HTTP/1.1\r\nHost: a.test\r\n\r\n", "scheme");
    refused("GET a.test HTTP/1.1\r\nHost: a.test\r\n\r\n", "not a path");
    refused("GET * HTTP/1.1\r\nHost: a.test\r\n\r\n", "not a path");
}

#[test]
fn tunnels_are_refused() {
    refused("CONNECT evil.test:443 HTTP/1.1\r\nHost: a.test\r\n\r\n", "CONNECT");
    refused("CONNECT a.test:443 HTTP/1.1\r\nHost: a.test\r\n\r\n", "CONNECT");
}

#[test]
fn other_versions_and_protocols_are_refused() {
    refused("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "not valid");
    refused("GET /\r\n\r\n", "not valid");
    refused("\x16\x03\x01\x02\x00\x01", "only HTTP/1.1");
    refused("SSH-2.0-x\x00", "only HTTP/1.1");
    refused("\r\nGET / HTTP/1.1\r\nHost: a.test\r\n\r\n", "empty line");
    refused(" GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", "continues another");
}

#[test]
fn heads_that_are_too_long_are_refused() {
    let long = format!("GET / HTTP/1.1\r\nHost: a.test\r\nX: {}\r\n\r\n", "x".repeat(70_000));
    refused(&long, "longer than");
    let endless = format!("GET / HTTP/1.1\r\nHost: a.test\r\n{}", "X: y\r\n".repeat(20_000));
    refused(&endless, "longer than");
    let many = format!("GET / HTTP/1.1\r\nHost: a.test\r\n{}\r\n", "X: y\r\n".repeat(200));
    refused(&many, "not valid");
    refused(&format!("GET /{} HTTP/1.1\r\nHost: a.test\r\n\r\n", "x".repeat(70_000)), "longer than");
}

/// Attack: a second request hidden in the body of the first.
#[test]
fn bodies_are_not_requests() {
    let server = Server::start(http(|request| response(&request.body)));
    let world = Setup::new(&policy(server.port)).build();
    let client = world.connect("a.test", server.port);
    let hidden = "DELETE /all HTTP/1.1\r\nHost: a.test\r\n\r\n";
    let answer =
        client.request(&format!("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: {}\r\n\r\n{hidden}", hidden.len()));
    assert_eq!(answer.text(), hidden);
    // The bytes after the body are a request, and are checked.
    let request = format!("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 2\r\n\r\nab{hidden}");
    client.send(&request);
    assert_eq!(client.response().unwrap().text(), "ab");
    assert_eq!(client.response().unwrap().status, 403);
    assert_eq!(server.seen().matches("DELETE").count(), 1);
}

/// Attack: bodies in chunks whose end servers see in different places.
#[test]
fn ambiguous_chunks_are_refused() {
    for body in [
        "1\r\nab\r\n0\r\n\r\n",
        "0x1\r\na\r\n0\r\n\r\n",
        "1\na\r\n0\r\n\r\n",
        "1\r\na\n0\r\n\r\n",
        "+1\r\na\r\n",
        "1;a\nb\r\na\r\n",
        "-1\r\n",
        "\r\n",
        "ffffffffffffffffff\r\n",
    ] {
        let server = Server::start(http(|_| response(b"reached")));
        let world = Setup::new(&policy(server.port)).build();
        let client = world.connect("a.test", server.port);
        client.send(&format!("POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n{body}"));
        assert_eq!(client.read_rest(), b"", "{body:?}");
        let record = &world.records.wait(1)[0];
        assert!(record.error.as_deref().unwrap().contains("chunk"), "{body:?}: {record:?}");
    }
}

/// Attack: trailers that servers read as headers.
#[test]
fn trailers_of_requests_are_dropped() {
    let server = Server::start(http(|_| response(b"ok")));
    let world = Setup::new(&policy(server.port)).build();
    let client = world.connect("a.test", server.port);
    let body = "1\r\na\r\n0\r\nX-HTTP-Method-Override: DELETE\r\n\r\n";
    let request = format!("POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
    assert_eq!(client.request(&request).text(), "ok");
    assert!(!server.seen().contains("Override"));
}

/// Attack: headers that a proxy before the server would remove, the secret among them.
#[test]
fn the_connection_header_removes_no_others() {
    let server = Server::start(http(|request| response(request.head.as_bytes())));
    let world = Setup::new(&policy(server.port)).build();
    let client = world.connect("a.test", server.port);
    let head = client.get("/", "Connection: keep-alive, Authorization, X-Forwarded-For\r\nAuthorization: x\r\n").text();
    assert!(head.contains("Connection: keep-alive\r\n") && head.contains("Authorization: x"), "{head}");
    assert!(!head.contains("X-Forwarded-For"));
}

/// Attack: a change to HTTP/2 in clear text, in which requests would not be checked.
#[test]
fn other_protocols_than_websockets_are_not_asked_for() {
    let server = Server::start(http(|request| response(request.head.as_bytes())));
    let world = Setup::new(&policy(server.port)).build();
    let client = world.connect("a.test", server.port);
    let upgrade = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n";
    let head = client.get("/", upgrade).text().to_ascii_lowercase();
    assert!(!head.contains("h2c") && !head.contains("http2") && !head.contains("upgrade"), "{head}");
}

/// Attack: the server switches protocols without being asked to.
#[test]
fn a_switch_of_protocols_that_was_not_asked_for_is_refused() {
    let server = Server::start(http(|_| b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\nraw".to_vec()));
    let world = Setup::new(&policy(server.port)).build();
    let client = world.connect("a.test", server.port);
    client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert_eq!(client.read_rest(), b"");
    assert!(world.records.wait(1)[0].error.as_deref().unwrap().contains("without being asked"));
}

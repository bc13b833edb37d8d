//! Rules on requests.

use crate::client::{Setup, World};
use crate::server::{Server, http, response, tls};

fn echo() -> Server {
    Server::start_tls(tls(&["a.test"]), http(|request| response(request.head.as_bytes())))
}

fn world(server: &Server, rules: &str) -> World {
    let rules = rules.replace("HOST", &format!("a.test:{}", server.port));
    Setup::new(&format!("resolve = {{ 'a.test' = '127.0.0.1' }}\n{rules}")).build()
}

#[test]
fn requests_that_no_rule_matches_are_answered_with_the_reason() {
    let server = echo();
    let world = world(&server, "[[allow.'HOST']]\nmatch = { method = 'GET', path = ['/repos/*', '/user'] }");
    let client = world.connect_tls("a.test", server.port);
    assert_eq!(client.get("/repos/a/b", "").status, 200);
    let answer = client.request("DELETE /repos/a/b?token=x HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert_eq!(answer.status, 403);
    assert_eq!(
        answer.text(),
        format!(
            "network access to DELETE a.test:{0}/repos/a/b is not allowed by the rules of a.test:{0}: no rule matches its \
             method, path, query and headers\n",
            server.port
        )
    );
    assert_eq!(client.read_to_end().unwrap(), b"");
    // The code may still be sending.
    client.write_all(&vec![b'x'; 1_000_000]).unwrap();
    let records = world.records.wait(2);
    assert_eq!(records[0].rule, Some(format!("a.test:{} rule 1", server.port)));
    assert_eq!((records[1].status, records[1].allowed), (Some(403), false));
    assert!(!server.seen().contains("DELETE"));
}

/// Attack: paths that rules and servers could read in different ways.
#[test]
fn paths_that_lead_elsewhere_are_refused() {
    let server = echo();
    let world = world(&server, "[[allow.'HOST']]\nmatch = { path = '/public/*' }");
    for path in [
        "/private",
        "/public/../private",
        "/public/%2e%2e/private",
        "/public/.%2E/private",
        "/public/..%2fprivate",
        "/public%2fx",
        "/public/..\\private",
        "/public/%5c..%5cprivate",
        "/public/..;/private",
        "/public/%252e%252e/private",
        "/public//../private",
        "/public/./x",
        "/PUBLIC/x",
        "//public/x",
        "/public/%00",
        "/public/%",
        "/public/%ff",
        "/public/..%20/private",
        "/public/.../private",
        "/public/%ef%bc%8e%ef%bc%8e/private",
        "/public/%c0%ae%c0%ae/private",
        "/public%ef%bc%8fprivate",
        "/public/%u002e%u002e/private",
    ] {
        let client = world.connect_tls("a.test", server.port);
        assert_eq!(client.get(path, "").status, 403, "{path}");
    }
    assert_eq!(server.seen(), "");
    for path in ["/public/x", "/public/x?../private", "/%70ublic/x", "/public/a...b"] {
        let client = world.connect_tls("a.test", server.port);
        assert_eq!(client.get(path, "").status, 200, "{path}");
    }
}

/// Attack: headers and parameters that replace the method, the path or the host.
#[test]
fn headers_that_replace_the_method_or_the_path_are_refused() {
    let server = echo();
    let world = world(&server, "[[allow.'HOST']]\nmatch = { method = 'GET' }");
    for header in [
        "X-HTTP-Method-Override: DELETE",
        "x-http-method: DELETE",
        "X-Method-Override: x",
        "X-Original-URL: /x",
        "X-Rewrite-URL: /x",
        "X_HTTP_Method_Override: DELETE",
        "X-Forwarded-Host: b.test",
        "X-Forwarded-Uri: /x",
        "Forwarded: host=b.test",
    ] {
        let client = world.connect_tls("a.test", server.port);
        assert_eq!(client.get("/", &format!("{header}\r\n")).status, 403, "{header}");
    }
    for path in ["/?_method=DELETE", "/?a=b&_METHOD=DELETE", "/?%5Fmethod=DELETE"] {
        let client = world.connect_tls("a.test", server.port);
        assert_eq!(client.get(path, "").status, 403, "{path}");
    }
    for method in ["get", "GETX", "DELETE", "OPTIONS", "TRACE", "M-SEARCH"] {
        let client = world.connect_tls("a.test", server.port);
        assert_eq!(client.request(&format!("{method} / HTTP/1.1\r\nHost: a.test\r\n\r\n")).status, 403, "{method}");
    }
    assert_eq!(server.seen(), "");
}

#[test]
fn queries_and_headers_are_matched() {
    let server = echo();
    let world =
        world(&server, "[[allow.'HOST']]\nmatch = { query = { state = 'open' }, headers = { x-team = 'blue*' } }");
    let client = world.connect_tls("a.test", server.port);
    assert_eq!(client.get("/?state=open", "X-Team: blue-1\r\n").status, 200);
    for (path, header) in [
        ("/", "X-Team: blue\r\n"),
        ("/?state=open&state=all", "X-Team: blue\r\n"),
        ("/?state=open&%73tate=all", "X-Team: blue\r\n"),
        ("/?state=open", ""),
        ("/?state=open", "X-Team: blue\r\nX-Team: red\r\n"),
        ("/?state=open", "X-Team: blue\r\nX_Team: red\r\n"),
        ("/?state=open", "X_Team: blue\r\n"),
        ("/?state=open&STATE=all", "X-Team: blue\r\n"),
        ("/?state=open&state[]=all", "X-Team: blue\r\n"),
        ("/?state=open;state=all", "X-Team: blue\r\n"),
    ] {
        let client = world.connect_tls("a.test", server.port);
        assert_eq!(client.get(path, header).status, 403, "{path} {header}");
    }
}

#[test]
fn transforms_replace_the_headers_of_the_code() {
    let server = echo();
    let world =
        world(&server, "[[allow.'HOST']]\ntransform = [{ headers = { X-Client = 'belljar', X-More = 'yes' } }]");
    let client = world.connect_tls("a.test", server.port);
    let head = client.get("/", "x-client: mine\r\nX-CLIENT: mine too\r\nX_Client: mine\r\n").text();
    assert_eq!(head.to_ascii_lowercase().replace('_', "-").matches("x-client").count(), 1, "{head}");
    assert!(head.contains("X-Client: belljar\r\nX-More: yes\r\n"), "{head}");
}

#[test]
fn every_request_of_a_connection_is_checked() {
    let server = echo();
    let world = world(&server, "[[allow.'HOST']]\nmatch = { path = '/a' }");
    let client = world.connect_tls("a.test", server.port);
    client
        .write_all(b"GET /a HTTP/1.1\r\nHost: a.test\r\n\r\nGET /b HTTP/1.1\r\nHost: a.test\r\n\r\nGET /a HTTP/1.1\r\nHost: a.test\r\n\r\n")
        .unwrap();
    assert_eq!(client.response().unwrap().status, 200);
    assert_eq!(client.response().unwrap().status, 403);
    assert_eq!(client.read_to_end().unwrap(), b"");
    assert_eq!(server.seen().matches("GET").count(), 1);
}

/// Attack: a name in TLS whose rules are those of another host than the connection's.
#[test]
fn the_rules_of_the_name_in_tls_hold_for_connections_to_addresses() {
    let server = Server::start_tls(tls(&["b.test"]), http(|_| response(b"ok")));
    let policy = format!("[[allow.'127.0.0.1:{0}']]\n[[allow.'b.test:{0}']]\nmatch = {{ path = '/b' }}", server.port);
    let world = Setup::new(&policy).build();
    let client = world.connect_address("127.0.0.1", server.port);
    assert_eq!(client.start_tls(&crate::client::verified("b.test"))["error"], serde_json::Value::Null);
    assert_eq!(client.request("GET /b HTTP/1.1\r\nHost: b.test\r\n\r\n").status, 200);
    assert_eq!(client.request("GET /c HTTP/1.1\r\nHost: b.test\r\n\r\n").status, 403);
}

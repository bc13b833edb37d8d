//! HTTP/1.1 as libraries use it.

use crate::client::{Setup, policy, world};
use crate::server::{Server, http, read_request, response, tls};

/// A policy under which the port requires HTTP.
fn required(port: u16) -> String {
    format!("resolve = {{ 'a.test' = '127.0.0.1' }}\n[[allow.'a.test:{port}']]\nmatch = {{ path = '/**' }}")
}

#[test]
fn requests_on_one_connection_are_recorded_one_by_one() {
    let server =
        Server::start_tls(tls(&["a.test"]), http(|request| response(request.head.lines().next().unwrap().as_bytes())));
    let world = world(server.port);
    let client = world.connect_tls("a.test", server.port);
    assert_eq!(client.get("/one?x=1", "").text(), "GET /one?x=1 HTTP/1.1");
    assert_eq!(client.get("/two", "").text(), "GET /two HTTP/1.1");
    let records = world.records.wait(2);
    assert_eq!((records[0].method.as_deref(), records[0].path.as_deref()), (Some("GET"), Some("/one?x=1")));
    assert_eq!((records[1].path.as_deref(), records[1].status), (Some("/two"), Some(200)));
    assert!(records.iter().all(|record| record.allowed && record.error.is_none() && record.bytes_received > 0));
    drop(client);
    assert_eq!(world.records.wait(2).len(), 2);
}

#[test]
fn bodies_of_requests_keep_their_framing() {
    let server = Server::start(http(|request| response(&request.body)));
    let world = Setup::new(&required(server.port)).build();
    let client = world.connect("a.test", server.port);
    let sized = client.request("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(sized.text(), "hello");
    let chunked = "POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nX: y\r\n\r\n";
    assert_eq!(client.request(chunked).text(), "abcde");
    assert_eq!(client.get("/", "").text(), "");
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = Server::start(http(|request| response(request.head.split(' ').nth(1).unwrap().as_bytes())));
    let client = Setup::new(&required(server.port)).build().connect("a.test", server.port);
    let mut text = String::new();
    for index in 0..40 {
        text += &format!("POST /{index} HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\n\r\nabc");
    }
    client.write_all(text.as_bytes()).unwrap();
    for index in 0..40 {
        assert_eq!(client.response().unwrap().text(), format!("/{index}"));
    }
}

#[test]
fn responses_without_bodies_do_not_wait_for_one() {
    let server = Server::start(http(|request| {
        if request.head.starts_with("HEAD") {
            b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n".to_vec()
        } else if request.head.contains("/304") {
            b"HTTP/1.1 304 Not Modified\r\nContent-Length: 100\r\n\r\n".to_vec()
        } else if request.head.contains("/204") {
            b"HTTP/1.1 204 No Content\r\n\r\n".to_vec()
        } else {
            response(b"end")
        }
    }));
    let client = Setup::new(&required(server.port)).build().connect("a.test", server.port);
    client.write_all(b"HEAD / HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
    assert_eq!(client.read_exact(40).unwrap().len(), 40);
    assert_eq!(client.get("/304", "").status, 304);
    assert_eq!(client.get("/204", "").status, 204);
    assert_eq!(client.get("/", "").text(), "end");
}

#[test]
fn responses_in_chunks_and_until_the_end_are_relayed() {
    let server = Server::start(http(|request| {
        if request.head.contains("/chunked") {
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n2;a=b\r\nef\r\n0\r\nX-Sum: 1\r\n\r\n"
                .to_vec()
        } else {
            b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end".to_vec()
        }
    }));
    let client = Setup::new(&required(server.port)).build().connect("a.test", server.port);
    assert_eq!(client.get("/chunked", "").text(), "abcdef");
    assert_eq!(client.get("/", "").text(), "until the end");
    assert_eq!(client.read_to_end().unwrap(), b"");
}

#[test]
fn the_code_waits_for_permission_to_send_a_body() {
    let server = Server::start(|stream, seen| {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        seen.lock().unwrap().extend(&head);
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").unwrap();
        let mut body = [0; 4];
        stream.read_exact(&mut body).unwrap();
        stream.write_all(&response(&body)).unwrap();
    });
    let client = Setup::new(&required(server.port)).build().connect("a.test", server.port);
    let interim =
        client.request("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(interim.status, 100);
    client.write_all(b"body").unwrap();
    assert_eq!(client.response().unwrap().text(), "body");
    assert!(server.seen().contains("Expect: 100-continue"));
}

#[test]
fn an_early_response_arrives_although_the_server_reads_nothing_more() {
    let server = Server::start(|stream, _| {
        let mut bytes = [0; 100];
        stream.read_exact(&mut bytes[..20]).unwrap();
        stream.write_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig").unwrap();
        stream.flush().unwrap();
        // The rest is read, so that the response is not lost in a reset.
        while stream.read(&mut bytes).is_ok_and(|read| read > 0) {}
    });
    let client = Setup::new(&required(server.port)).build().connect("a.test", server.port);
    client.send("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 100000000\r\n\r\nxxxxx");
    let response = client.response().unwrap();
    assert_eq!((response.status, response.text()), (413, "big".to_owned()));
}

#[test]
fn absolute_targets_of_the_same_host_become_paths() {
    let server = Server::start(http(|request| response(request.head.lines().next().unwrap().as_bytes())));
    let client = Setup::new(&required(server.port)).build().connect("a.test", server.port);
    let port = server.port;
    let target = format!("http://A.test:{port}/x?y=z");
    let answer = client.request(&format!("GET {target} HTTP/1.1\r\nHost: a.test:{port}\r\n\r\n"));
    assert_eq!(answer.text(), "GET /x?y=z HTTP/1.1");
}

#[test]
fn http_on_other_ports_is_recognized() {
    let server = Server::start(http(|_| response(b"hello")));
    let world = world(server.port);
    let client = world.connect("a.test", server.port);
    for part in ["G", "ET", " /pa", "th HTTP/1.1\r\nHost: a.test\r\n", "\r\n"] {
        client.write_all(part.as_bytes()).unwrap();
    }
    assert_eq!(client.response().unwrap().text(), "hello");
    assert_eq!(world.records.wait(1)[0].path.as_deref(), Some("/path"));
}

#[test]
fn other_protocols_on_other_ports_pass() {
    let server = Server::start(|stream, _| {
        stream.write_all(b"+ready\r\n").unwrap();
        let mut bytes = [0; 9];
        stream.read_exact(&mut bytes).unwrap();
        stream.write_all(&bytes).unwrap();
    });
    let client = world(server.port).connect("a.test", server.port);
    assert_eq!(client.read_exact(8).unwrap(), b"+ready\r\n");
    client.write_all(b"GET key\r\n").unwrap();
    assert_eq!(client.read_exact(9).unwrap(), b"GET key\r\n");
}

#[test]
fn a_first_write_that_may_become_a_request_is_sent_after_some_time() {
    let server = Server::start(|stream, _| {
        let mut bytes = [0; 3];
        stream.read_exact(&mut bytes).unwrap();
        stream.write_all(&bytes).unwrap();
    });
    let client = world(server.port).connect("a.test", server.port);
    client.write_all(b"GET").unwrap();
    assert_eq!(client.read_exact(3).unwrap(), b"GET");
}

/// Attack: a redirect leads the code to a host that is not allowed. It is a connection as any other.
#[test]
fn redirects_are_new_connections() {
    let location = "HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest/\r\nContent-Length: 0\r\n\r\n";
    let server = Server::start(http(move |_| location.as_bytes().to_vec()));
    let world = world(server.port);
    let client = world.connect("a.test", server.port);
    assert!(client.get("/", "").head.contains("Location: http://169.254.169.254/latest/"));
    let target = "169.254.169.254:80".parse().unwrap();
    assert!(world.connections.connect(target).is_err());
    assert!(world.connections.resolve("evil.test").is_err());
}

#[test]
fn a_server_that_closes_an_idle_connection_ends_it() {
    let server = Server::start(|stream, seen| {
        read_request(stream, seen).unwrap();
        stream.write_all(&response(b"one")).unwrap();
    });
    let client = Setup::new(&required(server.port)).build().connect("a.test", server.port);
    assert_eq!(client.get("/", "").text(), "one");
    assert_eq!(client.read_to_end().unwrap(), b"");
    assert_eq!(client.write_all(b"GET").unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
}

#[test]
fn a_response_that_is_cut_off_is_an_error() {
    let server = Server::start(|stream, seen| {
        read_request(stream, seen).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc").unwrap();
    });
    let world = Setup::new(&required(server.port)).build();
    let client = world.connect("a.test", server.port);
    client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert_eq!(client.response().unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    assert!(world.records.wait(1)[0].error.as_deref().unwrap().contains("within a response"));
}

#[test]
fn large_bodies_pass_in_both_directions() {
    let server = Server::start_tls(tls(&["a.test"]), |stream, _| {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let mut body = vec![0; 8_000_000];
        stream.read_exact(&mut body).unwrap();
        stream.write_all(&response(&body)).unwrap();
        stream.flush().unwrap();
    });
    let world = Setup::new(&policy(server.port)).build();
    let client = world.connect_tls("a.test", server.port);
    let body: Vec<u8> = (0..8_000_000_u32).map(|index| ((index * 7) >> 5) as u8).collect();
    client.write_all(b"PUT /x HTTP/1.1\r\nHost: a.test\r\nContent-Length: 8000000\r\n\r\n").unwrap();
    client.write_all(&body).unwrap();
    assert!(client.response().unwrap().body == body);
    assert!(world.records.wait(1)[0].bytes_sent > 8_000_000);
}

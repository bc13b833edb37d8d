//! Limits of connections, bytes and time, against servers and code that use too much.

use std::io;
use std::time::Duration;

use belljar_network::{NetworkLimits, RefusalKind};

use crate::client::{Setup, World, policy};
use crate::server::{Server, http, response, tls};

/// A limit of time that a test reaches, and that a busy machine does not reach between two steps of a test.
const SHORT_TIME: Duration = Duration::from_secs(3);

fn world(port: u16, limits: NetworkLimits) -> World {
    Setup::new(&policy(port)).limits(limits).build()
}

/// A server that reads everything and sends nothing.
fn silent_server() -> Server {
    Server::start(|stream, _| {
        let mut buffer = [0; 65536];
        while stream.read(&mut buffer).is_ok_and(|read| read > 0) {}
    })
}

#[test]
fn connections_at_once_are_limited() {
    let server = silent_server();
    let world = world(server.port, NetworkLimits { connections: 3, ..NetworkLimits::default() });
    let mut clients: Vec<_> = (0..3).map(|_| world.connect("a.test", server.port)).collect();
    let address = world.connections.resolve("a.test").unwrap()[0];
    let refusal = world.connections.connect((address, server.port).into()).unwrap_err();
    assert_eq!(refusal.kind(), RefusalKind::Limit);
    assert!(refusal.to_string().ends_with("more than 3 connections at once"), "{refusal}");
    clients.pop();
    clients.push(world.connect("a.test", server.port));
}

#[test]
fn connections_of_a_run_are_limited() {
    let server = silent_server();
    let world = world(server.port, NetworkLimits { opened: 2, ..NetworkLimits::default() });
    for _ in 0..2 {
        drop(world.connect("a.test", server.port));
    }
    let address = world.connections.resolve("a.test").unwrap()[0];
    assert_eq!(world.connections.connect((address, server.port).into()).unwrap_err().kind(), RefusalKind::Limit);
    world.connections.start_run();
    drop(world.connect("a.test", server.port));
}

#[test]
fn requests_of_a_run_are_limited() {
    let server = Server::start(http(|_| response(b"ok")));
    let world = world(server.port, NetworkLimits { requests: 2, ..NetworkLimits::default() });
    let client = world.connect("a.test", server.port);
    for _ in 0..2 {
        assert_eq!(client.get("/", "").text(), "ok");
    }
    client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert_eq!(client.response().unwrap_err().to_string(), "more than 2 requests");
    world.connections.start_run();
    assert_eq!(world.connect("a.test", server.port).get("/", "").text(), "ok");
}

#[test]
fn sent_bytes_are_limited() {
    let server = silent_server();
    let world = world(server.port, NetworkLimits { bytes_sent: 100_000, ..NetworkLimits::default() });
    let client = world.connect("a.test", server.port);
    let error = loop {
        if let Err(error) = client.write_all(&[b'x'; 10_000]) {
            break error;
        }
    };
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    assert!(error.to_string().contains("more than 100000 bytes were sent"), "{error}");
}

#[test]
fn received_bytes_are_limited() {
    let server = Server::start(|stream, _| while stream.write_all(&[b'x'; 10_000]).is_ok() {});
    let world = world(server.port, NetworkLimits { bytes_received: 100_000, ..NetworkLimits::default() });
    let client = world.begin("a.test", server.port);
    assert!(client.read_rest().len() <= 100_000);
    assert!(world.records.wait(1)[0].error.as_deref().unwrap().contains("more than 100000 bytes were received"));
}

#[test]
fn a_code_that_does_not_read_stops_the_server() {
    let server = Server::start(|stream, seen| {
        let block = [b'x'; 65536];
        while stream.write_all(&block).is_ok() {
            seen.lock().unwrap().push(0);
        }
    });
    let world = world(server.port, NetworkLimits { idle: SHORT_TIME, ..NetworkLimits::default() });
    let client = world.connect("a.test", server.port);
    // The connection fails for being idle: the server was not read from once the buffer was full.
    world.records.wait(1);
    let received = client.read_rest().len();
    assert!((1..=320 * 1024).contains(&received), "{received}");
}

#[test]
fn silent_servers_time_out() {
    let server = silent_server();
    let world = world(server.port, NetworkLimits { idle: SHORT_TIME, ..NetworkLimits::default() });
    let client = world.connect("a.test", server.port);
    client.write_all(b"hello").unwrap();
    assert_eq!(client.read_some(1).unwrap_err().kind(), io::ErrorKind::TimedOut);
    let client = world.connect("a.test", server.port);
    client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert_eq!(client.response().unwrap_err().kind(), io::ErrorKind::TimedOut);
    assert!(world.records.wait(2).iter().all(|record| record.error.is_some()));
}

#[test]
fn idle_connections_of_http_end_without_an_error() {
    let server = Server::start(http(|_| response(b"hello")));
    let world = world(server.port, NetworkLimits { idle: SHORT_TIME, ..NetworkLimits::default() });
    let client = world.connect("a.test", server.port);
    assert_eq!(client.get("/", "").text(), "hello");
    assert_eq!(client.read_to_end().unwrap(), b"");
    assert_eq!(world.records.wait(1)[0].error, None);
}

#[test]
fn servers_that_never_finish_the_handshake_time_out() {
    let server = silent_server();
    let world = world(server.port, NetworkLimits { connect: SHORT_TIME, ..NetworkLimits::default() });
    let client = world.connect("a.test", server.port);
    let answer = client.start_tls(&crate::client::verified("a.test"));
    assert_eq!(answer["error"]["message"], "the handshake timed out");
}

#[test]
fn a_slow_drip_ends_with_the_time_of_a_connection() {
    let server = Server::start(|stream, _| {
        while stream.write_all(b"x").is_ok() {
            std::thread::sleep(Duration::from_millis(200));
        }
    });
    let limits = NetworkLimits { lifetime: SHORT_TIME, ..NetworkLimits::default() };
    let client = world(server.port, limits).connect("a.test", server.port);
    assert!(!client.read_rest().is_empty());
}

#[test]
fn the_time_of_all_connections_of_a_run_is_limited() {
    let server = silent_server();
    let world = world(server.port, NetworkLimits { total: SHORT_TIME, ..NetworkLimits::default() });
    let clients = [world.connect("a.test", server.port), world.connect("a.test", server.port)];
    for client in &clients {
        assert_eq!(client.read_some(1).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
    assert!(world.records.wait(2).iter().all(|record| record.error.is_some()));
    let address = world.connections.resolve("a.test").unwrap()[0];
    let refusal = world.connections.connect((address, server.port).into()).unwrap_err();
    assert_eq!(refusal.kind(), RefusalKind::Limit);
    assert!(refusal.to_string().ends_with("the network was used for more than 3 seconds"), "{refusal}");
    world.connections.start_run();
    drop(world.connect("a.test", server.port));
}

#[test]
fn times_beyond_the_clock_are_no_limits() {
    let server = Server::start(http(|_| response(b"hello")));
    let (lifetime, total, idle) = (Duration::MAX, Duration::MAX, Duration::MAX);
    let world = world(server.port, NetworkLimits { lifetime, total, idle, ..NetworkLimits::default() });
    assert_eq!(world.connect("a.test", server.port).get("/", "").text(), "hello");
}

#[test]
fn names_are_limited() {
    let world =
        Setup::new("allow = ['*.test']").limits(NetworkLimits { lookups: 3, ..NetworkLimits::default() }).build();
    for index in 0..3 {
        world.connections.resolve(&format!("n{index}.test")).unwrap();
    }
    assert_eq!(world.connections.resolve("n3.test").unwrap_err().kind(), RefusalKind::Limit);
    world.connections.resolve("n0.test").unwrap();
}

#[test]
fn look_ups_are_limited() {
    let limits = NetworkLimits { lookups: 2, ..NetworkLimits::default() };
    let world = Setup::new("allow = ['localhost:9']").limits(limits).build();
    for _ in 0..2 {
        let error = world.begin("localhost", 9).wait_connected().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
    }
    let error = world.begin("localhost", 9).wait_connected().unwrap_err();
    assert!(error.to_string().contains("more than 2 look-ups"), "{error}");
}

#[test]
fn records_of_refusals_are_limited() {
    let world =
        Setup::new("allow = ['a.test']").limits(NetworkLimits { refusals: 5, ..NetworkLimits::default() }).build();
    for index in 0..100 {
        assert!(world.connections.resolve(&format!("n{index}.test")).is_err());
    }
    assert_eq!(world.records.wait(5).len(), 5);
}

#[test]
fn many_connections_at_once_are_independent() {
    let server =
        Server::start_tls(tls(&["a.test"]), http(|request| response(request.head.lines().next().unwrap().as_bytes())));
    let world = world(server.port, NetworkLimits::default());
    std::thread::scope(|scope| {
        for index in 0..32 {
            let world = &world;
            let port = server.port;
            scope.spawn(move || {
                let client = world.connect_tls("a.test", port);
                for round in 0..10 {
                    let text = client.get(&format!("/{index}/{round}"), "").text();
                    assert_eq!(text, format!("GET /{index}/{round} HTTP/1.1"));
                }
            });
        }
    });
    assert_eq!(world.records.wait(320).len(), 320);
}

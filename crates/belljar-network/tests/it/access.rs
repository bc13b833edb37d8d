//! Names, addresses and connections.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use belljar_network::{RefusalKind, Resolver};

use crate::client::{Setup, world};
use crate::server::Server;

/// A resolver with a different answer for each look-up.
struct Changing {
    answers: Vec<Vec<&'static str>>,
    lookups: Arc<AtomicUsize>,
}

impl Resolver for Changing {
    fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        assert_eq!(name, "a.test");
        let index = self.lookups.fetch_add(1, Ordering::SeqCst);
        let answer = self.answers.get(index).or(self.answers.last()).unwrap();
        Ok(answer.iter().map(|address| address.parse().unwrap()).collect())
    }
}

/// A server that returns what it receives.
fn echo() -> Server {
    Server::start(|stream, _| {
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = stream.read(&mut buffer) {
            if stream.write_all(&buffer[..read]).is_err() {
                return;
            }
        }
    })
}

#[test]
fn a_connection_by_name_carries_bytes_and_is_recorded() {
    let server = echo();
    let world = world(server.port);
    let client = world.connect("A.test.", server.port);
    assert!(client.connection.readiness().writable);
    assert!(!client.connection.readiness().readable);
    client.write_all(b"hello").unwrap();
    assert_eq!(client.read_exact(5).unwrap(), b"hello");
    let peer = client.connection.peer();
    assert_eq!(world.connections.name_of(peer.ip()).as_deref(), Some("a.test"));
    assert!(!client.connection.local().ip().is_loopback());
    client.connection.shutdown(false, true);
    assert_eq!(client.read_to_end().unwrap(), b"");
    drop(client);
    let records = world.records.wait(1);
    assert_eq!((records[0].host.as_str(), records[0].port), ("a.test", Some(server.port)));
    assert_eq!((records[0].bytes_sent, records[0].bytes_received), (5, 5));
    assert!(records[0].allowed && records[0].error.is_none());
    assert_eq!(records[0].rule, Some(format!("a.test:{}", server.port)));
}

#[test]
fn peeked_bytes_stay() {
    let server = echo();
    let client = world(server.port).connect("a.test", server.port);
    client.write_all(b"hello").unwrap();
    assert_eq!(client.read_some(1).unwrap(), b"h");
    let mut buffer = [0; 2];
    assert_eq!(client.connection.read(&mut buffer, true).unwrap(), 2);
    assert_eq!(client.read_exact(4).unwrap(), b"ello");
}

#[test]
fn synthetic_addresses_are_stable_and_of_both_families() {
    let world = world(443);
    let addresses = world.connections.resolve("a.test").unwrap();
    assert_eq!(addresses, world.connections.resolve("A.TEST.").unwrap());
    assert!(addresses[0].is_ipv4() && addresses[1].is_ipv6());
    assert_eq!(world.connections.resolve("192.0.2.1").unwrap(), ["192.0.2.1".parse::<IpAddr>().unwrap()]);
}

#[test]
fn names_that_are_not_allowed_are_never_looked_up() {
    let lookups = Arc::new(AtomicUsize::new(0));
    let resolver = Changing { answers: vec![vec!["127.0.0.1"]], lookups: Arc::clone(&lookups) };
    let world = Setup::new("allow = ['a.test']").resolver(resolver).build();
    for name in ["secret-data.evil.test", "x.a.test", "localhost", "metadata.google.internal"] {
        let refusal = world.connections.resolve_for_port(name, Some(443)).unwrap_err();
        assert_eq!(refusal.kind(), RefusalKind::Policy);
        assert_eq!(refusal.to_string(), format!("network access to {name}:443 is not allowed; allowed: a.test:443,80"));
    }
    world.connections.resolve("a.test").unwrap();
    assert_eq!(lookups.load(Ordering::SeqCst), 0);
    let records = world.records.wait(4);
    assert!(records.iter().all(|record| !record.allowed && record.error.is_some()));
}

#[test]
fn other_spellings_of_addresses_are_not_names() {
    let world = Setup::new("allow = ['*']").build();
    for name in ["127.1", "0x7f.0.0.1", "0x7f000001", "2130706433", "017700000001", "127.0.0.1.", "", "a b", "a\0b"] {
        let resolved = world.connections.resolve(name);
        assert_eq!(resolved.unwrap_err().kind(), RefusalKind::Name, "{name}");
    }
}

#[test]
fn connections_to_what_is_not_named_are_refused_at_once() {
    let server = echo();
    let world = world(server.port);
    let name = world.connections.resolve("a.test").unwrap()[0];
    for (address, port) in [
        (name, server.port ^ 1),
        ("127.0.0.1".parse().unwrap(), server.port),
        ("::1".parse().unwrap(), server.port),
        ("::ffff:127.0.0.1".parse().unwrap(), server.port),
        ("0.0.0.0".parse().unwrap(), server.port),
        ("169.254.169.254".parse().unwrap(), 80),
        ("1.1.1.1".parse().unwrap(), 443),
        ("198.18.99.99".parse().unwrap(), server.port),
        ("fd62:656c:6c6a::9999".parse().unwrap(), server.port),
    ] {
        let refusal = world.connections.connect(SocketAddr::new(address, port)).unwrap_err();
        assert_eq!(refusal.kind(), RefusalKind::Policy, "{address}");
        assert!(refusal.to_string().contains("is not allowed; allowed: a.test:"), "{refusal}");
    }
    world.records.wait(9);
    assert_eq!(server.accepted(), 0);
}

#[test]
fn every_name_does_not_include_addresses() {
    let server = echo();
    let world = Setup::new("allow = ['*:*', '0.0.0.0/0:*', '[::/0]:*']").build();
    for address in ["127.0.0.1", "::1", "::ffff:127.0.0.1", "10.0.0.1", "169.254.169.254", "fd00:ec2::254"] {
        let address = SocketAddr::new(address.parse().unwrap(), server.port);
        assert_eq!(world.connections.connect(address).unwrap_err().kind(), RefusalKind::Policy, "{address}");
    }
    assert_eq!(server.accepted(), 0);
}

#[test]
fn addresses_are_reached_if_they_are_named() {
    let server = echo();
    for (pattern, address) in
        [("127.0.0.1", "127.0.0.1"), ("127.0.0.0/8", "127.0.0.1"), ("127.0.0.1", "::ffff:127.0.0.1")]
    {
        let world = Setup::new(&format!("allow = ['{pattern}:{}']", server.port)).build();
        let client = world.connect_address(address, server.port);
        client.write_all(b"x").unwrap();
        assert_eq!(client.read_exact(1).unwrap(), b"x");
    }
}

#[test]
fn names_that_resolve_to_special_addresses_are_refused() {
    let server = echo();
    for address in [
        "127.0.0.1",
        "0.0.0.0",
        "::1",
        "::",
        "::ffff:127.0.0.1",
        "::127.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "10.0.0.1",
        "100.64.0.1",
        "192.168.0.1",
        "172.16.0.1",
        "169.254.169.254",
        "fd00:ec2::254",
        "fe80::1",
        "224.0.0.1",
        "255.255.255.255",
        "198.18.0.1",
    ] {
        let resolver = Changing { answers: vec![vec![address]], lookups: Arc::default() };
        let world = Setup::new("allow = ['a.test:*']").resolver(resolver).build();
        let error = world.begin("a.test", server.port).wait_connected().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{address}");
        assert!(error.to_string().contains("is not allowed: its address"), "{error}");
        let records = world.records.wait(1);
        assert!(records.len() == 1 && !records[0].allowed);
    }
    assert_eq!(server.accepted(), 0);
}

#[test]
fn of_several_addresses_only_the_allowed_ones_are_connected_to() {
    let server = echo();
    let resolver = Changing { answers: vec![vec!["10.255.255.1", "::1", "127.0.0.1"]], lookups: Arc::default() };
    let policy = format!("allow = ['a.test:*', '127.0.0.1:{}']", server.port);
    let client = Setup::new(&policy).resolver(resolver).build().connect("a.test", server.port);
    client.write_all(b"x").unwrap();
    assert_eq!(client.read_exact(1).unwrap(), b"x");
}

#[test]
fn an_answer_that_changes_between_check_and_use_is_not_used() {
    let server = echo();
    let lookups = Arc::new(AtomicUsize::new(0));
    let answers = vec![vec!["127.0.0.2"], vec!["127.0.0.1"]];
    let resolver = Changing { answers, lookups: Arc::clone(&lookups) };
    let world = Setup::new("allow = ['a.test:*', '127.0.0.2:*']").resolver(resolver).build();
    // The first answer is checked and connected to; nothing listens there, and the second answer is not asked for.
    let error = world.begin("a.test", server.port).wait_connected().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    assert_eq!(lookups.load(Ordering::SeqCst), 1);
    // The next connection is checked again.
    let error = world.begin("a.test", server.port).wait_connected().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    assert_eq!(server.accepted(), 0);
}

#[test]
fn failures_of_the_network_are_errors_of_the_connection() {
    // No process listens there, and the system gives this port to no other socket.
    let closed = 1;
    let world = world(closed);
    let client = world.begin("a.test", closed);
    assert_eq!(client.wait_connected().unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    assert!(world.records.wait(1)[0].error.is_some());

    struct Unknown;
    impl Resolver for Unknown {
        fn resolve(&self, _name: &str) -> io::Result<Vec<IpAddr>> {
            Err(io::Error::other("no such name"))
        }
    }
    let world = Setup::new("allow = ['a.test']").resolver(Unknown).build();
    assert_eq!(world.begin("a.test", 443).wait_connected().unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn a_narrower_policy_holds_for_one_interpreter() {
    let server = echo();
    let base =
        format!("allow = ['*.test:{}']\nresolve = {{ 'a.test' = '127.0.0.1', 'b.test' = '127.0.0.1' }}", server.port);
    let world = Setup::new(&base).narrowed("allow = ['a.test:*', 'evil.example:*']").build();
    let client = world.connect("a.test", server.port);
    client.write_all(b"x").unwrap();
    assert_eq!(client.read_exact(1).unwrap(), b"x");
    let refusal = world.connections.resolve("b.test").unwrap_err();
    assert!(refusal.to_string().contains("of these only a.test:*"), "{refusal}");
    assert!(world.connections.resolve("evil.example").is_err());
}

#[test]
fn servers_on_ipv6_are_reached() {
    let Ok(_) = std::net::TcpListener::bind("[::1]:0") else { return };
    let server = Server::start_on("::1".parse().unwrap(), None, Arc::new(|stream, _| drop(stream.write_all(b"six"))));
    let world =
        Setup::new(&format!("allow = ['[::1]:{}', 'a.test:*']\nresolve = {{ 'a.test' = '::1' }}", server.port)).build();
    assert_eq!(world.connect_address("::1", server.port).read_to_end().unwrap(), b"six");
    assert_eq!(world.connect("a.test", server.port).read_to_end().unwrap(), b"six");
}

#[test]
fn closing_all_resets_connections() {
    let server = echo();
    let world = world(server.port);
    let client = world.connect("a.test", server.port);
    world.connections.close_all();
    assert_eq!(client.read_some(1).unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    assert_eq!(client.read_some(1).unwrap(), b"");
    assert_eq!(client.write_all(b"x").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    assert!(client.connection.readiness().hung_up);
}

#[test]
fn what_was_written_before_closing_is_sent() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let sender = std::sync::Mutex::new(sender);
    let server = Server::start(move |stream, _| {
        let mut bytes = Vec::new();
        drop(stream.read_to_end(&mut bytes));
        sender.lock().unwrap().send(bytes.len()).unwrap();
    });
    let world = world(server.port);
    let client = world.connect("a.test", server.port);
    client.write_all(&vec![b'x'; 1_000_000]).unwrap();
    drop(client);
    assert_eq!(receiver.recv().unwrap(), 1_000_000);
}

#[test]
fn a_stream_larger_than_the_buffers_is_complete_in_both_directions() {
    let server = echo();
    let world = world(server.port);
    let client = world.connect("a.test", server.port);
    let data: Vec<u8> = (0..5_000_000_u32).map(|index| ((index * 31) >> 3) as u8).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            client.write_all(&data).unwrap();
            client.connection.shutdown(false, true);
        });
        assert!(client.read_to_end().unwrap() == data);
    });
}

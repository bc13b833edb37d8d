//! WebSockets: HTTP that becomes a stream of bytes.

use crate::client::{Setup, World};
use crate::secrets::SECRET;
use crate::server::{Server, read_request, response, tls};

fn policy(port: u16) -> String {
    format!("resolve = {{ 'a.test' = '127.0.0.1' }}\n[[allow.'a.test:{port}']]\nmatch = {{ path = '/ws' }}")
}

fn upgrade(path: &str, headers: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Extensions: permessage-deflate\r\n{headers}\r\n"
    )
}

const SWITCH: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";

/// A server that agrees to a WebSocket and echoes its bytes, after those of the key.
fn server() -> Server {
    Server::start_tls(tls(&["a.test"]), |stream, seen| {
        let request = read_request(stream, seen).unwrap();
        if request.header("upgrade").is_none() {
            return stream.write_all(&response(b"no")).unwrap();
        }
        let greeting = format!("key={};", request.header("x-key").unwrap_or_default());
        stream.write_all(&[SWITCH, greeting.as_bytes()].concat()).unwrap();
        stream.flush().unwrap();
        let mut buffer = [0; 1000];
        while let Ok(read @ 1..) = stream.read(&mut buffer) {
            stream.write_all(&buffer[..read]).unwrap();
            stream.flush().unwrap();
        }
    })
}

#[test]
fn bytes_pass_after_the_switch() {
    let server = server();
    let world = Setup::new(&policy(server.port)).build();
    let client = world.connect_tls("a.test", server.port);
    // The code does not wait for the answer.
    client.write_all([upgrade("/ws", "").as_bytes(), b"\x81\x85frame"].concat().as_slice()).unwrap();
    assert_eq!(client.read_exact(SWITCH.len()).unwrap(), SWITCH);
    assert_eq!(client.read_exact(5).unwrap(), b"key=;");
    assert_eq!(client.read_exact(7).unwrap(), b"\x81\x85frame");
    client.write_all(b"GET /private HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(client.read_exact(25).unwrap(), b"GET /private HTTP/1.1\r\n\r\n");
    let record = &world.records.wait(1)[0];
    assert_eq!((record.status, record.path.as_deref()), (Some(101), Some("/ws")));
    assert!(server.seen().contains("permessage-deflate"));
}

#[test]
fn secrets_are_removed_from_the_bytes() {
    let server = server();
    let world: World =
        Setup::new(&policy(server.port)).secret("TOKEN", &format!("a.test:{}", server.port), SECRET).build();
    let client = world.connect_tls("a.test", server.port);
    let key = format!("X-Key: {}\r\n", world.placeholder("TOKEN"));
    client.write_all(upgrade("/ws", &key).as_bytes()).unwrap();
    client.read_exact(SWITCH.len()).unwrap();
    let greeting = client.read_exact(5 + SECRET.len()).unwrap();
    assert_eq!(greeting, format!("key={};", "*".repeat(SECRET.len())).as_bytes());
    assert!(server.seen().contains(SECRET));
    // Compressed messages could not be searched.
    assert!(!server.seen().contains("permessage-deflate"));
    for byte in SECRET.bytes() {
        client.write_all(&[byte]).unwrap();
    }
    client.write_all(b"!").unwrap();
    // Up to three bytes are not withheld if the next ones follow late.
    let text = client.read_exact(SECRET.len() + 1).unwrap();
    assert_eq!(text[3..], format!("{}!", "*".repeat(SECRET.len() - 3)).into_bytes());
}

/// Attack: guesses of the secret, one byte longer each time, that the server echoes. A right one is delivered later
/// than a wrong one.
#[test]
fn echoed_guesses_end_before_they_find_the_secret() {
    let server = server();
    let world: World =
        Setup::new(&policy(server.port)).secret("TOKEN", &format!("a.test:{}", server.port), SECRET).build();
    for guesses in 0..50 {
        let client = world.connect_tls("a.test", server.port);
        client.write_all(upgrade("/ws", "").as_bytes()).unwrap();
        client.read_exact(SWITCH.len() + 5).unwrap();
        client.write_all(&SECRET.as_bytes()[..6]).unwrap();
        // Nothing but the end of the connection can make the guess readable before more bytes follow.
        let deadline = std::time::Instant::now() + std::time::Duration::from_millis(400);
        while !client.connection.readiness().readable && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
        if client.connection.readiness().readable {
            assert!(guesses >= 8);
            assert!(client.read_some(100).is_err());
            return;
        }
    }
    panic!("the guesses were not limited");
}

#[test]
fn a_websocket_needs_a_rule_for_its_path() {
    let server = server();
    let world = Setup::new(&policy(server.port)).build();
    let client = world.connect_tls("a.test", server.port);
    assert_eq!(client.request(&upgrade("/other", "")).status, 403);
    assert_eq!(server.seen(), "");
}

/// Attack: the host takes a refused switch for an accepted one, and relays the next requests unchecked.
#[test]
fn requests_after_a_refused_switch_are_checked() {
    let server = Server::start_tls(tls(&["a.test"]), |stream, seen| {
        while read_request(stream, seen).is_some() {
            stream.write_all(b"HTTP/1.1 426 Upgrade Required\r\nContent-Length: 0\r\n\r\n").unwrap();
            stream.flush().unwrap();
        }
    });
    let world = Setup::new(&policy(server.port)).build();
    let client = world.connect_tls("a.test", server.port);
    let hidden = "GET /private HTTP/1.1\r\nHost: a.test\r\n\r\n";
    client.write_all(format!("{}{hidden}", upgrade("/ws", "")).as_bytes()).unwrap();
    assert_eq!(client.response().unwrap().status, 426);
    assert_eq!(client.response().unwrap().status, 403);
    assert!(!server.seen().contains("/private"));
}

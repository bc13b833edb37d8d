//! The same bytes in arbitrary pieces give the same result; arbitrary bytes give an orderly end.

use std::io::Write as _;

use crate::client::{Client, Setup, World};
use crate::secrets::SECRET;
use crate::server::{Server, http, read_request, response, tls};

/// A generator of numbers (splitmix64): each seed is a case that can be run again.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }

    /// Returns the text in pieces.
    fn split<'a>(&mut self, mut bytes: &'a [u8], longest: usize) -> Vec<&'a [u8]> {
        let mut pieces = Vec::new();
        while !bytes.is_empty() {
            let (piece, rest) = bytes.split_at((self.below(longest) + 1).min(bytes.len()));
            pieces.push(piece);
            bytes = rest;
        }
        pieces
    }
}

fn world(port: u16) -> World {
    let policy =
        format!("resolve = {{ 'a.test' = '127.0.0.1' }}\n[[allow.'a.test:{port}']]\nmatch = {{ path = '/**' }}");
    Setup::new(&policy).secret("TOKEN", &format!("a.test:{port}"), SECRET).build()
}

#[test]
fn requests_in_any_pieces_are_the_same() {
    let mut text = Vec::new();
    let mut expected = Vec::new();
    for index in 0..20_usize {
        let body = format!("<{}>", "x".repeat(index * 37 % 200));
        expected.push(body.clone());
        if index % 2 == 0 {
            text.extend(
                format!("POST /{index} HTTP/1.1\r\nHost: a.test\r\nContent-Length: {}\r\n\r\n{body}", body.len())
                    .bytes(),
            );
        } else {
            text.extend(
                format!("POST /{index} HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n").bytes(),
            );
            for piece in body.as_bytes().chunks(7) {
                text.extend(format!("{:x};e=1\r\n", piece.len()).bytes());
                text.extend_from_slice(piece);
                text.extend(b"\r\n");
            }
            text.extend(b"0\r\n\r\n");
        }
    }
    for seed in 0..30 {
        let mut random = Random(seed);
        let server = Server::start(http(|request| response(&request.body)));
        let world = world(server.port);
        let client = world.connect("a.test", server.port);
        let longest = [1, 3, 20, 300][random.below(4)];
        for piece in random.split(&text, longest) {
            client.write_all(piece).unwrap();
        }
        for body in &expected {
            assert_eq!(client.response().unwrap().text(), *body, "seed {seed}");
        }
    }
}

/// Returns whether a text is the expected one. The first three bytes of a secret may be there, if the server made a
/// pause after them.
fn is_masked(text: &str, expected: &str) -> bool {
    let mut run = 0;
    text.len() == expected.len()
        && text.bytes().zip(expected.bytes()).all(|(byte, expected)| {
            run = if expected == b'*' { run + 1 } else { 0 };
            byte == expected || (1..=3).contains(&run) && byte == SECRET.as_bytes()[run - 1]
        })
}

#[test]
fn responses_in_any_pieces_are_the_same() {
    let body: String =
        (0..50).map(|index| format!("{index} {} {} s3cr s3cret/ ", &SECRET[..index % 20], SECRET)).collect();
    let expected = body.replace(SECRET, &"*".repeat(SECRET.len()));
    for seed in 0..30 {
        let body = body.clone();
        let server = Server::start_tls(tls(&["a.test"]), move |stream, seen| {
            let mut random = Random(seed);
            while read_request(stream, seen).is_some() {
                let mut text = Vec::new();
                if random.below(2) == 0 {
                    text = response(body.as_bytes());
                } else {
                    text.extend(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
                    for piece in random.split(body.as_bytes(), 50) {
                        text.extend([format!("{:X}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat());
                    }
                    text.extend(b"0\r\n\r\n");
                }
                let longest = [1, 10, 1000][random.below(3)];
                for piece in random.split(&text, longest) {
                    stream.write_all(piece).unwrap();
                    stream.flush().unwrap();
                }
            }
        });
        let world = world(server.port);
        let client = world.connect_tls("a.test", server.port);
        for _ in 0..3 {
            let text = client.get("/", "").text();
            assert!(is_masked(&text, &expected), "seed {seed}: {text}");
        }
    }
}

/// Pieces from which random messages are made, so that they pass the first checks.
const PIECES: [&[u8]; 24] = [
    b"GET / HTTP/1.1\r\n",
    b"POST /x HTTP/1.1\r\n",
    b"Host: a.test\r\n",
    b"\r\n",
    b"Content-Length: 5\r\n",
    b"hello",
    b"Transfer-Encoding: chunked\r\n",
    b"5\r\nhello\r\n",
    b"0\r\n\r\n",
    b"Expect: 100-continue\r\n",
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\n",
    b"Upgrade: websocket\r\n",
    b"Connection: Upgrade\r\n",
    b"Content-Encoding: gzip\r\n",
    b"\x1f\x8b\x08\0\0\0\0\0",
    b"Content-Encoding: deflate\r\n",
    b"\0",
    b"\n",
    b"\r",
    b" ",
    b"ffffffff\r\n",
    b"HTTP/1.0 200\r\n\r\n",
];

fn noise(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..random.below(30) {
        if random.below(4) == 0 {
            bytes.extend((0..random.below(40)).map(|_| (random.next() >> 13) as u8));
        } else {
            bytes.extend_from_slice(PIECES[random.below(PIECES.len())]);
        }
    }
    bytes
}

/// Reads until the connection ends, in whatever way.
fn drain(client: &Client) {
    client.connection.shutdown(false, true);
    client.read_rest();
}

#[test]
fn arbitrary_bytes_of_code_and_servers_end_in_order() {
    let server = Server::start(|stream, _| {
        let mut seed = [0; 64];
        let read = stream.read(&mut seed).unwrap_or(0);
        let mut random = Random(seed[..read].iter().fold(7, |sum, byte| sum * 31 + u64::from(*byte)));
        for piece in random_pieces(&mut random) {
            if stream.write_all(&piece).and_then(|()| stream.flush()).is_err() {
                return;
            }
        }
    });
    let world = world(server.port);
    for seed in 0..600 {
        let mut random = Random(seed);
        let client = world.connect("a.test", server.port);
        if seed % 3 == 0 {
            client.send("GET / HTTP/1.1\r\nHost: a.test\r\nX: ");
            client.send(&format!("{seed}\r\n\r\n"));
        }
        for piece in random_pieces(&mut random) {
            if client.write_all(&piece).is_err() {
                break;
            }
        }
        drain(&client);
        drop(client);
        world.connections.start_run();
    }
    // The thread of connections still works.
    let server = Server::start(http(|_| response(b"alive")));
    let world = crate::client::world(server.port);
    assert_eq!(world.connect("a.test", server.port).get("/", "").text(), "alive");
}

fn random_pieces(random: &mut Random) -> Vec<Vec<u8>> {
    let bytes = noise(random);
    random.split(&bytes, 64).into_iter().map(<[u8]>::to_vec).collect()
}

#[test]
fn arbitrary_requests_for_tls_end_in_order() {
    let server = Server::start(|stream, _| drop(stream.write_all(b"")));
    let world = Setup::new(&crate::client::policy(server.port)).build();
    let valid = crate::client::verified("a.test").to_string();
    for seed in 0..300 {
        let mut random = Random(seed);
        let mut json = valid.clone().into_bytes();
        for _ in 0..random.below(4) {
            let index = random.below(json.len());
            json[index] = (random.next() >> 9) as u8;
        }
        let length = if random.below(5) == 0 { random.below(2000) } else { json.len() };
        let mut message = world.connections.tls_token().to_vec();
        message.write_all(&u32::try_from(length).unwrap().to_be_bytes()).unwrap();
        message.extend(json);
        let client = world.connect("a.test", server.port);
        for piece in random.split(&message, 100) {
            if client.write_all(piece).is_err() {
                break;
            }
        }
        drain(&client);
        drop(client);
        world.connections.start_run();
    }
}

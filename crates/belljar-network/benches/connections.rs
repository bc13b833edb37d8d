//! Measures connections with TLS: the memory of idle ones, the latency of requests, and the speed of downloads, with
//! and without secrets: `cargo bench -p belljar-network`.
//!
//! The server is a second process, and the client of the comparison is rustls on a thread of this one.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark prints its results, and fails by panicking")]
#![allow(dead_code, reason = "the servers and clients are those of the tests, which use more of them")]

#[path = "../tests/it/client.rs"]
mod client;
#[path = "../tests/it/server.rs"]
mod server;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use client::Setup;

const IDLE: usize = 1_000;
const REQUESTS: usize = 2_000;
const DOWNLOAD: usize = 200_000_000;

fn serve() {
    let small = server::response(&[b'x'; 1024]);
    let large = server::response(&vec![b'y'; DOWNLOAD]);
    let handler =
        server::http(move |request| if request.head.starts_with("GET /large") { large.clone() } else { small.clone() });
    let server = server::Server::start_tls(server::tls(&["a.test"]), handler);
    println!("{}", server.port);
    println!("{}", server::authority_pem().replace('\n', "|"));
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
}

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e6
}

fn main() {
    if std::env::args().any(|argument| argument == "serve") {
        return serve();
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .arg("serve")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let port: u16 = lines.next().unwrap().unwrap().parse().unwrap();
    let authority = lines.next().unwrap().unwrap().replace('|', "\n");
    let policy = client::policy(port);

    let limits = belljar_network::NetworkLimits {
        connections: IDLE * 2,
        opened: 1_000_000,
        requests: 1_000_000,
        bytes_received: u64::MAX,
        ..Default::default()
    };
    let world = Setup::new(&policy).authority(&authority).limits(limits.clone()).build();
    drop(world.connect_tls("a.test", port));
    let before = resident();
    let clients: Vec<_> = (0..IDLE)
        .map(|_| {
            let client = world.connect_tls("a.test", port);
            assert_eq!(client.get("/", "").status, 200);
            client
        })
        .collect();
    println!("memory of an idle connection: {} bytes", (resident() - before) / IDLE as u64);
    drop(clients);

    let mut native = native(port, &authority);
    for (name, world) in [
        ("without secrets", world),
        (
            "with a secret",
            Setup::new(&policy)
                .authority(&authority)
                .limits(limits)
                .secret("TOKEN", &format!("a.test:{port}"), "s3cret/valu3+with=signs")
                .build(),
        ),
    ] {
        let client = world.connect_tls("a.test", port);
        let (mut broker_times, mut native_times) = (Vec::new(), Vec::new());
        for _ in 0..REQUESTS {
            let start = Instant::now();
            client.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
            let mut text = Vec::new();
            while text.len() < 1024 + 40 {
                text.extend(client.read_some(4096).unwrap());
            }
            broker_times.push(start.elapsed());
            let start = Instant::now();
            native.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
            native.read_exact(&mut [0; 1024 + 41]).unwrap();
            native_times.push(start.elapsed());
        }
        println!("request of 1 KB {name}: {:.0} us, rustls: {:.0} us", median(broker_times), median(native_times));
        let start = Instant::now();
        client.write_all(b"GET /large HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
        let mut read = 0;
        while read < DOWNLOAD {
            read += client.read_some(262_144).unwrap().len();
        }
        let broker = start.elapsed();
        let start = Instant::now();
        native.write_all(b"GET /large HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
        let mut buffer = vec![0; 262_144];
        let mut read = 0;
        while read < DOWNLOAD {
            read += native.read(&mut buffer).unwrap();
        }
        let speed = |time: Duration| DOWNLOAD as f64 / 1e6 / time.as_secs_f64();
        println!("download of 200 MB {name}: {:.0} MB/s, rustls: {:.0} MB/s", speed(broker), speed(start.elapsed()));
        // The rest of the response of the comparison: its head.
        let mut rest = [0; 4096];
        while read < DOWNLOAD + server::response(&[]).len() + DOWNLOAD.to_string().len() - 1 {
            read += native.read(&mut rest).unwrap();
        }
    }
    drop(child.stdin.take());
    child.wait().unwrap();
}

fn native(port: u16, authority: &str) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connection = ClientConnection::new(Arc::new(config), ServerName::try_from("a.test").unwrap()).unwrap();
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_nodelay(true).unwrap();
    StreamOwned::new(connection, stream)
}

//! An installation for a native kernel that is ended while a package is being downloaded: by uv, and by pip.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use belljar_testing::install;
use serde_json::{Value, json};

use super::native_calls::ENVIRONMENTS;
use crate::harness::Belljar;

belljar_testing::trials! {
    download_that_stalls_is_ended: [NativeSandbox],
}

/// The wheel, of which the index never sends the end.
const WHEEL: &str = "belljar_stalling-1.0-py3-none-any.whl";
/// The time limit of an installation in seconds. On a busy machine, pip takes some of it until it asks for the wheel.
/// pip gives up by itself after 15 s without a byte.
const INSTALL_TIMEOUT: u64 = 10;
/// The size of the wheel in bytes, according to the index.
const WHEEL_BYTES: usize = 10_000_000;

/// The events that the index reports.
#[derive(Debug, PartialEq, Eq)]
enum Event {
    /// A part of the wheel was sent.
    Stalled,
    /// The client has closed the connection over which it waited for the rest.
    Closed,
}

/// Starts an index on the loopback interface. Returns its URL.
fn start_index() -> (String, Receiver<Event>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/simple/", listener.local_addr().unwrap());
    let (events, received) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let events = events.clone();
            std::thread::spawn(move || answer_request(stream, &events));
        }
    });
    (url, received)
}

/// Answers one request, and closes the connection. A part of the wheel is sent, and then nothing.
fn answer_request(mut stream: TcpStream, events: &Sender<Event>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    for line in reader.by_ref().lines() {
        if line?.is_empty() {
            break;
        }
    }
    let mut words = first.split_whitespace();
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let head = |kind: &str, length| {
        format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n")
    };
    let page = format!("<!DOCTYPE html><a href=\"/files/{WHEEL}\" data-core-metadata=\"true\">{WHEEL}</a>");
    let metadata = "Metadata-Version: 2.1\nName: belljar-stalling\nVersion: 1.0\n";
    match path.rsplit('/').find(|part| !part.is_empty()).unwrap_or_default() {
        WHEEL => {
            stream.write_all(head("application/octet-stream", WHEEL_BYTES).as_bytes())?;
            if method == "HEAD" {
                return Ok(());
            }
            stream.write_all(&beginning_of_wheel())?;
            let _ = events.send(Event::Stalled);
            // Returns when the client is gone: it sends nothing more.
            let _ = reader.read(&mut [0]);
            let _ = events.send(Event::Closed);
            Ok(())
        }
        "belljar-stalling" => stream.write_all((head("text/html", page.len()) + &page).as_bytes()),
        name if name.ends_with(".metadata") => {
            stream.write_all((head("text/plain", metadata.len()) + metadata).as_bytes())
        }
        _ => stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"),
    }
}

/// Returns the first bytes of a ZIP file: the header of a large file that is not compressed, and a part of its data.
fn beginning_of_wheel() -> Vec<u8> {
    let (name, size) = (b"belljar_stalling/data.bin", 9_000_000_u32.to_le_bytes());
    let (version, flags, method, time, date) = (20_u16, 0_u16, 0_u16, 0_u16, 33_u16);
    let mut bytes = b"PK\x03\x04".to_vec();
    bytes.extend([version, flags, method, time, date].iter().flat_map(|field| field.to_le_bytes()));
    bytes.extend([[0; 4], size, size].concat()); // The checksum, and the size twice.
    bytes.extend((name.len() as u32).to_le_bytes()); // The length of the name, and none of extra fields.
    bytes.extend(name);
    bytes.extend([0; 1000]);
    bytes
}

/// Returns the `PATH` of this process with uv, or without it.
fn search_path(with_uv: bool) -> String {
    let given = std::env::var_os("PATH").unwrap_or_default();
    let others = std::env::split_paths(&given).filter(|folder| !folder.join("uv").exists());
    let uv = with_uv.then(|| install::pip(Path::new(env!("CARGO_TARGET_TMPDIR")), "uv", &["uv"]));
    std::env::join_paths(uv.into_iter().chain(others)).unwrap().into_string().unwrap()
}

fn download_that_stalls_is_ended() {
    for with_uv in [false, true] {
        let (index, events) = start_index();
        let folder = tempfile::tempdir().unwrap();
        let server = format!(
            "'{}' stdio --sandbox native --native-dir '{}' --install-timeout {INSTALL_TIMEOUT}",
            env!("CARGO_BIN_EXE_belljar"),
            ENVIRONMENTS.display()
        );
        let arguments = json!({ "python_code": "1", "dependencies": ["belljar-stalling"] }).to_string();
        let path = format!("PATH={}", search_path(with_uv));
        let mut command = Belljar::without_cache().args(["call", &server, "run_python_code", &arguments]);
        for (name, value) in [
            ("PIP_INDEX_URL", index.as_str()),
            ("UV_DEFAULT_INDEX", &index),
            ("PIP_NO_CACHE_DIR", "1"),
            ("UV_NO_CACHE", "1"),
        ] {
            command = command.args(["--env", &format!("{name}={value}")]);
        }
        let run = command.args(["--env", &path]).directory(folder.path()).run();
        let answer: Value = serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{error}: {run:?}"));
        assert_eq!(answer["status"], "install-error", "with uv: {with_uv}: {answer}");
        let reason = format!("the installation took longer than {INSTALL_TIMEOUT} s");
        assert!(answer.to_string().contains(&reason), "with uv: {with_uv}: {answer}");
        // The installer was in the middle of the wheel, and has ended.
        assert_eq!(events.try_recv(), Ok(Event::Stalled), "with uv: {with_uv}: {answer}");
        let closed = || events.recv_timeout(Duration::from_secs(60));
        let is_closed = std::iter::from_fn(|| closed().ok()).any(|event| event == Event::Closed);
        assert!(is_closed, "with uv: {with_uv}: the installer is still connected");
    }
}

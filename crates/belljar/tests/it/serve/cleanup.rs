//! Removal of all temporary files at the end of a server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use serde_json::json;

use crate::harness::{Belljar, names_in};
use crate::wire::{Wire, text};

fn terminate(child: &Child) {
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
}

/// Starts a server with one session, and returns it with the folder of its temporary files.
fn server() -> (Wire, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let belljar = Belljar::new().args(["stdio", "--toolset", "interpreter"]);
    let mut command = belljar.env("TMPDIR", folder.path()).into_command();
    command.stderr(Stdio::inherit());
    let mut wire = Wire::spawn(command);
    wire.initialize();
    let answer = text(&wire.tool("execute_code", json!({ "code": "open('secret.txt', 'w').write('x'); 6 * 7" })));
    assert!(answer.contains("42"), "{answer}");
    assert!(
        !names_in(folder.path()).is_empty(),
        "sessions have their folder elsewhere, so that this test sees nothing"
    );
    (wire, folder)
}

#[test]
fn a_server_whose_input_ends_leaves_no_files() {
    let (mut wire, folder) = server();
    wire.end_input();
    assert!(wire.child.wait().unwrap().success());
    assert_eq!(names_in(folder.path()), [""; 0]);
}

#[test]
fn terminated_server_leaves_no_files() {
    let (mut wire, folder) = server();
    terminate(&wire.child);
    assert!(wire.child.wait().unwrap().success());
    assert_eq!(names_in(folder.path()), [""; 0]);
}

#[test]
fn server_terminated_during_a_cell_leaves_no_files() {
    let (mut wire, folder) = server();
    wire.follow_output();
    let code = "print('begun')\nwhile True: pass";
    wire.send("tools/call", json!({ "name": "execute_code", "arguments": { "code": code } }));
    wire.wait_for_output("begun");
    terminate(&wire.child);
    assert!(wire.child.wait().unwrap().success());
    assert_eq!(names_in(folder.path()), [""; 0]);
}

#[test]
fn a_server_over_http_leaves_no_files() {
    let folder = tempfile::tempdir().unwrap();
    let belljar = Belljar::new().args(["streamable-http", "--port", "0", "--toolset", "all"]);
    let mut running = belljar.env("TMPDIR", folder.path()).start();
    let mut stderr = BufReader::new(running.child.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    assert!(line.starts_with("listening on "), "{line}");
    assert!(!names_in(folder.path()).is_empty());
    // A server that responds handles signals.
    let address = line.split('/').nth(2).unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .write_all(format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes())
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("ok\n"), "{answer}");
    terminate(&running.child);
    assert_eq!(running.wait().status, Some(0));
    assert_eq!(names_in(folder.path()), [""; 0]);
}

//! SIGHUP: tokens and certificates are read again, and a server over standard streams ends as with SIGTERM.

use std::process::Command;
use std::time::{Duration, Instant};

use super::http::{Listening, hello};
use super::tls::Certificate;
use crate::harness::Belljar;
use crate::wire::Wire;

/// The time within which a server must have read its files again, on a busy machine.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(180);

fn hang_up(process: u32) {
    assert!(Command::new("kill").args(["-HUP", &process.to_string()]).status().unwrap().success());
}

#[track_caller]
fn wait_until(mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < RELOAD_TIMEOUT, "the files were not read again");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn tokens_are_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tokens");
    std::fs::write(&file, "one\n").unwrap();
    let server = Listening::start("streamable-http", ["--no-install", "--auth-token-file", file.to_str().unwrap()]);
    let status = |token: &str| server.post(&[("Authorization", &format!("Bearer {token}"))], &hello()).0;
    assert_eq!((status("one"), status("two")), (200, 401));
    std::fs::write(&file, "two\n").unwrap();
    hang_up(server.child.id());
    wait_until(|| status("two") == 200);
    assert_eq!(status("one"), 401);

    // Without tokens every client could run code: the server keeps those that it has.
    std::fs::write(&file, "").unwrap();
    hang_up(server.child.id());
    std::fs::write(&file, "three\n").unwrap();
    hang_up(server.child.id());
    wait_until(|| {
        assert_eq!(server.post(&[], &hello()).0, 401);
        status("three") == 200
    });
}

#[test]
fn certificate_is_read_again() {
    let (old, new) = (Certificate::new(), Certificate::new());
    let server = old.server();
    let trusts = |certificate: &Certificate| {
        let health = server.url.replace("/mcp", "/healthz");
        let curl = ["--silent", "--max-time", "120", "--cacert", &certificate.path("cert.pem"), &health];
        Command::new("curl").args(curl).status().unwrap().success()
    };
    assert!(trusts(&old) && !trusts(&new));
    for name in ["cert.pem", "key.pem"] {
        std::fs::copy(new.path(name), old.path(name)).unwrap();
    }
    hang_up(server.child.id());
    wait_until(|| trusts(&new));
}

#[cfg(target_os = "linux")]
#[test]
fn quotas_of_memory_are_read_again_for_worker_processes() {
    use std::io::{BufRead as _, BufReader};
    use std::process::Stdio;
    use std::sync::{Arc, Mutex};

    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("quotas.toml");
    std::fs::write(&file, "[default]\nqueue = 50\n").unwrap();
    let options = ["--port", "0", "--no-install", "--isolation", "process", "--quotas", file.to_str().unwrap()];
    let mut command = Belljar::new().args(["streamable-http-stateless"]).args(options).into_command();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let errors = BufReader::new(child.stderr.take().unwrap());
    let shown = Arc::new(Mutex::new(String::new()));
    let writer = shown.clone();
    std::thread::spawn(move || {
        for line in errors.lines().map_while(Result::ok) {
            writer.lock().unwrap().push_str(&format!("{line}\n"));
        }
    });
    wait_until(|| shown.lock().unwrap().contains("code runs in WebAssembly, in worker processes\n"));
    // The server may not yet receive the first signals.
    let hang_up_until = |text: &str| {
        wait_until(|| {
            hang_up(child.id());
            shown.lock().unwrap().contains(text)
        });
    };
    hang_up_until("belljar: read the quotas again");
    std::fs::write(&file, "[owner.alice]\nmemroy = \"1GB\"\n").unwrap();
    hang_up_until("belljar: kept the quotas as they were: ");
    std::fs::write(&file, "[owner.alice]\nmemory = \"1GB\"\nprocessor = 30\n").unwrap();
    shown.lock().unwrap().clear();
    hang_up_until("belljar: read the quotas again");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn stdio_server_ends_as_with_sigterm() {
    let mut wire = Wire::spawn(Belljar::new().args(["stdio", "--no-install"]).into_command());
    wire.initialize();
    hang_up(wire.child.id());
    assert!(wire.child.wait().unwrap().success());
}

//! A server under a service manager: it reports when it is ready, and the command of the unit works.

#[cfg(target_os = "linux")]
use std::os::unix::net::UnixDatagram;
#[cfg(target_os = "linux")]
use std::path::{Path, PathBuf};
#[cfg(target_os = "linux")]
use std::time::Duration;

use super::http::Listening;
use super::tls::Certificate;
use crate::harness::{Belljar, Run};

/// The socket of a service manager.
#[cfg(target_os = "linux")]
struct Manager {
    directory: tempfile::TempDir,
    socket: UnixDatagram,
}

#[cfg(target_os = "linux")]
impl Manager {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(directory.path().join("notify")).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(180))).unwrap();
        Self { directory, socket }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("notify")
    }

    fn message(&self) -> String {
        let mut bytes = [0; 1000];
        let length = self.socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap().trim().to_owned()
    }
}

/// Returns the values of a setting of the unit.
#[cfg(target_os = "linux")]
fn unit_settings(name: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd/belljar.service");
    let text = std::fs::read_to_string(path).unwrap();
    let values = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    values.map(str::to_owned).collect()
}

#[cfg(target_os = "linux")]
#[test]
fn unit_starts_a_server_that_reports_its_state() {
    use super::http::hello;

    let manager = Manager::new();
    let state = tempfile::tempdir().unwrap();
    let mut belljar = Belljar::new().env("NOTIFY_SOCKET", manager.path());
    for assignment in unit_settings("Environment").iter().flat_map(|line| line.split(' ')) {
        let (name, value) = assignment.split_once('=').unwrap();
        // The tests share one cache.
        if name != "BELLJAR_CACHE" {
            belljar = belljar.env(name, value.replace("%S", state.path().to_str().unwrap()));
        }
    }
    let command = unit_settings("ExecStart").remove(0);
    let words: Vec<&str> = command.split(' ').filter(|word| *word != "$BELLJAR_OPTIONS").collect();
    assert_eq!(words[0], "/usr/local/bin/belljar");
    let mut server = Listening::spawn(belljar.args(&words[1..]).args(["--port", "0", "--no-install"]));
    assert_eq!(manager.message(), "READY=1");
    assert_eq!(server.post(&[], &hello()).0, 200);
    assert_eq!(unit_settings("ExecReload"), ["/bin/kill -HUP $MAINPID"]);
    let hang_up = std::process::Command::new("kill").args(["-HUP", &server.child.id().to_string()]).status();
    assert!(hang_up.unwrap().success());
    assert_eq!(server.post(&[], &hello()).0, 200);
    server.terminate();
    assert_eq!(manager.message(), "STOPPING=1");
    assert!(server.child.wait().unwrap().success());
    assert!(state.path().join("belljar").is_dir(), "sessions are saved there");
}

#[test]
fn health_check_reports_whether_a_server_answers() {
    let check = |url: &str| -> Run { Belljar::without_cache().args(["healthcheck", url]).run() };
    let mut server = Listening::start("streamable-http", ["--no-install"]);
    // Proxies are for other machines.
    let proxied =
        Belljar::without_cache().env("http_proxy", "http://127.0.0.1:9").env("ALL_PROXY", "http://127.0.0.1:9");
    let url = format!("http://{}", server.address);
    let run = proxied.args(["healthcheck", &url]).run();
    assert_eq!((run.status, run.stdout.as_str(), run.stderr.as_str()), (Some(0), "", ""));
    assert_eq!(check(&format!("{url}/")).status, Some(0));
    let wrong = check(&format!("{url}/nowhere"));
    assert!(wrong.status == Some(1) && wrong.stderr.contains("404"), "{wrong:?}");
    server.terminate();
    server.child.wait().unwrap();
    let gone = check(&url);
    let error = format!("belljar: failed to request {url}/healthz: Connection refused");
    assert!(gone.status == Some(1) && gone.stderr.starts_with(&error), "{gone:?}");

    let encrypted = Certificate::new().server();
    assert_eq!(check(&format!("https://{}", encrypted.address)).status, Some(0));
    assert_eq!(check(&format!("http://{}", encrypted.address)).status, Some(1));
}

#[test]
fn port_in_use_is_reported_with_a_remedy() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let run = Belljar::without_cache().args(["streamable-http", "--port", &address.port().to_string()]).run();
    let error = format!("belljar: failed to listen on {address}: Address already in use");
    assert!(run.status == Some(2) && run.stderr.starts_with(&error), "{run:?}");
    assert!(run.stderr.contains("\nhint: choose another port with --port"), "{run:?}");
}

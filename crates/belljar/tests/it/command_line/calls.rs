//! `belljar call`, with a server that is a script of the client's tests.

use std::path::Path;

use crate::harness::{Belljar, Run, names_in};

/// Returns the path of a script of the client's tests.
fn client_script(name: &str) -> String {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../belljar-client/tests/it/python");
    scripts.join(name).display().to_string()
}

/// Returns a command line that starts a server.
fn server() -> String {
    format!("python3 -u '{}' none", client_script("faulty_server.py"))
}

fn call(arguments: &[&str]) -> Run {
    Belljar::with_cache(Path::new(env!("CARGO_TARGET_TMPDIR"))).args(["call"]).args(arguments).run()
}

#[test]
fn tools_are_listed() {
    let run = call(&[&server()]);
    assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""));
    assert!(run.stdout.starts_with("act") && run.stdout.contains("\nfine"), "{}", run.stdout);
}

#[cfg(target_os = "linux")]
#[test]
fn missing_certificates_are_named() {
    let empty = tempfile::tempdir().unwrap();
    let belljar = Belljar::without_cache().env("SSL_CERT_FILE", "/dev/null").env("SSL_CERT_DIR", empty.path());
    let run = belljar.args(["call", "http://127.0.0.1:1/mcp"]).run();
    assert!(run.stderr.contains("failed to create the HTTP client") && run.stderr.contains("No CA"), "{}", run.stderr);
}

#[test]
fn a_tool_is_called_and_its_result_printed() {
    let run = call(&[&server(), "fine"]);
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), "fine\n"));
    let run = call(&[&server(), "received", r#"{"n": [1, 2]}"#]);
    assert!(run.stdout.contains("\"name\": \"received\""), "{}", run.stdout);
    let run = call(&[&server(), "fine", "--raw"]);
    assert!(run.stdout.contains("\"content\""), "{}", run.stdout);
}

#[test]
fn images_become_files_that_replace_no_others() {
    let directory = tempfile::tempdir().unwrap();
    let save = directory.path().join("out").display().to_string();
    for number in 1..=2 {
        let run = call(&[&server(), "picture", "--save", &save]);
        assert_eq!(run.status, Some(0), "{}", run.stderr);
        let name = format!("picture-{number}.png");
        assert!(run.stdout.starts_with("a picture\n") && run.stdout.contains(&name), "{}", run.stdout);
        assert!(std::fs::read(directory.path().join("out").join(name)).unwrap().starts_with(b"\x89PNG"));
    }
}

#[test]
fn images_are_saved_in_the_folder_whatever_the_server_calls_them() {
    let directory = tempfile::tempdir().unwrap();
    let save = directory.path().join("a/b/out");
    let run = call(&[&server(), "hostile/../pictures", "--save", save.to_str().unwrap()]);
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    let names = names_in(&save);
    assert_eq!(names.len(), 19, "{names:?}");
    for name in &names {
        let is_plain =
            |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
        let (stem, kind) = name.split_once('.').unwrap_or_else(|| panic!("{name}"));
        assert!(stem.starts_with("hostilepictures-") && is_plain(stem) && is_plain(kind), "{name}");
        assert!(std::fs::symlink_metadata(save.join(name)).unwrap().is_file(), "{name}");
    }
    // Nothing is next to the folder.
    for (parent, only) in [("", "a"), ("a", "b"), ("a/b", "out")] {
        assert_eq!(names_in(&directory.path().join(parent)), [only]);
    }
}

#[test]
fn a_server_of_a_configuration_file_is_named_after_a_hash() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mcp.json");
    let script = server();
    let script = script.split('\'').nth(1).unwrap();
    let text = format!(r#"{{"mcpServers": {{"it": {{"command": "python3", "args": ["-u", "{script}", "none"]}}}}}}"#);
    std::fs::write(&path, text).unwrap();
    let run = call(&[&format!("{}#it", path.display()), "fine"]);
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), "fine\n"), "{}", run.stderr);
    let run = call(&[&format!("{}#other", path.display())]);
    assert_eq!(run.status, Some(2));
    assert!(run.stderr.contains("server `other` is not defined in"), "{}", run.stderr);
}

/// Writes a configuration file with a server of the client's tests that has this fault.
fn file_with(directory: &Path, name: &str, fault: &str, more: &str) -> String {
    let path = directory.join(format!("{name}.json"));
    let script = client_script("faulty_server.py");
    let entry = format!(r#"{{"command": "python3", "args": ["-u", "{script}", "{fault}"]{more}}}"#);
    std::fs::write(&path, format!(r#"{{"mcpServers": {{"it": {entry}}}}}"#)).unwrap();
    format!("{}#it", path.display())
}

#[test]
fn servers_of_configuration_files_honour_the_options() {
    let directory = tempfile::tempdir().unwrap();
    let target = |fault: &str, more: &str| file_with(directory.path(), fault, fault, more);

    let run = call(&[&target("never_initializes", ""), "--start-timeout", "0.5"]);
    assert!(run.status == Some(2) && run.stderr.contains("within 0.5 s"), "{}", run.stderr);
    let run = call(&[&target("hangs", ""), "act", "--timeout", "0.5"]);
    assert!(run.stderr.contains("did not respond to `tools/call`"), "{}", run.stderr);
    // The option replaces the value of the file.
    let run = call(&[&target("never_initializes", r#", "timeout": 100"#), "--start-timeout", "0.5"]);
    assert!(run.stderr.contains("within 0.5 s"), "{}", run.stderr);

    let run = call(&[&target("none", ""), "environment", "--env", "EXTRA=added"]);
    assert!(run.stdout.contains(r#""EXTRA": "added""#), "{}", run.stdout);
    let run = call(&[&target("ignores_discover", ""), "fine", "--era", "legacy"]);
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), "fine\n"), "{}", run.stderr);
    let run = call(&[&target("ignores_discover", ""), "fine", "--era", "modern", "--start-timeout", "0.5"]);
    assert_eq!(run.status, Some(2), "{}", run.stdout);

    // Logs are shown unless --quiet is given.
    let run = call(&[&target("floods", ""), "act"]);
    assert!(run.stdout == "done\n" && run.stderr.contains("info: line 0 "), "{}", run.stderr);
    let run = call(&[&target("floods", ""), "act", "--quiet"]);
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("done\n", ""));
}

#[test]
fn options_that_do_not_fit_the_server_are_errors() {
    let directory = tempfile::tempdir().unwrap();
    let run = call(&[&file_with(directory.path(), "a", "none", ""), "--header", "a: b"]);
    assert!(run.status == Some(2) && run.stderr.contains("`header` does not apply"), "{}", run.stderr);
    let run = call(&[&server(), "--oauth"]);
    assert!(run.status == Some(2) && run.stderr.contains("`oauth` does not apply"), "{}", run.stderr);
    let run = call(&["http://127.0.0.1:1/mcp", "--env", "A=b"]);
    assert!(run.status == Some(2) && run.stderr.contains("`env` applies only"), "{}", run.stderr);
}

/// A server of the client's tests that requires tokens.
#[cfg(target_os = "linux")]
struct PrivateServer {
    child: std::process::Child,
    port: u16,
}

#[cfg(target_os = "linux")]
impl PrivateServer {
    fn start() -> Self {
        let port = belljar_testing::free_port();
        let child = std::process::Command::new("python3")
            .args(["-u", &client_script("oauth_server.py")])
            .env("PORT", port.to_string())
            .spawn()
            .unwrap();
        let server = Self { child, port };
        let started = std::time::Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(started.elapsed() < std::time::Duration::from_secs(180), "the server does not listen");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        server
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// Returns the requests that the authorization server received.
    fn seen(&self) -> String {
        fetch(&self.url("/seen"))
    }
}

#[cfg(target_os = "linux")]
impl Drop for PrivateServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Requests a page as a browser does, with Python, which follows redirects.
#[cfg(target_os = "linux")]
fn fetch(url: &str) -> String {
    let program = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode(), end='')";
    let output = std::process::Command::new("python3").args(["-c", program, url]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Calls the tool of a server that requires a token, and follows the printed URL like a browser. Returns the standard
/// output and whether a URL was printed.
#[cfg(target_os = "linux")]
fn call_with_oauth(target: &str, tokens: &Path, more: &[&str]) -> (String, bool) {
    use std::io::{BufRead as _, Read as _};

    let mut command = Belljar::with_cache(Path::new(env!("CARGO_TARGET_TMPDIR")))
        .args(["call", target, "look", "--oauth"])
        .args(more)
        .env("XDG_DATA_HOME", tokens)
        .into_command();
    command.stdin(std::process::Stdio::null());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut visited = false;
    for line in std::io::BufReader::new(child.stderr.take().unwrap()).lines() {
        if let Some(url) = line.unwrap().strip_prefix("Visit ") {
            visited = true;
            fetch(url);
        }
    }
    let mut stdout = String::new();
    child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
    child.wait().unwrap();
    (stdout, visited)
}

#[test]
#[cfg(target_os = "linux")]
fn second_call_of_a_server_with_oauth_needs_no_browser() {
    let server = PrivateServer::start();
    let directory = tempfile::tempdir().unwrap();
    let url = server.url("/mcp");
    assert_eq!(call_with_oauth(&url, directory.path(), &[]), ("for your eyes\n".to_owned(), true));
    assert_eq!(call_with_oauth(&url, directory.path(), &[]), ("for your eyes\n".to_owned(), false));
    let file = directory.path().join("belljar/oauth-tokens.json");
    assert!(std::fs::metadata(&file).unwrap().len() > 0);

    // An entry of a configuration file uses the same tokens.
    let path = directory.path().join("mcp.json");
    std::fs::write(&path, format!(r#"{{"mcpServers": {{"it": {{"url": "{url}"}}}}}}"#)).unwrap();
    let target = format!("{}#it", path.display());
    assert_eq!(call_with_oauth(&target, directory.path(), &[]), ("for your eyes\n".to_owned(), false));
    assert_eq!(server.seen(), r#"["registration", "consent", "token"]"#);

    // Nothing is read or stored.
    let other = tempfile::tempdir().unwrap();
    let (stdout, visited) = call_with_oauth(&target, other.path(), &["--no-token-store"]);
    assert_eq!((stdout.as_str(), visited, names_in(other.path()).len()), ("for your eyes\n", true, 0));
}

#[test]
fn call_errors_have_messages_and_statuses() {
    let run = call(&[&server(), "fails"]);
    assert_eq!((run.status, run.stdout.as_str()), (Some(1), ""));
    // The server's characters that control a terminal, and its digits, are not shown.
    assert_eq!(run.stderr, "[1e308] a step\nit [31mwent wrong, a\u{200d}b\n");
    let run = call(&["no-such-program-at-all"]);
    assert!(run.status == Some(2) && run.stderr.contains("check that the program is installed"), "{}", run.stderr);
    let run = call(&[&server(), "fine", "[1]"]);
    assert!(run.status == Some(2) && run.stderr.contains("are not a JSON object"), "{}", run.stderr);
    let run = call(&["http://127.0.0.1:1/mcp", "--start-timeout", "3"]);
    assert_eq!(run.status, Some(2), "{}", run.stderr);
}

//! Fair shares between owners over HTTP, with two tokens: `alice` and `bob`.
//!
//! Code writes into a directory of the host what it does, so that the order of service is known, and waits for a file
//! there, so that it runs for as long as a test needs it.

mod fairness;
mod identities;
mod load;
mod quotas;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::http::Listening;
use crate::harness::Belljar;

/// The time for which a test waits for something that must happen.
const TIMEOUT: Duration = Duration::from_secs(240);

/// A server with two tokens, and a directory that its code can use.
struct Shared {
    server: Listening,
    directory: TempDir,
}

/// Python that waits until the file `name` exists.
fn wait_for(name: &str) -> String {
    format!("import os, time\nwhile not os.path.exists('/shared/{name}'):\n    time.sleep(0.005)\n")
}

/// Python that adds a line to the log.
fn log(line: &str) -> String {
    format!("with open('/shared/log', 'a') as log:\n    print('{line}', file=log)\n")
}

impl Shared {
    /// Starts a stateless server. `quotas` is the text of its file of quotas.
    fn start(quotas: &str, options: &[&str]) -> Self {
        Self::start_as("streamable-http-stateless", quotas, options)
    }

    fn start_as(transport: &str, quotas: &str, options: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        std::fs::create_dir(directory.path().join("shared")).unwrap();
        std::fs::write(path("quotas.toml"), quotas).unwrap();
        std::fs::write(path("tokens"), "# names follow the tokens\ntoken-a alice\ntoken-b bob\ntoken-c alice\nplain\n")
            .unwrap();
        let mount = format!("{}:/shared:rw", path("shared"));
        let usual = ["--port", "0", "--mount", &mount, "--quotas", &path("quotas.toml")];
        let belljar = Belljar::new().args([transport]).args(usual).args(options.iter().copied());
        let has_tokens = !options.contains(&"--insecure-no-auth");
        let tokens = path("tokens");
        let belljar = if has_tokens { belljar.args(["--auth-token-file", &tokens]) } else { belljar };
        let shared = Self { server: Listening::spawn(belljar), directory };
        // Preparing Python is work of the pool, too.
        wait_until("Python is ready", || {
            ["belljar_running", "belljar_queue_length"].iter().all(|series| shared.metric(series) == 0.0)
        });
        shared
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("shared").join(name)
    }

    /// Lets the code of [`wait_for`] go on.
    fn release(&self, name: &str) {
        std::fs::write(self.path(name), "").unwrap();
    }

    /// Returns the lines of the log.
    fn logged(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path("log")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Waits until the log has this many lines.
    fn wait_for_log(&self, count: usize) {
        wait_until("the log is written", || self.logged().len() >= count);
    }

    /// Replaces the quotas, and has the server read them.
    fn replace_quotas(&self, text: &str) {
        std::fs::write(self.directory.path().join("quotas.toml"), text).unwrap();
        let process = self.server.child.id().to_string();
        assert!(std::process::Command::new("kill").args(["-HUP", &process]).status().unwrap().success());
    }

    /// Calls a tool with a token, and returns its result.
    fn call(&self, token: &str, name: &str, arguments: &Value) -> Value {
        let params = json!({ "name": name, "arguments": arguments });
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let authorization = format!("Bearer {token}");
        self.server.answer(&[("Authorization", &authorization)], &message)["result"].take()
    }

    /// Runs code with a token.
    fn run(&self, token: &str, code: &str) -> Value {
        self.call(token, "run_python_code", &json!({ "python_code": code }))
    }

    /// Runs a cell in a session, or in a new one if its name is empty.
    fn cell(&self, token: &str, session: &str, code: &str) -> Value {
        let arguments = match session {
            "" => json!({ "code": code }),
            session => json!({ "code": code, "session_id": session }),
        };
        self.call(token, "execute_code", &arguments)
    }

    /// Opens a session and returns its ID.
    fn open(&self, token: &str) -> String {
        session_of(&self.cell(token, "", "x = 1"))
    }

    /// Returns the value of a metric's series.
    fn metric(&self, series: &str) -> f64 {
        let (_, text) = self.server.send("GET", "/metrics", &[("Authorization", "Bearer plain")], "");
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{series}: {text}")).parse().unwrap()
    }

    /// Waits until this many calls wait for a thread.
    fn wait_for_queue(&self, count: usize) {
        wait_until("the calls wait", || self.metric("belljar_queue_length") == count as f64);
    }
}

#[track_caller]
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < TIMEOUT, "it did not happen that {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn session_of(result: &Value) -> String {
    let id = &result["structuredContent"]["session_info"]["session_id"];
    id.as_str().unwrap_or_else(|| panic!("{result}")).to_owned()
}

/// Asserts that a call succeeded.
#[track_caller]
fn assert_success(result: &Value) {
    let fields = &result["structuredContent"];
    assert!(fields["status"] == "success" || fields["success"] == true, "{result}");
}

/// Asserts that a call was refused by a quota, and returns the details.
#[track_caller]
fn assert_refused(result: &Value, quota: &str) -> Value {
    let details = &result["structuredContent"]["refusal"];
    assert_eq!((&details["status"], &details["quota"]), (&json!("quota-exceeded"), &json!(quota)), "{result}");
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(text.contains(&format!("your quota `{quota}`")), "{text}");
    details.clone()
}

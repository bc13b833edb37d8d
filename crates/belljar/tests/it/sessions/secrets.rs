//! Sessions are used by their owners only, and no log contains session IDs or code.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::{fields, open, run};
use crate::harness::Belljar;
use crate::serve::http::Listening;
use crate::wire::Wire;

/// A server with the tokens `alice` and `bob`.
struct Shared {
    server: Listening,
    _tokens: tempfile::TempDir,
}

impl Shared {
    fn start(command: &str, options: &[&str]) -> Self {
        let tokens = tempfile::tempdir().unwrap();
        let file = tokens.path().join("tokens");
        std::fs::write(&file, "alice\nbob\n").unwrap();
        let usual = ["--toolset", "interpreter", "--no-install", "--auth-token-file", file.to_str().unwrap()];
        Self { server: Listening::start(command, usual.into_iter().chain(options.iter().copied())), _tokens: tokens }
    }

    /// Sends a request with a token, and returns the answer and the MCP session that it opened.
    fn ask(&self, token: &str, session: Option<&str>, method: &str, params: Value) -> (Value, Option<String>) {
        let authorization = format!("Bearer {token}");
        let mut headers = vec![("Authorization", authorization.as_str())];
        headers.extend(session.map(|session| ("Mcp-Session-Id", session)));
        let message = json!({ "jsonrpc": "2.0", "id": 5, "method": method, "params": params });
        let (status, text) = self.server.post(&headers, &message);
        assert_eq!(status, 200, "{text}");
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let opened = head.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).map(str::to_owned);
        // Notifications may precede the answer.
        let messages = body
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ").unwrap_or(line)).ok());
        let answer = messages.into_iter().find(|message| message["id"] == 5);
        (answer.unwrap_or_else(|| panic!("{text}")), opened)
    }
}

/// A client with a token.
struct Client<'a> {
    shared: &'a Shared,
    token: &'a str,
    session: Option<String>,
}

impl<'a> Client<'a> {
    fn new(shared: &'a Shared, token: &'a str, with_session: bool) -> Self {
        let client = json!({ "name": "tests", "version": "1" });
        let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
        let session = with_session.then(|| shared.ask(token, None, "initialize", hello).1.unwrap());
        Self { shared, token, session }
    }

    fn ask(&self, method: &str, params: Value) -> Value {
        self.shared.ask(self.token, self.session.as_deref(), method, params).0
    }

    fn tool(&self, name: &str, arguments: Value) -> Value {
        fields(&self.ask("tools/call", json!({ "name": name, "arguments": arguments }))["result"])
    }

    fn run(&self, session: &str, code: &str) -> Value {
        self.tool("execute_code", json!({ "session_id": session, "code": code }))
    }

    /// Opens a session with the variable `secret` and the file `secret.txt`.
    fn open(&self) -> String {
        let answer = self.run("", "secret = 42; open('secret.txt', 'w').write('42')");
        answer["session_info"]["session_id"].as_str().unwrap().to_owned()
    }
}

/// Asserts that every use of `session` has the same answer as that of a session that does not exist.
fn assert_invisible(client: &Client<'_>, session: &str) {
    const NOWHERE: &str = "aaaaaaaaaaaaaaaa";
    let uses = |id: &str| {
        let mut answers = vec![client.run(id, "secret")];
        for tool in [
            "list_session_files",
            "clear_session",
            "interrupt_session",
            "restart_session",
            "fork_session",
            "upload_file",
        ] {
            answers.push(client.tool(tool, json!({ "session_id": id, "name": "a", "content": "b" })));
        }
        let uri = format!("kernel://{id}/secret.txt");
        answers.push(client.ask("resources/read", json!({ "uri": uri })));
        answers.push(client.ask("resources/list", json!({})));
        if client.session.is_some() {
            answers.push(client.ask("resources/subscribe", json!({ "uri": uri })));
        }
        answers
    };
    let [found, missing] = [session, NOWHERE].map(uses);
    for (found, missing) in found.iter().zip(&missing) {
        assert_eq!(found.to_string().replace(session, NOWHERE), missing.to_string());
    }
}

#[test]
fn session_belongs_to_the_token_that_created_it() {
    for (command, with_session) in [("streamable-http", true), ("streamable-http-stateless", false)] {
        let shared = Shared::start(command, &[]);
        let [alice, bob] = ["alice", "bob"].map(|token| Client::new(&shared, token, with_session));
        let id = alice.open();
        assert_invisible(&bob, &id);
        assert_eq!(alice.run(&id, "secret")["result"], "42");
        let fork = alice.tool("fork_session", json!({ "session_id": id }))["session_id"].as_str().unwrap().to_owned();
        assert_invisible(&bob, &fork);
        // A second MCP session of the same client may use it.
        let again = Client::new(&shared, "alice", with_session);
        assert_eq!(again.run(&fork, "secret")["result"], "42");
    }
}

#[test]
fn saved_session_still_belongs_to_its_token() {
    let data = tempfile::tempdir().unwrap();
    let options = ["--data-dir", data.path().to_str().unwrap()];
    let id = {
        let shared = Shared::start("streamable-http-stateless", &options);
        Client::new(&shared, "alice", false).open()
    };
    let shared = Shared::start("streamable-http-stateless", &options);
    assert_invisible(&Client::new(&shared, "bob", false), &id);
    assert_eq!(Client::new(&shared, "alice", false).run(&id, "secret")["result"], "42");
}

/// Text that is in code and in no other place.
const MARK: &str = "mark_of_the_code_7361";

/// Asserts that a log contains neither of the texts, or with `wanted` both.
#[test]
fn folders_of_sessions_are_separate_for_each_token() {
    let files = tempfile::tempdir().unwrap();
    let shared = Shared::start("streamable-http-stateless", &["--files", files.path().to_str().unwrap()]);
    let [alice, bob] = ["alice", "bob"].map(|token| Client::new(&shared, token, false));
    let ids = [alice.open(), bob.open(), alice.open()];
    assert_invisible(&bob, &ids[0]);
    let owners = crate::harness::names_in(files.path());
    assert!(owners.len() == 2 && owners.iter().all(|owner| owner.starts_with("token.")), "{owners:?}");
    let folders =
        |id: &str| owners.iter().filter(|owner| files.path().join(owner).join(id).join("secret.txt").is_file()).count();
    assert_eq!(ids.each_ref().map(|id| folders(id)), [1; 3]);
    let mut counts: Vec<usize> =
        owners.iter().map(|owner| crate::harness::names_in(&files.path().join(owner)).len()).collect();
    counts.sort_unstable();
    assert_eq!(counts, [1, 2]);
}

fn check(log: &str, id: &str, wanted: bool) {
    assert!(log.contains("TRACE") || log.contains("DEBUG"), "nothing was logged: {log}");
    for text in [id, MARK] {
        let line = log.lines().find(|line| line.contains(text));
        assert_eq!(line.is_some(), wanted, "{line:?}");
    }
}

in_both_isolations! {
    log_of_stdio_contains_ids_and_code_only_if_asked_for
    log_of_http_contains_ids_and_code_only_if_asked_for
}

fn log_of_stdio_contains_ids_and_code_only_if_asked_for(isolation: &str) {
    for (options, wanted) in [(&[][..], false), (&["--log-code"], true)] {
        let data = tempfile::tempdir().unwrap();
        let mut command = Belljar::new()
            .args(["stdio", "--toolset", "interpreter", "--no-install", "--data-dir"])
            .arg(data.path())
            .args(["--isolation", isolation])
            .args(options)
            .env("BELLJAR_LOG", "trace,rmcp=trace")
            .into_command();
        let log = tempfile::NamedTempFile::new().unwrap();
        command.stderr(log.reopen().unwrap());
        let mut wire = Wire::spawn(command);
        wire.initialize();
        let id = open(&mut wire);
        run(&mut wire, &id, &format!("{MARK} = 1\nopen('f', 'w').write('1'); 1/0"));
        wire.write(format!("{{\"{MARK}\": \"{id}\", bad\n").as_bytes());
        wire.write(format!("{{\"id\": 1, \"{MARK}\": \"{id}\"}}\n").as_bytes());
        wire.ask("resources/read", json!({ "uri": format!("kernel://{id}/missing") }));
        fields(&wire.tool("clear_session", json!({ "session_id": id })));
        fields(&wire.tool("list_session_files", json!({ "session_id": id })));
        drop(wire);
        check(&std::fs::read_to_string(log.path()).unwrap(), &id, wanted);
    }
}

fn log_of_http_contains_ids_and_code_only_if_asked_for(isolation: &str) {
    for (options, wanted) in [(&[][..], false), (&["--log-code"], true)] {
        let mut command = Belljar::new()
            .args(["streamable-http", "--port", "0", "--toolset", "interpreter", "--no-install"])
            .args(["--isolation", isolation])
            .args(options)
            .env("BELLJAR_LOG", "trace,rmcp=trace")
            .into_command();
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let log = Arc::<Mutex<String>>::default();
        let (ready, address) = std::sync::mpsc::channel();
        let (lines, sink) = (BufReader::new(child.stderr.take().unwrap()).lines(), log.clone());
        let reader = std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Some(url) = line.strip_prefix("listening on ") {
                    ready.send(url.to_owned()).unwrap();
                }
                *sink.lock().unwrap() += &format!("{line}\n");
            }
        });
        let url = address.recv().unwrap();
        let address = url.split('/').nth(2).unwrap().to_owned();
        let shared = Shared { server: Listening { child, url, address }, _tokens: tempfile::tempdir().unwrap() };
        let client = Client::new(&shared, "any", true);
        let opened = client.run("", &format!("{MARK} = 1"));
        let id = opened["session_info"]["session_id"].as_str().unwrap().to_owned();
        client.run(&id, "1/0");
        client.ask("resources/read", json!({ "uri": format!("kernel://{id}/missing") }));
        drop(shared);
        reader.join().unwrap();
        let log = log.lock().unwrap();
        check(&log, &id, wanted);
    }
}

//! The clients. Each performs one action after the other, chosen by a seeded generator.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;

use super::server::Server;

/// An action of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Action {
    /// A call whose answer is checked.
    Call,
    /// A session with a few calls, ended by the client.
    Session,
    /// A session that is never used again.
    Abandon,
    /// Code that raises.
    Raise,
    /// Code that never ends.
    Endless,
    /// Code that writes without end.
    Flood,
    /// Code that allocates more memory than its limit.
    Allocate,
    /// A client that disconnects while its code runs.
    Disconnect,
    /// A request that ends in the middle.
    PartialRequest,
    /// An invalid message.
    InvalidMessage,
    /// A message that is too long.
    TooLong,
    /// A stream that is resumed.
    Resume,
}

impl Action {
    pub(super) const ALL: [Self; 12] = [
        Self::Call,
        Self::Session,
        Self::Abandon,
        Self::Raise,
        Self::Endless,
        Self::Flood,
        Self::Allocate,
        Self::Disconnect,
        Self::PartialRequest,
        Self::InvalidMessage,
        Self::TooLong,
        Self::Resume,
    ];
}

/// The counts of actions and the errors.
#[derive(Default)]
pub(super) struct Tally(Mutex<(BTreeMap<Action, u64>, u64, u64)>);

impl Tally {
    fn add(&self, action: Action, result: Result<Answer, String>) {
        let Ok(mut tally) = self.0.lock() else { return };
        *tally.0.entry(action).or_default() += 1;
        match result {
            Ok(Answer::Right) => {}
            Ok(Answer::Busy) => tally.1 += 1,
            Err(what) => {
                tally.2 += 1;
                // The first errors are printed at once, since the run may never end.
                if tally.2 <= 20 {
                    println!("failure: {action:?}: {what}");
                }
            }
        }
    }

    pub(super) fn done(&self, action: Action) -> u64 {
        self.0.lock().map_or(0, |tally| tally.0.get(&action).copied().unwrap_or(0))
    }

    /// Returns whether no action failed.
    pub(super) fn is_clean(&self) -> bool {
        self.0.lock().is_ok_and(|tally| tally.2 == 0)
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ok(tally) = self.0.lock() else { return f.write_str("a client panicked") };
        for (action, times) in &tally.0 {
            write!(f, "{times} {action:?}, ")?;
        }
        write!(f, "{} replies that the server is busy, {} failures", tally.1, tally.2)
    }
}

enum Answer {
    Right,
    /// The server replied that it is busy.
    Busy,
}

/// A generator of pseudorandom numbers with a fixed seed (xorshift).
struct Rng(u64);

impl Rng {
    fn next(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// Performs one action after the other until `stop` is set.
pub(super) fn live(server: &Server, number: u64, stop: &AtomicBool, tally: &Tally) {
    let mut rng = Rng(0x9e37_79b9_7f4a_7c15 ^ (number + 1).wrapping_mul(0x2545_f491_4f6c_dd1d));
    while !stop.load(Ordering::Relaxed) {
        // Half of all actions are ordinary calls.
        let action = match rng.next(2) {
            0 => Action::Call,
            _ => Action::ALL[rng.next(Action::ALL.len() as u64) as usize],
        };
        tally.add(action, act(server, action, rng.next(1 << 40)));
    }
}

fn act(server: &Server, action: Action, seed: u64) -> Result<Answer, String> {
    let lost = |error: std::io::Error| format!("the connection failed: {error}");
    match action {
        Action::Call => {
            let code =
                format!("import hashlib\nprint('out', {seed})\nhashlib.sha256(b'{seed}').hexdigest() and {seed} * 2");
            expect(&modern(server, &code)?, &[&format!("out {seed}"), &format!("\\n{}\\n", seed * 2)])
        }
        Action::Raise => {
            expect(&modern(server, &format!("raise ValueError({seed})"))?, &[&format!("ValueError: {seed}")])
        }
        Action::Endless => expect(&modern(server, "while True: pass")?, &["Limit reached: time"]),
        Action::Flood => expect(&modern(server, "while True: print('x' * 1000)")?, &["Limit reached: output"]),
        Action::Allocate => {
            let text = modern(server, "x = []\nwhile True: x.append(bytes(1 << 24))")?;
            // On a busy machine the code reaches its time limit first.
            expect(&text, &["Limit reached: time"]).or_else(|_| expect(&text, &["MemoryError"]))
        }
        Action::Session => session(server, seed),
        Action::Abandon => {
            open_session(server).map(|session| if session.is_some() { Answer::Right } else { Answer::Busy })
        }
        Action::Disconnect => {
            let body = call("while True: pass", true);
            let stream = server.open("POST", "/mcp", &MODERN, &body, body.len()).map_err(lost)?;
            std::thread::sleep(Duration::from_millis(seed % 200));
            drop(stream);
            Ok(Answer::Right)
        }
        Action::PartialRequest => {
            let body = call("1", true);
            let stream = server.open("POST", "/mcp", &MODERN, &body[..body.len() / 2], body.len()).map_err(lost)?;
            std::thread::sleep(Duration::from_millis(seed % 50));
            drop(stream);
            Ok(Answer::Right)
        }
        Action::InvalidMessage => {
            let bodies: [&[u8]; 4] =
                [b"", b"\xff\xfe\x00", b"[[[[[[[[", b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":7}"];
            let (status, text) = server.send("POST", "/mcp", &MODERN, bodies[(seed % 4) as usize]).map_err(lost)?;
            if (400..500).contains(&status) { Ok(Answer::Right) } else { Err(format!("{status}: {text}")) }
        }
        Action::TooLong => {
            // The server may disconnect before all is sent.
            let sent = server.open("POST", "/mcp", &MODERN, &vec![b'x'; 1 << 20], 200 << 20);
            drop(sent);
            Ok(Answer::Right)
        }
        Action::Resume => resume(server, seed),
    }
}

const MODERN: [(&str, &str); 3] =
    [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/call"), ("Mcp-Name", "run_python_code")];

fn call(code: &str, modern: bool) -> Vec<u8> {
    let mut params = json!({ "name": "run_python_code", "arguments": { "python_code": code } });
    if modern {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "soak", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": {},
        });
    }
    json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params }).to_string().into_bytes()
}

/// Makes a call of the modern era and returns its answer.
fn modern(server: &Server, code: &str) -> Result<String, String> {
    match server.send("POST", "/mcp", &MODERN, &call(code, true)) {
        Ok((200, text)) => Ok(text),
        Ok((status, text)) => Err(format!("{status}: {text}")),
        Err(error) => Err(format!("the connection failed: {error}")),
    }
}

fn expect(text: &str, wanted: &[&str]) -> Result<Answer, String> {
    if text.contains("the server is busy") {
        return Ok(Answer::Busy);
    }
    match wanted.iter().find(|wanted| !text.contains(**wanted)) {
        None => Ok(Answer::Right),
        Some(missing) => {
            let message = text.split_once("\r\n\r\n").map_or(text, |(_, body)| body);
            Err(format!("no {missing:?} in {:?}", message.chars().take(500).collect::<String>()))
        }
    }
}

/// Opens a session of the legacy era, or returns `None` if the server has too many.
fn open_session(server: &Server) -> Result<Option<String>, String> {
    let client = json!({ "name": "soak", "version": "1" });
    let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params }).to_string();
    let answer = server.send("POST", "/mcp", &[], hello.as_bytes());
    let (status, text) = answer.map_err(|error| format!("the connection failed: {error}"))?;
    match status {
        200 => {
            let session = text.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
            Ok(Some(session.ok_or("no session")?.to_owned()))
        }
        503 => Ok(None),
        _ => Err(format!("{status}: {text}")),
    }
}

fn session(server: &Server, seed: u64) -> Result<Answer, String> {
    let Some(session) = open_session(server)? else { return Ok(Answer::Busy) };
    let headers = [("Mcp-Session-Id", session.as_str())];
    let lost = |error: std::io::Error| format!("the connection failed: {error}");
    let mut answer = Answer::Right;
    for round in 0..3 {
        let code = format!("{seed} + {round}");
        let (_, text) = server.send("POST", "/mcp", &headers, &call(&code, false)).map_err(lost)?;
        answer = expect(&text, &[&format!("\\n{}\\n", seed + round)])?;
    }
    let (status, text) = server.send("DELETE", "/mcp", &headers, b"").map_err(lost)?;
    if status == 200 { Ok(answer) } else { Err(format!("failed to end a session: {status}: {text}")) }
}

/// Starts a call, disconnects, and resumes the stream for its answer.
fn resume(server: &Server, seed: u64) -> Result<Answer, String> {
    use std::io::Read;
    let Some(session) = open_session(server)? else { return Ok(Answer::Busy) };
    let lost = |error: std::io::Error| format!("the connection failed: {error}");
    let body = call(&format!("import time\ntime.sleep(0.1)\n{seed} * 3"), false);
    let mut stream = server.open("POST", "/mcp", &[("Mcp-Session-Id", &session)], &body, body.len()).map_err(lost)?;
    let mut received = String::new();
    let mut piece = [0; 1024];
    let id = loop {
        let count = stream.read(&mut piece).map_err(lost)?;
        received.push_str(&String::from_utf8_lossy(&piece[..count]));
        let id = received.lines().find_map(|line| line.strip_prefix("id:").map(|id| id.trim().to_owned()));
        match id {
            Some(id) if received.ends_with('\n') => break id,
            _ if count == 0 => return Err(format!("no event has an id: {received}")),
            _ => {}
        }
    };
    drop(stream);
    let headers = [("Mcp-Session-Id", session.as_str()), ("Last-Event-ID", &id)];
    let (_, text) = server.send("GET", "/mcp", &headers, b"").map_err(lost)?;
    expect(&text, &[&format!("\\n{}\\n", seed * 3)])
}

//! The clients: each does one thing after the other, chosen by a seeded generator.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;

use super::server::Server;

/// What a client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Deed {
    /// A call with a right answer.
    Call,
    /// A session with a few calls, ended as it should be.
    Session,
    /// A session that is never used again.
    LeftBehind,
    /// Code that raises.
    Raise,
    /// Code that never ends.
    Endless,
    /// Code that writes without end.
    Flood,
    /// Code that takes more memory than there is.
    Hoard,
    /// A client that hangs up while its code runs.
    HangUp,
    /// A request that ends in the middle.
    Half,
    /// No message at all.
    Nonsense,
    /// A message that is too long.
    TooLong,
    /// A stream that is come back to.
    Resume,
}

impl Deed {
    pub(super) const ALL: [Self; 12] = [
        Self::Call,
        Self::Session,
        Self::LeftBehind,
        Self::Raise,
        Self::Endless,
        Self::Flood,
        Self::Hoard,
        Self::HangUp,
        Self::Half,
        Self::Nonsense,
        Self::TooLong,
        Self::Resume,
    ];
}

/// What was done, and what went wrong.
#[derive(Default)]
pub(super) struct Tally(Mutex<(BTreeMap<Deed, u64>, u64, u64)>);

impl Tally {
    fn add(&self, deed: Deed, result: Result<Answer, String>) {
        let Ok(mut tally) = self.0.lock() else { return };
        *tally.0.entry(deed).or_default() += 1;
        match result {
            Ok(Answer::Right) => {}
            Ok(Answer::Busy) => tally.1 += 1,
            Err(what) => {
                tally.2 += 1;
                // The first ones tell, at once, since the rest may never come to its end.
                if tally.2 <= 20 {
                    println!("wrong: {deed:?}: {what}");
                }
            }
        }
    }

    pub(super) fn done(&self, deed: Deed) -> u64 {
        self.0.lock().map_or(0, |tally| tally.0.get(&deed).copied().unwrap_or(0))
    }

    /// Whether nothing went wrong.
    pub(super) fn is_clean(&self) -> bool {
        self.0.lock().is_ok_and(|tally| tally.2 == 0)
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ok(tally) = self.0.lock() else { return f.write_str("a client panicked") };
        for (deed, times) in &tally.0 {
            write!(f, "{times} {deed:?}, ")?;
        }
        write!(f, "{} told that the server is busy, {} wrong", tally.1, tally.2)
    }
}

enum Answer {
    Right,
    /// There was no room, which the server said.
    Busy,
}

/// Numbers that are the same each time (xorshift).
struct Dice(u64);

impl Dice {
    fn next(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// Does one thing after the other until it is told to stop.
pub(super) fn live(server: &Server, number: u64, stop: &AtomicBool, tally: &Tally) {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15 ^ (number + 1).wrapping_mul(0x2545_f491_4f6c_dd1d));
    while !stop.load(Ordering::Relaxed) {
        // Half of all is what good clients do.
        let deed = match dice.next(2) {
            0 => Deed::Call,
            _ => Deed::ALL[dice.next(Deed::ALL.len() as u64) as usize],
        };
        tally.add(deed, act(server, deed, dice.next(1 << 40)));
    }
}

fn act(server: &Server, deed: Deed, seed: u64) -> Result<Answer, String> {
    let lost = |error: std::io::Error| format!("the connection failed: {error}");
    match deed {
        Deed::Call => {
            let code =
                format!("import hashlib\nprint('out', {seed})\nhashlib.sha256(b'{seed}').hexdigest() and {seed} * 2");
            expect(&modern(server, &code)?, &[&format!("out {seed}"), &format!("\\n{}\\n", seed * 2)])
        }
        Deed::Raise => {
            expect(&modern(server, &format!("raise ValueError({seed})"))?, &[&format!("ValueError: {seed}")])
        }
        Deed::Endless => expect(&modern(server, "while True: pass")?, &["Limit reached: time"]),
        Deed::Flood => expect(&modern(server, "while True: print('x' * 1000)")?, &["Limit reached: output"]),
        Deed::Hoard => {
            let text = modern(server, "x = []\nwhile True: x.append(bytes(1 << 24))")?;
            // On a busy machine its time is up first.
            expect(&text, &["Limit reached: time"]).or_else(|_| expect(&text, &["MemoryError"]))
        }
        Deed::Session => session(server, seed),
        Deed::LeftBehind => {
            open_session(server).map(|session| if session.is_some() { Answer::Right } else { Answer::Busy })
        }
        Deed::HangUp => {
            let body = call("while True: pass", true);
            let stream = server.open("POST", "/mcp", &MODERN, &body, body.len()).map_err(lost)?;
            std::thread::sleep(Duration::from_millis(seed % 200));
            drop(stream);
            Ok(Answer::Right)
        }
        Deed::Half => {
            let body = call("1", true);
            let stream = server.open("POST", "/mcp", &MODERN, &body[..body.len() / 2], body.len()).map_err(lost)?;
            std::thread::sleep(Duration::from_millis(seed % 50));
            drop(stream);
            Ok(Answer::Right)
        }
        Deed::Nonsense => {
            let bodies: [&[u8]; 4] =
                [b"", b"\xff\xfe\x00", b"[[[[[[[[", b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":7}"];
            let (status, text) = server.send("POST", "/mcp", &MODERN, bodies[(seed % 4) as usize]).map_err(lost)?;
            if (400..500).contains(&status) { Ok(Answer::Right) } else { Err(format!("{status}: {text}")) }
        }
        Deed::TooLong => {
            // The server may hang up before all is sent.
            let sent = server.open("POST", "/mcp", &MODERN, &vec![b'x'; 1 << 20], 200 << 20);
            drop(sent);
            Ok(Answer::Right)
        }
        Deed::Resume => resume(server, seed),
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

/// A call of the modern era: its answer.
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

/// Opens a session of the legacy era; `None` when there are too many.
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
    if status == 200 { Ok(answer) } else { Err(format!("a session does not end: {status}: {text}")) }
}

/// Begins a call, hangs up, and comes back for its answer.
fn resume(server: &Server, seed: u64) -> Result<Answer, String> {
    use std::io::Read;
    let Some(session) = open_session(server)? else { return Ok(Answer::Busy) };
    let lost = |error: std::io::Error| format!("the connection failed: {error}");
    let body = call(&format!("import time\ntime.sleep(0.1)\n{seed} * 3"), false);
    let mut stream = server.open("POST", "/mcp", &[("Mcp-Session-Id", &session)], &body, body.len()).map_err(lost)?;
    let mut heard = String::new();
    let mut piece = [0; 1024];
    let id = loop {
        let count = stream.read(&mut piece).map_err(lost)?;
        heard.push_str(&String::from_utf8_lossy(&piece[..count]));
        let id = heard.lines().find_map(|line| line.strip_prefix("id:").map(|id| id.trim().to_owned()));
        match id {
            Some(id) if heard.ends_with('\n') => break id,
            _ if count == 0 => return Err(format!("no event has an id: {heard}")),
            _ => {}
        }
    };
    drop(stream);
    let headers = [("Mcp-Session-Id", session.as_str()), ("Last-Event-ID", &id)];
    let (_, text) = server.send("GET", "/mcp", &headers, b"").map_err(lost)?;
    expect(&text, &[&format!("\\n{}\\n", seed * 3)])
}

//! Programs that wait have the same output in one server, and in many that end or are killed one after the other.

pub(super) mod generator;
mod steps;

use std::collections::HashSet;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use generator::{Random, program};
use serde_json::{Value, json};

use crate::tool_client::tool_server;
use crate::wire::Wire;

/// The number of programs, unless `BELLJAR_DURABLE_PROGRAMS` has another one.
const PROGRAMS: u64 = 40;
/// The number of programs that run at the same time.
const AT_ONCE: u64 = 3;
/// The number of times that a server is looked at before its cell counts as one that goes on: a cell that asks nothing
/// is saved after a second.
const LOOKS: u32 = 2000;

/// A data directory, and a server of tools whose calls can be held: see `tool_server.py`.
struct Servers {
    folder: tempfile::TempDir,
    options: Vec<String>,
}

impl Servers {
    fn new(more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("gates")).unwrap();
        let gates = folder.path().join("gates").display().to_string();
        let data = folder.path().join("data").display().to_string();
        let server = format!("{} '{gates}'", tool_server("t", "gated"));
        let options = ["--toolset", "interpreter", "--approve", "all", "--data-dir", &data, &server];
        Self { options: options.iter().chain(more).map(|&option| option.to_owned()).collect(), folder }
    }

    fn data(&self) -> std::path::PathBuf {
        self.folder.path().join("data")
    }

    /// Returns whether the session's cell waits on the disk.
    fn is_saved(&self, session: &str) -> bool {
        self.data().join(session).join("waiting").exists()
    }

    fn start(&self) -> Wire {
        Wire::start_with(self.options.iter().map(String::as_str), json!({ "elicitation": {} }))
    }

    fn gate(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join("gates").join(name)
    }

    /// Kills the server if the session's cell waits on the disk, and returns whether it did. Code that runs when its
    /// server is killed is lost, which is documented: the cell may have a timer that is just due.
    fn kill_if_saved(&self, wire: &mut Wire, session: &str) -> bool {
        for _ in 0..LOOKS {
            signal(wire, "STOP");
            if self.is_saved(session) {
                wire.child.kill().unwrap();
                wire.child.wait().unwrap();
                return true;
            }
            signal(wire, "CONT");
            std::thread::sleep(Duration::from_millis(2));
        }
        false
    }
}

fn signal(wire: &Wire, name: &str) {
    let sent = Command::new("kill").arg(format!("-{name}")).arg(wire.child.id().to_string()).status().unwrap();
    assert!(sent.success());
}

/// The times at which the servers of a program are killed.
#[derive(Clone, Copy)]
enum Kills {
    None,
    /// At each question, once.
    EachQuestion,
    /// At the question with this number, after a while.
    Question(usize, Duration),
    /// While the call with this number is in progress: it is sent again.
    Call(u32),
}

/// The effects of a program.
struct Finished {
    /// The parts of the answer that must not depend on kills.
    answer: String,
    questions: Vec<String>,
    kills: usize,
}

/// Runs a program in a session of its own.
fn run(servers: &Servers, wire: &mut Wire, code: &str, kills: Kills) -> Finished {
    let session = open(wire);
    if let Kills::Call(number) = kills {
        std::fs::write(servers.gate(&number.to_string()), "").unwrap();
    }
    let mut request = begin(wire, &session, code);
    let mut finished = Finished { answer: String::new(), questions: Vec::new(), kills: 0 };
    // The questions at which a server was killed: they are asked again.
    let mut killed_for = HashSet::new();
    finished.answer = loop {
        let message = wire.next().unwrap_or_else(|| panic!("the server has ended: {code}"));
        if message["method"] != "elicitation/create" {
            if message["id"] == request {
                break comparable(&structured(&message["result"]), &session);
            }
            continue;
        }
        let question = message["params"]["message"].as_str().unwrap().to_owned();
        let is_first = !killed_for.contains(&question);
        let wants_kill = match kills {
            Kills::None | Kills::Call(_) => false,
            Kills::EachQuestion => is_first,
            Kills::Question(number, delay) => {
                let is_it = finished.kills == 0 && finished.questions.len() == number;
                if is_it {
                    std::thread::sleep(delay);
                }
                is_it
            }
        };
        let mut is_killed = wants_kill && servers.kill_if_saved(wire, &session);
        if !is_killed {
            reply(wire, &message);
            finished.questions.push(question.clone());
            if let Kills::Call(number) = kills
                && finished.kills == 0
                && question.contains(&format!("{{\"value\":{number}}}"))
            {
                wait_until_held(servers);
                is_killed = servers.kill_if_saved(wire, &session);
                let _ = std::fs::remove_file(servers.gate("held"));
                assert!(is_killed, "the cell is not saved while its call is in progress: {code}");
            }
        }
        if is_killed {
            finished.kills += 1;
            killed_for.insert(question);
            *wire = servers.start();
            request = resume(wire, &session);
        }
    };
    wire.tool("clear_session", json!({ "session_id": session }));
    finished
}

fn open(wire: &mut Wire) -> String {
    let opened = structured(&wire.tool("execute_code", json!({ "code": "pass" })));
    opened["session_info"]["session_id"].as_str().unwrap().to_owned()
}

/// Sends a cell, and returns the number of the call.
fn begin(wire: &mut Wire, session: &str, code: &str) -> u64 {
    let cell = json!({ "name": "execute_code", "arguments": { "code": code, "session_id": session } });
    wire.send("tools/call", cell)
}

/// Sends the call that waits for the run of a session, and returns its number.
fn resume(wire: &mut Wire, session: &str) -> u64 {
    let listed = structured(&wire.tool("list_runs", json!({ "session_id": session })));
    let [run] = &listed["runs"].as_array().unwrap()[..] else { panic!("not one run: {listed:#}") };
    wire.send("tools/call", json!({ "name": "resume_run", "arguments": { "run_id": run["run_id"] } }))
}

fn wait_until_held(servers: &Servers) {
    for _ in 0..36_000 {
        if servers.gate("held").exists() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("the call does not arrive");
}

fn reply(wire: &mut Wire, question: &Value) {
    let result = json!({ "action": "accept", "content": { "value": "yes" } });
    let message = json!({ "jsonrpc": "2.0", "id": question["id"], "result": result });
    wire.write(format!("{message}\n").as_bytes());
}

fn structured(result: &Value) -> Value {
    let content = &result["structuredContent"];
    assert!(content.is_object(), "{result:#}");
    content.clone()
}

/// Returns the part of an answer that must not depend on kills, nor on the session.
fn comparable(answer: &Value, session: &str) -> String {
    let fields = ["result", "output", "error", "traceback", "files"];
    fields.map(|field| format!("{field}: {}\n", answer[field])).concat().replace(session, "SESSION")
}

/// Writes the seed of a program that hangs or fails.
struct SeedOnPanic(u64);

impl Drop for SeedOnPanic {
    #[expect(clippy::print_stderr, reason = "the panic of a thread has no other context")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the program of seed {} failed", self.0);
        }
    }
}

/// Runs the program of a seed in each way, and returns the number of kills.
fn check(servers: &Servers, wire: &mut Wire, seed: u64, code: &str) -> usize {
    let _seed = SeedOnPanic(seed);
    let mut random = Random::new(seed.wrapping_add(1 << 32));
    let plain = run(servers, wire, code, Kills::None);
    let questions = plain.questions.len();
    assert!(questions > 0 && plain.answer.contains("output: [\""), "seed {seed}: {}\n{code}", plain.answer);
    let question = random.below(u32::try_from(questions).unwrap()) as usize;
    let delay = Duration::from_micros(random.below(20_000).into());
    let mut ways = vec![Kills::EachQuestion, Kills::Question(question, delay)];
    let number = plain.questions[question].split("{\"value\":").nth(1).and_then(|rest| rest.split('}').next());
    ways.extend(number.map(|number| Kills::Call(number.parse().unwrap())));
    let mut kills = 0;
    for (way, each) in ways.into_iter().enumerate() {
        let killed = run(servers, wire, code, each);
        assert_eq!(killed.answer, plain.answer, "seed {seed}, way {way}:\n{code}");
        kills += killed.kills;
    }
    kills
}

#[test]
fn programs_have_the_same_output_when_their_servers_are_killed() {
    let programs = std::env::var("BELLJAR_DURABLE_PROGRAMS").map_or(PROGRAMS, |number| number.parse().unwrap());
    check_programs(programs, &[], program);
}

/// Runs the programs of the first seeds in each way.
pub(super) fn check_programs(programs: u64, options: &[&str], program: fn(u64) -> String) {
    let kills = on_servers(programs, options, |servers, wire, seed| check(servers, wire, seed, &program(seed)));
    // Each program asks at least once, and nearly all of them wait on the disk then.
    assert!(kills as u64 >= programs, "{kills} kills");
}

/// Calls `check` for the first seeds, with servers that have these options. Returns the sum of its results.
fn on_servers(
    programs: u64,
    options: &[&str],
    check: impl Fn(&Servers, &mut Wire, u64) -> usize + Send + Sync,
) -> usize {
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let worker = || {
            let servers = Servers::new(options);
            let (mut wire, mut sum) = (servers.start(), 0);
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= programs {
                    return sum;
                }
                sum += check(&servers, &mut wire, seed);
            }
        };
        let workers: Vec<_> = (0..AT_ONCE.min(programs)).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    })
}

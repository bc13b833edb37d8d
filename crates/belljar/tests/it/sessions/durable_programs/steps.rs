//! Programs whose servers end at each of their waits: in an orderly way while the session sleeps, or killed while a
//! timer is pending.
//!
//! Their timers take seconds, so that they are pending when a server ends. What they print does not depend on it.

use std::collections::HashSet;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use super::generator::program;
use super::{Kills, SeedOnPanic, Servers, begin, comparable, on_servers, open, reply, resume, run, signal, structured};
use crate::harness::Belljar;
use crate::wire::Wire;

/// The number of programs, unless `BELLJAR_DURABLE_PROGRAMS` has another one: each takes a minute.
const PROGRAMS: u64 = 3;
/// The interval at which a server that sends nothing is looked at.
const INTERVAL: Duration = Duration::from_millis(50);
/// The time after which the cell of a server with `--sleep-after 0.1` is asleep, once it is saved.
const UNTIL_ASLEEP: Duration = Duration::from_millis(400);
/// The shortest time that is left of a timer when a server ends: its cell waits until then.
const LEFT: Duration = Duration::from_millis(500);
/// Timers that are due later are ones that the program cancels.
const SOON: Duration = Duration::from_secs(60);
/// The difference of times by which two timers are the same one.
const SAME: u64 = 200;
/// The number of times that a server is looked at before its cell counts as one that goes on.
const LOOKS: u32 = 20;
/// The time after which a program counts as hung.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(600);

/// The way in which servers end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// By SIGTERM, at each question and while each timer is pending, when the session sleeps.
    Orderly,
    /// By SIGKILL, while each timer is pending.
    Killed,
}

/// The wait of a cell on the disk.
#[derive(Clone, Copy)]
struct SavedWait {
    asks: bool,
    /// The time at which the cell goes on by itself, in milliseconds since 1970.
    wake_at: Option<u64>,
}

impl SavedWait {
    /// Returns whether a timer is about to be due.
    fn is_about_to_end(&self) -> bool {
        self.wake_at.is_some_and(|time| left_until(time) <= LEFT)
    }
}

/// Returns the time until `time`, in milliseconds since 1970.
fn left_until(time: u64) -> Duration {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    Duration::from_millis(time).saturating_sub(now)
}

/// Returns the wait of a session's cell, if the cell is on the disk.
fn saved_wait(servers: &Servers, session: &str) -> Option<SavedWait> {
    if !servers.is_saved(session) {
        return None;
    }
    let listed = Belljar::new().args(["runs", "list", "--json", "--data-dir"]).arg(servers.data()).run();
    let mut runs = listed.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let run = runs.find(|run| run["session"] == session)?;
    Some(SavedWait { asks: run["questions"] != Value::Array(Vec::new()), wake_at: run["wake_at"].as_u64() })
}

/// Terminates the server once the session's cell is asleep and no timer of it is about to be due. Returns false if the
/// cell goes on.
fn terminate_asleep(servers: &Servers, wire: &mut Wire, session: &str) -> bool {
    for _ in 0..LOOKS {
        std::thread::sleep(UNTIL_ASLEEP);
        let Some(wait) = saved_wait(servers, session) else { continue };
        if !wait.is_about_to_end() {
            signal(wire, "TERM");
            assert!(wire.wait_for_exit().success(), "the server does not end regularly");
            return true;
        }
    }
    false
}

/// Runs a program in a session of its own, and ends its servers. Returns the parts of the answer that must not depend
/// on that, and the number of servers that have ended.
fn run_in_steps(servers: &Servers, wire: &mut Wire, code: &str, end: End) -> (String, usize) {
    let session = open(wire);
    let mut request = begin(wire, &session, code);
    let (start, mut ends) = (Instant::now(), 0);
    // The questions and the timer at which a server has ended: they are still there in the next one.
    let (mut questions, mut timer) = (HashSet::new(), 0);
    let answer = loop {
        assert!(start.elapsed() < PROGRAM_TIMEOUT, "the program hangs: {code}");
        let has_ended = match wire.next_within(INTERVAL) {
            Some(message) if message["method"] == "elicitation/create" => {
                let question = message["params"]["message"].as_str().unwrap().to_owned();
                let is_new = end == End::Orderly && questions.insert(question);
                let has_ended = is_new && terminate_asleep(servers, wire, &session);
                if !has_ended {
                    reply(wire, &message);
                }
                has_ended
            }
            Some(message) if message["id"] == request => break comparable(&structured(&message["result"]), &session),
            Some(_) => false,
            None if !left_until(timer).is_zero() => false,
            None => match saved_wait(servers, &session) {
                Some(wait @ SavedWait { asks: false, wake_at: Some(wake_at) })
                    if wake_at.abs_diff(timer) > SAME && !wait.is_about_to_end() && left_until(wake_at) < SOON =>
                {
                    let has_ended = match end {
                        End::Orderly => terminate_asleep(servers, wire, &session),
                        End::Killed => servers.kill_if_saved(wire, &session),
                    };
                    if has_ended {
                        timer = wake_at;
                    }
                    has_ended
                }
                _ => false,
            },
        };
        if has_ended {
            ends += 1;
            *wire = servers.start();
            request = resume(wire, &session);
        }
    };
    wire.tool("clear_session", json!({ "session_id": session }));
    (answer, ends)
}

/// Checks programs whose servers end in one way, and returns the number of servers that have ended.
fn check_programs(end: End, options: &[&str]) -> (u64, usize) {
    let programs = std::env::var("BELLJAR_DURABLE_PROGRAMS").map_or(PROGRAMS, |number| number.parse().unwrap());
    let ends = on_servers(programs, options, |servers, wire, seed| {
        let _seed = SeedOnPanic(seed);
        let code = program(seed);
        let plain = run(servers, wire, &code, Kills::None);
        // The short timers take 2.51 to 2.54 s: cells are saved after a second.
        let (answer, ends) = run_in_steps(servers, wire, &code.replace("0.00", "2.5"), end);
        assert_eq!(answer, plain.answer, "seed {seed}, {end:?}:\n{code}");
        ends
    });
    (programs, ends)
}

#[test]
fn programs_have_the_same_output_when_another_process_wakes_them_at_each_step() {
    let (programs, ends) = check_programs(End::Orderly, &["--sleep-after", "0.1"]);
    // Each program asks at least once.
    assert!(ends as u64 >= programs, "{ends} servers have ended");
}

#[test]
fn programs_have_the_same_output_when_their_servers_are_killed_while_timers_are_pending() {
    let (_, ends) = check_programs(End::Killed, &[]);
    assert!(ends > 0, "no server was killed");
}

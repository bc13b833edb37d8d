//! Owners of workers: clients of a server over HTTP.

use std::collections::BTreeSet;

use serde_json::json;

use super::*;
use crate::serve::http::Listening;

/// Code that uses the processor for a second.
const WORK: &str = "for number in range(20_000_000): pass";
/// The processor time that tells a worker that has run [`WORK`] from others, in ticks of 10 ms.
const USED: u64 = 25;

/// Runs code with a token.
fn run(server: &Listening, token: &str, code: &str) {
    let params = json!({ "name": "run_python_code", "arguments": { "python_code": code } });
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let (status, text) = server.post(&[("Authorization", &format!("Bearer {token}"))], &message);
    assert_eq!(status, 200, "{text}");
}

/// Runs [`WORK`] with a token. Returns the workers that have run it.
fn workers_of(server: &Listening, token: &str) -> BTreeSet<Process> {
    let process = server.child.id();
    let before: Vec<_> = workers(process).into_iter().map(|worker| (worker, worker.processor_time())).collect();
    run(server, token, WORK);
    let former = |worker: &Process| before.iter().find(|(known, _)| known == worker).map_or(0, |(_, time)| *time);
    let ran = workers(process).into_iter().filter(|worker| worker.processor_time() >= former(worker) + USED);
    ran.collect()
}

/// Starts a server with two clients.
fn start_for_two() -> Listening {
    let directory = tempfile::tempdir().unwrap();
    let tokens = directory.path().join("tokens");
    std::fs::write(&tokens, "token-a alice\ntoken-b bob\n").unwrap();
    let belljar = Belljar::new().args(["streamable-http-stateless", "--port", "0", "--no-install"]);
    let belljar = belljar.args(["--isolation", "process", "--auth-token-file", tokens.to_str().unwrap()]);
    Listening::spawn(belljar)
}

#[test]
fn calls_of_an_owner_with_more_than_its_share_give_way() {
    let server = start_for_two();
    let process = server.child.id();
    // Both are known to the server. One call at a time has the usual priority.
    for token in ["token-b", "token-a"] {
        let ran = workers_of(&server, token);
        assert!(ran.iter().all(|worker| worker.yielding_time() < USED), "{ran:?}");
    }
    let processors = std::thread::available_parallelism().unwrap().get();
    std::thread::scope(|scope| {
        for _ in 0..processors + 4 {
            scope.spawn(|| workers_of(&server, "token-a"));
        }
        wait_for("calls that give way", || workers(process).into_iter().find(|worker| worker.yielding_time() >= USED));
    });
}

#[test]
fn interpreters_are_restored_on_the_thread_of_calls_that_give_way() {
    let server = start_for_two();
    for token in ["token-b", "token-a"] {
        run(&server, token, "1");
    }
    let processors = std::thread::available_parallelism().unwrap().get();
    std::thread::scope(|scope| {
        for _ in 0..processors + 6 {
            scope.spawn(|| (0..150).for_each(|_| run(&server, "token-a", "1")));
        }
    });
    let workers = workers(server.child.id());
    let (all, yielding): (Vec<u64>, Vec<u64>) =
        workers.iter().map(|worker| (worker.processor_time(), worker.yielding_time())).unzip();
    // To restore an interpreter takes about as long as such a call.
    assert!(yielding.iter().sum::<u64>() * 4 > all.iter().sum::<u64>() * 3, "{yielding:?} of {all:?}");
}

#[test]
fn worker_serves_one_owner() {
    let server = start_for_two();
    let (mut of_alice, mut of_bob) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..4 {
        let runs = [workers_of(&server, "token-a"), workers_of(&server, "token-b")];
        assert!(runs.iter().all(|workers| workers.len() == 1), "{runs:?}");
        let [alice, bob] = runs;
        of_alice.extend(alice);
        of_bob.extend(bob);
    }
    assert!(of_alice.is_disjoint(&of_bob), "{of_alice:?} {of_bob:?}");
    // They are used again.
    assert!(of_alice.len() < 4 && of_bob.len() < 4, "{of_alice:?} {of_bob:?}");
}

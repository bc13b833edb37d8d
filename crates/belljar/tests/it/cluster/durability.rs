//! Cells that are answered before the store has them, and the time in which a replica gives up its sessions.

use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{Shared, cell, open, value};
use crate::harness::Belljar;
use crate::serve::http::Listening;
use crate::sessions::durable::{kill, run, runs, send_cell, wait_for};

/// The writes to the record of a new session: its creation and the first commit.
const CREATED: u64 = 2;

impl Shared {
    /// Starts a replica that answers cells at this time.
    fn durable(&self, when: &str) -> Listening {
        self.replica_with("streamable-http-stateless", &["--toolset", "interpreter", "--durability", when])
    }

    fn requests(&self) -> u64 {
        self.server.faults.requests.load(Ordering::Relaxed)
    }

    fn commits(&self) -> u64 {
        self.server.faults.commits.load(Ordering::Relaxed)
    }

    fn blobs(&self) -> u64 {
        self.server.faults.blobs.load(Ordering::Relaxed)
    }

    fn set_unavailable(&self, is_unavailable: bool) {
        self.server.faults.unavailable.store(if is_unavailable { 1000 } else { 0 }, Ordering::Relaxed);
    }
}

fn crash(mut replica: Listening) {
    replica.child.kill().unwrap();
    replica.child.wait().unwrap();
}

#[test]
fn cell_costs_two_writes() {
    let shared = Shared::new();
    let one = shared.durable("store");
    let session = open(&one, "x = 0");
    let mut costs = Vec::new();
    for number in 1..=5 {
        let before = (shared.commits(), shared.blobs());
        assert_eq!(value(&one, &session, "x += 1\nx"), number.to_string());
        costs.push((shared.commits() - before.0, shared.blobs() - before.1));
    }
    // The state, and the record of the session. A write whose answer is late is repeated.
    assert_eq!(costs.iter().min(), Some(&(1, 1)), "{costs:?}");
    assert!(costs.iter().all(|(commits, blobs)| *commits > 0 && *blobs > 0), "{costs:?}");
}

#[test]
fn cell_on_disk_is_answered_without_the_store_and_stored_right_after() {
    let shared = Shared::new();
    let [one, two] = [shared.durable("disk"), shared.durable("disk")];
    let session = open(&one, "x = 1");
    wait_for(|| shared.commits() >= CREATED);
    shared.set_unavailable(true);
    let before = shared.commits();
    assert_eq!(value(&one, &session, "x = 2\nx"), "2");
    // Nor do the next cells wait for the store.
    assert_eq!(value(&one, &session, "x"), "2");
    shared.set_unavailable(false);
    wait_for(|| shared.commits() > before);
    crash(one);
    assert_eq!(value(&two, &session, "x"), "2");
}

#[test]
fn cell_on_disk_that_the_store_does_not_have_is_lost_with_its_replica() {
    let shared = Shared::new();
    let [one, two] = [shared.durable("disk"), shared.durable("disk")];
    let session = open(&one, "x = 1");
    wait_for(|| shared.commits() >= CREATED);
    shared.set_unavailable(true);
    assert_eq!(value(&one, &session, "x = 2\nx"), "2");
    crash(one);
    shared.set_unavailable(false);
    assert_eq!(value(&two, &session, "x"), "1");
}

#[test]
fn cell_in_memory_is_stored_when_its_session_moves() {
    let shared = Shared::new();
    let [one, two, three] = [shared.durable("memory"), shared.durable("memory"), shared.durable("memory")];
    let session = open(&one, "x = [1]");
    assert_eq!(value(&one, &session, "x.append(2)\nx"), "[1, 2]");
    // Replicas whose requests are independent pass them on: the session moves when its replica ends.
    end(one);
    assert_eq!(value(&two, &session, "x.append(3)\nx"), "[1, 2, 3]");
    crash(two);
    // All cells since the move are lost.
    assert_eq!(value(&three, &session, "x"), "[1, 2]");
}

#[test]
fn session_in_memory_that_was_never_stored_is_unknown_after_a_crash() {
    let shared = Shared::new();
    let [one, two] = [shared.durable("memory"), shared.durable("memory")];
    let session = open(&one, "x = 1");
    crash(one);
    let answer = cell(&two, Some(&session), "x");
    assert!(answer["error"].to_string().contains("not found or has expired"), "{answer:#}");
}

/// Ends a replica as a service manager does.
fn end(mut replica: Listening) {
    let status = Command::new("kill").arg(replica.child.id().to_string()).status().unwrap();
    assert!(status.success());
    assert_eq!(replica.child.wait().unwrap().code(), Some(0));
}

#[test]
fn replica_that_cannot_give_up_its_sessions_ends_in_time() {
    /// Less than the time after which a replica without its store would have ended in any case.
    const DRAIN: &str = "1";
    let shared = Shared::new();
    let options = ["--toolset", "interpreter", "--durability", "memory", "--drain", DRAIN];
    let one = shared.replica_with("streamable-http-stateless", &options);
    let sessions = [open(&one, "x = 1"), open(&one, "x = 2")];
    assert_ne!(sessions[0], sessions[1]);
    shared.set_unavailable(true);
    let (begin, requests) = (Instant::now(), shared.requests());
    end(one);
    // A replica that ends because it lacks its store has another status.
    assert!(begin.elapsed() < Duration::from_secs(120), "{:?}", begin.elapsed());
    // It has tried.
    assert!(shared.requests() > requests);
}

#[test]
fn timer_of_a_killed_replica_fires_in_another() {
    let shared = Shared::new();
    let mut one = shared.wire(Belljar::new(), &[]);
    let session = crate::sessions::durable::open(&mut one);
    run(&mut one, &session, "import asyncio\nx = 1");
    let mut two = shared.wire(Belljar::new(), &[]);
    // The first replica is killed long before the timer fires.
    send_cell(&mut one, &session, "await asyncio.sleep(20)\nx += 1");
    wait_for(|| runs(&mut two).len() == 1);
    let listed = runs(&mut two);
    assert_eq!(listed[0]["session_id"], json!(session), "{listed:#?}");
    kill(one);
    // No client asks for the session.
    wait_for(|| runs(&mut two).iter().all(|run| run["status"] == "completed"));
    assert_eq!(run(&mut two, &session, "x")["result"], "2");
}

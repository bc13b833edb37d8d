//! The order in which the calls of several owners run.

use std::thread;

use super::{Shared, assert_success, log, wait_for};

#[test]
fn single_call_waits_for_one_call_of_a_flood() {
    let shared = Shared::start("", &["--max-concurrency", "1"]);
    let blocked = format!("{}{}", wait_for("go"), log("first"));
    thread::scope(|scope| {
        let first = scope.spawn(|| shared.run("token-a", &blocked));
        super::wait_until("it runs", || shared.metric("belljar_running") == 1.0);
        let flood: Vec<_> = (0..40).map(|_| scope.spawn(|| shared.run("token-a", &log("flood")))).collect();
        shared.wait_for_queue(40);
        let single = scope.spawn(|| shared.run("token-b", &log("single")));
        shared.wait_for_queue(41);
        shared.release("go");
        for call in flood.into_iter().chain([first, single]) {
            assert_success(&call.join().unwrap());
        }
    });
    let logged = shared.logged();
    assert_eq!(logged.len(), 42);
    let place = logged.iter().position(|line| line == "single").unwrap();
    assert!(place <= 2, "it is number {place} of {logged:?}");
}

#[test]
fn calls_of_one_session_let_others_run_and_keep_their_order() {
    let shared = Shared::start("", &["--max-concurrency", "1", "--toolset", "all"]);
    let id = shared.open("token-a");
    let blocked = format!("{}{}", wait_for("go"), log("0"));
    thread::scope(|scope| {
        let mut calls = vec![scope.spawn(|| shared.cell("token-a", &id, &blocked))];
        super::wait_until("it runs", || shared.metric("belljar_running") == 1.0);
        for number in 1..20 {
            let (shared, id) = (&shared, &id);
            calls.push(scope.spawn(move || shared.cell("token-a", id, &log(&number.to_string()))));
            super::wait_until("it waits", || shared.metric("belljar_session_queue_length") == f64::from(number));
        }
        calls.push(scope.spawn(|| shared.run("token-b", &log("single"))));
        shared.wait_for_queue(1);
        shared.release("go");
        calls.into_iter().for_each(|call| assert_success(&call.join().unwrap()));
    });
    let mut logged = shared.logged();
    let place = logged.iter().position(|line| line == "single").unwrap();
    assert!(place <= 2, "it is number {place} of {logged:?}");
    logged.remove(place);
    assert_eq!(logged, (0..20).map(|number| number.to_string()).collect::<Vec<_>>());
}

#[test]
fn weights_are_shares_of_the_order() {
    let shared = Shared::start("[owner.bob]\nweight = 3\n", &["--max-concurrency", "1"]);
    let blocked = wait_for("go");
    thread::scope(|scope| {
        let mut calls = vec![scope.spawn(|| shared.run("plain", &blocked))];
        super::wait_until("it runs", || shared.metric("belljar_running") == 1.0);
        for _ in 0..12 {
            calls.push(scope.spawn(|| shared.run("token-a", &log("alice"))));
            calls.push(scope.spawn(|| shared.run("token-b", &log("bob"))));
        }
        shared.wait_for_queue(24);
        shared.release("go");
        calls.into_iter().for_each(|call| assert_success(&call.join().unwrap()));
    });
    let logged = shared.logged();
    let of_bob = logged[..8].iter().filter(|line| *line == "bob").count();
    assert!((5..=7).contains(&of_bob), "{logged:?}");
}

#[test]
fn full_queue_has_room_for_an_owner_without_calls() {
    let shared = Shared::start("", &["--max-concurrency", "1", "--max-queue", "4"]);
    let blocked = wait_for("go");
    // Both are known to the server.
    assert_success(&shared.run("token-b", "1"));
    thread::scope(|scope| {
        let mut calls = vec![scope.spawn(|| shared.run("token-a", &blocked))];
        super::wait_until("it runs", || shared.metric("belljar_running") == 1.0);
        calls.extend((0..4).map(|_| scope.spawn(|| shared.run("token-a", "1"))));
        shared.wait_for_queue(4);
        let refused = shared.run("token-a", "1");
        assert!(refused["content"][0]["text"].as_str().unwrap().contains("the server is busy"), "{refused}");
        calls.push(scope.spawn(|| shared.run("token-b", "1")));
        shared.wait_for_queue(5);
        shared.release("go");
        calls.into_iter().for_each(|call| assert_success(&call.join().unwrap()));
    });
}

#[test]
fn code_that_awaits_does_not_count_as_running() {
    let shared = Shared::start("[default]\nruns = 1\n", &["--max-concurrency", "4"]);
    let waits = format!(
        "import asyncio, os\n{}while not os.path.exists('/shared/go'):\n    await asyncio.sleep(0.05)\n",
        log("waits")
    );
    thread::scope(|scope| {
        let calls: Vec<_> = (0..3).map(|_| scope.spawn(|| shared.run("token-a", &waits))).collect();
        shared.wait_for_log(3);
        assert_success(&shared.run("token-a", "1"));
        shared.release("go");
        calls.into_iter().for_each(|call| assert_success(&call.join().unwrap()));
    });
}

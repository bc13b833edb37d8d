//! The ends of workers: by their code, from outside, and with the server.

use serde_json::{Value, json};

use super::*;

/// Sends a call whose code runs until it is stopped.
fn send_endless(wire: &mut Wire) -> u64 {
    wire.send_call(json!({ "python_code": "while True: pass" }))
}

#[test]
fn killed_worker_is_the_error_of_its_run_alone() {
    let mut wire = start(&[]);
    let server = wire.child.id();
    let other = wire.send_call(json!({ "python_code": "import time\ntime.sleep(3)\n'went on'" }));
    let killed = send_endless(&mut wire);
    busy_worker(server).signal("-KILL");
    let answer = text(&wire.answer(killed)["result"]);
    assert!(answer.contains("crashed its interpreter: its worker failed: the process has ended"), "{answer}");
    assert!(wire.run("1 + 1").contains("2"));
    assert!(text(&wire.answer(other)["result"]).contains("went on"));
}

#[test]
fn worker_that_ends_while_it_is_idle_is_not_used() {
    let mut wire = start(&[]);
    let server = wire.child.id();
    wire.run("1");
    // The one that has run the code, and one that was started ahead of time.
    for worker in wait_for_workers(server, 2) {
        worker.signal("-KILL");
        wait_for("it ends", || (!worker.lives()).then_some(()));
    }
    assert!(wire.run("1 + 1").contains("2"));
}

#[test]
fn killed_template_is_replaced() {
    let mut wire = start(&[]);
    let server = wire.child.id();
    wire.run("1");
    let [template] = templates(server)[..] else { panic!("one template") };
    let former = wait_for_workers(server, 2);
    template.signal("-KILL");
    wait_for("its workers end", || former.iter().all(|worker| !worker.lives()).then_some(()));
    wait_for("it ends", || templates(server).is_empty().then_some(()));
    assert!(wire.run("1 + 1").contains("2"));
    assert!(workers(server).iter().all(|worker| !former.contains(worker)));
}

#[test]
fn worker_that_does_not_return_is_killed() {
    let mut wire = start(&[]);
    let id = wire.send_call(json!({ "python_code": "while True: pass", "timeout": 20 }));
    let worker = busy_worker(wire.child.id());
    // It cannot enforce its own limit.
    worker.signal("-STOP");
    let answer = text(&wire.answer(id)["result"]);
    assert!(answer.contains("Limit reached: time"), "{answer}");
    wait_for("it ends", || (!worker.lives()).then_some(()));
    assert!(wire.run("1 + 1").contains("2"));
}

#[test]
fn cancelled_call_ends_its_worker() {
    let mut wire = start(&[]);
    let id = send_endless(&mut wire);
    let worker = busy_worker(wire.child.id());
    wire.notify("notifications/cancelled", json!({ "requestId": id }));
    wait_for("it ends", || (!worker.lives()).then_some(()));
    assert!(wire.run("1 + 1").contains("2"));
}

#[test]
fn code_that_waits_can_be_cancelled() {
    let mut wire = start(&[]);
    let server = wire.child.id();
    wire.follow_output();
    let id = wire.send_call(json!({ "python_code": "print('begun')\nimport asyncio\nawait asyncio.sleep(600)" }));
    wire.wait_for_output("begun");
    let before = wait_for_workers(server, 2);
    wire.notify("notifications/cancelled", json!({ "requestId": id }));
    wait_for("its worker ends", || before.iter().any(|worker| !worker.lives()).then_some(()));
    assert!(wire.run("1 + 1").contains("2"));
}

#[test]
fn worker_is_replaced_after_its_runs() {
    let mut wire = start(&["--worker-runs", "1"]);
    let server = wire.child.id();
    for _ in 0..3 {
        let [next] = wait_for_workers(server, 1)[..] else { panic!("one worker") };
        assert!(wire.run("1 + 1").contains("2"));
        wait_for("it ends", || (!next.lives()).then_some(()));
    }
}

#[test]
fn workers_end_with_the_server() {
    let mut wire = start(&[]);
    let server = wire.child.id();
    wire.run("1");
    let all: Vec<Process> = templates(server).into_iter().chain(wait_for_workers(server, 2)).collect();
    wire.end_input();
    assert_eq!(wire.next(), None::<Value>);
    wire.wait_for_exit();
    wait_for("all processes end", || all.iter().all(|process| !process.lives()).then_some(()));
}

#[test]
fn workers_end_with_a_server_that_is_killed() {
    let mut wire = start(&[]);
    let server = wire.child.id();
    send_endless(&mut wire);
    busy_worker(server);
    let all: Vec<Process> = templates(server).into_iter().chain(workers(server)).collect();
    wire.child.kill().unwrap();
    wait_for("all processes end", || all.iter().all(|process| !process.lives()).then_some(()));
}

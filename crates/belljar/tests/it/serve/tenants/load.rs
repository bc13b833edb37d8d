//! Load shedding: a directory with the files of a control group tells the server how much memory is in use.

use std::thread;

use super::{Shared, assert_success, log, wait_for, wait_until};

#[test]
fn new_code_is_refused_while_memory_is_scarce_and_running_code_goes_on() {
    let group = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(group.path().join(name), text).unwrap();
    write("memory.max", "1000\n");
    write("memory.current", "100\n");
    let path = group.path().to_str().unwrap();
    let shared = Shared::start("", &["--toolset", "all", "--shed-group", path]);
    let id = shared.open("token-a");
    assert_eq!(shared.metric("belljar_sessions{state=\"awake\"}"), 1.0);
    // Idle sessions sleep first.
    write("memory.current", "920\n");
    wait_until("it sleeps", || shared.metric("belljar_sessions{state=\"asleep\"}") == 1.0);
    assert_success(&shared.run("token-a", "1"));

    let blocked = format!("{}{}", log("began"), wait_for("go"));
    thread::scope(|scope| {
        let first = scope.spawn(|| shared.run("token-a", &blocked));
        shared.wait_for_log(1);
        write("memory.current", "960\n");
        let status = |answer: &serde_json::Value| answer["structuredContent"]["refusal"]["status"].clone();
        wait_until("code is refused", || status(&shared.run("token-b", "1")) == "overloaded");
        let refused = shared.cell("token-a", &id, "x");
        assert_eq!(status(&refused), "overloaded", "{refused}");
        assert_eq!(refused["structuredContent"]["refusal"]["retry_after"], 5, "{refused}");
        shared.release("go");
        assert_success(&first.join().unwrap());
    });
    write("memory.current", "100\n");
    wait_until("code is run", || shared.cell("token-a", &id, "x")["structuredContent"]["success"] == true);

    write(
        "memory.pressure",
        "some avg10=60.00 avg60=1.00 avg300=0.00 total=1\nfull avg10=30.00 avg60=0 avg300=0 total=1\n",
    );
    wait_until("code is refused", || {
        let answer = shared.run("token-b", "1");
        answer.to_string().contains("all tasks waited for it in 30 % of the last 10 s")
    });
    assert!(shared.metric("belljar_refusals_total{reason=\"overloaded\"}") >= 3.0);
}

//! Cells that wait, and go on in another replica.

use super::Shared;
use crate::harness::Belljar;
use crate::sessions::durable::{fields, kill, open, question, reply, run, runs, send_cell, wait_for};
use crate::tool_client::tool_server;
use crate::wire::Wire;

use serde_json::json;

#[test]
fn approval_is_given_to_another_replica() {
    let shared = Shared::new();
    let folder = tempfile::tempdir().unwrap();
    let calls = folder.path().join("calls.txt");
    let tools = format!("{} '{}'", tool_server("t", "recording"), calls.display());
    let mut one = shared.wire(Belljar::new(), &[&tools]);
    let session = open(&mut one);
    run(&mut one, &session, "from tools import t\nx = 1");
    send_cell(&mut one, &session, "print('before')\nawait t.append(text='a')\nx += 1\nx");
    question(&mut one);

    let mut two = shared.wire(Belljar::new(), &[&tools]);
    wait_for(|| runs(&mut two).len() == 1);
    let [listed] = &runs(&mut two)[..] else { panic!("not one run") };
    assert_eq!(listed["session_id"], session.as_str(), "{listed:#}");
    assert!(listed["pending"][0]["message"].as_str().unwrap().contains("append"), "{listed:#}");
    kill(one);
    // The call waits until the lease has run out.
    let resumed = json!({ "name": "resume_run", "arguments": { "run_id": listed["run_id"] } });
    let resumed = two.send("tools/call", resumed);
    let asked = question(&mut two);
    assert!(!calls.exists() || std::fs::read_to_string(&calls).unwrap().is_empty());
    reply(&mut two, &asked, "yes");
    let answer = fields(&two.answer(resumed)["result"]);
    assert_eq!((&answer["result"], &answer["output"][0]), (&json!("2"), &json!("before\n")), "{answer:#}");
    assert_eq!(std::fs::read_to_string(&calls).unwrap(), "append a\n");
    assert_eq!(run(&mut two, &session, "x")["result"], "2");
}

#[test]
fn forked_session_is_in_the_store() {
    let shared = Shared::new();
    let mut one = shared.wire(Belljar::new(), &[]);
    let session = open(&mut one);
    run(&mut one, &session, "x = [1]");
    let forked = fields(&one.tool("fork_session", json!({ "session_id": session })));
    let forked = forked["session_id"].as_str().unwrap().to_owned();
    run(&mut one, &session, "x.append(2)");
    kill(one);
    let mut two = shared.wire(Belljar::new(), &[]);
    assert_eq!(run(&mut two, &forked, "x")["result"], "[1]");
    assert_eq!(run(&mut two, &session, "x")["result"], "[1, 2]");
}

#[test]
fn sessions_of_a_store_are_listed_exported_imported_and_deleted() {
    let shared = Shared::new();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("session.belljar");
    let command = |arguments: &[&str]| shared.with_store(Belljar::new().arg("sessions").args(arguments.iter())).run();
    let mut wire = shared.wire(Belljar::new(), &[]);
    let session = open(&mut wire);
    run(&mut wire, &session, "x = [1]");
    let in_use = command(&["export", &session, "--notebook"]);
    assert!(in_use.stderr.contains("another server is using the session"), "{in_use:?}");
    end(wire);
    let listed = command(&["list"]);
    assert!(listed.stdout.lines().count() == 1 && listed.stdout.contains("asleep"), "{listed:?}");
    // IDs give access to sessions: the list has digests.
    assert!(!listed.stdout.contains(&session), "{listed:?}");
    assert!(command(&["export", &session, "--notebook"]).stdout.contains("x = [1]"));
    assert_eq!(command(&["export", &session, "-o", file.to_str().unwrap()]).status, Some(0));
    assert_eq!(command(&["rm", &session]).status, Some(0));
    let missing = command(&["rm", &session]);
    assert!(missing.stderr.contains("does not exist in s3://bucket/tests"), "{missing:?}");
    let imported = command(&["import", file.to_str().unwrap()]);
    assert_eq!(imported.status, Some(0), "{imported:?}");
    // The commands have left the cluster.
    assert_eq!(shared.server.names("/nodes/"), [""; 0]);
    let mut wire = shared.wire(Belljar::new(), &[]);
    assert_eq!(run(&mut wire, imported.stdout.trim(), "x")["result"], "[1]");
}

fn end(mut wire: Wire) {
    wire.end_input();
    while wire.next().is_some() {}
    assert!(wire.child.wait().unwrap().success());
}

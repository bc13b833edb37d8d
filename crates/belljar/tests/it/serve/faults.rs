//! Clients that do wrong, and servers that are killed.

use serde_json::json;

use super::wire::Wire;

#[test]
fn what_is_no_message_is_answered_and_the_next_message_is_heard() {
    let mut wire = Wire::start(["--no-install"]);
    for line in [&b"{\"jsonrpc\": \"2.0\", \"id\": 1, \"meth\n"[..], b"\xff\xfe not UTF-8\n", b"[]\n", b"\n", b"42\n"] {
        wire.write(line);
    }
    assert!(wire.run("'alive'").contains("alive"));
}

#[test]
fn a_message_of_a_hundred_megabytes_is_refused_and_forgotten() {
    let mut wire = Wire::start(["--no-install"]);
    let before = resident_kilobytes(wire.child.id());
    let piece = vec![b'x'; 1 << 20];
    wire.write(b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/call\",\"params\":{\"name\":\"");
    for _ in 0..100 {
        wire.write(&piece);
    }
    wire.write(b"\"}}\n");
    assert!(wire.run("'alive'").contains("alive"));
    let after = resident_kilobytes(wire.child.id());
    assert!(after < before + 60_000, "{before} kB before, {after} kB after");
}

#[test]
fn a_killed_server_leaves_the_cache_whole() {
    let mut wire = Wire::start(["--no-install"]);
    wire.send_call(json!({ "python_code": "while True: pass" }));
    wire.child.kill().unwrap();
    wire.child.wait().unwrap();
    assert!(Wire::start(["--no-install"]).run("6 * 7").contains("42"));
}

fn resident_kilobytes(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

//! Limits of a session: reported, and survived with the session's files.

use serde_json::json;

use super::{Session, fields, serve};

/// Asserts that the session lost its variables, kept its files, and works.
fn lost(session: &mut Session, error: &str) {
    assert!(error.contains("variables are lost; its files are kept"), "{error}");
    let answer = session.run("(open('kept.txt').read(), 'x' in globals())");
    assert_eq!(answer["result"], "('kept', False)", "{answer:#}");
    assert_eq!(session.value("import json; json.dumps([1])"), "'[1]'");
}

fn with_state(options: &[&str]) -> Session {
    let mut session = Session::start(options.iter().copied());
    session.run("x = 1\nopen('kept.txt', 'w').write('kept')");
    session
}

#[test]
fn endless_loop_is_interrupted_and_variables_stay() {
    let mut session = with_state(&[]);
    let arguments = json!({ "code": "y = 2\nwhile True: pass", "session_id": session.id, "timeout": 3 });
    let answer = fields(&session.wire.tool("execute_code", arguments));
    assert_eq!(answer["error"], "TimeoutError: the cell ran longer than 3 s and was interrupted", "{answer:#}");
    assert_eq!(session.value("x + y"), "3");
}

#[test]
fn uninterruptible_loop_restarts_the_interpreter() {
    let mut session = with_state(&["--timeout", "5"]);
    let error = session.error("while True:\n    try:\n        while True: pass\n    except BaseException: pass");
    assert!(error.starts_with("TimeLimit: "), "{error}");
    lost(&mut session, &error);
}

#[test]
fn session_continues_after_its_memory_limit() {
    let mut session = with_state(&["--session-memory", "128MB"]);
    let error = session.error("hoard = []\nwhile True: hoard.append(bytearray(1 << 20))");
    assert!(error.starts_with("MemoryError"), "{error}");
    session.run("del hoard");
    assert_eq!(session.value("x"), "1");
}

#[test]
fn crash_is_reported_and_files_are_kept() {
    let mut session = with_state(&[]);
    for code in ["import os; os.abort()", "import ctypes; ctypes.string_at(0xfffffff0, 100)", "import os; os._exit(3)"]
    {
        let error = session.error(code);
        lost(&mut session, &error);
        session.run("x = 1");
    }
}

/// The server parses the guest's answer; a parsed value takes more memory than its text.
#[test]
fn huge_answer_ends_the_session_but_not_the_server() {
    let mut session = with_state(&[]);
    session.run(
        "import sys\ndef flood(request):\n    return '{\"kind\":\"cell\",\"count\":1,\"error\":null,\"traceback\":[' \
         + '\"\",' * 30_000_000 + '\"\"]}'\nsys.modules['_belljar']._answer.__code__ = flood.__code__",
    );
    let error = session.error("1");
    assert!(error.contains("the interpreter returned JSON of an unexpected shape"), "{error}");
    lost(&mut session, &error);
}

#[test]
fn output_limit_ends_only_the_cell() {
    let mut session = with_state(&[]);
    let error = session.error("while True: print('x' * 100_000)");
    assert!(error.starts_with("OutputLimit: "), "{error}");
    lost(&mut session, &error);
}

#[test]
fn disk_quota_stops_a_flood_of_files() {
    let mut session = with_state(&["--session-disk", "4MB"]);
    let error = session.error(
        "for n in range(1000): 
    with open(f'flood{n:04}', 'wb') as file: file.write(bytes(100_000))",
    );
    assert!(error.starts_with("OSError: [Errno "), "{error}");
    let answer = session.run("import glob, os\nfor path in glob.glob('flood*'): os.remove(path)\nx");
    assert_eq!(answer["result"], "1", "{answer:#}");
    let upload = session.tool("upload_file", json!({ "name": "large", "content": "x".repeat(5 << 20) }));
    assert!(upload["error"].as_str().unwrap().contains("does not fit into the session's space"), "{upload:#}");
    let many = session.run("for n in range(5000): open(f'n{n}', 'w').close()");
    assert_eq!(many["files"].as_array().unwrap().len(), 200);
    assert!(many["output"].to_string().contains("4800 more files"), "{}", many["output"]);
}

#[test]
fn more_sessions_than_allowed_are_refused() {
    let mut wire = serve(["--max-sessions", "2"]);
    let ids = [super::open(&mut wire), super::open(&mut wire)];
    let refused = fields(&wire.tool("execute_code", json!({ "code": "1" })));
    assert!(refused["error"].as_str().unwrap().starts_with("TooManySessionsError: 2 sessions are open"), "{refused:#}");
    wire.tool("clear_session", json!({ "session_id": ids[0] }));
    super::open(&mut wire);
}

#[test]
fn too_little_memory_for_a_session_is_reported() {
    let mut wire = serve(["--session-memory", "8MB"]);
    let refused = fields(&wire.tool("execute_code", json!({ "code": "1" })));
    assert!(refused["error"].as_str().unwrap().contains("a session needs at least"), "{refused:#}");
}

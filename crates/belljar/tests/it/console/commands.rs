//! `belljar admin`.

use belljar_testing::free_port;

use crate::harness::{Belljar, Run};
use crate::operator::{Operator, TOKEN};
use crate::tool_client::tool_server;

fn admin(operator: &Operator, arguments: &[&str]) -> Run {
    let url = format!("http://{}", operator.backend.address);
    Belljar::without_cache()
        .env("BELLJAR_ADMIN_TOKEN", TOKEN)
        .args(["admin", "--url", &url])
        .args(arguments.iter().copied())
        .run()
}

fn output(operator: &Operator, arguments: &[&str]) -> String {
    let run = admin(operator, arguments);
    assert_eq!(run.status, Some(0), "{arguments:?}: {}", run.stderr);
    run.stdout
}

#[test]
fn sessions_are_listed_used_and_ended() {
    let operator = Operator::start(&[]);
    let run = admin(&operator, &["run", "new", "x = 41\nprint('\\x1b]0;title\\x07begun')"]);
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), "]0;titlebegun\n"), "{run:?}");
    let session = run.stderr.trim().strip_prefix("session ").unwrap().to_owned();
    assert_eq!(output(&operator, &["run", &session, "x + 1"]), "42\n");
    let failed = admin(&operator, &["run", &session, "1 / 0"]);
    assert!(failed.status == Some(1) && failed.stdout.contains("ZeroDivisionError"), "{failed:?}");
    operator.wait_for_state(&session, "idle");
    let listed = output(&operator, &["sessions", "--state", "idle"]);
    assert!(listed.starts_with(&format!("{session}  idle")) && listed.contains("3 cells"), "{listed}");
    assert_eq!(output(&operator, &["sessions", "nothing_like_this"]), "");
    let shown = output(&operator, &["show", &session, "--cells", "2"]);
    assert!(shown.contains("[2] ok") && shown.contains("42") && !shown.contains("[1]"), "{shown}");
    let json: serde_json::Value = serde_json::from_str(&output(&operator, &["--json", "show", &session])).unwrap();
    assert_eq!(json["cells"].as_array().unwrap().len(), 3);
    let fork = output(&operator, &["fork", &session]);
    assert_eq!(output(&operator, &["run", fork.trim(), "x"]), "41\n");
    operator.wait_for_state(&session, "idle");
    assert_eq!(output(&operator, &["interrupt", &session]), "nothing to do\n");
    assert_eq!(output(&operator, &["restart", &session]), "restarted\n");
    assert_eq!(output(&operator, &["sleep", &session]), "asleep\n");
    assert_eq!(output(&operator, &["end", &session]), "ended\n");
    let ended = admin(&operator, &["run", &session, "1"]);
    assert!(ended.status == Some(2) && ended.stderr.contains("has ended"), "{ended:?}");
}

#[test]
fn calls_are_approved_and_denied_by_commands() {
    let server = tool_server("t", "plain");
    let operator = Operator::start(&[&server]);
    let code = "from tools import t\nawait t.note(text='hello')";
    for command in ["approve", "deny"] {
        let asked = admin(&operator, &["run", "new", code]);
        assert!(asked.status == Some(1) && asked.stderr.contains("the tool note"), "{asked:?}");
        let session = asked.stderr.lines().next().unwrap().strip_prefix("session ").unwrap().to_owned();
        let answered = output(&operator, &[command, &session]);
        assert!(answered.contains("note"), "{answered}");
        let cell = operator.wait_for_cell(&session, 1, |cell| !cell["ended"].is_null());
        assert_eq!(cell["state"], if command == "approve" { "ok" } else { "error" }, "{cell}");
        let again = admin(&operator, &[command, &session]);
        assert!(again.status == Some(2) && again.stderr.contains("asks no such question"), "{again:?}");
    }
}

#[test]
fn files_and_variables_are_listed_and_files_downloaded() {
    let operator = Operator::start(&[]);
    let session = operator.create();
    let code = "import os\nos.mkdir('d')\n_ = open('d/a b.bin', 'wb').write(bytes(range(256)) * 40_000)\n\
                _ = open('note.txt', 'w').write('noted')\nrows = [1, 2]\nname = 'x\\x1b[31m'";
    operator.run(&session, code);
    let files = output(&operator, &["files", &session]);
    assert_eq!(files, "    10240000  d/a b.bin\n           5  note.txt\n");
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("saved.bin");
    let download = ["download", &session, "d/a b.bin", "--output", saved.to_str().unwrap()];
    assert_eq!(output(&operator, &download), "");
    let expected: Vec<u8> = (0..=u8::MAX).cycle().take(10_240_000).collect();
    assert!(std::fs::read(&saved).unwrap() == expected, "the file differs");
    assert_eq!(output(&operator, &["download", &session, "note.txt"]), "noted");
    let missing = admin(&operator, &["download", &session, "missing.txt"]);
    assert!(missing.status == Some(2) && missing.stderr.contains("404"), "{missing:?}");
    let variables = output(&operator, &["variables", &session]);
    let rows: Vec<&str> = variables.lines().collect();
    assert!(rows.contains(&"rows  list  [1, 2]") && !variables.contains('\x1b'), "{variables}");
    let json = output(&operator, &["variables", "--json", &session]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["variables"].as_array().unwrap().len(), 2, "{json}");
    output(&operator, &["sleep", &session]);
    let asleep = admin(&operator, &["variables", &session]);
    assert!(asleep.status == Some(2) && asleep.stderr.contains("sleeps"), "{asleep:?}");
}

#[test]
fn open_questions_are_listed() {
    let operator = Operator::start(&[]);
    assert_eq!(output(&operator, &["questions"]), "");
    let session = operator.create();
    let number = operator.submit(&session, "name = input('Who\\nis it? ')");
    operator.wait_for_cell(&session, number, |cell| cell["questions"].as_array().is_some_and(|all| !all.is_empty()));
    assert_eq!(output(&operator, &["questions"]), format!("{session}  cell 1  input  Who is it? \n"));
    assert_eq!(output(&operator, &["answer", &session, "Ada"]), "answered: Who\n");
    assert_eq!(output(&operator, &["questions"]), "");
}

#[test]
fn errors_have_hints() {
    let operator = Operator::start(&[]);
    let url = format!("http://{}", operator.backend.address);
    let run = |token: Option<&str>, arguments: &[&str]| {
        let belljar = Belljar::without_cache().args(["admin", "--url", &url]).args(arguments.iter().copied());
        let run = match token {
            Some(token) => belljar.env("BELLJAR_ADMIN_TOKEN", token).run(),
            None => belljar.run(),
        };
        assert_eq!(run.status, Some(2), "{arguments:?}: {run:?}");
        run.stderr
    };
    assert!(run(None, &["sessions"]).contains("BELLJAR_ADMIN_TOKEN"));
    assert!(run(Some("two words"), &["sessions"]).contains("BELLJAR_ADMIN_TOKEN"));
    assert!(run(Some("wrong"), &["sessions"]).contains("--admin-token-file"));
    assert!(run(Some(TOKEN), &["show", "W-zFjI5p-ns1Qiu9"]).contains("a secret"));
    let unknown = run(Some(TOKEN), &["show", "0123456789abcdef"]);
    assert!(unknown.contains("404") && unknown.contains("hint: `belljar admin sessions`"), "{unknown}");
    assert!(run(Some(TOKEN), &["sessions", "--state", "other"]).contains("the states are running, waiting, "));
    let nowhere = format!("http://127.0.0.1:{}", free_port());
    let refused = Belljar::without_cache().args(["admin", "--url", &nowhere, "sessions"]);
    let refused = refused.env("BELLJAR_ADMIN_TOKEN", TOKEN).run();
    let error = format!("belljar: failed to request {nowhere}/admin/api/v1/sessions: Connection refused");
    assert!(refused.stderr.starts_with(&error) && refused.stderr.contains("hint: start the server"), "{refused:?}");
    let file = operator.token_file.path().to_str().unwrap();
    let listed = Belljar::without_cache().args(["admin", "--url", &url, "sessions", "--token-file", file]).run();
    assert_eq!(listed.status, Some(0), "{listed:?}");
}

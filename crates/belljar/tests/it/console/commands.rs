//! `belljar admin`.

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
    let listed = output(&operator, &["sessions", "--state", "idle"]);
    assert!(listed.starts_with(&format!("{session}  idle")) && listed.contains("3 cells"), "{listed}");
    assert_eq!(output(&operator, &["sessions", "nothing_like_this"]), "");
    let shown = output(&operator, &["show", &session, "--cells", "2"]);
    assert!(shown.contains("[2] ok") && shown.contains("42") && !shown.contains("[1]"), "{shown}");
    let json: serde_json::Value = serde_json::from_str(&output(&operator, &["--json", "show", &session])).unwrap();
    assert_eq!(json["cells"].as_array().unwrap().len(), 3);
    let fork = output(&operator, &["fork", &session]);
    assert_eq!(output(&operator, &["run", fork.trim(), "x"]), "41\n");
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
    assert!(run(Some(TOKEN), &["show", "0123456789abcdef"]).contains("404"));
    let file = operator.token_file.path().to_str().unwrap();
    let listed = Belljar::without_cache().args(["admin", "--url", &url, "sessions", "--token-file", file]).run();
    assert_eq!(listed.status, Some(0), "{listed:?}");
}

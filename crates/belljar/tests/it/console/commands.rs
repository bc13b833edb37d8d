//! `belljar admin`.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, ErrorKind};
use std::net::{TcpListener, TcpStream};

use belljar_testing::free_port;
use serde_json::{Value, json};

use super::questions::is_asking;
use crate::certificates;
use crate::harness::{Belljar, Run};
use crate::operator::{Operator, TOKEN};
use crate::serve::tls::Certificate;
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
    let json: Value = serde_json::from_str(&output(&operator, &["--json", "show", &session])).unwrap();
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
fn named_question_is_answered_and_no_other() {
    let server = tool_server("t", "plain");
    let operator = Operator::start(&[&server]);
    let session = operator.create();
    let code = "import asyncio\nfrom tools import t\n\
                await asyncio.gather(t.note(text='first'), t.note(text='second'), return_exceptions=True)";
    let cell = operator.submit(&session, code);
    operator.wait_for_cell(&session, cell, is_asking);
    let listed = output(&operator, &["questions"]);
    assert!(listed.starts_with(&format!("{session}  1.1  approval  ")), "{listed}");
    let approved = output(&operator, &["approve", &session, "--question", "1.1"]);
    assert!(approved.starts_with("approved 1.1: The code calls the tool note"), "{approved}");
    // The next question of the cell is not the one that the operator has named.
    operator.wait_for_cell(&session, cell, |cell| cell["questions"][0]["number"] == 2);
    for command in ["approve", "deny"] {
        let late = admin(&operator, &[command, &session, "--question", "1.1"]);
        assert!(late.status == Some(2) && late.stderr.contains("asks no such question: 1.1\n"), "{late:?}");
    }
    let shown = output(&operator, &["show", &session]);
    assert!(shown.contains("asks 1.2: The code calls"), "{shown}");
    assert!(output(&operator, &["deny", &session, "--question", "1.2"]).starts_with("denied 1.2: "));
    let cell = operator.wait_for_cell(&session, cell, |cell| !cell["ended"].is_null());
    // Calls that are gathered ask in any order.
    let (_, arguments) = approved.split_once("Arguments: ").unwrap();
    let (arguments, _) = arguments.split_once("Line: ").unwrap();
    let of_approved = if arguments.contains("second") { "second" } else { "first" };
    for call in cell["calls"].as_array().unwrap() {
        let is_approved = call["arguments"].as_str().unwrap().contains(of_approved);
        assert_eq!(call["status"], if is_approved { "ok" } else { "denied" }, "{cell:#}");
    }
    assert_eq!(cell["calls"].as_array().unwrap().len(), 2);
}

#[cfg(unix)]
#[test]
fn question_without_a_name_is_confirmed_on_a_terminal() {
    let server = tool_server("t", "plain");
    let operator = Operator::start(&[&server]);
    let session = operator.create();
    let cell = operator.submit(&session, "from tools import t\nawait t.note(text='hello')");
    operator.wait_for_cell(&session, cell, is_asking);
    let url = format!("http://{}", operator.backend.address);
    for (answer, outcome) in
        [("", "question 1.1 stays open"), ("n", "question 1.1 stays open"), ("y", "approved 1.1: ")]
    {
        let belljar = Belljar::without_cache().env("BELLJAR_ADMIN_TOKEN", TOKEN);
        let command = belljar.args(["admin", "--url", &url, "approve", &session, "--for", "run"]).into_command();
        let mut terminal = rexpect::session::spawn_command(command, Some(180_000)).unwrap();
        terminal.exp_string("Arguments: ").unwrap();
        terminal.exp_string("approve all calls of the tool in this run (question 1.1)? [y/N] ").unwrap();
        terminal.send_line(answer).unwrap();
        terminal.exp_string(outcome).unwrap();
        terminal.exp_eof().unwrap();
    }
    let cell = operator.wait_for_cell(&session, cell, |cell| !cell["ended"].is_null());
    assert_eq!(cell["state"], "ok", "{cell:#}");
}

#[test]
fn sessions_are_listed_over_pages_and_sorted() {
    let operator = Operator::start(&["--max-sessions", "1100"]);
    let sessions: BTreeSet<String> = (0..1010).map(|_| operator.create()).collect();
    let list = |options: &[&str]| {
        let run = admin(&operator, &[&["sessions"][..], options].concat());
        assert_eq!(run.status, Some(0), "{options:?}: {run:?}");
        let handles: Vec<String> = run.stdout.lines().map(|line| line[..16].to_owned()).collect();
        (handles, run.stderr)
    };
    // The server's pages have at most 1,000 sessions.
    let (all, counts) = list(&["--limit", "2000"]);
    assert_eq!((all.len(), counts.as_str()), (1010, "1010 of 1010 sessions\n"));
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>(), sessions);
    assert_eq!(list(&[]).1, "100 of 1010 sessions; --limit lists more\n");
    let json: Value = serde_json::from_str(&output(&operator, &["sessions", "--json", "--limit", "1005"])).unwrap();
    assert_eq!((json["sessions"].as_array().unwrap().len(), &json["matching"]), (1005, &json!(1010)));

    let used = sessions.first().unwrap();
    operator.run(used, "1");
    operator.run(used, "2");
    let newest = operator.create();
    operator.run(&newest, "1");
    for (order, first) in [("cells", used), ("created", &newest), ("last-used", &newest)] {
        assert_eq!(list(&["--sort", order, "--limit", "1"]).0, [first.as_str()], "{order}");
    }
    assert_eq!(list(&["--asking"]).1, "0 of 0 sessions\n");
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
    let json: Value = serde_json::from_str(&json).unwrap();
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
    assert_eq!(output(&operator, &["questions"]), format!("{session}  1.1  input  Who is it?\n"));
    assert_eq!(output(&operator, &["answer", &session, "Ada"]), "answered 1.1: Who is it?\n");
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
    let states = "[possible values: running, waiting, idle, asleep, away, ended]";
    assert!(run(Some(TOKEN), &["sessions", "--state", "idle,other"]).contains(states));
    let unnamed = run(Some(TOKEN), &["approve", "0123456789abcdef", "--question", "first"]);
    assert!(unnamed.contains("such as 3.1"), "{unnamed}");
    let address = Belljar::without_cache().args(["admin", "--url", &operator.backend.address, "sessions"]);
    let address = address.env("BELLJAR_ADMIN_TOKEN", TOKEN).run();
    assert!(address.status == Some(2) && address.stderr.contains("http:// or https://"), "{address:?}");
    let nowhere = format!("http://127.0.0.1:{}", free_port());
    let refused = Belljar::without_cache().args(["admin", "--url", &nowhere, "sessions"]);
    let refused = refused.env("BELLJAR_ADMIN_TOKEN", TOKEN).run();
    let error = format!("belljar: failed to request {nowhere}/admin/api/v1/sessions: Connection refused");
    assert!(refused.stderr.starts_with(&error) && refused.stderr.contains("hint: start the server"), "{refused:?}");
    let file = operator.token_file.path().to_str().unwrap();
    let listed = Belljar::without_cache().args(["admin", "--url", &url, "sessions", "--token-file", file]).run();
    assert_eq!(listed.status, Some(0), "{listed:?}");
}

/// Returns the run of `belljar admin sessions` with an environment that names this proxy for all addresses.
fn sessions_with_proxy(url: &str, proxy: &TcpListener) -> Run {
    let address = format!("http://{}", proxy.local_addr().unwrap());
    let mut belljar = Belljar::without_cache().args(["admin", "--url", url, "sessions"]);
    for name in ["ALL_PROXY", "all_proxy", "HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"] {
        belljar = belljar.env(name, &address);
    }
    belljar.env("NO_PROXY", "").env("no_proxy", "").env("BELLJAR_ADMIN_TOKEN", TOKEN).run()
}

#[test]
fn requests_without_tls_and_to_this_machine_avoid_the_proxy() {
    let operator = Operator::start(&[]);
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = operator.backend.address.rsplit(':').next().unwrap();
    for host in ["127.0.0.1", "localhost"] {
        let run = sessions_with_proxy(&format!("http://{host}:{port}"), &proxy);
        assert_eq!((run.status, run.stderr.as_str()), (Some(0), "0 of 0 sessions\n"), "{host}");
    }
    // This address reaches the server, too, but is not a loopback address. The server does not know it as its own.
    let refused = sessions_with_proxy(&format!("http://0.0.0.0:{port}"), &proxy);
    assert!(refused.status == Some(2) && refused.stderr.starts_with("belljar: 403: the Host header"), "{refused:?}");
    let local = sessions_with_proxy(&format!("https://127.0.0.1:{}", free_port()), &proxy);
    assert!(local.status == Some(2) && local.stderr.contains("Connection refused"), "{local:?}");
    proxy.set_nonblocking(true).unwrap();
    assert_eq!(proxy.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "the proxy received a request");
}

#[test]
fn proxy_of_an_encrypted_request_does_not_receive_the_token() {
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = proxy.local_addr().unwrap();
    let head = std::thread::scope(|scope| {
        let head = scope.spawn(|| {
            let (stream, _) = proxy.accept().unwrap();
            let lines = BufReader::new(stream).lines().map(Result::unwrap);
            lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
        });
        let run = sessions_with_proxy("https://belljar.example.org", &proxy);
        // Ends the wait of a proxy that has received nothing.
        drop(TcpStream::connect(address));
        assert_eq!(run.status, Some(2), "{run:?}");
        head.join().unwrap()
    });
    assert!(head.starts_with("CONNECT belljar.example.org:443 HTTP/1.1") && !head.contains(TOKEN), "{head}");
}

#[test]
fn certificate_of_a_private_authority_is_accepted_if_the_authority_is_named() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    certificates::write(folder.path()).unwrap();
    certificates::write(other.path()).unwrap();
    std::fs::write(other.path().join("empty.pem"), "nothing\n").unwrap();
    let certificate = folder.path().join("good.pem").to_str().unwrap().to_owned();
    let operator = Operator::start(&["--tls-cert", &certificate, "--tls-key", &certificate]);
    let sessions = |operator: &Operator, ca: Option<&str>| {
        let url = format!("https://{}", operator.backend.address);
        let belljar = Belljar::without_cache().args(["admin", "--url", &url, "sessions"]);
        let options = ca.map_or(Vec::new(), |ca| vec!["--ca".to_owned(), ca.to_owned()]);
        belljar.args(options).env("BELLJAR_ADMIN_TOKEN", TOKEN).run()
    };
    let path = |folder: &tempfile::TempDir, name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let trusted = sessions(&operator, Some(&path(&folder, "ca.crt")));
    assert_eq!((trusted.status, trusted.stderr.as_str()), (Some(0), "0 of 0 sessions\n"));
    for wrong in [None, Some(path(&other, "ca.crt"))] {
        let run = sessions(&operator, wrong.as_deref());
        assert!(run.status == Some(2) && run.stderr.contains("\nhint: --ca names a file"), "{wrong:?}: {run:?}");
    }
    let own = Certificate::new();
    let signed_itself = Operator::start(&["--tls-cert", &own.path("cert.pem"), "--tls-key", &own.path("key.pem")]);
    let listed = sessions(&signed_itself, Some(&own.path("cert.pem")));
    assert_eq!(listed.status, Some(0), "{listed:?}");
    for (name, wanted) in [("empty.pem", "does not contain a certificate"), ("missing.pem", "--ca: failed to read")] {
        let run = sessions(&operator, Some(&path(&other, name)));
        assert!(run.status == Some(2) && run.stderr.contains(wanted), "{name}: {run:?}");
    }
}

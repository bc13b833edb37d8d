//! A session's files: reported after cells, uploaded, read as resources, and hidden from other clients.

use serde_json::{Value, json};

use super::{Session, fields, joined, open, run, serve};
use crate::wire::Wire;

fn read(wire: &mut Wire, uri: &str) -> Value {
    wire.ask("resources/read", json!({ "uri": uri }))
}

#[test]
fn new_and_changed_files_are_reported_and_others_are_not() {
    let mut session = Session::start([]);
    let id = session.id.clone();
    let answer = session.run("open('a.txt', 'w').write('hi')");
    let file = json!({ "uri": format!("kernel://{id}/a.txt"), "mime_type": "text/plain", "name": "a.txt", "size": 2 });
    assert_eq!((&answer["files"], &answer["result"]), (&json!([file]), &json!("2")));
    assert_eq!(answer["output"], json!(["📊 File created: a.txt (text/plain, 2 bytes)"]));
    let answer = session.run(
        "import os; os.makedirs('deep/er')\nopen('deep/er/b c.csv', 'w').write('1,2')\nopen('.hidden', 'w').close()",
    );
    let names: Vec<&str> =
        answer["files"].as_array().unwrap().iter().map(|file| file["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["deep/er/b c.csv"]);
    assert_eq!(answer["files"][0]["uri"], format!("kernel://{id}/deep/er/b%20c.csv"));
    assert_eq!(session.run("1")["files"], json!([]));
    let answer = session.run("open('a.txt', 'a').write(' there')");
    assert!(joined(&answer["output"]).contains("File changed: a.txt (text/plain, 8 bytes)"), "{answer:#}");
    let listed = session.tool("list_session_files", json!({}));
    assert_eq!(listed["session_id"], id);
    assert_eq!(listed["files"].as_array().unwrap().len(), 2, "{listed:#}");
}

#[test]
fn mnt_data_is_the_working_directory() {
    let mut session = Session::start([]);
    let answer = session.run("open('/mnt/data/report.csv', 'w').write('a,b')\nopen('report.csv').read()");
    assert_eq!((&answer["result"], &answer["files"][0]["name"]), (&json!("'a,b'"), &json!("report.csv")), "{answer}");
    let fork = session.tool("fork_session", json!({}))["session_id"].as_str().unwrap().to_owned();
    let answer =
        run(&mut session.wire, &fork, "open('/mnt/data/fork.csv', 'w').close()\nsorted(__import__('os').listdir())");
    assert_eq!(answer["result"], "['fork.csv', 'report.csv']", "{answer}");
    session.tool("restart_session", json!({}));
    assert_eq!(session.value("__import__('os').listdir('/mnt/data')"), "['report.csv']");
}

#[test]
fn files_are_linked_in_the_content() {
    let mut session = Session::start([]);
    let arguments = json!({ "code": "open('a.json', 'w').write('{}')", "session_id": session.id });
    let result = session.wire.tool("execute_code", arguments);
    let link = &result["content"][1];
    assert_eq!((&link["type"], &link["mimeType"]), (&json!("resource_link"), &json!("application/json")), "{result:#}");
}

#[test]
fn resources_are_text_or_base64_and_long_ones_are_read_in_parts() {
    let mut session = Session::start([]);
    session.run("open('a.txt', 'w').write('hi')\nopen('b.bin', 'wb').write(bytes([0, 255]))\nopen('c.bin', 'wb').write(bytes(range(256)) * 40000)");
    let uri = |name: &str| format!("kernel://{}/{name}", session.id);
    let (text, binary, long) = (uri("a.txt"), uri("b.bin"), uri("c.bin"));
    let wire = &mut session.wire;
    let wanted = json!({ "contents": [{ "uri": text, "mimeType": "text/plain", "text": "hi" }] });
    assert_eq!(read(wire, &text)["result"], wanted);
    assert_eq!(read(wire, &binary)["result"]["contents"][0]["blob"], "AP8=");
    let refused = read(wire, &long);
    assert!(refused["error"]["message"].as_str().unwrap().contains("?offset=0&length="), "{refused:#}");
    assert_eq!(read(wire, &format!("{long}?offset=258&length=3"))["result"]["contents"][0]["blob"], "AgME");
    let listed = wire.ask("resources/list", json!({}));
    let names: Vec<&str> =
        listed["result"]["resources"].as_array().unwrap().iter().map(|file| file["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a.txt", "b.bin", "c.bin"]);
    let templates = wire.ask("resources/templates/list", json!({}));
    assert_eq!(templates["result"]["resourceTemplates"][0]["uriTemplate"], "kernel://{session_id}/{+filename}");
}

#[test]
fn resources_are_confined_to_the_sessions_files() {
    let mut session = Session::start([]);
    session.run("import os\nos.symlink('/lib', 'lib')\nos.symlink('/etc/made', 'link')\nos.makedirs('/etc', exist_ok=True)\nopen('/etc/made', 'w').write('outside')\nos.makedirs('d')\nopen('d/x', 'w').write('in')");
    let other = open(&mut session.wire);
    run(&mut session.wire, &other, "open('secret', 'w').write('s')");
    let id = session.id.clone();
    for path in [
        "../etc/made",
        "%2e%2e/etc/made",
        "%2e%2e%2fetc%2fmade",
        "/etc/made",
        "%2fetc/made",
        "d/../../etc/made",
        "link",
        "lib/python314.zip",
        "lib/belljar/_belljar/host.py",
        "..%5cetc%5cmade",
        "d",
        "",
        ".",
        "%00",
        "none",
    ] {
        let answer = read(&mut session.wire, &format!("kernel://{id}/{path}"));
        assert!(answer["error"]["message"].is_string(), "{path}: {answer:#}");
    }
    for uri in ["file:///etc/passwd", &format!("kernel://{id}"), "kernel://../secret", &format!("kernel://{id}x/d/x")] {
        assert!(read(&mut session.wire, uri)["error"].is_object(), "{uri}");
    }
    assert_eq!(read(&mut session.wire, &format!("kernel://{id}/d/x"))["result"]["contents"][0]["text"], "in");
    for name in ["../x", "a/b", "", ".x", "a\u{0}b", "..", "a\\b"] {
        let answer = session.tool("upload_file", json!({ "name": name, "content": "x" }));
        assert_eq!(answer["success"], false, "{name:?}: {answer:#}");
    }
    let answer = session.tool("upload_file", json!({ "name": "link", "content": "x" }));
    assert_eq!(answer["success"], false, "{answer:#}");
    assert_eq!(session.value("open('/etc/made').read()"), "'outside'");
}

#[test]
fn other_clients_cannot_list_session_files() {
    use crate::serve::http::Listening;
    let server = Listening::start("streamable-http", ["--toolset", "interpreter"]);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sessions/two_clients.py");
    crate::serve::clients::run_script(script, &server.url);
}

#[test]
fn uploaded_file_is_visible_to_the_next_cell() {
    let mut session = Session::start([]);
    let answer = session.tool("upload_file", json!({ "name": "data.csv", "content": "a,b\n1,2\n" }));
    assert_eq!((&answer["success"], &answer["file"]["mime_type"]), (&json!(true), &json!("text/csv")));
    assert_eq!(session.value("open('data.csv').read()"), "'a,b\\n1,2\\n'");
    session.tool("upload_file", json!({ "name": "one.bin", "base64": "AAH/" }));
    assert_eq!(session.value("open('one.bin', 'rb').read()"), "b'\\x00\\x01\\xff'");
    session.tool("upload_file", json!({ "name": "helper.py", "content": "def triple(x): return 3 * x" }));
    assert_eq!(session.value("import helper; helper.triple(4)"), "12");
}

#[test]
fn hostile_upload_name_is_refused_or_the_name_of_a_plain_file() {
    let mut session = Session::start(["--no-install"]);
    session.run("import os; before = sorted(os.listdir('/')), sorted(os.listdir('..'))");
    let long = "n".repeat(100_000);
    let mut accepted = Vec::new();
    for name in [
        "/etc/made",
        "..",
        "../made",
        "./made",
        "a/../../made",
        "..\\made",
        "C:\\made",
        "\\\\host\\made",
        "%2e%2e%2fmade",
        "..%2fmade",
        "a\nb",
        "a\r\nb",
        "a\u{0}b",
        "a\u{1b}[31mb",
        "a\u{7}b",
        "a\u{85}b",
        "photo\u{202e}gpj.py",
        "a\u{2028}b",
        "\u{200b}",
        "\u{feff}x",
        " ",
        "x ",
        " x",
        "x.",
        "...",
        ".hidden",
        "~",
        "$HOME",
        "`id`",
        "-rf",
        "*",
        "a:b",
        "a?b#c",
        "é",
        "e\u{301}",
        "\u{ff0f}etc",
        "name.py\u{0}.txt",
        &long[..255],
        &long[..256],
        &long,
    ] {
        let answer = session.tool("upload_file", json!({ "name": name, "content": "x" }));
        if answer["success"] == true {
            accepted.push(name);
            let uri = answer["file"]["uri"].as_str().unwrap();
            let contents = read(&mut session.wire, uri)["result"]["contents"][0].take();
            assert_eq!(contents["text"], "x", "{name:?}: {uri}");
        } else {
            let error = answer["error"].as_str().unwrap();
            assert!(!error.is_empty() && error.len() < 1000, "{name:?}: {} bytes of error", error.len());
            assert!(!error.chars().any(|c| c.is_control() && c != '\n'), "{name:?}: {error:?}");
        }
    }
    assert!(accepted.contains(&"é") && !accepted.iter().any(|name| name.contains(['/', '\\', '\0'])), "{accepted:?}");
    // Each accepted name is that of one file in the working directory, and nothing was written elsewhere.
    let names: Value =
        serde_json::from_str(&session.output("import json; print(json.dumps(os.listdir('.')))")).unwrap();
    let mut names: Vec<&str> = names.as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    names.sort_unstable();
    accepted.sort_unstable();
    assert_eq!(names, accepted);
    assert_eq!(session.value("before == (sorted(os.listdir('/')), sorted(os.listdir('..')))"), "True");
}

#[test]
fn flood_of_subscriptions_is_bounded() {
    let mut session = Session::start(["--no-install"]);
    session.run("open('a.txt', 'w').write('1')");
    let uri = |name: &str, id: &str| json!({ "uri": format!("kernel://{id}/{name}") });
    let id = session.id.clone();
    // Subscribing again is not another subscription.
    let again: Vec<u64> = (0..3000).map(|_| session.wire.send("resources/subscribe", uri("a.txt", &id))).collect();
    for request in again {
        assert!(session.wire.answer(request)["error"].is_null());
    }
    let many: Vec<u64> =
        (0..3000).map(|number| session.wire.send("resources/subscribe", uri(&format!("{number}.txt"), &id))).collect();
    let answers: Vec<Value> = many.into_iter().map(|request| session.wire.answer(request)).collect();
    let refused: Vec<&Value> = answers.iter().filter(|answer| answer["error"].is_object()).collect();
    assert_eq!(refused.len(), 3000 - 999);
    let message = refused[0]["error"]["message"].as_str().unwrap();
    assert!(message.contains("at most 1000 subscriptions"), "{message}");
    session.run("open('a.txt', 'w').write('22')");
    assert_eq!(session.wire.notifications("notifications/resources/updated").len(), 1);
    // Subscriptions that ended make room for others.
    session.wire.ask("resources/unsubscribe", uri("a.txt", &id));
    let last = session.wire.ask("resources/subscribe", uri("last.txt", &id));
    assert!(last["error"].is_null(), "{last:#}");
}

#[test]
fn flood_of_notifications_does_not_keep_the_server_from_answering() {
    let mut session = Session::start(["--no-install"]);
    for number in 0..20_000 {
        let (method, params) = match number % 5 {
            0 => ("notifications/cancelled", json!({ "requestId": 1_000_000 + number, "reason": "x".repeat(100) })),
            1 => ("notifications/progress", json!({ "progressToken": number, "progress": 1e308 })),
            2 => ("notifications/roots/list_changed", json!({})),
            3 => ("notifications/initialized", json!({})),
            _ => ("notifications/no_such_method", json!({ "x": [[[]]] })),
        };
        session.wire.notify(method, params);
    }
    assert_eq!(session.value("6 * 7"), "42");
    assert!(session.wire.received.is_empty(), "notifications have no answers: {:?}", session.wire.received);
}

#[test]
fn client_is_notified_of_new_and_subscribed_files() {
    let mut session = Session::start([]);
    session.run("open('a.txt', 'w').write('1')");
    assert_eq!(session.wire.notifications("notifications/resources/list_changed").len(), 1);
    let uri = format!("kernel://{}/a.txt", session.id);
    let answer = session.wire.ask("resources/subscribe", json!({ "uri": uri }));
    assert!(answer["error"].is_null(), "{answer:#}");
    session.run("open('a.txt', 'w').write('22')");
    session.run("print('nothing')");
    let updated = session.wire.notifications("notifications/resources/updated");
    assert_eq!(updated, [&json!({ "uri": uri })]);
    assert_eq!(session.wire.notifications("notifications/resources/list_changed").len(), 1);
    session.wire.ask("resources/unsubscribe", json!({ "uri": uri }));
    session.run("open('a.txt', 'w').write('333')");
    assert_eq!(session.wire.notifications("notifications/resources/updated").len(), 1);
    let refused = session.wire.ask("resources/subscribe", json!({ "uri": "kernel://aaaaaaaaaaaaaaaa/x" }));
    assert!(refused["error"].is_object(), "{refused:#}");
}

#[test]
fn a_cleared_session_and_its_files_are_gone() {
    let mut wire = serve([]);
    let id = open(&mut wire);
    run(&mut wire, &id, "open('a.txt', 'w').write('1')");
    let cleared = fields(&wire.tool("clear_session", json!({ "session_id": id })));
    let message = format!("Session {id} cleared and all files deleted");
    assert_eq!(cleared, json!({ "success": true, "message": message }));
    assert!(run(&mut wire, &id, "1")["error"].as_str().unwrap().starts_with("SessionExpiredError"));
    assert!(read(&mut wire, &format!("kernel://{id}/a.txt"))["error"].is_object());
    assert_eq!(wire.ask("resources/list", json!({}))["result"]["resources"], json!([]));
}

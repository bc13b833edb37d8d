//! Cells: output, displays, files and variables.

use serde_json::{Value, json};

use crate::operator::{Operator, written};

#[test]
fn cells_have_output_displays_and_errors() {
    let operator = Operator::start(&[]);
    let session = operator.create();
    let code = "import sys\nprint('out')\nprint('err', file=sys.stderr)\n\
                class Table:\n    def _repr_html_(self): return '<table><tr><td>1</td></tr></table>'\nTable()";
    let cell = operator.run(&session, code);
    assert_eq!((&cell["state"], written(&cell, "stdout").as_str()), (&json!("ok"), "out\n"));
    assert_eq!(written(&cell, "stderr"), "err\n");
    let outputs = cell["outputs"].as_array().unwrap();
    let at = outputs.iter().position(|output| output["type"] == "result").unwrap();
    assert_eq!(outputs[at]["data"]["text/html"], "<table><tr><td>1</td></tr></table>");
    assert!(cell["memory"].as_u64().unwrap() > 1 << 20, "{cell}");
    assert!(cell["began"].as_u64().unwrap() <= cell["ended"].as_u64().unwrap(), "{cell}");
    assert!(cell["cpu_ms"].as_f64().unwrap() > 0.0, "{cell}");
    // The HTML is behind an address that works once, without scripts.
    let place = format!("/sessions/{session}/cells/{}/outputs/{at}/frame", cell["number"]);
    let path = operator.send("POST", &place, None).with_status(200)["path"].as_str().unwrap().to_owned();
    let frame = operator.backend.get(&path);
    assert!(frame.text().contains("<table><tr><td>1"), "{}", frame.text());
    assert!(frame.head.contains("default-src 'none'") && frame.head.contains("sandbox"), "{}", frame.head);
    assert!(!frame.head.contains("allow-"), "{}", frame.head);
    assert!(operator.backend.get(&path).text().contains("expired"));
    operator.send("POST", &place.replace(&format!("outputs/{at}"), "outputs/99"), None).refusal(404);
    let cell = operator.run(&session, "1 / 0");
    assert_eq!((&cell["state"], &cell["error"]["name"]), (&json!("error"), &json!("ZeroDivisionError")));
    let cell = operator.run(&session, "import os\nos._exit(3)");
    assert_eq!(cell["state"], "died", "{cell}");
    let page = operator.get(&format!("/sessions/{session}/cells?limit=2"));
    let numbers = |page: &Value| -> Vec<u64> {
        page["cells"].as_array().unwrap().iter().map(|cell| cell["number"].as_u64().unwrap()).collect()
    };
    assert_eq!((numbers(&page), &page["has_more"]), (vec![2, 3], &json!(true)));
    let page = operator.get(&format!("/sessions/{session}/cells?before=2"));
    assert_eq!((numbers(&page), &page["has_more"]), (vec![1], &json!(false)));
}

in_both_isolations! { processor_time_of_cells_is_without_their_waits }

fn processor_time_of_cells_is_without_their_waits(isolation: &str) {
    let operator = Operator::start(&["--isolation", isolation]);
    let session = operator.create();
    let spent = |code: &str| {
        let cell = operator.run(&session, code);
        let elapsed = cell["ended"].as_u64().unwrap() - cell["began"].as_u64().unwrap();
        (elapsed, cell["cpu_ms"].as_f64().unwrap_or_else(|| panic!("{cell}")))
    };
    let (elapsed, cpu) = spent("import asyncio\nawait asyncio.sleep(1.5)");
    assert!(elapsed >= 1500 && cpu < 1000.0, "{cpu} of {elapsed} ms");
    let (_, cpu) = spent("sum(range(3_000_000))");
    assert!(cpu > 1.0, "{cpu}");
}

#[test]
fn each_operator_gets_the_number_of_its_own_cell() {
    let directory = tempfile::tempdir().unwrap();
    for options in [&[][..], &["--data-dir", directory.path().to_str().unwrap()]] {
        let operator = Operator::start(options);
        let session = operator.create();
        std::thread::scope(|scope| {
            for thread in 0..6 {
                let (operator, session) = (&operator, &session);
                scope.spawn(move || {
                    for cell in 0..8 {
                        let code = format!("({thread}, {cell})");
                        let number = operator.submit(session, &code);
                        let shown = operator.get(&format!("/sessions/{session}/cells/{number}"));
                        assert_eq!(shown["code"], code, "{options:?}");
                    }
                });
            }
        });
    }
}

#[test]
fn long_output_keeps_its_end_while_the_cell_runs() {
    let operator = Operator::start(&["--timeout", "600"]);
    let session = operator.create();
    let code = "for n in range(200_000): print(n)\nprint('end')\nimport time\nwhile True: time.sleep(0.1)";
    let number = operator.submit(&session, code);
    let cell = operator.wait_for_cell(&session, number, |cell| written(cell, "stdout").ends_with("end\n"));
    assert!(cell["omitted"].as_u64().unwrap() > 500_000, "{}", cell["omitted"]);
    assert!(written(&cell, "stdout").len() < 600_000);
    assert_eq!(operator.send("DELETE", &format!("/sessions/{session}"), None).status / 100, 2);
}

#[test]
fn files_are_listed_and_downloaded_as_attachments() {
    let operator = Operator::start(&[]);
    let session = operator.create();
    operator.run(&session, "import os\nos.mkdir('d')\nopen('d/a b.html', 'w').write('<script>1</script>' * 500_000)");
    let files = operator.get(&format!("/sessions/{session}/files"));
    assert_eq!(files, json!({ "files": [{ "path": "d/a b.html", "size": 9_000_000, "mime": "text/html" }] }));
    let read = operator.send("GET", &format!("/sessions/{session}/files/content?path=d/a%20b.html"), None);
    assert_eq!((read.status, read.body.len()), (200, 9_000_000));
    for header in
        ["content-type: application/octet-stream", "content-disposition: attachment", "cache-control: no-store"]
    {
        assert!(read.head.contains(header), "{header}: {}", read.head);
    }
    for (path, status) in [("../x", 400), ("/etc/passwd", 400), ("missing", 404), ("%2e%2e/x", 400), (".hidden", 400)] {
        operator.send("GET", &format!("/sessions/{session}/files/content?path={path}"), None).refusal(status);
    }
}

#[test]
fn variables_are_listed_without_changing_the_session() {
    let operator = Operator::start(&[]);
    let session = operator.create();
    let code = "import json, math\nnumber = 41\ntext = 'x' * 10_000\nrows = list(range(1000))\n\
                class Hostile:\n    def __repr__(self): raise ValueError('no')\n\
                class Array:\n    shape = (3, 4)\n    nbytes = 96\nhostile, array = Hostile(), Array()\n_private = 1\n\
                def function(): pass";
    operator.run(&session, code);
    let listed = operator.get(&format!("/sessions/{session}/variables"));
    let variables = listed["variables"].as_array().unwrap();
    let names: Vec<&str> = variables.iter().map(|variable| variable["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["Array", "Hostile", "array", "function", "hostile", "number", "rows", "text"]);
    let find = |name: &str| variables.iter().find(|variable| variable["name"] == name).unwrap();
    assert_eq!((&find("number")["value"], &find("number")["type"]), (&json!("41"), &json!("int")));
    assert_eq!((&find("array")["value"], &find("array")["size"]), (&json!("shape 3 × 4"), &json!(96)));
    assert!(find("text")["value"].as_str().unwrap().len() < 200);
    assert!(find("hostile")["value"].as_str().unwrap().contains("Hostile"), "{listed}");
    let cell = operator.run(&session, "print(number, 'listing' in globals(), 'scope' in globals())");
    assert_eq!((written(&cell, "stdout").as_str(), &cell["number"]), ("41 False False\n", &json!(2)));
    // The list comes from the session, which is not trusted.
    let code = "import reprlib\nclass Endless:\n    def __repr__(self):\n        while True: pass\nendless = Endless()";
    operator.run(&session, code);
    let refused = operator.send("GET", &format!("/sessions/{session}/variables"), None);
    assert_eq!(refused.status, 502, "{}", refused.text());
}

#[test]
fn wrong_requests_are_refused() {
    let operator = Operator::start(&[]);
    let session = operator.create();
    let cells = format!("/sessions/{session}/cells");
    for (body, status) in [
        (json!({}), 422),
        (json!({ "code": "" }), 422),
        (json!({ "code": 1 }), 422),
        (json!({ "code": "1", "timeout_seconds": 0 }), 422),
        (json!({ "code": "x".repeat(5 << 20) }), 422),
    ] {
        operator.send("POST", &cells, Some(&body)).refusal(status);
    }
    operator.send("GET", &format!("{cells}/1"), None).refusal(404);
    let answer = json!({ "decision": "approve" });
    operator.send("POST", &format!("{cells}/1/questions/1"), Some(&answer)).refusal(404);
    operator.run(&session, "1");
    operator.send("POST", &format!("{cells}/1/questions/1"), Some(&answer)).refusal(409);
}

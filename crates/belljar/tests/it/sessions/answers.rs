//! The shapes of answers, compared with those of the server that these tools replace.

use serde_json::{Value, json};

use super::{Session, fields, serve};
use crate::wire::text;

/// Returns a traceback without IPython's colours.
fn plain(traceback: &Value) -> String {
    let text: Vec<&str> = traceback.as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let mut plain = String::new();
    let mut rest = text.join("\n");
    while let Some(at) = rest.find('\u{1b}') {
        plain.push_str(&rest[..at]);
        rest = rest[at..].split_once('m').map(|(_, rest)| rest.to_owned()).unwrap_or_default();
    }
    plain + &rest
}

#[test]
fn answer_names_the_new_session_for_later_calls() {
    let mut wire = serve([]);
    for new in [json!(""), json!("0"), Value::Null] {
        let first =
            fields(&wire.tool("execute_code", json!({ "code": "x = 1\nprint('hi')\n1 + x", "session_id": new })));
        let id = first["session_info"]["session_id"].as_str().unwrap().to_owned();
        assert_eq!(id.len(), 16);
        let instructions = first["session_info"]["instructions"].as_str().unwrap().to_owned();
        assert!(instructions.contains(&id) && instructions.contains("after 30 min without"), "{instructions}");
        let wanted = json!({
            "success": true, "output": ["hi\n"], "result": "2", "error": null, "traceback": [], "files": [],
            "session_info": { "session_id": id, "instructions": instructions },
        });
        assert_eq!(first, wanted);
        let next = fields(&wire.tool("execute_code", json!({ "code": "x + 2", "session_id": id })));
        let wanted = json!({
            "success": true, "output": [], "result": "3", "error": null, "traceback": [], "files": [],
            "session_info": null,
        });
        assert_eq!(next, wanted);
    }
}

#[test]
fn answer_states_short_session_timeouts_in_seconds() {
    let mut wire = serve(["--session-timeout", "2"]);
    let answer = fields(&wire.tool("execute_code", json!({ "code": "1" })));
    let instructions = answer["session_info"]["instructions"].as_str().unwrap();
    assert!(instructions.ends_with("The session expires after 2 s without a call."), "{instructions}");
}

#[test]
fn output_of_both_streams_keeps_its_order() {
    let mut session = Session::start([]);
    let answer = session.run("import sys\nprint('o')\nprint('e', file=sys.stderr)\nprint('p')\nprint('q')");
    assert_eq!(answer["output"], json!(["o\n", "e\n", "p\nq\n"]));
}

#[test]
fn an_error_has_its_traceback_as_ipython_prints_it() {
    let mut session = Session::start(["--tracebacks", "color"]);
    let answer = session.run("1/0");
    assert_eq!((&answer["success"], &answer["error"]), (&json!(false), &json!("ZeroDivisionError: division by zero")));
    assert_eq!(answer["traceback"].as_array().unwrap().len(), 4, "{answer:#}");
    assert!(
        answer["traceback"][1].as_str().unwrap().starts_with("\u{1b}[31mZeroDivisionError\u{1b}[39m"),
        "{answer:#}"
    );
    let text = plain(&answer["traceback"]);
    assert!(text.contains("Traceback (most recent call last)\nCell In[2], line 1\n----> 1 1/0"), "{text}");
    assert!(text.ends_with("ZeroDivisionError: division by zero"), "{text}");
}

#[test]
fn tracebacks_are_plain_and_lack_the_frames_of_libraries() {
    let code = "import json\ndef f(pairs): raise ValueError('no')\njson.loads('{}', object_pairs_hook=f)";
    let traceback = |options: &[&str]| {
        let mut session = Session::start(options.iter().copied());
        let answer = session.run(code);
        assert_eq!(answer["error"], "ValueError: no");
        let pieces = answer["traceback"].as_array().unwrap().iter().map(|piece| piece.as_str().unwrap().to_owned());
        pieces.collect::<Vec<_>>().join("\n")
    };
    let [plain, full, color] = [&[][..], &["--tracebacks", "full"], &["--tracebacks", "color"]].map(traceback);
    assert!(!plain.contains('\u{1b}') && !full.contains('\u{1b}') && color.contains('\u{1b}'), "{plain}\n{color}");
    assert!(plain.contains("[… 3 frames of libraries]") && !plain.contains("decoder.py"), "{plain}");
    assert!(plain.contains("Cell In[2], line 3") && plain.contains("Cell In[2], line 2, in f(pairs)"), "{plain}");
    assert!(full.contains("decoder.py") && !full.contains("frames of libraries"), "{full}");
}

#[test]
fn text_leaves_out_empty_fields() {
    let mut session = Session::start([]);
    let text_of = |session: &mut Session, code: &str| {
        let mut result = session.wire.tool("execute_code", json!({ "code": code, "session_id": session.id }));
        (text(&result), result["structuredContent"].take())
    };
    let (done, structured) = text_of(&mut session, "6 * 7");
    assert_eq!(done, r#"{"success":true,"output":[],"result":"42"}"#);
    assert_eq!((&structured["error"], &structured["traceback"]), (&Value::Null, &json!([])));
    let (failed, _) = text_of(&mut session, "1/0");
    assert!(
        failed.starts_with(r#"{"success":false,"output":[],"result":null,"error":"ZeroDivisionError: "#),
        "{failed}"
    );
    assert!(!failed.contains("files") && !failed.contains("session_info"), "{failed}");
    let (written, _) = text_of(&mut session, "open('a.txt', 'w').close()");
    assert!(written.contains(r#""files":[{"uri":"kernel://"#), "{written}");
}

#[test]
fn session_is_named_even_if_its_first_cell_fails() {
    let mut wire = serve([]);
    let first = fields(&wire.tool("execute_code", json!({ "code": "x = 7\n1/0" })));
    assert_eq!(first["error"], "ZeroDivisionError: division by zero");
    let id = first["session_info"]["session_id"].as_str().unwrap();
    assert_eq!(fields(&wire.tool("execute_code", json!({ "code": "x", "session_id": id })))["result"], "7");
}

#[test]
fn unknown_session_is_a_readable_error() {
    let mut wire = serve([]);
    let answer = fields(&wire.tool("execute_code", json!({ "code": "1", "session_id": "nope" })));
    let error = "SessionExpiredError: Session nope not found or has expired. Sessions expire after 30 minutes of \
                 inactivity. Please create a new session (use session_id=\"\" or session_id=\"0\") and re-execute your \
                 setup code.";
    let wanted = json!({
        "success": false, "output": [], "result": null, "error": error, "traceback": [], "files": [], "session_info": null,
    });
    assert_eq!(answer, wanted);
    for tool in ["list_session_files", "clear_session", "restart_session", "interrupt_session", "fork_session"] {
        let result = wire.tool(tool, json!({ "session_id": "aaaaaaaaaaaaaaaa" }));
        assert_eq!(result["isError"], true, "{tool}");
        assert!(fields(&result)["error"].as_str().unwrap().starts_with("SessionExpiredError"), "{tool}");
    }
}

#[test]
fn argument_errors_name_the_problem() {
    let mut wire = serve([]);
    for (tool, arguments, wanted) in [
        ("execute_code", json!({}), "missing field `code`"),
        ("execute_code", json!({ "code": 1 }), "code: invalid type: integer `1`, expected a string"),
        ("execute_code", json!({ "code": "1", "timeout": -1 }), "timeout: expected a number of seconds above 0"),
        ("clear_session", json!({}), "missing field `session_id`"),
        ("upload_file", json!({ "session_id": "a", "name": "x" }), "content: it is missing; pass the file's text"),
        ("upload_file", json!({ "session_id": "a", "name": "x", "base64": "&" }), "base64: it cannot be decoded"),
    ] {
        let result = wire.tool(tool, arguments);
        let text = result["content"][0]["text"].as_str().unwrap();
        assert!(result["isError"] == true && text.starts_with(wanted), "{tool}: {text}");
    }
}

#[test]
fn each_toolset_has_its_tools() {
    let names = |toolset| {
        let mut wire = crate::wire::Wire::start(["--toolset", toolset, "--no-install"]);
        let listed = wire.ask("tools/list", json!({}));
        let tools = listed["result"]["tools"].as_array().unwrap().clone();
        let names: Vec<String> = tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect();
        names.join(" ")
    };
    let interpreter =
        "execute_code list_session_files clear_session upload_file interrupt_session restart_session fork_session";
    assert_eq!(names("python"), "run_python_code");
    assert_eq!(names("interpreter"), interpreter);
    assert_eq!(names("all"), format!("run_python_code {interpreter}"));
}

#[test]
fn long_output_is_truncated_and_kept_in_a_file() {
    let mut session = Session::start([]);
    let answer = session.run("for n in range(100_000): print('line', n)\n'x' * 200_000");
    let output = super::joined(&answer["output"]);
    assert!(output.len() < 12_800 && output.starts_with("line 0\n"), "{}", output.len());
    assert!(output.contains("1078741 of 1088890 bytes are left out"), "{output}");
    assert!(output.contains("line 99999\n"), "the end is missing");
    let uri = format!("kernel://{}/output_2.txt", session.id);
    assert!(output.contains(&uri), "no note");
    assert!(answer["result"].as_str().unwrap().contains("result_2.txt"));
    let length = session.value("s = open('output_2.txt').read(); (len(s), s.count('\\n'))");
    assert_eq!(length, "(1088890, 100000)");

    let id = session.id.clone();
    let answer = session.run("raise ValueError('x' * 50_000_000)");
    let (error, traceback) = (answer["error"].as_str().unwrap(), super::joined(&answer["traceback"]));
    assert!(
        error.starts_with("ValueError: xxx") && error.contains(&format!("kernel://{id}/error_")),
        "{}",
        &error[..200]
    );
    assert!(error.len() + traceback.len() < 25_500, "{} and {}", error.len(), traceback.len());
}

#[test]
fn length_of_answers_can_be_set() {
    let mut session = Session::start(["--max-answer", "1KB"]);
    let answer = session.run("print('x' * 5000)");
    let output = super::joined(&answer["output"]);
    assert!(output.contains("3979 of 5001 bytes are left out") && output.len() < 1400, "{output}");
    assert_eq!(session.value("len(open('output_2.txt').read())"), "5001");
    let mut session = Session::start(["--max-answer", "1MB"]);
    assert_eq!(session.output("print('x' * 500_000)").len(), 500_001);
}

#[test]
fn description_states_the_settings_of_sessions() {
    let mut wire =
        serve(["--timeout", "5", "--session-memory", "300MB", "--max-answer", "7KB", "--session-timeout", "60"]);
    let listed = wire.ask("tools/list", json!({}));
    let description = listed["result"]["tools"][0]["description"].as_str().unwrap();
    for wanted in
        ["in WebAssembly: no network", "5 s, 300 MB of memory", "of which 7 KB are shown", "after 60 s without"]
    {
        assert!(description.contains(wanted), "{wanted}: {description}");
    }
    assert!(description.len() < 1500, "{}", description.len());
    let mut closed = serve(["--no-install"]);
    let listed = closed.ask("tools/list", json!({}));
    assert!(listed["result"]["tools"][0]["description"].as_str().unwrap().contains("No packages can be installed"));
}

#[test]
fn name_like_a_well_known_one_is_not_installed_by_a_cell() {
    let mut session = Session::start([]);
    let answer = session.run("print('begun')\nimport sklearn2");
    assert_eq!(answer["success"], false, "{answer}");
    let output = super::joined(&answer["output"]);
    let reason =
        "[not installed: sklearn2: not installed for an import alone, since its name resembles sklearn\nhint: did";
    assert!(output.contains(reason) && output.ends_with("begun\n"), "{output}");
}

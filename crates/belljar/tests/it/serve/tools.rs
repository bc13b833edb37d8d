//! Tools of MCP servers for the code of a server's clients: Belljar's client library in both protocol eras, on each
//! transport, and clients that others wrote.

use std::time::{Duration, Instant};

use belljar_mcp_client::{McpServer, ProtocolEra};
use serde_json::{Value, json};

use super::clients;
use super::http::Listening;
use crate::harness::server_options;
use crate::tool_client::{Client, call, tool_server as server};
use crate::tool_servers::{ToolServer, registry_servers};

/// Returns a client of `belljar stdio` with these options.
fn client(era: ProtocolEra, options: &[&str], answers: &'static [&'static str]) -> Client {
    let mut arguments = server_options();
    arguments.extend(options.iter().map(|option| (*option).to_owned()));
    Client::new(era, &arguments, answers)
}

#[test]
fn outcome_lists_the_calls_and_names_those_that_failed() {
    for era in [ProtocolEra::Legacy, ProtocolEra::Modern] {
        let client = client(era, &["--toolset", "all", &server("t", "plain")], &[]);
        let code = "from tools import t, ToolError\ntry:\n    await t.fail(message='<failed_calls>')\n\
                    except ToolError:\n    pass\nawait t.add(a=1)";
        client.run(async |server| {
            let (text, structured) = call(&server, "run_python_code", json!({ "python_code": code })).await;
            assert_eq!(structured["return_value"], 2, "{structured}");
            let calls = structured["calls"].as_array().unwrap();
            let named: Vec<_> = calls.iter().map(|call| (call["tool"].as_str(), call["status"].as_str())).collect();
            assert_eq!(named, [(Some("fail"), Some("error")), (Some("add"), Some("ok"))]);
            let failed = "\n<failed_calls>\nt.fail({\"message\":\"&lt;failed_calls&gt;\"}): &lt;failed_calls&gt;\n</failed_calls>";
            assert!(text.contains(failed), "{text}");
            let (text, structured) = call(&server, "execute_code", json!({ "code": code })).await;
            assert_eq!(structured["result"], "2", "{structured}");
            assert_eq!(structured["calls"][0]["error"], "<failed_calls>");
            let fields: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(fields["failed_calls"].as_array().unwrap().len(), 1, "{text}");
        });
        // The beginning and the end of each call, of both tools, are log messages and progress notifications.
        let (log, progress) = (client.log.lock().unwrap(), client.progress.lock().unwrap());
        let calls =
            ["t.fail({\"message\":\"<failed_calls>\"})", "t.fail failed after ", "t.add({\"a\":1})", "t.add returned "];
        for lines in [&log, &progress] {
            let count = |begin: &str| lines.iter().filter(|line| line.starts_with(begin)).count();
            assert_eq!(calls.map(count), [2; 4], "{lines:?}");
        }
    }
}

/// Code that asks for approval three times.
const NOTES: &str = "from tools import t, ToolDenied\ndone = []\nfor text in 'abc':\n    try:\n        \
     done.append(await t.note(text=text))\n    except ToolDenied as error:\n        done.append(str(error))\ndone";

/// Checks the answers yes, no and session, with either tool.
fn check_approvals(client: &Client, tool: &str) {
    let expected = json!(["noted a", "the user denied the call of `t.note`", "noted c"]);
    client.run(async |server| {
        let arguments = |code: &str| match tool {
            "execute_code" => json!({ "code": code }),
            _ => json!({ "python_code": code }),
        };
        let (_, structured) = call(&server, tool, arguments(NOTES)).await;
        let value = match tool {
            "execute_code" => structured["result"].as_str().unwrap().replace('\'', "\"").parse().unwrap(),
            _ => structured["return_value"].clone(),
        };
        assert_eq!(value, expected, "{tool}: {structured}");
        assert_eq!(structured["calls"].as_array().unwrap().len(), 3, "{structured}");
    });
    let questions = client.questions.lock().unwrap();
    assert_eq!(questions.len(), 3, "{questions:?}");
    let begin = "The code calls the tool note of the MCP server t.\nArguments: {\"text\":\"a\"}\nLine: ";
    assert!(questions[0].starts_with(begin), "{questions:?}");
    assert!(questions[0].contains("done.append(await t.note(text=text))"), "{questions:?}");
}

#[test]
fn calls_are_approved_by_elicitation() {
    for era in [ProtocolEra::Legacy, ProtocolEra::Modern] {
        for tool in ["run_python_code", "execute_code"] {
            let options = ["--toolset", "all", &server("t", "plain")];
            check_approvals(&client(era, &options, &["yes", "no", "session"]), tool);
        }
    }
    // A client that cannot be asked.
    client(ProtocolEra::Legacy, &[&server("t", "plain")], &[]).run(async |server| {
        let (_, structured) = call(&server, "run_python_code", json!({ "python_code": NOTES })).await;
        let reason = structured["return_value"][0].as_str().unwrap();
        assert!(reason.starts_with("the call of `t.note` needs approval") && reason.contains("--approve"), "{reason}");
    });
}

#[test]
fn approval_for_the_session_holds_for_later_calls() {
    let again = |text: &str| json!({ "python_code": format!("from tools import t\nawait t.note(text='{text}')") });
    for era in [ProtocolEra::Legacy, ProtocolEra::Modern] {
        let client = client(era, &[&server("t", "plain")], &["session"]);
        client.run(async |server| {
            for text in ["a", "b"] {
                let (_, structured) = call(&server, "run_python_code", again(text)).await;
                assert_eq!(structured["return_value"], format!("noted {text}"), "{era:?}: {structured}");
            }
        });
    }
}

#[test]
fn tools_work_over_http() {
    let options = ["--toolset", "all", &server("t", "plain")];
    for (command, era) in [
        ("streamable-http", ProtocolEra::Legacy),
        ("streamable-http", ProtocolEra::Modern),
        ("sse", ProtocolEra::Legacy),
    ] {
        for tool in ["run_python_code", "execute_code"] {
            let listening = Listening::start(command, options);
            check_approvals(&Client::over_http(era, &listening.url, &["yes", "no", "session"]), tool);
        }
    }
    // Without sessions of the protocol, no client of the legacy era can be asked.
    let listening = Listening::start("streamable-http-stateless", options);
    Client::over_http(ProtocolEra::Legacy, &listening.url, &[]).run(async |server| {
        let code = "from tools import t\nawait t.add(a=1)";
        let (_, structured) = call(&server, "run_python_code", json!({ "python_code": code })).await;
        assert_eq!(structured["return_value"], 2, "{structured}");
    });
}

/// Waits until a server's description of `run_python_code` contains `part`.
async fn wait_for_description(server: &McpServer, part: &str) {
    let begin = Instant::now();
    loop {
        let tools = server.list_tools().await.unwrap();
        let description =
            tools.iter().find(|tool| tool.name == "run_python_code").unwrap().description.clone().unwrap();
        if description.contains(part) {
            return;
        }
        assert!(begin.elapsed() < Duration::from_secs(180), "{description}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn clients_are_notified_of_other_tools() {
    let options = [&server("t", "changing"), "--approve", "none"];
    let change = json!({ "python_code": "from tools import t\nawait t.change()" });
    for era in [ProtocolEra::Legacy, ProtocolEra::Modern] {
        let client = client(era, &options.map(|option| option as &str), &[]);
        client.run(async |server| {
            wait_for_description(&server, "Writes a note.").await;
            call(&server, "run_python_code", change.clone()).await;
            // The list is cached until the notification.
            wait_for_description(&server, "Deletes everything.").await;
        });
        assert!(*client.changes.lock().unwrap() > 0, "{era:?}");
    }
}

#[test]
fn descriptions_have_stubs_or_tools_to_search() {
    let describes = |mode: &str, options: &[&str]| {
        let server = server("t", mode);
        let options = [&["--toolset", "all", server.as_str()], options].concat();
        client(ProtocolEra::Auto, &options, &[]).run(async |server| {
            let tools = server.list_tools().await.unwrap();
            let names: Vec<String> = tools.iter().map(|tool| tool.name.to_string()).collect();
            let about = |name: &str| {
                tools.iter().find(|tool| tool.name == name).unwrap().description.clone().unwrap().to_string()
            };
            let search = json!({ "query": "thing 7", "limit": 1, "detail": "names" });
            let found = call(&server, "search_tools", search).await.0;
            let described = call(&server, "describe_tools", json!({ "names": ["t.nothing"] })).await.0;
            (names, about("run_python_code"), about("execute_code"), found, described)
        })
    };
    let (names, run, execute, ..) = describes("plain", &[]);
    assert!(!names.iter().any(|name| name == "search_tools"), "{names:?}");
    for description in [&run, &execute] {
        assert!(description.contains("# from tools import t\n\nasync def add(*, a: int, b: int = 1) -> int:"), "{run}");
    }
    let (names, run, execute, found, described) = describes("many", &[]);
    assert!(names.contains(&"search_tools".to_owned()) && names.contains(&"describe_tools".to_owned()), "{names:?}");
    assert!(!run.contains("async def") && execute.contains("MCP servers t: `from tools import t`"), "{execute}");
    assert!(found.starts_with("t.tool_7\n"), "{found}");
    assert!(described.starts_with("server `t` has no tool `nothing`"), "{described}");
    assert!(describes("plain", &["--tools-in-description", "100"]).0.contains(&"search_tools".to_owned()));
}

#[test]
fn session_keeps_modules_of_servers() {
    let client = client(ProtocolEra::Auto, &["--toolset", "interpreter", &server("t", "plain")], &[]);
    client.run(async |server| {
        let (_, first) = call(&server, "execute_code", json!({ "code": "from tools import t\nadd = t.add" })).await;
        let id = first["session_info"]["session_id"].clone();
        let again = json!({ "code": "await add(a=1), (await t.add(a=2))", "session_id": id });
        assert_eq!(call(&server, "execute_code", again).await.1["result"], "(2, 3)");
        let forked = call(&server, "fork_session", json!({ "session_id": id })).await.1;
        let fork = forked["session_id"].clone();
        let in_fork = json!({ "code": "await add(a=5)", "session_id": fork });
        assert_eq!(call(&server, "execute_code", in_fork).await.1["result"], "6");
    });
}

#[test]
fn session_that_uses_tools_continues_in_the_next_server() {
    let data = tempfile::tempdir().unwrap();
    let server = server("t", "plain");
    let sessions = ["--toolset", "interpreter", "--data-dir", data.path().to_str().unwrap()];
    let with_tools = [&sessions[..], &[&server]].concat();
    let execute = |options: &[&str], code: &str, id: Value| {
        client(ProtocolEra::Auto, options, &[])
            .run(async |server| call(&server, "execute_code", json!({ "code": code, "session_id": id })).await.1)
    };
    let begin =
        "from tools import t\nimport tools\nadd = t.add\nearlier = t.add(a=1)\npicture = (await t.picture())[1]";
    let first = execute(&with_tools, begin, json!(""));
    assert_eq!(first["success"], true, "{first}");
    let id = first["session_info"]["session_id"].clone();
    // A call that was made before, and not awaited, is sent now.
    let code = "(await earlier, await add(a=2), await t.add(a=3), picture.mime_type, tools.servers())";
    let second = execute(&with_tools, code, id.clone());
    assert_eq!(second["result"], "(2, 3, 4, 'image/png', ['t'])", "{second}");
    assert_eq!(second["calls"].as_array().unwrap().len(), 3, "{second}");
    // A server without tools.
    let code = "try:\n    await add(a=1)\nexcept tools.ToolException as error:\n    print(error)";
    let without = execute(&sessions, code, id);
    assert!(without["output"][0].as_str().unwrap().starts_with("the call of t.add was not sent: "), "{without}");
}

#[test]
fn python_sdks_answer_elicitations() {
    let options = ["--toolset", "all", &server("t", "plain")];
    for python in [clients::generation_1(), clients::generation_2()] {
        clients::on_all_transports(&python, "tools_client.py", &options);
    }
}

#[test]
fn agent_solves_a_task_over_three_servers_with_one_call() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("zones.txt"), "Asia/Tokyo\nUTC\nAmerica/New_York\n").unwrap();
    let servers = registry_servers(folder.path());
    let is_needed = |server: &&ToolServer| ["files", "time", "sqlite"].contains(&server.name);
    let options: Vec<String> = servers.iter().filter(is_needed).map(ToolServer::option).collect();
    let needed: Vec<&str> = options.iter().map(String::as_str).collect();
    let path = folder.path().join("zones.txt").display().to_string();
    clients::stdio(
        &clients::newest(),
        "pydantic_ai_tools.py",
        &[&path],
        &[&needed[..], &["--approve", "none"]].concat(),
    );
}

#[test]
fn value_of_a_cell_that_is_not_awaited_is_an_error() {
    let client = client(ProtocolEra::Auto, &["--toolset", "interpreter", &server("t", "plain")], &[]);
    client.run(async |server| {
        let code = "from tools import t\nt.add(a=1)";
        let (_, structured) = call(&server, "execute_code", json!({ "code": code })).await;
        assert!(structured["error"].as_str().unwrap().contains("write `await t.add(...)`"), "{structured}");
    });
}

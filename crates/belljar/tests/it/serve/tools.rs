//! Tools of MCP servers for the code of a server's clients, with Belljar's client library in both protocol eras.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use belljar_client::{
    BoxError, CallOptions, Elicitation, ElicitationResponse, LogLevel, McpServer, McpServerStdio, ProtocolEra,
};
use serde_json::{Map, Value, json};

use crate::command_line::tools::server;
use crate::harness::{cache, release};

const START_TIMEOUT: Duration = Duration::from_secs(120);

/// A client of `belljar stdio` that answers each elicitation with the next of its answers.
struct Client {
    server: McpServer,
    questions: Arc<Mutex<Vec<String>>>,
    log: Arc<Mutex<Vec<String>>>,
}

impl Client {
    fn new(era: ProtocolEra, options: &[&str], answers: &'static [&'static str]) -> Self {
        let mut arguments = vec!["stdio".to_owned(), "--cache".to_owned(), cache().display().to_string()];
        arguments.extend(release().into_iter().flat_map(|release| ["--pyodide".to_owned(), release]));
        arguments.extend(options.iter().map(|option| (*option).to_owned()));
        let (questions, log) = (Arc::<Mutex<Vec<String>>>::default(), Arc::<Mutex<Vec<String>>>::default());
        let (asked, lines) = (questions.clone(), log.clone());
        let server = McpServerStdio::new(env!("CARGO_BIN_EXE_belljar")).args(arguments).timeout(START_TIMEOUT).era(era);
        let server =
            server.log_level(LogLevel::Info).log_handler(move |message| lines.lock().unwrap().push(message.text()));
        let server = if answers.is_empty() {
            server.build()
        } else {
            let answer = move |elicitation: Elicitation| {
                let Elicitation::Form { message, .. } = elicitation else { panic!("not a form") };
                let mut asked = asked.lock().unwrap();
                let answer = answers[asked.len()];
                asked.push(message);
                let content = Map::from_iter([("value".to_owned(), Value::from(answer))]);
                async move { Ok::<_, BoxError>(ElicitationResponse::Accept(Some(content))) }
            };
            server.elicitation_handler(answer).build()
        };
        Self { server, questions, log }
    }

    /// Runs calls over one connection.
    fn run<F: Future>(&self, work: impl FnOnce(McpServer) -> F) -> F::Output {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let running = self.server.connect().await.unwrap();
            let result = work(self.server.clone()).await;
            running.close().await.unwrap();
            result
        })
    }
}

/// Calls a tool, and returns its text and its structured content.
async fn call(server: &McpServer, tool: &str, arguments: Value) -> (String, Value) {
    let result = server.call_tool_raw(tool, arguments, CallOptions::new()).await.unwrap();
    let text = result.content.iter().filter_map(|part| part.as_text()).map(|part| part.text.clone()).collect();
    (text, result.structured_content.unwrap_or_default())
}

#[test]
fn outcome_lists_the_calls_and_names_those_that_failed() {
    for era in [ProtocolEra::Legacy, ProtocolEra::Modern] {
        let client = Client::new(era, &["--toolset", "all", &server("t", "plain")], &[]);
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
        let log = client.log.lock().unwrap();
        assert!(log.iter().any(|line| line == "t.add({\"a\":1})"), "{log:?}");
        assert!(log.iter().any(|line| line.starts_with("t.add returned ")), "{log:?}");
        assert!(log.iter().any(|line| line.starts_with("t.fail failed after ")), "{log:?}");
    }
}

#[test]
fn calls_are_approved_by_elicitation() {
    let code = "from tools import t, ToolDenied\ndone = []\nfor text in 'abc':\n    try:\n        \
                done.append(await t.note(text=text))\n    except ToolDenied as error:\n        done.append(str(error))\ndone";
    let denied = "the call of `t.note` needs approval";
    let expected = json!(["noted a", "the user denied the call of `t.note`", "noted c"]);
    for (era, tool) in [
        (ProtocolEra::Legacy, "run_python_code"),
        (ProtocolEra::Legacy, "execute_code"),
        (ProtocolEra::Modern, "execute_code"),
    ] {
        let options = ["--toolset", "all", &server("t", "plain")];
        let client = Client::new(era, &options, &["yes", "no", "session"]);
        client.run(async |server| {
            let arguments = |code: &str| match tool {
                "execute_code" => json!({ "code": code }),
                _ => json!({ "python_code": code }),
            };
            let (_, structured) = call(&server, tool, arguments(code)).await;
            let value = match tool {
                "execute_code" => structured["result"].as_str().unwrap().replace('\'', "\"").parse().unwrap(),
                _ => structured["return_value"].clone(),
            };
            assert_eq!(value, expected, "{era:?} {tool}: {structured}");
            // The last answer holds for this client, and its next call is not asked about.
            let (_, structured) = call(&server, tool, arguments("from tools import t\nawait t.note(text='d')")).await;
            assert!(structured.to_string().contains("noted d"), "{structured}");
        });
        let questions = client.questions.lock().unwrap();
        assert_eq!(questions.len(), 3, "{questions:?}");
        assert!(
            questions[0]
                .starts_with("The code calls the tool note of the MCP server t.\nArguments: {\"text\":\"a\"}\nLine: ")
        );
        assert!(questions[0].contains("done.append(await t.note(text=text))"), "{questions:?}");
    }
    // A client that cannot be asked.
    let client = Client::new(ProtocolEra::Legacy, &[&server("t", "plain")], &[]);
    client.run(async |server| {
        let (_, structured) = call(&server, "run_python_code", json!({ "python_code": code })).await;
        let reason = structured["return_value"][0].as_str().unwrap();
        assert!(reason.starts_with(denied) && reason.contains("--approve"), "{reason}");
    });
}

#[test]
fn descriptions_have_stubs_or_tools_to_search() {
    let describes = |mode: &str, options: &[&str]| {
        let server = server("t", mode);
        let options = [&["--toolset", "all", server.as_str()], options].concat();
        Client::new(ProtocolEra::Auto, &options, &[]).run(async |server| {
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
    let client = Client::new(ProtocolEra::Auto, &["--toolset", "interpreter", &server("t", "plain")], &[]);
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

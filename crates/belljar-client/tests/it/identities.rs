//! Runs of different users against one server: their tokens, sessions and lists.

use std::time::Duration;

use belljar_mcp_client::{
    CallOptions, CompletionArgument, McpServer, McpServerStreamableHttp, PromptContent, RunContext, Toolset,
};
use serde_json::{Map, Value, json};

use crate::harness::{START_TIMEOUT, TestServer, eventually, faulty, output, script};

/// Starts a server that needs the token of a user for every request.
fn listening() -> TestServer {
    TestServer::start("python3", &["-u", &script("identity_server.py")])
}

fn server(listening: &TestServer) -> McpServerStreamableHttp {
    McpServerStreamableHttp::new(listening.url("/mcp")).unwrap().timeout(START_TIMEOUT)
}

fn run(token: &str) -> RunContext {
    RunContext::new().bearer_token(token).unwrap()
}

async fn get(listening: &TestServer, path: &str) -> Value {
    reqwest::get(listening.url(path)).await.unwrap().json().await.unwrap()
}

/// Waits until the sessions of the server belong to these users.
async fn sessions_are(listening: &TestServer, users: &[&str]) {
    let url = listening.url("/sessions");
    let started = std::time::Instant::now();
    loop {
        let sessions: Vec<String> = reqwest::get(&url).await.unwrap().json().await.unwrap();
        if sessions == users {
            return;
        }
        assert!(started.elapsed() < START_TIMEOUT, "{sessions:?} instead of {users:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn note(server: &McpServer, run: &RunContext, text: &str) -> String {
    let arguments = Map::from_iter([("text".to_owned(), json!(text))]);
    output(server.call(run, "note", arguments).await.unwrap()).to_text()
}

async fn tool_names(server: &McpServer, run: &RunContext) -> Vec<String> {
    server.tools(run).await.unwrap().iter().map(|tool| tool.name.clone()).collect()
}

#[tokio::test]
async fn token_of_a_run_goes_with_every_request() {
    let listening = listening();
    let server = server(&listening).build();
    let ada = run("ada");
    server.tools(&ada).await.unwrap();
    let bound = server.for_run(&ada);
    assert_eq!(bound.list_resources().await.unwrap()[0].uri, "notes://ada");
    assert_eq!(bound.read_resource("notes://x").await.unwrap().to_text(), "ada's");
    let prompt = bound.get_prompt("who", [("a", "b")]).await.unwrap();
    assert!(matches!(&prompt.messages[0].content, PromptContent::Text(text) if text == "I am ada"), "{prompt:?}");
    assert_eq!(bound.complete(CompletionArgument::for_prompt("who", "a", "")).await.unwrap().values, ["ada"]);
    let custom = bound.custom_request("example/whoami", json!({"x": 1}), CallOptions::new()).await.unwrap();
    assert_eq!((&custom["user"], &custom["params"]["x"]), (&json!("ada"), &json!(1)));
    server.close_idle_sessions().await;
    let seen = get(&listening, "/seen").await;
    let methods: Vec<&str> = seen.as_array().unwrap().iter().map(|seen| seen["method"].as_str().unwrap()).collect();
    for method in
        ["server/discover", "initialize", "notifications/initialized", "tools/list", "resources/read", "DELETE"]
    {
        assert!(methods.contains(&method), "{method} is not in {methods:?}");
    }
    assert!(seen.as_array().unwrap().iter().all(|seen| seen["authorization"] == "Bearer ada"), "{seen}");
    // Without a token the server does not answer at all.
    assert!(matches!(server.list_tools().await, Err(belljar_mcp_client::McpError::Unauthorized { .. })));
}

#[tokio::test]
async fn users_share_neither_session_nor_lists() {
    let listening = listening();
    let server = server(&listening).build();
    let (ada, bob) = (run("ada"), run("bob"));
    let (ours, theirs) = tokio::join!(tool_names(&server, &ada), tool_names(&server, &bob));
    assert_eq!(ours, ["note", "look", "adas_tool"]);
    assert_eq!(theirs, ["note", "look", "bobs_tool"]);
    assert_eq!(note(&server, &ada, "one").await, "one");
    assert_eq!(note(&server, &bob, "two").await, "two");
    // The session of a user outlives the calls, without a guard.
    assert_eq!(note(&server, &ada, "three").await, "one, three");
    sessions_are(&listening, &["ada", "bob"]).await;
    assert!(server.for_run(&ada).is_running() && !server.is_running());
    assert!(!server.for_run(&run("eve")).is_running());
    server.close_idle_sessions().await;
    sessions_are(&listening, &[]).await;
    assert!(!server.for_run(&ada).is_running());
}

#[tokio::test]
async fn named_identity_keeps_its_session_when_its_token_is_renewed() {
    let listening = listening();
    let server = server(&listening).build();
    let ada = |token: &str| run(token).identity("ada");
    assert_eq!(note(&server, &ada("ada-1"), "one").await, "one");
    assert_eq!(note(&server, &ada("ada-2"), "two").await, "one, two");
    let plain = run("ada-2").request_header("x-request-id", "7").unwrap();
    // Without the name the headers are the identity, and it has a session of its own.
    assert_eq!(note(&server, &plain, "three").await, "three");
    assert_eq!(note(&server, &run("ada-2").request_header("x-request-id", "8").unwrap(), "four").await, "three, four");
    server.close_idle_sessions().await;
    let seen = get(&listening, "/seen").await;
    let last = seen.as_array().unwrap().iter().filter(|seen| seen["method"] == "DELETE");
    assert!(last.clone().count() == 2 && last.clone().all(|seen| seen["authorization"] == "Bearer ada-2"), "{seen}");
    let calls: Vec<&Value> = seen.as_array().unwrap().iter().filter(|seen| seen["x-request-id"] == "8").collect();
    assert!(calls.iter().any(|seen| seen["name"] == "note"), "{seen}");
    assert!(calls.iter().all(|seen| seen["method"] != "initialize"), "{seen}");
}

#[tokio::test]
async fn idle_sessions_are_closed_after_their_time() {
    let listening = listening();
    let server = server(&listening).identity_idle_time(Duration::from_millis(50)).build();
    let guard = server.for_run(&run("bob")).connect().await.unwrap();
    note(&server, &run("ada"), "one").await;
    sessions_are(&listening, &["bob"]).await;
    // A session in use is not idle.
    assert!(guard.is_running());
    drop(guard);
    sessions_are(&listening, &[]).await;
}

#[tokio::test]
async fn idle_sessions_are_bounded_and_the_oldest_is_closed() {
    let listening = listening();
    let server = server(&listening).max_idle_identities(2).build();
    for user in ["a", "b", "c", "d"] {
        note(&server, &run(user), "x").await;
    }
    // The one that was used last counts as in use while it is opened.
    note(&server, &run("d"), "x").await;
    eventually("the first are closed", || !server.for_run(&run("a")).is_running()).await;
    assert!(server.for_run(&run("c")).is_running() && server.for_run(&run("d")).is_running());
    // Without an idle time none is kept.
    let server = self::server(&listening).identity_idle_time(Duration::ZERO).build();
    note(&server, &run("zoe"), "x").await;
    assert!(!server.for_run(&run("zoe")).is_running());
}

#[tokio::test]
async fn identity_that_cannot_connect_leaves_nothing_behind() {
    let listening = listening();
    let server = server(&listening).build();
    let anonymous = RunContext::new().header("x-user", "anonymous").unwrap();
    for _ in 0..2 {
        let error = server.tools(&anonymous).await.unwrap_err();
        assert!(matches!(error, belljar_mcp_client::McpError::Unauthorized { .. }), "{error:?}");
    }
    assert!(!server.for_run(&anonymous).is_running());
}

#[tokio::test]
async fn children_are_separate_only_for_named_identities() {
    let server = faulty("none").build();
    let process = async |run: RunContext| {
        let outcome = server.call(&run, "process_id", Map::new()).await.unwrap();
        output(outcome).to_text()
    };
    let running = server.connect().await.unwrap();
    let own = process(RunContext::new()).await;
    assert_eq!(process(run("a token")).await, own);
    let ada = process(RunContext::new().identity("ada")).await;
    assert_ne!(ada, own);
    assert_eq!(process(RunContext::new().identity("ada").bearer_token("x").unwrap()).await, ada);
    server.close_idle_sessions().await;
    assert_ne!(process(RunContext::new().identity("ada")).await, ada);
    server.close_idle_sessions().await;
    running.close().await.unwrap();
}

#[tokio::test]
async fn handles_of_different_identities_are_not_equal() {
    let server = McpServerStreamableHttp::new("http://localhost:1/mcp").unwrap().build();
    assert_eq!(server.for_run(&run("ada")), server.for_run(&run("ada")));
    assert_ne!(server.for_run(&run("ada")), server.for_run(&run("bob")));
    assert_ne!(server.for_run(&run("ada")), server);
    assert_eq!(server.for_run(&RunContext::new()), server);
    // A run without an identity keeps that of the handle.
    let ada = server.for_run(&run("ada"));
    assert_eq!(ada.for_run(&RunContext::new().traceparent("00-1-2-01")), ada);
    let shown = format!("{:?} {:?}", ada, run("hunter2"));
    assert!(!shown.contains("hunter2") && !shown.contains("Bearer"), "{shown}");
}

//! The runner of an agent's tools: names, arguments, retries, concurrency, approval, and servers that fail.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};

use belljar_mcp_client::{
    Approval, ApprovalRequest, CombinedToolset, DeferredAnswer, DeferredAnswers, DeferredCalls, ExternalToolset,
    FunctionToolset, McpError, McpServerStreamableHttp, NeedsApproval, ProtocolEra, RetryLimitBehavior, RetryReason,
    RunContext, ToolCall, ToolDefinition, ToolErrorBehavior, ToolOutcome, ToolOutput, ToolReturn, ToolRunner, Toolset,
    ToolsetExt,
};
use serde_json::{Map, Value, json};

use crate::harness::{TestServer, everything, faulty, script};

fn call(name: &str, arguments: Value) -> ToolCall {
    ToolCall::new(format!("id of {name}"), name, arguments)
}

/// Returns the reason of the retry.
#[track_caller]
fn reason(result: &ToolReturn) -> RetryReason {
    match &result.outcome {
        ToolOutcome::Retry(retry) => retry.reason,
        other => panic!("no retry: {other:?}"),
    }
}

#[tokio::test]
async fn mistakes_of_the_model_are_retries_and_never_reach_the_server() {
    let run = RunContext::new();
    let runner = ToolRunner::new(everything().build()).max_retries(5);
    let connections = runner.enter(&run).await.unwrap();
    let step = runner.step(&run).await.unwrap();
    let results = step
        .call_all([
            call("made-up", json!({})),
            call("get-sum", json!({"a": "two", "b": 3})),
            ToolCall::from_text("3", "get-sum", "{\"a\": 2, "),
            ToolCall::from_text("4", "get-sum", "{\"a\": 2, \"b\": 3}"),
        ])
        .await
        .unwrap();
    let messages: Vec<String> = results.iter().map(|result| result.message().text()).collect();
    assert_eq!(reason(&results[0]), RetryReason::UnknownTool);
    assert!(messages[0].contains("`get-sum`"), "{messages:?}");
    assert_eq!(
        (reason(&results[1]), reason(&results[2])),
        (RetryReason::InvalidArguments, RetryReason::InvalidArguments)
    );
    assert!(messages[1].contains("/a") && messages[2].contains("invalid JSON"), "{messages:?}");
    assert_eq!((messages[3].as_str(), results[3].id.as_str()), ("The sum of 2 and 3 is 5.", "4"));
    assert!(results[3].outcome.raw().is_some());
    connections.close().await.unwrap();
}

#[tokio::test]
async fn failures_of_servers_are_retries_unless_they_are_errors_by_choice() {
    let run = RunContext::new();
    let listening = TestServer::start("python3", &["-u", &script("faulty_http_server.py")]);
    let http = |fault: &str| {
        let url = listening.url(&format!("/acts/{fault}"));
        McpServerStreamableHttp::new(url).unwrap().era(ProtocolEra::Legacy)
    };
    let busy: [Arc<dyn Toolset>; 5] = [
        Arc::new(http("429").build()),
        Arc::new(http("503").build()),
        Arc::new(http("dies").build().filtered(|_: &RunContext, _: &ToolDefinition| true).prefixed("p")),
        Arc::new(faulty("dies").build()),
        Arc::new(faulty("bad_base64").build()),
    ];
    for toolset in busy {
        let runner = ToolRunner::new(toolset);
        let connections = runner.enter(&run).await.unwrap();
        let step = runner.step(&run).await.unwrap();
        let name = step.tools()[0].name.clone();
        let result = step.call(&call(&name, json!({}))).await.unwrap();
        assert!(reason(&result).is_temporary(), "{result:?}");
        assert!(result.message().is_error && result.message().text().contains("Try again later"), "{result:?}");
        connections.close().await.unwrap();
    }
    for server in [
        http("503").tool_error_behavior(ToolErrorBehavior::Error).build(),
        faulty("dies").tool_error_behavior(ToolErrorBehavior::Error).build(),
    ] {
        let _running = server.connect().await.unwrap();
        let error = server.call(&run, "act", Map::new()).await.unwrap_err();
        assert!(error.is_connection_loss(), "{error:?}");
    }
    // A server that cannot be reached at all is a retry of the call, but an error of the list.
    let gone = McpServerStreamableHttp::new("http://127.0.0.1:1/mcp").unwrap().build();
    let outcome = gone.call(&run, "act", Map::new()).await.unwrap();
    assert!(matches!(&outcome, ToolOutcome::Retry(retry) if retry.reason == RetryReason::Unavailable), "{outcome:?}");
    gone.tools(&run).await.unwrap_err();
    // A program that does not exist and a missing authorization concern the program.
    let missing = belljar_mcp_client::McpServerStdio::new("no-such-program").build();
    let error = missing.call(&run, "act", Map::new()).await.unwrap_err();
    assert!(matches!(error, McpError::Spawn { .. }), "{error:?}");
    let private = McpServerStreamableHttp::new(listening.url("/private")).unwrap().build();
    let error = private.call(&run, "act", Map::new()).await.unwrap_err();
    assert!(matches!(error, McpError::Unauthorized { .. }), "{error:?}");
}

#[tokio::test]
async fn links_that_cannot_be_read_stay_links_and_the_whole_result_is_kept() {
    let server = faulty("links").build();
    let _running = server.connect().await.unwrap();
    let outcome = server.call(&RunContext::new(), "act", Map::new()).await.unwrap();
    let link = |uri: &str| ToolOutput::Text(uri.to_owned());
    assert_eq!(outcome.output(), Some(&ToolOutput::List(vec![link("https://example.org/x"), link("mem://no")])));
    let raw = outcome.raw().unwrap();
    assert_eq!(raw.structured_content, Some(json!({"a": 1})));
    assert_eq!(raw.meta.as_ref().unwrap().0["trace"], "abc");
}

#[tokio::test]
async fn calls_of_a_step_run_at_once_and_keep_their_order() {
    let run = RunContext::new();
    let runner = ToolRunner::new(faulty("waits_for_peer").build());
    let connections = runner.enter(&run).await.unwrap();
    let step = runner.step(&run).await.unwrap();
    // The server answers only when both calls have arrived, the second one first.
    let calls = ["one", "two"].map(|name| ToolCall::new(name, "act", json!({"name": name})));
    let results = step.call_all(calls).await.unwrap();
    let texts: Vec<String> = results.iter().map(|result| result.message().text()).collect();
    assert_eq!(texts, ["one", "two"]);
    connections.close().await.unwrap();
}

/// Returns a toolset that notes the number of earlier failures at each call of its tool, which fails if `fail` is set.
fn flaky(seen: Arc<Mutex<Vec<u32>>>) -> FunctionToolset {
    let definition = ToolDefinition::new("flaky", json!({"type": "object"}));
    FunctionToolset::new("flaky").tool(definition, move |run: RunContext, arguments: Map<String, Value>| {
        seen.lock().unwrap().push(run.retry);
        let fails = arguments.contains_key("fail");
        async move { Ok(if fails { ToolOutcome::retry("no") } else { "yes".into() }) }
    })
}

#[tokio::test]
async fn retries_are_limited_per_tool() {
    let run = RunContext::new();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let runner = ToolRunner::new(flaky(seen.clone())).max_retries(1).concurrent_calls(NonZeroUsize::MIN);
    let step = runner.step(&run).await.unwrap();
    let (good, bad) = (call("flaky", json!({})), call("flaky", json!({"fail": true})));
    let results = step.call_all([&bad, &good, &bad, &bad, &good].map(Clone::clone)).await.unwrap();
    let kinds: Vec<&str> = results
        .iter()
        .map(|result| match &result.outcome {
            ToolOutcome::Retry(_) => "retry",
            ToolOutcome::Output(_) => "output",
            ToolOutcome::Failed(_) => "failed",
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(kinds, ["retry", "output", "retry", "failed", "failed"]);
    // The last call was not made.
    assert_eq!(*seen.lock().unwrap(), [0, 1, 0, 1]);

    let own = FunctionToolset::new("own").tool(
        {
            let mut tool = ToolDefinition::new("t", json!({}));
            tool.max_retries = Some(0);
            tool
        },
        async |_: RunContext, _: Map<String, Value>| Ok(ToolOutcome::retry("no")),
    );
    let strict = ToolRunner::new(own).max_retries(9).retry_limit(RetryLimitBehavior::Error);
    let error = strict.step(&run).await.unwrap().call(&call("t", json!({}))).await.unwrap_err();
    assert!(matches!(error, McpError::RetriesExhausted { failures: 1, .. }), "{error:?}");
}

#[tokio::test]
async fn deferred_calls_are_stored_and_resumed_with_the_answers() {
    let run = RunContext::new();
    let external = ExternalToolset::new("browser", [ToolDefinition::new("location", json!({"type": "object"}))]);
    let toolset = || {
        let server = faulty("annotated").build().approval_required(NeedsApproval::Writes);
        CombinedToolset::new().with(server).with(external.clone())
    };
    let calls: Vec<ToolCall> =
        ["read", "append", "delete", "unannotated", "location"].map(|name| call(name, json!({}))).into();
    let runner = ToolRunner::new(toolset());
    let results = runner.step(&run).await.unwrap().call_all(calls.clone()).await.unwrap();
    assert_eq!(results[0].message().text(), "fine");
    let deferred = DeferredCalls::of(&calls, &results);
    let stored = serde_json::to_string(&deferred).unwrap();
    drop(runner);

    // Another process goes on.
    let deferred: DeferredCalls = serde_json::from_str(&stored).unwrap();
    let waiting: Vec<&str> = deferred.calls.iter().map(|waiting| waiting.call.name.as_str()).collect();
    assert_eq!(waiting, ["append", "delete", "unannotated", "location"]);
    let runner = ToolRunner::new(toolset());
    let step = runner.step(&run).await.unwrap();
    let answers = DeferredAnswers::new()
        .approve("id of append")
        .deny("id of delete", "keep it")
        .answer("id of location", DeferredAnswer::Result(json!({"lat": 1})));
    let results = step.resume(&deferred, answers).await.unwrap();
    let texts: Vec<String> = results.iter().map(|result| result.message().text()).collect();
    assert_eq!(texts[..2], ["fine", "The call was denied: keep it"]);
    assert!(matches!(results[2].outcome, ToolOutcome::Deferred(_)), "{results:?}");
    assert_eq!(results[3].outcome, ToolOutcome::json(json!({"lat": 1})));
    let rest = DeferredCalls::of(&calls, &results);
    assert_eq!(rest.calls.len(), 1);
    let error = step.resume(&rest, DeferredAnswers::new().approve("another")).await.unwrap_err();
    assert!(matches!(error, McpError::Config(_)), "{error:?}");
}

#[tokio::test]
async fn approver_of_the_runner_decides_on_deferred_calls() {
    let run = RunContext::new();
    let server = faulty("annotated").build().approval_required(NeedsApproval::Writes);
    let runner = ToolRunner::new(server).approver(async |request: ApprovalRequest| {
        if request.definition.may_destroy() { Approval::Deny("no".to_owned()) } else { Approval::Allow }
    });
    let step = runner.step(&run).await.unwrap();
    let results = step.call_all(["append", "delete"].map(|name| call(name, json!({})))).await.unwrap();
    assert_eq!(results[0].message().text(), "fine");
    assert_eq!(results[1].outcome, ToolOutcome::Denied("no".to_owned()));
}

//! Combinators of toolsets, and an agent that uses them.

use std::sync::{Arc, Mutex};

use belljar_client::{
    Approval, ApprovalRequest, CombinedToolset, McpError, RunContext, ToolDefinition, ToolErrorBehavior, ToolOutcome,
    Toolset, ToolsetExt,
};
use serde_json::{Map, json};

use crate::harness::{everything, faulty, output, results};

async fn names(toolset: &dyn Toolset) -> Vec<String> {
    toolset.tools(&RunContext::new()).await.unwrap().into_iter().map(|tool| tool.name).collect()
}

async fn call(toolset: &dyn Toolset, name: &str) -> Result<ToolOutcome, McpError> {
    toolset.call(&RunContext::new(), name, Map::new()).await
}

#[tokio::test]
async fn toolsets_are_prefixed_filtered_renamed_and_prepared() {
    let server = faulty("none").build();
    let _running = server.connect().await.unwrap();
    let toolset = server
        .filtered(|_: &RunContext, tool: &ToolDefinition| tool.name != "act")
        .renamed([("fine", "good")])
        .prepared(|_: &RunContext, tools: Vec<ToolDefinition>| {
            tools.into_iter().map(|tool| tool.with_description("does well")).collect()
        })
        .prefixed("x");
    assert_eq!(names(&toolset).await, ["x_good"]);
    assert_eq!(toolset.tools(&RunContext::new()).await.unwrap()[0].description.as_deref(), Some("does well"));
    assert_eq!(call(&toolset, "x_good").await.unwrap().to_text(), "fine");
    for hidden in ["x_act", "x_fine", "good", "act"] {
        let error = call(&toolset, hidden).await.unwrap_err();
        assert!(matches!(error, McpError::UnknownTool { .. }), "{hidden}: {error:?}");
    }
    assert!(call(&toolset, "no").await.unwrap_err().to_string().contains("`x_good`"));
}

#[tokio::test]
async fn name_clash_of_toolsets_is_an_error_with_a_hint() {
    let both = CombinedToolset::new().with(faulty("none").id("one").build()).with(faulty("none").id("two").build());
    let error = both.tools(&RunContext::new()).await.unwrap_err();
    let (text, hint) = (error.to_string(), error.hint().unwrap());
    assert!(matches!(error, McpError::NameClash { .. }), "{error:?}");
    assert!(text.contains("one") && text.contains("two"), "{text}");
    assert!(hint.contains("tool_prefix"), "{hint}");

    let both = CombinedToolset::new()
        .with(faulty("none").tool_prefix("one").build())
        .with(faulty("none").build().prefixed("two"));
    let guard = both.enter().await.unwrap();
    assert_eq!(names(&both).await, ["one_act", "one_fine", "two_act", "two_fine"]);
    assert_eq!(call(&both, "two_fine").await.unwrap().to_text(), "fine");
    assert!(matches!(call(&both, "fine").await.unwrap_err(), McpError::UnknownTool { .. }));
    guard.close().await.unwrap();
}

#[tokio::test]
async fn calls_wait_for_approval() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = asked.clone();
    let toolset = faulty("none").build().approved(move |request: ApprovalRequest| {
        log.lock().unwrap().push(request.name.clone());
        async move {
            match request.name.as_str() {
                "act" => Approval::Deny("too risky".to_owned()),
                "received" => Approval::AllowWith(Map::from_iter([("safe".to_owned(), json!(true))])),
                _ => Approval::Allow,
            }
        }
    });
    let guard = toolset.enter().await.unwrap();
    assert_eq!(call(&toolset, "act").await.unwrap(), ToolOutcome::Denied("too risky".to_owned()));
    assert_eq!(call(&toolset, "fine").await.unwrap().to_text(), "fine");
    let received = output(call(&toolset, "received").await.unwrap());
    assert_eq!(received.as_json().unwrap()["arguments"], json!({"safe": true}));
    assert_eq!(*asked.lock().unwrap(), ["act", "fine", "received"]);
    guard.close().await.unwrap();
}

#[tokio::test]
async fn tool_failures_follow_the_configured_behavior() {
    let server = results().tool_error_behavior(ToolErrorBehavior::Error).build();
    let _running = server.connect().await.unwrap();
    let error = server.direct_call_tool("error", json!({})).await.unwrap_err();
    assert!(matches!(&error, McpError::ToolFailed { message, .. } if message == "went wrong"), "{error:?}");
    let error = server.direct_call_tool("protocol_error_params", json!({})).await.unwrap_err();
    let McpError::Protocol { code, data, .. } = error else { panic!("{error:?}") };
    assert_eq!((code, data), (-32602, Some(json!({"why": "x"}))));

    let server = results().tool_error_behavior(ToolErrorBehavior::Failed).build();
    let _running = server.connect().await.unwrap();
    let outcome = server.direct_call_tool("error", json!({})).await.unwrap();
    assert_eq!(outcome, ToolOutcome::Failed("went wrong".to_owned()));
    // Protocol errors remain retries.
    let outcome = server.direct_call_tool("protocol_error_params", json!({})).await.unwrap();
    assert!(matches!(outcome, ToolOutcome::Retry(_)), "{outcome:?}");
}

#[tokio::test]
async fn models_see_only_enabled_tools() {
    let server = faulty("none").tool_prefix("p").enabled_tools(["fine", "act"]).disabled_tools(["act"]).build();
    let _running = server.connect().await.unwrap();
    assert_eq!(names(&server).await, ["p_fine"]);
    assert_eq!(call(&server, "p_fine").await.unwrap().to_text(), "fine");
    for hidden in ["p_act", "p_received"] {
        let error = call(&server, hidden).await.unwrap_err();
        assert!(matches!(error, McpError::UnknownTool { .. }) && error.to_string().contains("`p_fine`"), "{error:?}");
    }
    // The program itself may still call it.
    assert_eq!(server.direct_call_tool("act", json!({})).await.unwrap().to_text(), "done");
}

#[tokio::test]
async fn definitions_carry_schemas_annotations_and_settings() {
    let server = everything().max_retries(4).include_return_schema(true).include_instructions(true).build();
    let _running = server.connect().await.unwrap();
    let run = RunContext::new();
    let tools = server.tools(&run).await.unwrap();
    let weather = tools.iter().find(|tool| tool.name == "get-structured-content").unwrap();
    assert_eq!((weather.max_retries, weather.include_return_schema), (4, Some(true)));
    assert!(weather.input_schema["properties"]["location"].is_object() && weather.output_schema.is_some());
    assert!(weather.annotations.is_some() && weather.title.is_some());
    assert!(server.instructions(&run).await.unwrap().is_some());
    assert!(everything().build().instructions(&run).await.unwrap().is_none());
}

#[expect(dead_code, reason = "the example's own `main`")]
#[path = "../../examples/agent.rs"]
mod agent;

#[tokio::test]
async fn example_agent_corrects_its_call_and_answers() {
    let answer = agent::run(agent::simulate, &everything().build(), "What is two and three?").await.unwrap();
    assert_eq!(answer, "The sum of 2 and 3 is 5.");
    let stubborn: agent::Decide = |_, _| agent::Decision::Call("get-sum".to_owned(), Map::new());
    let answer = agent::run(stubborn, &everything().build(), "").await.unwrap();
    assert!(answer.starts_with("gave up on get-sum"), "{answer}");
}

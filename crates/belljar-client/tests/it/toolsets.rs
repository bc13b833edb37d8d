//! Combinators of toolsets, and an agent that uses them.

use std::sync::{Arc, Mutex};

use belljar_mcp_client::{
    Approval, ApprovalRequest, CombinedToolset, ConfigError, FunctionToolset, McpError, NeedsApproval, RetryReason,
    RunContext, ToolCall, ToolDefinition, ToolErrorBehavior, ToolOutcome, ToolRunner, Toolset, ToolsetExt,
};
use serde_json::{Map, json};

use crate::harness::{everything, faulty, output, results};

async fn names(toolset: &dyn Toolset) -> Vec<String> {
    toolset.tools(&RunContext::new()).await.unwrap().names().map(str::to_owned).collect()
}

/// Checks that the outcome is the retry for a tool that does not exist, and that it names this tool.
#[track_caller]
fn assert_unknown(outcome: Result<ToolOutcome, McpError>, known: &str) {
    let outcome = outcome.unwrap();
    let ToolOutcome::Retry(retry) = &outcome else { panic!("{outcome:?}") };
    assert_eq!(retry.reason, RetryReason::UnknownTool, "{retry:?}");
    assert!(retry.message.contains(&format!("`{known}`")), "{retry:?}");
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
    for hidden in ["x_act", "x_fine", "good", "act", "no"] {
        assert_unknown(call(&toolset, hidden).await, "x_good");
    }
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
    assert_unknown(call(&both, "fine").await, "two_fine");
    assert_unknown(call(&both, "one_no").await, "one_fine");
    guard.close().await.unwrap();
}

#[tokio::test]
async fn calls_wait_for_approval() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = asked.clone();
    let toolset = faulty("lists_all").build().approved(move |request: ApprovalRequest| {
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
    assert!(matches!(&outcome, ToolOutcome::Failed(failure) if failure.message == "went wrong"), "{outcome:?}");
    assert_eq!(outcome.raw().unwrap().is_error, Some(true));
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
    for hidden in ["p_act", "p_received", "fine"] {
        assert_unknown(call(&server, hidden).await, "p_fine");
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
    assert_eq!((weather.max_retries, weather.include_return_schema), (Some(4), Some(true)));
    assert!(weather.input_schema["properties"]["location"].is_object() && weather.output_schema.is_some());
    assert!(weather.annotations.is_some() && weather.title.is_some());
    assert!(server.instructions(&run).await.unwrap().is_some());
    assert!(everything().build().instructions(&run).await.unwrap().is_none());
}

#[tokio::test]
async fn instructions_of_nested_toolsets_reach_the_model() {
    let server = everything().include_instructions(true).build();
    let _running = server.connect().await.unwrap();
    let run = RunContext::new();
    let expected = server.instructions(&run).await.unwrap().unwrap();
    assert!(expected.contains("Everything"), "{expected}");
    let nested: [Arc<dyn Toolset>; 10] = [
        Arc::new(server.clone().prefixed("x")),
        Arc::new(server.clone().filtered(|_: &RunContext, tool: &ToolDefinition| tool.name == "echo")),
        Arc::new(
            server
                .clone()
                .filtered_async(|_: RunContext, tool: Arc<ToolDefinition>| async move { Ok(tool.name == "echo") }),
        ),
        Arc::new(server.clone().renamed([("echo", "say")])),
        Arc::new(server.clone().prepared(|_: &RunContext, tools: Vec<ToolDefinition>| tools)),
        Arc::new(server.clone().prepared_async(|_: RunContext, tools: Vec<ToolDefinition>| async move { Ok(tools) })),
        Arc::new(server.clone().approval_required(NeedsApproval::Always)),
        Arc::new(server.clone().searchable()),
        Arc::new(server.clone().with_result_budget(1000)),
        Arc::new(server.clone().read_only().prefixed("x").searchable().with_result_budget(1000)),
    ];
    for (position, toolset) in nested.iter().enumerate() {
        let instructions = toolset.instructions(&run).await.unwrap();
        assert_eq!(instructions.as_deref(), Some(expected.as_str()), "toolset {position}");
    }
    // Those of several toolsets are paragraphs; a toolset without any adds none.
    let notes = FunctionToolset::new("notes").with_instructions("Write a note of what you do.");
    let silent = faulty("none").tool_prefix("silent").build();
    let all = CombinedToolset::new().with(silent).with(server.prefixed("x")).with(notes);
    let runner = ToolRunner::new(CombinedToolset::new().with(all).searchable());
    let step = runner.step(&run).await.unwrap();
    assert_eq!(step.instructions(), Some(format!("{expected}\n\nWrite a note of what you do.").as_str()));
}

#[expect(dead_code, reason = "the example's own `main`")]
#[path = "../../examples/agent.rs"]
mod agent;

#[tokio::test]
async fn example_agent_corrects_its_call_and_answers() {
    let answer = agent::run(agent::simulate, everything().build(), "What is two and three?").await.unwrap();
    assert_eq!(answer, "The sum of 2 and 3 is 5.");
    let stubborn: agent::Decide = |_, _| agent::Decision::Call(vec![ToolCall::new("1", "get-sum", json!({}))]);
    let answer = agent::run(stubborn, everything().build(), "").await.unwrap();
    assert!(answer.starts_with("gave up") && answer.contains("Do not call it again"), "{answer}");
}

#[tokio::test]
async fn prepared_tools_can_be_removed_but_not_added_or_renamed() {
    let server = faulty("none").build();
    let _running = server.connect().await.unwrap();
    let without_act = |_: &RunContext, tools: Vec<ToolDefinition>| -> Vec<ToolDefinition> {
        tools.into_iter().filter(|tool| tool.name != "act").collect()
    };
    for toolset in [
        &server.clone().prepared(without_act) as &dyn Toolset,
        &server.clone().prepared_async(move |run: RunContext, tools| async move { Ok(without_act(&run, tools)) }),
        &server
            .clone()
            .filtered_async(|_: RunContext, tool: Arc<ToolDefinition>| async move { Ok(tool.name == "fine") }),
    ] {
        assert_eq!(names(toolset).await, ["fine"]);
        assert_unknown(call(toolset, "act").await, "fine");
        assert_eq!(call(toolset, "fine").await.unwrap().to_text(), "fine");
    }
    let renaming = server.clone().prepared(|_: &RunContext, mut tools: Vec<ToolDefinition>| {
        tools[0].name = "new".to_owned();
        tools
    });
    let doubling =
        server.clone().prepared(|_: &RunContext, tools: Vec<ToolDefinition>| [tools.clone(), tools].concat());
    for (toolset, name) in [(&renaming as &dyn Toolset, "new"), (&doubling, "act")] {
        let error = toolset.tools(&RunContext::new()).await.unwrap_err();
        assert!(
            matches!(&error, McpError::Config(ConfigError::PreparedTool { name: of, .. }) if of == name),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn renaming_refuses_clashes_and_unknown_names() {
    let server = faulty("none").id("the server").build();
    let _running = server.connect().await.unwrap();
    let error = server.clone().renamed([("fine", "act")]).tools(&RunContext::new()).await.unwrap_err();
    assert!(matches!(error, McpError::Config(ConfigError::RenameClash { .. })), "{error:?}");
    // The pairs are the other way round in Python.
    let error = server.clone().renamed([("good", "fine")]).tools(&RunContext::new()).await.unwrap_err();
    assert!(error.to_string().contains("`good`") && error.to_string().contains("the server"), "{error}");
    assert!(error.hint().unwrap().contains("(\"fine\", \"good\")"), "{:?}", error.hint());
    // Two tools can swap their names.
    let swapped = server.renamed([("fine", "act"), ("act", "fine")]);
    assert_eq!(names(&swapped).await, ["fine", "act"]);
    assert_eq!(call(&swapped, "act").await.unwrap().to_text(), "fine");
}

#[tokio::test]
async fn list_is_the_same_until_the_tools_change() {
    let server = faulty("none").build();
    let _running = server.connect().await.unwrap();
    let run = RunContext::new();
    let toolset = CombinedToolset::new().with(
        server
            .filtered(|_: &RunContext, tool: &ToolDefinition| tool.name != "act")
            .renamed([("fine", "good")])
            .prefixed("x"),
    );
    let tools = toolset.tools(&run).await.unwrap();
    assert!(toolset.tools(&run).await.unwrap().is_same(&tools));
}

#[tokio::test]
async fn approval_depends_on_annotations_and_arguments() {
    let server = faulty("annotated").build();
    let _running = server.connect().await.unwrap();
    assert_eq!(names(&server.clone().read_only()).await, ["read"]);
    let denied = async |toolset: &dyn Toolset| {
        let mut denied = Vec::new();
        for name in ["read", "append", "delete", "unannotated"] {
            if matches!(call(toolset, name).await.unwrap(), ToolOutcome::Denied(_)) {
                denied.push(name);
            }
        }
        denied
    };
    let deny = async |request: ApprovalRequest| {
        assert_eq!(request.definition.name, request.name);
        Approval::Deny("no".to_owned())
    };
    let writes = server.clone().approved_if(NeedsApproval::Writes, deny);
    assert_eq!(denied(&writes).await, ["append", "delete", "unannotated"]);
    let destructive = server.clone().approved_if(NeedsApproval::Destructive, deny);
    assert_eq!(denied(&destructive).await, ["delete", "unannotated"]);
    let some = NeedsApproval::of(|_, tool, arguments| tool.name == "append" && arguments.contains_key("force"));
    let some = server.clone().approved_if(some, deny);
    assert_eq!(denied(&some).await, [""; 0]);
    let force = Map::from_iter([("force".to_owned(), json!(true))]);
    let outcome = some.call(&RunContext::new(), "append", force).await.unwrap();
    assert_eq!(outcome, ToolOutcome::Denied("no".to_owned()));
    // A tool that the server does not list has no definition that could be approved.
    assert_unknown(call(&writes, "received").await, "read");
}

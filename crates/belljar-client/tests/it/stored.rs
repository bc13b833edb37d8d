//! Public data survives JSON, so that programs can store it and send it to other programs.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use belljar_mcp_client::{
    Approval, ApprovalRequest, Binary, CallOptions, ConfigError, Deferral, DeferralKind, McpError, NeedsApproval, Role,
    RunContext, ToolCall, ToolDefinition, ToolOutcome, ToolOutput, ToolReturn, ToolRunner, ToolsetExt,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::harness::{everything, faulty, output};

#[track_caller]
fn survives<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) {
    let stored = serde_json::to_string(value).unwrap();
    assert_eq!(&serde_json::from_str::<T>(&stored).unwrap(), value, "{stored}");
}

#[test]
fn outcomes_survive() {
    let call = ToolCall::new("c1", "plot", json!({"b": 1, "a": [2]}));
    survives(&call);
    let output = ToolOutput::List(vec![
        ToolOutput::Text("two".into()),
        ToolOutput::Json(json!({"z": null})),
        ToolOutput::Binary(Binary::new(vec![0, 255], "image/png")),
    ]);
    let deferral = Deferral::new(DeferralKind::Approval).with_metadata("risk", json!("high"));
    let outcomes = [
        ToolOutcome::from(output),
        ToolOutcome::retry("no such city"),
        ToolOutcome::failed("out of paper"),
        ToolOutcome::Denied("not today".into()),
        ToolOutcome::Deferred(deferral),
    ];
    for outcome in outcomes {
        let result = ToolReturn::new(&call, outcome);
        survives(&result);
        survives(&result.message());
    }
}

#[test]
fn requests_of_servers_and_settings_survive() {
    use belljar_mcp_client::adapters::provider::Provider;
    use belljar_mcp_client::{
        CompletionArgument, Elicitation, ElicitationResponse, LogLevel, Progress, ProtocolEra, ReconnectPolicy,
        RequestOrigin, RestartPolicy, ResultMapping, RetryLimitBehavior, RetryPolicy, Root, SamplingContent,
        SamplingMessage, SamplingRequest, SamplingResponse, StopReason, ToolChoice, ToolErrorBehavior, ToolIndex,
        ToolList,
    };

    let form: Elicitation = serde_json::from_value(json!({
        "form": {"message": "Name?", "schema": {"type": "object"}, "origin": {"server": "files"}}
    }))
    .unwrap();
    assert_eq!(form, Elicitation::form("Name?", json!({"type": "object"}), RequestOrigin::new("files")));
    survives(&form);
    survives(&Elicitation::url("Log in.", "https://example.org/login", "e1", RequestOrigin::new("files")));
    survives(&ElicitationResponse::Accept(json!({"name": "Ada"}).as_object().cloned()));
    survives(&Root::new("file:///home").named("home"));
    survives(&Progress::new(1.0, None, Some("half".into())));
    let image = SamplingContent::Image(Binary::new(vec![1], "image/png"));
    let call = SamplingContent::ToolUse { id: "c".into(), name: "t".into(), input: Default::default() };
    let result = SamplingContent::ToolResult { id: "c".into(), content: vec![image.clone()], is_error: true };
    survives(&SamplingMessage::new(Role::Assistant, vec![image, call, result]));
    survives(&SamplingRequest::default());
    let request: SamplingRequest = serde_json::from_value(json!({"max_tokens": 5, "tool_choice": "required"})).unwrap();
    assert_eq!((request.max_tokens, request.tool_choice), (5, ToolChoice::Required));
    let mut response = SamplingResponse::text("yes");
    response.stop_reason = StopReason::Other("refusal".into());
    survives(&response);
    survives(&CompletionArgument::for_prompt("p", "city", "Par").with_context("country", "France"));
    survives(&ReconnectPolicy::never());
    survives(&RestartPolicy::new(3));
    survives(&RetryPolicy::new(3));
    let names = serde_json::to_value((
        (LogLevel::Warning, ProtocolEra::Auto, ToolErrorBehavior::Failed),
        (ResultMapping::PydanticAi2, RetryLimitBehavior::Fail, Provider::OpenAiChat),
    ));
    assert_eq!(names.unwrap(), json!([["warning", "auto", "failed"], ["pydantic_ai2", "fail", "openai_chat"]]));
    let tools = ToolList::from(vec![ToolDefinition::new("z", json!({})), ToolDefinition::new("a", json!({}))]);
    survives(&tools);
    survives(&ToolIndex::new(&tools).search("z", 1));
}

#[test]
fn definitions_survive() {
    survives(&ToolDefinition::new("now", json!({"type": "object"})).with_description("The time."));
    let bare: ToolDefinition = serde_json::from_value(json!({"name": "now", "input_schema": {}})).unwrap();
    assert_eq!(bare, ToolDefinition::new("now", json!({})));
}

#[tokio::test]
async fn requests_for_approval_survive_without_credentials() {
    let (stored, run) = (Arc::new(Mutex::new(Vec::new())), RunContext::new().deps("the user".to_owned()));
    let run = run.bearer_token("hunter2").unwrap().metadata("trace", json!("a secret"));
    let written = stored.clone();
    let server = faulty("annotated").build().approval_required(NeedsApproval::Writes);
    let runner = ToolRunner::new(server).approver(move |request: ApprovalRequest| {
        written.lock().unwrap().push(serde_json::to_string(&request).unwrap());
        async { Approval::Allow }
    });
    let call = ToolCall::new("call_1", "delete", json!({"path": "/tmp/x"}));
    let results = runner.step(&run).await.unwrap().call_all([call]).await.unwrap();
    assert_eq!(results[0].message().text(), "fine");

    let stored = stored.lock().unwrap().pop().unwrap();
    assert!(!stored.contains("hunter2") && !stored.contains("secret") && !stored.contains("the user"), "{stored}");
    let request: ApprovalRequest = serde_json::from_str(&stored).unwrap();
    assert_eq!((request.name.as_str(), request.run.tool_call_id.as_deref()), ("delete", Some("call_1")));
    assert_eq!(serde_json::to_string(&request).unwrap(), stored);
    assert!(request.definition.may_destroy() && !request.definition.is_read_only());
    assert_eq!(Value::Object(request.arguments), json!({"path": "/tmp/x"}));
    // Another program may leave the run out.
    let bare = json!({"name": "t", "arguments": {}, "definition": {"name": "t", "input_schema": {}}});
    let bare: ApprovalRequest = serde_json::from_value(bare).unwrap();
    assert_eq!((bare.run.retry, bare.run.tool_call_id), (0, None));
}

#[tokio::test]
async fn arguments_and_results_are_types_of_the_program() {
    #[derive(Serialize)]
    struct Sum {
        a: u32,
        b: u32,
    }

    let server = everything().build();
    let running = server.connect().await.unwrap();
    let outcome = server.direct_call_tool("get-sum", Sum { a: 2, b: 3 }).await.unwrap();
    assert!(outcome.to_text().contains("is 5"), "{outcome:?}");
    let raw = server.call_tool_raw("get-sum", [2, 3], CallOptions::new()).await.unwrap_err();
    assert!(matches!(raw, McpError::Config(ConfigError::Arguments { .. })), "{raw:?}");
    let structured = server
        .direct_call_tool("get-structured-content", [("location", "New York")].into_iter().collect::<BTreeMap<_, _>>());

    #[derive(Deserialize)]
    struct Weather {
        temperature: f64,
        conditions: String,
    }

    let weather: Weather = output(structured.await.unwrap()).into_typed().unwrap();
    assert!(weather.temperature > -100.0 && !weather.conditions.is_empty());
    running.close().await.unwrap();
}

#[tokio::test]
async fn results_and_prompts_of_a_server_survive() {
    let server = everything().build();
    let running = server.connect().await.unwrap();
    for tool in server.list_tools().await.unwrap().iter() {
        survives(&ToolDefinition::from(tool));
    }
    let outcome =
        server.direct_call_tool("get-annotated-message", json!({"messageType": "error", "includeImage": true}));
    let outcome = outcome.await.unwrap();
    let ToolOutcome::Output(result) = &outcome else { panic!("{outcome:?}") };
    assert!(result.raw.is_some() && !result.binaries().is_empty(), "{result:?}");
    survives(&outcome);
    // The image is for the user only.
    assert!(result.output_for(Role::Assistant).binaries().is_empty(), "{result:?}");
    assert_eq!(result.output_for(Role::User).binaries().len(), 1);
    assert_eq!(result.content_for(Role::Assistant).count(), 1);
    running.close().await.unwrap();
}

//! Public data survives JSON, so that programs can store it and send it to other programs.

use std::collections::BTreeMap;
use std::fmt::Debug;

use belljar_client::{
    Binary, CallOptions, ConfigError, Deferral, DeferralKind, McpError, ToolCall, ToolDefinition, ToolOutcome,
    ToolOutput, ToolReturn,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::harness::{everything, output};

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
fn definitions_survive() {
    survives(&ToolDefinition::new("now", json!({"type": "object"})).with_description("The time."));
    let bare: ToolDefinition = serde_json::from_value(json!({"name": "now", "input_schema": {}})).unwrap();
    assert_eq!(bare, ToolDefinition::new("now", json!({})));
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
    running.close().await.unwrap();
}

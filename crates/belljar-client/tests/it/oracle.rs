//! Compares results with those of pydantic-ai 1.107.10 and 2.68.0 for the same tools.

use std::process::Command;

use belljar_mcp_client::{McpError, McpServerStdio, ResultMapping, ToolOutcome};
use serde_json::{Map, Value, json};

use crate::harness::{legacy_python, notation, pydantic_ai_2, results, script};

/// Runs an oracle and returns its outcomes by the name of the tool or the URI of the resource.
fn ask(python: String, oracle: &str, arguments: &[String]) -> Map<String, Value> {
    let oracle = Command::new(python).arg(script(oracle)).args(arguments).output().unwrap();
    assert!(oracle.status.success(), "{}", String::from_utf8_lossy(&oracle.stderr));
    let outcomes: Map<String, Value> = serde_json::from_slice(&oracle.stdout).unwrap();
    assert!(outcomes.len() >= 75, "only {} outcomes", outcomes.len());
    outcomes
}

/// Calls every tool and returns the outcomes in the notation of the oracles.
async fn outcomes(server: McpServerStdio, with_resources: bool) -> Map<String, Value> {
    let server = server.build();
    let running = server.connect().await.unwrap();
    let mut seen = Map::new();
    for tool in server.list_tools().await.unwrap() {
        let outcome = match server.direct_call_tool(&tool.name, json!({})).await {
            Ok(ToolOutcome::Output(result)) => json!({"output": notation(&result)}),
            Ok(ToolOutcome::Retry(retry)) => json!({"retry": retry.message}),
            Err(McpError::Protocol { message, code, .. }) => json!({"error": message, "code": code}),
            other => panic!("{}: {other:?}", tool.name),
        };
        seen.insert(tool.name.into_owned(), outcome);
    }
    for resource in server.list_resources().await.unwrap().into_iter().filter(|_| with_resources) {
        let output = server.read_resource(&resource.uri).await.unwrap();
        seen.insert(resource.uri, json!({"output": notation(&output)}));
    }
    running.close().await.unwrap();
    seen
}

/// Compares outcomes, the order of their properties included: models read results in order.
fn assert_equal(seen: &Map<String, Value>, expected: &Map<String, Value>) {
    for (name, outcome) in expected {
        let text = |outcome: Option<&Value>| outcome.map(Value::to_string);
        assert_eq!(text(seen.get(name)), text(Some(outcome)), "{name}");
    }
    assert_eq!(seen.len(), expected.len());
}

#[tokio::test]
async fn results_equal_those_of_pydantic_ai_1() {
    let mut expected = ask(legacy_python(), "oracle.py", &[]);
    // There the whole result is lost; version 2 keeps the link, as the client does.
    let lost = expected.insert("link_missing".to_owned(), json!({"output": "mem://missing"})).unwrap();
    assert!(lost.get("error").is_some(), "{lost}");
    assert_equal(&outcomes(results(), true).await, &expected);
}

#[tokio::test]
async fn results_equal_those_of_pydantic_ai_2() {
    let expected = ask(pydantic_ai_2(), "oracle_2.py", &[legacy_python()]);
    let seen = outcomes(results().result_mapping(ResultMapping::PydanticAi2), false).await;
    assert_equal(&seen, &expected);
    let by_default = outcomes(results(), false).await;
    assert_ne!(by_default, seen);
}

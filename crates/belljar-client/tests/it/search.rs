//! Search in tools, resources as tools, and results of a limited size, with real servers.

use belljar_mcp_client::{
    CombinedToolset, McpError, NeedsApproval, RetryReason, RunContext, ToolDefinition, ToolOutcome, Toolset, ToolsetExt,
};
use serde_json::{Map, Value, json};

use crate::harness::{everything, faulty, output};

async fn call(toolset: &dyn Toolset, name: &str, arguments: Value) -> ToolOutcome {
    toolset.call(&RunContext::new(), name, arguments.as_object().unwrap().clone()).await.unwrap()
}

#[tokio::test]
async fn model_finds_describes_and_calls_tools_of_several_servers() {
    let servers = CombinedToolset::new()
        .with(everything().tool_prefix("all").build())
        .with(faulty("none").tool_prefix("faulty").build());
    let tools = servers.searchable().showing(|tool: &ToolDefinition| tool.name == "all_echo");
    let guard = tools.enter().await.unwrap();
    let run = RunContext::new();
    let listed = tools.tools(&run).await.unwrap();
    assert_eq!(listed.names().collect::<Vec<_>>(), ["search_tools", "describe_tool", "call_tool", "all_echo"]);

    let found = output(call(&tools, "search_tools", json!({"query": "add the sum of two numbers", "limit": 3})).await);
    let found = found.as_json().unwrap().as_array().unwrap();
    assert!(found[0]["name"] == "all_get-sum" && found.len() <= 3, "{found:?}");
    let described = output(call(&tools, "describe_tool", json!({"name": "all_get-sum"})).await);
    assert!(described.as_json().unwrap()["parameters"]["properties"]["a"].is_object(), "{described:?}");
    let sum = call(&tools, "call_tool", json!({"name": "all_get-sum", "arguments": {"a": 2, "b": 3}})).await;
    assert_eq!(sum.to_text(), "The sum of 2 and 3 is 5.");
    assert!(sum.raw().is_some());
    assert_eq!(call(&tools, "all_echo", json!({"message": "hi"})).await.to_text(), "Echo: hi");
    assert_eq!(call(&tools, "call_tool", json!({"name": "faulty_fine"})).await.to_text(), "fine");

    // Mistakes of a model.
    for (name, arguments, expected) in [
        ("call_tool", json!({"name": "sum", "arguments": {}}), "`all_get-sum`"),
        ("describe_tool", json!({"name": "sum"}), "`all_get-sum`"),
        ("call_tool", json!({"name": "faulty_fine", "arguments": "{}"}), "`arguments` must be an object"),
        ("search_tools", json!({}), "`query`"),
        ("faulty_fine", json!({}), "call_tool"),
        ("made_up", json!({}), "`search_tools`"),
    ] {
        let outcome = call(&tools, name, arguments).await;
        assert!(matches!(&outcome, ToolOutcome::Retry(retry) if retry.message.contains(expected)), "{outcome:?}");
    }
    assert!(call(&tools, "search_tools", json!({"query": "zzz"})).await.to_text().contains("No tool matches"));
    guard.close().await.unwrap();
}

#[tokio::test]
async fn approval_below_the_search_is_asked_for_the_tool_itself() {
    let tools = faulty("annotated").build().approval_required(NeedsApproval::Destructive).searchable();
    let _guard = tools.enter().await.unwrap();
    let listed = tools.tools(&RunContext::new()).await.unwrap();
    assert!(tools.tools(&RunContext::new()).await.unwrap().is_same(&listed));
    let outcome = call(&tools, "call_tool", json!({"name": "delete", "arguments": {}})).await;
    assert!(matches!(outcome, ToolOutcome::Deferred(_)), "{outcome:?}");
    let approved = RunContext::new().approved(true);
    let arguments = Map::from_iter([("name".to_owned(), json!("delete"))]);
    assert_eq!(tools.call(&approved, "call_tool", arguments).await.unwrap().to_text(), "fine");
    // A second search would hide the first one.
    let error = tools.searchable().tools(&RunContext::new()).await.unwrap_err();
    assert!(matches!(error, McpError::NameClash { .. }), "{error:?}");
}

#[tokio::test]
async fn model_lists_and_reads_resources() {
    let server = everything().tool_prefix("all").build();
    let all = CombinedToolset::new().with(server.clone()).with(server.resource_tools());
    let guard = all.enter().await.unwrap();
    let run = RunContext::new();
    assert!(all.tools(&run).await.unwrap().get("all_read_resource").unwrap().is_read_only());
    let list = output(call(&all, "all_list_resources", json!({})).await);
    let list = list.as_json().unwrap();
    let uri = list["resources"][0]["uri"].as_str().unwrap();
    assert!(list["resources"][0]["name"].is_string() && list["templates"][0]["uri_template"].is_string(), "{list}");
    let direct = server.read_resource(uri).await.unwrap();
    assert_eq!(output(call(&all, "all_read_resource", json!({"uri": uri})).await), direct);
    let end = output(call(&all, "all_list_resources", json!({"offset": 100_000})).await);
    assert_eq!(end.as_json().unwrap()["resources"], json!([]));

    let missing = call(&all, "all_read_resource", json!({"uri": "demo://no/such"})).await;
    assert!(matches!(missing, ToolOutcome::Retry(_)), "{missing:?}");
    let invalid = call(&all, "all_read_resource", json!({})).await;
    assert!(
        matches!(&invalid, ToolOutcome::Retry(retry) if retry.reason == RetryReason::InvalidArguments),
        "{invalid:?}"
    );
    guard.close().await.unwrap();
}

#[tokio::test]
async fn large_result_of_a_server_is_cut_and_kept() {
    let tools = faulty("large").build().with_result_budget(1_000);
    let _guard = tools.enter().await.unwrap();
    let outcome = call(&tools, "act", json!({})).await;
    let text = outcome.to_text();
    assert!(text.len() < 1_200 && text.contains("read_result"), "{} bytes", text.len());
    // The program still has everything.
    assert_eq!(outcome.raw().unwrap().content[0].as_text().unwrap().text.len(), 8 * 1024 * 1024);
    assert_eq!(call(&tools, "fine", json!({})).await.to_text(), "fine");
    let made_up = call(&tools, "read_result", json!({"id": "0", "offset": 0})).await;
    assert!(matches!(made_up, ToolOutcome::Retry(_)), "{made_up:?}");
}

//! The order of JSON is kept: models fill in arguments in the order of the schema, and read results in theirs.

use std::path::Path;

use belljar_mcp_client::adapters::provider::{Provider, ProviderTools};
use belljar_mcp_client::{McpServerStdio, ProtocolEra, RunContext, Toolset, parse_mcp_servers};
use serde_json::{Value, json};

use crate::harness::{START_TIMEOUT, output, script};

fn ordered() -> McpServerStdio {
    let server = McpServerStdio::new("python3").args(["-u", &script("ordered_server.py")]);
    server.era(ProtocolEra::Legacy).timeout(START_TIMEOUT)
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[tokio::test]
async fn schemas_and_results_keep_their_order() {
    let server = ordered().build();
    let connections = server.enter().await.unwrap();
    let tools = server.tools(&RunContext::new()).await.unwrap();
    let tool = tools.get("think").unwrap();
    let properties = ["reasoning", "answer", "10", "9"];
    assert_eq!(keys(&tool.input_schema), ["type", "properties", "required"]);
    assert_eq!(keys(&tool.input_schema["properties"]), properties);
    assert_eq!(keys(&tool.output_schema.as_ref().unwrap()["properties"]), properties);
    assert_eq!(tool.metadata.keys().collect::<Vec<_>>(), ["z", "a"]);
    for (provider, schema) in [
        (Provider::OpenAiChat, "/0/function/parameters/properties"),
        (Provider::OpenAiResponses, "/0/parameters/properties"),
        (Provider::Anthropic, "/0/input_schema/properties"),
        (Provider::Gemini, "/0/functionDeclarations/0/parameters/properties"),
    ] {
        let json = ProviderTools::new(provider, &tools).to_json();
        assert_eq!(keys(json.pointer(schema).unwrap()), properties, "{provider:?}");
    }

    let arguments = json!({"reasoning": "b", "answer": "a"});
    let structured = output(server.direct_call_tool("think", arguments).await.unwrap());
    let structured = structured.as_json().unwrap();
    assert_eq!(keys(structured), ["zeta", "alpha", "sent"]);
    assert_eq!(keys(&structured["alpha"]), ["y", "x"]);
    let sent: Value = serde_json::from_str(structured["sent"].as_str().unwrap()).unwrap();
    assert_eq!(keys(&sent), ["reasoning", "answer"]);
    let text = output(server.direct_call_tool("think", json!({"text": true})).await.unwrap());
    assert_eq!(text.to_text(), r#"{"zeta":1,"alpha":{"y":2,"x":3}}"#);
    connections.close().await.unwrap();
}

#[test]
fn servers_of_a_file_keep_their_order() {
    let json = r#"{"mcpServers": {"zeta": {"command": "a"}, "alpha": {"url": "http://localhost/mcp"}, "m": {"command": "b"}}}"#;
    let toml =
        "[mcp_servers.zeta]\ncommand = \"a\"\n[mcp_servers.alpha]\ncommand = \"b\"\n[mcp_servers.m]\ncommand = \"c\"\n";
    for (text, path) in [(json, "mcp.json"), (toml, "config.toml")] {
        let servers = parse_mcp_servers(text, Path::new(path)).unwrap();
        let names: Vec<&str> = servers.iter().map(|server| server.id().unwrap()).collect();
        assert_eq!(names, ["zeta", "alpha", "m"], "{path}");
    }
}

//! npm's reference servers for files and for memory, used as an agent would.

use belljar_mcp_client::{McpServerStdio, RunContext, ToolOutcome, Toolset, ToolsetExt};
use serde_json::{Map, Value, json};

use crate::harness::{START_TIMEOUT, npm_server, output};

fn arguments(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

#[tokio::test]
async fn filesystem_server_writes_and_reads_files() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    let server = McpServerStdio::new("node")
        .args([npm_server("server-filesystem"), root.display().to_string()])
        .timeout(START_TIMEOUT)
        .tool_prefix("fs")
        .build();
    let guard = server.enter().await.unwrap();
    let run = RunContext::new();
    let path = root.join("note.txt");
    let write = arguments(json!({"path": path, "content": "hello\n"}));
    output(server.call(&run, "fs_write_file", write).await.unwrap());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "hello\n");
    let read = output(server.call(&run, "fs_read_text_file", arguments(json!({"path": path}))).await.unwrap());
    assert!(read.to_text().contains("hello"), "{read:?}");
    let outside = server.call(&run, "fs_read_text_file", arguments(json!({"path": "/etc/passwd"}))).await.unwrap();
    assert!(matches!(&outside, ToolOutcome::Retry(retry) if retry.message.contains("denied")), "{outside:?}");

    let read_only = server.filtered(|_: &RunContext, tool| {
        tool.annotations.as_ref().is_some_and(|annotations| annotations.read_only_hint == Some(true))
    });
    let names: Vec<String> = read_only.tools(&run).await.unwrap().iter().map(|tool| tool.name.clone()).collect();
    assert!(
        names.contains(&"fs_read_text_file".to_owned()) && !names.contains(&"fs_write_file".to_owned()),
        "{names:?}"
    );
    guard.close().await.unwrap();
}

#[tokio::test]
async fn memory_server_persists_entities() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("memory.jsonl");
    let server = || {
        McpServerStdio::new("node")
            .arg(npm_server("server-memory"))
            .env("MEMORY_FILE_PATH", file.display().to_string())
            .timeout(START_TIMEOUT)
            .build()
    };
    let entity = json!({"entities": [{"name": "Ada", "entityType": "person", "observations": ["writes programs"]}]});
    output(server().direct_call_tool("create_entities", entity).await.unwrap());
    // A new process of the server reads the stored data.
    let graph = output(server().direct_call_tool("read_graph", json!({})).await.unwrap());
    assert_eq!(graph.as_json().unwrap()["entities"][0]["name"], "Ada");
}

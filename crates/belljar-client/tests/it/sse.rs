//! HTTP with server-sent events: messages that the server refuses during a connection.

use std::time::Duration;

use belljar_mcp_client::{CallOptions, McpError, McpServerSse, RetryReason, RunContext, ToolOutcome, Toolset};
use serde_json::{Map, json};

use crate::harness::{START_TIMEOUT, faulty_http};

#[tokio::test]
async fn refused_message_is_an_error_with_its_status_and_keeps_the_connection() {
    let listening = faulty_http();
    let server = McpServerSse::new(listening.url("/sse")).unwrap().timeout(START_TIMEOUT).build();
    let running = server.connect().await.unwrap();
    let error = server.call_tool_raw("act", json!({}), CallOptions::new()).await.unwrap_err();
    assert!(matches!(&error, McpError::Unreachable { .. }), "{error:?}");
    assert_eq!((error.http_status(), error.retry_after()), (Some(503), Some(Duration::from_secs(7))), "{error:?}");
    let outcome = server.call(&RunContext::new(), "act", Map::new()).await.unwrap();
    assert!(matches!(&outcome, ToolOutcome::Retry(retry) if retry.reason == RetryReason::Unavailable), "{outcome:?}");
    assert_eq!(server.direct_call_tool("fine", json!({})).await.unwrap().to_text(), "fine");
    running.close().await.unwrap();
}

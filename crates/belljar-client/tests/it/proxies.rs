//! Servers on this machine, while the environment names a proxy.

use belljar_mcp_client::{McpServerSse, McpServerStreamableHttp, ProtocolEra};
use serde_json::json;

use crate::harness::{START_TIMEOUT, faulty_http};

/// The environment variable with the address of the server that a child process connects to.
const CHILD_SERVER: &str = "BELLJAR_TEST_LOOPBACK_SERVER";

#[tokio::test]
async fn server_on_this_machine_is_reached_without_the_proxy() {
    let (listening, proxy) = (faulty_http(), faulty_http());
    // The proxy is configured by the environment, which other tests share.
    let mut child = tokio::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "proxies::child_connects_to_a_loopback_address", "--ignored"]);
    for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
        child.env(name, proxy.url("/"));
    }
    child.env_remove("NO_PROXY").env_remove("no_proxy").env_remove("REQUEST_METHOD");
    let output = child.env(CHILD_SERVER, listening.url("")).output().await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    let seen = reqwest::get(proxy.url("/seen")).await.unwrap().text().await.unwrap();
    assert_eq!(seen, "[]", "the proxy received a request");
    let seen = reqwest::get(listening.url("/seen")).await.unwrap().text().await.unwrap();
    assert!(seen.contains("Bearer secret"), "{seen}");
}

#[tokio::test]
#[ignore = "runs as a child process of another test"]
async fn child_connects_to_a_loopback_address() {
    let url = std::env::var(CHILD_SERVER).expect("the other test sets the server");
    let http = McpServerStreamableHttp::new(format!("{url}/acts/none")).unwrap().era(ProtocolEra::Legacy);
    let outcome = http.bearer_token("secret").build().direct_call_tool("fine", json!({})).await.unwrap();
    assert_eq!(outcome.to_text(), "fine");
    let sse = McpServerSse::new(format!("{url}/sse")).unwrap().bearer_token("secret").timeout(START_TIMEOUT).build();
    drop(sse.connect().await.unwrap());
}

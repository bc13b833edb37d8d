//! Redirects of servers over HTTP.

use belljar_mcp_client::{McpServerSse, McpServerStreamableHttp, ProtocolEra};
use serde_json::json;

use crate::harness::faulty_http;

#[tokio::test]
async fn redirect_to_another_host_gets_no_credentials() {
    let (listening, elsewhere) = (faulty_http(), faulty_http());
    let target = format!("/redirect/{}", elsewhere.port);
    let http = McpServerStreamableHttp::new(listening.url(&target)).unwrap().bearer_token("secret");
    http.header("x-api-key", "secret").unwrap().build().connect().await.err().unwrap();
    let sse = McpServerSse::new(listening.url(&target)).unwrap().bearer_token("secret").build();
    sse.connect().await.err().unwrap();
    let seen = reqwest::get(elsewhere.url("/seen")).await.unwrap().text().await.unwrap();
    assert_eq!(seen, "[]", "another host received a request");
    let seen = reqwest::get(listening.url("/seen")).await.unwrap().text().await.unwrap();
    assert!(seen.contains("Bearer secret"), "{seen}");
}

#[tokio::test]
async fn redirect_within_the_origin_is_followed_if_it_keeps_the_request() {
    let listening = faulty_http();
    let moved = |status: u16| {
        let url = listening.url(&format!("/moved/{status}/acts/none"));
        McpServerStreamableHttp::new(url).unwrap().era(ProtocolEra::Legacy).bearer_token("secret").build()
    };
    for status in [307, 308] {
        let outcome = moved(status).direct_call_tool("fine", json!({})).await.unwrap();
        assert_eq!(outcome.to_text(), "fine", "{status}");
    }
    // These make a GET of a POST.
    for status in [301, 302, 303] {
        moved(status).connect().await.err().unwrap();
    }
    let seen: serde_json::Value = reqwest::get(listening.url("/seen")).await.unwrap().json().await.unwrap();
    let seen = seen.as_array().unwrap();
    assert!(seen.iter().all(|request| request["authorization"] == "Bearer secret"), "{seen:?}");
}

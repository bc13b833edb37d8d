//! Tokens: obtaining, storing and refreshing them.
//!
//! The suite of [`conformance`](crate::conformance) covers the protocol itself.

use std::time::Duration;

use belljar_client::oauth::{FileTokenStore, LoopbackRedirect, OAuth, TokenStore};
use belljar_client::{McpError, McpServer, McpServerSse, McpServerStreamableHttp};
use serde_json::json;

use crate::harness::{START_TIMEOUT, TestServer, free_port, output, script};

fn private_server() -> TestServer {
    TestServer::start("python3", &["-u", &script("oauth_server.py")])
}

/// Returns the requests that the authorization server received.
async fn seen(listening: &TestServer) -> Vec<String> {
    let text = reqwest::get(listening.url("/seen")).await.unwrap().text().await.unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Returns a prompt whose simulated browser follows the redirect.
fn browser() -> LoopbackRedirect {
    LoopbackRedirect::new(free_port(), |url| {
        let url = url.to_owned();
        tokio::spawn(async move { reqwest::get(url).await });
    })
}

fn oauth() -> OAuth {
    let browser = browser();
    OAuth::new(browser.redirect_uri(), browser).client_name("a test")
}

async fn ask(server: &McpServer) -> String {
    output(server.direct_call_tool("look", json!({})).await.unwrap()).to_text()
}

#[tokio::test]
async fn user_is_asked_once_and_tokens_are_stored() {
    let listening = private_server();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens").join("private.json");
    let server = || {
        let oauth = oauth().store(FileTokenStore::new(&path));
        McpServerStreamableHttp::new(listening.url("/mcp")).unwrap().timeout(START_TIMEOUT).oauth(oauth).build()
    };
    assert_eq!(ask(&server()).await, "for your eyes");
    assert_eq!(seen(&listening).await, ["registration", "consent", "token"]);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    // Another run of the program finds the tokens.
    assert_eq!(ask(&server()).await, "for your eyes");
    assert_eq!(seen(&listening).await.len(), 3);

    // A rejected token is refreshed without the user.
    reqwest::get(listening.url("/expire")).await.unwrap();
    assert_eq!(ask(&server()).await, "for your eyes");
    assert_eq!(seen(&listening).await, ["registration", "consent", "token", "refresh"]);

    // After clearing the store the user is asked again.
    FileTokenStore::new(&path).clear().await.unwrap();
    assert!(!path.exists());
    assert_eq!(ask(&server()).await, "for your eyes");
    assert_eq!(seen(&listening).await.iter().filter(|step| *step == "consent").count(), 2);
}

#[tokio::test]
async fn token_that_expires_during_a_connection_is_refreshed() {
    let listening = private_server();
    let server =
        McpServerStreamableHttp::new(listening.url("/mcp")).unwrap().timeout(START_TIMEOUT).oauth(oauth()).build();
    let running = server.connect().await.unwrap();
    reqwest::get(listening.url("/expire")).await.unwrap();
    assert_eq!(ask(&server).await, "for your eyes");
    assert_eq!(seen(&listening).await, ["registration", "consent", "token", "refresh"]);
    running.close().await.unwrap();
}

#[tokio::test]
async fn waiting_for_consent_does_not_count_as_server_time() {
    let listening = private_server();
    let oauth = OAuth::new("http://127.0.0.1:1/callback", async |url: String| {
        tokio::time::sleep(Duration::from_secs(7)).await;
        let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        let response = client.get(url).send().await.unwrap();
        Ok(response.headers()["location"].to_str().unwrap().to_owned())
    });
    let server =
        McpServerStreamableHttp::new(listening.url("/mcp")).unwrap().timeout(Duration::from_secs(5)).oauth(oauth);
    assert_eq!(ask(&server.build()).await, "for your eyes");
}

#[tokio::test]
async fn sse_servers_get_tokens() {
    let listening = private_server();
    let server = McpServerSse::new(listening.url("/sse")).unwrap().timeout(START_TIMEOUT).oauth(oauth()).build();
    let running = server.connect().await.unwrap();
    assert_eq!(ask(&server).await, "for your eyes");
    reqwest::get(listening.url("/expire")).await.unwrap();
    assert_eq!(ask(&server).await, "for your eyes");
    assert_eq!(seen(&listening).await, ["registration", "consent", "token", "refresh"]);
    running.close().await.unwrap();
}

#[tokio::test]
async fn user_who_declines_consent_is_an_error() {
    let listening = private_server();
    for path in ["/mcp", "/sse"] {
        let oauth = OAuth::new("http://127.0.0.1:1/callback", async |_url: String| Err("no, thank you".into()));
        let error = match path {
            "/sse" => McpServerSse::new(listening.url(path)).unwrap().oauth(oauth).build().connect().await,
            _ => McpServerStreamableHttp::new(listening.url(path)).unwrap().oauth(oauth).build().connect().await,
        }
        .err()
        .unwrap();
        assert!(
            matches!(&error, McpError::Unauthorized { reason, .. } if reason.contains("no, thank you")),
            "{error:?}"
        );
    }
}

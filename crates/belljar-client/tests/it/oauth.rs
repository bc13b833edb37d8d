//! Tokens: how a program gets them, where they are kept, and what becomes of one that is no longer taken.
//!
//! The suite of [`conformance`](crate::conformance) goes through the protocol itself.

use std::time::Duration;

use belljar_client::oauth::{FileTokenStore, Loopback, OAuth, TokenStore};
use belljar_client::{McpError, McpServer, McpServerSse, McpServerStreamableHttp};
use serde_json::json;

use crate::harness::{Listening, PATIENT, free_port, output, script};

fn private_server() -> Listening {
    Listening::start("python3", &["-u", &script("oauth_server.py")])
}

/// What was asked of the authorization server.
async fn seen(listening: &Listening) -> Vec<String> {
    let text = reqwest::get(listening.url("/seen")).await.unwrap().text().await.unwrap();
    serde_json::from_str(&text).unwrap()
}

/// A user whose browser goes where it is sent.
fn browser() -> Loopback {
    Loopback::new(free_port(), |url| {
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
async fn a_user_is_asked_once_and_the_tokens_are_kept() {
    let listening = private_server();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens").join("private.json");
    let server = || {
        let oauth = oauth().store(FileTokenStore::new(&path));
        McpServerStreamableHttp::new(listening.url("/mcp")).unwrap().timeout(PATIENT).oauth(oauth).build()
    };
    assert_eq!(ask(&server()).await, "for your eyes");
    assert_eq!(seen(&listening).await, ["registration", "consent", "token"]);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    // Another run of the program finds them.
    assert_eq!(ask(&server()).await, "for your eyes");
    assert_eq!(seen(&listening).await.len(), 3);

    // A token that is no longer taken is refreshed, without the user.
    reqwest::get(listening.url("/expire")).await.unwrap();
    assert_eq!(ask(&server()).await, "for your eyes");
    assert_eq!(seen(&listening).await, ["registration", "consent", "token", "refresh"]);

    // Forgotten, the user is asked again.
    FileTokenStore::new(&path).clear().await.unwrap();
    assert!(!path.exists());
    assert_eq!(ask(&server()).await, "for your eyes");
    assert_eq!(seen(&listening).await.iter().filter(|step| *step == "consent").count(), 2);
}

#[tokio::test]
async fn a_token_that_expires_in_the_middle_is_refreshed() {
    let listening = private_server();
    let server = McpServerStreamableHttp::new(listening.url("/mcp")).unwrap().timeout(PATIENT).oauth(oauth()).build();
    let running = server.connect().await.unwrap();
    reqwest::get(listening.url("/expire")).await.unwrap();
    assert_eq!(ask(&server).await, "for your eyes");
    assert_eq!(seen(&listening).await, ["registration", "consent", "token", "refresh"]);
    running.close().await.unwrap();
}

#[tokio::test]
async fn a_user_may_take_longer_than_a_server() {
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
async fn servers_of_server_sent_events_get_tokens_too() {
    let listening = private_server();
    let server = McpServerSse::new(listening.url("/sse")).unwrap().timeout(PATIENT).oauth(oauth()).build();
    let running = server.connect().await.unwrap();
    assert_eq!(ask(&server).await, "for your eyes");
    reqwest::get(listening.url("/expire")).await.unwrap();
    assert_eq!(ask(&server).await, "for your eyes");
    assert_eq!(seen(&listening).await, ["registration", "consent", "token", "refresh"]);
    running.close().await.unwrap();
}

#[tokio::test]
async fn a_user_who_does_not_agree_is_an_error() {
    let listening = private_server();
    for path in ["/mcp", "/sse"] {
        let oauth = OAuth::new("http://127.0.0.1:1/callback", async |_url: String| Err("no, thank you".to_owned()));
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

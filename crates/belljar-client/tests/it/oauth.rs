//! Tokens: obtaining, storing, sharing and refreshing them.
//!
//! The suite of [`conformance`](crate::conformance) covers the protocol itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use belljar_mcp_client::oauth::{FileTokenStore, LoopbackRedirect, OAuth, TokenStore};
use belljar_mcp_client::{McpError, McpServer, McpServerSse, McpServerStreamableHttp, RunContext};
use serde_json::{Value, json};

use crate::harness::{START_TIMEOUT, TestServer, eventually, free_port, output, script};

fn private_server() -> TestServer {
    TestServer::start("python3", &["-u", &script("oauth_server.py")])
}

/// Returns the requests that the authorization server received.
async fn seen(listening: &TestServer) -> Vec<String> {
    serde_json::from_str(&get(listening, "/seen").await).unwrap()
}

async fn get(listening: &TestServer, path: &str) -> String {
    reqwest::get(listening.url(path)).await.unwrap().text().await.unwrap()
}

/// Returns a redirect whose simulated browser follows the consent page.
fn browser() -> LoopbackRedirect {
    LoopbackRedirect::new(|url| {
        let url = url.to_owned();
        tokio::spawn(async move { reqwest::get(url).await });
    })
}

fn oauth() -> OAuth {
    OAuth::loopback(browser()).client_name("a test")
}

fn private(listening: &TestServer, oauth: OAuth) -> McpServer {
    McpServerStreamableHttp::new(listening.url("/mcp")).unwrap().timeout(START_TIMEOUT).oauth(oauth).build()
}

async fn ask(server: &McpServer) -> String {
    output(server.direct_call_tool("look", json!({})).await.unwrap()).to_text()
}

#[tokio::test]
async fn user_is_asked_once_and_tokens_are_stored() {
    let listening = private_server();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens").join("all.json");
    let server = || private(&listening, oauth().store(FileTokenStore::new(&path)));
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
    get(&listening, "/expire").await;
    assert_eq!(ask(&server()).await, "for your eyes");
    assert_eq!(seen(&listening).await, ["registration", "consent", "token", "refresh"]);

    // After clearing the store the user is asked again.
    FileTokenStore::new(&path).clear(&listening.url("/mcp")).await.unwrap();
    assert!(!path.exists());
    assert_eq!(ask(&server()).await, "for your eyes");
    assert_eq!(seen(&listening).await.iter().filter(|step| *step == "consent").count(), 2);
}

#[tokio::test]
async fn connections_without_a_store_share_one_consent() {
    let listening = private_server();
    let server = private(&listening, oauth());
    for _ in 0..3 {
        // Each call opens a connection of its own.
        assert_eq!(ask(&server).await, "for your eyes");
    }
    assert_eq!(seen(&listening).await, ["registration", "consent", "token"]);
}

#[tokio::test]
async fn connections_that_start_at_once_ask_once() {
    let listening = private_server();
    let oauth = oauth();
    let servers: Vec<McpServer> = (0..4).map(|_| private(&listening, oauth.clone())).collect();
    for answer in futures::future::join_all(servers.iter().map(ask)).await {
        assert_eq!(answer, "for your eyes");
    }
    assert_eq!(seen(&listening).await, ["registration", "consent", "token"]);
}

#[tokio::test]
async fn user_who_declines_is_not_asked_again_by_connections_that_wait() {
    let listening = private_server();
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = asked.clone();
    let rejections = listening.url("/rejections");
    let oauth = OAuth::new("http://127.0.0.1:1/callback", move |_url: String| {
        counter.fetch_add(1, Ordering::SeqCst);
        let rejections = rejections.clone();
        async move {
            // The user decides when the requests of all connections have been rejected.
            while reqwest::get(&rejections).await?.text().await?.parse::<usize>()? < 4 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Err("no, thank you".into())
        }
    });
    let servers: Vec<McpServer> = (0..4).map(|_| private(&listening, oauth.clone())).collect();
    for result in futures::future::join_all(servers.iter().map(McpServer::connect)).await {
        let error = result.err().unwrap();
        assert!(error.to_string().contains("no, thank you"), "{error}");
    }
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    // A later attempt asks again.
    servers[0].connect().await.err().unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn one_file_holds_the_tokens_of_several_servers() {
    let (first, second) = (private_server(), private_server());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens.json");
    for _ in 0..2 {
        let oauth = oauth().store(FileTokenStore::new(&path));
        let (first, second) = (private(&first, oauth.clone()), private(&second, oauth));
        let answers = tokio::join!(ask(&first), ask(&second));
        assert_eq!(answers, ("for your eyes".to_owned(), "for your eyes".to_owned()));
    }
    for listening in [&first, &second] {
        assert_eq!(seen(listening).await, ["registration", "consent", "token"]);
    }
    // Deleting the tokens of one server keeps those of the other.
    let store = FileTokenStore::new(&path);
    store.clear(&first.url("/mcp")).await.unwrap();
    assert_eq!(store.load(&first.url("/mcp")).await.unwrap(), None);
    assert!(store.load(&second.url("/mcp")).await.unwrap().is_some());
}

#[tokio::test]
async fn file_of_one_server_is_still_read_but_only_for_that_server() {
    let (listening, other) = (private_server(), private_server());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens.json");
    let store = FileTokenStore::new(&path);
    assert_eq!(ask(&private(&listening, oauth().store(store.clone()))).await, "for your eyes");
    let record: Value = serde_json::from_str(&store.load(&listening.url("/mcp")).await.unwrap().unwrap()).unwrap();
    std::fs::write(&path, record["credentials"].to_string()).unwrap();

    assert_eq!(store.load(&other.url("/mcp")).await.unwrap(), None, "another server would get the token");
    assert_eq!(ask(&private(&listening, oauth().store(store))).await, "for your eyes");
    assert_eq!(seen(&listening).await, ["registration", "consent", "token"]);
}

#[tokio::test]
async fn invalid_token_file_is_an_error_that_names_it_and_quotes_nothing() {
    let listening = private_server();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens.json");
    for text in ["secret-token", r#"{"servers": "secret-token"}"#, r#"{"servers": {"a": 5}, "x": "secret-token"}"#] {
        std::fs::write(&path, text).unwrap();
        let server = private(&listening, oauth().store(FileTokenStore::new(&path)));
        let error = server.connect().await.err().unwrap().to_string();
        assert!(error.contains("tokens.json is not a file of tokens") && !error.contains("secret-token"), "{error}");
    }
    // A record that another program changed.
    let url = listening.url("/mcp");
    std::fs::write(&path, json!({"servers": {url: "{\"credentials\": \"secret-token\"}"}}).to_string()).unwrap();
    let error = private(&listening, oauth().store(FileTokenStore::new(&path))).connect().await.err().unwrap();
    assert!(error.to_string().contains("the stored tokens of http://"), "{error}");
    assert!(!format!("{error} {error:?}").contains("secret-token"), "{error:?}");
}

/// Returns the scopes of the consent page, as the authorization server receives them.
async fn requested_scopes(listening: &TestServer, configure: impl FnOnce(OAuth) -> OAuth) -> String {
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let oauth = OAuth::loopback(LoopbackRedirect::new(move |url| sender.send(url.to_owned()).unwrap()));
    let server = private(listening, configure(oauth));
    let page: reqwest::Url = tokio::select! {
        _ = server.connect() => panic!("connected without consent"),
        page = receiver.recv() => page.unwrap().parse().unwrap(),
    };
    page.query_pairs().find(|(name, _)| name == "scope").unwrap().1.into_owned()
}

#[tokio::test]
async fn scopes_of_the_program_replace_those_of_the_server() {
    let listening = private_server();
    assert_eq!(requested_scopes(&listening, |oauth| oauth).await, "read");
    assert_eq!(requested_scopes(&listening, |oauth| oauth.scopes(["look", "write"])).await, "look write");
    let server = private(&listening, oauth().scopes(vec!["look".to_owned()]));
    assert_eq!(ask(&server).await, "for your eyes");
}

/// The environment variable with the address of the server that a child process connects to.
const CHILD_SERVER: &str = "BELLJAR_TEST_CHILD_SERVER";
/// An authorization server that is not reached, since the test's server is the proxy of the child process.
const PRIVATE_ISSUER: &str = "http://[fd00::9]";

#[tokio::test]
async fn private_addresses_in_metadata_have_to_be_allowed() {
    let variables = [("ISSUER", PRIVATE_ISSUER.to_owned())];
    let listening = TestServer::start_with("python3", &["-u", &script("oauth_server.py")], &variables);
    // The proxy is configured by the environment, which other tests share.
    let child = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "oauth::child_connects_with_a_private_issuer", "--ignored"])
        .env(CHILD_SERVER, listening.url("/mcp"))
        .env("HTTP_PROXY", listening.url("/"))
        .env("NO_PROXY", "127.0.0.1")
        .env_remove("REQUEST_METHOD")
        .output();
    let output = child.await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    assert_eq!(seen(&listening).await, ["registration", "consent", "token"]);
}

#[tokio::test]
#[ignore = "runs as a child process of another test"]
async fn child_connects_with_a_private_issuer() {
    let url = std::env::var(CHILD_SERVER).expect("the other test sets the server");
    let server = |oauth: OAuth| McpServerStreamableHttp::new(&url).unwrap().timeout(START_TIMEOUT).oauth(oauth).build();
    let error = server(oauth()).connect().await.err().unwrap();
    let names_issuer = |reason: &str| reason.contains(PRIVATE_ISSUER);
    assert!(matches!(&error, McpError::Unauthorized { reason, .. } if names_issuer(reason)), "{error:?}");
    assert_eq!(ask(&server(oauth().allow_private_addresses())).await, "for your eyes");
}

#[tokio::test]
async fn registration_is_kept_until_the_server_forgets_it() {
    let listening = private_server();
    let directory = tempfile::tempdir().unwrap();
    let store = FileTokenStore::new(directory.path().join("tokens.json"));
    let server = || private(&listening, oauth().store(store.clone()));
    ask(&server()).await;
    get(&listening, "/revoke").await;
    ask(&server()).await;
    assert_eq!(seen(&listening).await, ["registration", "consent", "token", "consent", "token"]);

    // The server refuses the client; the attempt after that registers it again.
    get(&listening, "/revoke").await;
    get(&listening, "/forget").await;
    let error = server().connect().await.err().unwrap();
    assert!(error.to_string().contains("unauthorized_client"), "{error}");
    assert_eq!(ask(&server()).await, "for your eyes");
    assert_eq!(seen(&listening).await.iter().filter(|step| *step == "registration").count(), 2);
}

#[tokio::test]
async fn port_that_is_taken_is_an_error_only_if_it_was_chosen() {
    let listening = private_server();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let server = private(&listening, OAuth::loopback(browser().port(port)));
    let error = server.connect().await.err().unwrap().to_string();
    assert!(error.contains(&format!("failed to listen on port {port}")), "{error}");
    drop(taken);
    assert_eq!(ask(&server).await, "for your eyes");

    // The port of an earlier registration is taken: the client is registered with another one.
    let directory = tempfile::tempdir().unwrap();
    let store = FileTokenStore::new(directory.path().join("tokens.json"));
    let listening = private_server();
    let port = free_port();
    ask(&private(&listening, OAuth::loopback(browser().port(port)).store(store.clone()))).await;
    let _taken = std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
    get(&listening, "/revoke").await;
    assert_eq!(ask(&private(&listening, oauth().store(store))).await, "for your eyes");
    assert_eq!(seen(&listening).await.iter().filter(|step| *step == "registration").count(), 2);
}

#[tokio::test]
async fn redirect_without_the_state_of_the_authorization_is_ignored() {
    let listening = private_server();
    let redirect = LoopbackRedirect::new(|url| {
        let url = url.to_owned();
        tokio::spawn(async move {
            let page = reqwest::Url::parse(&url).unwrap();
            let callback = page.query_pairs().find(|(name, _)| name == "redirect_uri").unwrap().1.into_owned();
            let foreign = reqwest::get(format!("{callback}?code=stolen&state=guessed")).await.unwrap();
            assert_eq!(foreign.status(), reqwest::StatusCode::NOT_FOUND);
            reqwest::get(url).await.unwrap();
        });
    });
    assert_eq!(ask(&private(&listening, OAuth::loopback(redirect))).await, "for your eyes");
}

#[tokio::test]
async fn token_that_expires_during_a_connection_is_refreshed() {
    let listening = private_server();
    let server = private(&listening, oauth());
    let running = server.connect().await.unwrap();
    get(&listening, "/expire").await;
    assert_eq!(ask(&server).await, "for your eyes");
    assert_eq!(seen(&listening).await, ["registration", "consent", "token", "refresh"]);
    running.close().await.unwrap();
}

#[tokio::test]
async fn token_of_a_run_replaces_that_of_oauth() {
    for path in ["/mcp", "/sse"] {
        let listening = private_server();
        let server = McpServer::from_url(listening.url(path)).unwrap().timeout(START_TIMEOUT);
        let server = server.oauth(oauth()).unwrap().build();
        assert_eq!(ask(&server).await, "for your eyes");
        let minted: Value = serde_json::from_str(&get(&listening, "/mint").await).unwrap();
        let run = |token: &str| RunContext::new().bearer_token(token).unwrap();
        let valid = server.for_run(&run(minted["access_token"].as_str().unwrap()));
        assert_eq!(ask(&valid).await, "for your eyes");
        // The user is not asked to replace a token of the run that the server rejects.
        let invalid = server.for_run(&run("invalid"));
        let error = invalid.direct_call_tool("look", json!({})).await.unwrap_err();
        assert!(matches!(error, McpError::Unauthorized { .. }), "{path}: {error:?}");
        assert_eq!(seen(&listening).await, ["registration", "consent", "token", "minted"], "{path}");
        server.close_idle_sessions().await;
    }
}

#[tokio::test]
async fn waiting_for_consent_does_not_count_as_server_time() {
    let listening = private_server();
    let oauth = OAuth::new("http://127.0.0.1:1/callback", async |url: String| {
        tokio::time::sleep(Duration::from_secs(17)).await;
        let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        let response = client.get(url).send().await.unwrap();
        Ok(response.headers()["location"].to_str().unwrap().to_owned())
    });
    let server =
        McpServerStreamableHttp::new(listening.url("/mcp")).unwrap().timeout(Duration::from_secs(15)).oauth(oauth);
    assert_eq!(ask(&server.build()).await, "for your eyes");
}

/// Counts the consents that ended.
struct Consent(Arc<AtomicUsize>);

impl Drop for Consent {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn consent_ends_with_the_connection_that_asks_for_it() {
    let listening = private_server();
    for path in ["/mcp", "/sse"] {
        let (asked, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (counter, consents) = (asked.clone(), ended.clone());
        let oauth = OAuth::new("http://127.0.0.1:1/callback", move |_url: String| {
            counter.fetch_add(1, Ordering::SeqCst);
            let consent = Consent(consents.clone());
            async move {
                // The user never decides.
                std::future::pending::<()>().await;
                drop(consent);
                Err("not reached".into())
            }
        });
        let server = McpServer::from_url(listening.url(path)).unwrap().oauth(oauth).unwrap().build();
        for attempt in 1..=2 {
            let connecting = tokio::spawn({
                let server = server.clone();
                async move { server.connect().await.map(drop) }
            });
            // The second connection does not wait for the first one's consent, but asks itself.
            eventually("the user is asked", || asked.load(Ordering::SeqCst) == attempt).await;
            assert_eq!(ended.load(Ordering::SeqCst), attempt - 1);
            connecting.abort();
            eventually("the consent ends", || ended.load(Ordering::SeqCst) == attempt).await;
        }
    }
}

#[tokio::test]
async fn sse_servers_get_tokens() {
    let listening = private_server();
    let server = McpServerSse::new(listening.url("/sse")).unwrap().timeout(START_TIMEOUT).oauth(oauth()).build();
    let running = server.connect().await.unwrap();
    assert_eq!(ask(&server).await, "for your eyes");
    get(&listening, "/expire").await;
    assert_eq!(ask(&server).await, "for your eyes");
    assert_eq!(seen(&listening).await, ["registration", "consent", "token", "refresh"]);
    running.close().await.unwrap();
}

#[tokio::test]
async fn user_who_declines_consent_is_an_error() {
    let listening = private_server();
    for path in ["/mcp", "/sse"] {
        let oauth = OAuth::new("http://127.0.0.1:1/callback", async |_url: String| Err("no, thank you".into()));
        let server = McpServer::from_url(listening.url(path)).unwrap().oauth(oauth).unwrap().build();
        let error = server.connect().await.err().unwrap();
        assert!(
            matches!(&error, McpError::Unauthorized { reason, .. } if reason.contains("no, thank you")),
            "{error:?}"
        );
    }
}

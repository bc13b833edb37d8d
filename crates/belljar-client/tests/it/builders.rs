//! Builders: what they accept, and what the server receives.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use belljar_mcp_client::protocol::Implementation;
use belljar_mcp_client::transport::{Connector, HeaderProvider};
use belljar_mcp_client::{
    BoxError, McpError, McpServer, McpServerSse, McpServerStdio, McpServerStreamableHttp, RunContext, ServerBuilder,
    Toolset,
};
use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use crate::harness::{START_TIMEOUT, TestServer, faulty, output, script};

#[test]
fn transport_is_chosen_by_the_path_of_a_url() {
    for (url, is_sse) in [
        ("http://h/mcp", false),
        ("http://h/sse", true),
        ("https://h/a/sse/?key=1", true),
        ("http://h/mcp?next=/sse", false),
        ("http://h/sse-not", false),
    ] {
        let expected = if is_sse {
            McpServerSse::new(url).unwrap().build()
        } else {
            McpServerStreamableHttp::new(url).unwrap().build()
        };
        assert_eq!(McpServer::from_url(url).unwrap().build(), expected, "{url}");
    }
    McpServer::from_url("example.org/mcp").err().unwrap();
}

#[test]
fn equal_servers_have_equal_hashes() {
    let server = || McpServerStdio::new("a").arg("x").id("i").build();
    #[expect(clippy::mutable_key_type, reason = "the hash is of the ID and the command, which do not change")]
    let servers: HashSet<McpServer> = [server(), server(), McpServerStdio::new("a").id("i").build()].into();
    assert_eq!(servers.len(), 2);
}

fn generic<T: Connector>(server: ServerBuilder<T>) -> McpServer {
    server.timeout(START_TIMEOUT).build()
}

#[tokio::test]
async fn code_over_any_transport_builds_servers() {
    let server = generic(faulty("none"));
    assert_eq!(output(server.direct_call_tool("fine", json!({})).await.unwrap()).to_text(), "fine");
    generic(McpServer::from_url("http://h/mcp").unwrap());
    generic(McpServerSse::new("http://h/sse").unwrap());
}

/// Returns the environment of a server's process.
async fn environment(server: McpServerStdio) -> Value {
    output(server.build().direct_call_tool("environment", json!({})).await.unwrap()).as_json().unwrap().clone()
}

#[tokio::test]
async fn paths_are_arguments_and_the_environment_can_be_inherited() {
    let script = std::path::PathBuf::from(script("faulty_server.py"));
    let directory = tempfile::tempdir().unwrap();
    let server = || {
        McpServerStdio::new(std::path::Path::new("python3"))
            .arg("-u")
            .args([&script])
            .arg("none")
            .timeout(START_TIMEOUT)
    };
    // cargo sets this variable for tests.
    let own = std::env::var("CARGO_MANIFEST_DIR").unwrap();
    let plain = environment(server().cwd(directory.path()).env("DIRECTORY", directory.path())).await;
    assert_eq!(plain["DIRECTORY"], directory.path().to_str().unwrap());
    assert_eq!(plain["CWD"], directory.path().canonicalize().unwrap().to_str().unwrap());
    assert!(plain["CARGO_MANIFEST_DIR"].is_null());
    let inheriting = environment(server().inherit_env().env("LANG", "replaced")).await;
    assert_eq!(inheriting["CARGO_MANIFEST_DIR"], own);
    assert_eq!(inheriting["LANG"], "replaced");
}

#[tokio::test]
async fn servers_see_the_client_information() {
    let client = async |server: McpServerStdio| {
        output(server.build().direct_call_tool("client", json!({})).await.unwrap()).as_json().unwrap().clone()
    };
    assert_eq!(client(faulty("none").client_info("mine", "7")).await, json!({"name": "mine", "version": "7"}));
    let info = Implementation::new("mine", "7").with_title("My agent").with_website_url("https://example.org");
    let seen = client(faulty("none").client_implementation(info)).await;
    assert_eq!((&seen["title"], &seen["websiteUrl"]), (&json!("My agent"), &json!("https://example.org")));
}

/// A provider of a token that it renews when the server rejects it.
struct Renewing {
    mint: String,
    token: Arc<Mutex<String>>,
    renewals: Arc<AtomicUsize>,
}

#[async_trait]
impl HeaderProvider for Renewing {
    async fn headers(&self) -> Result<HeaderMap, BoxError> {
        let token = HeaderValue::from_str(&format!("Bearer {}", self.token.lock()))?;
        Ok(HeaderMap::from_iter([(AUTHORIZATION, token)]))
    }

    async fn rejected(&self, challenge: &str) -> Result<bool, BoxError> {
        assert!(challenge.starts_with("Bearer resource_metadata="), "{challenge}");
        if self.renewals.fetch_add(1, Ordering::SeqCst) >= 2 {
            return Ok(false);
        }
        let minted: Value = serde_json::from_str(&reqwest::get(&self.mint).await?.text().await?)?;
        *self.token.lock() = minted["access_token"].as_str().unwrap_or_default().to_owned();
        Ok(true)
    }
}

#[tokio::test]
async fn header_provider_renews_rejected_headers() {
    for path in ["/mcp", "/sse"] {
        let listening = TestServer::start("python3", &["-u", &script("oauth_server.py")]);
        let renewals = Arc::new(AtomicUsize::new(0));
        let provider = Renewing { mint: listening.url("/mint"), token: Arc::default(), renewals: renewals.clone() };
        let server = McpServer::from_url(listening.url(path)).unwrap().timeout(START_TIMEOUT);
        let server = server.header_provider(provider).unwrap().build();
        let running = server.connect().await.unwrap();
        reqwest::get(listening.url("/expire")).await.unwrap();
        assert_eq!(output(server.direct_call_tool("look", json!({})).await.unwrap()).to_text(), "for your eyes");
        assert_eq!(renewals.load(Ordering::SeqCst), 2, "{path}");
        // A provider that gives up is asked once per request.
        reqwest::get(listening.url("/expire")).await.unwrap();
        let run = RunContext::new();
        let rejected = server.call(&run, "look", Map::new()).await;
        assert!(matches!(rejected, Err(McpError::Unauthorized { .. })), "{rejected:?}");
        assert_eq!(renewals.load(Ordering::SeqCst), 3, "{path}");
        running.close().await.unwrap();
    }
}

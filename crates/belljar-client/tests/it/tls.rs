//! Servers over TLS that speak HTTP/2 or only HTTP/1.1, with a certificate that openssl makes. The servers are in this
//! process; their tool returns the version of HTTP that its request arrived with.

use std::convert::Infallible;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use belljar_mcp_client::protocol::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ServerCapabilities, ServerConfig,
};
use belljar_mcp_client::{McpServer, McpServerStreamableHttp, ProtocolEra};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig as TlsConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tower_service::Service;

use crate::harness::{START_TIMEOUT, output};

/// A server whose tool returns the version of HTTP.
#[derive(Clone)]
struct Version;

impl ServerHandler for Version {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn call_tool(
        &self,
        _: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let version = context.extensions.get::<http::request::Parts>().unwrap().version;
        Ok(CallToolResult::success(vec![ContentBlock::text(format!("{version:?}"))]).into())
    }
}

/// A server over TLS.
struct Listening {
    url: String,
    certificate: Vec<u8>,
    connections: Arc<AtomicUsize>,
}

fn make_certificate(directory: &Path) {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout", "key.pem", "-out", "cert.pem"])
        .current_dir(directory)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// Starts a server that negotiates these protocols, in order of preference.
async fn listen(protocols: &[&str]) -> Listening {
    let directory = tempfile::tempdir().unwrap();
    make_certificate(directory.path());
    let (certificate, key) = (directory.path().join("cert.pem"), directory.path().join("key.pem"));
    let chain = vec![CertificateDer::from_pem_file(&certificate).unwrap()];
    let mut config = TlsConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_file(&key).unwrap())
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let sessions = Arc::new(LocalSessionManager::default());
    let service = StreamableHttpService::new(|| Ok(Version), sessions, StreamableHttpServerConfig::default());
    let routes = axum::Router::new().nest_service("/mcp", service);
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("https://localhost:{}/mcp", listener.local_addr().unwrap().port());
    let connections = Arc::new(AtomicUsize::new(0));
    let counter = connections.clone();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            counter.fetch_add(1, Ordering::SeqCst);
            let (acceptor, routes) = (acceptor.clone(), routes.clone());
            tokio::spawn(async move {
                let stream = acceptor.accept(stream).await.unwrap();
                let service = hyper::service::service_fn(move |request| {
                    let mut routes = routes.clone();
                    async move { Ok::<_, Infallible>(routes.call(request).await.unwrap()) }
                });
                let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    Listening { url, certificate: std::fs::read(certificate).unwrap(), connections }
}

/// Makes concurrent calls and returns the versions of HTTP that the server saw.
async fn versions(listening: &Listening, era: ProtocolEra) -> Vec<String> {
    let trusted = reqwest::Certificate::from_pem(&listening.certificate).unwrap();
    let client = reqwest::Client::builder().tls_certs_merge([trusted]).build().unwrap();
    let server = McpServerStreamableHttp::new(&listening.url).unwrap().http_client(client);
    let server: McpServer = server.timeout(START_TIMEOUT).era(era).build();
    let running = server.connect().await.unwrap();
    let calls = (0..40).map(|_| server.direct_call_tool("version", json!({})));
    let mut versions = Vec::new();
    for outcome in futures::future::join_all(calls).await {
        versions.push(output(outcome.unwrap()).to_text());
    }
    running.close().await.unwrap();
    versions.sort();
    versions.dedup();
    versions
}

#[tokio::test]
async fn http_2_is_negotiated_and_all_calls_use_one_connection() {
    for era in [ProtocolEra::Legacy, ProtocolEra::Modern] {
        let listening = listen(&["h2", "http/1.1"]).await;
        assert_eq!(versions(&listening, era).await, ["HTTP/2.0"], "{era:?}");
        assert_eq!(listening.connections.load(Ordering::SeqCst), 1, "{era:?}");
    }
}

#[tokio::test]
async fn server_without_http_2_gets_http_1() {
    for protocols in [&["http/1.1"][..], &[]] {
        let listening = listen(protocols).await;
        assert_eq!(versions(&listening, ProtocolEra::Auto).await, ["HTTP/1.1"], "{protocols:?}");
    }
}

#[tokio::test]
async fn untrusted_certificate_is_an_error_that_says_so() {
    let listening = listen(&["h2"]).await;
    let server = McpServerStreamableHttp::new(&listening.url).unwrap().timeout(START_TIMEOUT).build();
    let error = server.connect().await.err().unwrap().to_string();
    assert!(error.contains("certificate"), "{error}");
}

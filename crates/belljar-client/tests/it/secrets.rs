//! Secrets of the configuration appear in no error, label or debug output.

use std::error::Error;
use std::path::Path;

use belljar_mcp_client::oauth::{LoopbackRedirect, OAuth};
use belljar_mcp_client::{
    McpError, McpServer, McpServerSse, McpServerStdio, McpServerStreamableHttp, parse_mcp_servers,
};

use crate::harness::{TestServer, free_port, script};

const SECRETS: [&str; 3] = ["hunter2", "secretkey", "ada:"];

/// Fails if an error, or one of its causes, contains a secret or repeats a cause.
#[track_caller]
fn check(error: &McpError) {
    let mut texts = vec![error.to_string(), format!("{error:?}")];
    let mut source = error.source();
    while let Some(cause) = source {
        assert!(!texts[0].contains(&cause.to_string()), "printed twice: {error}");
        texts.extend([cause.to_string(), format!("{cause:?}")]);
        source = cause.source();
    }
    check_texts(&texts);
}

#[track_caller]
fn check_texts(texts: &[String]) {
    for text in texts {
        for secret in SECRETS {
            assert!(!text.contains(secret), "{secret} is in {text}");
        }
        assert!(!text.contains("%E2%80%A6"), "{text}");
    }
}

fn servers(origin: &str, path: &str) -> [McpServer; 2] {
    let url = format!("http://ada:hunter2@{origin}{path}?key=secretkey#hunter2");
    [McpServerStreamableHttp::new(&url).unwrap().build(), McpServerSse::new(&url).unwrap().build()]
}

#[test]
fn labels_and_debug_output_are_free_of_secrets() {
    for server in servers("h:1", "/mcp") {
        assert_eq!(server.label(), "http://h:1/mcp?…");
        check_texts(&[server.label(), format!("{server:?}"), format!("{:?}", server.to_builder())]);
    }
    let child = McpServerStdio::new("server").arg("--key=secretkey").env("KEY", "hunter2");
    check_texts(&[format!("{child:?}"), format!("{:?}", child.build())]);
}

#[tokio::test]
async fn connection_errors_are_free_of_secrets() {
    for server in servers(&format!("127.0.0.1:{}", free_port()), "/mcp") {
        let error = server.connect().await.err().unwrap();
        assert!(error.to_string().contains("refused"), "{error}");
        check(&error);
    }
    let listening = TestServer::start("python3", &["-u", &script("faulty_http_server.py")]);
    let origin = format!("127.0.0.1:{}", listening.port);
    for path in ["/page", "/not-found", "/broken", "/empty", "/private", "/locked"] {
        for server in servers(&origin, path) {
            check(&server.connect().await.err().unwrap());
        }
    }
}

#[tokio::test]
async fn errors_of_authorization_are_free_of_secrets() {
    let listening = TestServer::start("python3", &["-u", &script("faulty_http_server.py")]);
    for server in servers(&format!("127.0.0.1:{}", listening.port), "/private") {
        let oauth = OAuth::loopback(LoopbackRedirect::new(|_| panic!("consent is asked for")));
        let server = server.to_builder().oauth(oauth).unwrap().build();
        let error = server.connect().await.err().unwrap();
        assert!(matches!(error, McpError::Unauthorized { .. }), "{error:?}");
        check(&error);
    }
}

#[test]
fn invalid_urls_are_errors_without_secrets() {
    for url in [
        "ftp://ada:hunter2@h/?key=secretkey",
        "http://ada:hunter2@h:port/mcp?key=secretkey",
        "http://ada:hun/hunter2@h:port/",
        "h/mcp?key=secretkey",
        "http://?key=secretkey",
    ] {
        check(&McpServerStreamableHttp::new(url).err().unwrap());
        check(&McpServerSse::new(url).err().unwrap());
        check(&McpServer::from_url(url).err().unwrap());
    }
}

#[test]
fn errors_of_configuration_files_quote_no_values() {
    let json = [
        r#"{"mcpServers": {"a": {"url": "http://h", "headers": "hunter2"}}}"#,
        r#"{"mcpServers": {"a": {"command": "x", "args": "hunter2"}}}"#,
        r#"{"mcpServers": {"a": {"command": "x", "env": {"KEY": ["hunter2"]}}}}"#,
        r#"{"mcpServers": {"a": {"command": "x", "timeout": "hunter2"}}}"#,
        r#"{"mcpServers": {"a": {"url": "http://ada:hunter2@h:port/?secretkey"}}}"#,
        r#"{"mcpServers": {"a": {"url": "http://h", "headers": {"x": "hunter2\n"}}}}"#,
    ];
    let path = Path::new("mcp.json");
    for text in json {
        let error = parse_mcp_servers(text, path).unwrap_err();
        assert!(error.to_string().contains("invalid server `a` in mcp.json: "), "{error}");
        check(&error);
    }
    let error = parse_mcp_servers(json[0], path).unwrap_err().to_string();
    assert!(error.contains("the value of `headers` is invalid"), "{error}");

    for text in ["[mcp_servers.a]\nurl = \"http://h\"\nbearer = hunter2\n", "[mcp_servers.a]\nx = \"hunter2\n"] {
        let error = parse_mcp_servers(text, Path::new("config.toml")).unwrap_err();
        assert!(error.to_string().contains("in line "), "{error}");
        check(&error);
    }

    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join(".env"), "KEY='hunter2\n").unwrap();
    let text = r#"{"servers": {"a": {"command": "x", "envFile": ".env"}}}"#;
    let error = parse_mcp_servers(text, &directory.path().join("mcp.json")).unwrap_err();
    assert!(error.to_string().contains("environment file"), "{error}");
    check(&error);
}

#[tokio::test]
async fn causes_are_printed_once() {
    check(&McpServerStdio::new("no-such-program").build().connect().await.err().unwrap());
    check(&belljar_mcp_client::load_mcp_servers("/no/such/file.json").unwrap_err());
}

//! Configuration files of other programs, and the servers that they define.

use std::path::Path;
use std::time::Duration;

use belljar_mcp_client::oauth::{LoopbackRedirect, OAuth};
use belljar_mcp_client::{
    ConfigError, ConfigFile, Elicitation, ElicitationResponse, McpError, McpServer, McpServerSse, McpServerStdio,
    McpServerStreamableHttp, Toolset, load_mcp_servers, load_mcp_servers_with, parse_mcp_servers,
};
use serde_json::{Value, json};

use crate::harness::{START_TIMEOUT, TestServer, free_port, output, script};

fn parse(text: &str, path: &str) -> Result<Vec<McpServer>, String> {
    parse_mcp_servers(text, Path::new(path)).map_err(|error| error.to_string())
}

#[test]
fn pydantic_ai_file_selects_transports_by_url() {
    let text = r#"{"mcpServers": {
        "files": {"command": "server", "args": ["${NO_SUCH_VARIABLE:-/tmp}"], "env": {"A": "${PATH}", "N": 5}, "cwd": "/"},
        "old": {"url": "http://localhost:1/sse"},
        "web": {"url": "https://example.org/mcp", "headers": {"authorization": "Bearer ${NO_SUCH_VARIABLE:-x}"}}
    }}"#;
    let servers = parse(text, "mcp.json").unwrap();
    let path = std::env::var("PATH").unwrap();
    let files = McpServerStdio::new("server")
        .arg("/tmp")
        .env("A", path)
        .env("N", "5")
        .cwd("/")
        .id("files")
        .tool_prefix("files");
    let old = McpServerSse::new("http://localhost:1/sse").unwrap().id("old").tool_prefix("old");
    let web = McpServerStreamableHttp::new("https://example.org/mcp").unwrap().id("web").tool_prefix("web");
    assert_eq!(servers, [files.build(), old.build(), web.build()]);
}

#[test]
fn order_of_the_file_is_kept() {
    let text = r#"{"mcpServers": {"zeta": {"command": "x"}, "alpha": {"command": "x"}, "mid": {"command": "x"}}}"#;
    let ids =
        |servers: &[McpServer]| servers.iter().filter_map(|server| server.id().map(str::to_owned)).collect::<Vec<_>>();
    assert_eq!(ids(&parse(text, "mcp.json").unwrap()), ["zeta", "alpha", "mid"]);
    let text = "[mcp_servers.zeta]\ncommand = \"x\"\n[mcp_servers.alpha]\ncommand = \"x\"\n";
    assert_eq!(ids(&parse(text, "config.toml").unwrap()), ["zeta", "alpha"]);
}

#[test]
fn missing_and_invalid_files_have_different_errors() {
    let directory = tempfile::tempdir().unwrap();
    let missing = ConfigFile::load(directory.path().join("none.json")).unwrap_err();
    assert!(matches!(missing, McpError::Config(ConfigError::NotFound { .. })), "{missing:?}");
    let unreadable = ConfigFile::load(directory.path()).unwrap_err();
    assert!(matches!(unreadable, McpError::Config(ConfigError::Read { .. })), "{unreadable:?}");
    let path = directory.path().join("mcp.json");
    std::fs::write(&path, "{").unwrap();
    let invalid = ConfigFile::load(&path).unwrap_err();
    assert!(matches!(invalid, McpError::Config(ConfigError::Syntax { .. })), "{invalid:?}");
    std::fs::write(&path, r#"{"mcpServers": {"a": {"command": 5}}}"#).unwrap();
    let invalid = ConfigFile::load(&path).unwrap_err();
    assert!(matches!(&invalid, McpError::Config(ConfigError::Server { name, .. }) if name == "a"), "{invalid:?}");
    std::fs::write(&path, r#"{"mcpServers": {"a": {"command": "x"}, "b": {"command": "${NO_SUCH_VARIABLE}"}}}"#)
        .unwrap();
    let file = ConfigFile::load(&path).unwrap();
    let unknown = file.builder("c").unwrap_err();
    assert!(matches!(&unknown, McpError::Config(ConfigError::UnknownServer { .. })), "{unknown:?}");
    assert_eq!(unknown.hint().unwrap(), "it defines `a`, `b`");
    // A server can be used though another is invalid.
    assert_eq!(file.builder("a").unwrap().build().id(), Some("a"));
    file.builder("b").unwrap_err();
}

#[tokio::test]
async fn configured_server_takes_everything_that_a_built_one_does() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mcp.json");
    let entry = |fault: &str| json!({"command": "python3", "args": ["-u", script("faulty_server.py"), fault]});
    let text = json!({"mcpServers": {"elicits": entry("elicits"), "slow": entry("never_initializes")}});
    std::fs::write(&path, text.to_string()).unwrap();
    let mut names = Vec::new();
    let servers = load_mcp_servers_with(&path, |name, server| {
        names.push(name.to_owned());
        let server = server.env("EXTRA", "added")?.tool_prefix("x");
        Ok(match name {
            "slow" => server.timeout(Duration::from_millis(300)),
            _ => server
                .timeout(START_TIMEOUT)
                .elicitation_handler(async |_question: Elicitation| Ok(ElicitationResponse::Decline)),
        })
    });
    let servers = servers.unwrap();
    assert_eq!(names, ["elicits", "slow"]);
    assert!(matches!(servers[1].connect().await.err().unwrap(), McpError::Timeout { .. }));
    let run = belljar_mcp_client::RunContext::new();
    let answer = output(servers[0].call(&run, "x_act", serde_json::Map::new()).await.unwrap());
    assert_eq!(answer.as_json().unwrap()["result"]["action"], "decline");
    let environment = output(servers[0].call(&run, "x_environment", serde_json::Map::new()).await.unwrap());
    assert_eq!(environment.as_json().unwrap()["EXTRA"], "added");

    // A server that was built can be changed as well.
    let plain = load_mcp_servers(&path).unwrap().remove(0);
    let equipped = plain
        .to_builder()
        .timeout(START_TIMEOUT)
        .elicitation_handler(async |_question: Elicitation| Ok(ElicitationResponse::Cancel))
        .build();
    let answer = output(equipped.direct_call_tool("act", json!({})).await.unwrap());
    assert_eq!(answer.as_json().unwrap()["result"]["action"], "cancel");
}

#[tokio::test]
async fn headers_and_clients_are_added_to_configured_http_servers() {
    let listening = TestServer::start("python3", &["-u", &script("faulty_http_server.py")]);
    let text = json!({"mcpServers": {"web": {"url": listening.url("/acts/none"), "headers": {"x-file": "1"}}}});
    let file = ConfigFile::parse(&text.to_string(), Path::new("mcp.json")).unwrap();
    let defaults = http::HeaderMap::from_iter([("x-client".parse().unwrap(), http::HeaderValue::from_static("2"))]);
    let client = reqwest::Client::builder().default_headers(defaults).build().unwrap();
    let more = http::HeaderMap::from_iter([("x-map".parse().unwrap(), http::HeaderValue::from_static("3"))]);
    let server = file.builder("web").unwrap().http_client(client).unwrap().headers(&more).unwrap();
    let server = server.bearer_token("token").unwrap().header("x-more", "4").unwrap().build();
    assert_eq!(output(server.direct_call_tool("fine", json!({})).await.unwrap()).to_text(), "fine");
    let seen: Vec<Value> =
        serde_json::from_str(&reqwest::get(listening.url("/seen")).await.unwrap().text().await.unwrap()).unwrap();
    for (name, value) in
        [("x-file", "1"), ("x-client", "2"), ("x-map", "3"), ("x-more", "4"), ("authorization", "Bearer token")]
    {
        assert!(seen.iter().all(|request| request[name] == value), "{name}: {seen:?}");
    }
}

#[test]
fn options_that_do_not_fit_the_transport_are_errors() {
    let text = r#"{"mcpServers": {"local": {"command": "x"}, "web": {"url": "http://h/mcp"}}}"#;
    let file = ConfigFile::parse(text, Path::new("mcp.json")).unwrap();
    let local = || file.builder("local").unwrap();
    let web = || file.builder("web").unwrap();
    assert!(local().is_child_process() && web().is_http());
    for error in [local().bearer_token("x"), local().header("a", "b"), local().http_client(reqwest::Client::new())] {
        let error = error.err().unwrap();
        assert!(matches!(error, McpError::Config(ConfigError::NotHttp { .. })), "{error:?}");
    }
    for error in [web().env("A", "b"), web().arg("x"), web().inherit_env(), web().cwd("/")] {
        let error = error.err().unwrap();
        assert!(matches!(error, McpError::Config(ConfigError::NotChildProcess { .. })), "{error:?}");
    }
}

/// Returns the consent page that a server of a configuration file sends the user to.
async fn consent_page(entry: &str, listening: &TestServer) -> reqwest::Url {
    let text = format!(r#"{{"mcpServers": {{"a": {{"url": "{}", {entry}}}}}}}"#, listening.url("/mcp"));
    let file = ConfigFile::parse(&text, Path::new("mcp.json")).unwrap();
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let oauth = OAuth::loopback(LoopbackRedirect::new(move |url| sender.send(url.to_owned()).unwrap()));
    let server = file.builder("a").unwrap().oauth(oauth).unwrap().build();
    tokio::select! {
        _ = server.connect() => panic!("connected without consent"),
        page = receiver.recv() => page.unwrap().parse().unwrap(),
    }
}

#[tokio::test]
async fn oauth_client_of_an_entry_is_used() {
    let listening = TestServer::start("python3", &["-u", &script("oauth_server.py")]);
    let port = free_port();
    let entries = [
        format!(r#""oauth": {{"clientId": "the-editor", "callbackPort": {port}, "scopes": "read write"}}"#),
        r#""auth": {"CLIENT_ID": "the-editor", "CLIENT_SECRET": "s", "scopes": ["write"]}"#.to_owned(),
    ];
    for entry in entries {
        let page = consent_page(&entry, &listening).await;
        let value = |name: &str| page.query_pairs().find(|(key, _)| key == name).unwrap().1.into_owned();
        assert_eq!(value("client_id"), "the-editor");
        if entry.contains("callbackPort") {
            assert_eq!(value("redirect_uri"), format!("http://localhost:{port}/callback"));
            assert_eq!(value("scope"), "read write");
        } else {
            assert_eq!(value("scope"), "write");
        }
    }
    // Without a client in the entry one is registered; other programs' keys of this name are ignored.
    for entry in [r#""auth": "oauth""#, r#""oauth": true"#] {
        let page = consent_page(entry, &listening).await;
        assert!(page.query().unwrap().contains("client_id=client-"), "{page}");
    }
}

#[test]
fn claude_desktop_and_claude_code_files_are_read() {
    let text = r#"{"mcpServers": {"a": {"type": "stdio", "command": "x"}, "b": {"type": "http", "url": "http://h/sse"},
        "c": {"type": "sse", "url": "http://h/c"}}, "globalShortcut": ""}"#;
    let servers = parse(text, "claude_desktop_config.json").unwrap();
    assert_eq!(servers[1], McpServerStreamableHttp::new("http://h/sse").unwrap().id("b").tool_prefix("b").build());
    assert_eq!(servers[2], McpServerSse::new("http://h/c").unwrap().id("c").tool_prefix("c").build());
}

#[test]
fn vscode_file_supports_comments_inputs_and_env_file() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join(".vscode");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(directory.path().join(".env"), "# secrets\nTOKEN='a b'\n").unwrap();
    let path = folder.join("mcp.json");
    let text = r#"{
        // prompts the user
        "inputs": [{"id": "level", "type": "promptString", "default": "7"}],
        "servers": {
            "local": {"type": "stdio", "command": "run", "args": ["${workspaceFolder}", "${input:level}"], "envFile": "${workspaceFolder}/.env",},
            "off": {"command": "${NO_SUCH_VARIABLE}", "disabled": true}
        }
    }"#;
    std::fs::write(&path, text).unwrap();
    let servers = load_mcp_servers(&path).unwrap();
    let expected = McpServerStdio::new("run").arg(directory.path().display().to_string()).arg("7").env("TOKEN", "a b");
    assert_eq!(servers, [expected.id("local").tool_prefix("local").build()]);
    let settings = r#"{"editor.fontSize": 12, "mcp": {"servers": {"a": {"command": "x"}}}}"#;
    assert_eq!(parse(settings, "settings.json").unwrap().len(), 1);
}

#[test]
fn cursor_file_is_read() {
    let text = r#"{"mcpServers": {"a": {"command": "x", "args": ["${env:PATH}"]}, "b": {"url": "http://h/mcp"}}}"#;
    let servers = parse(text, ".cursor/mcp.json").unwrap();
    let a = McpServerStdio::new("x").arg(std::env::var("PATH").unwrap()).id("a").tool_prefix("a").build();
    assert_eq!(servers[0], a);
}

#[test]
fn codex_file_is_read() {
    let text = r#"
        model = "x"
        [mcp_servers.docs]
        command = "npx"
        args = ["-y", "docs"]
        env_vars = ["PATH"]
        startup_timeout_sec = 20
        [mcp_servers.docs.env]
        KEY = "value"
        [mcp_servers.web]
        url = "https://example.org/mcp"
        bearer_token_env_var = "PATH"
        http_headers = { "x-a" = "b" }
        env_http_headers = { "x-path" = "PATH" }
        [mcp_servers.off]
        command = "x"
        enabled = false
    "#;
    let servers = parse(text, "config.toml").unwrap();
    let path = std::env::var("PATH").unwrap();
    let docs = McpServerStdio::new("npx").args(["-y", "docs"]).env("PATH", path).env("KEY", "value");
    assert_eq!(servers[0], docs.id("docs").tool_prefix("docs").build());
    assert_eq!((servers.len(), servers[1].id()), (2, Some("web")));
}

#[test]
fn null_counts_as_left_out() {
    let text = r#"{"mcpServers": {"a": {"command": "x", "args": null, "env": null, "cwd": null, "disabled": null,
        "headers": null, "timeout": null}, "b": {"url": "http://h/mcp", "headers": null, "command": null}}}"#;
    let servers = parse(text, "mcp.json").unwrap();
    assert_eq!(servers[0], McpServerStdio::new("x").id("a").tool_prefix("a").build());
    assert_eq!(servers[1].id(), Some("b"));
}

#[tokio::test]
async fn codex_file_selects_the_tools_shown_to_models() {
    let text = format!(
        "[mcp_servers.it]\ncommand = \"python3\"\nargs = [\"-u\", {:?}, \"none\"]\nstartup_timeout_sec = 60\ndisabled_tools = [\"act\"]",
        script("faulty_server.py")
    );
    let server = parse(&text, "config.toml").unwrap().remove(0);
    let tools = server.tools(&belljar_mcp_client::RunContext::new()).await.unwrap();
    assert_eq!(tools.iter().map(|tool| &*tool.name).collect::<Vec<_>>(), ["it_fine"]);
}

#[test]
fn configuration_errors_name_file_and_cause() {
    let cases = [
        (
            r#"{"mcpServers": {"a": {"command": "${NO_SUCH_VARIABLE}"}}}"#,
            "invalid server `a` in x.json: the environment variable `NO_SUCH_VARIABLE` is not set",
        ),
        (r#"{"mcpServers": {"a": {}}}"#, "neither a `command` nor a `url`"),
        (r#"{"mcpServers": {"a": {"url": "ftp://h"}}}"#, "not an http or https URL"),
        (r#"{"mcpServers": {"a": {"command": "x", "type": "http"}}}"#, "not valid together with a `command`"),
        (
            r#"{"mcpServers": {"a": {"url": "http://h", "headers": {"mcp-session-id": "x"}}}}"#,
            "reserved for the protocol",
        ),
        (
            r#"{"mcpServers": {"a": {"url": "http://h", "headers": {"x": "a\nb"}}}}"#,
            "the value of the header `x` is not valid",
        ),
        (r#"{"mcpServers": {"a": {"command": 5}}}"#, "server `a`"),
        (r#"{"servers": {"a": {"command": "${input:k}"}}}"#, "the input `k` does not have a default"),
        (r#"{"servers": []}"#, "does not define any servers"),
        ("{", "as JSON"),
    ];
    for (text, expected) in cases {
        let error = parse(text, "x.json").unwrap_err();
        assert!(error.contains(expected) && error.contains("x.json"), "{error}");
    }
    assert!(parse("a = ", "x.toml").unwrap_err().contains("as TOML"));
    assert!(load_mcp_servers("/no/such/file.json").unwrap_err().to_string().contains("/no/such/file.json"));
}

#[tokio::test]
async fn configured_server_works() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mcp.json");
    let entry = json!({"command": "python3", "args": ["-u", script("faulty_server.py"), "none"], "timeout": 60});
    std::fs::write(&path, json!({"mcpServers": {"it": entry}}).to_string()).unwrap();
    let server = load_mcp_servers(&path).unwrap().remove(0);
    let run = belljar_mcp_client::RunContext::new();
    let outcome = server.call(&run, "it_fine", serde_json::Map::new()).await.unwrap();
    assert_eq!(output(outcome).to_text(), "fine");
}

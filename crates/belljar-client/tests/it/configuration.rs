//! Configuration files of other programs, and the servers that they define.

use std::path::Path;

use belljar_client::{
    McpServerSse, McpServerStdio, McpServerStreamableHttp, Toolset, load_mcp_servers, parse_mcp_servers,
};
use serde_json::json;

use crate::harness::{output, script};

fn parse(text: &str, path: &str) -> Result<Vec<belljar_client::McpServer>, String> {
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
    let tools = server.tools(&belljar_client::RunContext::new()).await.unwrap();
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
    let run = belljar_client::RunContext::new();
    let outcome = server.call(&run, "it_fine", serde_json::Map::new()).await.unwrap();
    assert_eq!(output(outcome).to_text(), "fine");
}

//! `belljar call`: any MCP server, tried in one line.

use std::fmt::Write as _;
use std::io::{IsTerminal, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use belljar_client::oauth::{Loopback, OAuth};
use belljar_client::protocol::Tool;
use belljar_client::{
    CallOptions, LogLevel, McpError, McpServer, McpServerSse, McpServerStdio, McpServerStreamableHttp, OverHttp,
    ProtocolEra, ServerBuilder, ToolOutcome, ToolOutput, load_mcp_servers,
};
use clap::Args;
use serde_json::Value;

use crate::cli::Global;
use crate::console::print_line;
use crate::outcome::fail;

/// Exit statuses, beside that of what could not be started.
const FAILED: u8 = 1;
const INTERRUPTED: u8 = 130;

/// Bytes that arguments on standard input may have.
const MAX_ARGUMENTS: u64 = 16 * 1024 * 1024;

/// Options of `belljar call`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  belljar call 'npx -y @modelcontextprotocol/server-everything'            list its tools
  belljar call 'npx -y @modelcontextprotocol/server-everything' echo '{\"message\": \"hi\"}'
  belljar call http://localhost:8000/mcp plot '{\"n\": 3}' --save out      images go to out/
  belljar call ~/.cursor/mcp.json#git git_status '{\"repo_path\": \".\"}'    a server of a configuration file
  belljar call https://example.org/mcp --oauth                             with a browser, for tokens

Exit status: 0 when the tool gave a result, 1 when it failed, 2 when the server could not be reached.")]
pub(crate) struct Arguments {
    /// A URL, a command line in one argument, or FILE#NAME for a server of a configuration file.
    #[arg(value_name = "TARGET")]
    target: String,
    /// The tool to call. Without one the tools are listed.
    #[arg(value_name = "TOOL")]
    tool: Option<String>,
    /// Its arguments, as a JSON object; `-` reads them from standard input.
    #[arg(value_name = "JSON", default_value = "{}")]
    json: String,
    /// Print the server's whole answer as JSON.
    #[arg(long)]
    raw: bool,
    /// Directory for images and other files of the result.
    #[arg(long, value_name = "DIR", default_value = ".")]
    save: PathBuf,
    /// Send a header with every request to a URL.
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = header)]
    headers: Vec<(String, String)>,
    /// Get tokens with a browser, if the server wants them.
    #[arg(long)]
    oauth: bool,
    /// Port of this machine that the browser comes back to.
    #[arg(long, value_name = "PORT", default_value = "8765", requires = "oauth")]
    oauth_port: u16,
    /// Set a variable of a command's environment, which else has six of yours (HOME, PATH, …).
    #[arg(long, value_name = "NAME=VALUE", value_parser = crate::cli::variable)]
    env: Vec<(String, String)>,
    /// Seconds that the server may take to start.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = crate::cli::seconds)]
    start_timeout: Duration,
    /// Seconds that the server may be silent.
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = crate::cli::seconds)]
    timeout: Duration,
    /// Era of the protocol: auto, legacy (to 2025-11-25) or modern (from 2026-07-28).
    #[arg(long, value_name = "ERA", default_value = "auto", value_parser = era)]
    era: ProtocolEra,
}

/// Lists a server's tools, or calls one.
pub(crate) fn call(global: &Global, arguments: &Arguments) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return complain(&format!("no thread could be started: {error}")),
    };
    let status = runtime.block_on(async {
        tokio::select! {
            status = run(global, arguments) => status,
            _ = tokio::signal::ctrl_c() => ExitCode::from(INTERRUPTED),
        }
    });
    // A call that was interrupted is taken back, and a child ended, in the background.
    runtime.shutdown_timeout(Duration::from_secs(4));
    status
}

async fn run(global: &Global, arguments: &Arguments) -> ExitCode {
    match attempt(global, arguments).await {
        Ok(status) => status,
        Err(error) => complain(&error),
    }
}

fn complain(error: &str) -> ExitCode {
    fail(&for_people(error))
}

async fn attempt(global: &Global, arguments: &Arguments) -> Result<ExitCode, String> {
    let json = arguments_of(&arguments.json)?;
    let server = server(global, arguments)?;
    let words = |error: McpError| error.to_string();
    let running = server.connect().await.map_err(words)?;
    let status = match &arguments.tool {
        None => {
            list(&server.list_tools().await.map_err(words)?, arguments.raw)?;
            ExitCode::SUCCESS
        }
        Some(tool) if arguments.raw => {
            let result = server.call_tool_raw(tool, json, options(global)).await.map_err(words)?;
            print(&serde_json::to_string_pretty(&result).map_err(|error| error.to_string())?);
            ExitCode::from(if result.is_error == Some(true) { FAILED } else { 0 })
        }
        Some(tool) => match server.call_tool_with(tool, json, options(global)).await.map_err(words)? {
            ToolOutcome::Output(output) => {
                show(&output, tool, &arguments.save)?;
                ExitCode::SUCCESS
            }
            failure => {
                eprintln!("{}", for_people(&failure.to_text()));
                ExitCode::from(FAILED)
            }
        },
    };
    running.close().await.map_err(words)?;
    Ok(status)
}

/// Progress goes to standard error: standard output is the result's.
fn options(global: &Global) -> CallOptions {
    if global.quiet {
        return CallOptions::new();
    }
    CallOptions::new().progress_handler(|step| {
        let total = step.total.map(|total| format!("/{total}")).unwrap_or_default();
        eprintln!("[{}{total}] {}", step.progress, for_people(&step.message.unwrap_or_default()));
    })
}

/// The server that is meant.
fn server(global: &Global, arguments: &Arguments) -> Result<McpServer, String> {
    let target = &arguments.target;
    let words = |error: McpError| error.to_string();
    if target.starts_with("http://") || target.starts_with("https://") {
        let path = target.split(['?', '#']).next().unwrap_or(target);
        return if path.ends_with("/sse") {
            let server = over_http(McpServerSse::new(target).map_err(words)?, arguments).map_err(words)?;
            Ok(configured(server, global, arguments).build())
        } else {
            let server = over_http(McpServerStreamableHttp::new(target).map_err(words)?, arguments).map_err(words)?;
            Ok(configured(server, global, arguments).build())
        };
    }
    if let Some((file, name)) = target.rsplit_once('#').filter(|(file, _)| Path::new(file).is_file()) {
        let servers = load_mcp_servers(file).map_err(words)?;
        let names: Vec<&str> = servers.iter().filter_map(McpServer::id).collect();
        return servers
            .iter()
            .find(|server| server.id() == Some(name))
            .cloned()
            .ok_or_else(|| format!("{file} has no server `{name}`; it has: {}", names.join(", ")));
    }
    let mut command =
        shlex::split(target).ok_or_else(|| format!("`{target}` has a quotation mark without its pair"))?;
    if command.is_empty() {
        return Err("the target is empty; give a URL, a command line, or FILE#NAME".to_owned());
    }
    let program = command.remove(0);
    let server = McpServerStdio::new(program).args(command).envs(arguments.env.iter().cloned());
    Ok(configured(server, global, arguments).build())
}

/// A server with what the command line says about HTTP.
fn over_http<T: OverHttp>(mut server: ServerBuilder<T>, arguments: &Arguments) -> Result<ServerBuilder<T>, McpError> {
    for (name, value) in &arguments.headers {
        server = server.header(name, value)?;
    }
    if arguments.oauth {
        let visit = Loopback::new(arguments.oauth_port, |url| eprintln!("Visit {url}"));
        server = server.oauth(OAuth::new(visit.redirect_uri(), visit));
    }
    Ok(server)
}

fn configured<T>(server: ServerBuilder<T>, global: &Global, arguments: &Arguments) -> ServerBuilder<T> {
    let server = server.timeout(arguments.start_timeout).read_timeout(arguments.timeout).era(arguments.era);
    if global.quiet {
        return server;
    }
    server.log_level(LogLevel::Info).log_handler(|message| {
        eprintln!("{}: {}", message.level.name(), for_people(&message.text()));
    })
}

fn arguments_of(json: &str) -> Result<Value, String> {
    let mut text = json.to_owned();
    if json == "-" {
        text.clear();
        std::io::stdin()
            .take(MAX_ARGUMENTS)
            .read_to_string(&mut text)
            .map_err(|error| format!("standard input: {error}"))?;
    }
    match serde_json::from_str(&text) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err(format!("the arguments are no JSON object but `{text}`")),
        Err(error) => Err(format!("the arguments are no JSON: {error}; write them as '{{\"name\": \"value\"}}'")),
    }
}

fn list(tools: &[Tool], raw: bool) -> Result<(), String> {
    if raw {
        print(&serde_json::to_string_pretty(tools).map_err(|error| error.to_string())?);
        return Ok(());
    }
    let mut text = String::new();
    for tool in tools {
        let description = tool.description.as_deref().unwrap_or_default();
        // Writing to a String does not fail.
        let _ = writeln!(text, "{}  {}", tool.name, description.lines().next().unwrap_or_default());
        let properties = tool.input_schema.get("properties").and_then(Value::as_object);
        let required = tool.input_schema.get("required").and_then(Value::as_array);
        for (name, schema) in properties.into_iter().flatten() {
            let kind = schema.get("type").and_then(Value::as_str).unwrap_or("any");
            let is_required = required.is_some_and(|required| required.iter().any(|needed| needed == name));
            let note = if is_required { "" } else { ", optional" };
            let about = schema.get("description").and_then(Value::as_str).unwrap_or_default();
            let _ = writeln!(text, "    {name} ({kind}{note})  {}", about.lines().next().unwrap_or_default());
        }
    }
    print(text.trim_end());
    Ok(())
}

/// Prints text and JSON; binary parts become files.
fn show(output: &ToolOutput, tool: &str, directory: &Path) -> Result<(), String> {
    match output {
        ToolOutput::List(parts) => parts.iter().try_for_each(|part| show(part, tool, directory))?,
        ToolOutput::Text(text) => print(text),
        ToolOutput::Json(value) => print(&serde_json::to_string_pretty(value).map_err(|error| error.to_string())?),
        ToolOutput::Binary(binary) => {
            let path = save(&binary.data, &binary.media_type, tool, directory)?;
            print(&format!("{} ({}, {} bytes)", path.display(), binary.media_type, binary.data.len()));
        }
    }
    Ok(())
}

/// Writes a file under a name that is not taken.
fn save(data: &[u8], media_type: &str, tool: &str, directory: &Path) -> Result<PathBuf, String> {
    let failed = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    std::fs::create_dir_all(directory).map_err(|error| failed(directory, error))?;
    let plain =
        |text: &str| -> String { text.chars().filter(|c| c.is_ascii_alphanumeric() || "-_".contains(*c)).collect() };
    let kind = media_type.rsplit('/').next().and_then(|kind| kind.split(['+', ';']).next()).unwrap_or_default();
    let kind =
        Some(plain(kind)).filter(|kind| !kind.is_empty() && kind != "octet-stream").unwrap_or_else(|| "bin".to_owned());
    for number in 1..u32::MAX {
        let path = directory.join(format!("{}-{number}.{kind}", plain(tool)));
        match std::fs::OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut file) => {
                file.write_all(data).map_err(|error| failed(&path, error))?;
                return Ok(path);
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(&path, error)),
        }
    }
    Err(format!("{} has no room for another name", directory.display()))
}

fn print(text: &str) {
    if std::io::stdout().is_terminal() {
        print_line(for_people(text));
    } else {
        print_line(text);
    }
}

/// Text from outside, without what a terminal would take for orders.
fn for_people(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("write it as NAME: VALUE")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

fn era(text: &str) -> Result<ProtocolEra, String> {
    match text {
        "auto" => Ok(ProtocolEra::Auto),
        "legacy" => Ok(ProtocolEra::Legacy),
        "modern" => Ok(ProtocolEra::Modern),
        _ => Err("it is auto, legacy or modern".to_owned()),
    }
}

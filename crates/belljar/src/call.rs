//! `belljar call`: lists the tools of an MCP server, or calls one.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::io::{IsTerminal, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use belljar_core::progress::ProgressStep;
use belljar_mcp_client::oauth::{FileTokenStore, LoopbackRedirect, OAuth, open_browser};
use belljar_mcp_client::protocol::Tool;
use belljar_mcp_client::{
    AnyServerBuilder, CallOptions, ConfigFile, LogLevel, McpServer, McpServerStdio, ProtocolEra, ToolOutcome,
    ToolOutput,
};
use clap::Args;
use serde::Serialize;
use serde_json::Value;

use crate::command_error::CommandError;
use crate::console::print_line;
use crate::exit_code::{FAILURE, INTERRUPTED, success_if};
use crate::global_options::GlobalOptions;
use crate::outcome::fail;
use crate::progress;
use crate::untrusted_text::strip_control_chars;
use crate::value_parsers::{seconds, variable};

/// The maximum size of arguments on standard input, in bytes.
const MAX_ARGUMENTS: u64 = 16 * 1024 * 1024;
/// The time that the runtime has for cancelling an interrupted call and ending its server process.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(4);
/// The time that a server has to start unless an option or its configuration file allows more: `npx` may install it.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// The time after which the start of a server is reported.
const START_REPORT_DELAY: Duration = Duration::from_secs(1);

/// The options of `belljar call`.
#[derive(Debug, Args)]
#[command(
    after_help = "\
Examples:
  belljar call 'npx -y some-mcp-server'                         list its tools
  belljar call http://localhost:8000/mcp plot '{\"n\": 3}'      call one",
    after_long_help = "\
Examples:
  belljar call 'npx -y @modelcontextprotocol/server-everything'            list its tools
  belljar call 'npx -y @modelcontextprotocol/server-everything' echo '{\"message\": \"hi\"}'
  belljar call http://localhost:8000/mcp plot '{\"n\": 3}' --save out      save images to out/
  belljar call ~/.cursor/mcp.json#git git_status '{\"repo_path\": \".\"}'    use a server of a file
  belljar call https://example.org/mcp --oauth                             log in with a browser

Exit status: 0 if the tool succeeded, 1 if it failed, 2 if the server could not be reached."
)]
pub(crate) struct CallArguments {
    /// URL, command line in one argument, or FILE#NAME for a server of a configuration file.
    #[arg(value_name = "TARGET")]
    target: String,
    /// Tool to call. Without it, the tools are listed.
    #[arg(value_name = "TOOL")]
    tool: Option<String>,
    /// Arguments of the tool as a JSON object; `-` reads them from standard input.
    #[arg(value_name = "JSON", default_value = "{}")]
    json: String,
    /// Print the complete result as JSON.
    #[arg(long)]
    raw: bool,
    /// Directory for images and other files of the result.
    #[arg(long, value_name = "DIR", default_value = ".")]
    save: PathBuf,
    /// Header to send with every request to a server over HTTP.
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = header)]
    headers: Vec<(String, String)>,
    /// Log in with a browser if the server requires OAuth tokens. The tokens are stored, so that later calls need no
    /// browser.
    #[arg(long)]
    oauth: bool,
    /// Local port for the redirect of the browser [default: a free port].
    #[arg(long, value_name = "PORT", requires = "oauth", hide_short_help = true)]
    oauth_port: Option<u16>,
    /// File for the tokens of all servers [default: in the platform's data directory].
    #[arg(long, value_name = "FILE", env = "BELLJAR_OAUTH_TOKENS", hide_env_values = true, hide_short_help = true)]
    oauth_tokens: Option<PathBuf>,
    /// Do not read or store tokens.
    #[arg(long, requires = "oauth", conflicts_with = "oauth_tokens", hide_short_help = true)]
    no_token_store: bool,
    /// Print the URL for logging in without opening a browser.
    #[arg(long, requires = "oauth", hide_short_help = true)]
    no_browser: bool,
    /// Environment variable for a server command, which otherwise inherits only six variables (HOME, PATH, …).
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable, hide_short_help = true)]
    env: Vec<(String, String)>,
    /// Maximum time for the server to start [default: 60, or that of the configuration file if it is longer].
    #[arg(long, value_name = "SECONDS", value_parser = seconds, hide_short_help = true)]
    start_timeout: Option<Duration>,
    /// Maximum time without a message from the server [default: that of the configuration file, or 300].
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,
    /// Era of the protocol: auto, legacy (up to 2025-11-25) or modern (from 2026-07-28).
    #[arg(long, value_name = "ERA", default_value = "auto", value_parser = era, hide_short_help = true)]
    era: ProtocolEra,
}

/// Runs `belljar call`: lists a server's tools, or calls one.
pub(crate) fn call(global: &GlobalOptions, arguments: &CallArguments) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(format!("failed to start threads: {error}")),
    };
    let status = runtime.block_on(async {
        tokio::select! {
            status = run(global, arguments) => status,
            _ = tokio::signal::ctrl_c() => ExitCode::from(INTERRUPTED),
        }
    });
    // Background tasks cancel an interrupted call and end a child process.
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    status
}

async fn run(global: &GlobalOptions, arguments: &CallArguments) -> ExitCode {
    match try_call(global, arguments).await {
        Ok(status) => status,
        Err(error) => fail(error),
    }
}

async fn try_call(global: &GlobalOptions, arguments: &CallArguments) -> Result<ExitCode, CommandError> {
    let json = parse_arguments(&arguments.json)?;
    let server = server(global, arguments)?;
    let running = tokio::select! {
        running = server.connect() => running?,
        never = show_start(global, &arguments.target) => match never {},
    };
    let status = match &arguments.tool {
        None => {
            list(&server.list_tools().await?, arguments.raw)?;
            ExitCode::SUCCESS
        }
        Some(tool) if arguments.raw => {
            let result = server.call_tool_raw(tool, json, options(global)).await?;
            print(&pretty(&result)?);
            success_if(result.is_error != Some(true))
        }
        Some(tool) => match server.call_tool_with(tool, json, options(global)).await? {
            ToolOutcome::Output(output) => {
                show(&output, tool, &arguments.save)?;
                ExitCode::SUCCESS
            }
            failure => {
                eprintln!("{}", strip_control_chars(&failure.to_text()));
                ExitCode::from(FAILURE)
            }
        },
    };
    running.close().await?;
    Ok(status)
}

/// Shows on a terminal that a server is being started, once that takes a while: `npx` may install it first.
async fn show_start(global: &GlobalOptions, target: &str) -> Infallible {
    let is_url = target.starts_with("http://") || target.starts_with("https://");
    if is_url || !std::io::stderr().is_terminal() {
        return std::future::pending().await;
    }
    tokio::time::sleep(START_REPORT_DELAY).await;
    // Removed from the terminal when the future is dropped.
    let name = format!("starting {}", strip_control_chars(target));
    let _step = progress::reporter(global.quiet).start(ProgressStep::indeterminate(name));
    std::future::pending().await
}

/// Returns the options of a call. Progress is printed to standard error, because standard output contains the result.
fn options(global: &GlobalOptions) -> CallOptions {
    if global.quiet {
        return CallOptions::new();
    }
    CallOptions::new().progress_handler(|step| {
        let total = step.total.map(|total| format!("/{}", amount(total))).unwrap_or_default();
        let message = step.message.unwrap_or_default();
        eprintln!("[{}{total}] {}", amount(step.progress), strip_control_chars(&message));
    })
}

/// Returns the server that the target names, with all options.
fn server(global: &GlobalOptions, arguments: &CallArguments) -> Result<McpServer, CommandError> {
    let mut server = target(&arguments.target)?;
    for (name, value) in &arguments.headers {
        server = server.header(name, value)?;
    }
    for (name, value) in &arguments.env {
        server = server.env(name, value)?;
    }
    if arguments.oauth {
        server = server.oauth(oauth(arguments)?)?;
    }
    let start_timeout = arguments.start_timeout.unwrap_or_else(|| server.configured_timeout().max(START_TIMEOUT));
    let mut server = server.timeout(start_timeout).era(arguments.era);
    if let Some(timeout) = arguments.timeout {
        server = server.read_timeout(timeout);
    }
    if !global.quiet {
        server = server.log_level(LogLevel::Info).log_handler(|message| {
            eprintln!("{}: {}", message.level.name(), strip_control_chars(&message.text()));
        });
    }
    Ok(server.build())
}

/// Returns the server that a URL, `FILE#NAME` or a command line names.
fn target(target: &str) -> Result<AnyServerBuilder, CommandError> {
    if target.starts_with("http://") || target.starts_with("https://") {
        return Ok(McpServer::from_url(target)?);
    }
    if let Some((file, name)) = target.rsplit_once('#').filter(|(file, _)| Path::new(file).is_file()) {
        return Ok(ConfigFile::load(file)?.builder(name)?);
    }
    let mut command = shlex::split(target).ok_or_else(|| format!("unbalanced quotation marks in `{target}`"))?;
    if command.is_empty() {
        return Err(CommandError::new("the target is empty").with_hint("use a URL, a command line, or FILE#NAME"));
    }
    let program = command.remove(0);
    Ok(McpServerStdio::new(program).args(command).into_any())
}

/// Returns the configuration of logging in. The URL is printed in any case: the browser may be on another computer.
fn oauth(arguments: &CallArguments) -> Result<OAuth, CommandError> {
    let is_interactive = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    let opens_browser = is_interactive && !arguments.no_browser;
    let redirect = LoopbackRedirect::new(move |url| {
        eprintln!("Visit {}", strip_control_chars(url));
        if opens_browser && let Err(error) = open_browser(url) {
            tracing::debug!(%error, "did not open a browser");
        }
    });
    let redirect = match arguments.oauth_port {
        Some(port) => redirect.port(port),
        None => redirect,
    };
    let oauth = OAuth::loopback(redirect);
    Ok(if arguments.no_token_store { oauth } else { oauth.store(FileTokenStore::new(token_file(arguments)?)) })
}

/// Returns the file of the tokens.
fn token_file(arguments: &CallArguments) -> Result<PathBuf, CommandError> {
    let file = arguments.oauth_tokens.clone().or_else(|| {
        let project = directories::ProjectDirs::from("", "", "belljar")?;
        Some(project.data_local_dir().join("oauth-tokens.json"))
    });
    file.ok_or_else(|| {
        CommandError::new("the platform has no directory for the tokens")
            .with_hint("name a file with --oauth-tokens or BELLJAR_OAUTH_TOKENS, or use --no-token-store")
    })
}

fn parse_arguments(json: &str) -> Result<Value, CommandError> {
    let mut text = json.to_owned();
    if json == "-" {
        text.clear();
        std::io::stdin()
            .take(MAX_ARGUMENTS)
            .read_to_string(&mut text)
            .map_err(|error| format!("failed to read standard input: {error}"))?;
    }
    match serde_json::from_str(&text) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err(CommandError::new(format!("the arguments are not a JSON object: `{text}`"))),
        Err(error) => Err(CommandError::new(format!("the arguments are not valid JSON: {error}"))
            .with_hint("write them as '{\"name\": \"value\"}'")),
    }
}

fn list(tools: &[Tool], raw: bool) -> Result<(), CommandError> {
    if raw {
        print(&pretty(tools)?);
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

/// Prints text and JSON, and saves binary parts to files.
fn show(output: &ToolOutput, tool: &str, directory: &Path) -> Result<(), CommandError> {
    match output {
        ToolOutput::List(parts) => parts.iter().try_for_each(|part| show(part, tool, directory))?,
        ToolOutput::Text(text) => print(text),
        ToolOutput::Json(value) => print(&pretty(value)?),
        ToolOutput::Binary(binary) => {
            let path = save(&binary.data, &binary.media_type, tool, directory)?;
            print(&format!("{} ({}, {} bytes)", path.display(), binary.media_type, binary.data.len()));
        }
        other => print(&other.to_text()),
    }
    Ok(())
}

/// The length of a tool's name and of a media type in the name of a saved file: both come from the server.
const MAX_NAME_PART: usize = 80;

/// Writes a file with an unused name.
fn save(data: &[u8], media_type: &str, tool: &str, directory: &Path) -> Result<PathBuf, CommandError> {
    let failed =
        |path: &Path, error: std::io::Error| CommandError::new(format!("failed to write {}: {error}", path.display()));
    std::fs::create_dir_all(directory).map_err(|error| failed(directory, error))?;
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || "-_".contains(*c);
    let plain = |text: &str| -> String { text.chars().filter(is_plain).take(MAX_NAME_PART).collect() };
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
    Err(CommandError::new(format!("failed to find an unused file name in {}", directory.display())))
}

fn pretty(value: &(impl Serialize + ?Sized)) -> Result<String, CommandError> {
    serde_json::to_string_pretty(value)
        .map_err(|error| CommandError::new(format!("failed to write the result as JSON: {error}")))
}

fn print(text: &str) {
    if std::io::stdout().is_terminal() {
        print_line(strip_control_chars(text));
    } else {
        print_line(text);
    }
}

/// Returns an untrusted number, in scientific notation if it has more digits than a number has precision.
fn amount(number: f64) -> String {
    if number.abs() < 1e15 { number.to_string() } else { format!("{number:e}") }
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("write NAME: VALUE")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

fn era(text: &str) -> Result<ProtocolEra, String> {
    match text {
        "auto" => Ok(ProtocolEra::Auto),
        "legacy" => Ok(ProtocolEra::Legacy),
        "modern" => Ok(ProtocolEra::Modern),
        _ => Err("write auto, legacy or modern".to_owned()),
    }
}

//! Tools of MCP servers for the code of a command: its options, the connection to the servers, and `belljar tools`.

mod approval;
mod command;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use belljar_core::kernel::{CellObserver, NullObserver};
use belljar_mcp_client::{McpServer, McpServerSse, McpServerStdio, McpServerStreamableHttp, load_mcp_servers_with};
use belljar_tools::{
    ApprovalMode, Approver, NoToolEvents, ObserverApprover, SessionGrants, ToolLimits, ToolObserver, ToolPolicy,
    ToolRun, ToolRunContext, Tools,
};
use clap::Args;
use tokio::runtime::Runtime;

use crate::command_error::CommandError;
use crate::value_parsers::seconds;

pub(crate) use approval::TerminalApprover;
pub(crate) use command::{ToolsCommand, tools};

/// The time that a server has to start. Programs such as npx and uvx may fetch it first.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// The time that servers have to end when the command does.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(4);

/// The variable with the number of Belljar processes that have started each other as servers, up to this one.
const NESTING_VARIABLE: &str = "BELLJAR_NESTING";
/// The maximum of that number for a process that starts servers itself. The configuration of a client may contain
/// Belljar with an option that names the same file, which would start processes without end.
const MAX_NESTING: u32 = 1;

/// The options that name servers and the tools that code may call.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Tools of MCP servers")]
pub(crate) struct ServerOptions {
    /// File of MCP servers whose tools code can call.
    ///
    /// Code imports them with `from tools import NAME`. The formats of Claude, Cursor, VS Code, Codex and pydantic-ai
    /// are known.
    #[arg(long = "servers", value_name = "FILE", hide_short_help = true)]
    server_files: Vec<PathBuf>,
    /// MCP server whose tools code can call.
    #[arg(long = "server", value_name = "NAME=COMMAND|URL", value_parser = named_target, hide_short_help = true)]
    named_servers: Vec<(String, String)>,
    /// Let code call only these tools: names or patterns, such as `github.get_*`.
    #[arg(long, value_name = "PATTERN", hide_short_help = true)]
    allow_tool: Vec<String>,
    /// Never let code call these tools.
    #[arg(long, value_name = "PATTERN", hide_short_help = true)]
    deny_tool: Vec<String>,
}

/// The options for calls of tools.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Tools of MCP servers")]
pub(crate) struct ToolOptions {
    #[command(flatten)]
    pub(crate) servers: ServerOptions,
    /// Calls to ask about: none, destructive, writes (of tools that are not marked as read-only) or all.
    #[arg(long, value_name = "MODE", default_value = "writes", hide_short_help = true)]
    approve: ApprovalMode,
    /// Maximum number of tool calls of one run or cell.
    #[arg(long, value_name = "COUNT", default_value = "100", hide_short_help = true)]
    max_tool_calls: u32,
    /// Maximum number of tool calls at the same time.
    #[arg(long, value_name = "COUNT", default_value = "8", hide_short_help = true,
        value_parser = clap::value_parser!(u16).range(1..))]
    tool_concurrency: u16,
    /// Time limit of one tool call.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "60", hide_short_help = true)]
    tool_timeout: Duration,
    /// Time that one run or cell may wait for tools. The time limit of the code does not run meanwhile.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "600", hide_short_help = true)]
    tool_wait: Duration,
}

impl ServerOptions {
    /// Returns whether any server is given.
    pub(crate) fn is_empty(&self) -> bool {
        self.server_files.is_empty() && self.named_servers.is_empty()
    }

    /// Returns the servers, none of which is connected yet.
    fn open(&self) -> Result<Vec<McpServer>, CommandError> {
        let nesting: u32 = std::env::var(NESTING_VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
        if nesting > MAX_NESTING {
            return Err(CommandError::new(
                "--server, --servers: Belljar has started itself as a server, again and again",
            )
            .with_hint("leave the entry of Belljar out of the file of --servers"));
        }
        let nesting = (nesting + 1).to_string();
        let mut servers = Vec::new();
        for file in &self.server_files {
            servers.extend(load_mcp_servers_with(file, |_, server| {
                let server = server.timeout(START_TIMEOUT);
                if server.is_child_process() { server.env(NESTING_VARIABLE, &nesting) } else { Ok(server) }
            })?);
        }
        for (name, target) in &self.named_servers {
            servers.push(server(name, target, &nesting).map_err(|error| error.context(format!("--server {name}")))?);
        }
        let mut names: Vec<&str> = servers.iter().filter_map(McpServer::id).collect();
        names.sort_unstable();
        if let Some([name, _]) = names.array_windows().find(|[one, other]| one == other) {
            return Err(CommandError::new(format!("two servers are named {name}"))
                .with_hint("give one of them another name with --server NAME=COMMAND|URL"));
        }
        Ok(servers)
    }

    /// Returns the tools of the servers.
    fn tools(&self, approve: ApprovalMode, limits: ToolLimits) -> Result<Arc<Tools>, CommandError> {
        let policy = ToolPolicy::new(&self.allow_tool, &self.deny_tool, approve);
        let policy = policy.map_err(|error| {
            CommandError::from_error(&error).with_hint("write SERVER.TOOL, in which * matches any characters")
        })?;
        Ok(Arc::new(Tools::new(&self.open()?, policy, limits)))
    }
}

impl ToolOptions {
    /// Returns the tools; `None` without servers.
    ///
    /// # Errors
    /// Returns an error if a file of servers or a pattern is not valid.
    pub(crate) fn tools(&self) -> Result<Option<Arc<Tools>>, CommandError> {
        if self.servers.is_empty() {
            return Ok(None);
        }
        let limits = ToolLimits {
            calls: self.max_tool_calls,
            concurrency: self.tool_concurrency,
            timeout: self.tool_timeout,
            wait: self.tool_wait,
            ..ToolLimits::default()
        };
        self.servers.tools(self.approve, limits).map(Some)
    }

    /// Returns the tools and a runtime for their calls; `None` without servers.
    ///
    /// # Errors
    /// The same as those of [`ToolOptions::tools`].
    pub(crate) fn host(&self) -> Result<Option<ToolHost>, CommandError> {
        self.tools()?.map(ToolHost::new).transpose()
    }
}

/// The tools of a command's code.
pub(crate) struct ToolHost {
    runtime: Runtime,
    tools: Arc<Tools>,
    approver: Arc<dyn Approver>,
    grants: Arc<SessionGrants>,
}

impl ToolHost {
    fn new(tools: Arc<Tools>) -> Result<Self, CommandError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.map_err(|error| format!("failed to start threads: {error}"))?;
        let approver: Arc<dyn Approver> = Arc::new(TerminalApprover);
        Ok(Self { runtime, tools, approver, grants: Arc::default() })
    }

    /// Returns the calls of a new run or cell.
    pub(crate) fn run(&self) -> ToolRun {
        let context = ToolRunContext {
            scope: belljar_core::Scope::default(),
            runtime: self.runtime.handle().clone(),
            approver: self.approver.clone(),
            grants: self.grants.clone(),
            events: Arc::new(NoToolEvents),
        };
        ToolRun::new(self.tools.clone(), context)
    }

    /// Returns an observer of a cell that handles the calls of tools. The observer `cell` receives all else, and is
    /// asked for input if a call needs approval. `refusal` is the reason for the code if it cannot be asked.
    pub(crate) fn observer(&self, cell: Arc<dyn CellObserver>, refusal: &'static str) -> Arc<dyn CellObserver> {
        let context = ToolRunContext {
            scope: belljar_core::Scope::default(),
            runtime: self.runtime.handle().clone(),
            approver: Arc::new(ObserverApprover::new(cell.clone(), refusal)),
            grants: self.grants.clone(),
            events: Arc::new(NoToolEvents),
        };
        Arc::new(ToolObserver::new(cell, ToolRun::new(self.tools.clone(), context)))
    }

    /// Disconnects from the servers.
    pub(crate) fn close(self) {
        let tools = self.tools;
        // A server that does not end in time is killed with the runtime.
        let _ = self.runtime.block_on(async { tokio::time::timeout(SHUTDOWN_TIMEOUT, tools.close()).await });
        self.runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    }

    /// Runs a future.
    fn wait<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }
}

/// Returns an observer that handles only the calls of `run`.
pub(crate) fn observer_of(run: ToolRun) -> Arc<dyn CellObserver> {
    Arc::new(ToolObserver::new(Arc::new(NullObserver), run))
}

/// Returns the server of a command line or URL. A process gets `nesting` as [`NESTING_VARIABLE`].
fn server(name: &str, target: &str, nesting: &str) -> Result<McpServer, CommandError> {
    if target.starts_with("http://") || target.starts_with("https://") {
        let path = target.split(['?', '#']).next().unwrap_or(target);
        return Ok(if path.ends_with("/sse") {
            McpServerSse::new(target)?.id(name).timeout(START_TIMEOUT).build()
        } else {
            McpServerStreamableHttp::new(target)?.id(name).timeout(START_TIMEOUT).build()
        });
    }
    let mut command = shlex::split(target).ok_or_else(|| format!("unbalanced quotation marks in `{target}`"))?;
    if command.is_empty() {
        return Err("the command is empty".into());
    }
    let program = command.remove(0);
    let server = McpServerStdio::new(program).args(command).env(NESTING_VARIABLE, nesting);
    Ok(server.id(name).timeout(START_TIMEOUT).build())
}

/// Parses `NAME=COMMAND|URL`.
fn named_target(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, target)) if !name.trim().is_empty() && !target.trim().is_empty() => {
            Ok((name.trim().into(), target.trim().into()))
        }
        _ => Err("write NAME=COMMAND or NAME=URL".into()),
    }
}

/// Ends the calls of a command and disconnects from the servers, if there are any.
pub(crate) fn close(host: Option<ToolHost>, run: Option<&ToolRun>) {
    if let Some(run) = run {
        run.cancel_all();
    }
    if let Some(host) = host {
        host.close();
    }
}

/// Returns success if `printed`, for commands that print a text.
fn printed(text: &str) -> ExitCode {
    crate::console::print_line(text);
    ExitCode::SUCCESS
}

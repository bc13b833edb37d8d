//! `belljar tools`: the tools that code can call, as code sees them.

use std::process::ExitCode;

use belljar_tools::{ApprovalMode, Detail, ToolLimits};
use clap::{Args, Subcommand};

use super::{ServerOptions, ToolHost, printed};
use crate::command_error::CommandError;
use crate::outcome::fail;

/// The maximum number of tools that a search prints.
const MAX_FOUND: usize = 100;

/// A command about tools of MCP servers.
#[derive(Debug, Subcommand)]
pub(crate) enum ToolsCommand {
    /// Print the Python stubs of the tools, which code imports from the module `tools`.
    #[command(after_help = "Example: belljar tools stubs --servers mcp.json")]
    Stubs(ServerOptions),
    /// Search for tools by relevance, as code does with `tools.search`.
    #[command(after_help = "Example: belljar tools search --servers mcp.json 'open issues'")]
    Search(SearchArguments),
}

/// The arguments of `belljar tools search`.
#[derive(Debug, Args)]
pub(crate) struct SearchArguments {
    #[command(flatten)]
    servers: ServerOptions,
    /// Words to search for. Without them, all tools are listed.
    #[arg(value_name = "QUERY", default_value = "")]
    query: String,
    /// Print the stubs of the tools that were found.
    #[arg(long)]
    full: bool,
}

/// Runs a command about tools.
pub(crate) fn tools(command: &ToolsCommand) -> ExitCode {
    run(command).unwrap_or_else(fail)
}

fn run(command: &ToolsCommand) -> Result<ExitCode, CommandError> {
    let servers = match command {
        ToolsCommand::Stubs(servers) => servers,
        ToolsCommand::Search(arguments) => &arguments.servers,
    };
    if servers.is_empty() {
        return Err(
            CommandError::new("no servers are given").with_hint("use --servers FILE or --server NAME=COMMAND|URL")
        );
    }
    let host = ToolHost::new(servers.tools(ApprovalMode::default(), ToolLimits::default())?)?;
    let text = host.wait(async {
        match command {
            ToolsCommand::Stubs(_) => host.tools.stubs().await,
            ToolsCommand::Search(SearchArguments { query, full, .. }) => {
                let detail = if *full { Detail::Full } else { Detail::Summary };
                host.tools.search_text(query, MAX_FOUND, detail).await
            }
        }
    });
    host.close();
    Ok(printed(text.trim_end()))
}

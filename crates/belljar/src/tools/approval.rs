//! Approval of tool calls on the terminal.

use std::io::{IsTerminal, Write as _};

use async_trait::async_trait;
use belljar_tools::{Approval, ApprovalRequest, Approver};

use crate::untrusted_text::strip_control_chars;

/// Asks on the terminal that standard input and standard error are connected to.
#[derive(Debug, Default)]
pub(crate) struct TerminalApprover;

#[async_trait]
impl Approver for TerminalApprover {
    async fn approve(&self, request: ApprovalRequest) -> Result<Approval, String> {
        if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
            return Err("there is no terminal to ask on. `--approve none` allows all calls without asking, and \
                        `--allow-tool` selects the tools"
                .into());
        }
        let asked = tokio::task::spawn_blocking(move || ask(&request)).await;
        asked.unwrap_or_else(|error| Err(error.to_string()))
    }
}

fn ask(request: &ApprovalRequest) -> Result<Approval, String> {
    let failed = |error: std::io::Error| format!("failed to ask on the terminal: {error}");
    let changed = if request.has_changed { " The server has changed this tool since it was approved." } else { "" };
    let text = format!(
        "The code calls the tool {} of the server {}.{changed}\n  arguments: {}\n  line: {}\n",
        request.tool, request.server, request.arguments, request.line
    );
    let mut stderr = std::io::stderr().lock();
    write!(stderr, "{}", strip_control_chars(&text)).map_err(failed)?;
    loop {
        write!(stderr, "Allow it? [y]es, [a]ll calls of this tool, [n]o: ").map_err(failed)?;
        stderr.flush().map_err(failed)?;
        let mut line = String::new();
        if std::io::stdin().read_line(&mut line).map_err(failed)? == 0 {
            return Ok(Approval::Denied);
        }
        match line.trim().to_lowercase().as_str() {
            "y" | "yes" => return Ok(Approval::Once),
            "a" | "all" => return Ok(Approval::ToolForSession),
            "n" | "no" => return Ok(Approval::Denied),
            _ => {}
        }
    }
}

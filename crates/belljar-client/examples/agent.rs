//! A minimal agent: a model that decides, the tools of any MCP server, and a loop between them.
//!
//! ```sh
//! cargo run -p belljar-mcp-client --example agent -- npx -y @modelcontextprotocol/server-everything
//! ```

use belljar_mcp_client::{McpError, McpServerStdio, RunContext, ToolCall, ToolList, ToolRunner, Toolset};
use serde_json::json;

/// The decision of a model: to call tools, or to answer.
pub(crate) enum Decision {
    /// Make these calls.
    Call(Vec<ToolCall>),
    /// Finish with this answer.
    Answer(String),
}

/// A model: decides from the tools and the messages so far.
pub(crate) type Decide = fn(&ToolList, &[String]) -> Decision;

/// Runs until the model has an answer, at most `MAX_STEPS` turns.
pub(crate) async fn run(decide: Decide, toolset: impl Toolset, task: &str) -> Result<String, McpError> {
    const MAX_STEPS: usize = 20;
    let run = RunContext::new();
    let runner = ToolRunner::new(toolset);
    let connections = runner.enter(&run).await?;
    let mut messages = vec![task.to_owned()];
    let mut answer = None;
    for _ in 0..MAX_STEPS {
        let step = runner.step(&run).await?;
        match decide(step.tools(), &messages) {
            Decision::Call(calls) => {
                messages.extend(step.call_all(calls).await?.iter().map(|result| result.message().text()));
            }
            Decision::Answer(text) => {
                answer = Some(text);
                break;
            }
        }
    }
    connections.close().await?;
    Ok(answer.unwrap_or_else(|| format!("gave up after {MAX_STEPS} steps: {}", messages.join("; "))))
}

/// Simulates a language model: calls `get-sum` with invalid arguments, then with valid ones, then answers with the
/// result.
pub(crate) fn simulate(_tools: &ToolList, messages: &[String]) -> Decision {
    let sum = |arguments| Decision::Call(vec![ToolCall::new("call", "get-sum", arguments)]);
    match messages {
        [_task] => sum(json!({"a": "two", "b": 3})),
        [_task, _complaint] => sum(json!({"a": 2, "b": 3})),
        [.., last] => Decision::Answer(last.clone()),
        [] => Decision::Answer(String::new()),
    }
}

/// Runs the simulated model with the server that the command line names.
#[tokio::main]
#[expect(clippy::print_stdout, reason = "the answer is the output of the program")]
pub(crate) async fn main() -> Result<(), McpError> {
    let mut command = std::env::args().skip(1);
    let program = command.next().unwrap_or_else(|| "npx".to_owned());
    let server = McpServerStdio::new(program).args(command).timeout(std::time::Duration::from_secs(60)).build();
    println!("{}", run(simulate, server, "What is two and three?").await?);
    Ok(())
}

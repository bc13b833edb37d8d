//! A minimal agent: a model that decides, the tools of any MCP server, and a loop between them.
//!
//! ```sh
//! cargo run -p belljar-client --example agent -- npx -y @modelcontextprotocol/server-everything
//! ```

use std::collections::HashMap;

use belljar_client::{McpError, McpServerStdio, RunContext, ToolDefinition, ToolOutcome, Toolset};
use serde_json::{Map, Value, json};

/// The decision of a model: to call a tool, or to answer.
pub(crate) enum Decision {
    /// Call this tool with these arguments.
    Call(String, Map<String, Value>),
    /// Finish with this answer.
    Answer(String),
}

/// A model: decides from the tools and the messages so far.
pub(crate) type Decide = fn(&[ToolDefinition], &[String]) -> Decision;

/// Runs until the model has an answer.
pub(crate) async fn run(decide: Decide, toolset: &dyn Toolset, task: &str) -> Result<String, McpError> {
    let run = RunContext::new();
    let connections = toolset.enter().await?;
    let tools = toolset.tools(&run).await?;
    let mut messages = vec![task.to_owned()];
    let mut failures: HashMap<String, u32> = HashMap::new();
    let answer = loop {
        match decide(&tools, &messages) {
            Decision::Answer(answer) => break answer,
            Decision::Call(name, arguments) => {
                let outcome = toolset.call(&run, &name, arguments).await?;
                if let ToolOutcome::Retry(_) = &outcome {
                    let failed = failures.entry(name.clone()).or_default();
                    *failed += 1;
                    let allowed = tools.iter().find(|tool| tool.name == name).map_or(0, |tool| tool.max_retries);
                    if *failed > allowed {
                        break format!("gave up on {name}: {}", outcome.to_text());
                    }
                }
                messages.push(outcome.to_text());
            }
        }
    };
    connections.close().await?;
    Ok(answer)
}

/// Simulates a language model: calls `get-sum` with invalid arguments, then with valid ones, then answers with the
/// result.
pub(crate) fn simulate(_tools: &[ToolDefinition], messages: &[String]) -> Decision {
    let arguments = |value: Value| value.as_object().cloned().unwrap_or_default();
    match messages {
        [_task] => Decision::Call("get-sum".to_owned(), arguments(json!({"a": "two", "b": 3}))),
        [_task, _complaint] => Decision::Call("get-sum".to_owned(), arguments(json!({"a": 2, "b": 3}))),
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
    println!("{}", run(simulate, &server, "What is two and three?").await?);
    Ok(())
}

//! An agent of `rig` that runs Python in Belljar.
//!
//! ```sh
//! export OPENAI_API_KEY=… MODEL=gpt-5.2                       # OPENAI_BASE_URL for another server
//! cargo run -p belljar-mcp-client --features rig --example rig_agent
//! ```

use std::env::var;
use std::time::Duration;

use belljar_mcp_client::adapters::rig::RigTools;
use belljar_mcp_client::{BoxError, McpServerStdio, RunContext, ToolRunner};
use rig_agent::AgentBuilder;
use rig_agent::tool::server::ToolServer;
use rig_core::providers::openai::OpenAI;

/// The maximum number of turns of the model.
const MAX_TURNS: usize = 20;

#[tokio::main]
#[expect(clippy::print_stdout, reason = "the answer is the output of the program")]
async fn main() -> Result<(), BoxError> {
    let question = std::env::args().nth(1).unwrap_or_else(|| "What is the sum of the first 1000 primes?".to_owned());
    let model = OpenAI::from_env()?.chat(var("MODEL").map_err(|_| "set MODEL to the name of a model")?);

    let program = var("BELLJAR").unwrap_or_else(|_| "belljar".to_owned());
    let belljar =
        McpServerStdio::new(program).arg("stdio").include_instructions(true).timeout(Duration::from_secs(120));
    let tools = RigTools::new(ToolRunner::new(belljar.build()), RunContext::new());
    let connections = tools.enter().await?;
    let server = ToolServer::new().run();
    tools.install(server.clone()).await?;
    let instructions = tools.instructions().await?.unwrap_or_default();
    let agent = AgentBuilder::new(model).preamble(instructions).tool_server_handle(server).build();
    let answer = agent.prompt(question).max_turns(MAX_TURNS).await?;
    println!("{answer}");
    Ok(connections.close().await?)
}

//! An agent that runs Python in Belljar, with `genai`, whose client supports many providers.
//!
//! ```sh
//! export ANTHROPIC_API_KEY=… MODEL=claude-sonnet-4-5          # or another provider's key and model
//! cargo run -p belljar-mcp-client --features genai --example genai_agent
//! ```
//!
//! `API_URL` names a server with OpenAI's API of chat completions instead, such as `http://localhost:8080/v1/`.

use std::env::var;
use std::error::Error;
use std::time::Duration;

use belljar_mcp_client::adapters::genai::GenaiTools;
use belljar_mcp_client::{McpServerStdio, RunContext, ToolRunner};
use genai::adapter::AdapterKind;
use genai::chat::{ChatMessage, ChatRequest};
use genai::resolver::{AuthData, Endpoint, ServiceTargetResolver};
use genai::{Client, ModelIden, ServiceTarget};

/// The maximum number of turns of the model.
const MAX_TURNS: usize = 20;

/// Returns a client for the server of `API_URL`, or else for the provider of the model's name.
fn client() -> Result<Client, Box<dyn Error>> {
    let Ok(url) = var("API_URL") else { return Ok(Client::new()?) };
    let resolver = ServiceTargetResolver::from_resolver_fn(
        move |target: ServiceTarget| -> Result<ServiceTarget, genai::resolver::Error> {
            Ok(ServiceTarget {
                endpoint: Endpoint::from_owned(url.clone()),
                auth: AuthData::from_single(var("API_KEY").unwrap_or_else(|_| "none".to_owned())),
                model: ModelIden::new(AdapterKind::OpenAI, target.model.model_name),
            })
        },
    );
    Ok(Client::builder().with_service_target_resolver(resolver).build()?)
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "the answer is the output of the program")]
async fn main() -> Result<(), Box<dyn Error>> {
    let question = std::env::args().nth(1).unwrap_or_else(|| "What is the sum of the first 1000 primes?".to_owned());
    let model = var("MODEL").map_err(|_| "set MODEL to the name of a model")?;
    let (client, run) = (client()?, RunContext::new());
    let program = var("BELLJAR").unwrap_or_else(|_| "belljar".to_owned());
    let belljar = McpServerStdio::new(program).arg("stdio").timeout(Duration::from_secs(120)).build();
    let runner = ToolRunner::new(belljar);
    let connections = runner.enter(&run).await?;
    let mut messages = vec![ChatMessage::user(question)];
    for _ in 0..MAX_TURNS {
        let step = runner.step(&run).await?;
        let tools = GenaiTools::new(step.tools());
        let request = ChatRequest::new(messages.clone()).with_tools(tools.definitions());
        let response = client.exec_chat(&model, request, None).await?;
        let calls = tools.calls(&response.tool_calls());
        if calls.is_empty() {
            println!("{}", response.into_first_text().unwrap_or_default());
            return Ok(connections.close().await?);
        }
        messages.extend(response.into_assistant_message_for_tool_use());
        messages.extend(tools.messages(&step.call_all(calls).await?));
    }
    Err(format!("the model did not answer within {MAX_TURNS} turns").into())
}

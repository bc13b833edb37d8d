//! An agent that runs Python in Belljar, with `async-openai`.
//!
//! ```sh
//! export OPENAI_API_KEY=… MODEL=gpt-5.2                       # OPENAI_BASE_URL for another server
//! cargo run -p belljar-mcp-client --features openai --example openai_agent
//! ```

use std::env::var;
use std::error::Error;
use std::time::Duration;

use async_openai::Client;
use async_openai::config::OpenAIConfig;
use async_openai::types::chat::{
    ChatCompletionRequestMessage, ChatCompletionRequestUserMessage, CreateChatCompletionRequestArgs,
};
use belljar_mcp_client::adapters::openai::OpenAiTools;
use belljar_mcp_client::{McpServerStdio, RunContext, ToolRunner};

/// The maximum number of turns of the model.
const MAX_TURNS: usize = 20;

#[tokio::main]
#[expect(clippy::print_stdout, reason = "the answer is the output of the program")]
async fn main() -> Result<(), Box<dyn Error>> {
    let question = std::env::args().nth(1).unwrap_or_else(|| "What is the sum of the first 1000 primes?".to_owned());
    let url = var("OPENAI_BASE_URL").unwrap_or_else(|_| "https://api.openai.com/v1".to_owned());
    let key = var("OPENAI_API_KEY").unwrap_or_default();
    let client = Client::with_config(OpenAIConfig::new().with_api_base(url).with_api_key(key));
    let model = var("MODEL").map_err(|_| "set MODEL to the name of a model")?;

    let run = RunContext::new();
    let program = var("BELLJAR").unwrap_or_else(|_| "belljar".to_owned());
    let belljar = McpServerStdio::new(program).arg("stdio").timeout(Duration::from_secs(120)).build();
    let runner = ToolRunner::new(belljar);
    let connections = runner.enter(&run).await?;
    let mut messages: Vec<ChatCompletionRequestMessage> =
        vec![ChatCompletionRequestUserMessage::from(question.as_str()).into()];
    for _ in 0..MAX_TURNS {
        let step = runner.step(&run).await?;
        let tools = OpenAiTools::new(step.tools());
        let request = CreateChatCompletionRequestArgs::default()
            .model(&model)
            .messages(messages.clone())
            .tools(tools.definitions()?)
            .build()?;
        let response = client.chat().create(request).await?;
        let message = &response.choices.first().ok_or("the response does not have any choices")?.message;
        let calls = tools.calls(message)?;
        if calls.is_empty() {
            println!("{}", message.content.clone().unwrap_or_default());
            return Ok(connections.close().await?);
        }
        let results = step.call_all(calls).await?;
        messages.extend(tools.messages(message, &results)?);
    }
    Err(format!("the model did not answer within {MAX_TURNS} turns").into())
}

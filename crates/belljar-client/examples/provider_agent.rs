//! An agent that runs Python in Belljar, over the API of any of four providers.
//!
//! ```sh
//! export PROVIDER=anthropic API_KEY=… MODEL=claude-sonnet-4-5        # or openai, openai-responses, gemini
//! cargo run -p belljar-mcp-client --example provider_agent -- "What is the sum of the first 1000 primes?"
//! ```
//!
//! `API_URL` names another server, for example `http://localhost:11434` with `PROVIDER=openai` for Ollama. `BELLJAR` is the
//! program that runs Python, by default `belljar`.

use std::env::var;
use std::error::Error;
use std::time::Duration;

use belljar_mcp_client::adapters::provider::{Provider, ProviderTools};
use belljar_mcp_client::{McpServerStdio, RunContext, ToolRunner};
use serde_json::{Value, json};

/// The maximum number of turns of the model.
const MAX_TURNS: usize = 20;

/// An API, with the credentials for it.
struct Api {
    provider: Provider,
    url: String,
    key: String,
    model: String,
}

impl Api {
    fn from_env() -> Result<Self, Box<dyn Error>> {
        let (provider, url) = match var("PROVIDER").as_deref() {
            Ok("openai") => (Provider::OpenAiChat, "https://api.openai.com"),
            Ok("openai-responses") => (Provider::OpenAiResponses, "https://api.openai.com"),
            Ok("anthropic") => (Provider::Anthropic, "https://api.anthropic.com"),
            Ok("gemini") => (Provider::Gemini, "https://generativelanguage.googleapis.com"),
            _ => return Err("set PROVIDER to openai, openai-responses, anthropic or gemini".into()),
        };
        let url = var("API_URL").unwrap_or_else(|_| url.to_owned());
        let model = var("MODEL").map_err(|_| "set MODEL to the name of a model")?;
        Ok(Self { provider, url, key: var("API_KEY").unwrap_or_default(), model })
    }

    /// Sends a request and returns the response, which may be an error of the API.
    async fn send(&self, http: &reqwest::Client, mut body: Value) -> Result<Value, Box<dyn Error>> {
        let path = match self.provider {
            Provider::OpenAiChat => "v1/chat/completions".to_owned(),
            Provider::OpenAiResponses => "v1/responses".to_owned(),
            Provider::Anthropic => "v1/messages".to_owned(),
            _ => format!("v1beta/models/{}:generateContent", self.model),
        };
        match self.provider {
            Provider::Gemini => {}
            Provider::Anthropic => {
                body["model"] = json!(self.model);
                body["max_tokens"] = json!(4096);
            }
            _ => body["model"] = json!(self.model),
        }
        let request = http.post(format!("{}/{path}", self.url)).json(&body);
        let request = match self.provider {
            Provider::Anthropic => request.header("x-api-key", &self.key).header("anthropic-version", "2023-06-01"),
            Provider::Gemini => request.header("x-goog-api-key", &self.key),
            _ => request.bearer_auth(&self.key),
        };
        Ok(request.send().await?.json().await?)
    }
}

/// Answers a question, with Python.
async fn answer(api: &Api, question: &str) -> Result<String, Box<dyn Error>> {
    let (http, run) = (reqwest::Client::new(), RunContext::new());
    let program = var("BELLJAR").unwrap_or_else(|_| "belljar".to_owned());
    // The first start compiles CPython.
    let belljar =
        McpServerStdio::new(program).arg("stdio").include_instructions(true).timeout(Duration::from_secs(120));
    let runner = ToolRunner::new(belljar.build());
    let connections = runner.enter(&run).await?;
    let mut messages = vec![api.provider.user_message(question)];
    for _ in 0..MAX_TURNS {
        let step = runner.step(&run).await?;
        let tools = ProviderTools::new(api.provider, step.tools());
        let response = api.send(&http, tools.request(step.instructions(), &messages)).await?;
        let turn = tools.read(&response)?;
        if turn.calls.is_empty() {
            connections.close().await?;
            return Ok(turn.text);
        }
        messages.extend(turn.messages);
        let results = step.call_all(turn.calls).await?;
        messages.extend(tools.results(&results));
    }
    Err(format!("the model did not answer within {MAX_TURNS} turns").into())
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "the answer is the output of the program")]
async fn main() -> Result<(), Box<dyn Error>> {
    let question = std::env::args().nth(1).unwrap_or_else(|| "What is the sum of the first 1000 primes?".to_owned());
    println!("{}", answer(&Api::from_env()?, &question).await?);
    Ok(())
}

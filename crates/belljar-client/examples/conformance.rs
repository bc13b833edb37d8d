//! The client that the official conformance suite runs: `conformance URL`, with the scenario in the environment.
//!
//! It is the same for all scenarios: connect, with a user who agrees to everything, list the tools, call them.
//! `tests/it/conformance.rs` runs the suite.

use async_trait::async_trait;
use belljar_mcp_client::oauth::OAuth;
use belljar_mcp_client::{
    BoxError, CallOptions, Elicitation, ElicitationResponse, McpError, McpServerStreamableHttp, Model, ModelError,
    ProtocolEra, SamplingRequest, SamplingResponse,
};
use serde_json::{Map, Value, json};

const METADATA_URL: &str = "https://conformance-test.local/client-metadata.json";
const REDIRECT_URI: &str = "http://localhost:3000/callback";

/// The scenario in which the authorization server moves, which requires several calls.
const MIGRATION_SCENARIO: &str = "auth/authorization-server-migration";

struct Echo;

#[async_trait]
impl Model for Echo {
    fn name(&self) -> String {
        "echo".to_owned()
    }

    async fn complete(&self, request: SamplingRequest) -> Result<SamplingResponse, ModelError> {
        Ok(SamplingResponse::text(request.messages.last().map(|message| message.text()).unwrap_or_default()))
    }
}

/// Accepts every form, with its defaults and generated values for required fields without one.
async fn accept(question: Elicitation) -> Result<ElicitationResponse, BoxError> {
    let Elicitation::Form { schema, .. } = question else { return Ok(ElicitationResponse::Accept(None)) };
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let values = required.iter().filter_map(|name| {
        let property = &schema["properties"][name.as_str()?];
        property["default"].is_null().then(|| (name.as_str().unwrap_or_default().to_owned(), any_value(property)))
    });
    Ok(ElicitationResponse::Accept(Some(values.collect())))
}

/// Returns a value of the schema's type.
fn any_value(schema: &Value) -> Value {
    match schema["type"].as_str() {
        Some("integer" | "number") => json!(1),
        Some("boolean") => json!(true),
        Some("array") => json!([]),
        Some("object") => json!({}),
        _ if schema["enum"].is_array() => schema["enum"][0].clone(),
        _ if schema["format"] == "email" => json!("user@example.org"),
        _ => json!("word"),
    }
}

/// Consents in place of a user: the suite's authorization server redirects at once.
async fn agree(url: String) -> Result<String, BoxError> {
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build()?;
    let response = client.get(url).send().await?;
    let location = response.headers().get("location").and_then(|location| location.to_str().ok());
    location.map(str::to_owned).ok_or_else(|| format!("expected a redirect, got {}", response.status()).into())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).ok_or("usage: conformance URL")?;
    let scenario = std::env::var("MCP_CONFORMANCE_SCENARIO").unwrap_or_default();
    let context: Value =
        serde_json::from_str(&std::env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or_default()).unwrap_or(Value::Null);
    let era = match std::env::var("MCP_CONFORMANCE_PROTOCOL_VERSION").as_deref() {
        Ok("2026-07-28") => ProtocolEra::Modern,
        _ => ProtocolEra::Legacy,
    };
    let mut oauth = OAuth::new(REDIRECT_URI, agree).client_metadata_url(METADATA_URL);
    if let Some(id) = context["client_id"].as_str() {
        oauth = oauth.preregistered_client(id, context["client_secret"].as_str().map(str::to_owned));
    }
    if scenario == "auth/client-credentials-basic" {
        let from_context = |name: &str| context[name].as_str().unwrap_or_default().to_owned();
        oauth = OAuth::client_credentials(from_context("client_id"), from_context("client_secret"), [] as [&str; 0]);
    }
    let server = McpServerStreamableHttp::new(&url)?
        .era(era)
        .oauth(oauth)
        .sampling_model(Echo)
        .elicitation_handler(accept)
        .cache_tools(false)
        // A generous timeout, so that a busy machine does not affect the result.
        .timeout(std::time::Duration::from_secs(60))
        .build();
    let running = server.connect().await?;
    let rounds = if scenario == MIGRATION_SCENARIO { 3 } else { 1 };
    for _ in 0..rounds {
        for (name, arguments) in calls(&running, &context).await? {
            match running.call_tool_raw(&name, arguments, CallOptions::new()).await {
                // Some scenarios reject a call in order to observe the client's next request.
                Err(error @ (McpError::Protocol { .. } | McpError::Unauthorized { .. })) => {
                    eprintln!("{name}: {error}")
                }
                other => drop(other?),
            }
        }
    }
    running.close().await?;
    Ok(())
}

/// Returns the calls that the scenario names, or else one call of every tool.
async fn calls(server: &belljar_mcp_client::McpServer, context: &Value) -> Result<Vec<(String, Value)>, McpError> {
    let tools = server.list_tools().await?;
    if let Some(calls) = context["toolCalls"].as_array() {
        let call = |call: &Value| Some((call["name"].as_str()?.to_owned(), call["arguments"].clone()));
        return Ok(calls.iter().filter_map(call).collect());
    }
    Ok(tools
        .iter()
        .map(|tool| {
            let required = tool.input_schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
            let arguments: Map<String, Value> = required
                .iter()
                .filter_map(Value::as_str)
                .map(|name| (name.to_owned(), any_value(&tool.input_schema["properties"][name])))
                .collect();
            (tool.name.to_string(), Value::Object(arguments))
        })
        .collect())
}

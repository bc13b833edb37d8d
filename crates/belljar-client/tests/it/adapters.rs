//! Adapters to other libraries.

use belljar_mcp_client::adapters::openai::OpenAiModel;
use belljar_mcp_client::adapters::rig::{RigModel, RigTools};
use belljar_mcp_client::{Model, RunContext, ToolRunner};
use rig_core::providers::openai::OpenAIConfig;
use serde_json::{Value, json};

use crate::harness::{TestServer, everything, output, script};

#[tokio::test]
async fn rig_agents_get_the_tools_of_a_server() {
    let tools = RigTools::new(ToolRunner::new(everything().build()), RunContext::new());
    let connections = tools.enter().await.unwrap();
    let list = tools.list().await.unwrap();
    let tool = |name: &str| list.iter().find(|tool| tool.name() == name).unwrap();
    let output = tool("echo").execute(json!({"message": "hi"})).await.unwrap();
    assert_eq!(output.as_text(), Some("Echo: hi"));
    assert!(tool("get-sum").definition().parameters["properties"]["a"].is_object());
    let image = tool("get-tiny-image").execute(json!({})).await.unwrap();
    assert_eq!(image.as_content().len(), 3);
    for _ in 0..2 {
        let error = tool("get-sum").execute(json!({"a": "x"})).await.unwrap_err();
        assert!(error.model_feedback().unwrap().contains("\"x\""), "{error:?}");
    }
    // The retries are used up.
    let error = tool("get-sum").execute(json!({"a": 1, "b": 2})).await.unwrap_err();
    assert!(!error.model_feedback().unwrap().contains("try again"), "{error:?}");
    connections.close().await.unwrap();
}

#[tokio::test]
async fn models_of_libraries_serve_sampling_requests() {
    let endpoint = TestServer::start("python3", &["-u", &script("chat_endpoint.py")]);
    serves(OpenAiModel::new(endpoint.url("/v1"), "key", "some-model"), "\"model\": \"model-that-answered\"").await;
    let chat = OpenAIConfig::new("key").with_base_url(endpoint.url("/v1")).client().chat("some-model");
    serves(RigModel::new(chat.erase(), "some-model"), "\"model\": \"some-model\"").await;
}

/// Checks that a model gets the request of a server, and the server the model's response.
async fn serves(model: impl Model, answered: &str) {
    let server = everything().sampling_model(model).build();
    let running = server.connect().await.unwrap();
    let arguments = json!({"prompt": "why?", "maxTokens": 33});
    let outcome = server.direct_call_tool("trigger-sampling-request", arguments).await.unwrap();
    let text = output(outcome).to_text();
    // The endpoint responds with the request that it received.
    let start = text.find("GOT").unwrap() + 3;
    let quoted: String = serde_json::from_str(&format!("\"{}\"", text[start..].split("END").next().unwrap())).unwrap();
    let got: Value = serde_json::from_str(&quoted).unwrap();
    assert_eq!(got["model"], "some-model");
    assert_eq!(got["max_tokens"], 33);
    // The content is text, or a list of parts.
    assert_eq!((&got["messages"][0]["role"], &got["messages"][1]["role"]), (&json!("system"), &json!("user")));
    assert!(got["messages"][0]["content"].to_string().contains("You are a helpful test server."), "{got}");
    assert!(got["messages"][1]["content"].to_string().contains("why?"), "{got}");
    assert!(text.contains(answered), "{text}");
    running.close().await.unwrap();
}

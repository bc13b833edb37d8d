//! Handlers of servers' requests: their failures, what they know of the request, and models that are set later.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use belljar_mcp_client::{
    BoxError, Elicitation, ElicitationResponse, McpServer, McpServerStdio, Model, ModelError, RequestOrigin, Root,
    RootsHandler, RunContext, SamplingRequest, SamplingResponse, Toolset,
};
use serde_json::{Map, Value, json};

use crate::harness::{START_TIMEOUT, faulty, modern_python, output, script};

/// A model that fails, panics, or responds with the server and the user that it knows of.
#[derive(Clone, Copy)]
enum Mood {
    Fails,
    Panics,
    Responds,
}

fn origin_text(origin: &RequestOrigin) -> String {
    let user = origin.run().and_then(|run| run.get_deps::<String>()).cloned();
    format!("{} for {}", origin.server(), user.as_deref().unwrap_or("nobody known"))
}

#[async_trait]
impl Model for Mood {
    fn name(&self) -> String {
        "moody".to_owned()
    }

    async fn complete(&self, request: SamplingRequest) -> Result<SamplingResponse, ModelError> {
        match self {
            Self::Fails => Err(ModelError::new("out of tokens")),
            Self::Panics => panic!("a model that panics"),
            Self::Responds => Ok(SamplingResponse::text(origin_text(&request.origin))),
        }
    }
}

/// Calls the tool of a server that makes a request and returns the response to it. The connection must work afterwards.
async fn response(server: McpServerStdio) -> Value {
    let server = server.id("asking").build();
    let running = server.connect().await.unwrap();
    let run = RunContext::new().deps("ada".to_owned());
    let outcome = server.call(&run, "act", Map::new()).await.unwrap();
    assert_eq!(output(server.call(&run, "fine", Map::new()).await.unwrap()).to_text(), "fine");
    running.close().await.unwrap();
    match output(outcome) {
        belljar_mcp_client::ToolOutput::Json(value) => value,
        other => panic!("{other:?}"),
    }
}

fn message(response: &Value) -> &str {
    response["error"]["message"].as_str().unwrap_or_else(|| panic!("{response}"))
}

#[tokio::test]
async fn failures_of_handlers_are_responses_to_the_server() {
    let fails = async |_question: Elicitation| Err("nobody is at the keyboard".into());
    let answer = response(faulty("elicits").elicitation_handler(fails)).await;
    assert!(message(&answer).contains("nobody is at the keyboard"), "{answer}");

    let unfit = async |_question: Elicitation| {
        let values = Map::from_iter([("age".to_owned(), json!("old"))]);
        Ok(ElicitationResponse::Accept(Some(values)))
    };
    let answer = response(faulty("elicits").elicitation_handler(unfit)).await;
    assert!(message(&answer).contains("does not match the schema"), "{answer}");

    let answer = response(faulty("samples").sampling_model(Mood::Fails)).await;
    assert!(message(&answer).contains("out of tokens"), "{answer}");

    let fails = async || Err("no directory is open".into());
    let answer = response(faulty("lists_roots").roots_handler(fails)).await;
    assert!(message(&answer).contains("no directory is open"), "{answer}");
}

/// A model that accepts tools, and responds with their names.
struct ToolUser;

#[async_trait]
impl Model for ToolUser {
    fn name(&self) -> String {
        "tool user".to_owned()
    }

    fn supports_tools(&self) -> bool {
        true
    }

    async fn complete(&self, request: SamplingRequest) -> Result<SamplingResponse, ModelError> {
        let names: Vec<&str> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
        Ok(SamplingResponse::text(names.join(", ")))
    }
}

#[tokio::test]
async fn only_models_that_support_tools_receive_them() {
    let answer = response(faulty("samples_with_tools").sampling_model(Mood::Responds)).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    assert!(message(&answer).contains("does not support tools"), "{answer}");
    // A shared model supports what the model itself does.
    let model: Arc<dyn Model> = Arc::new(ToolUser);
    let answer = response(faulty("samples_with_tools").sampling_model(model)).await;
    assert_eq!(answer["result"]["content"]["text"], "t", "{answer}");
}

#[tokio::test]
async fn handlers_that_panic_do_not_end_the_connection() {
    let panics = async |question: Elicitation| -> Result<ElicitationResponse, BoxError> { panic!("{question:?}") };
    let answer = response(faulty("elicits").elicitation_handler(panics)).await;
    assert!(message(&answer).contains("panicked"), "{answer}");

    let answer = response(faulty("samples").sampling_model(Mood::Panics)).await;
    assert!(message(&answer).contains("panicked"), "{answer}");

    let panics = async || -> Result<Vec<Root>, BoxError> { panic!("roots") };
    let answer = response(faulty("lists_roots").roots_handler(panics)).await;
    assert!(message(&answer).contains("panicked"), "{answer}");
}

/// A roots handler with directories per user.
struct Homes;

#[async_trait]
impl RootsHandler for Homes {
    async fn roots(&self) -> Result<Vec<Root>, BoxError> {
        Err("not called".into())
    }

    async fn roots_for(&self, origin: &RequestOrigin) -> Result<Vec<Root>, BoxError> {
        Ok(vec![Root::new(format!("file:///home/{}", origin_text(origin).replace(' ', "_")))])
    }
}

async fn answer_with_origin(question: Elicitation) -> Result<ElicitationResponse, BoxError> {
    let values = Map::from_iter([("name".to_owned(), json!(origin_text(question.origin())))]);
    Ok(ElicitationResponse::Accept(Some(values)))
}

#[tokio::test]
async fn handlers_know_server_and_run_of_the_only_call_in_the_legacy_era() {
    let answer = response(faulty("elicits").elicitation_handler(answer_with_origin)).await;
    assert_eq!(answer["result"]["content"]["name"], "asking for ada");
    let answer = response(faulty("samples").sampling_model(Mood::Responds)).await;
    assert_eq!(answer["result"]["content"]["text"], "asking for ada");
    let answer = response(faulty("lists_roots").roots_handler(Homes)).await;
    assert_eq!(answer["result"]["roots"][0]["uri"], "file:///home/asking_for_ada");
}

#[tokio::test]
async fn handlers_know_the_run_of_each_call_in_the_modern_era() {
    let server = McpServerStdio::new(modern_python())
        .args([script("modern_server.py"), "stdio".to_owned()])
        .timeout(START_TIMEOUT)
        .id("modern")
        .elicitation_handler(answer_with_origin)
        .sampling_model(Mood::Responds)
        .roots_handler(Homes)
        .build();
    let running = server.connect().await.unwrap();
    let ask = async |user: &str| {
        let run = RunContext::new().deps(user.to_owned());
        output(server.call(&run, "ask", Map::new()).await.unwrap()).to_text()
    };
    // Two calls at once: each handler gets the run of its own call.
    let (ada, bob) = tokio::join!(ask("ada"), ask("bob"));
    for (answer, user) in [(ada, "ada"), (bob, "bob")] {
        let expected = format!("asked, modern for {user}: modern for {user} (file:///home/modern_for_{user})");
        assert_eq!(answer, expected);
    }
    running.close().await.unwrap();
}

#[tokio::test]
async fn model_can_be_set_and_replaced_after_building() {
    let sample = async |server: &McpServer| {
        let outcome = server.direct_call_tool("act", json!({})).await.unwrap();
        output(outcome).as_json().unwrap().clone()
    };
    let server = faulty("samples").id("later").build();
    let running = server.connect().await.unwrap();
    assert!(message(&sample(&server).await).contains("does not support sampling"));
    running.close().await.unwrap();

    let model: Arc<dyn Model> = Arc::new(Mood::Responds);
    server.set_sampling_model(model);
    let running = server.connect().await.unwrap();
    assert_eq!(sample(&server).await["result"]["content"]["text"], "later for nobody known");
    // A model that replaces another is used at once.
    server.set_sampling_model(Box::new(Mood::Fails));
    assert!(message(&sample(&server).await).contains("out of tokens"));
    running.close().await.unwrap();

    // A server that was built from the same builder keeps its own.
    let other = server.to_builder().build();
    other.set_sampling_model(Mood::Responds);
    assert!(message(&sample(&server).await).contains("out of tokens"));
}

#[tokio::test]
async fn sampling_can_be_forbidden() {
    let answer = response(faulty("samples").sampling_model(Mood::Responds).allow_sampling(false)).await;
    assert!(message(&answer).contains("does not support sampling"), "{answer}");
}

#[tokio::test]
async fn capabilities_are_announced_only_if_their_handler_is_set() {
    let announced = async |server: McpServerStdio| {
        let outcome = server.build().direct_call_tool("announced", json!({})).await.unwrap();
        let capabilities = output(outcome).as_json().unwrap().as_object().unwrap().clone();
        // Extensions do not depend on these handlers.
        capabilities.keys().filter(|name| *name != "extensions").cloned().collect::<Vec<String>>()
    };
    assert_eq!(announced(faulty("none")).await, [""; 0]);
    assert_eq!(announced(faulty("none").roots([Root::new("file:///home")])).await, ["roots"]);
    let declines = async |_: Elicitation| Ok(ElicitationResponse::Decline);
    assert_eq!(announced(faulty("none").elicitation_handler(declines)).await, ["elicitation"]);
    assert_eq!(announced(faulty("none").sampling_model(Mood::Responds)).await, ["sampling"]);
    let forbidden = faulty("none").sampling_model(Mood::Responds).allow_sampling(false);
    assert_eq!(announced(forbidden).await, [""; 0]);
}

#[tokio::test]
async fn closures_are_hooks_around_calls() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let server = faulty("none").process_tool_call_with(move |run, call, name, mut arguments| {
        log.lock().unwrap().push(name.to_owned());
        arguments.insert("user".to_owned(), json!(run.get_deps::<String>()));
        Box::pin(async move { call.call(name, arguments).await })
    });
    let server = server.build();
    let run = RunContext::new().deps("ada".to_owned());
    let received = output(server.call(&run, "received", Map::new()).await.unwrap());
    assert_eq!(received.as_json().unwrap()["arguments"], json!({"user": "ada"}));
    assert_eq!(*seen.lock().unwrap(), ["received"]);
}

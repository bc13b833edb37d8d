//! Tools and prompts that request input from the client before they answer, in rounds (SEP-2322).

use std::sync::LazyLock;

use rmcp::RoleServer;
use rmcp::model::{ErrorData, InputRequiredResult, InputResponses};
use rmcp::service::RequestContext;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::{FIXTURES, typed};

/// The secret that signs the state between two rounds.
static SECRET: LazyLock<[u8; 32]> = LazyLock::new(|| {
    let mut secret = [0; 32];
    let filled = getrandom::fill(&mut secret);
    assert!(filled.is_ok(), "the system has no randomness");
    secret
});

/// The next step of a call.
pub(crate) enum Next {
    /// The client has to provide input first.
    Ask(Box<InputRequiredResult>),
    /// The client has provided all input; contains its answers as text.
    Done(String),
}

/// Returns the signed state after `round`.
fn sealed(name: &str, round: usize) -> String {
    let digest = Sha256::new().chain_update(*SECRET).chain_update(name).chain_update([round as u8]).finalize();
    format!("{round}.{digest:x}")
}

/// Returns the next step of the tool or prompt `name`.
pub(crate) fn next(
    name: &str,
    answers: Option<InputResponses>,
    state: Option<String>,
    context: &RequestContext<RoleServer>,
) -> Result<Next, ErrorData> {
    let rounds = FIXTURES["rounds"][name].as_array().map(Vec::as_slice).unwrap_or_default();
    let round = match state {
        None => 0,
        Some(state) => {
            let known = (0..rounds.len()).find(|round| sealed(name, *round) == state);
            known.ok_or_else(|| ErrorData::invalid_params("the request state was tampered with", None))?
        }
    };
    let asked = |round: usize| -> Vec<String> { typed(rounds[round].clone()).unwrap_or_default() };
    let Some(answers) = answers else { return ask(name, round, &asked(round), context) };
    if !asked(round).iter().all(|key| answers.get(key).is_some_and(|answer| is_answer(key, answer))) {
        return ask(name, round, &asked(round), context);
    }
    if round + 1 < rounds.len() {
        return ask(name, round + 1, &asked(round + 1), context);
    }
    let mut words = vec!["state-ok".to_owned()];
    for key in asked(round) {
        let answer = &answers[&key];
        words.push(match answer["content"]["name"].as_str() {
            Some(name) => format!("Hello, {name}!"),
            None => answer.to_string(),
        });
    }
    Ok(Next::Done(words.join(" ")))
}

/// Returns whether an answer has the kind that its question requires.
fn is_answer(key: &str, answer: &Value) -> bool {
    let question = &FIXTURES["questions"][key];
    match question.get("elicitation") {
        Some(_) => answer["action"] == "accept" && answer["content"].is_object(),
        None if question.get("sampling").is_some() => answer["content"].is_object(),
        None => answer["roots"].is_array(),
    }
}

fn ask(name: &str, round: usize, keys: &[String], context: &RequestContext<RoleServer>) -> Result<Next, ErrorData> {
    let declared = serde_json::to_value(context.client_capabilities()).unwrap_or_default();
    let mut requests = Map::new();
    for key in keys {
        let (capability, request) = request(&FIXTURES["questions"][key]);
        // Only this fixture tests missing capabilities; the clients of the others support all of them.
        if name.ends_with("_capabilities") && declared.get(capability).is_none() {
            continue;
        }
        requests.insert(key.clone(), request);
    }
    let state = sealed(name, round);
    let ask = json!({ "resultType": "input_required", "inputRequests": requests, "requestState": state });
    Ok(Next::Ask(Box::new(typed(ask)?)))
}

/// Returns a question as a request, with the capability that it requires.
fn request(question: &Value) -> (&'static str, Value) {
    if let Some(message) = question.get("elicitation") {
        let asks = question["asks"].as_object().cloned().unwrap_or_default();
        let names: Vec<&String> = asks.keys().collect();
        let properties: Map<String, Value> =
            asks.iter().map(|(name, kind)| (name.clone(), json!({ "type": kind }))).collect();
        let schema = json!({ "type": "object", "properties": properties, "required": names });
        let params = json!({ "message": message, "requestedSchema": schema });
        return ("elicitation", json!({ "method": "elicitation/create", "params": params }));
    }
    if let Some(text) = question.get("sampling") {
        let message = json!({ "role": "user", "content": { "type": "text", "text": text } });
        let params = json!({ "messages": [message], "maxTokens": question["maxTokens"] });
        return ("sampling", json!({ "method": "sampling/createMessage", "params": params }));
    }
    ("roots", json!({ "method": "roots/list", "params": {} }))
}

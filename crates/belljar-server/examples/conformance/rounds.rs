//! Tools and prompts that ask the client something before they answer, in rounds (SEP-2322).

use std::sync::LazyLock;

use rmcp::RoleServer;
use rmcp::model::{ErrorData, InputRequiredResult, InputResponses};
use rmcp::service::RequestContext;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::{FIXTURES, typed};

/// Signs the state that clients carry from round to round.
static SECRET: LazyLock<[u8; 32]> = LazyLock::new(|| {
    let mut secret = [0; 32];
    let filled = getrandom::fill(&mut secret);
    assert!(filled.is_ok(), "the system has no randomness");
    secret
});

/// What comes next.
pub(crate) enum Next {
    /// The client has to answer something first.
    Ask(Box<InputRequiredResult>),
    /// It has answered everything: its answers, in words.
    Done(String),
}

/// The state after `round`, signed.
fn sealed(name: &str, round: usize) -> String {
    let digest = Sha256::new().chain_update(*SECRET).chain_update(name).chain_update([round as u8]).finalize();
    format!("{round}.{digest:x}")
}

/// The next round of the tool or prompt `name`.
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

/// Whether this is an answer of the kind that the question asks for.
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
        // Only this one is about what clients can do; the others are called by those that can do everything.
        if name.ends_with("_capabilities") && declared.get(capability).is_none() {
            continue;
        }
        requests.insert(key.clone(), request);
    }
    let state = sealed(name, round);
    let ask = json!({ "resultType": "input_required", "inputRequests": requests, "requestState": state });
    Ok(Next::Ask(Box::new(typed(ask)?)))
}

/// A question as a request, and the capability that it needs.
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

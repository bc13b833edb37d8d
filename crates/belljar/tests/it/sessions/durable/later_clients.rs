//! Clients that come back to a run, after a restart of the server or not: this one's, and those of the Python SDKs.

use serde_json::{Value, json};

use super::{Fixture, MODERN, fields, kill};
use crate::serve::clients::client_with_servers;
use crate::wire::Wire;

/// Calls a tool as a client of the modern era that can be asked, and returns the result.
fn call(wire: &mut Wire, name: &str, arguments: Value, more: Value) -> Value {
    let mut params = json!({ "name": name, "arguments": arguments });
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": { "name": "tests", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} },
    });
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    wire.ask("tools/call", params)["result"].take()
}

/// Returns the parameters that answer what a result asks.
fn answer_to(asked: &Value) -> Value {
    assert_eq!(asked["resultType"], "input_required", "{asked:#}");
    let responses = json!({ "input": { "action": "accept", "content": { "value": "yes" } } });
    json!({ "requestState": asked["requestState"], "inputResponses": responses })
}

#[test]
fn questions_of_a_resumed_run_are_answered_in_the_modern_era() {
    let fixture = Fixture::new(&[]);
    let mut wire = Wire::silent(fixture.options());
    let code = "from tools import t\n[await t.append(text='a'), await t.append(text='b')]";
    call(&mut wire, "execute_code", json!({ "code": code }), json!({}));
    kill(wire);
    let mut wire = Wire::silent(fixture.options());
    let listed = fields(&call(&mut wire, "list_runs", json!({}), json!({})));
    let resumed = json!({ "run_id": listed["runs"][0]["run_id"] });
    let one = call(&mut wire, "resume_run", resumed.clone(), json!({}));
    assert!(one["inputRequests"].to_string().contains("append"), "{one:#}");
    // The state is not that of another run.
    let other = json!({ "run_id": "AAAAAAAAAAAAAAAA" });
    let refused = call(&mut wire, "resume_run", other, answer_to(&one));
    assert!(refused.to_string().contains("arguments differ"), "{refused:#}");
    let two = call(&mut wire, "resume_run", resumed.clone(), answer_to(&one));
    assert_ne!(two["requestState"], one["requestState"], "{two:#}");
    let done = call(&mut wire, "resume_run", resumed.clone(), answer_to(&two));
    assert_eq!(fields(&done)["result"], "['call 1', 'call 2']", "{done:#}");
    let again = call(&mut wire, "resume_run", resumed, answer_to(&two));
    assert_eq!(again["isError"], true, "{again:#}");
    assert_eq!(fixture.calls(), ["append a", "append b"]);
}

const SCRIPT: &str = "tests/sessions/later_client.py";

#[test]
fn python_sdk_1_comes_back_to_runs() {
    let fixture = Fixture::new(&[]);
    client_with_servers(1, SCRIPT, &fixture.options().collect::<Vec<_>>());
    assert_eq!(fixture.calls().len(), 5);
}

#[test]
fn python_sdk_2_comes_back_to_runs() {
    let fixture = Fixture::new(&[]);
    client_with_servers(2, SCRIPT, &fixture.options().collect::<Vec<_>>());
    assert_eq!(fixture.calls().len(), 5);
}

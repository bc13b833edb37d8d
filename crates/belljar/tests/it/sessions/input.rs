//! `input()`: requested from clients that support elicitation, an error for others.

use serde_json::json;

use super::{Session, fields, open};
use crate::wire::Wire;

#[test]
fn input_is_requested_by_elicitation() {
    let mut wire = Wire::start_with(["--toolset", "interpreter"], json!({ "elicitation": {} }));
    let id = open(&mut wire);
    let call = json!({ "name": "execute_code", "arguments": { "session_id": id, "code": "name = input('Who? ')\nname.upper()" } });
    let asked = wire.send("tools/call", call.clone());
    let question = wire.next().unwrap();
    assert_eq!(question["method"], "elicitation/create", "{question:#}");
    assert_eq!(question["params"]["message"], "Who? ");
    let field = &question["params"]["requestedSchema"]["properties"]["value"];
    assert_eq!(field["type"], "string", "{question:#}");
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "action": "accept", "content": { "value": "ada" } } });
    wire.write(format!("{answer}\n").as_bytes());
    assert_eq!(fields(&wire.answer(asked)["result"])["result"], "'ADA'");
    let asked = wire.send("tools/call", call);
    let question = wire.next().unwrap();
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "action": "decline" } });
    wire.write(format!("{answer}\n").as_bytes());
    let answer = fields(&wire.answer(asked)["result"]);
    assert_eq!(answer["error"], "StdinNotImplementedError: the question was declined");
}

#[test]
fn input_without_elicitation_raises_an_error() {
    let mut session = Session::start([]);
    let error = session.error("input('Who? ')");
    assert!(error.starts_with("StdinNotImplementedError: input() is not available"), "{error}");
    assert!(session.error("import getpass; getpass.getpass()").starts_with("StdinNotImplementedError"));
    assert_eq!(session.value("1 + 1"), "2");
}

#[test]
fn a_cell_that_waits_for_an_answer_can_be_interrupted() {
    let mut wire = Wire::start_with(["--toolset", "interpreter"], json!({ "elicitation": {} }));
    let id = open(&mut wire);
    let call = json!({ "name": "execute_code", "arguments": { "session_id": id, "code": "input('?')" } });
    let asked = wire.send("tools/call", call);
    assert_eq!(wire.next().unwrap()["method"], "elicitation/create");
    assert_eq!(
        fields(&wire.tool("interrupt_session", json!({ "session_id": id })))["message"],
        "The running code was interrupted"
    );
    let answer = fields(&wire.answer(asked)["result"]);
    assert!(answer["error"].as_str().unwrap().starts_with("KeyboardInterrupt"), "{answer:#}");
}

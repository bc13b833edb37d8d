//! Code of `run_python_code` that waits for longer than its client or its server lives.

use std::time::Duration;

use serde_json::{Value, json};

use super::durable::{Fixture, MODERN, fields, kill, question, reply, runs, wait_for};
use crate::wire::{Wire, text};

fn fixture(isolation: &str, options: &[&str]) -> Fixture {
    Fixture::with_toolset("all", &[&["--isolation", isolation], options].concat())
}

fn send(wire: &mut Wire, code: &str) -> u64 {
    wire.send("tools/call", json!({ "name": "run_python_code", "arguments": { "python_code": code } }))
}

fn resume(wire: &mut Wire, run: &Value) -> u64 {
    wire.send("tools/call", json!({ "name": "resume_run", "arguments": { "run_id": run["run_id"] } }))
}

const CODE: &str = "\
import asyncio, random
from tools import t
random.seed(1)
first = random.random()
print('before', flush=True)
results = await asyncio.gather(t.append(text='a'), asyncio.sleep(0.01, 'slept'))
print('after')
{'results': results, 'first': first, 'second': random.random()}";

in_both_isolations! {
    approval_is_answered_in_the_next_server
    program_sleeps_while_it_waits
    program_goes_on_by_the_state_of_the_modern_era_and_on_the_command_line
    results_are_those_of_a_server_without_a_data_directory
    cancelled_program_ends
    program_whose_server_ended_while_it_ran_is_listed_as_lost
}

const OUTPUT: &str = "before\nafter";

/// Returns whether the result is that of [`CODE`].
fn assert_result_of_code(result: &Value) {
    let content = fields(result);
    let value = &content["return_value"];
    assert_eq!((&content["status"], &value["results"]), (&json!("success"), &json!(["call 1", "slept"])), "{result:#}");
    // Random numbers go on where they were.
    assert_eq!(
        (&value["first"], &value["second"]),
        (&json!(0.134_364_244_112_401_22), &json!(0.847_433_736_937_232_7))
    );
    assert_eq!(content["output"], json!(OUTPUT.split('\n').collect::<Vec<_>>()), "{result:#}");
    assert_eq!(content["calls"][0]["status"], "ok", "{result:#}");
    assert!(text(result).starts_with("<status>success</status>"), "{result:#}");
}

fn approval_is_answered_in_the_next_server(isolation: &str) {
    let fixture = fixture(isolation, &[]);
    let mut wire = fixture.serve();
    send(&mut wire, CODE);
    let asked = question(&mut wire);
    assert!(asked["params"]["message"].as_str().unwrap().contains("append"), "{asked}");
    // The step that follows the other wait, of 10 ms, is over: a program whose server ends in a step is lost.
    std::thread::sleep(Duration::from_millis(500));
    fixture.waiting_run();
    kill(wire);

    let mut wire = fixture.serve();
    let listed = runs(&mut wire);
    assert_eq!(listed.len(), 1, "{listed:?}");
    let code = listed[0]["code"].as_str().unwrap();
    assert!(CODE.starts_with(code) && listed[0].get("session_id").is_none(), "{listed:?}");
    let resumed = resume(&mut wire, &listed[0]);
    let asked = question(&mut wire);
    assert_eq!(fixture.calls(), [""; 0]);
    reply(&mut wire, &asked, "yes");
    assert_result_of_code(&wire.answer(resumed)["result"]);
    assert_eq!(fixture.calls(), ["append a"]);
    // Nothing of it is left, once its result was delivered.
    let remains = || std::fs::read_dir(fixture.data()).unwrap().flatten().filter(|entry| entry.path().is_dir());
    wait_for(|| remains().all(|entry| entry.file_name() == "runs" || entry.file_name() == "bases"));
}

fn program_sleeps_while_it_waits(isolation: &str) {
    let fixture = fixture(isolation, &["--sleep-after", "0.1"]);
    let mut wire = fixture.serve();
    let call = send(&mut wire, CODE);
    let asked = question(&mut wire);
    // The maintenance of runs has put it to sleep.
    std::thread::sleep(Duration::from_secs(2));
    reply(&mut wire, &asked, "yes");
    assert_result_of_code(&wire.answer(call)["result"]);
}

fn program_goes_on_by_the_state_of_the_modern_era_and_on_the_command_line(isolation: &str) {
    let fixture = fixture(isolation, &[]);
    let call = |more: Value| {
        let mut params = json!({ "name": "run_python_code", "arguments": { "python_code": CODE } });
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientInfo": { "name": "tests", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} },
        });
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        params
    };
    let mut wire = Wire::silent(fixture.options());
    let asked = wire.ask("tools/call", call(json!({})))["result"].take();
    assert_eq!(asked["resultType"], "input_required", "{asked:#}");
    kill(wire);
    let mut wire = Wire::silent(fixture.options());
    let responses = json!({ "input": { "action": "accept", "content": { "value": "yes" } } });
    let answered = call(json!({ "requestState": asked["requestState"], "inputResponses": responses }));
    let done = wire.ask("tools/call", answered.clone())["result"].take();
    assert_result_of_code(&done);
    let again = wire.ask("tools/call", answered)["result"].take();
    assert!(text(&again).contains("no cell waits for this answer"), "{again:#}");
    drop(wire);

    let mut wire = fixture.serve();
    let call = send(&mut wire, "from tools import t\nawait t.append(text='b')");
    question(&mut wire);
    let run_id = fixture.waiting_run()["run"].as_str().unwrap().to_owned();
    assert_eq!(fixture.belljar(&["deny", &run_id]).status, Some(0));
    let denied = fields(&wire.answer(call)["result"]);
    assert!(denied["error"].as_str().unwrap().contains("ToolDenied: the user denied"), "{denied:#}");
    assert_eq!(fixture.calls(), ["append a"]);
}

fn results_are_those_of_a_server_without_a_data_directory(isolation: &str) {
    let fixture = fixture(isolation, &["--approve", "none"]);
    let mut durable = fixture.serve();
    let mut plain = Wire::start(["--toolset", "all"]);
    let shown = "from IPython.display import display, SVG\ndisplay(SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>'))";
    for code in [
        "import asyncio\nprint('a')\nawait asyncio.sleep(0.01)\n{'b': [1, None, 2.5]}",
        "import asyncio\nawait asyncio.sleep(0.01)\nprint('out')\n1 / 0",
        "import asyncio, sys\nawait asyncio.sleep(0.01)\nprint('err', file=sys.stderr)\nsys.exit(3)",
        "import asyncio\nawait asyncio.sleep(0.01)\nimport os\nos._exit(4)",
        "import asyncio\nawait asyncio.sleep(0.01)\nprint('x' * 100_000)\nlist(range(30_000))",
        "async def main():\n    return 5\nimport asyncio\nasyncio.run(main())",
        "await asyncio.sleep(1)",
        "import asyncio\nawait asyncio.sleep(0.01)\ndef f(:\n",
        "await",
        shown,
    ] {
        let answer = |wire: &mut Wire| {
            let mut result = wire.tool("run_python_code", json!({ "python_code": code }));
            // Only a server with tools has calls.
            if let Some(content) = result["structuredContent"].as_object_mut() {
                content.remove("calls");
            }
            result
        };
        assert_eq!(answer(&mut durable), answer(&mut plain), "{code}");
    }
    assert_eq!(runs(&mut durable), [Value::Null; 0]);
}

fn cancelled_program_ends(isolation: &str) {
    let fixture = fixture(isolation, &[]);
    let mut wire = fixture.serve();
    let call = send(&mut wire, "import asyncio\nawait asyncio.sleep(600)");
    wait_for(|| runs(&mut wire).iter().any(|run| run["status"] == "waiting"));
    wire.notify("notifications/cancelled", json!({ "requestId": call }));
    wait_for(|| runs(&mut wire).is_empty());
    // One that is on the disk is cancelled by its operator.
    send(&mut wire, "from tools import t\nawait t.append(text='a')");
    question(&mut wire);
    let run_id = fixture.waiting_run()["run"].as_str().unwrap().to_owned();
    kill(wire);
    assert_eq!(fixture.belljar(&["cancel", &run_id]).status, Some(0));
    let mut wire = fixture.serve();
    wait_for(|| runs(&mut wire)[0]["status"] == "completed");
    let run = runs(&mut wire)[0].clone();
    let ended = resume(&mut wire, &run);
    let ended = wire.answer(ended)["result"].take();
    assert!(text(&ended).contains("KeyboardInterrupt"), "{ended:#}");
    assert_eq!(fixture.calls(), [""; 0]);
}

fn program_whose_server_ended_while_it_ran_is_listed_as_lost(isolation: &str) {
    let fixture = fixture(isolation, &[]);
    let mut wire = fixture.serve();
    wire.follow_output();
    send(&mut wire, "from tools import t\nawait t.append(text='a')\nprint('on')\nwhile True: pass");
    let asked = question(&mut wire);
    reply(&mut wire, &asked, "yes");
    wire.wait_for_output("on");
    kill(wire);
    let mut wire = fixture.serve();
    let run = runs(&mut wire)[0].clone();
    let ended = resume(&mut wire, &run);
    let ended = wire.answer(ended)["result"].take();
    assert!(ended["isError"] == true && text(&ended).contains("the server ended while the code ran"), "{ended:#}");
    assert_eq!(fixture.calls(), ["append a"]);
}

//! The cells of a session in the console: their order, answers to their questions, and feeds of Monty's protocol.

use std::io::Write as _;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::browser::Browser;
use crate::console::open;
use crate::monty_worker::script;
use crate::operator::Operator;
use crate::tool_client::tool_server;

belljar_testing::trials! {
    cells_are_in_order_whenever_they_arrive: [Browser],
    half_typed_answers_stay: [Browser],
    feeds_are_shown_and_interrupted: [Browser],
}

fn cells_are_in_order_whenever_they_arrive() {
    let operator = Operator::start(&[]);
    let session = operator.create();
    for number in 1..=22 {
        operator.run(&session, &format!("{number}"));
    }
    let mut browser = Browser::start();
    open(&mut browser, &operator, "");
    let shown = "[...document.querySelectorAll('belljar-cell')].map((cell) => cell.number)";
    let numbers = |browser: &mut Browser| -> Vec<u64> { serde_json::from_value(browser.evaluate(shown)).unwrap() };

    // The event of a new cell arrives before the answer to the request for the last cells.
    browser.evaluate(
        "window.send = window.fetch;
         window.held = new Promise((release) => { window.release = release; });
         window.fetch = async (url, options) => {
             const answer = await send(url, options);
             // The cells are requested once the stream has begun.
             if (url.endsWith('/cells')) {
                 window.isHeld = true;
                 await held;
             }
             return answer;
         }; 0",
    );
    browser.evaluate(&format!("location.hash = '#/{session}'"));
    browser.wait_for("window.isHeld");
    let last = operator.submit(&session, "23");
    browser.wait_for(&format!("document.getElementById('cell-{last}')"));
    assert_eq!(numbers(&mut browser), [last]);
    browser.evaluate("release()");
    browser.wait_for("document.querySelector('.more')");
    let first = numbers(&mut browser)[0];
    assert!(first <= 4, "{first}");
    assert_eq!(numbers(&mut browser), (first..=last).collect::<Vec<u64>>());

    // More cells than a page has run while no event arrives.
    browser.evaluate(
        "window.view = document.querySelector('belljar-session');
         view.receive = () => {}; 0",
    );
    for number in 24..=68 {
        operator.run(&session, &format!("{number}"));
    }
    browser.evaluate("delete view.receive; view.receive({ change: 'lagged' })");
    browser.wait_for(&format!("document.querySelectorAll('belljar-cell').length === {}", 69 - first));
    assert_eq!(numbers(&mut browser), (first..=68).collect::<Vec<u64>>());
    // The button is still for the cells before all that are shown.
    browser.evaluate("document.querySelector('.more').click()");
    browser.wait_for("!document.querySelector('.more')");
    assert_eq!(numbers(&mut browser), (1..=68).collect::<Vec<u64>>());
}

fn half_typed_answers_stay() {
    let server = tool_server("t", "plain");
    let operator = Operator::start(&[&server, "--timeout", "600"]);
    let session = operator.create();
    let code = "import asyncio\nfrom tools import t\nnote = asyncio.ensure_future(t.note(text='hello'))\n\
                await asyncio.sleep(0.1)\nname = input('Who? ')\nprint(name, await note)";
    let number = operator.submit(&session, code);
    let asks_twice = |cell: &Value| cell["questions"].as_array().unwrap().len() == 2;
    let cell = operator.wait_for_cell(&session, number, asks_twice);
    let questions = cell["questions"].as_array().unwrap();
    let approval = questions.iter().find(|question| question["kind"] == "approval").unwrap()["number"].clone();
    let mut browser = Browser::start();
    open(&mut browser, &operator, &session);
    browser.wait_for("document.querySelectorAll('.question').length === 2");
    let names = "[...document.querySelectorAll('[aria-label=Approval] button')]
        .map((button) => button.getAttribute('aria-label') ?? button.textContent)";
    let expected = json!(["Approve", "Approve for this run", "Approve for this session", "Deny"]);
    assert_eq!(browser.evaluate(names), expected);
    browser.evaluate("window.line = document.querySelector('.question input'); line.focus()");
    browser.enter("Ada Love");
    // The other call of the cell ends meanwhile.
    let path = format!("/sessions/{session}/cells/{number}/questions/{approval}");
    assert_eq!(operator.send("POST", &path, Some(&json!({ "decision": "approve" }))).status, 204);
    browser.wait_for("document.querySelector('.leaf .status')?.textContent === 'ok'");
    browser.wait_for("document.querySelectorAll('.question').length === 1");
    browser.enter("lace");
    assert_eq!(browser.evaluate("document.activeElement === line && line.value"), "Ada Lovelace");
    browser.press("Enter", false);
    browser.wait_for("document.querySelector('.outputs').textContent.includes('Ada Lovelace noted hello')");
    browser.wait_for("!document.querySelector('.question')");
}

fn feeds_are_shown_and_interrupted() {
    let operator = Operator::start(&["--monty", "--timeout", "600"]);
    let mut command = script("shown_feeds.py");
    command.arg(format!("ws://{}/monty", operator.backend.address));
    let mut client = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::inherit()).spawn().unwrap();
    let mut browser = Browser::start();
    open(&mut browser, &operator, "");
    browser.wait_for("document.querySelector('.session-row')?.textContent.includes('Monty')");
    browser.evaluate("document.querySelector('.session-row').click()");
    browser.wait_for("document.querySelector('belljar-cell[data-state=waiting]')?.textContent.includes('before')");
    // Only its client uses the session, but operators can interrupt its code.
    let disabled = "[...document.querySelectorAll('.actions button')]
        .filter((button) => button.disabled).map((button) => button.dataset.action)";
    assert_eq!(browser.evaluate(disabled), json!(["restart", "fork", "sleep", "end"]));
    assert_eq!(browser.evaluate("document.querySelector('.prompt textarea').disabled"), true);
    client.stdin.take().unwrap().write_all(b"\n").unwrap();
    browser.wait_for("document.querySelector('#cell-2')?.textContent.includes('ZeroDivisionError')");
    browser.wait_for("document.querySelector('#cell-3[data-state=running]')");
    browser.evaluate("document.activeElement?.blur()");
    browser.press("i", false);
    browser.wait_for("document.querySelector('#cell-3')?.textContent.includes('KeyboardInterrupt')");
    assert!(client.wait().unwrap().success());
    browser.wait_for("document.querySelector('.session-head .badge')?.textContent === 'ended'");
}

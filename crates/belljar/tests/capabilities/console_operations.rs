//! Operations in the console: by buttons and keys, on code that runs once, and in many windows.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::browser::Browser;
use crate::console::{IS_SUBMITTED, has_variable, open};
use crate::operator::Operator;
use crate::tool_client::tool_server;

belljar_testing::trials! {
    sessions_are_operated_by_buttons_and_keys: [Browser],
    code_that_runs_once_is_interrupted_only: [Browser],
    windows_and_tabs_leave_connections_for_calls: [Browser],
}

/// The expression for the element of the last cell.
const LAST: &str = "[...document.querySelectorAll('belljar-cell')].at(-1)";
/// The expression for the handle of the session that is open.
const OPENED: &str = "document.querySelector('belljar-session')?.handle";
/// The expression for whether the operation of the last button has ended.
const HAS_ENDED: &str = "window.hasEnded";

/// Runs a cell by the prompt.
fn run(browser: &mut Browser, code: &str) {
    browser.press("e", false);
    browser.enter(code);
    browser.press("Enter", true);
    browser.wait_for(IS_SUBMITTED);
    browser.evaluate("document.activeElement.blur()");
}

/// Presses the button of an operation once it can be pressed. When the operation has ended, `HAS_ENDED` is true.
fn press_button(browser: &mut Browser, action: &str) {
    browser.wait_for(&format!(
        "(() => {{
            const view = document.querySelector('belljar-session');
            const button = view.querySelector('[data-action={action}]');
            if (button.disabled) return false;
            window.hasEnded = false;
            view.attempt = async (work) => {{
                await view.constructor.prototype.attempt.call(view, work);
                window.hasEnded = true;
            }};
            button.click();
            return true;
        }})()"
    ));
}

/// Presses a button of the dialog that asks whether to go on, and waits for the end of the operation.
fn answer_dialog(browser: &mut Browser, button: &str) {
    let pressed = format!(
        "[...document.querySelectorAll('dialog[open] button')].find((button) => button.textContent === '{button}')"
    );
    browser.wait_for(&pressed);
    browser.evaluate(&format!("{pressed}.click()"));
    browser.wait_for(HAS_ENDED);
}

/// Waits until the head of the session names this state.
fn wait_for_badge(browser: &mut Browser, state: &str) {
    browser.wait_for(&format!("document.querySelector('.session-head .badge')?.textContent === '{state}'"));
}

fn wait_for_text(browser: &mut Browser, text: &str) {
    browser.wait_for(&format!("{LAST}?.textContent.includes({})", json!(text)));
}

fn sessions_are_operated_by_buttons_and_keys() {
    let server = tool_server("t", "plain");
    let operator = Operator::start(&[&server, "--timeout", "600"]);
    let mut browser = Browser::start();
    open(&mut browser, &operator, "");
    browser.evaluate("document.querySelector('[aria-label=\"New session\"]').click()");
    wait_for_badge(&mut browser, "idle");
    let session = browser.evaluate(OPENED).as_str().unwrap().to_owned();

    let is_dark = "getComputedStyle(document.documentElement).getPropertyValue('--is-dark').trim()";
    let before = browser.evaluate(is_dark);
    browser.press("t", false);
    browser.wait_for(&format!("{is_dark} !== {before}"));

    browser.note_loads("document");
    let code = "rows = [1, 2]\n_ = open('table.csv', 'w').write('a,b\\n1,2\\n')\n\
                display({'text/html': '<b>bold</b>'}, raw=True)";
    run(&mut browser, code);
    browser.wait_for(&format!("{LAST}?.dataset.state === 'ok' && {LAST}.querySelector('iframe')"));
    browser.wait_for_frames("document");
    browser.evaluate("window.frame = document.querySelector('iframe'); 0");
    operator.wait_for_state(&session, "idle");
    browser.press("5", false);
    browser.wait_for(&has_variable("rows", "list", "[1, 2]"));
    // Listing them runs code in the session.
    operator.wait_for_state(&session, "idle");
    save_file(&mut browser);
    // The address of a frame works once: the frame gets another.
    browser.press("1", false);
    browser.wait_for("document.querySelector('iframe') && document.querySelector('iframe') !== frame");

    press_button(&mut browser, "fork");
    browser.wait_for(&format!("{OPENED} && {OPENED} !== '{session}'"));
    let fork = browser.evaluate(OPENED).as_str().unwrap().to_owned();
    run(&mut browser, "print(rows, open('table.csv').read())");
    wait_for_text(&mut browser, "[1, 2] a,b");
    press_button(&mut browser, "end");
    answer_dialog(&mut browser, "End");
    wait_for_badge(&mut browser, "ended");
    assert_eq!(operator.get(&format!("/sessions/{fork}"))["state"], "ended");

    browser.evaluate(&format!("location.hash = '#/{session}'"));
    browser.wait_for(&format!("{OPENED} === '{session}' && {LAST}"));
    press_button(&mut browser, "restart");
    answer_dialog(&mut browser, "Cancel");
    run(&mut browser, "print(rows + [3])");
    wait_for_text(&mut browser, "[1, 2, 3]");
    press_button(&mut browser, "restart");
    answer_dialog(&mut browser, "Restart");
    run(&mut browser, "rows");
    wait_for_text(&mut browser, "NameError");
    operator.wait_for_state(&session, "idle");
    press_button(&mut browser, "sleep");
    wait_for_badge(&mut browser, "asleep");

    follow_code(&mut browser);
    deny(&mut browser);
    move_in_the_list(&mut browser, &operator);
}

/// Downloads the file of the session.
fn save_file(browser: &mut Browser) {
    let folder = tempfile::tempdir().unwrap();
    browser.save_downloads(folder.path());
    browser.press("4", false);
    let button = "document.querySelector('[aria-label=\"Download table.csv\"]')";
    browser.wait_for(button);
    browser.evaluate(&format!("{button}.click()"));
    let begin = Instant::now();
    while !std::fs::read(folder.path().join("table.csv")).is_ok_and(|bytes| bytes == b"a,b\n1,2\n") {
        assert!(begin.elapsed() < Duration::from_secs(180), "{}", browser.evaluate("document.body.innerText"));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs code that wakes the session, whose progress is shown while it runs.
fn follow_code(browser: &mut Browser) {
    let code = "import itertools, time\nbar = display(0, display_id=True)\n\
                for step in itertools.count():\n    bar.update(step)\n    time.sleep(0.01)";
    run(browser, code);
    let step = format!("Number({LAST}?.querySelector('.display')?.textContent)");
    browser.wait_for(&format!("{LAST}.dataset.state === 'running' && {step} >= 0"));
    let first = browser.evaluate(&step).as_u64().unwrap();
    browser.wait_for(&format!("{LAST}.dataset.state === 'running' && {step} > {first} + 10"));
    browser.press("i", false);
    wait_for_text(browser, "KeyboardInterrupt");

    // No event moves the timeline of this code.
    run(browser, "while True: pass");
    browser.wait_for(&format!("{LAST}.dataset.state === 'running'"));
    browser.press("2", false);
    browser.wait_for("document.querySelector('.lane-row')");
    browser.evaluate("window.row = [...document.querySelectorAll('.lane-row')].at(-1); row.focus()");
    let time = "row.querySelector('.when').textContent";
    for _ in 0..2 {
        let shown = browser.evaluate(time);
        browser.wait_for(&format!("row.isConnected && document.activeElement === row && {time} !== {shown}"));
    }
    browser.press("i", false);
    browser.wait_for("row.getAttribute('aria-label').includes(', error,')");
    browser.press("1", false);
}

/// Denies a call of a tool, whose question appears while a key and the pointer approve.
fn deny(browser: &mut Browser) {
    browser.evaluate(
        "window.early = [];
         new MutationObserver(() => {
             const [approve] = document.querySelectorAll('[data-action=approve]');
             if (!approve || early.length) return;
             early.push(approve.disabled);
             approve.click();
             document.body.dispatchEvent(new KeyboardEvent('keydown', { key: 'a', bubbles: true }));
         }).observe(document.body, { childList: true, subtree: true }); 0",
    );
    run(browser, "from tools import t\nawait t.note(text='first')");
    browser.wait_for("early.length && document.querySelector('[data-action=deny]').disabled === false");
    assert_eq!(browser.evaluate("early"), json!([true]));
    browser.press("d", false);
    browser.wait_for("!document.querySelector('.question')");
    browser.wait_for(&format!("{LAST}.dataset.state === 'error'"));
    wait_for_text(browser, "denied");
}

/// Moves in the list, whose order changes.
fn move_in_the_list(browser: &mut Browser, operator: &Operator) {
    let [other, used] = [operator.create(), operator.create()];
    let is_first = |session: &str| format!("document.querySelector('.session-row').dataset.handle === '{session}'");
    operator.run(&used, "1");
    browser.wait_for(&format!("{} && document.getElementById('row-{other}')", is_first(&used)));
    browser.evaluate(&format!("document.getElementById('row-{other}').click()"));
    browser.wait_for(&format!("{OPENED} === '{other}'"));
    operator.run(&other, "1");
    browser.wait_for(&is_first(&other));
    browser.press("j", false);
    browser.wait_for(&format!("{OPENED} === '{used}'"));
    browser.press("k", false);
    browser.wait_for(&format!("{OPENED} === '{other}'"));
    // The row is the same in a shorter list, of which another would have the number that it had.
    browser.press("j", false);
    browser.wait_for(&format!("{OPENED} === '{used}'"));
    browser.evaluate(&format!(
        "const list = document.querySelector('belljar-sessions'); list.search.value = '{used}'; list.filter()"
    ));
    browser.wait_for("document.querySelectorAll('.session-row').length === 1");
    browser.press("Escape", false);
    browser.wait_for(&format!("!{OPENED}"));
    browser.press("Enter", false);
    browser.wait_for(&format!("{OPENED} === '{used}'"));
}

fn code_that_runs_once_is_interrupted_only() {
    let options = ["--toolset", "all", "--timeout", "600"];
    let operator = Operator::start_transport("streamable-http-stateless", &options);
    let mut browser = Browser::start();
    open(&mut browser, &operator, "");
    std::thread::scope(|scope| {
        let client = scope.spawn(|| operator.call_once("print('begun')\nwhile True: pass"));
        browser.wait_for("document.querySelector('.session-row')?.textContent.includes('one call')");
        browser.evaluate("document.querySelector('.session-row').click()");
        browser.wait_for(&format!("{LAST}?.dataset.state === 'running' && {LAST}.body.textContent.includes('begun')"));
        let disabled = "[...document.querySelectorAll('.actions button')]
            .filter((button) => button.disabled).map((button) => button.dataset.action)";
        assert_eq!(browser.evaluate(disabled), json!(["restart", "fork", "sleep", "end"]));
        assert_eq!(browser.evaluate("document.querySelector('.prompt textarea').disabled"), true);
        press_button(&mut browser, "stop");
        browser.wait_for(&format!("{LAST}.dataset.state === 'died'"));
        wait_for_badge(&mut browser, "ended");
        client.join().unwrap();
    });
}

/// Browsers open six connections to a server without TLS, for all windows and tabs together.
fn windows_and_tabs_leave_connections_for_calls() {
    let operator = Operator::start(&[]);
    let session = operator.create();
    let mut browser = Browser::start();
    let mut pages = Vec::new();
    // Five windows, which are all visible, and three tabs that cover the page in the last window.
    for is_window in [true, true, true, true, true, false, false, false] {
        pages.push(browser.open_page(is_window));
        open(&mut browser, &operator, &session);
    }
    run(&mut browser, "print('from', 'the last page')");
    wait_for_text(&mut browser, "from the last page");
    browser.use_page(&pages[0]);
    wait_for_text(&mut browser, "from the last page");
    // A page that is hidden requests what it has missed when it is visible.
    browser.use_page(&pages[5]);
    assert_eq!(browser.evaluate("document.hidden && !document.querySelector('belljar-cell')"), true);
    browser.call("Page.bringToFront", json!({}));
    wait_for_text(&mut browser, "from the last page");
}

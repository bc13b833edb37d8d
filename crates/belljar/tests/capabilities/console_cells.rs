//! The cells of a session in the console: their order.

use crate::browser::Browser;
use crate::console::open;
use crate::operator::Operator;

belljar_testing::trials! {
    cells_are_in_order_whenever_they_arrive: [Browser],
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
             if (url.endsWith('/cells')) await held;
             return answer;
         }; 0",
    );
    browser.evaluate(&format!("location.hash = '#/{session}'"));
    browser.wait_for("document.querySelector('belljar-session')?.wasLoaded");
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

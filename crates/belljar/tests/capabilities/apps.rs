//! Panels of MCP Apps in a browser: results of a real server, and hostile output.
//!
//! With `BELLJAR_APPS_PICTURES=DIR`, `panels_show_results` writes the picture of docs/apps.md there.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::console::{Canary, INJECTIONS, MIN_INJECTIONS};
use crate::operator::{Operator, TOKEN};
use crate::tool_client::tool_server;
use crate::wire::Wire;

belljar_testing::trials! {
    panels_show_results: [Browser],
    approvals_are_given_in_panels: [Browser],
    panels_keep_hostile_output_harmless: [Browser],
    tables_are_read_as_text: [Browser],
}

const HOST: &str = include_str!("../apps/host.html");
const SHOWN: &str = include_str!("../apps/shown.cells");
/// The policy that the specification has hosts make of a panel's settings without domains.
const POLICY: &str = "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; \
    connect-src 'self'; img-src 'self' data:; font-src 'self'; media-src 'self' data:; frame-src 'none'; \
    object-src 'none'; base-uri 'self'";
/// The permissions of a panel's frame inside of a host's sandbox, where scripts of the panel could reach the host.
const SAME_ORIGIN: &str = "allow-scripts allow-same-origin allow-forms";
/// The expression for the panel's document, in such a frame.
const PANEL: &str = "view.contentDocument";
/// The expression for whether the size that the panel has reported last is its own, and the host has adopted it.
const IS_REPORTED: &str = "host.sizes.at(-1).width === PANEL.documentElement.clientWidth
    && host.sizes.at(-1).height === Math.ceil(PANEL.getElementById('app').getBoundingClientRect().height)
    && view.clientHeight >= PANEL.getElementById('app').clientHeight";

/// A server of a page that embeds panels.
struct Host {
    address: String,
}

impl Host {
    fn start(page: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let page = page.to_owned();
        std::thread::spawn(move || listener.incoming().for_each(|stream| answer(stream.unwrap(), &page)));
        Self { address }
    }
}

fn answer(mut stream: TcpStream, page: &str) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    let Some(request) = lines.next() else { return };
    lines.take_while(|line| !line.is_empty()).for_each(drop);
    let (status, policy, body) = match request.split(['?', ' ']).nth(1) {
        Some("/") => ("200 OK", "", HOST),
        Some("/view") => ("200 OK", POLICY, page),
        _ => ("404 Not Found", "", ""),
    };
    let policy = if policy.is_empty() { String::new() } else { format!("Content-Security-Policy: {policy}\r\n") };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nConnection: close\r\n{policy}Content-Length: {}",
        body.len()
    );
    // The browser may have closed the connection.
    let _ = stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes());
}

/// A server for a client that shows panels, a browser that has the client's page open, and a session.
struct Client {
    wire: Wire,
    browser: Browser,
    host: Host,
    session: Option<Value>,
}

impl Client {
    fn start(options: &[&str]) -> Self {
        let apps =
            json!({ "extensions": { "io.modelcontextprotocol/ui": { "mimeTypes": ["text/html;profile=mcp-app"] } } });
        let mut wire = Wire::start_with([&["--toolset", "all"], options].concat(), apps);
        let page = wire.ask("resources/read", json!({ "uri": "ui://belljar/cell" }));
        let host = Host::start(page["result"]["contents"][0]["text"].as_str().unwrap());
        let mut browser = Browser::start();
        browser.open(&format!("http://{}/", host.address));
        browser.wait_for("typeof host === 'object' && document.readyState === 'complete'");
        Self { wire, browser, host, session: None }
    }

    /// Loads the panel, and waits until it has begun.
    fn begin(&mut self, sandbox: &str, capabilities: &Value) {
        let context = json!({ "theme": "light", "displayMode": "inline" });
        self.browser.evaluate(&format!("host.begin({}, {capabilities}, {context})", json!(sandbox)));
        self.browser.wait_for("host.isReady && host.sizes.length");
    }

    /// Runs a cell in the session, and shows its result in the panel.
    fn show(&mut self, code: &str) -> Value {
        let mut input = json!({ "code": code });
        if let Some(session) = &self.session {
            input["session_id"] = session.clone();
        }
        let result = self.wire.tool("execute_code", input.clone());
        if self.session.is_none() {
            let fields: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
            self.session = Some(fields["session_info"]["session_id"].clone());
        }
        self.browser.evaluate(&format!("host.show({input}, {result})"));
        result
    }

    fn evaluate(&mut self, expression: &str) -> Value {
        self.browser.evaluate(&expression.replace("PANEL", PANEL))
    }

    fn wait_for(&mut self, expression: &str) {
        self.browser.wait_for(&expression.replace("PANEL", PANEL));
    }

    /// Returns the texts of the elements of a selector in the panel.
    fn texts(&mut self, selector: &str) -> Vec<String> {
        let texts = format!("[...PANEL.querySelectorAll({})].map((one) => one.textContent)", json!(selector));
        serde_json::from_value(self.evaluate(&texts)).unwrap()
    }

    /// Answers requests of the panel by the server until it asks to save a file, and returns the file.
    fn saved(&mut self) -> (Vec<u8>, usize) {
        for reads in 0.. {
            self.wait_for("host.requests.length");
            let request = self.evaluate("host.take()");
            let method = request["method"].as_str().unwrap().to_owned();
            let result = if method == "ui/download-file" {
                json!({})
            } else {
                assert_eq!(method, "resources/read", "{request:#}");
                self.wire.ask("resources/read", request["params"].clone())["result"].take()
            };
            self.evaluate(&format!("host.post({{ id: {}, result: {result} }})", request["id"]));
            if method == "ui/download-file" {
                let blob = request["params"]["contents"][0]["resource"]["blob"].as_str().unwrap();
                return (STANDARD.decode(blob).unwrap(), reads);
            }
        }
        unreachable!()
    }
}

fn panels_show_results() {
    let mut client = Client::start(&[]);
    client.begin(SAME_ORIGIN, &json!({ "serverResources": {}, "downloadFile": {} }));
    assert_eq!(client.texts(".badge"), ["running"]);
    client.show(SHOWN);
    client.wait_for("PANEL.querySelector('.badge.ok') && PANEL.querySelector('img.figure')?.naturalWidth === 560");
    assert_eq!(client.texts(".outputs .a-f2"), ["45 orders"]);
    assert!(client.texts(".source pre.code")[0].contains("class Table:"));

    // The table: pages, and orders by numbers, by text, and the one of the code.
    let column = |at: usize| format!(".data tbody tr > :nth-child({at})");
    let first = client.texts(&column(2));
    assert_eq!((first.len(), first[0].as_str(), first[9].as_str()), (10, "1", "10"));
    assert_eq!(client.texts(".pages [role=status]"), ["1–10 of 45"]);
    assert!(client.texts(".data")[0].contains("45 rows × 4 columns"));
    let press = |client: &mut Client, title: &str| {
        client.evaluate(&format!("PANEL.querySelector('.pages [title=\"{title}\"]').click()"));
    };
    press(&mut client, "Last page");
    assert_eq!(client.texts(".pages [role=status]"), ["41–45 of 45"]);
    assert_eq!(client.texts(&column(2)), ["41", "42", "43", "44", "45"]);
    assert_eq!(client.evaluate("PANEL.querySelector('.pages [title=\"Next page\"]').disabled"), true);
    let sort = |client: &mut Client, at: usize| {
        client.evaluate(&format!("PANEL.querySelectorAll('.data button.sort')[{at}].click()"));
    };
    for (direction, is_sorted) in [
        ("ascending", (|two: &[f64]| two[0] <= two[1]) as fn(&[f64]) -> bool),
        ("descending", |two: &[f64]| two[0] >= two[1]),
    ] {
        sort(&mut client, 3);
        assert_eq!(client.evaluate("PANEL.querySelectorAll('.data th')[3].getAttribute('aria-sort')"), direction);
        let mut totals = client.texts(&column(4));
        for _ in 0..4 {
            press(&mut client, "Next page");
            totals.extend(client.texts(&column(4)));
        }
        assert_eq!((totals.len(), totals[44].as_str()), (45, "nan"), "{totals:?}");
        let totals: Vec<f64> = totals[..44].iter().map(|total| total.parse().unwrap()).collect();
        assert!(totals.windows(2).all(is_sorted), "{direction}: {totals:?}");
    }
    sort(&mut client, 3);
    assert_eq!(client.texts(&column(2)), first);
    sort(&mut client, 2);
    assert_eq!(client.texts(&column(3))[0], "Centre");
    sort(&mut client, 1);
    assert_eq!(client.texts(&column(5))[6], "R&D <b>");

    // Files are read by the client, whole or in parts, and saved by it.
    let files = client.texts(".saved tbody td:first-child");
    assert!(files.contains(&"orders.csv".to_owned()) && files.contains(&"large.bin".to_owned()), "{files:?}");
    // Names of columns are above their values, and both tables have text of one size.
    let aligned = "[...PANEL.querySelectorAll('.saved th')].map((name) => getComputedStyle(name).textAlign)";
    assert_eq!(client.evaluate(aligned), json!(["left", "left", "right", "left"]));
    let sizes = "[...new Set([...PANEL.querySelectorAll('.saved td:not(.mono), .data td')]
        .map((cell) => getComputedStyle(cell).fontSize))]";
    assert_eq!(client.evaluate(sizes), json!(["13px"]));
    let download = |client: &mut Client, name: &str| {
        client.evaluate(&format!("PANEL.querySelector('.saved [aria-label=\"Download {name}\"]').click()"));
        client.saved()
    };
    let (bytes, reads) = download(&mut client, "orders.csv");
    assert!(reads == 1 && bytes.starts_with(b"1,"), "{reads} reads");
    let (bytes, reads) = download(&mut client, "large.bin");
    assert_eq!((bytes.len(), reads), (2_500_000, 3));
    assert!(bytes.iter().enumerate().all(|(at, byte)| usize::from(*byte) == at % 251));
    take_picture(&mut client, "apps-panel.png");

    // A change of the theme, an error, a tool without sessions, and a call that was cancelled.
    client.evaluate("host.post({ method: 'ui/notifications/host-context-changed', params: { theme: 'dark' } })");
    client.wait_for("PANEL.documentElement.dataset.theme === 'dark'");
    client.show("print('before')\n{}['missing']");
    client.wait_for("PANEL.querySelector('.badge.error')");
    assert!(client.texts(".traceback")[0].contains("KeyError"));
    let input = json!({ "python_code": "print('one shot')\n6 * 7" });
    let result = client.wire.tool("run_python_code", input.clone());
    client.evaluate(&format!("host.show({input}, {result})"));
    client.wait_for("PANEL.querySelector('.badge.ok')");
    assert_eq!(client.texts(".outputs pre"), ["one shot\n", "42"]);
    client.evaluate("host.post({ method: 'ui/notifications/tool-cancelled', params: { reason: 'user' } })");
    client.wait_for("PANEL.querySelector('.badge.cancelled')");

    // Hosts that drop the entry for panels: the rest of the result is enough.
    let mut result = client.show(&SHOWN.replace("Table(orders)", "print('end')"));
    result.as_object_mut().unwrap().remove("_meta");
    client.evaluate(&format!("host.show({{}}, {result})"));
    client.wait_for("!PANEL.querySelector('.source') && PANEL.querySelector('.badge.ok')");
    assert!(client.texts(".outputs")[0].contains("end"), "{:?}", client.texts(".outputs"));
    client.wait_for("PANEL.querySelector('img.figure')?.naturalWidth === 560");

    // A frame with an origin of its own, of which the host sees messages only.
    client.begin("allow-scripts", &json!({}));
    let before = client.evaluate("host.sizes.at(-1).height").as_f64().unwrap();
    client.show(SHOWN);
    client.browser.wait_for(&format!("host.sizes.at(-1).height > {before} + 400"));
    assert_eq!(client.browser.evaluate("view.contentDocument"), Value::Null);
    let asked = client.browser.evaluate("host.messages.filter((one) => one.method === 'ui/initialize')[0].params");
    assert_eq!(asked["protocolVersion"], "2026-01-26", "{asked:#}");
}

fn approvals_are_given_in_panels() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let server = format!("{} '{}'", tool_server("t", "recording"), path("calls"));
    let mut client = Client::start(&["--data-dir", &path("data"), &server]);
    client.begin(SAME_ORIGIN, &json!({ "serverTools": {}, "updateModelContext": {} }));
    let code = "from tools import t\nfor text in ['<b>one', 'two']:\n    await t.append(text=text)\n'both'";
    client.wire.tool("execute_code", json!({ "code": "1" }));
    let result = client.wire.tool("execute_code", json!({ "code": code }));
    client.evaluate(&format!("host.show({}, {result})", json!({ "code": code })));
    client.wait_for("PANEL.querySelector('.badge.waiting') && PANEL.querySelector('.question [data-action=approve]')");
    assert!(client.texts(".question pre")[0].contains("<b>one"), "{:?}", client.texts(".question"));
    assert!(!client.texts(".question")[0].contains("Answer yes"), "{:?}", client.texts(".question"));
    // A click that comes with the panel decides nothing.
    assert_eq!(client.evaluate("PANEL.querySelector('[data-action=approve]').disabled"), true);
    for (decision, state) in [("approve", "waiting"), ("deny", "error")] {
        client.wait_for(&format!("PANEL.querySelector('[data-action={decision}]')?.disabled === false"));
        if decision == "approve" {
            take_picture(&mut client, "apps-approval.png");
        }
        client.evaluate(&format!("PANEL.querySelector('[data-action={decision}]').click()"));
        client.wait_for("host.requests.length");
        let request = client.evaluate("host.take()");
        assert_eq!((&request["method"], &request["params"]["name"]), (&json!("tools/call"), &json!("answer_question")));
        assert_eq!(request["params"]["arguments"]["decision"], decision, "{request:#}");
        let answer = client.wire.ask("tools/call", request["params"].clone())["result"].take();
        client.evaluate(&format!("host.post({{ id: {}, result: {answer} }})", request["id"]));
        client.wait_for(&format!("PANEL.querySelector('.badge.{state}')"));
        client.wait_for("host.requests.length");
        let message = client.evaluate("host.take()");
        assert_eq!(message["method"], "ui/update-model-context", "{message:#}");
        let text = message["params"]["content"][0]["text"].as_str().unwrap();
        assert!(text.contains("resume_run") && !text.contains("token"), "{text}");
    }
    assert!(client.texts(".traceback")[0].contains("denied"), "{:?}", client.texts(".traceback"));
    assert_eq!(std::fs::read_to_string(path("calls")).unwrap(), "append <b>one\n");
    // A client that refuses the call is shown, and the user can try again.
    let result = client.wire.tool("execute_code", json!({ "code": code }));
    client.evaluate(&format!("host.show({}, {result})", json!({ "code": code })));
    client.wait_for("PANEL.querySelector('[data-action=deny]')?.disabled === false");
    client.evaluate("PANEL.querySelector('[data-action=deny]').click()");
    client.wait_for("host.requests.length");
    let request = client.evaluate("host.take()");
    client.evaluate(&format!("host.post({{ id: {}, error: {{ code: -1, message: 'not allowed' }} }})", request["id"]));
    client.wait_for("PANEL.querySelector('.question .problem')?.textContent === 'not allowed'");
    assert_eq!(client.evaluate("PANEL.querySelector('[data-action=deny]').disabled"), false);
    // One that lets panels call no tools gets the text.
    client.begin(SAME_ORIGIN, &json!({}));
    client.evaluate(&format!("host.show({}, {result})", json!({ "code": code })));
    client.wait_for("PANEL.querySelector('.question .hint')");
    assert_eq!(client.evaluate("PANEL.querySelectorAll('.question button').length"), 0);
}

/// Takes the picture of the documentation, or checks that it could be taken.
fn take_picture(client: &mut Client, name: &str) {
    client.evaluate("PANEL.documentElement.dataset.theme = 'light'");
    client.browser.set_media(820, 860, false);
    let width = "PANEL.documentElement.scrollWidth <= PANEL.documentElement.clientWidth";
    client.wait_for(&format!("{width} && {IS_REPORTED}"));
    let height = client.evaluate("host.sizes.at(-1).height").as_f64().unwrap();
    client.browser.set_media(820, height as u32 + 24, false);
    client.wait_for(IS_REPORTED);
    client.browser.settle();
    let picture = STANDARD.decode(client.browser.picture()).unwrap();
    assert!(picture.starts_with(b"\x89PNG") && picture.len() > 10_000, "{} bytes", picture.len());
    if let Some(directory) = std::env::var_os("BELLJAR_APPS_PICTURES") {
        std::fs::write(Path::new(&directory).join(name), picture).unwrap();
    }
}

fn panels_keep_hostile_output_harmless() {
    let canary = Canary::start();
    let mut client = Client::start(&[]);
    client.begin(SAME_ORIGIN, &json!({ "serverResources": {}, "serverTools": {}, "openLinks": {} }));
    let cells: Vec<&str> = INJECTIONS.split("# %% ").skip(1).collect();
    assert!(cells.len() > MIN_INJECTIONS, "{}", cells.len());
    let (mut frames, mut texts) = (0, String::new());
    client.browser.note_loads(PANEL);
    for cell in cells {
        let (name, code) = cell.split_once('\n').unwrap();
        client.show(&code.replace("CANARY", &canary.address));
        client.wait_for("PANEL.querySelector('.badge.ok, .badge.error')");
        for view in [0, 1, 2] {
            client.evaluate(&format!(
                "PANEL.querySelectorAll('.views').forEach((views) => views.children[{view}]?.click());
                 PANEL.querySelectorAll('details').forEach((details) => {{ details.open = true; }});"
            ));
            // A frame loads, and a script in it would run.
            client.browser.wait_for_frames(PANEL);
            frames += client.evaluate("PANEL.querySelectorAll('iframe').length").as_u64().unwrap();
        }
        texts.push_str(client.evaluate("PANEL.body.textContent").as_str().unwrap());
        let foreign = "[...PANEL.querySelectorAll('*')].filter((element) =>
            [...element.attributes].some((attribute) => attribute.name.startsWith('on'))
            || ['OBJECT', 'EMBED', 'FORM', 'LINK', 'BASE', 'VIDEO', 'AUDIO', 'A'].includes(element.tagName)
            || element.tagName === 'META' && element.parentElement.tagName !== 'HEAD'
            || element.tagName === 'IFRAME' && (element.getAttribute('sandbox') !== '' || element.hasAttribute('src'))
            || element.tagName === 'IMG' && !/^data:image/.test(element.getAttribute('src'))).length";
        assert_eq!(client.evaluate(foreign), 0, "{name}");
        let pwned = "[window, view.contentWindow].some((one) => 'pwned' in one || 'pwned' in one.Object.prototype)";
        assert_eq!(client.evaluate(pwned), false, "{name}");
        assert_eq!(client.evaluate("PANEL.scripts.length"), 1, "{name}");
    }
    // No event ends the time in which a page could still send a request.
    std::thread::sleep(Duration::from_secs(1));
    assert!(frames > 20, "{frames} frames");
    for text in ["<script>window.pwned = 1", "<img src=x onerror=\"window.pwned = 1; alert(1)", "U+202E"] {
        assert!(texts.contains(text), "{text}");
    }
    assert_eq!(canary.count(), 0, "a request has left");
    // The page has asked the host for nothing, and nothing in it has spoken to the host in its place.
    let methods = "[...new Set(host.messages.map((one) => one.method ?? JSON.stringify(one)))].sort()";
    let usual = ["ui/initialize", "ui/notifications/initialized", "ui/notifications/size-changed"];
    assert_eq!(client.evaluate(methods), json!(usual));
    let dialogs =
        client.browser.events.iter().filter(|event| event["method"] == "Page.javascriptDialogOpening").count();
    assert_eq!(dialogs, 0);
    let own = format!("http://{}/", client.host.address);
    let requested = client.browser.requested();
    let foreign = requested.iter().filter(|url| !url.starts_with(&own) && !url.starts_with("data:"));
    // Requests that a policy has refused were never sent: the canary counts.
    let foreign: Vec<&String> =
        foreign.filter(|url| !url.contains(&canary.address) && *url != "about:srcdoc").collect();
    assert!(foreign.is_empty(), "{foreign:?}");
    // The page's own policy is stricter than that of the host, which would allow all but the first.
    let refused = "(action) => Promise.resolve().then(action).then(() => 'accepted', () => 'refused')";
    for action in [
        format!("() => view.contentWindow.fetch('http://{}/')", canary.address),
        "() => view.contentWindow.fetch('/view')".to_owned(),
        "() => { PANEL.body.innerHTML = '<b>text</b>'; }".to_owned(),
        "() => { PANEL.head.append(PANEL.createElement('script')); PANEL.scripts[0].text = 'window.pwned = 1'; }"
            .to_owned(),
    ] {
        assert_eq!(client.evaluate(&format!("({refused})({action})")), "refused", "{action}");
    }
    assert_eq!(canary.count(), 0);
}

/// HTML of tables, and what is read of it: names, rows, the number of columns with names of rows.
const TABLES: [(&str, &str); 9] = [
    ("<table><tr><th>a<th>b<tr><td>1<td>2</table>", r#"[["a","b"],[["1","2"]],0]"#),
    (
        "<p>x<b>y</b></p><table><tr><td>1 &lt; 2 &amp;amp; &#x41;&#66;&nope;</td></tr></table>",
        r#"[[""],[["1 < 2 &amp; AB&nope;"]],0]"#,
    ),
    // Levels of columns and rows, as pandas makes them.
    (
        "<table border='1'><thead><tr><th></th><th colspan=2>m</th></tr><tr><th></th><th>x</th><th>y</th></tr>\
         <tr><th>k</th><th></th><th></th></tr></thead><tbody><tr><th rowspan='2'>r</th><td>1</td><td title='a>b'>2<br>3</td>\
         </tr><tr><td>4</td><td>5</td></tr></tbody></table>",
        r#"[["k","m · x","m · y"],[["r","1","2\n3"],["r","4","5"]],1]"#,
    ),
    ("<style>td { x: '<td>' }</style><!-- <table> --><table><tr><td>a<script>b</script>c", r#"[[""],[["ac"]],0]"#),
    ("<table><tr><td>a\u{202e}b\u{0}\u{1b}[31mc", "[[\"\"],[[\"a\u{202e}bc\"]],0]"),
    // All but a single table of text is shown in a frame.
    ("<table><tr><td><table><tr><td>1</table></table>", "null"),
    ("<table><tr><td>1</table><table><tr><td>1</table>", "null"),
    ("<table><tr><td><img src=x></table>", "null"),
    ("<b>no table</b>", "null"),
];

fn tables_are_read_as_text() {
    let operator = Operator::start(&[]);
    let mut browser = Browser::start();
    browser.open(&format!("http://{}/console#token={TOKEN}", operator.backend.address));
    browser.wait_for("document.querySelector('belljar-sessions .chip')");
    let mut read = |html: &str| {
        let parse = format!("import('/console/table.js').then(({{ parseTable }}) => parseTable({html}))");
        let shown = format!("{parse}.then((one) => one && [one.names, one.rows, one.headers])");
        browser.evaluate(&shown)
    };
    for (html, expected) in TABLES {
        let expected: Value = serde_json::from_str(expected).unwrap();
        assert_eq!(read(&json!(html).to_string()), expected, "{html}");
    }
    // Text that takes a scanner long if it looks at parts of it again and again, and tables beyond all bounds.
    for html in [
        "'<table>' + '<a'.repeat(2e5)",
        "'<table>' + '<a b=\"'.repeat(1e5)",
        "'<style>'.repeat(1e5) + '</table>'",
        "'<table><tr><td>' + '\\r'.repeat(3e5)",
        "'<table><tr><td>' + ' '.repeat(3e5)",
        "'<table><tr>' + '<td colspan=100 rowspan=100>'.repeat(2e4) + '<tr>'.repeat(2e4)",
        "'<table><tr>' + '<td>'.repeat(2e3) + '<tr><td>'.repeat(2e4)",
    ] {
        assert!(read(html).as_array().is_none_or(|table| table[1].as_array().unwrap().len() <= 1), "{html}");
    }
}

//! A Chromium without a screen, driven by the DevTools protocol over pipes.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

/// The time in which the page must do what a test waits for.
const TIMEOUT: Duration = Duration::from_secs(180);

/// A browser with one page at first. It is killed when dropped.
pub(crate) struct Browser {
    child: Child,
    requests: File,
    answers: BufReader<File>,
    next: u64,
    /// The session of the page that methods are about.
    page: String,
    /// Events that no call has consumed: of the pages and of their frames.
    pub(crate) events: VecDeque<Value>,
    _directory: TempDir,
}

/// A statement that notes which frames of a document have loaded from then on, and the expression for whether all have.
/// `DOCUMENT` is the document's expression.
const NOTE_LOADS: &str = "window.loaded = new WeakSet();
    DOCUMENT.addEventListener('load', (event) => loaded.add(event.target), true); 0";
const HAVE_LOADED: &str = "[...DOCUMENT.querySelectorAll('iframe')].every((frame) => loaded.has(frame))";
/// An expression for whether the page is shown as it will stay: all is loaded, and no transition runs. Animations
/// without end are part of the page.
const IS_SETTLED: &str = "document.readyState === 'complete'
    && [...document.images].every((image) => image.complete)
    && document.getAnimations().every((one) => one.playState !== 'running'
        || one.effect.getComputedTiming().endTime === Infinity)";

impl Browser {
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let pipe = |name: &str| {
            let path = directory.path().join(name);
            assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
            path
        };
        let (to, from) = (pipe("to"), pipe("from"));
        let program = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
        let program = program.iter().map(|name| Path::new("/usr/bin").join(name)).find(|path| path.exists()).unwrap();
        // The shell opens the descriptors at which Chromium expects its pipes.
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" \"$@\" 3<\"$BROWSER_TO\" 4>\"$BROWSER_FROM\""]).arg(program);
        command.args([
            "--headless=new",
            "--remote-debugging-pipe",
            "--no-sandbox",
            "--no-first-run",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-default-apps",
            "--disable-extensions",
            "--disable-sync",
            // Services of the browser's own look up names in spite of the other options.
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            "--no-proxy-server",
            "--hide-scrollbars",
            "--mute-audio",
            "--window-size=1360,860",
        ]);
        command.arg(format!("--user-data-dir={}", directory.path().join("profile").display()));
        command.env("BROWSER_TO", &to).env("BROWSER_FROM", &from).env("HOME", directory.path());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let requests = OpenOptions::new().write(true).open(&to).unwrap();
        let answers = BufReader::new(File::open(&from).unwrap());
        let (page, events) = (String::new(), VecDeque::new());
        let mut browser = Self { child, requests, answers, next: 0, page, events, _directory: directory };
        browser.open_page(false);
        browser
    }

    /// Opens a page in a window of its own, or as a tab in front of the others of the last window, and returns it.
    /// Methods are about it from then on.
    pub(crate) fn open_page(&mut self, is_window: bool) -> String {
        // The browser creates pages, and no page does.
        self.page.clear();
        let target = self.call("Target.createTarget", json!({ "url": "about:blank", "newWindow": is_window }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        self.page = self.call("Target.attachToTarget", attach)["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page", "Runtime", "Network", "Log"] {
            self.call(&format!("{domain}.enable"), json!({}));
        }
        let frames = json!({ "autoAttach": true, "waitForDebuggerOnStart": false, "flatten": true });
        self.call("Target.setAutoAttach", frames);
        self.page.clone()
    }

    /// Makes an open page the one that methods are about.
    pub(crate) fn use_page(&mut self, page: &str) {
        page.clone_into(&mut self.page);
    }

    /// Has the page save downloads in a directory, without asking.
    pub(crate) fn save_downloads(&mut self, directory: &Path) {
        self.call("Page.setDownloadBehavior", json!({ "behavior": "allow", "downloadPath": directory }));
    }

    /// Calls a method of the page, and returns its result.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        self.try_call(method, params).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// Calls a method of the page, and returns its result or the error of the browser.
    fn try_call(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        self.next += 1;
        let id = self.next;
        let mut request = json!({ "id": id, "method": method, "params": params });
        if !self.page.is_empty() {
            request["sessionId"] = self.page.clone().into();
        }
        self.requests.write_all(request.to_string().as_bytes()).unwrap();
        self.requests.write_all(b"\0").unwrap();
        loop {
            let mut message = Vec::new();
            let length = self.answers.read_until(0, &mut message).unwrap();
            assert!(length > 0, "the browser has ended during {method}");
            message.pop();
            let mut message: Value = serde_json::from_slice(&message).unwrap();
            if message["id"] == id {
                let error = message["error"].take();
                return if error.is_null() { Ok(message["result"].take()) } else { Err(error) };
            }
            if message["method"].is_string() {
                self.events.push_back(message);
            }
        }
    }

    /// Opens a page, and waits until its document is parsed.
    pub(crate) fn open(&mut self, url: &str) {
        self.call("Page.navigate", json!({ "url": url }));
        self.wait_for("document.readyState !== 'loading'");
    }

    /// Evaluates an expression in the page, and returns its value.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        self.try_evaluate(expression).unwrap_or_else(|error| panic!("{expression}: {error}"))
    }

    /// Evaluates an expression in the page, and returns its value, or the exception or the error of the browser.
    fn try_evaluate(&mut self, expression: &str) -> Result<Value, Value> {
        let params = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let mut result = self.try_call("Runtime.evaluate", params)?;
        let exception = result["exceptionDetails"].take();
        if exception.is_null() { Ok(result["result"]["value"].take()) } else { Err(exception) }
    }

    /// Waits until an expression is true in the page. Until then it may also fail: an element that it names does not
    /// exist yet, or the document is being replaced.
    pub(crate) fn wait_for(&mut self, expression: &str) {
        let begin = Instant::now();
        loop {
            let value = self.try_evaluate(&format!("Boolean({expression})"));
            if value == Ok(true.into()) {
                return;
            }
            if begin.elapsed() > TIMEOUT {
                let shown = self.evaluate("document.body.innerText");
                panic!("{expression} is not true: {value:?}\n{}", shown.as_str().unwrap_or_default());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Begins to note which frames of a document load. `document` is its expression.
    pub(crate) fn note_loads(&mut self, document: &str) {
        self.evaluate(&NOTE_LOADS.replace("DOCUMENT", document));
    }

    /// Waits until all frames of a document have loaded, whose loads were noted from the beginning.
    pub(crate) fn wait_for_frames(&mut self, document: &str) {
        self.wait_for(&HAVE_LOADED.replace("DOCUMENT", document));
    }

    /// Waits until the page is shown as it will stay.
    pub(crate) fn settle(&mut self) {
        self.wait_for(IS_SETTLED);
        // What changed before the first frame is shown by the second.
        let shown = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))";
        assert_eq!(self.evaluate(shown), true);
    }

    /// Presses a key, as `KeyboardEvent.key` names it.
    pub(crate) fn press(&mut self, key: &str, shift: bool) {
        let text = if key == "Enter" { "\r" } else { key };
        let text = if text.chars().count() == 1 { text } else { "" };
        for kind in ["keyDown", "keyUp"] {
            let modifiers = if shift { 8 } else { 0 };
            let mut params = json!({ "type": kind, "key": key, "modifiers": modifiers });
            if key == "Enter" {
                params["windowsVirtualKeyCode"] = 13.into();
            }
            if kind == "keyDown" {
                params["text"] = text.into();
            }
            self.call("Input.dispatchKeyEvent", params);
        }
    }

    /// Enters text into the element that has the focus.
    pub(crate) fn enter(&mut self, text: &str) {
        self.call("Input.insertText", json!({ "text": text }));
    }

    /// Sets the size of the window, and whether the colours are dark.
    pub(crate) fn set_media(&mut self, width: u32, height: u32, is_dark: bool) {
        let scale = if width < 600 { 2 } else { 1 };
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": scale, "mobile": width < 600 });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
        let scheme = if is_dark { "dark" } else { "light" };
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.call("Emulation.setEmulatedMedia", json!({ "features": [feature] }));
    }

    /// Returns a picture of the page as PNG in base64.
    pub(crate) fn picture(&mut self) -> String {
        self.call("Page.captureScreenshot", json!({ "format": "png" }))["data"].as_str().unwrap().to_owned()
    }

    /// Returns the addresses that the page and its frames have requested.
    pub(crate) fn requested(&self) -> Vec<String> {
        let sent = self.events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
        sent.map(|event| event["params"]["request"]["url"].as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Ends all processes of the browser. Fails if it has ended.
        let _ = self.requests.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(30) {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

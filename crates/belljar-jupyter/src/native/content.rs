//! What a kernel says while it runs a cell, read from its messages. What cannot be read, or is not known, is nothing.
//!
//! The types of `jupyter-protocol` are used where they read whatever a kernel may send. Its replies and bundles are read
//! here: theirs refuse a whole reply for a payload that they do not know, and turn forms into types and back.

use std::collections::BTreeMap;

use belljar_core::kernel::{Display, Stream};
use jupyter_protocol::{ClearOutput, ErrorOutput, InputRequest, Stdio, StreamContent};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::native::wire::message::Received;

/// Bytes of a traceback that are kept.
const MOST_TRACEBACK: usize = 1 << 20;
/// Payloads of a reply that are kept.
const MOST_PAYLOADS: usize = 100;

/// Something that a kernel said on iopub.
#[derive(Debug, PartialEq)]
pub(crate) enum Said {
    /// The cell wrote this.
    Wrote(Stream, String),
    /// It displayed this, under a name by which it can be replaced.
    Shown(Display),
    /// What was displayed under a name is to be replaced.
    Updated(Display),
    /// The value of its last line.
    Value(Display),
    /// It raised.
    Raised(Raised),
    /// What it gave so far is to vanish, at once or when there is something else.
    Cleared {
        /// When there is something else.
        wait: bool,
    },
    /// It begins.
    Busy,
    /// It is done.
    Idle,
}

/// An exception.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Raised {
    /// `ZeroDivisionError: division by zero`
    pub(crate) error: String,
    pub(crate) traceback: Vec<String>,
}

/// How a cell ended, as the shell answers.
#[derive(Debug, PartialEq)]
pub(crate) struct Reply {
    /// The cell's number.
    pub(crate) count: Option<u64>,
    pub(crate) raised: Option<Raised>,
    /// What the cell has left for a frontend: text for its pager, the next cell.
    pub(crate) payloads: Vec<Value>,
}

/// A question that a cell asks.
#[derive(Debug, PartialEq)]
pub(crate) struct Question {
    pub(crate) prompt: String,
    pub(crate) secret: bool,
}

impl Said {
    /// Reads a message of iopub.
    pub(crate) fn read(message: &Received) -> Option<Self> {
        match message.kind.as_str() {
            "stream" => {
                let StreamContent { name, text } = message.content()?;
                let stream = if matches!(name, Stdio::Stdout) { Stream::Stdout } else { Stream::Stderr };
                Some(Self::Wrote(stream, text))
            }
            "display_data" => shown(message).map(Self::Shown),
            "update_display_data" => shown(message).map(Self::Updated),
            "execute_result" => shown(message).map(Self::Value),
            "error" => {
                let ErrorOutput { ename, evalue, traceback } = message.content()?;
                Some(Self::Raised(raised(&ename, &evalue, traceback)))
            }
            "clear_output" => message.content().map(|ClearOutput { wait }| Self::Cleared { wait }),
            "status" => {
                #[derive(Deserialize)]
                struct Status {
                    execution_state: String,
                }
                match message.content::<Status>()?.execution_state.as_str() {
                    "busy" => Some(Self::Busy),
                    "idle" => Some(Self::Idle),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

fn shown(message: &Received) -> Option<Display> {
    #[derive(Deserialize)]
    struct Content {
        data: BTreeMap<String, Value>,
        #[serde(default)]
        metadata: Map<String, Value>,
        #[serde(default)]
        transient: Option<Transient>,
    }
    #[derive(Deserialize)]
    struct Transient {
        #[serde(default)]
        display_id: Option<String>,
    }
    let content: Content = message.content()?;
    let id = content.transient.and_then(|transient| transient.display_id);
    Some(Display { data: content.data, metadata: content.metadata, id })
}

impl Reply {
    /// Reads the answer to a cell.
    pub(crate) fn read(message: &Received) -> Option<Self> {
        #[derive(Deserialize)]
        struct Content {
            #[serde(default)]
            status: String,
            #[serde(default)]
            execution_count: Value,
            #[serde(default)]
            ename: String,
            #[serde(default)]
            evalue: String,
            #[serde(default)]
            traceback: Vec<String>,
            #[serde(default)]
            payload: Value,
        }
        if message.kind != "execute_reply" {
            return None;
        }
        let content: Content = message.content()?;
        let failed = content.status != "ok";
        let mut payloads = match content.payload {
            Value::Array(payloads) => payloads,
            _ => Vec::new(),
        };
        payloads.truncate(MOST_PAYLOADS);
        Some(Self {
            count: content.execution_count.as_u64(),
            payloads,
            raised: failed.then(|| raised(&content.ename, &content.evalue, content.traceback)),
        })
    }
}

/// What the shell answers to a question that is no cell.
///
/// # Errors
/// In words, when it says that it could not, or says nothing that can be read.
pub(crate) fn answer(message: &Received) -> Result<Value, String> {
    let content: Option<Map<String, Value>> = message.content();
    let content = content.ok_or("the kernel gave an answer that is none")?;
    let text = |name: &str| content.get(name).and_then(Value::as_str).unwrap_or_default();
    match text("status") {
        "ok" => Ok(Value::Object(content)),
        // Whether a cell is complete is told by the status itself.
        "complete" | "incomplete" | "invalid" | "unknown" if message.kind == "is_complete_reply" => {
            Ok(Value::Object(content))
        }
        "error" => Err(raised(text("ename"), text("evalue"), Vec::new()).error),
        _ => Err("the kernel gave an answer that is none".into()),
    }
}

impl Question {
    /// Reads a message of stdin.
    pub(crate) fn read(message: &Received) -> Option<Self> {
        if message.kind != "input_request" {
            return None;
        }
        let InputRequest { prompt, password } = message.content()?;
        Some(Self { prompt: prompt.chars().take(10_000).collect(), secret: password })
    }
}

fn raised(name: &str, text: &str, mut traceback: Vec<String>) -> Raised {
    let mut room = MOST_TRACEBACK;
    traceback.retain(|piece| {
        let fits = piece.len() <= room;
        room -= if fits { piece.len() } else { 0 };
        fits
    });
    let (name, text) = (name.chars().take(1000), text.chars().take(100_000).collect::<String>());
    let mut error: String = name.collect();
    if error.is_empty() {
        error.push_str("Error");
    }
    if !text.is_empty() {
        error.push_str(": ");
        error.push_str(&text);
    }
    Raised { error, traceback }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::native::wire::message::{Key, tests::signed};

    fn received(kind: &str, content: &str) -> Received {
        let key = Key::random();
        key.open(signed(&key, kind, "p", content.as_bytes())).unwrap()
    }

    fn received_as(kind: &str, content: &str) -> Result<Value, String> {
        answer(&received(kind, content))
    }

    #[test]
    fn what_a_kernel_says_is_read() {
        let said = |kind, content| Said::read(&received(kind, content));
        assert_eq!(said("stream", r#"{"name": "stderr", "text": "x"}"#), Some(Said::Wrote(Stream::Stderr, "x".into())));
        let shown = said(
            "display_data",
            r#"{"data": {"a/b": {"c": 1}}, "metadata": {"w": 2}, "transient": {"display_id": "d"}}"#,
        );
        let data = BTreeMap::from([("a/b".into(), json!({"c": 1}))]);
        let metadata = Map::from_iter([("w".into(), json!(2))]);
        assert_eq!(shown, Some(Said::Shown(Display { data, metadata, id: Some("d".into()) })));
        let raised = said("error", r#"{"ename": "E", "evalue": "", "traceback": ["t"]}"#);
        assert_eq!(raised, Some(Said::Raised(Raised { error: "E".into(), traceback: vec!["t".into()] })));
        assert_eq!(said("status", r#"{"execution_state": "idle"}"#), Some(Said::Idle));
        assert_eq!(said("clear_output", r#"{"wait": true}"#), Some(Said::Cleared { wait: true }));
    }

    #[test]
    fn what_is_unknown_or_of_another_form_is_nothing() {
        for (kind, content) in [
            ("comm_open", r#"{"comm_id": "x", "target_name": "y", "data": {}}"#),
            ("comm_msg", "{}"),
            ("iopub_welcome", "{}"),
            ("stream", r#"{"name": "stdin", "text": "x"}"#),
            ("stream", r#"{"name": "stdout", "text": 1}"#),
            ("display_data", r#"{"data": []}"#),
            ("display_data", r#"{"data": {"a": 1}, "transient": {"display_id": []}}"#),
            ("execute_result", "null"),
            ("status", r#"{"execution_state": 1}"#),
            ("error", r#"{"traceback": {}}"#),
        ] {
            assert_eq!(Said::read(&received(kind, content)), None, "{kind} {content}");
        }
        assert_eq!(Reply::read(&received("shutdown_reply", "{}")), None);
        assert_eq!(Question::read(&received("input_request", r#"{"prompt": 1}"#)), None);
    }

    #[test]
    fn an_answer_is_passed_on_if_it_is_one() {
        let found = received_as("complete_reply", r#"{"status": "ok", "matches": ["a"]}"#);
        assert_eq!(found.unwrap()["matches"], json!(["a"]));
        assert!(received_as("is_complete_reply", r#"{"status": "incomplete"}"#).is_ok());
        let failed = received_as("inspect_reply", r#"{"status": "error", "ename": "KeyError", "evalue": "'x'"}"#);
        assert_eq!(failed.unwrap_err(), "KeyError: 'x'");
        for content in ["[]", "1", "{}", "not json", r#"{"status": 1}"#, r#"{"status": "incomplete"}"#] {
            let refused = received_as("complete_reply", content).unwrap_err();
            assert_eq!(refused, "the kernel gave an answer that is none", "{content}");
        }
    }

    #[test]
    fn a_reply_says_how_the_cell_ended() {
        let read = |content| Reply::read(&received("execute_reply", content)).unwrap();
        let fine =
            read(r#"{"status": "ok", "execution_count": 3, "payload": [{"source": "ask_exit"}, {"source": "new"}]}"#);
        let payloads = vec![json!({"source": "ask_exit"}), json!({"source": "new"})];
        assert_eq!(fine, Reply { count: Some(3), raised: None, payloads });
        assert_eq!(read(r#"{"status": "ok", "payload": {"source": "page"}}"#).payloads, Vec::<Value>::new());
        let many = format!(r#"{{"status": "ok", "payload": [{}0]}}"#, "0,".repeat(10_000));
        assert_eq!(read(&many).payloads.len(), MOST_PAYLOADS);
        let wild = read(r#"{"status": "ok", "execution_count": 340282366920938463463374607431768211456}"#);
        assert_eq!((wild.count, wild.raised), (None, None));
        let aborted = read(r#"{"status": "aborted"}"#);
        assert_eq!(aborted.raised.unwrap().error, "Error");
        let long =
            format!(r#"{{"status": "error", "ename": "E", "traceback": ["a", "{}", "b"]}}"#, "x".repeat(2 << 20));
        assert_eq!(read(&long).raised.unwrap().traceback, ["a", "b"]);
    }
}

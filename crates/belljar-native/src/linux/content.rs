//! Parses the contents of a kernel's messages. Contents that are unknown or malformed are ignored.
//!
//! The types of `jupyter-protocol` are used where they accept all messages that a kernel may send. Replies and MIME
//! bundles are parsed here: those types refuse a whole reply because of an unknown payload, and convert MIME types into
//! an enumeration and back.

use std::collections::BTreeMap;

use belljar_core::Stream;
use belljar_core::kernel::{CellError, ShellError};
use belljar_core::mime::DisplayData;
use jupyter_protocol::{ClearOutput, ErrorOutput, Stdio, StreamContent};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::linux::zmtp::message::ReceivedMessage;

/// The size of a traceback at most, in bytes. Frames beyond it are dropped.
const MAX_TRACEBACK: usize = 1 << 20;
/// The number of payloads of a reply that are kept.
const MAX_PAYLOADS: usize = 100;

/// A message of the iopub channel.
#[derive(Debug, PartialEq)]
pub(crate) enum IopubMessage {
    /// `stream`: text that the cell wrote.
    Stream(Stream, String),
    /// `display_data`.
    Display(DisplayData),
    /// `update_display_data`: replaces the displays of the same `display_id`.
    UpdateDisplay(DisplayData),
    /// `execute_result`: the value of the cell's last line.
    ExecuteResult(DisplayData),
    /// `error`: the cell raised an exception.
    Error(CellError),
    /// `clear_output`: the output so far is removed.
    ClearOutput {
        /// Set to remove it with the next output only.
        wait: bool,
    },
    /// `status`: the kernel has started the request.
    Busy,
    /// `status`: the kernel has finished the request.
    Idle,
}

/// The content of an `execute_reply`.
#[derive(Debug, PartialEq)]
pub(crate) struct ExecuteReply {
    /// The number of the cell.
    pub(crate) execution_count: Option<u64>,
    /// The exception, if the status is not `ok`.
    pub(crate) error: Option<CellError>,
    /// The payloads for a frontend: text for its pager, the next cell.
    pub(crate) payloads: Vec<Value>,
}

/// The content of an `input_request`.
#[derive(Debug, PartialEq)]
pub(crate) struct InputRequest {
    pub(crate) prompt: String,
    pub(crate) secret: bool,
}

impl IopubMessage {
    /// Parses a message of iopub. Returns `None` for messages that are ignored.
    pub(crate) fn parse(message: &ReceivedMessage) -> Option<Self> {
        match message.kind.as_str() {
            "stream" => {
                let StreamContent { name, text } = message.content()?;
                let stream = if matches!(name, Stdio::Stdout) { Stream::Stdout } else { Stream::Stderr };
                Some(Self::Stream(stream, text))
            }
            "display_data" => display_data(message).map(Self::Display),
            "update_display_data" => display_data(message).map(Self::UpdateDisplay),
            "execute_result" => display_data(message).map(Self::ExecuteResult),
            "error" => {
                let ErrorOutput { ename, evalue, traceback } = message.content()?;
                Some(Self::Error(cell_error(&ename, &evalue, traceback)))
            }
            "clear_output" => message.content().map(|ClearOutput { wait }| Self::ClearOutput { wait }),
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

fn display_data(message: &ReceivedMessage) -> Option<DisplayData> {
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
    Some(DisplayData { data: content.data, metadata: content.metadata, display_id: id })
}

impl ExecuteReply {
    /// Parses the reply to a cell.
    pub(crate) fn parse(message: &ReceivedMessage) -> Option<Self> {
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
        payloads.truncate(MAX_PAYLOADS);
        Some(Self {
            execution_count: content.execution_count.as_u64(),
            payloads,
            error: failed.then(|| cell_error(&content.ename, &content.evalue, content.traceback)),
        })
    }
}

/// Returns the content of the shell's reply to a request that is not a cell.
///
/// # Errors
/// Returns an error if the shell raised an exception, or the reply is malformed.
pub(crate) fn shell_reply(message: &ReceivedMessage) -> Result<Value, ShellError> {
    let content: Option<Map<String, Value>> = message.content();
    let content = content.ok_or(ShellError::InvalidReply)?;
    let text = |name: &str| content.get(name).and_then(Value::as_str).unwrap_or_default();
    match text("status") {
        "ok" => Ok(Value::Object(content)),
        // The status itself is the answer to an `is_complete_request`.
        "complete" | "incomplete" | "invalid" | "unknown" if message.kind == "is_complete_reply" => {
            Ok(Value::Object(content))
        }
        "error" => Err(ShellError::Exception(cell_error(text("ename"), text("evalue"), Vec::new()))),
        _ => Err(ShellError::InvalidReply),
    }
}

impl InputRequest {
    /// Parses a message of stdin.
    pub(crate) fn parse(message: &ReceivedMessage) -> Option<Self> {
        if message.kind != "input_request" {
            return None;
        }
        let jupyter_protocol::InputRequest { prompt, password } = message.content()?;
        Some(Self { prompt: prompt.chars().take(10_000).collect(), secret: password })
    }
}

/// Makes an error of `ename`, `evalue` and `traceback`, each of a bounded size.
fn cell_error(name: &str, message: &str, mut traceback: Vec<String>) -> CellError {
    let mut left = MAX_TRACEBACK;
    traceback.retain(|frame| {
        let fits = frame.len() <= left;
        left -= if fits { frame.len() } else { 0 };
        fits
    });
    let name: String = name.chars().take(1000).collect();
    let name = if name.is_empty() { "Error".into() } else { name };
    CellError { name, message: message.chars().take(100_000).collect(), traceback }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::linux::zmtp::message::{SigningKey, tests::signed};

    fn received(kind: &str, content: &str) -> ReceivedMessage {
        let key = SigningKey::random();
        key.verify(signed(&key, kind, "p", content.as_bytes())).unwrap()
    }

    fn received_as(kind: &str, content: &str) -> Result<Value, ShellError> {
        shell_reply(&received(kind, content))
    }

    #[test]
    fn iopub_messages_are_parsed() {
        let parse = |kind, content| IopubMessage::parse(&received(kind, content));
        assert_eq!(
            parse("stream", r#"{"name": "stderr", "text": "x"}"#),
            Some(IopubMessage::Stream(Stream::Stderr, "x".into()))
        );
        let shown = parse(
            "display_data",
            r#"{"data": {"a/b": {"c": 1}}, "metadata": {"w": 2}, "transient": {"display_id": "d"}}"#,
        );
        let data = BTreeMap::from([("a/b".into(), json!({"c": 1}))]);
        let metadata = Map::from_iter([("w".into(), json!(2))]);
        assert_eq!(shown, Some(IopubMessage::Display(DisplayData { data, metadata, display_id: Some("d".into()) })));
        let raised = parse("error", r#"{"ename": "E", "evalue": "", "traceback": ["t"]}"#);
        assert_eq!(
            raised,
            Some(IopubMessage::Error(CellError {
                name: "E".into(),
                message: String::new(),
                traceback: vec!["t".into()]
            }))
        );
        assert_eq!(parse("status", r#"{"execution_state": "idle"}"#), Some(IopubMessage::Idle));
        assert_eq!(parse("clear_output", r#"{"wait": true}"#), Some(IopubMessage::ClearOutput { wait: true }));
    }

    #[test]
    fn unknown_and_malformed_messages_are_ignored() {
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
            assert_eq!(IopubMessage::parse(&received(kind, content)), None, "{kind} {content}");
        }
        assert_eq!(ExecuteReply::parse(&received("shutdown_reply", "{}")), None);
        assert_eq!(InputRequest::parse(&received("input_request", r#"{"prompt": 1}"#)), None);
    }

    #[test]
    fn shell_reply_is_returned_if_valid() {
        let found = received_as("complete_reply", r#"{"status": "ok", "matches": ["a"]}"#);
        assert_eq!(found.unwrap()["matches"], json!(["a"]));
        assert!(received_as("is_complete_reply", r#"{"status": "incomplete"}"#).is_ok());
        let failed = received_as("inspect_reply", r#"{"status": "error", "ename": "KeyError", "evalue": "'x'"}"#);
        assert_eq!(failed.unwrap_err().to_string(), "KeyError: 'x'");
        for content in ["[]", "1", "{}", "not json", r#"{"status": 1}"#, r#"{"status": "incomplete"}"#] {
            let refused = received_as("complete_reply", content).unwrap_err();
            assert_eq!(refused, ShellError::InvalidReply, "{content}");
        }
    }

    #[test]
    fn execute_reply_is_parsed() {
        let parse = |content| ExecuteReply::parse(&received("execute_reply", content)).unwrap();
        let fine =
            parse(r#"{"status": "ok", "execution_count": 3, "payload": [{"source": "ask_exit"}, {"source": "new"}]}"#);
        let payloads = vec![json!({"source": "ask_exit"}), json!({"source": "new"})];
        assert_eq!(fine, ExecuteReply { execution_count: Some(3), error: None, payloads });
        assert_eq!(parse(r#"{"status": "ok", "payload": {"source": "page"}}"#).payloads, Vec::<Value>::new());
        let many = format!(r#"{{"status": "ok", "payload": [{}0]}}"#, "0,".repeat(10_000));
        assert_eq!(parse(&many).payloads.len(), MAX_PAYLOADS);
        let wild = parse(r#"{"status": "ok", "execution_count": 340282366920938463463374607431768211456}"#);
        assert_eq!((wild.execution_count, wild.error), (None, None));
        let aborted = parse(r#"{"status": "aborted"}"#);
        assert_eq!(aborted.error.unwrap().name, "Error");
        let long =
            format!(r#"{{"status": "error", "ename": "E", "traceback": ["a", "{}", "b"]}}"#, "x".repeat(2 << 20));
        assert_eq!(parse(&long).error.unwrap().traceback, ["a", "b"]);
    }
}

//! What code in a session has of the host: somewhere to write to, somebody to show things to, and to ask for a line of input.

use std::sync::Arc;
use std::time::Duration;

use belljar_core::kernel::Stream;
use belljar_core::{Collector, bounded_json};
use belljar_emscripten::console::{self, OutputSink};
use belljar_python::{CallError, GaveUp, HostCall, Scene};
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

use belljar_core::kernel::{Audience, Bundle, Display, Showing};

/// How long a question may go unanswered.
const PATIENCE: Duration = Duration::from_secs(600);

/// Where a cell's standard streams lead.
pub(super) struct Written(pub(super) Collector);

impl OutputSink for Written {
    fn write(&mut self, stream: console::Stream, bytes: &[u8]) {
        let stream = match stream {
            console::Stream::Stdout => Stream::Stdout,
            console::Stream::Stderr => Stream::Stderr,
        };
        self.0.write(stream, bytes);
    }
}

/// Answers `show`: a cell's value, what it displays, and what becomes of that.
pub(super) struct Show(pub(super) Collector);

impl HostCall for Show {
    fn call(&self, request: &RawValue, _: &mut Scene<'_>) -> Result<Box<RawValue>, CallError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "lowercase", tag = "kind")]
        enum Asked {
            Display(Shown),
            Result(Shown),
            Update(Shown),
            Clear { wait: bool },
        }
        #[derive(Deserialize)]
        struct Shown {
            data: Bundle,
            metadata: Map<String, Value>,
            display_id: Option<String>,
        }
        impl From<Shown> for Display {
            fn from(shown: Shown) -> Self {
                Self { data: shown.data, metadata: shown.metadata, id: shown.display_id }
            }
        }
        let refused = |what: &str| CallError::Refused(what.to_owned());
        let asked: Asked =
            bounded_json::parse(request.get()).ok_or_else(|| refused("`show` takes forms by MIME type"))?;
        let showing = match asked {
            Asked::Display(shown) => Showing::Display(shown.into()),
            Asked::Result(shown) => Showing::Value(shown.into()),
            Asked::Update(shown) => Showing::Update(shown.into()),
            Asked::Clear { wait } => Showing::Clear { wait },
        };
        self.0.showing(showing).map_err(CallError::Refused)?;
        to_raw_value(&()).map_err(|error| CallError::Refused(error.to_string()))
    }
}

/// Answers `input`: asks whoever waits for the cell.
pub(super) struct Input(pub(super) Arc<dyn Audience>);

impl HostCall for Input {
    fn call(&self, request: &RawValue, scene: &mut Scene<'_>) -> Result<Box<RawValue>, CallError> {
        #[derive(Deserialize)]
        struct Asked {
            prompt: String,
            secret: bool,
        }
        let asked: Asked =
            serde_json::from_str(request.get()).map_err(|_| CallError::Refused("`input` takes a prompt".into()))?;
        let prompt: String = asked.prompt.chars().take(10_000).collect();
        let answer = self.0.ask(&prompt, asked.secret).map_err(CallError::Refused)?;
        match scene.wait(&answer, PATIENCE)? {
            Ok(Ok(line)) => to_raw_value(&line).map_err(|error| CallError::Refused(error.to_string())),
            Ok(Err(reason)) => Err(CallError::Refused(reason)),
            Err(GaveUp::Interrupted) => Err(CallError::Refused("interrupted while waiting for an answer".into())),
            Err(GaveUp::TimeUp) => Err(CallError::Refused("nobody answered in time".into())),
            Err(GaveUp::Abandoned) => Err(CallError::Refused("the client is gone".into())),
        }
    }
}

/// Answers calls between cells, when there is nobody.
pub(super) struct Nobody;

impl HostCall for Nobody {
    fn call(&self, _: &RawValue, _: &mut Scene<'_>) -> Result<Box<RawValue>, CallError> {
        Err(CallError::Refused("no cell is running".into()))
    }
}

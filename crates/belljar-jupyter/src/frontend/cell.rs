//! One cell, as its frontends follow it while it runs.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::mpsc::Receiver;

use belljar_core::kernel::{Answer, Audience, Display, Showing, Stream};
use belljar_core::progress::{NoProgress, Progress, Step, StepProgress};
use serde_json::{Value, json};

use super::iopub::Broadcast;
use super::message::Request;
use super::questions::Questions;

/// Whoever sent a cell, and all who watch the kernel.
pub(crate) struct Cell {
    pub(crate) request: Request,
    /// The number of its value.
    pub(crate) count: u64,
    /// Whether the frontend can be asked for input.
    pub(crate) allow_stdin: bool,
    pub(crate) iopub: Broadcast,
    pub(crate) questions: Questions,
    /// Its value as text, for the history.
    pub(crate) value: Mutex<Option<String>>,
}

impl Progress for Cell {
    fn start(&self, step: Step) -> Box<dyn StepProgress> {
        NoProgress.start(step)
    }
}

impl Audience for Cell {
    fn wrote(&self, stream: Stream, bytes: &[u8]) {
        self.iopub.wrote(&self.request.header, stream, bytes);
    }

    fn showed(&self, shown: &Showing) {
        let parent = &self.request.header;
        match shown {
            Showing::Display(display) => self.iopub.tell("display_data", parent, &content(display)),
            Showing::Update(display) => self.iopub.tell("update_display_data", parent, &content(display)),
            Showing::Value(display) => {
                if let Some(text) = display.data.get("text/plain").and_then(Value::as_str) {
                    *self.value.lock().unwrap_or_else(PoisonError::into_inner) = Some(text.to_owned());
                }
                let mut content = content(display);
                content["execution_count"] = self.count.into();
                self.iopub.tell("execute_result", parent, &content);
            }
            Showing::Clear { wait } => self.iopub.tell("clear_output", parent, &json!({ "wait": wait })),
        }
    }

    fn ask(&self, prompt: &str, secret: bool) -> Result<Receiver<Answer>, String> {
        if !self.allow_stdin {
            return Err("this frontend cannot be asked for input: set the value in the code instead".into());
        }
        Ok(self.questions.ask(&self.request, prompt, secret))
    }
}

/// The content of a message that shows something. `jupyter-protocol`'s own type is not used: it takes tables apart, and
/// refuses those that are not as it knows them.
fn content(display: &Display) -> Value {
    let transient = display.id.as_ref().map_or_else(|| json!({}), |id| json!({ "display_id": id }));
    json!({ "data": display.data, "metadata": display.metadata, "transient": transient })
}

//! The messages of one cell while it runs.

use std::sync::mpsc::Receiver;

use belljar_core::kernel::{CellObserver, InputError, InputReply};
use belljar_core::mime::{DisplayData, DisplayEvent, text_plain};
use belljar_core::progress::{ProgressStep, StepProgress};
use belljar_core::{NoProgress, Progress, Stream};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::iopub::IopubPublisher;
use crate::message::Request;
use crate::stdin::InputRequests;

/// Publishes the output of a cell to all frontends, and requests input from the frontend that sent it.
pub(crate) struct CellPublisher {
    pub(crate) request: Request,
    /// The execution count of the cell.
    pub(crate) count: u64,
    /// `true` if the frontend supports input requests.
    pub(crate) allow_stdin: bool,
    pub(crate) iopub: IopubPublisher,
    pub(crate) input_requests: InputRequests,
    /// The value of the cell as text, for the history.
    pub(crate) value: Mutex<Option<String>>,
}

impl Progress for CellPublisher {
    fn start(&self, step: ProgressStep) -> Box<dyn StepProgress> {
        NoProgress.start(step)
    }
}

impl CellObserver for CellPublisher {
    fn on_stream(&self, stream: Stream, bytes: &[u8]) {
        self.iopub.publish_stream(&self.request.header, stream, bytes);
    }

    fn on_display(&self, event: &DisplayEvent) {
        let parent = &self.request.header;
        match event {
            DisplayEvent::Display(display) => self.iopub.publish("display_data", parent, &content(display)),
            DisplayEvent::Update(display) => self.iopub.publish("update_display_data", parent, &content(display)),
            DisplayEvent::ExecuteResult(display) => {
                if let Some(text) = text_plain(&display.data) {
                    *self.value.lock() = Some(text.to_owned());
                }
                let mut content = content(display);
                content["execution_count"] = self.count.into();
                self.iopub.publish("execute_result", parent, &content);
            }
            DisplayEvent::Clear { wait } => self.iopub.publish("clear_output", parent, &json!({ "wait": wait })),
        }
    }

    fn request_input(&self, prompt: &str, secret: bool) -> Result<Receiver<InputReply>, InputError> {
        if !self.allow_stdin {
            return Err(InputError::Unsupported("this frontend does not support input requests"));
        }
        Ok(self.input_requests.request_input(&self.request, prompt, secret))
    }
}

/// Returns the content of a display message. The type of `jupyter-protocol` is not used: it parses tables, and rejects
/// those of an unknown form.
fn content(display: &DisplayData) -> Value {
    let transient = display.display_id.as_ref().map_or_else(|| json!({}), |id| json!({ "display_id": id }));
    json!({ "data": display.data, "metadata": display.metadata, "transient": transient })
}

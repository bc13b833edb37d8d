//! Input between two calls. In the modern era of the protocol, a server does not send requests during a call: a call
//! that needs input ends with a prompt and a state, and the client repeats the call with the answer and that state
//! (SEP-2322, "multi round-trip requests"). The cell is suspended in between. The number of suspended cells and their
//! waiting time are bounded; a cell whose client does not return in time is interrupted.
//!
//! The state is a random key, valid for one answer. It refers to an entry in this server, since a running cell cannot
//! be serialized.

use std::collections::HashMap;
use std::sync::{Arc, mpsc};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use belljar_core::kernel::{INPUT_TIMEOUT, InputError, InputReply};
use parking_lot::{Mutex, MutexGuard};
use rmcp::model::{
    ElicitRequest, ElicitResult, InputRequest, InputRequests, InputRequiredResult, InputResponses, JsonObject,
};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinError;
use tokio_util::task::AbortOnDropHandle;

use super::ToolAnswer;
use super::client_io::{self, CellClient};
use crate::arguments::ArgumentError;
use crate::handler::tool_error;
use crate::metrics::CallStatus;
use crate::notifier::ClientNotifier;

/// The maximum number of suspended cells, of all clients: each occupies a guest thread.
const MAX_SUSPENDED_CELLS: usize = 8;
/// The key of the only input request in a result.
const INPUT_KEY: &str = "input";

/// A prompt from a cell, and the channel for its reply.
pub(super) struct InputPrompt {
    pub(super) message: String,
    pub(super) reply: mpsc::Sender<InputReply>,
}

/// A running cell, with or without a call that waits for it. Dropping it interrupts the cell.
pub(super) struct RunningCell {
    /// The arguments of the first call; the client must repeat them.
    pub(super) arguments: Option<JsonObject>,
    pub(super) client: CellClient,
    pub(super) prompts: UnboundedReceiver<InputPrompt>,
    pub(super) task: AbortOnDropHandle<ToolAnswer>,
}

/// A cell that waits for its client to repeat the call.
struct SuspendedCell {
    running: RunningCell,
    prompt: InputPrompt,
}

/// The suspended cells of all clients, by state. Clones share them.
#[derive(Clone, Default)]
pub(super) struct PendingInputs(Arc<Mutex<HashMap<String, SuspendedCell>>>);

impl PendingInputs {
    /// Returns the result of a call: that of the cell, or its next prompt.
    pub(super) async fn answer(&self, mut running: RunningCell) -> ToolAnswer {
        loop {
            let prompt = tokio::select! {
                biased;
                result = &mut running.task => return result.unwrap_or_else(no_result),
                Some(prompt) = running.prompts.recv() => prompt,
            };
            match self.suspend(running, prompt) {
                Ok(prompted) => return input_required(prompted),
                Err(same) => running = *same,
            }
        }
    }

    /// Returns the result of a repeated call, which contains the answer to a prompt.
    ///
    /// # Errors
    /// Fails if no cell waits for it, or the arguments are not those of the first call.
    pub(super) async fn resume(
        &self,
        state: &str,
        arguments: Option<&JsonObject>,
        responses: Option<&InputResponses>,
        notifier: ClientNotifier,
    ) -> Result<ToolAnswer, ArgumentError> {
        let suspended = {
            let mut suspended = self.lock();
            let there = suspended.get(state).ok_or(ArgumentError::NoWaitingCell)?;
            if there.running.arguments.as_ref() != arguments {
                return Err(ArgumentError::OtherArguments);
            }
            suspended.remove(state)
        };
        let SuspendedCell { running, prompt } = suspended.ok_or(ArgumentError::NoWaitingCell)?;
        running.client.attach(notifier);
        let Some(response) = responses.and_then(|responses| responses.get(INPUT_KEY)) else {
            // The client may have restarted in between and lost the prompt.
            return match self.suspend(running, prompt) {
                Ok(prompted) => Ok(input_required(prompted)),
                Err(running) => Ok(self.answer(*running).await),
            };
        };
        let answer = match serde_json::from_value::<ElicitResult>(response.clone()) {
            Ok(result) => client_io::parse_elicit_result(result),
            Err(_) => Err(InputError::NoAnswer("failed to parse its answer".into())),
        };
        // Sending fails when the cell was stopped in the meantime; its result is returned then.
        let _ = prompt.reply.send(answer);
        Ok(self.answer(running).await)
    }

    /// Suspends the cell and returns its prompt. When too many cells are suspended, the prompt fails and the cell
    /// goes on.
    fn suspend(&self, running: RunningCell, prompt: InputPrompt) -> Result<InputRequiredResult, Box<RunningCell>> {
        let mut random = [0; 16];
        let mut suspended = self.lock();
        if suspended.len() >= MAX_SUSPENDED_CELLS || getrandom::fill(&mut random).is_err() {
            drop(suspended);
            let _ = prompt.reply.send(Err(InputError::TooManyWaiting(MAX_SUSPENDED_CELLS)));
            return Err(Box::new(running));
        }
        let state = URL_SAFE_NO_PAD.encode(random);
        running.client.detach();
        let elicitation = InputRequest::Elicitation(ElicitRequest::new(client_io::elicit_line(prompt.message.clone())));
        suspended.insert(state.clone(), SuspendedCell { running, prompt });
        drop(suspended);
        let (pending, late) = (Arc::downgrade(&self.0), state.clone());
        tokio::spawn(async move {
            tokio::time::sleep(INPUT_TIMEOUT).await;
            let late = pending.upgrade().and_then(|pending| Self(pending).lock().remove(&late));
            drop(late);
        });
        Ok(InputRequiredResult::new(Some(InputRequests::from([(INPUT_KEY.into(), elicitation)])), Some(state)))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, SuspendedCell>> {
        self.0.lock()
    }
}

/// Returns the result of a cell whose task panicked.
fn no_result(_: JoinError) -> ToolAnswer {
    let response = tool_error("internal error: the cell ended without a result").into();
    ToolAnswer { response, status: CallStatus::Failed }
}

fn input_required(prompted: InputRequiredResult) -> ToolAnswer {
    ToolAnswer { response: prompted.into(), status: CallStatus::InputRequired }
}

//! Input between two calls. In the modern era of the protocol, a server does not send requests during a call: a call
//! that needs input ends with a prompt and a state, and the client repeats the call with the answer and that state
//! (SEP-2322, "multi round-trip requests"). The code, a cell or that of `run_python_code`, is suspended in between. The
//! number of suspended pieces of code and their waiting time are bounded; code whose client does not return in time is
//! interrupted.
//!
//! The state is a random key, valid for one answer. It refers to an entry in this server. Cells of persistent sessions,
//! which can wait on the disk, use the IDs of their runs instead (`session_tools/runs.rs`).

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

use crate::arguments::ArgumentError;
use crate::elicitation::{elicit_line, parse_elicit_result};
use crate::handler::tool_error;
use crate::metrics::CallStatus;
use crate::notifier::ClientNotifier;
use crate::session_tools::ToolAnswer;

/// The maximum number of suspended pieces of code, of all clients: each occupies a guest thread.
pub(crate) const MAX_SUSPENDED: usize = 8;
/// The key of the only input request in a result.
const INPUT_KEY: &str = "input";

/// A prompt of code, and the channel for its reply.
pub(crate) struct InputPrompt {
    pub(crate) message: String,
    pub(crate) reply: mpsc::Sender<InputReply>,
}

/// The client of running code, which receives its notifications while a call waits for it.
pub(crate) trait CodeClient: Send + Sync {
    /// Makes a call the receiver of the notifications.
    fn attach(&self, notifier: ClientNotifier);

    /// Ends the call's events: no call waits for the code until `attach` is called.
    fn detach(&self);
}

/// Running code, with or without a call that waits for it. Dropping it interrupts the code.
pub(crate) struct RunningCode {
    /// The arguments of the first call; the client must repeat them.
    pub(crate) arguments: Option<JsonObject>,
    pub(crate) client: Arc<dyn CodeClient>,
    pub(crate) prompts: UnboundedReceiver<InputPrompt>,
    pub(crate) task: AbortOnDropHandle<ToolAnswer>,
}

/// Code that waits for its client to repeat the call.
struct SuspendedCode {
    running: RunningCode,
    prompt: InputPrompt,
}

/// The suspended code of all clients, by state. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct PendingInputs(Arc<Mutex<HashMap<String, SuspendedCode>>>);

impl PendingInputs {
    /// Returns the result of a call: that of the code, or its next prompt.
    pub(crate) async fn answer(&self, mut running: RunningCode) -> ToolAnswer {
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
    /// Fails if no code waits for it, or the arguments are not those of the first call.
    pub(crate) async fn resume(
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
        let SuspendedCode { running, prompt } = suspended.ok_or(ArgumentError::NoWaitingCell)?;
        running.client.attach(notifier);
        let Some(response) = response(responses) else {
            // The client may have restarted in between and lost the prompt.
            return match self.suspend(running, prompt) {
                Ok(prompted) => Ok(input_required(prompted)),
                Err(running) => Ok(self.answer(*running).await),
            };
        };
        let answer = parse_response(response);
        // Sending fails when the code was stopped in the meantime; its result is returned then.
        let _ = prompt.reply.send(answer);
        Ok(self.answer(running).await)
    }

    /// Suspends the code and returns its prompt. When too much code is suspended, the prompt fails and the code
    /// continues.
    fn suspend(&self, running: RunningCode, prompt: InputPrompt) -> Result<InputRequiredResult, Box<RunningCode>> {
        let mut random = [0; 16];
        let mut suspended = self.lock();
        if suspended.len() >= MAX_SUSPENDED || getrandom::fill(&mut random).is_err() {
            drop(suspended);
            let _ = prompt.reply.send(Err(InputError::TooManyWaiting(MAX_SUSPENDED)));
            return Err(Box::new(running));
        }
        let state = URL_SAFE_NO_PAD.encode(random);
        running.client.detach();
        let message = prompt.message.clone();
        suspended.insert(state.clone(), SuspendedCode { running, prompt });
        drop(suspended);
        let (pending, late) = (Arc::downgrade(&self.0), state.clone());
        tokio::spawn(async move {
            tokio::time::sleep(INPUT_TIMEOUT).await;
            let late = pending.upgrade().and_then(|pending| Self(pending).lock().remove(&late));
            drop(late);
        });
        Ok(prompt_result(message, state))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, SuspendedCode>> {
        self.0.lock()
    }
}

/// Returns a result that asks the client, which repeats the call with the answer and `state`.
pub(crate) fn prompt_result(message: String, state: String) -> InputRequiredResult {
    let elicitation = InputRequest::Elicitation(ElicitRequest::new(elicit_line(message)));
    InputRequiredResult::new(Some(InputRequests::from([(INPUT_KEY.into(), elicitation)])), Some(state))
}

/// Returns the response to the question of [`prompt_result`] in a repeated call.
pub(crate) fn response(responses: Option<&InputResponses>) -> Option<&serde_json::Value> {
    responses?.get(INPUT_KEY)
}

/// Returns the answer in a response.
pub(crate) fn parse_response(response: &serde_json::Value) -> InputReply {
    match serde_json::from_value::<ElicitResult>(response.clone()) {
        Ok(result) => parse_elicit_result(result),
        Err(_) => Err(InputError::NoAnswer("failed to parse its answer".into())),
    }
}

/// Returns the result of code whose task panicked.
fn no_result(_: JoinError) -> ToolAnswer {
    let response = tool_error("internal error: the code ended without a result").into();
    ToolAnswer { response, status: CallStatus::Failed }
}

pub(crate) fn input_required(prompted: InputRequiredResult) -> ToolAnswer {
    ToolAnswer { response: prompted.into(), status: CallStatus::InputRequired }
}

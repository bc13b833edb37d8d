//! Questions between two calls. In the modern era of the protocol a server does not ask while it answers: a call that needs
//! input ends with the question and a state, and the client calls again with the answer and that state (SEP-2322, "multi
//! round-trip requests"). The cell waits meanwhile. What waits, and for how long, is bounded; a cell for which nobody comes
//! back is interrupted.
//!
//! The state is a name that cannot be guessed and is good for one answer. What it stands for is kept here, since a cell
//! that runs cannot be put into a text.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use belljar_core::kernel::Answer;
use rmcp::model::{
    CallToolResponse, CallToolResult, ContentBlock, ElicitRequest, ElicitResult, InputRequest, InputRequests,
    InputRequiredResult, InputResponses, JsonObject,
};
use tokio::sync::mpsc::UnboundedReceiver;

use super::audience::{self, Ears};
use crate::listener::Listener;

/// How long a cell waits for its client to come back.
const PATIENCE: Duration = Duration::from_secs(600);
/// Cells that may wait so, of all clients: each has a guest thread.
const MOST_WAITING: usize = 8;
/// What the one question of a round is called.
const QUESTION: &str = "input";

/// What a cell asks, and who waits for the answer.
pub(super) struct Question {
    pub(super) message: String,
    pub(super) answer: mpsc::Sender<Answer>,
}

/// A cell that runs, whether or not a call waits for it. It is interrupted when this is dropped.
pub(super) struct Running {
    /// What it was called with: the client must call again with the same.
    pub(super) arguments: Option<JsonObject>,
    pub(super) ears: Ears,
    pub(super) questions: UnboundedReceiver<Question>,
    pub(super) task: Task,
}

/// A task that ends when this is dropped.
pub(super) struct Task(tokio::task::JoinHandle<CallToolResult>);

impl Task {
    pub(super) fn start(work: impl Future<Output = CallToolResult> + Send + 'static) -> Self {
        Self(tokio::spawn(work))
    }
}

impl Future for Task {
    type Output = CallToolResult;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<CallToolResult> {
        let failed = |_| CallToolResult::error(vec![ContentBlock::text("the cell failed by a fault of Belljar")]);
        Pin::new(&mut self.0).poll(context).map(|result| result.unwrap_or_else(failed))
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A cell that waits for its client to come back.
struct Waiting {
    running: Running,
    question: Question,
}

/// All cells that wait so, by their state. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Rounds(Arc<Mutex<HashMap<String, Waiting>>>);

impl Rounds {
    /// The call's answer: what the cell comes to, or what it asks.
    pub(super) async fn answer(&self, mut running: Running) -> CallToolResponse {
        loop {
            let question = tokio::select! {
                biased;
                result = &mut running.task => return result.into(),
                Some(question) = running.questions.recv() => question,
            };
            match self.ask(running, question) {
                Ok(asked) => return asked.into(),
                Err(same) => running = *same,
            }
        }
    }

    /// The call's answer, when the client comes back with an answer of its own. An `Err` says what is wrong with it.
    pub(super) async fn resume(
        &self,
        state: &str,
        arguments: Option<&JsonObject>,
        responses: Option<&InputResponses>,
        listener: Listener,
    ) -> Result<CallToolResponse, String> {
        let waiting = {
            let mut waiting = self.lock();
            let there = waiting.get(state).ok_or(
                "no cell waits for this answer: it was given already, or the cell has ended. Call again without it",
            )?;
            if there.running.arguments.as_ref() != arguments {
                return Err("the call is another one than that which asked: repeat its arguments as they were".into());
            }
            waiting.remove(state)
        };
        let Waiting { running, question } = waiting.ok_or("no cell waits for this answer")?;
        running.ears.hear(listener);
        let Some(response) = responses.and_then(|responses| responses.get(QUESTION)) else {
            // It came back without an answer: perhaps it has been started again in between.
            return match self.ask(running, question) {
                Ok(asked) => Ok(asked.into()),
                Err(running) => Ok(self.answer(*running).await),
            };
        };
        let answer = match serde_json::from_value::<ElicitResult>(response.clone()) {
            Ok(result) => audience::line_of(result),
            Err(_) => Err("the client's answer cannot be read".into()),
        };
        // The cell may have been stopped meanwhile; what it came to is told then.
        let _ = question.answer.send(answer);
        Ok(self.answer(running).await)
    }

    /// Puts a question to the client and lets the cell wait. Where that cannot be, the cell hears so and goes on.
    fn ask(&self, running: Running, question: Question) -> Result<InputRequiredResult, Box<Running>> {
        let mut random = [0; 16];
        let mut waiting = self.lock();
        if waiting.len() >= MOST_WAITING || getrandom::fill(&mut random).is_err() {
            drop(waiting);
            let reason = format!("{MOST_WAITING} cells wait for answers already: set the value in the code instead");
            let _ = question.answer.send(Err(reason));
            return Err(Box::new(running));
        }
        let state = URL_SAFE_NO_PAD.encode(random);
        running.ears.pause();
        let elicitation = InputRequest::Elicitation(ElicitRequest::new(audience::form(question.message.clone())));
        waiting.insert(state.clone(), Waiting { running, question });
        drop(waiting);
        let (rounds, late) = (Arc::downgrade(&self.0), state.clone());
        tokio::spawn(async move {
            tokio::time::sleep(PATIENCE).await;
            let late = rounds.upgrade().and_then(|rounds| Self(rounds).lock().remove(&late));
            drop(late);
        });
        Ok(InputRequiredResult::new(Some(InputRequests::from([(QUESTION.into(), elicitation)])), Some(state)))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

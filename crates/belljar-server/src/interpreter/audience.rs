//! Whoever waits for a cell: a client that hears what is written, and that can be asked for input where it lets itself be
//! asked (elicitation): at once, or in the protocol's modern era between two calls (`rounds`).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use belljar_core::progress::{Progress, Step, StepProgress};
use belljar_sessions::{Answer, Audience, Stream};
use rmcp::model::{
    ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema, PrimitiveSchemaDefinition, StringSchema,
};
use rmcp::service::RequestContext;
use rmcp::{Peer, RoleServer};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::is_modern;
use super::rounds::Question;
use crate::listener::{Listener, Output};

/// The name of the one field of a question.
const FIELD: &str = "value";

/// One cell's client. Clones are the same.
#[derive(Clone)]
pub(super) struct Ears {
    shared: Arc<Shared>,
}

struct Shared {
    /// The call that waits for the cell.
    hearing: Mutex<Hearing>,
    /// Who can be asked; `Err` says why nobody can.
    asked: Result<Asked, &'static str>,
}

#[derive(Clone)]
struct Hearing {
    listener: Listener,
    output: Output,
}

/// Who can be asked.
#[derive(Clone)]
enum Asked {
    /// The client, while it waits for an answer.
    Peer(Peer<RoleServer>, tokio::runtime::Handle),
    /// The client, by ending its call: whoever answers the call gets the question.
    Between(UnboundedSender<Question>),
}

impl Hearing {
    fn new(listener: Listener) -> Self {
        Self { output: Output::heard(&listener), listener }
    }

    /// Nothing more comes: what was written of a last line is told.
    fn end(&self) {
        self.output.take();
        self.listener.end();
    }
}

impl Ears {
    /// The client of a call, and the questions that end it, if it is one that is asked so.
    pub(super) fn new(
        listener: Listener,
        context: &RequestContext<RoleServer>,
    ) -> (Self, Option<UnboundedReceiver<Question>>) {
        let elicitation = context.client_capabilities().and_then(|capabilities| capabilities.elicitation);
        let mut questions = None;
        let asked = match elicitation {
            Some(modes) if modes.form.is_some() || modes.url.is_none() => Ok(if is_modern(context) {
                let (send, receive) = unbounded_channel();
                questions = Some(receive);
                Asked::Between(send)
            } else {
                Asked::Peer(context.peer.clone(), tokio::runtime::Handle::current())
            }),
            _ => Err("input() has nobody to ask: the client offers no elicitation. Set the value in the code instead"),
        };
        let shared = Shared { hearing: Mutex::new(Hearing::new(listener)), asked };
        (Self { shared: Arc::new(shared) }, questions)
    }

    pub(super) fn audience(&self) -> Arc<dyn Audience> {
        self.shared.clone()
    }

    /// The cell has ended, or nobody waits for it until [`Ears::hear`] is called.
    pub(super) fn pause(&self) {
        self.shared.hearing().end();
    }

    /// Another call waits for the cell.
    pub(super) fn hear(&self, listener: Listener) {
        *self.shared.hearing() = Hearing::new(listener);
    }
}

impl Shared {
    fn hearing(&self) -> MutexGuard<'_, Hearing> {
        self.hearing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress for Shared {
    fn start(&self, step: Step) -> Box<dyn StepProgress> {
        let listener = self.hearing().listener.clone();
        listener.start(step)
    }
}

impl Audience for Shared {
    fn wrote(&self, stream: Stream, bytes: &[u8]) {
        // A client that reads slowly makes the cell wait, and nobody else.
        let output = self.hearing().output.clone();
        output.wrote(stream, bytes);
    }

    fn ask(&self, prompt: &str, secret: bool) -> Result<mpsc::Receiver<Answer>, String> {
        let asked = self.asked.clone()?;
        if secret {
            // The protocol forbids to elicit what is secret.
            return Err("getpass() asks for a secret, which a client must not be asked for".into());
        }
        let (send, answer) = mpsc::channel();
        let message =
            if prompt.trim().is_empty() { "The code asks for a line of input".into() } else { prompt.to_owned() };
        match asked {
            Asked::Peer(peer, runtime) => drop(runtime.spawn(async move {
                // The cell may have been stopped meanwhile.
                let _ = send.send(elicit(&peer, message).await);
            })),
            Asked::Between(questions) => {
                let question = Question { message, answer: send };
                questions.send(question).map_err(|_| "the client is gone")?;
            }
        }
        Ok(answer)
    }
}

async fn elicit(peer: &Peer<RoleServer>, message: String) -> Answer {
    let result = peer.create_elicitation(form(message)).await;
    line_of(result.map_err(|error| format!("the client did not answer: {error}"))?)
}

/// A question for one line.
pub(super) fn form(message: String) -> ElicitRequestParams {
    let field = PrimitiveSchemaDefinition::String(StringSchema::new());
    let mut requested_schema = ElicitationSchema::new([(FIELD.to_owned(), field)].into());
    requested_schema.required = Some(vec![FIELD.into()]);
    ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema }
}

/// The line that a client gave.
pub(super) fn line_of(result: ElicitResult) -> Answer {
    match result.action {
        ElicitationAction::Accept => {
            let content = result.content.unwrap_or_default();
            match content.get(FIELD) {
                Some(serde_json::Value::String(line)) => Ok(line.clone()),
                Some(other) if !other.is_null() => Ok(other.to_string()),
                _ => Err("the client accepted the question and gave no answer".into()),
            }
        }
        _ => Err("the question was declined".into()),
    }
}

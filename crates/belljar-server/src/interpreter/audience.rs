//! Whoever waits for a cell: a client that hears what is written, and that can be asked for input where it lets itself be
//! asked (elicitation).

use std::sync::{Arc, mpsc};

use belljar_core::progress::{Progress, Step, StepProgress};
use belljar_emscripten::console::{self, OutputSink};
use belljar_sessions::{Answer, Audience, Stream};
use rmcp::model::{
    ElicitRequestParams, ElicitationAction, ElicitationSchema, PrimitiveSchemaDefinition, ProtocolVersion, StringSchema,
};
use rmcp::service::RequestContext;
use rmcp::{Peer, RoleServer};

use crate::listener::{Listener, Output};

/// The name of the one field of a question.
const FIELD: &str = "value";

/// One call's client.
pub(super) struct Ears {
    shared: Arc<Shared>,
}

struct Shared {
    listener: Listener,
    output: Output,
    /// Who can be asked; `Err` says why nobody can.
    asked: Result<(Peer<RoleServer>, tokio::runtime::Handle), &'static str>,
}

impl Ears {
    pub(super) fn new(listener: Listener, context: &RequestContext<RoleServer>) -> Self {
        let modern = context
            .protocol_version()
            .is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str());
        let elicitation = context.client_capabilities().and_then(|capabilities| capabilities.elicitation);
        let asked = match elicitation {
            _ if modern => {
                Err("input() cannot ask anybody over this version of the protocol: set the value in the code instead")
            }
            Some(modes) if modes.form.is_some() || modes.url.is_none() => {
                Ok((context.peer.clone(), tokio::runtime::Handle::current()))
            }
            _ => Err("input() has nobody to ask: the client offers no elicitation. Set the value in the code instead"),
        };
        let output = Output::heard(&listener);
        Self { shared: Arc::new(Shared { listener, output, asked }) }
    }

    pub(super) fn audience(&self) -> Arc<dyn Audience> {
        self.shared.clone()
    }

    /// The cell has ended: what was written of a last line is told.
    pub(super) async fn finish(&self) {
        self.shared.output.take();
        self.shared.listener.end();
    }
}

impl Progress for Shared {
    fn start(&self, step: Step) -> Box<dyn StepProgress> {
        self.listener.start(step)
    }
}

impl Audience for Shared {
    fn wrote(&self, stream: Stream, bytes: &[u8]) {
        let stream = match stream {
            Stream::Stdout => console::Stream::Stdout,
            Stream::Stderr => console::Stream::Stderr,
        };
        self.output.clone().write(stream, bytes);
    }

    fn ask(&self, prompt: &str, secret: bool) -> Result<mpsc::Receiver<Answer>, String> {
        let (peer, runtime) = self.asked.clone()?;
        if secret {
            // The protocol forbids to elicit what is secret.
            return Err("getpass() asks for a secret, which a client must not be asked for".into());
        }
        let (send, answer) = mpsc::channel();
        let message =
            if prompt.trim().is_empty() { "The code asks for a line of input".into() } else { prompt.to_owned() };
        runtime.spawn(async move {
            // The cell may have been stopped meanwhile.
            let _ = send.send(elicit(&peer, message).await);
        });
        Ok(answer)
    }
}

async fn elicit(peer: &Peer<RoleServer>, message: String) -> Answer {
    let field = PrimitiveSchemaDefinition::String(StringSchema::new());
    let mut requested_schema = ElicitationSchema::new([(FIELD.to_owned(), field)].into());
    requested_schema.required = Some(vec![FIELD.into()]);
    let params = ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema };
    let result =
        peer.create_elicitation(params).await.map_err(|error| format!("the client did not answer: {error}"))?;
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

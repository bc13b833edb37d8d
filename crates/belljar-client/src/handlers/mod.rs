//! What a server may ask of the program, or tell it: sampling, elicitation, roots, logs, progress.

pub(crate) mod elicitation;
pub(crate) mod notifications;
pub(crate) mod respond;
pub(crate) mod sampling;

use std::sync::Arc;

use rmcp::model::ServerNotification;

pub use elicitation::{Elicitation, ElicitationHandler, ElicitationResponse};
pub use notifications::{LogLevel, LogMessage, Progress};
pub use sampling::{
    Model, ModelError, ModelPreferences, SamplingContent, SamplingMessage, SamplingRequest, SamplingResponse,
    SamplingRole, SamplingTool, StopReason, ToolChoice,
};

/// A directory that a server is told it works on.
///
/// ```
/// use belljar_client::{McpServerStdio, Root};
///
/// let server = McpServerStdio::new("server").roots([Root::new("file:///home/me/project").named("project")]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// Where it is: a `file://` URI.
    pub uri: String,
    /// What people call it.
    pub name: Option<String>,
}

impl Root {
    /// The directory of this URI.
    pub fn new(uri: impl Into<String>) -> Self {
        Self { uri: uri.into(), name: None }
    }

    /// Says what people call it.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }
}

/// Gets each log message of a server, in order. It runs on the connection's own task: it must not block.
pub type LogHandler = Arc<dyn Fn(LogMessage) + Send + Sync>;
/// Gets each step of a call's progress, in order. It runs on the connection's own task: it must not block.
pub type ProgressHandler = Arc<dyn Fn(Progress) + Send + Sync>;
/// Gets every notification as the protocol has it. It runs on the connection's own task: it must not block.
pub type MessageHandler = Arc<dyn Fn(&ServerNotification) + Send + Sync>;

/// The handlers that a server is configured with.
#[derive(Clone, Default)]
pub(crate) struct Handlers {
    pub(crate) model: Option<Arc<dyn Model>>,
    pub(crate) elicitation: Option<Arc<dyn ElicitationHandler>>,
    pub(crate) roots: Option<Vec<Root>>,
    pub(crate) log: Option<LogHandler>,
    pub(crate) progress: Option<ProgressHandler>,
    pub(crate) message: Option<MessageHandler>,
}

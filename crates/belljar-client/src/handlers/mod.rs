//! What a server may ask of the program, or tell it: sampling, elicitation, roots, logs, progress.

pub(crate) mod elicitation;
pub(crate) mod notifications;
pub(crate) mod respond;
pub(crate) mod sampling;

use std::sync::Arc;

use async_trait::async_trait;
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
    ///
    /// ```
    /// let root = belljar_client::Root::new("file:///home/me/project");
    /// assert_eq!(root.name, None);
    /// ```
    pub fn new(uri: impl Into<String>) -> Self {
        Self { uri: uri.into(), name: None }
    }

    /// Says what people call it.
    ///
    /// ```
    /// let root = belljar_client::Root::new("file:///home/me/project").named("project");
    /// assert_eq!(root.name.as_deref(), Some("project"));
    /// ```
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }
}

/// Says which directories a server works on, whenever it asks.
///
/// Closures do, too:
///
/// ```
/// use belljar_client::{McpServerStdio, Root};
///
/// let server = McpServerStdio::new("server").roots_handler(async || {
///     let here = std::env::current_dir().map_err(|error| error.to_string())?;
///     Ok(vec![Root::new(format!("file://{}", here.display()))])
/// });
/// ```
#[async_trait]
pub trait RootsHandler: Send + Sync + 'static {
    /// The directories.
    ///
    /// # Errors
    ///
    /// A message for the server: it is not known at present.
    async fn roots(&self) -> Result<Vec<Root>, String>;
}

#[async_trait]
impl<F, Answer> RootsHandler for F
where
    F: Fn() -> Answer + Send + Sync + 'static,
    Answer: Future<Output = Result<Vec<Root>, String>> + Send,
{
    async fn roots(&self) -> Result<Vec<Root>, String> {
        self().await
    }
}

/// Gets each log message of a server, in order. It runs on the connection's own task: it must not block.
///
/// ```
/// # use std::sync::Arc;
/// let handler: belljar_client::LogHandler = Arc::new(|message| eprintln!("{}", message.text()));
/// ```
pub type LogHandler = Arc<dyn Fn(LogMessage) + Send + Sync>;
/// Gets each step of a call's progress, in order. It runs on the connection's own task: it must not block.
///
/// ```
/// # use std::sync::Arc;
/// let handler: belljar_client::ProgressHandler = Arc::new(|step| eprintln!("{:?}", step.message));
/// ```
pub type ProgressHandler = Arc<dyn Fn(Progress) + Send + Sync>;
/// Gets every notification as the protocol has it. It runs on the connection's own task: it must not block.
///
/// ```
/// # use std::sync::Arc;
/// let handler: belljar_client::MessageHandler = Arc::new(|notification| eprintln!("{notification:?}"));
/// ```
pub type MessageHandler = Arc<dyn Fn(&ServerNotification) + Send + Sync>;

/// The handlers that a server is configured with.
#[derive(Clone, Default)]
pub(crate) struct Handlers {
    pub(crate) model: Option<Arc<dyn Model>>,
    pub(crate) elicitation: Option<Arc<dyn ElicitationHandler>>,
    pub(crate) roots: Option<Arc<dyn RootsHandler>>,
    pub(crate) log: Option<LogHandler>,
    pub(crate) progress: Option<ProgressHandler>,
    pub(crate) message: Option<MessageHandler>,
    pub(crate) shows_apps: bool,
}

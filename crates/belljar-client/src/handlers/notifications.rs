//! Where a server's notifications go: log and progress handlers, caches, subscribers.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::model::{
    GetMeta, JsonRpcMessage, JsonRpcNotification, LoggingLevel, NumberOrString, ProgressNotificationParam,
    ProgressToken, ServerNotification,
};
use serde_json::Value;
use tokio::sync::broadcast;
use tokio::time::Instant;

use super::{LogHandler, MessageHandler, ProgressHandler};
use crate::transport::Incoming;

/// How bad a log message is, as in syslog; the later the worse.
///
/// ```
/// use belljar_client::{LogLevel, McpServerStdio};
///
/// assert!(LogLevel::Error > LogLevel::Info);
/// let server = McpServerStdio::new("server").log_level(LogLevel::Warning);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names are syslog's")]
pub enum LogLevel {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl LogLevel {
    /// The protocol's word for it.
    ///
    /// ```
    /// assert_eq!(belljar_client::LogLevel::Warning.name(), "warning");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
            Self::Alert => "alert",
            Self::Emergency => "emergency",
        }
    }
}

impl From<LoggingLevel> for LogLevel {
    fn from(level: LoggingLevel) -> Self {
        match level {
            LoggingLevel::Debug => Self::Debug,
            LoggingLevel::Info => Self::Info,
            LoggingLevel::Notice => Self::Notice,
            LoggingLevel::Warning => Self::Warning,
            LoggingLevel::Error => Self::Error,
            LoggingLevel::Critical => Self::Critical,
            LoggingLevel::Alert => Self::Alert,
            LoggingLevel::Emergency => Self::Emergency,
        }
    }
}

impl From<LogLevel> for LoggingLevel {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Debug => Self::Debug,
            LogLevel::Info => Self::Info,
            LogLevel::Notice => Self::Notice,
            LogLevel::Warning => Self::Warning,
            LogLevel::Error => Self::Error,
            LogLevel::Critical => Self::Critical,
            LogLevel::Alert => Self::Alert,
            LogLevel::Emergency => Self::Emergency,
        }
    }
}

/// A line of a server's log.
///
/// ```
/// # use belljar_client::{LogLevel, McpServerStdio};
/// let server = McpServerStdio::new("server").log_handler(|message| {
///     if message.level >= LogLevel::Warning {
///         eprintln!("{}: {}", message.logger.as_deref().unwrap_or("server"), message.text());
///     }
/// });
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct LogMessage {
    /// How bad it is.
    pub level: LogLevel,
    /// Which part of the server speaks, if it says.
    pub logger: Option<String>,
    /// What it says: as a rule a string, or an object with fields.
    pub data: Value,
}

impl LogMessage {
    /// What it says, as one text.
    ///
    /// ```
    /// # use belljar_client::LogHandler;
    /// let handler: LogHandler = std::sync::Arc::new(|message| eprintln!("{:?}: {}", message.level, message.text()));
    /// ```
    pub fn text(&self) -> String {
        match &self.data {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }
}

/// A step of a call's progress.
///
/// ```
/// # use belljar_client::CallOptions;
/// let options = CallOptions::new().progress_handler(|step| match step.total {
///     Some(total) => eprintln!("{} of {total}", step.progress),
///     None => eprintln!("{} so far", step.progress),
/// });
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Progress {
    /// How far it is; grows from step to step.
    pub progress: f64,
    /// How far it goes, if that is known.
    pub total: Option<f64>,
    /// What is being done.
    pub message: Option<String>,
}

impl Progress {
    /// A step, for handlers' own tests.
    ///
    /// ```
    /// let step = belljar_client::Progress::new(1.0, Some(4.0), Some("fetching".into()));
    /// assert_eq!(step.fraction(), Some(0.25));
    /// ```
    pub fn new(progress: f64, total: Option<f64>, message: Option<String>) -> Self {
        Self { progress, total, message }
    }

    /// How much is done, between 0 and 1, if the total is known.
    ///
    /// ```
    /// assert_eq!(belljar_client::Progress::new(1.0, None, None).fraction(), None);
    /// ```
    pub fn fraction(&self) -> Option<f64> {
        self.total.filter(|total| *total > 0.0).map(|total| (self.progress / total).clamp(0.0, 1.0))
    }
}

/// What about a server has changed, counted up with each notice.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) tools: AtomicU64,
    pub(crate) resources: AtomicU64,
    pub(crate) prompts: AtomicU64,
}

/// Sends notifications where they belong.
pub(crate) struct Router {
    log: Option<LogHandler>,
    progress: Option<ProgressHandler>,
    message: Option<MessageHandler>,
    pub(crate) changes: Arc<Changes>,
    /// URIs of resources that changed.
    pub(crate) updates: broadcast::Sender<String>,
    calls: Mutex<Calls>,
    /// When something came that belongs to no call alone.
    heard: Mutex<Instant>,
}

/// Calls that are under way.
#[derive(Default)]
struct Calls {
    watched: HashMap<Token, Watch>,
    /// Steps that came before their call could be entered here: `rmcp` sends a request before it tells its token.
    early: VecDeque<(Token, Progress)>,
}

/// Early steps that are kept; those of calls that ended are among them.
const EARLY_STEPS: usize = 256;

/// A progress token, in the shape in which a server echoes it: some make a string of a number.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Token(String);

impl From<&ProgressToken> for Token {
    fn from(token: &ProgressToken) -> Self {
        Self(match &token.0 {
            NumberOrString::Number(number) => number.to_string(),
            NumberOrString::String(text) => text.to_string(),
        })
    }
}

struct Watch {
    handler: Option<ProgressHandler>,
    heard: Instant,
}

impl Router {
    pub(crate) fn new(handlers: &super::Handlers, changes: Arc<Changes>, updates: broadcast::Sender<String>) -> Self {
        Self {
            log: handlers.log.clone(),
            progress: handlers.progress.clone(),
            message: handlers.message.clone(),
            changes,
            updates,
            calls: Mutex::default(),
            heard: Mutex::new(Instant::now()),
        }
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn touch(&self) {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Notes that the server is alive: it asked something, or said something of its own accord.
    pub(crate) fn heard(&self, message: &Incoming) {
        if matches!(message, JsonRpcMessage::Request(_)) {
            self.touch();
        }
    }

    /// Takes a notification, or hands it back if it is `rmcp`'s to see.
    pub(crate) fn route(
        &self,
        notification: JsonRpcNotification<ServerNotification>,
    ) -> Option<JsonRpcNotification<ServerNotification>> {
        if let Some(handler) = &self.message {
            handler(&notification.notification);
        }
        // Those of a subscription are counted by `rmcp`, which ends one whose notifications are out of order.
        let subscribed = notification.notification.get_meta().subscription_id().is_some();
        match notification.notification {
            ServerNotification::ProgressNotification(step) => {
                self.step(step.params);
                None
            }
            ServerNotification::LoggingMessageNotification(message) => {
                self.touch();
                if let Some(handler) = &self.log {
                    let params = message.params;
                    handler(LogMessage { level: params.level.into(), logger: params.logger, data: params.data });
                }
                None
            }
            ref kind => {
                match kind {
                    ServerNotification::ToolListChangedNotification(_) => count(&self.changes.tools),
                    ServerNotification::ResourceListChangedNotification(_) => count(&self.changes.resources),
                    ServerNotification::PromptListChangedNotification(_) => count(&self.changes.prompts),
                    ServerNotification::ResourceUpdatedNotification(update) => {
                        // An error says that nobody listens.
                        let _ = self.updates.send(update.params.uri.clone());
                    }
                    _ => return Some(notification),
                }
                subscribed.then_some(notification)
            }
        }
    }

    fn step(&self, step: ProgressNotificationParam) {
        let token = Token::from(&step.progress_token);
        let progress = Progress { progress: step.progress, total: step.total, message: step.message };
        let handler = {
            let mut calls = self.calls();
            match calls.watched.get_mut(&token) {
                Some(watch) => {
                    watch.heard = Instant::now();
                    watch.handler.clone().or_else(|| self.progress.clone())
                }
                None => {
                    if calls.early.len() == EARLY_STEPS {
                        calls.early.pop_front();
                    }
                    calls.early.push_back((token, progress));
                    return;
                }
            }
        };
        if let Some(handler) = handler {
            handler(progress);
        }
    }

    /// Watches a call until the guard is dropped.
    pub(crate) fn watch(self: &Arc<Self>, token: &ProgressToken, handler: Option<ProgressHandler>) -> CallWatch {
        let token = Token::from(token);
        let early: Vec<Progress> = {
            let mut calls = self.calls();
            calls.watched.insert(token.clone(), Watch { handler: handler.clone(), heard: Instant::now() });
            let (mine, others) = std::mem::take(&mut calls.early).into_iter().partition(|(other, _)| *other == token);
            calls.early = others;
            let mine: VecDeque<(Token, Progress)> = mine;
            mine.into_iter().map(|(_, step)| step).collect()
        };
        if let Some(handler) = handler.or_else(|| self.progress.clone()) {
            early.into_iter().for_each(|step| handler(step));
        }
        CallWatch { router: self.clone(), token }
    }
}

fn count(changes: &AtomicU64) {
    changes.fetch_add(1, Ordering::Release);
}

/// A call that is being watched.
pub(crate) struct CallWatch {
    router: Arc<Router>,
    token: Token,
}

impl CallWatch {
    /// When the server last showed that it is at work, on this call or in a way that may concern it.
    pub(crate) fn last_heard(&self) -> Instant {
        let on_this = self.router.calls().watched.get(&self.token).map(|watch| watch.heard);
        let at_all = *self.router.heard.lock().unwrap_or_else(PoisonError::into_inner);
        on_this.map_or(at_all, |heard| heard.max(at_all))
    }

    /// Hands a step of the call on to its handler, one that the transport did not bring.
    pub(crate) fn step(&self, progress: Progress) {
        let handler = self.router.calls().watched.get(&self.token).and_then(|watch| watch.handler.clone());
        if let Some(handler) = handler.or_else(|| self.router.progress.clone()) {
            handler(progress);
        }
    }
}

impl Drop for CallWatch {
    fn drop(&mut self) {
        self.router.calls().watched.remove(&self.token);
    }
}

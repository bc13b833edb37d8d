//! Routes a server's notifications to the log and progress handlers, the caches and the subscribers.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

use rmcp::model::{
    GetMeta, JsonRpcMessage, JsonRpcNotification, LoggingLevel, NumberOrString, ProgressNotificationParam,
    ProgressToken, ServerNotification,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::broadcast;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{LogHandler, MessageHandler, ProgressHandler};
use crate::run_context::RunContext;
use crate::transport::Incoming;

/// The severity of a log message, as in syslog, in ascending order.
///
/// ```
/// use belljar_mcp_client::{LogLevel, McpServerStdio};
///
/// assert!(LogLevel::Error > LogLevel::Info);
/// let server = McpServerStdio::new("server").log_level(LogLevel::Warning);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names are syslog's")]
#[non_exhaustive]
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
    /// Returns the protocol's name of the level.
    ///
    /// ```
    /// assert_eq!(belljar_mcp_client::LogLevel::Warning.name(), "warning");
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

/// A log message of a server.
///
/// ```
/// # use belljar_mcp_client::{LogLevel, McpServerStdio};
/// let server = McpServerStdio::new("server").log_handler(|message| {
///     if message.level >= LogLevel::Warning {
///         eprintln!("{}: {}", message.logger.as_deref().unwrap_or("server"), message.text());
///     }
/// });
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LogMessage {
    /// The severity.
    pub level: LogLevel,
    /// The name of the logger, if the server sent one.
    pub logger: Option<String>,
    /// The message: usually a string, or an object with fields.
    pub data: Value,
}

impl LogMessage {
    /// Returns the message as one text.
    ///
    /// ```
    /// # use belljar_mcp_client::LogHandler;
    /// let handler: LogHandler = std::sync::Arc::new(|message| eprintln!("{:?}: {}", message.level, message.text()));
    /// ```
    pub fn text(&self) -> String {
        match &self.data {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }
}

/// A progress notification of a call.
///
/// ```
/// # use belljar_mcp_client::CallOptions;
/// let options = CallOptions::new().progress_handler(|step| match step.total {
///     Some(total) => eprintln!("{} of {total}", step.progress),
///     None => eprintln!("{} so far", step.progress),
/// });
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Progress {
    /// The progress so far; increases with every notification.
    pub progress: f64,
    /// The total, if known.
    pub total: Option<f64>,
    /// A description of the current step.
    pub message: Option<String>,
}

impl Progress {
    /// Creates a progress notification, for tests of handlers.
    ///
    /// ```
    /// let step = belljar_mcp_client::Progress::new(1.0, Some(4.0), Some("fetching".into()));
    /// assert_eq!(step.fraction(), Some(0.25));
    /// ```
    pub fn new(progress: f64, total: Option<f64>, message: Option<String>) -> Self {
        Self { progress, total, message }
    }

    /// Returns the completed fraction, between 0 and 1, if the total is known.
    ///
    /// ```
    /// assert_eq!(belljar_mcp_client::Progress::new(1.0, None, None).fraction(), None);
    /// ```
    pub fn fraction(&self) -> Option<f64> {
        self.total.filter(|total| *total > 0.0).map(|total| (self.progress / total).clamp(0.0, 1.0))
    }
}

/// Counters of a server's list-changed notifications.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) tools: AtomicU64,
    pub(crate) resources: AtomicU64,
    pub(crate) prompts: AtomicU64,
}

/// Dispatches notifications to handlers, counters and subscribers.
pub(crate) struct Router {
    log: Option<LogHandler>,
    progress: Option<ProgressHandler>,
    message: Option<MessageHandler>,
    pub(crate) changes: Arc<Changes>,
    /// The URIs of updated resources.
    pub(crate) updates: broadcast::Sender<String>,
    calls: Mutex<Calls>,
    /// Cancelled when the connection is closed.
    pub(crate) closed: CancellationToken,
    /// The time of the last message that does not belong to a single call.
    last_activity: Mutex<Instant>,
}

/// The calls in progress.
#[derive(Default)]
struct Calls {
    watched: HashMap<Token, Watch>,
    /// Progress that arrived before its call was registered here: `rmcp` sends a request before it returns the token.
    early: VecDeque<(Token, Progress)>,
}

/// The maximum number of buffered early notifications; those of finished calls are among them.
const MAX_EARLY_STEPS: usize = 256;

/// A progress token, normalized: some servers echo a number as a string.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Token {
    Number(i64),
    Text(Arc<str>),
}

impl From<&ProgressToken> for Token {
    fn from(token: &ProgressToken) -> Self {
        match &token.0 {
            NumberOrString::Number(number) => Self::Number(*number),
            NumberOrString::String(text) => match text.parse::<i64>() {
                Ok(number) if number.to_string() == **text => Self::Number(number),
                _ => Self::Text(text.clone()),
            },
        }
    }
}

struct Watch {
    handler: Option<ProgressHandler>,
    /// The run that makes the call.
    run: Option<Arc<RunContext>>,
    last_activity: Instant,
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
            closed: CancellationToken::new(),
            last_activity: Mutex::new(Instant::now()),
        }
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock()
    }

    fn touch(&self) {
        *self.last_activity.lock() = Instant::now();
    }

    /// Records that the server is alive: it sent a request.
    pub(crate) fn record_activity(&self, message: &Incoming) {
        if matches!(message, JsonRpcMessage::Request(_)) {
            self.touch();
        }
    }

    /// Handles a notification, or returns it if `rmcp` has to process it.
    pub(crate) fn route(
        &self,
        notification: JsonRpcNotification<ServerNotification>,
    ) -> Option<JsonRpcNotification<ServerNotification>> {
        if let Some(handler) = &self.message {
            catch_panic("message", || handler(&notification.notification));
        }
        // `rmcp` counts the notifications of a subscription and ends one whose notifications are out of order.
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
                    let (level, logger, data) = (params.level.into(), params.logger, params.data);
                    catch_panic("log", || handler(LogMessage { level, logger, data }));
                }
                None
            }
            ref kind => {
                match kind {
                    ServerNotification::ToolListChangedNotification(_) => count(&self.changes.tools),
                    ServerNotification::ResourceListChangedNotification(_) => count(&self.changes.resources),
                    ServerNotification::PromptListChangedNotification(_) => count(&self.changes.prompts),
                    ServerNotification::ResourceUpdatedNotification(update) => {
                        // Sending fails if no subscriber exists.
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
                    watch.last_activity = Instant::now();
                    watch.handler.clone().or_else(|| self.progress.clone())
                }
                None => {
                    if calls.early.len() == MAX_EARLY_STEPS {
                        calls.early.pop_front();
                    }
                    calls.early.push_back((token, progress));
                    return;
                }
            }
        };
        if let Some(handler) = handler {
            catch_panic("progress", || handler(progress));
        }
    }

    /// Returns the run of the call in progress, if there is only one.
    pub(crate) fn only_run(&self) -> Option<Arc<RunContext>> {
        let calls = self.calls();
        match calls.watched.len() {
            1 => calls.watched.values().next()?.run.clone(),
            _ => None,
        }
    }

    /// Watches a call until the guard is dropped.
    pub(crate) fn watch(
        self: &Arc<Self>,
        token: &ProgressToken,
        handler: Option<ProgressHandler>,
        run: Option<Arc<RunContext>>,
    ) -> CallWatch {
        let token = Token::from(token);
        let early: Vec<Progress> = {
            let mut calls = self.calls();
            calls.watched.insert(token.clone(), Watch { handler: handler.clone(), run, last_activity: Instant::now() });
            let (own, others) = std::mem::take(&mut calls.early).into_iter().partition(|(other, _)| *other == token);
            calls.early = others;
            let own: VecDeque<(Token, Progress)> = own;
            own.into_iter().map(|(_, step)| step).collect()
        };
        if let Some(handler) = handler.or_else(|| self.progress.clone()) {
            early.into_iter().for_each(|step| catch_panic("progress", || handler(step)));
        }
        CallWatch { router: self.clone(), token }
    }
}

/// Calls a handler. One that panics must not end the connection, which other calls use.
pub(crate) fn catch_panic(kind: &str, call: impl FnOnce()) {
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).is_err() {
        tracing::error!("the {kind} handler panicked");
    }
}

fn count(changes: &AtomicU64) {
    changes.fetch_add(1, Ordering::Release);
}

/// A guard that keeps a call registered for progress notifications.
pub(crate) struct CallWatch {
    router: Arc<Router>,
    token: Token,
}

impl CallWatch {
    /// Returns the time of the server's last activity on this call, or of activity that may concern it.
    pub(crate) fn last_activity(&self) -> Instant {
        let on_this = self.router.calls().watched.get(&self.token).map(|watch| watch.last_activity);
        let at_all = *self.router.last_activity.lock();
        on_this.map_or(at_all, |on_this| on_this.max(at_all))
    }

    /// Passes progress that did not come through the transport to the call's handler.
    pub(crate) fn step(&self, progress: Progress) {
        let handler = self.router.calls().watched.get(&self.token).and_then(|watch| watch.handler.clone());
        if let Some(handler) = handler.or_else(|| self.router.progress.clone()) {
            catch_panic("progress", || handler(progress));
        }
    }
}

impl Drop for CallWatch {
    fn drop(&mut self) {
        self.router.calls().watched.remove(&self.token);
    }
}

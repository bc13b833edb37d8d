//! The notifications of a call: log messages and progress, which are sent in order while it runs.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rmcp::model::{
    LoggingLevel, LoggingMessageNotificationParam, ProgressNotificationParam, ProgressToken, ProtocolVersion,
};
use rmcp::service::RequestContext;
use rmcp::{Peer, RoleServer};
use tokio::sync::mpsc;

use super::Server;
use crate::notifier::{ClientNotifier, Event, NotificationFilter, RunningSteps};

/// The time for which an answer waits until the notifications before it are sent to a client that reads slowly.
const NOTIFICATION_FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
/// The time without an event after which a client is informed that a step is still running.
const TICK_INTERVAL: Duration = Duration::from_secs(1);

impl Server {
    /// Runs `work` with a notifier that forwards the notifications that the client wants.
    pub(super) async fn with_notifications<F: Future>(
        &self,
        context: &RequestContext<RoleServer>,
        work: impl FnOnce(ClientNotifier) -> F,
    ) -> F::Output {
        let token = context.meta.get_progress_token();
        let filter = NotificationFilter { level: self.level_for(context), progress: token.is_some() };
        let (notifier, events) = ClientNotifier::new(filter);
        let forward = |events| forward_events(context.peer.clone(), token, events, notifier.running_steps());
        let forwarding = events.map(|events| tokio::spawn(forward(events)));
        let result = work(notifier).await;
        if let Some(forwarding) = forwarding {
            let abort = forwarding.abort_handle();
            if tokio::time::timeout(NOTIFICATION_FLUSH_TIMEOUT, forwarding).await.is_err() {
                abort.abort();
            }
        }
        result
    }

    /// Returns the minimum level of messages to send: in the modern era the request contains it, in the legacy era
    /// the session does.
    fn level_for(&self, context: &RequestContext<RoleServer>) -> Option<LoggingLevel> {
        let version = context.protocol_version();
        if version.is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str()) {
            return context.meta.log_level();
        }
        LEVELS.into_iter().find(|level| *level as u8 == self.level.load(Ordering::Relaxed))
    }
}

const LEVELS: [LoggingLevel; 8] = [
    LoggingLevel::Debug,
    LoggingLevel::Info,
    LoggingLevel::Notice,
    LoggingLevel::Warning,
    LoggingLevel::Error,
    LoggingLevel::Critical,
    LoggingLevel::Alert,
    LoggingLevel::Emergency,
];

/// Sends a call's events in order until it has no more. Reports that a step is still running while no event arrives.
async fn forward_events(
    peer: Peer<RoleServer>,
    token: Option<ProgressToken>,
    mut events: mpsc::Receiver<Event>,
    steps: RunningSteps,
) {
    loop {
        let event = match tokio::time::timeout(TICK_INTERVAL, events.recv()).await {
            Ok(Some(event)) => event,
            Ok(None) => return,
            Err(_) => match steps.tick() {
                Some(event) => event,
                None => continue,
            },
        };
        let sent = match event {
            Event::Log { level, logger, text } => {
                let message = LoggingMessageNotificationParam::new(level, text.into()).with_logger(logger);
                peer.notify_logging_message(message).await
            }
            Event::Progress { done, total, message } => {
                let Some(token) = token.clone() else { continue };
                let mut progress = ProgressNotificationParam::new(token, done);
                progress.total = total;
                progress.message = Some(message).filter(|message| !message.is_empty());
                peer.notify_progress(progress).await
            }
            Event::End => return,
        };
        if sent.is_err() {
            // The client has disconnected.
            return;
        }
    }
}

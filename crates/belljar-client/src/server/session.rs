//! The lifetime of a server's connection: shared by all guards, reestablished if the transport supports it, closed with
//! the last guard.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};
use rmcp::model::SubscriptionFilter;
use tokio::sync::broadcast;
use tokio::time::Instant;

use super::cache::{Caches, ListKind};
use super::connection::Connection;
use super::failures::Failures;
use super::restart::Restarts;
use super::retry::Retries;
use super::{Core, McpServer};
use crate::error::McpError;
use crate::handlers::notifications::Changes;
use crate::schema::ValidatorCache;
use crate::transport::IdentityHeaders;

/// The number of resource updates that a slow subscriber may fall behind.
const UPDATE_CHANNEL_CAPACITY: usize = 256;

/// A weak handle to the current session of a server.
#[derive(Default)]
pub(super) struct SessionSlot {
    session: tokio::sync::Mutex<Weak<Session>>,
    /// A copy that can be read without waiting.
    latest: Mutex<Weak<Session>>,
    failures: Failures,
}

impl SessionSlot {
    pub(super) fn is_occupied(&self) -> bool {
        self.latest.lock().strong_count() > 0
    }

    /// Returns the current session, or a new one. Callers that wait while another one fails to connect get its failure.
    pub(super) async fn session(
        &self,
        core: &Arc<Core>,
        headers: Option<&Arc<IdentityHeaders>>,
    ) -> Result<Arc<Session>, McpError> {
        let current = self.latest.lock().upgrade();
        match current {
            Some(session) => Ok(session),
            None => Box::pin(self.open(core, headers)).await,
        }
    }

    async fn open(&self, core: &Arc<Core>, headers: Option<&Arc<IdentityHeaders>>) -> Result<Arc<Session>, McpError> {
        let failures = self.failures.count();
        let mut slot = self.session.lock().await;
        if let Some(session) = slot.upgrade() {
            return Ok(session);
        }
        if let Some(failure) = self.failures.since(failures) {
            return Err(failure);
        }
        let session =
            Session::open(core.clone(), headers.cloned()).await.inspect_err(|error| self.failures.record(error))?;
        *slot = Arc::downgrade(&session);
        *self.latest.lock() = Arc::downgrade(&session);
        Ok(session)
    }
}

/// The state between the first guard and the last one.
pub(super) struct Session {
    server: Arc<Core>,
    /// The headers of the identity whose session this is, if it is not that of the program.
    headers: Option<Arc<IdentityHeaders>>,
    current: Mutex<Arc<Connection>>,
    /// Held while the connection is reestablished.
    reconnecting: tokio::sync::Mutex<Restarts>,
    failures: Failures,
    changes: Arc<Changes>,
    pub(super) updates: broadcast::Sender<String>,
    pub(super) caches: Caches,
    pub(super) validators: ValidatorCache,
    /// Tools that rejected an ordinary call because they must be called as tasks.
    task_tools: Mutex<HashSet<String>>,
}

impl Session {
    async fn open(server: Arc<Core>, headers: Option<Arc<IdentityHeaders>>) -> Result<Arc<Self>, McpError> {
        let changes = Arc::new(Changes::default());
        let updates = broadcast::Sender::new(UPDATE_CHANNEL_CAPACITY);
        let connection = Connection::open(&server, headers.as_ref(), changes.clone(), updates.clone()).await?;
        let connection = Arc::new(connection);
        subscribe_to_list_changes(&connection);
        Ok(Arc::new(Self {
            server,
            headers,
            current: Mutex::new(connection),
            reconnecting: tokio::sync::Mutex::default(),
            failures: Failures::default(),
            changes,
            updates,
            caches: Caches::default(),
            validators: ValidatorCache::default(),
            task_tools: Mutex::default(),
        }))
    }

    fn current(&self) -> Arc<Connection> {
        self.current.lock().clone()
    }

    /// Returns whether the connection is lost and cannot be reestablished.
    pub(super) fn is_lost(&self) -> bool {
        self.current().is_closed() && !self.server.can_reconnect()
    }

    /// Returns the connection, or a new one if it was lost and the transport can reconnect or may be restarted. Callers
    /// that wait while another one fails to reconnect get its failure.
    pub(super) async fn connection(&self) -> Result<Arc<Connection>, McpError> {
        let current = self.current();
        if current.is_closed() { Box::pin(self.reestablish(current)).await } else { Ok(current) }
    }

    async fn reestablish(&self, current: Arc<Connection>) -> Result<Arc<Connection>, McpError> {
        if !self.server.can_reconnect() {
            return Err(current.closed().await);
        }
        let failures = self.failures.count();
        let mut restarts = self.reconnecting.lock().await;
        let lost = self.current();
        if !lost.is_closed() {
            return Ok(lost);
        }
        if let Some(failure) = self.failures.since(failures) {
            return Err(failure);
        }
        let result = if self.server.connector.reconnects() {
            self.reconnect(&lost).await
        } else {
            self.restart(&lost, &mut restarts).await
        };
        result.inspect_err(|error| self.failures.record(error))
    }

    /// Reestablishes a lost connection, in as many attempts as the policy allows.
    async fn reconnect(&self, lost: &Connection) -> Result<Arc<Connection>, McpError> {
        let policy = self.server.settings.reconnect;
        let mut last = lost.closed().await;
        for attempt in 0..policy.attempts {
            tokio::time::sleep(policy.delay(attempt)).await;
            match self.replace_connection().await {
                Ok(connection) => {
                    tracing::info!(server = self.server.label(), attempt, "reconnected");
                    return Ok(connection);
                }
                // A retry cannot succeed.
                Err(error @ McpError::Unauthorized { .. }) => return Err(error),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Restarts a server that ended, if the policy allows it.
    async fn restart(&self, lost: &Connection, restarts: &mut Restarts) -> Result<Arc<Connection>, McpError> {
        let Some(policy) = self.server.settings.restart else { return Err(lost.closed().await) };
        if !restarts.record(policy, Instant::now()) {
            let mut error = lost.closed().await;
            if let McpError::Closed { reason, .. } = &mut error {
                let (count, seconds) = (policy.max_restarts, policy.period.as_secs_f64());
                *reason = format!("{reason} (it was restarted {count} times within {seconds} s)");
            }
            return Err(error);
        }
        let connection = self.replace_connection().await?;
        tracing::info!(server = self.server.label(), "restarted");
        Ok(connection)
    }

    async fn replace_connection(&self) -> Result<Arc<Connection>, McpError> {
        let (changes, updates) = (self.changes.clone(), self.updates.clone());
        let connection = Arc::new(Connection::open(&self.server, self.headers.as_ref(), changes, updates).await?);
        // The server's new session may have different lists.
        self.caches.clear();
        *self.current.lock() = connection.clone();
        subscribe_to_list_changes(&connection);
        Ok(connection)
    }

    /// Returns the repetitions of a request that the server may process twice.
    pub(super) fn retries(&self) -> Retries {
        Retries::new(self.server.settings.retry, true)
    }

    /// Returns the repetitions of a call, which the server may process twice if the tool is annotated accordingly in
    /// the list that was last read.
    pub(super) fn call_retries(&self, tool: &str) -> Retries {
        let policy = self.server.settings.retry;
        Retries::new(policy, policy.is_some() && self.is_repeatable(tool))
    }

    fn is_repeatable(&self, tool: &str) -> bool {
        let Some(tools) = self.caches.tools.latest() else { return false };
        let annotations = tools.iter().find(|known| known.name == tool).and_then(|known| known.annotations.as_ref());
        annotations.is_some_and(|annotations| {
            annotations.read_only_hint == Some(true) || annotations.idempotent_hint == Some(true)
        })
    }

    fn task_tools(&self) -> MutexGuard<'_, HashSet<String>> {
        self.task_tools.lock()
    }

    pub(super) fn requires_task(&self, tool: &str) -> bool {
        self.task_tools().contains(tool)
    }

    pub(super) fn remember_task(&self, tool: &str) {
        self.task_tools().insert(tool.to_owned());
    }

    /// Returns the number of the server's list-changed notifications.
    pub(super) fn changes(&self, kind: ListKind) -> u64 {
        let counter = match kind {
            ListKind::Tools => &self.changes.tools,
            ListKind::Resources => &self.changes.resources,
            ListKind::Prompts => &self.changes.prompts,
        };
        counter.load(Ordering::Acquire)
    }

    pub(super) async fn close(self) {
        if let Ok(connection) = Arc::try_unwrap(self.current.into_inner()) {
            connection.close().await;
        }
    }
}

/// Subscribes to list changes on a server of the modern era. On the legacy era servers send them without a
/// subscription.
fn subscribe_to_list_changes(connection: &Arc<Connection>) {
    let capabilities = &connection.info().capabilities;
    let mut filter = SubscriptionFilter::default();
    filter.tools_list_changed = capabilities.tools.as_ref().and_then(|tools| tools.list_changed).filter(|yes| *yes);
    filter.prompts_list_changed =
        capabilities.prompts.as_ref().and_then(|prompts| prompts.list_changed).filter(|yes| *yes);
    filter.resources_list_changed =
        capabilities.resources.as_ref().and_then(|resources| resources.list_changed).filter(|yes| *yes);
    let wants_any =
        filter.tools_list_changed.or(filter.prompts_list_changed).or(filter.resources_list_changed).is_some();
    if !connection.is_modern() || !wants_any {
        return;
    }
    // The router counts the notifications; this task only keeps the subscription, which ends with the connection.
    let peer = connection.peer().clone();
    tokio::spawn(async move {
        match peer.listen(filter).await {
            Ok(mut subscription) => while let Ok(Some(_)) = subscription.next().await {},
            Err(error) => tracing::debug!(%error, "the server rejected the subscription to its lists"),
        }
    });
}

impl Core {
    /// Returns the name of the server in error messages. A prefix alone is less specific than the command or URL.
    pub(super) fn label(&self) -> String {
        self.settings.id.clone().unwrap_or_else(|| self.connector.label())
    }

    fn can_reconnect(&self) -> bool {
        self.connector.reconnects() || self.settings.restart.is_some()
    }
}

/// A guard that keeps a server's connection open; dropping the last one closes it.
///
/// Dropping it closes the connection in the background; [`close`](Self::close) waits until it is closed.
///
/// ```no_run
/// # async fn run(server: belljar_mcp_client::McpServer) -> Result<(), belljar_mcp_client::McpError> {
/// let outer = server.connect().await?;
/// let inner = server.connect().await?; // the same connection
/// drop(inner);
/// assert!(server.is_running());
/// outer.close().await?;
/// assert!(!server.is_running());
/// # Ok(())
/// # }
/// ```
#[must_use = "the connection closes when this is dropped"]
pub struct ConnectionGuard {
    server: McpServer,
    session: Option<Arc<Session>>,
}

impl ConnectionGuard {
    pub(super) fn new(server: McpServer, session: Arc<Session>) -> Self {
        Self { server, session: Some(session) }
    }

    /// Returns the server.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_mcp_client::McpServer) -> Result<(), belljar_mcp_client::McpError> {
    /// let running = server.connect().await?;
    /// println!("{} is open", running.server().label());
    /// # Ok(())
    /// # }
    /// ```
    pub fn server(&self) -> &McpServer {
        &self.server
    }

    /// Releases the connection and, if this was the last guard, waits until it is closed: at most three seconds for a
    /// child process. The session of [an identity](McpServer::for_run) stays open until it has been idle for its time.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_mcp_client::McpServer) -> Result<(), belljar_mcp_client::McpError> {
    /// let running = server.connect().await?;
    /// running.close().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// None at present; errors while closing are logged.
    pub async fn close(mut self) -> Result<(), McpError> {
        if let Some(session) = self.session.take().and_then(Arc::into_inner) {
            session.close().await;
        }
        Ok(())
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        let Some(session) = self.session.take().and_then(Arc::into_inner) else { return };
        // Without a runtime waiting is impossible; dropping the connection kills a child process.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(session.close());
        }
    }
}

impl std::fmt::Debug for ConnectionGuard {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ConnectionGuard").field("server", &self.server).finish()
    }
}

impl std::ops::Deref for ConnectionGuard {
    type Target = McpServer;

    fn deref(&self) -> &McpServer {
        &self.server
    }
}

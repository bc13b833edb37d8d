//! The life of a server's connection: shared by all who hold a guard, made anew where it may be, closed by the last to go.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rmcp::model::{Prompt as WirePrompt, Resource, ResourceTemplate, ServerPeerInfo, SubscriptionFilter, Tool};
use tokio::sync::{RwLock, broadcast};
use tokio::time::Instant;

use super::connection::Connection;
use super::{Inner, McpServer};
use crate::error::McpError;
use crate::handlers::notifications::Changes;
use crate::schema::Checkers;
use crate::toolset::ToolDefinition;

/// Updates of resources that a slow subscriber may fall behind by.
const UPDATES_KEPT: usize = 256;

/// Where the session of a server is found while somebody holds it.
#[derive(Default)]
pub(super) struct Slot {
    session: tokio::sync::Mutex<Weak<Session>>,
    /// The same, for questions that must not wait.
    shown: Mutex<Weak<Session>>,
}

impl Slot {
    pub(super) fn is_occupied(&self) -> bool {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).strong_count() > 0
    }
}

/// What lies between the first who connects and the last who leaves.
pub(super) struct Session {
    server: Arc<Inner>,
    current: RwLock<Arc<Connection>>,
    changes: Arc<Changes>,
    pub(super) updates: broadcast::Sender<String>,
    pub(super) caches: Caches,
    pub(super) checkers: Checkers,
    /// Tools that refused an ordinary call, as they want to be called as tasks.
    task_tools: Mutex<HashSet<String>>,
}

/// The lists that are kept.
#[derive(Default)]
pub(super) struct Caches {
    pub(super) tools: Cache<Tool>,
    pub(super) shown: Mutex<Option<Shown>>,
    pub(super) resources: Cache<Resource>,
    pub(super) templates: Cache<ResourceTemplate>,
    pub(super) prompts: Cache<WirePrompt>,
}

impl Caches {
    fn clear(&self) {
        self.tools.clear();
        self.resources.clear();
        self.templates.clear();
        self.prompts.clear();
    }
}

/// What models were shown last, and the list that it was made of.
pub(super) struct Shown {
    pub(super) tools: Arc<Vec<Tool>>,
    pub(super) definitions: Arc<Vec<ToolDefinition>>,
}

/// A list that may be kept.
pub(super) struct Cache<T>(Mutex<Option<Kept<T>>>);

struct Kept<T> {
    /// How many changes the server had told of when it was asked.
    changes: u64,
    /// When the list grows old, if it does.
    until: Option<Instant>,
    list: Arc<Vec<T>>,
}

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T> Cache<T> {
    pub(super) fn get(&self, changes: u64) -> Option<Arc<Vec<T>>> {
        let cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = cached.as_ref()?;
        let is_fresh = kept.changes == changes && kept.until.is_none_or(|until| Instant::now() < until);
        is_fresh.then(|| kept.list.clone())
    }

    pub(super) fn set(&self, changes: u64, until: Option<Instant>, list: Arc<Vec<T>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Kept { changes, until, list });
    }

    fn clear(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// What of a server a list is of.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Tools,
    Resources,
    Prompts,
}

impl Session {
    async fn open(server: Arc<Inner>) -> Result<Arc<Self>, McpError> {
        let changes = Arc::new(Changes::default());
        let updates = broadcast::Sender::new(UPDATES_KEPT);
        let connection = Arc::new(Connection::open(&server, changes.clone(), updates.clone()).await?);
        listen(&connection);
        Ok(Arc::new(Self {
            server,
            current: RwLock::new(connection),
            changes,
            updates,
            caches: Caches::default(),
            checkers: Checkers::default(),
            task_tools: Mutex::default(),
        }))
    }

    /// The connection: the one that there is, or a new one where it was lost and may be made anew.
    pub(super) async fn connection(&self) -> Result<Arc<Connection>, McpError> {
        let current = self.current.read().await.clone();
        if !current.is_closed() {
            return Ok(current);
        }
        if !self.server.connector.reconnects() {
            return Err(current.closed().await);
        }
        let mut slot = self.current.write().await;
        if !slot.is_closed() {
            return Ok(slot.clone());
        }
        let policy = self.server.settings.reconnect;
        let mut last = slot.closed().await;
        for attempt in 0..policy.attempts {
            tokio::time::sleep(policy.delay(attempt)).await;
            match Connection::open(&self.server, self.changes.clone(), self.updates.clone()).await {
                Ok(connection) => {
                    tracing::info!(server = self.server.label(), attempt, "connected anew");
                    // What the server's new session has may differ.
                    self.caches.clear();
                    *slot = Arc::new(connection);
                    listen(&slot);
                    return Ok(slot.clone());
                }
                // Asking again does not help.
                Err(error @ McpError::Unauthorized { .. }) => return Err(error),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn task_tools(&self) -> MutexGuard<'_, HashSet<String>> {
        self.task_tools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wants_task(&self, tool: &str) -> bool {
        self.task_tools().contains(tool)
    }

    pub(super) fn remember_task(&self, tool: &str) {
        self.task_tools().insert(tool.to_owned());
    }

    /// How often the server said that its list changed.
    pub(super) fn changes(&self, kind: Kind) -> u64 {
        let counter = match kind {
            Kind::Tools => &self.changes.tools,
            Kind::Resources => &self.changes.resources,
            Kind::Prompts => &self.changes.prompts,
        };
        counter.load(Ordering::Acquire)
    }

    async fn close(self) {
        if let Ok(connection) = Arc::try_unwrap(self.current.into_inner()) {
            connection.close().await;
        }
    }
}

/// Asks a server of the modern era to say when its lists change. One of the legacy era does so unasked.
fn listen(connection: &Arc<Connection>) {
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
    // The notices are counted as they come in; the subscription need only be kept. It ends with the connection.
    let peer = connection.peer().clone();
    tokio::spawn(async move {
        match peer.listen(filter).await {
            Ok(mut subscription) => while let Ok(Some(_)) = subscription.next().await {},
            Err(error) => tracing::debug!(%error, "the server takes no subscription to its lists"),
        }
    });
}

impl Inner {
    /// How errors call the server. A prefix alone says less than command or URL.
    pub(super) fn label(&self) -> String {
        self.settings.id.clone().unwrap_or_else(|| self.connector.label())
    }
}

impl McpServer {
    /// The session that there is, or a new one.
    pub(super) async fn session(&self) -> Result<Arc<Session>, McpError> {
        let mut slot = self.inner.slot.session.lock().await;
        if let Some(session) = slot.upgrade() {
            return Ok(session);
        }
        let session = Session::open(self.inner.clone()).await?;
        *slot = Arc::downgrade(&session);
        *self.inner.slot.shown.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&session);
        Ok(session)
    }
}

/// Keeps a server's connection open; the last of its kind closes it.
///
/// Dropping it closes in the background; [`close`](Self::close) waits until the connection is over.
///
/// ```no_run
/// # async fn run(server: belljar_client::McpServer) -> Result<(), belljar_client::McpError> {
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
pub struct Running {
    server: McpServer,
    session: Option<Arc<Session>>,
}

impl Running {
    pub(super) fn new(server: McpServer, session: Arc<Session>) -> Self {
        Self { server, session: Some(session) }
    }

    /// The server.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_client::McpServer) -> Result<(), belljar_client::McpError> {
    /// let running = server.connect().await?;
    /// println!("{} is open", running.server().label());
    /// # Ok(())
    /// # }
    /// ```
    pub fn server(&self) -> &McpServer {
        &self.server
    }

    /// Lets go of the connection and, if nobody else holds it, waits until it is over: three seconds at most for a child.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_client::McpServer) -> Result<(), belljar_client::McpError> {
    /// let running = server.connect().await?;
    /// running.close().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// None at present; what goes wrong with closing is logged.
    pub async fn close(mut self) -> Result<(), McpError> {
        if let Some(session) = self.session.take().and_then(Arc::into_inner) {
            session.close().await;
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(session) = self.session.take().and_then(Arc::into_inner) else { return };
        // Without a runtime there is nothing to wait with: dropping the connection kills a child.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(session.close());
        }
    }
}

impl std::fmt::Debug for Running {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Running").field("server", &self.server).finish()
    }
}

impl std::ops::Deref for Running {
    type Target = McpServer;

    fn deref(&self) -> &McpServer {
        &self.server
    }
}

/// What a server said about itself when it was connected to.
impl McpServer {
    /// Everything that it said: protocol version, capabilities, name, instructions.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_client::McpServer) -> Result<(), belljar_client::McpError> {
    /// println!("{}", server.info().await?.protocol_version);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    pub async fn info(&self) -> Result<Arc<ServerPeerInfo>, McpError> {
        Ok(self.session().await?.connection().await?.info().clone())
    }

    /// What the server can do.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_client::McpServer) -> Result<(), belljar_client::McpError> {
    /// let has_prompts = server.capabilities().await?.prompts.is_some();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    pub async fn capabilities(&self) -> Result<rmcp::model::ServerCapabilities, McpError> {
        Ok(self.info().await?.capabilities.clone())
    }

    /// The server's name and version, if it gave them.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_client::McpServer) -> Result<(), belljar_client::McpError> {
    /// if let Some(info) = server.server_info().await? {
    ///     println!("{} {}", info.name, info.version);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    pub async fn server_info(&self) -> Result<Option<rmcp::model::Implementation>, McpError> {
        Ok(self.info().await?.server_info.clone())
    }

    /// What the server says about its use, if anything. It is text from outside.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_client::McpServer) -> Result<(), belljar_client::McpError> {
    /// let instructions = server.server_instructions().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    pub async fn server_instructions(&self) -> Result<Option<String>, McpError> {
        Ok(self.info().await?.instructions.clone())
    }
}

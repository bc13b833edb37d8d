//! The identities of runs: handles that are bound to one, and a bounded pool of their sessions.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::session::{Session, SessionSlot};
use super::{Core, McpServer};
use crate::error::McpError;
use crate::run_context::RunContext;
use crate::transport::IdentityHeaders;

/// The key of the sessions of one identity. It may contain secrets and does not implement `Debug`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum Identity {
    Name(Arc<str>),
    /// The headers of the run, sorted by name.
    Headers(Box<[(HeaderName, HeaderValue)]>),
}

/// The part of a run that concerns all requests, and not only calls.
pub(super) struct RunBinding {
    /// The identity whose session is used, if it is not that of the program.
    identity: Option<Identity>,
    /// The headers of the identity.
    headers: Arc<HeaderMap>,
    /// All headers of the requests.
    pub(super) request_headers: HeaderMap,
    /// The entries of `_meta` of the requests.
    pub(super) trace: Map<String, Value>,
}

impl RunBinding {
    fn new(run: &RunContext, sends_headers: bool) -> Self {
        let identity = match &run.identity {
            Some(name) => Some(Identity::Name(name.clone())),
            None if run.headers.is_empty() || !sends_headers => None,
            None => {
                let headers = run.headers.iter().map(|(name, value)| (name.clone(), value.clone()));
                let mut headers: Vec<_> = headers.collect();
                headers.sort_by(|(one, _), (other, _)| one.as_str().cmp(other.as_str()));
                Some(Identity::Headers(headers.into()))
            }
        };
        Self {
            identity,
            headers: Arc::new(run.headers.clone()),
            request_headers: run.all_headers(),
            trace: run.trace.clone(),
        }
    }

    pub(super) fn has_same_identity(one: Option<&Arc<Self>>, other: Option<&Arc<Self>>) -> bool {
        let identity = |binding: Option<&Arc<Self>>| binding.and_then(|binding| binding.identity.clone());
        identity(one) == identity(other)
    }
}

impl McpServer {
    /// Returns a handle to this server that is bound to the identity of a run: its token and headers go with every
    /// request, `initialize` and lists included, and its session, with the state that the server keeps in it and the
    /// cached lists, is not shared with other identities.
    ///
    /// The identity is [the name that the run has](RunContext::identity), or else its
    /// [headers](RunContext::header). A run without either has the program's own session. The sessions of identities
    /// stay open between uses until they have been idle for [a time](crate::ServerBuilder::identity_idle_time); at most
    /// [a number](crate::ServerBuilder::max_idle_identities) of them are kept.
    ///
    /// [`Toolset::tools`](crate::Toolset::tools) and [`Toolset::call`](crate::Toolset::call) do this by themselves; the
    /// handle has the other methods for the run.
    ///
    /// ```no_run
    /// use belljar_mcp_client::{McpServer, RunContext};
    ///
    /// # async fn run(server: McpServer, token: &str) -> Result<(), belljar_mcp_client::McpError> {
    /// let run = RunContext::new().identity("ada").bearer_token(token)?;
    /// let notes = server.for_run(&run).read_resource("notes://mine").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn for_run(&self, run: &RunContext) -> Self {
        self.bound_to(run).into_owned()
    }

    /// Returns this handle, or one that is bound to the run if that makes a difference.
    pub(super) fn bound_to(&self, run: &RunContext) -> Cow<'_, Self> {
        if run.identity.is_none() && run.headers.is_empty() && run.request_headers.is_empty() && run.trace.is_empty() {
            return Cow::Borrowed(self);
        }
        let mut binding = RunBinding::new(run, self.inner.connector.sends_headers());
        // A run without an identity of its own keeps that of the handle.
        if let (None, Some(own)) = (&binding.identity, &self.binding) {
            binding.identity = own.identity.clone();
            binding.headers = own.headers.clone();
            let mut headers = own.request_headers.clone();
            headers.extend(binding.request_headers);
            binding.request_headers = headers;
            if binding.trace.is_empty() {
                binding.trace = own.trace.clone();
            }
        }
        Cow::Owned(Self { inner: self.inner.clone(), binding: Some(Arc::new(binding)) })
    }

    /// Returns the current session of the handle's identity, or a new one.
    pub(super) async fn session(&self) -> Result<Arc<Session>, McpError> {
        let binding = self.binding.as_ref();
        match binding.and_then(|binding| Some((binding.identity.as_ref()?, &binding.headers))) {
            None => self.inner.slot.session(&self.inner.core, None).await,
            Some((identity, headers)) => Box::pin(self.inner.pool.session(&self.inner.core, identity, headers)).await,
        }
    }

    /// Returns whether the handle's identity has an open session.
    pub(super) fn has_session(&self) -> bool {
        match self.binding.as_ref().and_then(|binding| binding.identity.as_ref()) {
            None => self.inner.slot.is_occupied(),
            Some(identity) => self.inner.pool.has_session(identity),
        }
    }

    /// Closes the sessions of identities that are kept open but not in use, and waits until they are closed.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_mcp_client::McpServer) {
    /// server.close_idle_sessions().await;
    /// # }
    /// ```
    pub async fn close_idle_sessions(&self) {
        let idle = self.inner.pool.take_idle();
        futures::future::join_all(idle.into_iter().filter_map(Arc::into_inner).map(Session::close)).await;
    }
}

/// The maximum idle time, so that it can be added to the current time.
const MAX_IDLE_TIME: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The limits of a pool.
#[derive(Clone, Copy)]
pub(crate) struct PoolLimits {
    pub(crate) idle_time: Duration,
    pub(crate) max_idle: usize,
}

impl Default for PoolLimits {
    fn default() -> Self {
        Self { idle_time: Duration::from_secs(300), max_idle: 64 }
    }
}

/// The sessions of identities. Those in use are kept by their users; idle ones by the pool, for a time.
pub(super) struct SessionPool {
    limits: PoolLimits,
    sessions: Mutex<HashMap<Identity, Arc<PooledSession>>>,
    /// True while a task closes expired sessions.
    is_closing: AtomicBool,
}

struct PooledSession {
    slot: SessionSlot,
    headers: Arc<IdentityHeaders>,
    kept: Mutex<Option<KeptSession>>,
}

struct KeptSession {
    session: Arc<Session>,
    /// The last time at which the session was seen in use.
    used: Instant,
}

impl KeptSession {
    fn is_idle(&self) -> bool {
        Arc::strong_count(&self.session) == 1
    }
}

impl PooledSession {
    /// Takes the kept session if it is idle and meets the condition.
    fn take_if(&self, condition: impl FnOnce(&KeptSession) -> bool) -> Option<Arc<Session>> {
        let mut kept = self.kept.lock();
        kept.take_if(|kept| kept.is_idle() && condition(kept)).map(|kept| kept.session)
    }
}

impl SessionPool {
    pub(super) fn new(limits: PoolLimits) -> Self {
        let limits = PoolLimits { idle_time: limits.idle_time.min(MAX_IDLE_TIME), ..limits };
        Self { limits, sessions: Mutex::default(), is_closing: AtomicBool::new(false) }
    }

    async fn session(
        self: &Arc<Self>,
        core: &Arc<Core>,
        identity: &Identity,
        headers: &Arc<HeaderMap>,
    ) -> Result<Arc<Session>, McpError> {
        let pooled = {
            let mut sessions = self.sessions.lock();
            let new = || {
                let headers = Arc::new(IdentityHeaders::new(headers.clone()));
                Arc::new(PooledSession { slot: SessionSlot::default(), headers, kept: Mutex::default() })
            };
            sessions.entry(identity.clone()).or_insert_with(new).clone()
        };
        pooled.headers.set(headers.clone());
        // A session whose connection is lost for good is not worth keeping.
        drop(pooled.take_if(|kept| kept.session.is_lost()));
        let result = pooled.slot.session(core, Some(&pooled.headers)).await;
        if let Ok(session) = &result
            && !self.limits.idle_time.is_zero()
            && self.limits.max_idle > 0
        {
            *pooled.kept.lock() = Some(KeptSession { session: session.clone(), used: Instant::now() });
            self.start_closing();
        }
        drop(pooled);
        self.forget_unused();
        result
    }

    fn has_session(&self, identity: &Identity) -> bool {
        self.sessions.lock().get(identity).is_some_and(|pooled| pooled.slot.is_occupied())
    }

    /// Removes the entries of identities without a session, and the idle sessions beyond the maximum.
    fn forget_unused(&self) {
        let mut sessions = self.sessions.lock();
        sessions.retain(|_, pooled| pooled.slot.is_occupied() || Arc::strong_count(pooled) > 1);
        let excess = sessions.len().saturating_sub(self.limits.max_idle);
        if excess == 0 {
            return;
        }
        let idle = sessions.values().filter_map(|pooled| {
            let kept = pooled.kept.lock();
            kept.as_ref().filter(|kept| kept.is_idle()).map(|kept| (kept.used, pooled.clone()))
        });
        let mut idle: Vec<_> = idle.collect();
        let excess = idle.len().saturating_sub(self.limits.max_idle);
        idle.sort_by_key(|(used, _)| *used);
        for (_, pooled) in idle.into_iter().take(excess) {
            close_in_background(pooled.take_if(|_| true));
        }
    }

    /// Takes all idle sessions out of the pool.
    fn take_idle(&self) -> Vec<Arc<Session>> {
        self.sessions.lock().values().filter_map(|pooled| pooled.take_if(|_| true)).collect()
    }

    /// Closes the sessions that have been idle for too long. Returns the time of the next check, if any session is
    /// left.
    fn close_expired(&self) -> Option<Instant> {
        let now = Instant::now();
        let mut next = None;
        for pooled in self.sessions.lock().values() {
            let mut kept = pooled.kept.lock();
            let Some(one) = kept.as_mut() else { continue };
            if !one.is_idle() {
                one.used = now;
            }
            let expiry = one.used + self.limits.idle_time;
            if expiry <= now {
                close_in_background(kept.take().map(|kept| kept.session));
            } else {
                next = Some(next.map_or(expiry, |next: Instant| next.min(expiry)));
            }
        }
        self.forget_unused();
        next
    }

    /// Starts the task that closes expired sessions, unless it runs.
    fn start_closing(self: &Arc<Self>) {
        /// Allows another task after this one ended, also with its runtime.
        struct Running(std::sync::Weak<SessionPool>);
        impl Drop for Running {
            fn drop(&mut self) {
                if let Some(pool) = self.0.upgrade() {
                    pool.is_closing.store(false, Ordering::Release);
                }
            }
        }
        if self.is_closing.swap(true, Ordering::AcqRel) {
            return;
        }
        let running = Running(Arc::downgrade(self));
        let idle_time = self.limits.idle_time;
        tokio::spawn(async move {
            let mut next = Instant::now() + idle_time;
            loop {
                tokio::time::sleep_until(next).await;
                let Some(pool) = running.0.upgrade() else { return };
                next = pool.close_expired().unwrap_or_else(|| Instant::now() + idle_time);
            }
        });
    }
}

fn close_in_background(session: Option<Arc<Session>>) {
    if let (Some(session), Ok(runtime)) = (session.and_then(Arc::into_inner), tokio::runtime::Handle::try_current()) {
        runtime.spawn(session.close());
    }
}

impl fmt::Debug for RunBinding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("RunBinding").field("has_identity", &self.identity.is_some()).finish_non_exhaustive()
    }
}

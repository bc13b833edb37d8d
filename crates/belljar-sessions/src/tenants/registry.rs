//! All owners of a server, their quotas, and the settings that they share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use super::fair_queue::LaneId;
use super::quotas::QuotaTable;
use super::refusal::WorkRefusal;
use super::tenant::{SessionSlot, Tenant};
use super::ticket::{self, CallTicket, JobTicket};

/// The time after its last call for which an owner counts as one that shares the server with others.
const PRESENCE_TTL: Duration = Duration::from_secs(60);
/// The interval at which owners that nothing is known of are forgotten.
const CLEANING_INTERVAL: Duration = Duration::from_secs(1);

/// All owners of a server. Clones share them.
#[derive(Clone)]
pub struct Tenants(Arc<Shared>);

struct Shared {
    /// The names of tokens, by the owners that have them.
    names: RwLock<HashMap<String, Arc<str>>>,
    tenants: Mutex<KnownTenants>,
    /// The number of owners that have used the server lately.
    present: AtomicUsize,
    least_interpreter: Arc<AtomicU64>,
    session_counter: OnceLock<SessionCounter>,
    queue_timeout: Option<Duration>,
    load: Mutex<LoadState>,
    /// Notified when idle sessions are to sleep soon.
    sleep: Arc<Notify>,
    /// The owner of the server's own work.
    system: Tenant,
}

/// Counts the sessions of an owner in the table of sessions.
type SessionCounter = Box<dyn Fn(&Tenant) -> usize + Send + Sync>;

struct KnownTenants {
    /// The quotas of all owners. They have the lock of the owners, so that an owner that is added while they are
    /// replaced gets the new ones.
    table: QuotaTable,
    by_key: HashMap<Arc<str>, Tenant>,
    next: LaneId,
    cleaned: Instant,
}

/// The use of the server that the memory of the machine allows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum LoadState {
    /// Enough memory is left.
    #[default]
    Normal,
    /// Idle sessions sleep at once.
    Tight,
    /// New code is refused, for this reason.
    Shedding(String),
}

/// A client, by what identifies it.
#[derive(Debug, Clone, Copy)]
pub enum TenantKey<'a> {
    /// An authenticated client.
    Owner(&'a str),
    /// A connection without authentication.
    Connection(u64),
    /// The only client of a server over standard streams.
    Local,
}

impl Default for Tenants {
    fn default() -> Self {
        Self::new(QuotaTable::default(), None)
    }
}

/// A reference to the owners that does not keep them.
#[derive(Clone)]
pub(crate) struct WeakTenants(Weak<Shared>);

impl WeakTenants {
    pub(crate) fn upgrade(&self) -> Option<Tenants> {
        self.0.upgrade().map(Tenants)
    }
}

impl Tenants {
    pub(crate) fn downgrade(&self) -> WeakTenants {
        WeakTenants(Arc::downgrade(&self.0))
    }

    /// Creates the owners of a server with these quotas, whose calls wait for at most `queue_timeout`.
    pub fn new(table: QuotaTable, queue_timeout: Option<Duration>) -> Self {
        let least_interpreter = Arc::<AtomicU64>::default();
        let quotas = QuotaTable::default().quotas_for(None);
        let sleep = Arc::<Notify>::default();
        let system = Tenant::new(0, None, quotas, least_interpreter.clone(), sleep.clone());
        let known = KnownTenants { table, by_key: HashMap::new(), next: 1, cleaned: Instant::now() };
        Self(Arc::new(Shared {
            names: RwLock::default(),
            tenants: Mutex::new(known),
            present: AtomicUsize::new(0),
            least_interpreter,
            session_counter: OnceLock::new(),
            queue_timeout,
            load: Mutex::default(),
            sleep,
            system,
        }))
    }

    /// Returns the owner of the server's own work, which has no quotas.
    pub fn system(&self) -> &Tenant {
        &self.0.system
    }

    /// Replaces the quotas. Those who exceed the new ones can use no more, and what runs goes on.
    pub fn replace_quotas(&self, table: QuotaTable) {
        let mut known = self.0.tenants.lock();
        known.table = table;
        for tenant in known.by_key.values() {
            tenant.set_quotas(known.table.quotas_for(tenant.name()));
        }
    }

    /// Replaces the names of tokens, by their owners. Owners that are known already keep theirs until they are
    /// forgotten.
    pub fn replace_names(&self, names: impl IntoIterator<Item = (String, Arc<str>)>) {
        *self.0.names.write() = names.into_iter().collect();
    }

    /// Returns the owner that a client is.
    pub fn find(&self, client: TenantKey<'_>) -> Tenant {
        let (key, name): (Arc<str>, Option<Arc<str>>) = match client {
            TenantKey::Owner(owner) => match self.0.names.read().get(owner) {
                Some(name) => (format!("name:{name}").into(), Some(name.clone())),
                None => (owner.into(), subject(owner).map(Into::into)),
            },
            TenantKey::Connection(number) => (format!("connection:{number}").into(), None),
            TenantKey::Local => ("local".into(), None),
        };
        let now = Instant::now();
        let mut known = self.0.tenants.lock();
        if let Some(tenant) = known.by_key.get(&key) {
            return tenant.clone();
        }
        let quotas = known.table.quotas_for(name.as_deref());
        let id = known.next;
        known.next += 1;
        let (least, sleep) = (self.0.least_interpreter.clone(), self.0.sleep.clone());
        let tenant = Tenant::new(id, name, quotas, least, sleep);
        known.by_key.insert(key, tenant.clone());
        if now.saturating_duration_since(known.cleaned) > CLEANING_INTERVAL {
            self.count_present(&mut known, now);
        }
        tenant
    }

    /// Counts the owners that are present, and forgets those of which nothing is known.
    fn count_present(&self, known: &mut KnownTenants, now: Instant) {
        known.cleaned = now;
        known.by_key.retain(|_, tenant| tenant.is_present(PRESENCE_TTL, now) || !tenant.is_forgettable(1, now));
        let present = known.by_key.values().filter(|tenant| tenant.is_present(PRESENCE_TTL, now)).count();
        self.0.present.store(present, Ordering::Relaxed);
    }

    /// Sets how the sessions of an owner are counted that are in the table of sessions.
    pub(crate) fn set_session_counter(&self, counter: impl Fn(&Tenant) -> usize + Send + Sync + 'static) {
        // Ignore errors: a server has one table.
        let _ = self.0.session_counter.set(Box::new(counter));
    }

    /// Counts a session of Monty's protocol.
    ///
    /// # Errors
    /// Fails if the quota of sessions is used up.
    pub fn begin_session(&self, tenant: &Tenant) -> Result<SessionSlot, WorkRefusal> {
        let in_table = self.0.session_counter.get().map_or(0, |counter| counter(tenant));
        tenant.begin_session(in_table)
    }

    /// Returns the number of owners that have used the server lately.
    pub(crate) fn present(&self) -> usize {
        self.0.present.load(Ordering::Relaxed)
    }

    /// Returns the time for which calls wait at most.
    pub fn queue_timeout(&self) -> Option<Duration> {
        self.0.queue_timeout
    }

    /// Sets what the memory of the machine allows.
    pub fn set_load(&self, load: LoadState) {
        let is_normal = load == LoadState::Normal;
        *self.0.load.lock() = load;
        if !is_normal {
            self.0.sleep.notify_one();
        }
    }

    /// Returns what the memory of the machine allows.
    pub fn load(&self) -> LoadState {
        self.0.load.lock().clone()
    }

    /// Waits until idle sessions are to sleep.
    pub async fn sleep_requested(&self) {
        self.0.sleep.notified().await;
    }

    /// Admits a call of an owner, of which `max_running` can run at the same time. It counts as waiting until its work
    /// begins.
    pub(crate) fn admit(&self, tenant: &Tenant, max_running: usize) -> Result<(CallTicket, JobTicket), WorkRefusal> {
        let now = Instant::now();
        if let LoadState::Shedding(reason) = &*self.0.load.lock() {
            return Err(WorkRefusal::Overloaded { reason: reason.clone() });
        }
        let was_present = tenant.is_present(PRESENCE_TTL, now);
        tenant.begin_wait(max_running, now)?;
        let mut known = self.0.tenants.lock();
        if !was_present || now.saturating_duration_since(known.cleaned) > CLEANING_INTERVAL {
            self.count_present(&mut known, now);
        }
        drop(known);
        Ok(ticket::issue(tenant.clone()))
    }
}

/// Returns the subject of the owner of an OAuth token: `oauth:ISSUER SUBJECT`.
fn subject(owner: &str) -> Option<&str> {
    owner.strip_prefix("oauth:")?.split_once(' ').map(|(_, subject)| subject)
}

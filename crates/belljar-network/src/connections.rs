//! The network of one interpreter: names, connections, counts and records.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use belljar_core::{ConnectionRecord, UsageMeter, current_meter};
use parking_lot::Mutex;

use crate::channel::{Channel, SharedChannel};
use crate::connection::Connection;
use crate::failure::Failure;
use crate::limits::{Counts, NetworkLimits, count};
use crate::names::NameTable;
use crate::network::{Network, NetworkObserver};
use crate::policy::{Host, Policy};
use crate::refusal::{Refusal, RefusalKind};
use crate::relay::{Task, run_task};

/// Tasks of closed connections, which still send, for each connection that may be open.
const TASKS_PER_CONNECTION: usize = 4;

/// The interval at which pending records are looked at.
const RECORD_INTERVAL: Duration = Duration::from_micros(200);

/// The first synthetic local port: that of Linux.
const FIRST_PORT: u16 = 32_768;

/// The synthetic local addresses.
const LOCAL_V4: Ipv4Addr = Ipv4Addr::new(198, 19, 255, 254);
const LOCAL_V6: Ipv6Addr = Ipv6Addr::new(0xfd62, 0x656c, 0x6c6a, 0xffff, 0, 0, 0, 1);

/// The network of one interpreter.
pub struct Connections {
    pub(crate) network: Arc<Network>,
    policy: Policy,
    /// The policy once it was narrowed.
    narrowed: OnceLock<Policy>,
    pub(crate) counts: Counts,
    /// The meter of the owner of the code, if it has one.
    meter: Option<Arc<dyn UsageMeter>>,
    observer: Mutex<Arc<dyn NetworkObserver>>,
    names: Mutex<NameTable>,
    /// Connections that the code has not closed.
    open: Arc<AtomicUsize>,
    /// The beginning of the first connection of the run.
    first: Mutex<Option<Instant>>,
    /// HTTP requests whose record is not made yet.
    pub(crate) requests: AtomicUsize,
    /// The channels of running tasks.
    tasks: Mutex<HashMap<u64, SharedChannel>>,
    next: AtomicU64,
    next_port: AtomicU16,
}

/// A count of open connections, which goes down when this is dropped.
pub(crate) struct OpenHandle(Arc<AtomicUsize>);

impl Drop for OpenHandle {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Connections {
    pub(crate) fn new(network: Arc<Network>, policy: Policy, observer: Arc<dyn NetworkObserver>) -> Self {
        Self {
            network,
            policy,
            narrowed: OnceLock::new(),
            counts: Counts::default(),
            meter: current_meter(),
            observer: Mutex::new(observer),
            names: Mutex::default(),
            open: Arc::default(),
            first: Mutex::default(),
            requests: AtomicUsize::new(0),
            tasks: Mutex::default(),
            next: AtomicU64::new(0),
            next_port: AtomicU16::new(0),
        }
    }

    /// Returns the synthetic addresses of a name, the same for each call. Nothing is looked up: a name that the policy
    /// allows is looked up when the code connects to it, and other names never are. The text of an address returns
    /// that address.
    ///
    /// # Errors
    /// Returns a refusal if the policy does not allow the name on any port, or if it is not a name.
    pub fn resolve(&self, name: &str) -> Result<Vec<IpAddr>, Refusal> {
        self.resolve_for_port(name, None)
    }

    /// Returns the addresses of a name as [`Connections::resolve`] does. The port is that of the refusal's text.
    ///
    /// # Errors
    /// Returns a refusal as [`Connections::resolve`] does, and if the name is not allowed on the port.
    pub fn resolve_for_port(&self, name: &str, port: Option<u16>) -> Result<Vec<IpAddr>, Refusal> {
        let host = Host::parse(name).map_err(|reason| {
            let name: String = name.chars().take(100).collect();
            Refusal::new(RefusalKind::Name, format!("invalid name of a host `{name}`: {reason}"))
        })?;
        let name = match &host {
            Host::Address(address) => return Ok(vec![*address]),
            Host::Name(name) => name,
        };
        if !self.policy().allows(&host, port) {
            return Err(self.refuse(&host, port, None));
        }
        let addresses = self.names.lock().addresses(name, self.limits().lookups);
        addresses.map(Vec::from).ok_or_else(|| {
            let text = format!("failed to resolve {name}: more than {} names", self.limits().lookups);
            Refusal::new(RefusalKind::Limit, text)
        })
    }

    /// Returns a synthetic address of IPv4 for one of IPv6, for code without sockets of IPv6.
    ///
    /// # Errors
    /// Returns a refusal if the policy does not allow the address on the port.
    pub fn ipv4_for(&self, address: Ipv6Addr, port: Option<u16>) -> Result<IpAddr, Refusal> {
        let canonical = IpAddr::V6(address).to_canonical();
        let host = Host::Address(canonical);
        if canonical.is_ipv4() {
            return Ok(canonical);
        }
        // Code that looks names up by itself finds the synthetic addresses of IPv6.
        let name = match self.name_of(canonical) {
            Some(name) => name,
            None if !self.policy().allows(&host, port) => return Err(self.refuse(&host, port, None)),
            None => canonical.to_string(),
        };
        let addresses = self.names.lock().addresses(&name, self.limits().lookups);
        let [ipv4, _] = addresses.ok_or_else(|| {
            let text = format!("failed to resolve {name}: more than {} names", self.limits().lookups);
            Refusal::new(RefusalKind::Limit, text)
        })?;
        Ok(ipv4)
    }

    /// Returns the name or the address of IPv6 that a synthetic address is for.
    pub fn name_of(&self, address: IpAddr) -> Option<String> {
        self.names.lock().name_of(address).map(str::to_owned)
    }

    /// Begins a connection to an address that [`Connections::resolve`] returned, or to one that the policy names.
    ///
    /// # Errors
    /// Returns a refusal if the policy does not allow it or a limit is reached. Whether the connection is established,
    /// and whether the policy allows the address that the name has, is determined in the background.
    pub fn connect(self: &Arc<Self>, address: SocketAddr) -> Result<Connection, Refusal> {
        let port = address.port();
        let host = match self.name_of(address.ip()) {
            Some(name) => match name.parse::<Ipv6Addr>() {
                Ok(address) => Host::Address(address.into()),
                Err(_) => Host::Name(name),
            },
            None => Host::Address(address.ip().to_canonical()),
        };
        if !self.policy().allows(&host, Some(port)) {
            return Err(self.refuse(&host, Some(port), None));
        }
        let limits = self.limits();
        let failed = |reason: String| {
            let text = format!("failed to open a connection to {host}:{port}: {reason}");
            Refusal::new(RefusalKind::Limit, text)
        };
        if let Some(meter) = &self.meter {
            meter.check_network().map_err(failed)?;
        }
        let open = OpenHandle(Arc::clone(&self.open));
        let tasks = self.tasks.lock().len();
        if self.open.fetch_add(1, Ordering::Relaxed) >= limits.connections
            || tasks >= limits.connections.saturating_mul(TASKS_PER_CONNECTION)
        {
            return Err(failed(format!("more than {} connections at once", limits.connections)));
        }
        if !count(&self.counts.opened, 1, limits.opened) {
            return Err(failed(format!("more than {} connections", limits.opened)));
        }
        let now = Instant::now();
        let first = *self.first.lock().get_or_insert(now);
        // A time beyond the clock's range is no limit.
        let end = first.checked_add(limits.total);
        if end.is_some_and(|end| end <= now) {
            return Err(failed(format!("the network was used for more than {} seconds", limits.total.as_secs_f64())));
        }
        let end = [end, now.checked_add(limits.lifetime)].into_iter().flatten().min();
        let runtime = self.network.handle().map_err(|error| {
            Refusal::new(RefusalKind::Internal, format!("failed to start the thread of connections: {error}"))
        })?;
        let channel = Arc::new(Channel::new(self.network.token));
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.tasks.lock().insert(id, Arc::clone(&channel));
        let task = Task::new(Arc::clone(self), Arc::clone(&channel), host, port, end);
        let connections = Arc::clone(self);
        runtime.spawn(async move {
            run_task(task).await;
            connections.tasks.lock().remove(&id);
        });
        let local_port = FIRST_PORT + self.next_port.fetch_add(1, Ordering::Relaxed) % (u16::MAX - FIRST_PORT);
        let local = match address {
            SocketAddr::V4(_) => SocketAddr::from((LOCAL_V4, local_port)),
            SocketAddr::V6(_) => SocketAddr::from((LOCAL_V6, local_port)),
        };
        Ok(Connection { channel, peer: address, local, _open: open })
    }

    /// Makes `observer` the receiver of the records of connections from now on.
    pub fn set_observer(&self, observer: Arc<dyn NetworkObserver>) {
        *self.observer.lock() = observer;
    }

    /// Resets every connection: reads and writes of the code fail with `ECONNRESET`.
    pub fn close_all(&self) {
        let channels: Vec<SharedChannel> = self.tasks.lock().values().cloned().collect();
        for channel in channels {
            channel.fail(io::ErrorKind::ConnectionReset.into());
        }
    }

    /// Returns whether no connection is open or about to send its last bytes: all records were made.
    pub fn is_idle(&self) -> bool {
        self.tasks.lock().is_empty()
    }

    /// Waits until the records of requests, and of connections that the code has closed, are made, but no longer than
    /// `timeout`: the code may have received the last byte a moment before the record.
    pub fn wait_for_records(&self, timeout: Duration) {
        let start = Instant::now();
        let is_pending =
            || self.requests.load(Ordering::Acquire) > 0 || (self.open.load(Ordering::Relaxed) == 0 && !self.is_idle());
        while is_pending() && start.elapsed() < timeout {
            std::thread::sleep(RECORD_INTERVAL);
        }
    }

    /// Returns whether the code has begun a connection in this run.
    pub fn any_opened(&self) -> bool {
        self.counts.opened.load(Ordering::Relaxed) > 0
    }

    /// Begins a new run: the counts and the time of the limits start at zero. Open connections stay, with their time.
    pub fn start_run(&self) {
        self.counts.reset();
        *self.first.lock() = None;
    }

    /// Returns the bytes with which the code begins a request for TLS.
    pub fn tls_token(&self) -> [u8; 16] {
        self.network.token
    }

    /// Returns the policy of this interpreter.
    pub fn policy(&self) -> &Policy {
        self.narrowed.get().unwrap_or(&self.policy)
    }

    /// Narrows the policy: from now on, `policy` has to allow a connection, too. Returns false, and changes nothing, if
    /// that was done before.
    pub fn narrow(&self, policy: &Policy) -> bool {
        self.narrowed.set(self.policy.narrowed_by(policy)).is_ok()
    }

    /// Returns the limits of the connections of one interpreter.
    pub fn limits(&self) -> &NetworkLimits {
        &self.network.limits
    }

    /// Adds bytes that were sent or received to what the owner of the code has used.
    pub(crate) fn spend(&self, bytes: usize) -> Result<(), Failure> {
        let Some(meter) = self.meter.as_ref().filter(|_| bytes > 0) else { return Ok(()) };
        let checked = meter.check_network().map_err(Failure::Limit);
        meter.add_network(bytes as u64);
        checked
    }

    /// Passes a record to the observer.
    pub(crate) fn record(&self, record: &ConnectionRecord) {
        tracing::debug!(
            host = record.host,
            port = record.port,
            method = record.method,
            path = record.path,
            status = record.status,
            sent = record.bytes_sent,
            received = record.bytes_received,
            milliseconds = record.duration_ms,
            allowed = record.allowed,
            rule = record.rule,
            error = record.error,
            "network access"
        );
        let observer = Arc::clone(&*self.observer.lock());
        observer.on_connection(record);
    }

    /// Records a refusal by the policy and returns it.
    pub(crate) fn refuse(&self, host: &Host, port: Option<u16>, reason: Option<&str>) -> Refusal {
        let refusal = Refusal::by_policy(host, port, reason, self.policy());
        if count(&self.counts.refusals, 1, self.limits().refusals) {
            self.record(&ConnectionRecord {
                host: host.to_string(),
                port,
                error: Some(refusal.to_string()),
                ..ConnectionRecord::default()
            });
        }
        refusal
    }
}

impl std::fmt::Debug for Connections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connections").field("policy", &self.policy().summary()).finish_non_exhaustive()
    }
}

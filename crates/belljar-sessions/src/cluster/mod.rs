//! Sessions in a cluster: each is active in one replica at a time, and its files are in a store that all replicas
//! reach.
//!
//! ```text
//!  locate ─▶ owned here? ─▶ run the call
//!     │ no
//!     ▼
//!  activate: the record in the store, epoch + 1 ─▶ parts ─▶ DIR/SESSION/…  (a directory of this process alone)
//!     │ another replica owns it                                  │
//!     ▼                                                          ▼
//!  Place::Elsewhere                        after a cell: what changed in DIR/SESSION ─▶ commit, then the reply
//!                                          at rest: commit, release, and the directory is deleted
//! ```
//!
//! The rest of this crate works on the directory as it does with `--data-dir`. [`belljar_store`] has the protocol of
//! ownership; this module maps the files of a session to the parts of its state.
//!
//! | file | subject |
//! | --- | --- |
//! | `ownership` | the sessions of this replica: activated, stored, given up |
//! | `slots` | which sessions this replica owns, and which expect a call |
//! | `parts` | which files of a session have changed since the last commit |
//! | `images` | the images of sessions |
//! | `cleaning` | expired sessions, old results and unused objects |
//! | `settings` | the settings of a replica |
//! | `runs`, `run_record` | the records of runs |
//! | `remote_runs` | runs that this replica does not have: finding, listing, claiming |
//! | `maintenance` | listing, reading and deleting sessions on the command line |

mod cleaning;
mod images;
mod maintenance;
mod ownership;
mod parts;
mod remote_runs;
mod run_record;
mod runs;
mod settings;
mod slots;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use belljar_store::protocol::NodeId;
use belljar_store::{RecordCache, Replica, ReplicaOptions, SessionKey};
use hmac::{Hmac, Mac as _};
use parking_lot::Mutex;
use sha2::Sha256;
use tokio::runtime::{Handle, Runtime};
use tokio::task::JoinSet;

use crate::id::SessionId;
use crate::runs::RunId;
pub(crate) use remote_runs::FoundRun;
pub use remote_runs::RemoteRun;
pub use settings::{ClusterError, ClusterOptions, Durability};

use images::KnownImages;
use runs::SharedRunRecord;
use slots::Slot;

/// The collection and the name of the record of the key that the replicas share.
const KEY_RECORD: (&str, &str) = ("keys", "signer");
/// The length of that key, in bytes.
const KEY_LENGTH: usize = 32;
/// The number of replicas whose addresses are remembered, and of sessions whose runs are.
const MAX_ADDRESSES: usize = 10_000;

/// A replica of the cluster, as requests to it need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its ID, of letters and digits.
    pub id: String,
    /// Its address, without a slash at its end.
    pub address: Arc<str>,
}

/// The replica at which a session is active.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In this replica.
    Here,
    /// In another one.
    Elsewhere(Node),
    /// The store has no such session.
    Nowhere,
}

/// This process as a replica of a cluster. It has a runtime of its own, so that its lease is renewed whatever others
/// do.
pub struct Cluster {
    /// Taken when this is dropped.
    runtime: Option<Runtime>,
    handle: Handle,
    services: belljar_store::Cluster,
    replica: Replica,
    node: String,
    key: [u8; KEY_LENGTH],
    durability: Durability,
    session_timeout: Duration,
    run_ttl: Duration,
    max_wait: Duration,
    owned: Mutex<HashMap<SessionKey, Arc<Slot>>>,
    /// The addresses of replicas that were found.
    addresses: Mutex<HashMap<NodeId, Arc<str>>>,
    next_adoption: Mutex<Instant>,
    /// The knowledge about the records of runs that are here.
    noted_runs: Mutex<HashMap<RunId, SharedRunRecord>>,
    /// The runs whose records are to be deleted.
    forgotten_runs: Mutex<HashSet<RunId>>,
    /// The replicas that have the runs of sessions, as the records of the runs had it when they were found.
    run_nodes: Mutex<HashMap<SessionId, String>>,
    /// The records of all runs, as they were listed last.
    run_cache: tokio::sync::Mutex<RecordCache>,
    /// The runs whose results are being stored.
    completing: Mutex<JoinSet<()>>,
    images: KnownImages,
    /// Set once the lease is given up.
    has_left: AtomicBool,
}

impl Cluster {
    /// The interval between two looks for runs of replicas that have ended.
    pub const ADOPTION_INTERVAL: Duration = Duration::from_secs(15);

    /// Joins a cluster: connects, checks that the services keep their promises, and obtains a lease.
    ///
    /// # Errors
    /// Fails if a service cannot be reached, or does not keep its promises.
    pub fn join(options: ClusterOptions) -> Result<Self, ClusterError> {
        let ClusterOptions { durability, session_timeout, run_ttl, max_wait, .. } = options;
        let ClusterOptions { store, coordinator, variables, address, .. } = options;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("belljar-cluster")
            .enable_all()
            .build()?;
        let handle = runtime.handle().clone();
        let joined = wait(&handle, async {
            let services = belljar_store::Cluster::open(&store, &coordinator, &variables)?;
            services.probe().await?;
            let key = shared_key(&services).await?;
            let replica = Replica::join(&services, &address, ReplicaOptions::default()).await?;
            Ok::<_, ClusterError>((services, replica, key))
        });
        let (services, replica, key) = match joined {
            Ok(joined) => joined,
            Err(error) => {
                // It must not wait on a thread of another runtime.
                runtime.shutdown_background();
                return Err(error);
            }
        };
        let node = replica.node().to_string();
        Ok(Self {
            runtime: Some(runtime),
            handle,
            services,
            replica,
            node,
            key,
            durability,
            session_timeout,
            run_ttl,
            max_wait,
            owned: Mutex::default(),
            addresses: Mutex::default(),
            next_adoption: Mutex::new(Instant::now()),
            noted_runs: Mutex::default(),
            forgotten_runs: Mutex::default(),
            run_nodes: Mutex::default(),
            run_cache: tokio::sync::Mutex::default(),
            completing: Mutex::default(),
            images: KnownImages::default(),
            has_left: AtomicBool::new(false),
        })
    }

    /// Returns the ID of this replica.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// Returns the key that all replicas share, for signing.
    pub(crate) fn key(&self) -> [u8; KEY_LENGTH] {
        self.key
    }

    /// Signs a message for another replica.
    pub fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.mac(message).finalize().into_bytes().to_vec()
    }

    /// Returns whether a replica of this cluster has signed a message.
    pub fn is_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        self.mac(message).verify_slice(signature).is_ok()
    }

    fn mac(&self, message: &[u8]) -> Hmac<Sha256> {
        // An HMAC takes keys of any length.
        #[expect(clippy::expect_used, reason = "the length is valid")]
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("a valid length");
        mac.update(b"replicas\n");
        mac.update(message);
        mac
    }

    /// Finds a replica. Its lease may have run out since it was found first.
    pub async fn find_node(&self, id: &str) -> Option<Node> {
        let node = NodeId::parse(id)?;
        let known = self.addresses.lock().get(&node).cloned();
        let address = match known {
            Some(address) => address,
            None => {
                let address = self.replica.find(node).await.ok()??;
                let mut addresses = self.addresses.lock();
                if addresses.len() >= MAX_ADDRESSES {
                    addresses.clear();
                }
                addresses.insert(node, address.clone());
                address
            }
        };
        Some(Node { id: id.to_owned(), address })
    }

    /// Forgets the address of a replica whose lease has run out, so that it is not found any more.
    pub fn forget_node(&self, id: &str) {
        if let Some(node) = NodeId::parse(id) {
            self.addresses.lock().remove(&node);
        }
    }

    /// Returns whether the lease of a replica runs. A store that cannot be reached proves nothing.
    pub async fn is_alive(&self, id: &str) -> bool {
        let Some(node) = NodeId::parse(id) else { return false };
        !matches!(self.replica.find(node).await, Ok(None))
    }

    /// Returns the reason why this replica accepts no sessions, or `None` if it accepts them.
    pub fn refusal(&self) -> Option<String> {
        self.replica.check().err().map(|error| error.to_string())
    }

    /// Waits until this replica has lost its lease: it owns nothing any more, and has to end. Waits for ever if it has
    /// given the lease up.
    pub async fn fenced(&self) {
        // Fails if the replica is gone, which is the same.
        drop(self.replica.fenced().wait_for(|fenced| *fenced).await);
        if self.has_left.load(Ordering::Relaxed) {
            std::future::pending().await
        }
    }

    /// Returns whether it is time to look for runs of replicas that have ended, and sets the next time.
    pub(crate) fn is_adoption_due(&self) -> bool {
        let (mut next, now) = (self.next_adoption.lock(), Instant::now());
        let is_due = now >= *next;
        if is_due {
            *next = now + Self::ADOPTION_INTERVAL;
        }
        is_due
    }

    /// Returns when calls are answered.
    pub(crate) fn durability(&self) -> Durability {
        self.durability
    }

    /// Runs a future on the cluster's runtime. Returns `None` if the runtime ends.
    async fn spawn<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Option<T> {
        self.handle.spawn(work).await.ok()
    }

    /// Does something on a thread that may block.
    pub(crate) fn run_blocking(&self, work: impl FnOnce() + Send + 'static) {
        self.handle.spawn_blocking(work);
    }

    /// Leaves the cluster as [`Cluster::leave`] does. Blocks.
    pub fn end(&self) {
        wait(&self.handle, self.leave());
    }

    /// Leaves the cluster: gives up the lease, so that others need not wait until it has run out.
    pub async fn leave(&self) {
        self.has_left.store(true, Ordering::Relaxed);
        let replica = self.replica.clone();
        let left = self.spawn(async move { replica.leave().await }).await;
        if let Some(Err(error)) = left {
            tracing::warn!(%error, "failed to give up the lease: other replicas wait until it has run out");
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // A runtime that is dropped on a thread of another one must not wait.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Waits for a future on a thread of its own: the caller may be a task of another runtime, which must not block on this
/// one.
fn wait<T: Send>(handle: &Handle, work: impl Future<Output = T> + Send) -> T {
    std::thread::scope(|scope| match scope.spawn(|| handle.block_on(work)).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// Returns the key in the store. The first replica creates it.
async fn shared_key(services: &belljar_store::Cluster) -> Result<[u8; KEY_LENGTH], ClusterError> {
    let mut key = [0; KEY_LENGTH];
    getrandom::fill(&mut key).map_err(std::io::Error::other)?;
    let (collection, name) = KEY_RECORD;
    let records = services.records(collection)?;
    if records.put(name, None, &key).await?.is_some() {
        return Ok(key);
    }
    let found = records.get(name).await?.ok_or(ClusterError::Key)?;
    <[u8; KEY_LENGTH]>::try_from(&*found.value).map_err(|_| ClusterError::Key)
}

#[cfg(test)]
mod tests;

//! Sessions in a cluster: their state on object storage, and the one replica that owns each.
//!
//! A *store* holds the state of sessions, images and small records. A *coordinator* decides which replica owns a
//! session: etcd, or the store itself by conditional writes. This crate knows nothing of Python, HTTP or MCP.
//!
//! ```text
//!   Replica::activate ──▶ Ownership::commit ──▶ … ──▶ Ownership::release
//!        │                      │                          │
//!        │ record, epoch + 1    │ 1. blob of what changed  │ record without owner
//!        ▼                      │ 2. record, sequence + 1  ▼
//!   ┌─────────────────── records: etcd or the store ───────────────────┐   ┌──── blobs: the store ────┐
//!   │ sessions/KEY: owner, epoch, sequence, parts, facts, last commits │──▶│ state/KEY/e3-17-WRITE    │
//!   │ nodes/NODE: the lease of a replica                               │   │ images/DIGEST/WRITE      │
//!   └──────────────────────────────────────────────────────────────────┘   └──────────────────────────┘
//! ```
//!
//! The second write of a commit is conditional: it succeeds only if the record is the one that this owner wrote last.
//! So it is at once the commit point and the confirmation of ownership. `docs/cluster.md` has the whole design.
//!
//! | file | subject |
//! | --- | --- |
//! | `protocol` | the decisions, as pure functions of a state and an event |
//! | `driver`, `registers` | carries out these decisions, on registers in etcd or in the store |
//! | `replica`, `ownership`, `sessions` | a replica's lease; an owned session and its commits; all sessions |
//! | `content`, `objects`, `images`, `records` | what is stored: parts of sessions, objects, images, small records |
//! | `collect` | deletion of what nothing refers to |
//! | `cluster`, `address`, `probe` | the connection to the services, their URLs, and the check of their promises |
//! | `names`, `text_form`, `deadline`, `error` | names and IDs, their text, bounds of operations, errors |
//!
//! # Use
//! - [`Cluster::open`] connects, and [`Cluster::probe`] checks that the services keep their promises.
//! - [`Replica::join`] obtains the lease of this process and renews it in the background, until it cannot:
//!   [`Replica::fenced`] then fires, and all operations fail with [`StoreError::Fenced`].
//! - [`Replica::create`] and [`Replica::activate`] return an [`Ownership`], which commits [`Changes`].
//! - [`Cluster::sessions`] lists sessions, [`Cluster::records`] has small records with conditional writes,
//!   [`Cluster::images`] content by its digest. [`Replica::delete`] deletes a session, exactly once, and
//!   [`Replica::collect`] what nothing refers to.
//!
//! All operations are asynchronous, need a Tokio runtime with timers, and have a bound: 30 seconds, 20 seconds for a
//! commit, and one second more for each MiB. They can be dropped at any time; a commit that is dropped counts as
//! [`CommitError::Unknown`].
//!
//! # Choices
//! - A session consists of named *parts*. A commit writes one blob with the parts that changed, and appended pieces;
//!   the record refers to earlier blobs for the rest. So large parts that do not change are not written again.
//! - The lease is one per replica and not per session: 10,000 sessions cost no requests.
//! - To take sessions over, a replica first ends the lease of their owner by a conditional write on the owner's record.
//!   One such write frees all sessions of a replica that has crashed.

#[macro_use]
mod text_form;

mod address;
mod cluster;
mod collect;
mod content;
mod deadline;
mod driver;
mod error;
mod images;
mod names;
mod objects;
mod ownership;
mod probe;
pub mod protocol;
mod records;
mod registers;
mod replica;
mod sessions;

pub use address::{ClusterUrl, EtcdTls, EtcdUrl, StoreKind, StoreUrl, UrlError, Variables};
pub use cluster::{Cluster, OpenError};
pub use collect::{CollectOptions, CollectionReport};
pub use content::{Changes, Facts};
pub use error::{CommitError, StoreError};
pub use images::Images;
pub use names::{Digest, SessionKey};
pub use object_store;
pub use objects::Requests;
pub use ownership::Ownership;
pub use probe::ProbeError;
pub use records::{Record, RecordCache, RecordVersion, Records};
pub use replica::{Replica, ReplicaOptions};
pub use sessions::{Activation, Deletion, Header, HeaderCache, Sessions};

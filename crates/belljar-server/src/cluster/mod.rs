//! Requests in a cluster: any replica answers any request, and forwards those that another one has to handle.
//!
//! ```text
//!  client ─▶ load balancer ─▶ any replica: guard ─▶ body ─▶ affinity ─▶ forward ─▶ handler
//!                                            │           │                 │
//!                       checks a signature ◀─┘           │                 └─ the kernel session is active elsewhere
//!                       instead of a token               └─ the MCP session was opened elsewhere
//!                                │                                         │
//!                                └──────── the replica that has it ◀───────┘  signed, with the client's identity
//! ```
//!
//! - An **MCP session** of streamable HTTP lives in the replica that opened it. Its ID names that replica.
//! - A **kernel session** is active in one replica at a time (docs/cluster.md). A request without an MCP session, that
//!   is of the modern era, is forwarded to it. A client with an MCP session has its streams in one replica, which takes
//!   the kernel session over instead.
//!
//! | file | subject |
//! | --- | --- |
//! | `affinity` | requests of MCP sessions |
//! | `forward` | requests that use kernel sessions |
//! | `takeover` | sessions that a client over standard streams uses: its replica takes them over |
//! | `replica_client` | a request to another replica, and its answer |
//! | `signature` | requests between replicas are signed |
//! | `routes` | what replicas ask of each other, and whether this one is ready |

mod affinity;
mod forward;
mod replica_client;
mod routes;
mod signature;
mod takeover;

pub(crate) use affinity::affinity;
pub(crate) use forward::{Forwarder, UsedRun, UsedSession, forward};
pub(crate) use replica_client::ReplicaClient;
pub(crate) use routes::{readiness, routes};
pub(crate) use signature::{ForwardedRequest, check_body, verify};
pub(crate) use takeover::{RequestSubject, SessionTakeover};

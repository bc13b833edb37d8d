//! Requests in a cluster: any replica answers any request, and passes on those that another one has to handle.
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
//!   is of the modern era, is passed on to it. A client with an MCP session has its streams in one replica, which takes
//!   the kernel session over instead.
//!
//! | file | subject |
//! | --- | --- |
//! | `affinity` | requests of MCP sessions |
//! | `forward` | requests that use kernel sessions |
//! | `bring` | sessions that a client over standard streams uses, which come to its replica |
//! | `pass` | passing a request on, and its answer back |
//! | `signature` | requests between replicas are signed |
//! | `routes` | what replicas ask of each other, and whether this one is ready |

mod affinity;
mod bring;
mod forward;
mod pass;
mod routes;
mod signature;

pub(crate) use affinity::affinity;
pub(crate) use bring::{Bringer, Named};
pub(crate) use forward::{Forwarder, UsedRun, UsedSession, forward};
pub(crate) use pass::Passer;
pub(crate) use routes::{readiness, routes};
pub(crate) use signature::{PassedOn, check_body, verify};

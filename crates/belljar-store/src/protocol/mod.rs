//! The decisions of the protocol of ownership, as pure functions of a state and an event.
//!
//! There is no input or output here, no clock and no randomness: times and random numbers arrive in events, and a
//! driver carries out the commands. So the same code runs in servers, in a simulation of random schedules, and in a
//! model checker.
//!
//! | file | subject |
//! | --- | --- |
//! | `record` | the records of sessions and replicas |
//! | `operation` | one operation on the record of a session: a conditional write, and what a lost answer means |
//! | `lease` | the lease of this replica: when it is renewed, and when the replica stops itself |
//! | `observer` | the leases of other replicas, without clocks that must agree |
//!
//! # Invariants
//! - A record changes only by a conditional write that names the record before it by its unique [`WriteId`].
//! - The ID of a write stands for one record, over one record before it.
//! - A commit writes the record of the session. It succeeds only if the record is still the one that the owner wrote
//!   last, so that it confirms the ownership and stores the state in one step.
//! - The fencing epoch grows by one at each activation, so that two owners never have the same epoch.
//! - The lease decides only who may *try*. A replica whose lease has run out and that does not know it fails at its
//!   next conditional write.

mod lease;
mod observer;
mod operation;
mod record;

pub use lease::{Lease, LeaseCommand, LeaseEvent, LeaseTimes};
pub use observer::{Observer, Verdict};
pub use operation::{Command, Event, Intent, Operation, Outcome};
pub use record::{NodeId, NodeRecord, NodeState, Owner, SessionRecord, Status, WriteId};

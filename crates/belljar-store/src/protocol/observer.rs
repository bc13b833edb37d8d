//! The leases of other replicas, without clocks that must agree.
//!
//! The record of a replica has no time in it. An observer notes when it first *received* a record, by its own monotonic
//! clock, and declares the lease over if a read that was *sent* a whole lease later finds the same record. To declare
//! it over is itself a conditional write, of the state [`NodeState::Fenced`]: either it happens, or the replica has
//! renewed its lease.

use std::collections::BTreeMap;
use std::time::Duration;

use super::lease::LeaseTimes;
use super::record::{NodeId, NodeRecord, NodeState, WriteId};

/// The maximum number of replicas that are observed at a time.
const MAX_OBSERVED: usize = 10_000;

/// The finding about a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Its lease may run.
    Alive,
    /// Its lease has ended, for good.
    Gone,
    /// Its lease has run out. It is over once the state [`NodeState::Fenced`] is written over this record.
    Expired(WriteId),
}

/// The findings about the leases of other replicas.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Observer {
    times: LeaseTimes,
    seen: BTreeMap<NodeId, (WriteId, Duration)>,
}

impl Observer {
    /// Returns an observer that has seen no replica.
    #[must_use]
    pub fn new(times: LeaseTimes) -> Self {
        Self { times, seen: BTreeMap::new() }
    }

    /// Decides on the record of a replica, which was read by a request `sent` and `received` at these times.
    pub fn observe(
        &mut self,
        node: NodeId,
        record: Option<&NodeRecord>,
        sent: Duration,
        received: Duration,
    ) -> Verdict {
        let alive = record.filter(|record| record.state == NodeState::Alive);
        let Some(record) = alive else {
            self.seen.remove(&node);
            return Verdict::Gone;
        };
        match self.seen.get(&node) {
            Some((write, since)) if *write == record.write => {
                if sent.saturating_sub(*since) >= self.times.length {
                    Verdict::Expired(*write)
                } else {
                    Verdict::Alive
                }
            }
            _ => {
                if self.seen.len() >= MAX_OBSERVED {
                    self.seen.clear();
                }
                self.seen.insert(node, (record.write, received));
                Verdict::Alive
            }
        }
    }
}

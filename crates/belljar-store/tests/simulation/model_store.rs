//! The store of the simulation: records with conditional writes, blobs, and leases of the coordinator.

use std::collections::HashMap;

use belljar_store::protocol::{NodeId, NodeRecord, NodeState, SessionRecord, WriteId};

use crate::Defect;

/// A number of a client's request, unique in a schedule.
pub(crate) type Op = u32;
/// The name of a blob.
pub(crate) type Blob = (usize, u64, u64, u128);
/// The content of a session's record: its blob.
pub(crate) type Payload = Option<Blob>;
pub(crate) type Record = SessionRecord<Payload>;

/// A request to the store.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    Read {
        session: usize,
    },
    Write {
        session: usize,
        expected: Option<WriteId>,
        record: Record,
        guard: Option<NodeId>,
    },
    ReadNode {
        node: NodeId,
    },
    WriteNode {
        node: NodeId,
        expected: Option<WriteId>,
        record: NodeRecord,
    },
    /// Renews a lease of the coordinator, which runs by its clock.
    KeepAlive {
        node: NodeId,
    },
    PutBlob {
        blob: Blob,
        ops: Vec<Op>,
    },
    GetBlob {
        blob: Blob,
    },
    DeleteBlob {
        blob: Blob,
    },
    /// Deletes the unused blobs of a session's earlier epochs.
    Sweep {
        session: usize,
        epoch: u64,
        used: Payload,
    },
}

/// An answer of the store.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Record(Option<Record>),
    Node(Option<NodeRecord>),
    Blob(Option<Vec<Op>>),
    Written,
    Conflict,
    Fenced,
}

#[derive(Default)]
pub(crate) struct Store {
    pub(crate) sessions: HashMap<usize, Record>,
    pub(crate) nodes: HashMap<NodeId, NodeRecord>,
    /// The ends of the coordinator's leases.
    pub(crate) leases: HashMap<NodeId, u64>,
    pub(crate) blobs: HashMap<Blob, Vec<Op>>,
    pub(crate) lease_length: u64,
    pub(crate) has_leases: bool,
    /// The times of the last renewals by the clocks of their replicas, for the defect that compares them.
    pub(crate) stamps: HashMap<NodeId, i64>,
}

impl Store {
    fn has_lease(&self, node: NodeId, now: u64) -> bool {
        self.leases.get(&node).is_some_and(|end| now < *end)
    }

    pub(crate) fn apply(&mut self, request: Request, now: u64, defect: Option<Defect>) -> Reply {
        match request {
            Request::Read { session } => Reply::Record(self.sessions.get(&session).cloned()),
            Request::Write { session, expected, record, guard } => {
                let found = self.sessions.get(&session).map(|record| record.write);
                if found != expected && defect != Some(Defect::UnconditionalWrites) {
                    return Reply::Conflict;
                }
                if self.has_leases && guard.is_some_and(|node| !self.has_lease(node, now)) {
                    return Reply::Fenced;
                }
                self.sessions.insert(session, record);
                Reply::Written
            }
            Request::ReadNode { node } if self.has_leases => {
                let is_alive = self.has_lease(node, now);
                Reply::Node(is_alive.then(|| NodeRecord {
                    write: WriteId(0),
                    state: NodeState::Alive,
                    address: "".into(),
                }))
            }
            Request::ReadNode { node } => Reply::Node(self.nodes.get(&node).cloned()),
            Request::WriteNode { node, expected, record } => {
                if self.nodes.get(&node).map(|record| record.write) != expected {
                    return Reply::Conflict;
                }
                self.nodes.insert(node, record);
                Reply::Written
            }
            Request::KeepAlive { node } => {
                if !self.has_lease(node, now) {
                    return Reply::Conflict;
                }
                self.leases.insert(node, now + self.lease_length);
                Reply::Written
            }
            Request::PutBlob { blob, ops } => {
                self.blobs.insert(blob, ops);
                Reply::Written
            }
            Request::GetBlob { blob } => Reply::Blob(self.blobs.get(&blob).cloned()),
            Request::DeleteBlob { blob } => {
                self.blobs.remove(&blob);
                Reply::Written
            }
            Request::Sweep { session, epoch, used } => {
                let bound = if defect == Some(Defect::SweepOfAllEpochs) { u64::MAX } else { epoch };
                self.blobs.retain(|blob, _| blob.0 != session || blob.1 >= bound || Some(*blob) == used);
                Reply::Written
            }
        }
    }
}

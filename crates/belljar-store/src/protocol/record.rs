//! The records of sessions and replicas.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The number of commits whose IDs a record has. A commit whose answer was lost is recognised as long as not more than
/// these follow it.
pub(super) const MAX_RECENT: usize = 8;

macro_rules! random_id {
    ($(#[$attribute:meta])* $name:ident) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u128);

        impl $name {
            /// Parses 32 hexadecimal digits.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                let is_plain = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
                is_plain.then(|| u128::from_str_radix(text, 16).ok().map(Self)).flatten()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "{:032x}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "{:x}", self.0)
            }
        }

        serde_as_text!($name, "32 hexadecimal digits");
    };
}

random_id! {
    /// The ID of a replica: random, and new at each start of the process.
    NodeId
}

random_id! {
    /// The ID of one write of a record: random, and never used for another write. It tells apart records of the same
    /// content, and shows a replica whether the record that it reads is the one that it wrote.
    WriteId
}

/// The replica that owns a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Owner {
    /// The replica.
    pub node: NodeId,
    /// The address at which other replicas reach it.
    pub address: Arc<str>,
}

/// The status of a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "is")]
pub enum Status {
    /// A replica executes it.
    Owned(Owner),
    /// It has no owner: any replica may activate it.
    Asleep,
    /// It was deleted. The record stays until it is collected, so that a late write cannot restore the session.
    Deleted,
}

/// The record of a session. `P` is what the session consists of, which the protocol does not look at.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SessionRecord<P> {
    /// The write of this record.
    pub write: WriteId,
    /// The status.
    pub status: Status,
    /// The fencing epoch: the number of activations.
    pub epoch: u64,
    /// The number of commits.
    pub sequence: u64,
    /// The last commits, the newest at the end.
    pub recent: Vec<WriteId>,
    /// The content.
    pub payload: P,
}

impl<P> SessionRecord<P> {
    /// Returns the replica that owns the session.
    #[must_use]
    pub fn owner(&self) -> Option<&Owner> {
        match &self.status {
            Status::Owned(owner) => Some(owner),
            Status::Asleep | Status::Deleted => None,
        }
    }

    /// Returns whether a node owns the session.
    #[must_use]
    pub fn is_owned_by(&self, node: NodeId) -> bool {
        self.owner().is_some_and(|owner| owner.node == node)
    }

    pub(super) fn push_commit(&mut self, write: WriteId) {
        if self.recent.len() == MAX_RECENT {
            self.recent.remove(0);
        }
        self.recent.push(write);
        self.sequence += 1;
    }
}

/// The state of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It renews its lease.
    Alive,
    /// Another replica has declared its lease over. Final.
    Fenced,
}

/// The record of a replica.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NodeRecord {
    /// The write of this record, which changes at each renewal.
    pub write: WriteId,
    /// The state.
    pub state: NodeState,
    /// The address at which other replicas reach it.
    pub address: Arc<str>,
}

//! The questions of the code of a cell to operators.

use std::collections::BTreeMap;

use tokio::sync::OwnedSemaphorePermit;

/// Receives the answer to a question: a line, or `None` if it is declined.
pub(super) type Reply = Box<dyn FnOnce(Option<String>) + Send>;

/// A question that waits for an operator's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellQuestion {
    /// The number of the question in its cell.
    pub number: u64,
    /// The text. Code and servers have written parts of it.
    pub message: String,
    /// True if the question is about a call of a tool.
    pub is_approval: bool,
}

/// The number of bytes that a question counts in addition to its text.
const QUESTION_BYTES: usize = 200;

/// The open questions of a cell.
#[derive(Default)]
pub(super) struct Questions {
    next: u64,
    open: BTreeMap<u64, Open>,
}

struct Open {
    message: String,
    is_approval: bool,
    reply: Reply,
    _permit: OwnedSemaphorePermit,
}

impl Questions {
    /// Puts a question, which keeps `permit` while it is open. Returns its number.
    pub(super) fn ask(
        &mut self,
        message: String,
        is_approval: bool,
        reply: Reply,
        permit: OwnedSemaphorePermit,
    ) -> u64 {
        self.next += 1;
        self.open.insert(self.next, Open { message, is_approval, reply, _permit: permit });
        self.next
    }

    /// Returns the size in bytes.
    pub(super) fn size(&self) -> usize {
        self.open.values().map(|open| QUESTION_BYTES + open.message.len()).sum()
    }

    /// Removes a question that is answered now, and returns the receiver of the answer.
    pub(super) fn take(&mut self, number: u64) -> Option<Reply> {
        self.open.remove(&number).map(|open| open.reply)
    }

    pub(super) fn clear(&mut self) {
        self.open.clear();
    }

    pub(super) fn open(&self) -> Vec<CellQuestion> {
        let question = |(number, open): (&u64, &Open)| CellQuestion {
            number: *number,
            message: open.message.clone(),
            is_approval: open.is_approval,
        };
        self.open.iter().map(question).collect()
    }
}

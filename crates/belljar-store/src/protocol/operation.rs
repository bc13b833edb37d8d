//! One operation on the record of a session: a conditional write, and what a lost answer means.
//!
//! ```text
//!            ┌─────────┐ record  ┌───────────┐ gone, or no owner ┌─────────┐ written
//!  ─────────▶│ Reading ├────────▶│ Observing ├──────────────────▶│ Writing ├─────────▶ finished
//!            └────▲────┘         └─────┬─────┘                   └──┬───▲──┘
//!                 │                    │ alive                conflict│   │ the record is still the
//!                 │                    ▼                      unknown │   │ one before the write
//!                 │                elsewhere                       ┌──▼───┴─────┐
//!                 └────────────────────────────────────────────────┤ Confirming ├──────▶ finished
//!                  raced: another operation begins                 └────────────┘
//! ```
//!
//! After an answer other than success the record is read. The write has happened if the record has its ID, or names it
//! among the last commits; it can no longer happen if the record is neither that nor the one before it.
//!
//! An operation sends one record only, over one record before it. After a lost race another operation begins, with the
//! ID of another write: with the same ID, a late request of a third replica, which names this write as the one before
//! its own, could be carried out over the second record.

use super::record::{MAX_RECENT, NodeId, Owner, SessionRecord, Status, WriteId};

/// The purpose of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Intent<P> {
    /// Creates the session, owned by this replica.
    Create {
        /// The content.
        payload: P,
    },
    /// Makes this replica the owner.
    Activate,
    /// Replaces the content of a session that this replica owns.
    Commit {
        /// The record that the owner wrote last.
        held: SessionRecord<P>,
        /// The new content.
        payload: P,
        /// True if the session has no owner afterwards.
        release: bool,
    },
    /// Gives the session up.
    Release {
        /// The record that the owner wrote last.
        held: SessionRecord<P>,
    },
    /// Deletes the session, unless another live replica owns it.
    Delete {
        /// The content of the record of the deleted session.
        payload: P,
    },
}

/// The result of a command.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event<P> {
    /// The operation begins, or the pause is over.
    Resumed,
    /// The record was read.
    Record(Option<SessionRecord<P>>),
    /// The record could not be read.
    ReadFailed,
    /// The write has happened.
    Written,
    /// The store has refused the write since the record is not the expected one.
    Conflict,
    /// It is unknown whether the write has happened, or will.
    Unknown,
    /// The store has refused the write for another reason, and always will.
    Refused,
    /// The lease of the owner runs.
    OwnerAlive,
    /// The lease of the owner has ended, for good.
    OwnerGone,
    /// The time for the operation is over.
    TimedOut,
}

/// A command to the driver.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Command<P> {
    /// Reads the record.
    Read,
    /// Determines whether the lease of a replica runs.
    Observe(Owner),
    /// Writes the record, if the present one was written by `expected`, or does not exist.
    Write {
        /// The write of the present record.
        expected: Option<WriteId>,
        /// The new record.
        record: SessionRecord<P>,
    },
    /// Waits, for longer at each attempt.
    Pause {
        /// The number of pauses before.
        attempt: u32,
    },
    /// Ends the operation.
    Finish(Outcome<P>),
}

/// The end of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outcome<P> {
    /// The record was written.
    Done(SessionRecord<P>),
    /// The commit was written, but the session has another owner since.
    DoneAndLost,
    /// The session does not exist.
    Missing,
    /// The session exists already.
    Exists,
    /// Another replica owns the session and its lease runs.
    Elsewhere(Owner),
    /// This replica does not own the session any more; nothing was written.
    Lost,
    /// Another replica has written the record first, or over this write: the caller begins a new operation, with the
    /// ID of another write.
    Raced,
    /// Nothing was written, since the store did not answer, or refused.
    Failed,
    /// The store has not answered in time: the record may have been written, or may yet be.
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Step<P> {
    Begin,
    Reading,
    Observing(SessionRecord<P>),
    Writing { expected: Option<WriteId>, record: SessionRecord<P> },
    Confirming { expected: Option<WriteId>, record: SessionRecord<P> },
    Finished,
}

/// An operation on the record of a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Operation<P> {
    me: Owner,
    write: WriteId,
    intent: Intent<P>,
    step: Step<P>,
    attempt: u32,
}

impl<P: Clone> Operation<P> {
    /// Returns an operation of a replica. The ID of its write must be new.
    #[must_use]
    pub fn new(me: Owner, write: WriteId, intent: Intent<P>) -> Self {
        Self { me, write, intent, step: Step::Begin, attempt: 0 }
    }

    /// Returns the next command. The first event is [`Event::Resumed`].
    pub fn on(&mut self, event: Event<P>) -> Command<P> {
        if matches!(event, Event::TimedOut) {
            return self.time_out();
        }
        match (std::mem::replace(&mut self.step, Step::Finished), event) {
            (Step::Begin, Event::Resumed) => self.begin(),
            (Step::Reading, Event::Resumed) => self.read(),
            (Step::Reading, Event::Record(record)) => self.decide(record),
            (Step::Reading, Event::ReadFailed) => self.pause(Step::Reading),
            (Step::Observing(record), Event::OwnerGone) => self.write_over(&record),
            (Step::Observing(record), Event::OwnerAlive) => match record.status {
                Status::Owned(owner) => self.finish(Outcome::Elsewhere(owner)),
                Status::Asleep | Status::Deleted => self.finish(Outcome::Failed),
            },
            (Step::Observing(_), Event::ReadFailed) => self.pause(Step::Reading),
            (Step::Writing { expected, record }, Event::Resumed) => self.send(expected, record),
            (Step::Writing { record, .. }, Event::Written) => self.finish(Outcome::Done(record)),
            // A conflict is confirmed, too: the transport may have sent the write twice.
            (Step::Writing { expected, record }, Event::Conflict | Event::Unknown) => {
                self.step = Step::Confirming { expected, record };
                Command::Read
            }
            // Only the first attempt can be refused without doubt about an earlier one.
            (Step::Writing { .. }, Event::Refused) if self.attempt == 0 => self.finish(Outcome::Failed),
            (Step::Writing { .. }, Event::Refused) => self.finish(Outcome::Unknown),
            (Step::Confirming { expected, record }, Event::Resumed) => {
                self.step = Step::Confirming { expected, record };
                Command::Read
            }
            (Step::Confirming { expected, record }, Event::ReadFailed) => {
                self.pause(Step::Confirming { expected, record })
            }
            (Step::Confirming { expected, record }, Event::Record(found)) => self.confirm(expected, record, found),
            // A driver sends no other events.
            _ => self.finish(Outcome::Unknown),
        }
    }

    fn begin(&mut self) -> Command<P> {
        match &self.intent {
            Intent::Create { payload } => {
                let record = SessionRecord {
                    write: self.write,
                    status: Status::Owned(self.me.clone()),
                    epoch: 1,
                    sequence: 0,
                    recent: Vec::new(),
                    payload: payload.clone(),
                };
                self.send(None, record)
            }
            Intent::Commit { held, payload, release } => {
                let mut record = SessionRecord { write: self.write, payload: payload.clone(), ..held.clone() };
                record.push_commit(self.write);
                if *release {
                    record.status = Status::Asleep;
                }
                let expected = held.write;
                self.send(Some(expected), record)
            }
            Intent::Release { held } => {
                let record = SessionRecord { write: self.write, status: Status::Asleep, ..held.clone() };
                let expected = held.write;
                self.send(Some(expected), record)
            }
            Intent::Activate | Intent::Delete { .. } => self.read(),
        }
    }

    /// Decides on the record that was read for an activation or a deletion.
    fn decide(&mut self, record: Option<SessionRecord<P>>) -> Command<P> {
        let Some(record) = record else { return self.finish(Outcome::Missing) };
        match &record.status {
            Status::Deleted => self.finish(Outcome::Missing),
            Status::Owned(owner) if owner.node != self.me.node => {
                let owner = owner.clone();
                self.step = Step::Observing(record);
                Command::Observe(owner)
            }
            Status::Owned(_) | Status::Asleep => self.write_over(&record),
        }
    }

    fn write_over(&mut self, found: &SessionRecord<P>) -> Command<P> {
        let mut record = SessionRecord { write: self.write, ..found.clone() };
        if let Intent::Delete { payload } = &self.intent {
            record.status = Status::Deleted;
            record.payload = payload.clone();
        } else {
            record.status = Status::Owned(self.me.clone());
            record.epoch += 1;
        }
        self.send(Some(found.write), record)
    }

    /// Decides on the record that was read after a write whose effect is not known.
    fn confirm(
        &mut self,
        expected: Option<WriteId>,
        record: SessionRecord<P>,
        found: Option<SessionRecord<P>>,
    ) -> Command<P> {
        let found_write = found.as_ref().map(|found| found.write);
        if found_write == Some(record.write) {
            return self.finish(Outcome::Done(record));
        }
        if found_write == expected {
            // The write has not happened, and may yet: the same write is sent again, so that it happens once at most.
            return self.pause(Step::Writing { expected, record });
        }
        match (&self.intent, found) {
            (Intent::Create { .. }, Some(_)) => self.finish(Outcome::Exists),
            (Intent::Commit { held, .. }, Some(found)) => {
                let has_happened = found.recent.contains(&self.write);
                let is_forgotten = found.sequence > held.sequence + MAX_RECENT as u64;
                self.finish(match (has_happened, is_forgotten) {
                    (true, _) => Outcome::DoneAndLost,
                    (false, true) => Outcome::Unknown,
                    (false, false) => Outcome::Lost,
                })
            }
            // Deleted, and the record collected.
            (Intent::Commit { .. }, None) => self.finish(Outcome::Unknown),
            (Intent::Release { .. }, _) => self.finish(Outcome::Lost),
            (Intent::Create { .. } | Intent::Activate | Intent::Delete { .. }, _) => self.finish(Outcome::Raced),
        }
    }

    fn read(&mut self) -> Command<P> {
        self.step = Step::Reading;
        Command::Read
    }

    fn send(&mut self, expected: Option<WriteId>, record: SessionRecord<P>) -> Command<P> {
        self.step = Step::Writing { expected, record: record.clone() };
        Command::Write { expected, record }
    }

    fn pause(&mut self, step: Step<P>) -> Command<P> {
        self.step = step;
        self.attempt += 1;
        Command::Pause { attempt: self.attempt - 1 }
    }

    fn finish(&mut self, outcome: Outcome<P>) -> Command<P> {
        self.step = Step::Finished;
        Command::Finish(outcome)
    }

    fn time_out(&mut self) -> Command<P> {
        let step = std::mem::replace(&mut self.step, Step::Finished);
        self.finish(match step {
            Step::Begin | Step::Reading | Step::Observing(_) => Outcome::Failed,
            Step::Writing { .. } | Step::Confirming { .. } | Step::Finished => Outcome::Unknown,
        })
    }

    /// Returns the node whose operation it is.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.me.node
    }
}

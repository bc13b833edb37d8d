//! Carries out the commands of operations on the records of sessions.

use crate::content::Content;
use crate::deadline::Deadline;
use crate::error::StoreError;
use crate::names::{self, SessionKey};
use crate::protocol::{Command, Event, Intent, Operation, Outcome, SessionRecord, Status, WriteId};
use crate::registers::{Answer, RegisterValue, Version};
use crate::replica::{Finding, Shared};

/// The number of lost races after which an operation gives up.
const MAX_RACES: u32 = 8;

/// A record and its version.
#[derive(Debug, Clone)]
pub(crate) struct Versioned {
    pub(crate) record: SessionRecord<Content>,
    pub(crate) version: Version,
}

/// The end of an operation.
pub(crate) struct OperationEnd {
    pub(crate) outcome: Outcome<Content>,
    /// The version of the record that was written.
    pub(crate) version: Option<Version>,
    /// The last error of the store.
    pub(crate) error: Option<StoreError>,
    /// True if the session had an owner when it was read.
    pub(crate) was_owned: bool,
}

impl OperationEnd {
    /// Returns the error of an operation that has failed.
    pub(crate) fn failure(self, operation: &str) -> StoreError {
        self.error.unwrap_or_else(|| StoreError::unavailable(operation, "no answer in time"))
    }
}

/// Runs operations until one of them does not lose a race. `held` is the version of the record that the owner wrote
/// last.
pub(crate) async fn run(
    shared: &Shared,
    key: &SessionKey,
    intent: Intent<Content>,
    held: Option<(WriteId, Version)>,
    deadline: Deadline,
) -> Result<OperationEnd, StoreError> {
    for attempt in 0..MAX_RACES {
        let end = run_once(shared, key, intent.clone(), held.clone(), deadline).await?;
        if end.outcome != Outcome::Raced || !deadline.pause(attempt).await {
            return Ok(end);
        }
    }
    Err(StoreError::unavailable("write the record of a session", "other replicas write it"))
}

async fn run_once(
    shared: &Shared,
    key: &SessionKey,
    intent: Intent<Content>,
    held: Option<(WriteId, Version)>,
    deadline: Deadline,
) -> Result<OperationEnd, StoreError> {
    let name = names::session(key);
    let registers = &shared.cluster.registers;
    // A deletion needs no lease of this replica, and the others are refused by etcd without it.
    let guard = (!matches!(intent, Intent::Delete { .. })).then_some(shared.me.node);
    let mut operation = Operation::new(shared.me.clone(), names::new_write()?, intent);
    let mut known = held;
    let mut end = OperationEnd { outcome: Outcome::Failed, version: None, error: None, was_owned: false };
    let mut event = Event::Resumed;
    loop {
        event = match operation.on(event) {
            Command::Finish(outcome) => {
                if let Outcome::Done(record) = &outcome {
                    end.version = known.filter(|(write, _)| *write == record.write).map(|(_, version)| version);
                }
                return Ok(OperationEnd { outcome, ..end });
            }
            Command::Pause { attempt } => match deadline.pause(attempt).await {
                true => Event::Resumed,
                false => Event::TimedOut,
            },
            Command::Read => match read(shared, &name, deadline).await {
                Ok(found) => {
                    known = found.as_ref().map(|held| (held.record.write, held.version.clone()));
                    end.was_owned = found.as_ref().is_some_and(|held| matches!(held.record.status, Status::Owned(_)));
                    Event::Record(found.map(|held| held.record))
                }
                Err(error @ StoreError::Damaged { .. }) => return Err(error),
                Err(error) => {
                    end.error = Some(error);
                    Event::ReadFailed
                }
            },
            Command::Observe(owner) => match shared.observe(owner.node, deadline).await {
                Ok(Finding::Alive) => Event::OwnerAlive,
                Ok(Finding::Gone) => Event::OwnerGone,
                Err(error) => {
                    end.error = Some(error);
                    Event::ReadFailed
                }
            },
            Command::Write { expected, record } => {
                let version = match (&expected, &known) {
                    (None, _) => None,
                    (Some(expected), Some((write, version))) if expected == write => Some(version),
                    // The version is known of each record that was read or written.
                    (Some(_), _) => return Err(StoreError::damaged(name, "its version is not known")),
                };
                let value = serde_json::to_vec(&record).map_err(|error| StoreError::damaged(&name, error))?;
                match registers.write(&name, version, record.write, &value, guard, deadline).await {
                    Answer::Written(version) => {
                        known = Some((record.write, version));
                        Event::Written
                    }
                    Answer::Conflict => Event::Conflict,
                    Answer::Unknown(error) => {
                        end.error = Some(error);
                        Event::Unknown
                    }
                    Answer::Refused(error) => {
                        if let StoreError::Fenced { .. } = error {
                            shared.stop();
                        }
                        end.error = Some(error);
                        Event::Refused
                    }
                }
            }
        };
        if deadline.is_over() && !matches!(event, Event::Written | Event::Record(_)) {
            event = Event::TimedOut;
        }
    }
}

/// Reads the record of a session.
pub(crate) async fn read(shared: &Shared, name: &str, deadline: Deadline) -> Result<Option<Versioned>, StoreError> {
    shared.cluster.registers.read(name, deadline).await?.map(|found| decode(name, found)).transpose()
}

/// Decodes the record of a session.
pub(crate) fn decode(name: &str, found: RegisterValue) -> Result<Versioned, StoreError> {
    let record: SessionRecord<Content> =
        serde_json::from_slice(&found.value).map_err(|error| StoreError::damaged(name, error))?;
    if record.write != found.write {
        return Err(StoreError::damaged(name, "the IDs of its write differ"));
    }
    Ok(Versioned { record, version: found.version })
}

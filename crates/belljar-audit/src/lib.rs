//! An audit log: what a server did, as JSON lines that are chained by hash.
//!
//! ```text
//!  any thread ── Audit::record ──▶ bounded queue ──▶ writer thread: secrets out, number, time, hash ──▶ file, stream
//!                                                                                              └──▶ other sinks
//! ```
//!
//! | file | subject |
//! | --- | --- |
//! | `event` | the events, and what each means |
//! | `record` | the fields of a record |
//! | `redaction` | secrets, which records do not contain |
//! | `digest` | digests, in place of code and of identifiers that give access |
//! | `chain` | the hash chain of lines |
//! | `log`, `writer` | the log of a process, and the thread that writes it |
//! | `file` | log files: their lock, their continuation after a crash, and rotation |
//! | `verify`, `read` | verification and reading of log files |
//!
//! `docs/audit.md` describes the format, and what a verified log proves. The crate knows nothing of MCP or Python.

mod chain;
mod digest;
mod event;
mod file;
mod log;
mod read;
mod record;
mod redaction;
mod verify;
mod writer;

pub use digest::{Identifier, digest, owner_name, random_id, sha256};
pub use event::Event;
pub use file::{FileError, FileSink};
pub use log::{Audit, AuditOptions, AuditStopped, FailureMode};
pub use read::{Filter, earliest_time, records};
pub use record::{Details, Record};
pub use verify::{Problem, ProblemKind, Verification, verify};
pub use writer::{ChainedRecord, Sink, StreamSink};

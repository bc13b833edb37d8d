//! Tools of MCP servers for code in Belljar's sandboxes.
//!
//! ```text
//!  code ── await github.search_issues(query="…") ──▶ guest module `tools`
//!                                                         │ host operation `tools:call`
//!  ToolObserver ─▶ ToolRun: count, arguments, approval, permits, time, size, log
//!                     │                        │
//!                  Tools: names, policy     Approver: the user
//!                     │
//!                  belljar-mcp-client ─▶ MCP servers
//! ```
//!
//! The guest sees names, signatures and results. Commands, addresses, variables and credentials of servers stay in
//! `belljar-mcp-client`.
//!
//! | file | subject |
//! | --- | --- |
//! | `run`, `observer` | the operations of code, the limits of a run, and asking for approval |
//! | `catalogue`, `connection` | servers and tools; `belljar-mcp-client` is used in `connection` and in signatures |
//! | `function`, `names`, `python_text` | a tool as a Python function |
//! | `schema_types`, `typed_dict`, `type_union` | the types of its parameters and its result |
//! | `description` | texts about tools for models, and the search for tools |
//! | `policy`, `approval` | the calls that are allowed, and those that the user has to approve |
//! | `durable` | the calls of a run that goes on in another process |
//! | `values` | results as values for code |
//! | `call_log`, `durations`, `limits`, `wait_clock`, `error` | what is recorded, measured, limited and refused |
//!
//! The library uses no terminal, no environment variables and no configuration of the user.

mod approval;
mod call_log;
mod catalogue;
mod connection;
mod description;
mod durable;
mod durations;
mod error;
mod function;
mod limits;
mod names;
mod observer;
mod policy;
mod python_text;
mod run;
mod schema_types;
mod type_union;
mod typed_dict;
mod values;
mod wait_clock;

pub use approval::{Approval, ApprovalRequest, Approver, Fingerprint, NoApprover, ObserverApprover, SessionGrants};
pub use call_log::{CallLog, CallRecord, CallStatus, NoToolEvents, ToolEvents};
pub use catalogue::Tools;
pub use description::Detail;
pub use durable::{CallJournal, CallStage, PendingOperation, SavedRun};
pub use durations::RequestDurations;
pub use error::{ExceededLimit, ToolFailure};
pub use limits::ToolLimits;
pub use observer::ToolObserver;
pub use policy::{ApprovalMode, Effects, PatternError, ToolPolicy};
pub use run::{ToolRun, ToolRunContext};

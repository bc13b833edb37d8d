//! Fair shares between the owners of a server's calls and sessions.
//!
//! An owner (a *tenant*) is an authenticated client, or a connection without authentication. Decisions are made by pure
//! state machines; the pool, the sessions and the server call them.
//!
//! ```text
//!  a call ─▶ Tenants::admit ─▶ CallTicket, JobTicket ─▶ FairQueue ─▶ a thread, with the owner's UsageMeter
//!              quotas, load      the wait in the queue     order         memory, processor time, network
//! ```
//!
//! | file | subject |
//! | --- | --- |
//! | `quotas`, `quota_file` | quotas: keys, units, values, and files of them |
//! | `spending` | what was used of a quota that is per time |
//! | `tenant` | one owner: what it uses, and whether it may use more |
//! | `registry` | all owners |
//! | `fair_queue` | the order in which the work of owners runs |
//! | `ticket` | the wait of a call |
//! | `refusal` | the reasons of refusals |
//! | `pressure`, `memory_files` | how much memory the machine has left |

pub(crate) mod fair_queue;
mod memory_files;
mod pressure;
mod quota_file;
mod quotas;
mod refusal;
mod registry;
mod spending;
mod tenant;
mod ticket;

pub use pressure::{LoadThresholds, watch_memory};
pub use quota_file::{MAX_QUOTA_FILE, QuotaFileError};
pub use quotas::{InvalidQuota, QuotaKind, QuotaSettings, QuotaTable, Quotas};
pub use refusal::{QuotaExceeded, RefusalDetails, WorkRefusal};
pub use registry::{LoadState, TenantKey, Tenants};
pub use tenant::{SessionSlot, Tenant};
pub use ticket::{CallTicket, JobTicket};

#[cfg(test)]
mod tests;

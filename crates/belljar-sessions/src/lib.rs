//! Sessions: interpreters that live on between calls. Made, found, run one call after the other, put to sleep, expired.
//! What a backend must do for them stands in [`belljar_core::kernel`].
//!
//! ```text
//!  execute(id, code) ─▶ Sessions: which session? ─▶ its queue ─▶ pool of guest threads ─▶ Kernel: awake, or woken
//!                          │ clock, limits                                                  │
//!                          └─ sweep: expire, put to sleep ◀── Store: saved states ◀─────────┘ save, after the cell
//! ```
//!
//! | file | subject |
//! | --- | --- |
//! | `sessions` | all sessions: make, find, expire |
//! | `session` | one session: its queue |
//! | `state` | what a session is, and what is done to it |
//! | `report` | what a cell came to, and what of it is kept in files |
//! | `ticket` | stops a cell whose caller is gone |
//! | `id`, `clock` | how sessions are named, how time is told |
//! | `wasm` | the backend of the sandboxed CPython |
//! | `outputs` | what a cell writes and shows, in order and within bounds |
//! | `files` | names, addresses and types of a session's files |
//! | `store` | saved states on disk |
//! | `notebook` | notebooks, read and written |
//! | `pool` | guest threads |

mod clock;
mod error;
mod files;
mod id;
pub mod notebook;
mod outputs;
mod pool;
mod report;
mod session;
mod sessions;
mod state;
mod store;
mod ticket;
mod wasm;

pub use belljar_core::files::{FileError, FileInfo, MAX_READ, Range};
pub use belljar_core::kernel::{
    Answer, Audience, Backend, Bundle, CellRequest, End, Executed, Interrupt, Kernel, KernelError, Output, Saved,
    Silent, Stream,
};
pub use clock::{Clock, ManualClock, SystemClock};
pub use error::SessionError;
pub use files::{FileAddress, is_text, mime_of};
pub use id::SessionId;
pub use pool::{Busy, Capacity, Place, Pool};
pub use report::{FileChange, Picture, Report};
pub use sessions::{Options, Sessions};
pub use store::{Store, StoreError, Stored};
pub use wasm::{Wasm, Workplace};

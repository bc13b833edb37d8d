//! Interpreters in sealed worker processes: the second barrier around the code of clients.
//!
//! A bug in the WebAssembly engine, or in this program's own unsafe code, would let code out of its interpreter. In a
//! worker process there is nothing to reach then: no files, no network, no other process, no new memory that can be
//! executed, no environment, and the system calls of [`belljar_sandbox::worker::allowed_calls`] alone. All that code
//! gets from outside of its memory comes over one channel from this process, the *broker*.
//!
//! ```text
//!  server (broker)                          template (one per image)         worker (one owner)
//!  Python, packages, images                 maps program and image
//!    │ WorkerPool::start(image, owner)        │
//!    ├── fork, two sockets (SCM_RIGHTS) ─────▶│── fork ──────────────────────▶ threads, seal
//!    │◀──────────────────────────────────────────────────── Ready ────────────┤
//!    │── Restore, Call ──────────────────────────────────────────────────────▶│ interpreter
//!    │◀─ Output, HostCall, Returned ──────────────────────────────────────────┤
//!    │── interrupts, over the second socket ─────────────────────────────────▶│ control thread
//! ```
//!
//! # Processes
//!
//! The server executes itself as a template ([`run_template_if_child`]), with a clean environment. The template opens
//! the compiled program and the image in the cache by itself, since no code of a client has run in it, then enters
//! empty namespaces and forks workers on request: see [`belljar_sandbox::worker`]. Workers therefore share all pages
//! that the template has mapped or written, and start within a millisecond.
//!
//! A worker belongs to one owner, from its first call to its end: the client with a token, or the connection. It has
//! one interpreter at a time, and ends after a number of runs ([`WorkerOptions::runs`]), when it was idle for a while,
//! when its code was killed, and after any error. Its end is the error of the code that ran in it, and of nothing else.
//!
//! # The channel
//!
//! A stream socket with frames: a length of four bytes, little-endian, and a message of `messages.rs` in the encoding
//! of postcard. The first socket is used by turns: the broker sends a command and reads events until the worker has
//! returned. The second has interrupts: the number of an interpreter in eight bytes.
//!
//! | from the broker | when | meaning |
//! | --- | --- | --- |
//! | `Restore` | no interpreter exists | creates interpreter `number` with these limits; has no reply |
//! | `Call` | an interpreter exists | calls a function of the guest package |
//! | `HostReply` | after `HostCall` | the reply |
//! | `Discard` | after `Returned` | drops the interpreter; has no reply |
//!
//! | from the worker | when | meaning | bound |
//! | --- | --- | --- | --- |
//! | `Ready` | once, first | the worker is sealed | |
//! | `Output` | during a call | the code has written | 1 byte to 64 KiB; all together the limit of output |
//! | `HostCall` | during a call | the code asks the broker for something | 16 MiB; 100,000 in a call |
//! | `Returned` | ends a call | the result | 128 MiB with its buffers |
//!
//! Buffers of values cross with `Call`, `HostCall`, `HostReply` and `Returned`: bytes with a name of the guest's
//! directory of such files, at most 10,000 of them. Calls of tools and functions are handled by the broker with the
//! code that handles them for interpreters of its own process, which sees the buffers as files. While the broker
//! handles a call, the worker's limits of time are paused, and its interrupts are counted on both sides: one that the
//! worker has not seen when it made the call ends the broker's wait.
//!
//! The broker trusts nothing of this. A message that cannot be decoded, that is too long or that comes at another time
//! ends the worker, and so does silence: a worker that has not returned a moment after the limit of time is killed. Its
//! bytes may arrive one by one, and it may read slowly, which changes nothing (`timed_channel.rs`). Its memory is
//! measured four times a second, since its own limit has gaps. The contents of messages are as untrusted as they were
//! when they came from the guest: results are parsed by the same functions (`belljar_python::isolation`). Times are
//! measured by the broker.
//!
//! A worker is replaced, and its commands sent again, only if it has ended before it sent anything but `Ready`: code
//! that has begun is never run twice.
//!
//! # Limits
//!
//! Interpreters in workers cannot yet use the network or directories of the host, install packages while they run, or
//! be saved while they wait. Sessions run in the server's process.

#![cfg(target_os = "linux")]

mod frames;
mod messages;
mod pool;
mod remote;
mod remote_session;
mod serve;
mod template;
mod timed_channel;

#[doc(hidden)]
pub use frames::rewrite_events;
pub use pool::{WorkerOptions, WorkerPool};
pub use template::{TEMPLATE_ARGUMENT, run_template_if_child};

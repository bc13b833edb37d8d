//! Interpreters in sealed worker processes: the second barrier around the code of clients. Linux only: on other systems
//! the crate is empty.
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
//! The worker of a session runs nothing else, from the session's start to its end, and is forked from a template with
//! the image of sessions and the session's packages. A session that installs packages before a cell is saved and goes
//! on in a worker of another template. Code that has ended its interpreter leaves its files, which the next worker of
//! the session gets; code that is killed is first ended within the worker, and only one that does not return is killed
//! with its files.
//!
//! # The channel
//!
//! A stream socket with frames: a length of four bytes, little-endian, and a message of `messages.rs` in the encoding
//! of postcard. The first socket is used by turns: the broker sends a command and reads events until the worker has
//! returned. The second has interrupts: the number of an interpreter in eight bytes, whose highest bit asks for its
//! end. The second highest bit tells of a change of its connections instead.
//!
//! | from the broker | when | meaning |
//! | --- | --- | --- |
//! | `Restore` | no interpreter exists | creates interpreter `number` with these limits; has no reply |
//! | `Call` | an interpreter exists | calls a function of the guest package |
//! | `LayerPart` | after `HostCall` | a part of the files of a package that the code installs |
//! | `HostReply` | after `HostCall` | the reply |
//! | `Discard` | after `Returned` | drops the interpreter; has no reply |
//! | `StatePart` | before `StartSession` | a part of the bytes that a session begins with; has no reply |
//! | `StartSession` | once, first | creates the interpreter of a session: new, with files, or with a state |
//! | `Files` | between calls of a session | lists the files, reads a part of one, or writes one |
//! | `Save` | between calls of a session | asks for its files, or its state |
//! | `PrepareReplay` | after `StatePart`, before the call that waited | the bytes are a recording, which the next call replays |
//! | `SaveRecording` | after `HostCall` or `Asleep` | asks for the recording of the code that waits |
//! | `SleepOn` | after `Asleep` | the code sleeps on |
//! | `Grown` | after `Grow` | whether the memory may grow |
//! | `Network` | after `Network` | the reply |
//! | `Mount` | after `Mount` | the result |
//!
//! | from the worker | when | meaning | bound |
//! | --- | --- | --- | --- |
//! | `Ready` | once, first | the worker is sealed | |
//! | `Output` | during a call | the code has written | 1 byte to 64 KiB; all together the limit of output |
//! | `HostCall` | during a call | the code asks the broker for something | 16 MiB; 100,000 in a call |
//! | `Returned` | ends a call | the result | 128 MiB with its buffers |
//! | `Started` | after `StartSession` | the interpreter exists, or the reason why not | 4 KiB |
//! | `Files` | after `Files` | the reply to this request | 20,000 files, 24 MiB of paths; the bytes asked for |
//! | `StatePart` | after `Save` | the next part | 1 byte to 1 MiB; all together what the limits allow, at most 1 GiB |
//! | `Saved` | ends the parts | all were sent, or the reason why not | 4 KiB |
//! | `Grow` | during a call that has `asks_memory` | the interpreter's memory is to grow | 100,000 per call |
//! | `Network` | during a call that has `network` | the sockets of the code ask for something | 256 KiB are read or written |
//! | `Waiting` | during a call that has `network` | the limit of time is paused until the next message | the limit of waiting |
//! | `Asleep` | during a call that is recorded | the code has slept for a second, and may be saved | one each 0.9 s |
//! | `ReplayPrepared` | after `PrepareReplay` | whether the bytes are a recording | |
//! | `ReplayEnded` | once, during the calls of a replay | what the code does from now on is new | |
//! | `Mount` | during a call | the code asks for something of mounted directories | 256 KiB are read or written; as many open files as on threads |
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
//! A cell that holds its thread while it waits is recorded as on threads (`belljar_emscripten::recording`), by the
//! worker. While the broker handles a call of the host, or the code sleeps, the broker asks for the recording, of a
//! bounded number of bytes, and stores it behind the state from before the cell. It is replayed in another worker only.
//! The next message after `Asleep`, whatever it is, ends the sleep for the broker, which then notes that the cell goes
//! on. Output until `ReplayEnded` is not shown again; of calls of the host, only one may go on with a state.
//!
//! Where the owner has a quota of memory, the worker asks before its interpreter's memory grows. What the kernel
//! measures beyond that is charged as well, and processor time is what the kernel measures (`usage.rs`).
//!
//! Connections of the code are in the broker, which checks the policy, and the worker's sockets ask for each operation:
//! none of them waits for the far end. Code that waits is told of changes by the second socket, once until it asks
//! again, and the limit of waiting (`--max-wait`) takes the place of that of time. The connections end with the
//! interpreter that has opened them. A request for a connection that does not exist, or from code without a network,
//! ends the worker.
//!
//! Directories of the host (`--mount`, `--files`) are open in the broker, too. The worker has a list of their paths
//! inside ([`MountPoint`](belljar_python::isolation::MountPoint)), and asks with a path within one of them, which the
//! broker resolves without leaving the directory, as it does for interpreters of its own. A directory or file that does
//! not exist in its lists ends the worker. The folder of a session is read and written for clients without the worker.
//!
//! A worker is replaced, and its commands sent again, only if it has ended before it sent anything but `Ready`: code
//! that has begun is never run twice. The worker of a session is not replaced: its session goes on from its last state.
//!
//! The bytes of a saved session are chosen by the worker. The broker bounds their number and stores them, and gives
//! them to another worker of the session or of a fork. It restores none in its own process: their metadata, which the
//! broker writes, has the mark for it. Only their files are read there (`SnapshotDelta::files_under`), by the parser
//! for states of a data directory, which is fuzzed.
//!
//! # Limits
//!
//! Interpreters in workers cannot install packages with compiled modules while they run.

#![cfg(target_os = "linux")]

mod background;
mod channel;
mod frames;
mod image_workers;
mod messages;
mod pool;
mod remote;
mod remote_call;
mod remote_handle;
mod remote_mounts;
mod remote_network;
mod remote_recording;
mod remote_session;
mod serve;
mod signals;
mod silence;
mod template;
mod timed_channel;
mod usage;

#[doc(hidden)]
pub use frames::rewrite_events;
pub use pool::{WorkerOptions, WorkerPool};
pub use template::{TEMPLATE_ARGUMENT, run_template, run_template_if_child};

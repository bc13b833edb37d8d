//! The Linux sandbox that native code runs in.
//!
//! # Two ways in
//!
//! **A program** is executed in a sandbox of its own:
//!
//! ```no_run
//! use belljar_jupyter::sandbox::{self, Policy, Spec, Streams};
//!
//! sandbox::launch_if_asked(); // first thing in `main`
//! # || -> Result<(), sandbox::Error> {
//! let spec = Spec { user: Some(sandbox::SESSION_USERS.start), ..Spec::new(["/usr/bin/python3", "-c", "print(1)"]) };
//! let mut running = sandbox::spawn(&spec, Policy::Full, Streams::default())?;
//! println!("{:?}", running.wait()?);
//! # Ok(())
//! # };
//! ```
//!
//! **A process that was forked elsewhere**, a Python with its imports done, enters a sandbox that [waits](Spec::waiting):
//!
//! ```text
//! host                                 zygote (python, trusted, clean environment)
//!  │ spawn(Spec::waiting()) ─▶ launcher ─▶ first process: root, namespaces, nothing runs
//!  │ Sandbox::entry() ─▶ Entry { plan, descriptors }, Arrival
//!  │ ── plan and descriptors, over a socket (SCM_RIGHTS) ──▶ fork ─▶ A
//!  │                                                                 │ enter.enter(plan, descriptors):
//!  │                                                                 │ become the user, setns(all namespaces),
//!  │                                                                 │ fork ─▶ B: limits, no_new_privs, Landlock,
//!  │                                                                 │         capabilities, descriptors, seccomp
//!  │ ◀── Arrival::wait() ── B's descriptor ──────────────────────────┘ A ends
//!  │                                       zygote, as a subreaper, becomes B's parent and reaps it
//! ```
//!
//! [`ENTER_PYTHON`] is a Python module of standard library alone that does this. It knows no system call: the steps,
//! numbers and bytes are the plan's. `enter(plan, descriptors)` returns only in B, where nothing of the zygote is left
//! but memory: environment, descriptors, working directory and standard streams are the sandbox's. The zygote must
//!
//! - be started by [`zygote_command`], as the user of this process, with an environment built from nothing: what it was
//!   started with stays readable in `/proc/self/environ`;
//! - call `become_reaper()` once, and reap with `os.waitpid(-1, …)` whom it is not the first parent of;
//! - have one thread when it forks, and hold nothing in memory that the code must not read;
//! - `detach()` its own sockets in the child before `enter`, which closes all descriptors by number.
//!
//! A waiting sandbox stands until it is dropped. [`Sandbox::empty`] kills what runs in it; after that another process
//! may enter, and finds the folders in memory as they were.
//!
//! # What holds the code
//!
//! The layers, in the order in which they are put on; each is meant to hold if another does not.
//!
//! | layer | file | keeps from the code |
//! | --- | --- | --- |
//! | user of its own, as root | `namespaces.rs` | other sessions' files and processes |
//! | user namespace, no capabilities, no namespaces within | `namespaces.rs`, `root.rs` | all that takes privileges |
//! | process, network, System V, name and control group namespaces | `namespaces.rs` | processes, network and names of the host |
//! | root in memory, read-only | `root.rs` | files of the host, devices, settings of the kernel |
//! | limits, a counted memory, a control group where there is one | `program.rs`, `memory.rs`, `control_group.rs` | the machine's memory, disk and processes |
//! | Landlock | `landlock.rs` | writing outside its folders; tracing and signalling what is outside |
//! | seccomp | `seccomp.rs` | most of the kernel |
//!
//! With [`Policy::Weak`], by name alone, there are only a user, limits of each process, Landlock and seccomp: see
//! `docs/security.md`.
//!
//! # Who forks whom
//!
//! ```text
//! host ──exec, once──▶ fork server ──fork──▶ launcher ──fork──▶ first process ──fork──▶ program
//! ```
//!
//! # Who dies when
//!
//! The fork server ends with the host. The [`Sandbox`] holds the only end of the launcher's channel on this side. When it is dropped, or this process dies,
//! the launcher ends; when the launcher ends, or is killed, the sandbox's first process is killed; when that ends, the
//! kernel kills everything inside.

mod allow_list;
mod calls;
mod channel;
mod control_group;
mod devices;
mod entry;
mod error;
mod fork_server;
mod init;
mod landlock;
mod launcher;
mod memory;
mod namespaces;
mod policy;
mod program;
mod root;
mod running;
mod seccomp;
mod spec;

pub(crate) use channel::Channel;
pub use control_group::{delegated_control_groups, mounted_at as control_groups_mounted_at};
pub(crate) use devices::check as check_devices;
pub use entry::{Arrival, ENTER_PYTHON, Entered, Entry, EntryStreams, zygote_command};
pub use error::{Error, Failure, Step};
pub use fork_server::launch_if_asked;
pub use policy::{Findings, Policy, SESSION_USERS, Strength, probe};
pub use running::{Ended, Sandbox, Streams, spawn};
pub use spec::{Folder, Limits, Source, Spec};

//! Worker processes: forks of one program that seal themselves before they run code.
//!
//! A sandbox of [`spawn`](crate::spawn) executes a program of its own. A worker runs code of *this* program, such as a
//! virtual machine whose files it has mapped before, and needs almost nothing of the kernel. It is therefore sealed
//! more tightly than any program could be: it can open no file, create no socket, process or thread, and map no memory
//! that can be executed.
//!
//! ```text
//! host ──exec, once──▶ template ──fork──▶ first process ──fork──▶ worker
//!                      opens the files      of its namespaces       Landlock, threads, limits, seccomp
//! ```
//!
//! | process | step | system calls | file |
//! | --- | --- | --- | --- |
//! | template | 1. execute this program with a clean environment | `execve`, `setpgid` | `host.rs` |
//! | | 2. open and map what all workers share; trusted code of the embedder | `open`, `mmap` | the embedder |
//! | | 3. as root: change to a user without privileges | `setresgid`, `setresuid` | `template.rs` |
//! | | 4. create user, mount, process, network, IPC, UTS and cgroup namespaces | `unshare` | `namespaces.rs` |
//! | | 5. fork the first process, and wait for its end | `fork`, `waitpid` | `template.rs` |
//! | first process | 6. enter an empty, read-only root | `mount`, `pivot_root`, `umount2`, `mount_setattr` | `template.rs` |
//! | | 7. create the ruleset of Landlock | `landlock_create_ruleset` | `landlock.rs` |
//! | | 8. drop all capabilities; no new privileges | `capset`, `prctl` | `template.rs` |
//! | | 9. fork a worker for each request of the host | `fork`, `pidfd_open` | `template.rs` |
//! | worker | 10. end with the first process | `prctl(PR_SET_PDEATHSIG)` | `template.rs` |
//! | | 11. open its `pagemap`, which tells which pages it has written to | `openat` | `template.rs` |
//! | | 12. Landlock: no file, port or other process | `landlock_restrict_self` | `template.rs` |
//! | | 13. start the threads that the embedder needs | `clone3` | the embedder |
//! | | 14. resource limits, system call filters of all threads | `setrlimit`, `seccomp(TSYNC)` | `seal.rs` |
//!
//! On a machine without namespaces, or without Landlock, these steps are left out and [`TemplateReport`] names them:
//! the system call filters alone still refuse everything that the other layers protect. A step that fails for another
//! reason ends the worker.
//!
//! The resource limit of private memory has gaps ([`SealLimits`]). The host measures the memory of workers, too, and
//! kills those that exceed it: [`WorkerProcess::memory_bytes`].

mod calls;
mod host;
mod seal;
mod template;

pub use calls::allowed_calls;
pub use host::{WorkerProcess, WorkerTemplate};
pub use seal::{SealLimits, seal};
pub use template::{NewWorker, Template, TemplateReport};

use serde::{Deserialize, Serialize};

/// A request of the host. The first message is the embedder's task.
#[derive(Serialize, Deserialize)]
struct ForkRequest {
    /// The number of the request, which its reply repeats. A reply may arrive after the host has given the request up:
    /// it must not be taken for the reply to the next one.
    number: u64,
}

/// A reply of the template.
#[derive(Serialize, Deserialize)]
enum TemplateReply {
    /// The template can fork workers.
    Ready(TemplateReport),
    /// A worker was forked for the request with this number. Its pidfd goes with the message.
    Forked(u64),
    /// A worker could not be forked for the request with this number, for this reason.
    NotForked(u64, String),
    /// The template could not be made ready, for this reason, and ends.
    Failed(String),
}

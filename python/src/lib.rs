//! The extension module `belljar._native`: sandboxes in this process, as the typed Python code next to it needs them.
//!
//! ```text
//!  belljar/_sandbox.py ──▶ Runtime.run ──▶ Job ──▶ pool of guest threads ──▶ WasmBackend::run_once
//!        ▲                                              │ output, calls of host functions
//!        └────────── Job.wait, or a callback ◀──────────┘ Client (with the GIL)
//! ```
//!
//! | file | subject |
//! | --- | --- |
//! | `settings` | what a sandbox is created with; the CPython that all sandboxes of the process share |
//! | `runtime` | one-shot runs |
//! | `session` | sessions: their queue, cells, files, forks and dumps |
//! | `paused` | code that waits for answers of its caller |
//! | `paused_cell` | cells of sessions among them |
//! | `deferred` | the calls that such code waits for |
//! | `steps` | the waits of code that may pause |
//! | `dump` | sessions and paused code as bytes |
//! | `remote` | the same on a server |
//! | `tools` | tools of MCP servers |
//! | `executor` | the thread of connections |
//! | `job` | work on a guest thread, waited for without the GIL |
//! | `client` | the receiver of output and of calls of host functions |
//! | `results` | results as Python objects |
//! | `error` | errors as Python exceptions |
//! | `os` | what depends on the operating system |

mod client;
mod deferred;
mod dump;
mod error;
mod executor;
mod job;
mod os;
mod paused;
mod paused_cell;
mod remote;
mod results;
mod runtime;
mod session;
mod settings;
mod steps;
mod tools;

use std::ffi::OsString;
use std::path::PathBuf;

use belljar_command::Installation;
use pyo3::prelude::*;

/// The module.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::client::Reply;
    #[pymodule_export]
    use super::error::NativeError;
    #[pymodule_export]
    use super::job::{Job, shutdown};
    #[pymodule_export]
    use super::paused::PausedCode;
    #[pymodule_export]
    use super::remote::{RemoteRuntime, RemoteSession};
    #[pymodule_export]
    use super::runtime::Runtime;
    #[pymodule_export]
    use super::session::Session;
    #[pymodule_export]
    use super::tools::Question;
    #[pymodule_export]
    use super::{run_command, run_fork_server, run_template};
}

/// Runs the command `belljar` with these arguments, of which the first is the program's name. Returns its exit status.
///
/// `program` is the path of the script that runs the command, `command` runs it in another process, and `bundle` is the
/// path of the files of the package. `fork_server` is the command that calls [`run_fork_server`] in a new process, and
/// `template` that for [`run_template`].
#[pyfunction]
fn run_command(
    py: Python<'_>,
    arguments: Vec<OsString>,
    program: PathBuf,
    command: Vec<OsString>,
    bundle: Option<PathBuf>,
    fork_server: Vec<OsString>,
    template: Vec<OsString>,
) -> u8 {
    os::set_fork_server_command(fork_server);
    let installation = Installation { program, command, template, bundle };
    let status = py.detach(|| belljar_command::run(arguments, Some(installation)));
    exit_status(status)
}

/// Returns the number of an exit code, which the standard library does not offer.
fn exit_status(code: std::process::ExitCode) -> u8 {
    (0..=u8::MAX).find(|number| std::process::ExitCode::from(*number) == code).unwrap_or(1)
}

/// Becomes the process from which worker processes are forked. Does not return, except on systems without these.
#[pyfunction]
fn run_template(py: Python<'_>) {
    py.detach(os::run_template);
}

/// Becomes the process from which native sandboxes are forked. Does not return, except on systems without these.
#[pyfunction]
fn run_fork_server(py: Python<'_>) {
    py.detach(os::run_fork_server);
}

//! Work that a command leaves to a process of its own, so that it does not have to wait for it.

use std::process::{Command, Stdio};

use belljar_python::{Python, is_optimizing_libraries};

use crate::command_error::CommandError;
use crate::global_options::GlobalOptions;
use crate::os;

/// Starts a process that compiles packages with full optimization, if code used packages that were compiled quickly. At
/// most one such process works on a cache. It has the lowest priority, and no streams or terminal of this process.
///
/// Called when the command is about to end: a process that runs for longer does this work itself. A failure is logged,
/// since packages work without optimization, too.
pub(crate) fn optimize_libraries(python: &Python, global: &GlobalOptions) {
    if global.no_background || !python.has_unoptimized_libraries() || is_optimizing_libraries(python.cache()) {
        return;
    }
    if let Err(error) = start(global) {
        tracing::debug!(%error, "failed to start the optimization of packages");
    }
}

/// Returns a command that runs this command.
fn own_command() -> Result<Command, CommandError> {
    if let Some([program, arguments @ ..]) = crate::OWN_COMMAND.get().map(Vec::as_slice) {
        let mut command = Command::new(program);
        command.args(arguments);
        return Ok(command);
    }
    std::env::current_exe().map(Command::new).map_err(|error| CommandError::from_error(&error))
}

fn start(global: &GlobalOptions) -> Result<(), CommandError> {
    let mut command = own_command()?;
    command.args(global.as_arguments()?).args(["cache", "optimize", "--background", "--quiet"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // The process does not keep the current directory's file system mounted.
    command.current_dir("/");
    os::start_in_own_process_group(&mut command);
    command.spawn().map_err(|error| CommandError::from_error(&error))?;
    Ok(())
}

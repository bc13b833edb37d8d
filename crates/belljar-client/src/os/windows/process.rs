//! Child processes: job objects.

use std::io;

use process_wrap::tokio::{ChildWrapper, CommandWrap, JobObject};

/// The variables that a child inherits; all others must be configured. The list is that of MCP's own SDKs.
pub(crate) const INHERITED_VARIABLES: &[&str] = &[
    "APPDATA",
    "HOMEDRIVE",
    "HOMEPATH",
    "LOCALAPPDATA",
    "PATH",
    "PATHEXT",
    "PROCESSOR_ARCHITECTURE",
    "SYSTEMDRIVE",
    "SYSTEMROOT",
    "TEMP",
    "USERNAME",
    "USERPROFILE",
];

/// Starts the child in a job object of its own, with which its descendants end.
pub(crate) fn separate(command: &mut CommandWrap) {
    command.wrap(JobObject);
}

/// Fails: this system has no signal by which processes are asked to exit.
pub(crate) fn terminate(_: &dyn ChildWrapper) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

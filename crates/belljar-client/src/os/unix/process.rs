//! Child processes: process groups and signals.

use std::io;

use process_wrap::tokio::{ChildWrapper, CommandWrap, ProcessGroup};

/// The variables that a child inherits; all others must be configured. The list is that of MCP's own SDKs.
pub(crate) const INHERITED_VARIABLES: &[&str] = &["HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"];

/// Starts the child in a group of its own, so that its descendants (`npx` starts `node`) are signalled with it.
pub(crate) fn separate(command: &mut CommandWrap) {
    command.wrap(ProcessGroup::leader());
}

/// Asks a child and its descendants to exit, by SIGTERM.
///
/// # Errors
/// Fails if all of them have exited.
pub(crate) fn terminate(child: &dyn ChildWrapper) -> io::Result<()> {
    const SIGTERM: i32 = 15;
    child.signal(SIGTERM)
}

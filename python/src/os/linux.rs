//! Linux.

pub(crate) use belljar_sandbox::{run_fork_server, set_fork_server_command};
pub(crate) use belljar_worker::run_template;

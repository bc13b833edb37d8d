//! The messages between the host, the launcher and the sandbox's first process.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::error::StepFailure;
use crate::exit_status::ExitStatus;
use crate::policy::Policy;
use crate::spec::Spec;

/// The first message from the host to a launcher. The program's standard input goes with it, if it has one.
#[derive(Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) spec: Spec,
    pub(crate) policy: Policy,
}

/// A command from the host to the first process of a sandbox that is ready.
#[derive(Serialize, Deserialize)]
pub(crate) enum Command {
    /// Kill all processes inside, and keep the sandbox.
    KillAll,
}

/// A message from the launcher, or from the first process, to the host.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// A step failed, and the launcher exits.
    Failed(StepFailure),
    /// The first process was forked. Its pidfd goes with the message.
    InitStarted,
    /// The sandbox is ready, and the program runs. The descriptors, in this order: Landlock's ruleset, the program's
    /// pidfd and the listening socket if it has them, the folders in memory.
    Ready {
        /// The paths inside of the folders in memory, in the order of their descriptors.
        memory_folders: Vec<PathBuf>,
        /// `true` if a program was started.
        has_program: bool,
        /// `true` if a listening socket was created.
        has_listener: bool,
    },
    /// The program ended.
    ProgramExited(ExitStatus),
    /// The processes of an idle sandbox exceeded the memory limit and were killed.
    MemoryLimitExceeded,
    /// A command was executed.
    CommandDone,
}

//! The parts from which interpreters of `belljar run` are created.

use std::sync::Arc;

use belljar_core::kernel::InterruptHandle as _;
use belljar_core::{Execution, Limits, RunRequest};
use belljar_network::Network;
use belljar_python::install::RuntimeInstaller;
use belljar_python::{CallEffects, Image, Interpreter, Python, Streams, attach_network, register_calls};
use belljar_tools::ToolRun;

use crate::command_error::CommandError;
use crate::console::Terminal;
use crate::interrupt::Interrupts;
use crate::network::LoggedConnections;
use crate::packages::Packages;
use crate::run_arguments::RunArguments;
use crate::siblings::Siblings;
use crate::tools::observer_of;

/// The parts from which interpreters are created.
pub(crate) struct RunContext<'a> {
    pub(crate) python: &'a Python,
    pub(crate) packages: &'a Packages,
    pub(crate) image: Image,
    pub(crate) arguments: &'a RunArguments,
    /// The modules that the program imports from its own folder.
    pub(crate) siblings: &'a Siblings,
    pub(crate) terminal: Terminal,
    /// The calls of tools, if there are servers.
    pub(crate) tools: Option<ToolRun>,
    /// The network that the code may use.
    pub(crate) network: Option<Arc<Network>>,
    /// The connections of the code.
    pub(crate) connections: Arc<LoggedConnections>,
    /// True if notes about the run, such as the installed packages, are written to standard error.
    pub(crate) shows_notes: bool,
}

/// An interpreter, and the installer of its packages.
pub(crate) struct Running {
    pub(crate) interpreter: Interpreter,
    pub(crate) installer: Arc<RuntimeInstaller>,
    /// The effects of calls of tools, if there are servers.
    pub(crate) calls: Option<CallEffects>,
}

impl RunContext<'_> {
    /// Returns whether the code has environment variables of its own.
    pub(crate) fn has_environment(&self) -> bool {
        !self.arguments.env.is_empty() || self.network.as_ref().is_some_and(|network| !network.secrets().is_empty())
    }

    /// Creates an interpreter with these limits, and with the mounts and packages of the arguments and the program's
    /// modules.
    pub(crate) fn start(&self, limits: Limits, streams: Streams) -> Result<Running, CommandError> {
        let Self { arguments, image, .. } = self;
        let mut interpreter = self.python.interpreter_with(image, limits, streams)?;
        let installer = self.packages.serve(&mut interpreter, image);
        if let Some(network) = &self.network {
            let connections = network.connections(None, self.connections.clone());
            attach_network(&mut interpreter, network, &connections, None);
        }
        let tools = self.tools.clone();
        let calls = tools.map(|tools| register_calls(&mut interpreter, observer_of(tools)));
        // A directory that is mounted over the working directory hides the copies.
        self.siblings.copy_into(interpreter.files())?;
        for mount in &arguments.mount {
            let opened = mount.open()?;
            let mounted = opened.attach(interpreter.files());
            mounted
                .map_err(|error| format!("failed to mount {} at {}: {error}", mount.host.display(), opened.guest))?;
        }
        Ok(Running { interpreter, installer, calls })
    }
}

impl Running {
    /// Runs a piece of code, which Ctrl-C interrupts.
    pub(crate) fn run(&mut self, request: &RunRequest, interrupts: &Interrupts) -> Execution {
        let interrupter = self.interpreter.interrupt_handle();
        interrupts.with_handler(move || interrupter.interrupt(), || self.interpreter.run(request))
    }

    /// Runs the functions that the code registered for its end.
    pub(crate) fn finish(&mut self, interrupts: &Interrupts) -> Execution {
        let interrupter = self.interpreter.interrupt_handle();
        interrupts.with_handler(move || interrupter.interrupt(), || self.interpreter.finish())
    }
}

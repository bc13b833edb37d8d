//! The kernel of a session, as sessions use it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_core::activity::trace::SpanName;
use belljar_core::files::{FileError, FileInfo, Range};
use belljar_core::kernel::{
    CellError, CellObserver, CellRequest, InterruptHandle, Kernel, KernelError, KernelSnapshot, ShellError,
    ShellRequest,
};
use belljar_core::{CellResult, CellStatus, ExitReason, LimitKind, Progress, SessionFolder};
use belljar_network::Scrubber;
use serde_json::{Value, json};

use crate::linux::cell::{self, CellLimits, KernelLost};
use crate::linux::cell_packages::{self, KnownModules};
use crate::linux::function_calls::FunctionSocket;
use crate::linux::interrupt::InterruptRequest;
use crate::linux::kernel_connection::KernelConnection;
use crate::linux::kernel_process::KernelExitStatus;
use crate::linux::kernel_starter::KernelStarter;
use crate::linux::pip_installer::{InstallError, InstalledPackages};
use crate::linux::session_sandbox::SessionSandbox;
use crate::linux::shell_request::{self, SHELL_REPLY_TIMEOUT, ShellRequestError};

/// The time that a killed process has to exit.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
/// The least time between the interrupt of a cell that has reached its time limit, and the end of its interpreter. A
/// cell that handles the interrupt keeps its variables.
const MIN_INTERRUPT_GRACE: Duration = Duration::from_secs(3);

/// A session's kernel.
pub(crate) struct NativeKernel {
    // Before the sandbox: the process must be killed before its directories are deleted.
    connection: KernelConnection,
    // Before the starter, which deletes the directories of the backend if it is the last one.
    sandbox: SessionSandbox,
    starter: Arc<KernelStarter>,
    /// The number of the last cell.
    execution_count: u64,
    /// The payloads that the last cell has left for a frontend.
    payloads: Vec<Value>,
    pub(crate) known_modules: KnownModules,
}

impl NativeKernel {
    pub(crate) fn new(starter: Arc<KernelStarter>, connection: KernelConnection, sandbox: SessionSandbox) -> Self {
        let known_modules = KnownModules::default();
        Self { starter, connection, sandbox, execution_count: 0, payloads: Vec::new(), known_modules }
    }

    /// Returns the reason why the kernel's process ended by itself.
    fn exit_reason(&mut self) -> ExitReason {
        let process = &self.connection.process;
        process.wait_until(Instant::now() + KILL_TIMEOUT);
        match process.status() {
            KernelExitStatus::OverMemory => ExitReason::Limit(LimitKind::Memory),
            KernelExitStatus::Signalled(_) | KernelExitStatus::Unknown if self.sandbox.exceeded_memory() => {
                ExitReason::Limit(LimitKind::Memory)
            }
            KernelExitStatus::Exited(status) => ExitReason::Exit(status),
            KernelExitStatus::Signalled(signal) => ExitReason::Signal(signal),
            KernelExitStatus::Unknown => ExitReason::Crash("it ended without an exit status".into()),
        }
    }

    /// Runs a cell, whose connections have their records passed to `observer`. Installs nothing for it.
    pub(crate) fn run_cell(&mut self, cell: &CellRequest, observer: Arc<dyn CellObserver>) -> CellResult {
        observer.on_stage(SpanName::Run);
        if let Some(network) = self.sandbox.network() {
            network.begin_cell(&observer);
        }
        self.run_helper_cell(cell, observer)
    }

    /// Ends the code if it has left connections open, and waits a moment for their records.
    pub(crate) fn finish_connections(&self) {
        if let Some(network) = self.sandbox.network().filter(|network| !network.is_idle()) {
            self.connection.process.kill();
            network.wait_until_idle();
        }
    }

    /// Runs a cell of the host, during which the records of connections are passed to the observer of the last cell.
    pub(crate) fn run_helper_cell(&mut self, cell: &CellRequest, observer: Arc<dyn CellObserver>) -> CellResult {
        let limits = self.starter.config().limits.with_timeout(cell.timeout);
        let limits = CellLimits {
            wall_time: limits.wall_time,
            cpu_time: limits.cpu_time,
            grace: limits.grace.max(MIN_INTERRUPT_GRACE),
            output: limits.output,
            silent: false,
        };
        self.payloads.clear();
        let handles = self.connection.handles(&mut self.sandbox);
        match cell::run(handles, cell, &observer, limits, self.execution_count) {
            Ok((result, payloads)) => {
                self.execution_count = result.execution_count;
                self.payloads = payloads;
                result
            }
            Err((lost, outputs)) => {
                let reason = match lost {
                    KernelLost::Killed(reason) => reason,
                    KernelLost::Exited => self.exit_reason(),
                };
                self.execution_count = self.execution_count.saturating_add(1);
                let execution_count = self.execution_count;
                CellResult { execution_count, status: CellStatus::KernelDied(reason), outputs }
            }
        }
    }

    /// Narrows the network of the session, which only its first cell can do. Without a network there is nothing to
    /// narrow.
    ///
    /// # Errors
    /// See [`SessionNetwork::narrow`](crate::linux::network::SessionNetwork::narrow).
    pub(crate) fn narrow_network(&self, policy: &Value) -> Result<(), KernelError> {
        let is_first_cell = self.execution_count == 0;
        self.sandbox.network().map_or(Ok(()), |network| network.narrow(policy, is_first_cell))
    }

    /// Returns whether the code has begun a connection since its cell began.
    pub(crate) fn has_used_network(&self) -> bool {
        self.sandbox.network().is_some_and(|network| network.any_opened())
    }

    /// Returns whether code has made a call of a function of the host that may have had an effect.
    pub(crate) fn has_called(&self) -> bool {
        self.connection.functions.as_ref().is_some_and(FunctionSocket::has_effects)
    }

    /// Returns the number of the next cell.
    pub(crate) fn next_execution_count(&self) -> u64 {
        self.execution_count.saturating_add(1)
    }

    /// Returns the scrubber of secrets.
    pub(crate) fn scrubber(&self) -> &Scrubber {
        self.connection.client.scrubber()
    }

    /// Returns whether another thread has requested the end of the interpreter.
    pub(crate) fn is_killed(&self) -> bool {
        self.connection.interrupt.take() == InterruptRequest::Kill
    }

    /// Returns whether cells may have `tools` set.
    pub(crate) fn supports_tools(&self) -> bool {
        self.starter.config().tools
    }

    /// Returns whether packages may be installed for the session.
    pub(crate) fn can_install(&self) -> bool {
        self.starter.config().installer.is_some()
    }

    /// Returns the time limit of one installation.
    pub(crate) fn install_timeout(&self) -> Duration {
        self.starter.config().installer.as_ref().map_or(Duration::ZERO, |installer| installer.timeout)
    }

    /// Installs packages for the session until `deadline`, or until the kernel is interrupted.
    ///
    /// # Errors
    /// See [`InstallError`].
    pub(crate) fn install_until(
        &mut self,
        packages: &[String],
        progress: &dyn Progress,
        deadline: Instant,
    ) -> Result<InstalledPackages, InstallError> {
        let interrupt = &self.connection.interrupt;
        let is_cancelled = || interrupt.take() != InterruptRequest::None;
        self.sandbox.broker().install(packages, progress, &is_cancelled, deadline)
    }

    /// Returns the message of an error, followed by the hint for it on a line of its own.
    pub(crate) fn with_install_hint(&self, error: &InstallError) -> String {
        let hint = self.starter.config().install_hint.as_ref().and_then(|hint| hint(error));
        hint.map_or_else(|| error.to_string(), |hint| format!("{error}\nhint: {hint}"))
    }
}

impl Kernel for NativeKernel {
    fn execute(&mut self, cell: &CellRequest, observer: Arc<dyn CellObserver>) -> CellResult {
        let narrowed = cell.network.as_ref().map_or(Ok(()), |policy| self.narrow_network(policy));
        let refusal = match narrowed {
            Err(error) => Some(("ValueError", error.to_string())),
            Ok(()) if cell.tools && !self.supports_tools() => {
                Some(("RuntimeError", "this kernel was started without tools".to_owned()))
            }
            Ok(()) => None,
        };
        if let Some((name, message)) = refusal {
            let error = CellError { name: name.into(), message, traceback: Vec::new() };
            let (execution_count, status) = (self.next_execution_count(), CellStatus::Error(error));
            return CellResult { execution_count, status, outputs: Vec::new() };
        }
        let starter = self.starter.clone();
        match &starter.config().python_version {
            Some(version) if !cell.silent => cell_packages::execute(self, version, cell, observer),
            _ => self.run_cell(cell, observer),
        }
    }

    fn shell_request(&mut self, request: &ShellRequest) -> Result<Value, KernelError> {
        let payloads = match request {
            ShellRequest::UserExpressions { expressions } => {
                let payloads = std::mem::take(&mut self.payloads);
                if expressions.is_empty() {
                    return Ok(json!({ "payload": payloads, "user_expressions": {} }));
                }
                Some(payloads)
            }
            _ => None,
        };
        let KernelConnection { process, client, interrupt, .. } = &mut self.connection;
        let reply = shell_request::send(client, process, interrupt, request, SHELL_REPLY_TIMEOUT);
        let mut reply = reply.map_err(|error| {
            KernelError::Shell(match error {
                ShellRequestError::Failed(error) => error,
                ShellRequestError::Exited => ShellError::Exited(self.exit_reason()),
            })
        })?;
        Ok(match payloads {
            Some(payloads) => json!({ "payload": payloads, "user_expressions": reply["user_expressions"].take() }),
            None => reply,
        })
    }

    fn install(&mut self, packages: &[String], progress: &dyn Progress) -> Result<(), KernelError> {
        let deadline = Instant::now() + self.install_timeout();
        let installed = self.install_until(packages, progress, deadline);
        installed.map(drop).map_err(|error| KernelError::Install(error.into()))
    }

    fn interrupt_handle(&self) -> Arc<dyn InterruptHandle> {
        self.connection.interrupt.clone()
    }

    fn restart(&mut self) -> Result<(), KernelError> {
        self.connection.process.kill();
        self.connection.process.wait_until(Instant::now() + KILL_TIMEOUT);
        self.sandbox.kill_all_and_reset().map_err(|error| KernelError::Failed(error.into()))?;
        let started = self.starter.start_kernel(&mut self.sandbox);
        self.connection = started.map_err(|error| KernelError::Failed(error.into()))?;
        self.execution_count = 0;
        self.payloads.clear();
        self.known_modules = KnownModules::default();
        Ok(())
    }

    fn fork(&mut self, _: Option<&SessionFolder>) -> Result<Box<dyn Kernel>, KernelError> {
        Err(KernelError::Unsupported(
            "a native kernel cannot be copied: make a new session and run the cells again, or serve with the \
             WebAssembly sandbox"
                .into(),
        ))
    }

    fn snapshot(&mut self) -> Result<KernelSnapshot, KernelError> {
        Err(KernelError::Unsupported("a native kernel's state cannot be saved: it lives as long as the server".into()))
    }

    fn files(&mut self) -> Vec<FileInfo> {
        self.sandbox.directory().list()
    }

    fn read(&mut self, path: &str, range: Range) -> Result<Vec<u8>, FileError> {
        self.sandbox.directory().read(path, range, self.scrubber())
    }

    fn write(&mut self, path: &str, bytes: &[u8]) -> Result<(), FileError> {
        self.sandbox.directory().write(path, bytes)
    }
}

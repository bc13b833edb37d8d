//! A running kernel: its process, the connections to it, and its interrupts.

use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_core::kernel::{CellObserver, CellRequest, NullObserver};

use crate::linux::cell::{self, CellLimits, KernelHandles};
use crate::linux::client::Client;
use crate::linux::function_calls::{self, FunctionSocket};
use crate::linux::interrupt::InterruptFlag;
use crate::linux::kernel_process::KernelProcess;
use crate::linux::native_config::NativeConfig;
use crate::linux::session_sandbox::{KERNEL_START_TIMEOUT, SessionSandbox};
use crate::linux::start_error::StartError;
use crate::linux::zmtp::message::SigningKey;
use crate::linux::zmtp::path::connect_in;
use crate::linux::zygote::Zygote;

/// The time in which a kernel whose connection failed is expected to exit, if an exit is the cause.
const EXIT_CHECK_TIMEOUT: Duration = Duration::from_millis(100);

/// The process of a kernel that is ready, and the connections to it.
pub(crate) struct KernelConnection {
    pub(crate) process: Arc<KernelProcess>,
    pub(crate) client: Client,
    pub(crate) interrupt: Arc<InterruptFlag>,
    /// The connection for calls of functions of the host, if the backend's code can make any.
    pub(crate) functions: Option<FunctionSocket>,
    /// The zygote that reaps the process.
    _zygote: Option<Arc<Zygote>>,
}

impl KernelConnection {
    /// Starts a kernel in a sandbox where none runs, passes its process to `on_spawn`, and waits until it is ready.
    ///
    /// # Errors
    /// See [`StartError`].
    pub(crate) fn start(
        config: &NativeConfig,
        sandbox: &mut SessionSandbox,
        zygote: Option<Arc<Zygote>>,
        on_spawn: &dyn Fn(&Arc<KernelProcess>),
    ) -> Result<Self, StartError> {
        let deadline = Instant::now() + KERNEL_START_TIMEOUT;
        let key = SigningKey::random();
        let process = Arc::new(sandbox.start(config, zygote.as_deref(), &key, deadline)?);
        on_spawn(&process);
        let mut client = Client::connect(sandbox.sockets().as_fd(), key, &process, deadline).map_err(|error| {
            let has_exited = process.wait_until(Instant::now() + EXIT_CHECK_TIMEOUT);
            if has_exited { StartError::Exited(process.status()) } else { StartError::Connection(error) }
        })?;
        let scrubber = config.scrubber();
        client.scrub(scrubber.clone());
        let interrupt = Arc::new(InterruptFlag::new(process.clone())?);
        // The kernel has created this socket before those of the client.
        let functions = config.tools.then(|| connect_in(sandbox.sockets(), function_calls::SOCKET)).transpose()?;
        let functions = functions.map(|stream| FunctionSocket::new(stream, scrubber)).transpose()?;
        Ok(Self { process, client, interrupt, functions, _zygote: zygote })
    }

    /// Returns whether the process runs.
    pub(crate) fn is_alive(&self) -> bool {
        !self.process.has_ended()
    }

    /// Runs a cell that does, ahead of time, the work that a kernel does for its first cell.
    ///
    /// # Errors
    /// Returns an error if the kernel is lost.
    pub(crate) fn warm_up(&mut self, sandbox: &mut SessionSandbox) -> Result<(), StartError> {
        let cell = CellRequest { code: "1\nNone".into(), ..CellRequest::default() };
        let limits = CellLimits {
            wall_time: Some(KERNEL_START_TIMEOUT),
            cpu_time: None,
            grace: Duration::ZERO,
            output: 1 << 20,
            silent: true,
        };
        let observer: Arc<dyn CellObserver> = Arc::new(NullObserver);
        cell::run(self.handles(sandbox), &cell, &observer, limits, 0).map(drop).map_err(|_| StartError::FirstCell)
    }

    /// Borrows all that running a cell takes.
    pub(crate) fn handles<'a>(&'a mut self, sandbox: &'a mut SessionSandbox) -> KernelHandles<'a> {
        let Self { process, client, interrupt, functions, .. } = self;
        KernelHandles { client, process, interrupt, functions: functions.as_mut(), broker: sandbox.broker() }
    }
}

//! An interpreter in the sandbox: runs code and returns its outcome.

mod calls;
mod completion;

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_core::kernel::InterruptHandle;
use belljar_core::{Execution, HoldingWait, Limits, RunRequest};
use belljar_emscripten::console::{Console, OutputSink};
use belljar_emscripten::fs::{Filesystem, Quota};
use belljar_emscripten::host::Host;
use belljar_emscripten::network::Network;
use belljar_emscripten::recording::Recording;
use belljar_emscripten::stop::{StopHandle, StopReason};
use belljar_emscripten::{Instance, InstanceConfig, InstanceError, Program};
use belljar_network::{Connections, Scrubber};
use belljar_packages::Dependencies;
use serde::{Deserialize, Serialize};

use crate::guest_protocol::{GuestFunctions, RunArguments};
use crate::host_calls::{HostCall, HostCallRegistry};
use crate::image::Image;
use crate::install::{CellPackages, PrepareError, RuntimeInstaller};
use crate::owner_memory::count_for_owner;
use crate::scrubbing::ScrubbingSink;
use crate::session_files;

pub use completion::{Completeness, Completions};

/// The time for which ended code waits for the records of its connections.
pub(crate) const RECORD_TIMEOUT: Duration = Duration::from_millis(50);

/// The interrupt handle of an interpreter.
#[derive(Clone)]
pub struct InterpreterInterruptHandle {
    stop: Arc<StopHandle>,
}

impl InterpreterInterruptHandle {
    /// Ends the interpreter for a reason.
    pub(crate) fn end(&self, reason: StopReason) {
        self.stop.stop(reason);
    }
}

impl InterruptHandle for InterpreterInterruptHandle {
    fn interrupt(&self) {
        /// The number of CPython for Emscripten.
        const SIGINT: i32 = 2;
        self.stop.interrupt(SIGINT);
    }

    fn kill(&self) {
        self.stop.stop(StopReason::Requested);
    }
}

/// Counts a sleep of the code among the waits that hold their thread.
fn hold_thread(sleep: &mut dyn FnMut()) {
    let _wait = HoldingWait::begin();
    sleep();
}

/// The standard streams of an interpreter.
pub struct Streams {
    /// The sink of standard output and standard error, in the order in which they are written.
    pub output: Box<dyn OutputSink>,
    /// The source of standard input.
    pub input: Box<dyn Read + Send>,
}

/// The state that an interpreter has in common with other copies, and that its next run therefore renews.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Renewal {
    /// Nothing: it has been renewed.
    #[default]
    None,
    /// The seeds of random number generators: the interpreter is a copy of one that has run code.
    Seeds,
    /// Everything that an image contains: nothing has been run since the restore.
    All,
}

impl Renewal {
    /// Returns the renewal of a copy of an interpreter with this one.
    pub(crate) fn of_copy(self) -> Self {
        match self {
            Self::All => Self::All,
            Self::None | Self::Seeds => Self::Seeds,
        }
    }
}

/// A CPython interpreter. Variables and files are not shared with other interpreters.
///
/// Runs on guest threads only: see [`crate::on_guest_thread`].
pub struct Interpreter {
    instance: Instance,
    functions: GuestFunctions,
    limits: Limits,
    /// The modules that no package provides, with the notes for errors of importing them.
    missing_modules: Arc<BTreeMap<String, String>>,
    renewal: Renewal,
    /// True if packages were installed since the last run.
    has_new_packages: bool,
    /// The environment variables that the next run sets first.
    environment: BTreeMap<String, String>,
    /// Removes secrets from what the code returns.
    scrubber: Scrubber,
    /// The connections of the code, if it can use the network.
    connections: Option<Arc<Connections>>,
    /// True if the guest package no longer follows the protocol, although CPython still runs.
    is_broken: bool,
    start: Duration,
    /// The time for which the request that waits has run.
    pub(crate) spent: Duration,
}

impl Interpreter {
    /// Creates a copy of the interpreter in `image`.
    pub(crate) fn restore(
        program: &Program,
        image: &Image,
        limits: Limits,
        streams: Streams,
    ) -> Result<Self, InstanceError> {
        let start = Instant::now();
        let config = InstanceConfig {
            files: Filesystem::new(quota(&limits)),
            console: console(&limits, streams),
            environment: Vec::new(),
            limits: machine_limits(&limits),
        };
        let mut instance = program.restore(image.snapshot(), config)?;
        count_for_owner(&mut instance);
        instance.stop_handle().observe_sleeps(hold_thread);
        let (functions, missing_modules) = (image.functions(), image.missing_modules().clone());
        Ok(Self {
            instance,
            functions,
            limits,
            missing_modules,
            renewal: Renewal::All,
            has_new_packages: false,
            environment: BTreeMap::new(),
            scrubber: Scrubber::default(),
            connections: None,
            is_broken: false,
            start: start.elapsed(),
            spent: Duration::ZERO,
        })
    }

    /// Creates an interpreter from an instance that continues the state of an earlier copy of `image`.
    pub(crate) fn resumed(mut instance: Instance, image: &Image, limits: Limits) -> Self {
        count_for_owner(&mut instance);
        let (functions, missing_modules) = (image.functions(), image.missing_modules().clone());
        instance.stop_handle().observe_sleeps(hold_thread);
        Self {
            instance,
            functions,
            limits,
            missing_modules,
            renewal: Renewal::None,
            has_new_packages: false,
            environment: BTreeMap::new(),
            scrubber: Scrubber::default(),
            connections: None,
            is_broken: false,
            start: Duration::ZERO,
            spent: Duration::ZERO,
        }
    }

    /// Runs a piece of code until it ends or reaches a limit.
    pub fn run(&mut self, request: &RunRequest) -> Execution {
        let missing_modules = self.missing_modules.clone();
        let (renewal, installed, max_value_bytes) =
            (self.take_renewal(), self.take_has_new_packages(), self.limits.value);
        let environment = self.take_environment();
        let arguments = RunArguments {
            request,
            missing_modules: &missing_modules,
            renewal,
            installed,
            max_value_bytes,
            stepped: false,
            environment,
        };
        self.with_limits(|this| this.call_for_outcome(this.functions.run, "run", &arguments))
    }

    /// Returns the guest's functions.
    pub(crate) fn functions(&self) -> GuestFunctions {
        self.functions
    }

    /// Returns the state that the next run renews.
    pub(crate) fn renewal(&self) -> Renewal {
        self.renewal
    }

    /// Sets the state that the next run renews.
    pub(crate) fn set_renewal(&mut self, renewal: Renewal) {
        self.renewal = renewal;
    }

    /// Returns the state that the next run renews, which only that one does.
    pub(crate) fn take_renewal(&mut self) -> Renewal {
        std::mem::take(&mut self.renewal)
    }

    /// Installs packages: adds their files to the file system. The next run finds them.
    ///
    /// Must be called on a guest thread.
    ///
    /// # Errors
    /// Returns an error if a required package cannot be installed.
    pub fn install(
        &mut self,
        installer: &RuntimeInstaller,
        needs: &Dependencies,
    ) -> Result<CellPackages, PrepareError> {
        let packages = installer.install(needs, self.files())?;
        self.has_new_packages = true;
        Ok(packages)
    }

    /// Returns whether packages were installed since the last call of this function.
    pub(crate) fn take_has_new_packages(&mut self) -> bool {
        std::mem::take(&mut self.has_new_packages)
    }

    /// Returns the top-level modules in the working directory of the code, and names that are not modules.
    pub fn local_modules(&mut self) -> Vec<String> {
        session_files::local_modules(self.list_session_files())
    }

    /// Returns whether the program has written output or read input.
    pub fn has_used_streams(&self) -> bool {
        self.instance.host().console.was_used()
    }

    /// Returns the modules that no package provides, with the notes for errors of importing them.
    pub(crate) fn missing_modules(&self) -> &Arc<BTreeMap<String, String>> {
        &self.missing_modules
    }

    /// Returns the limits of the interpreter.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Sets the limit of elapsed time for later executions; `None` removes it.
    pub fn set_wall_time(&mut self, wall_time: Option<Duration>) {
        self.limits.wall_time = wall_time;
    }

    /// Sets the limits of time of later executions.
    pub(crate) fn set_limits_of_time(&mut self, limits: &Limits) {
        let Limits { wall_time, cpu_time, grace, .. } = *limits;
        self.limits = Limits { wall_time, cpu_time, grace, ..self.limits };
    }

    pub(crate) fn instance_mut(&mut self) -> &mut Instance {
        &mut self.instance
    }

    /// Sets what is behind the sockets of the code; without a network, it cannot create any.
    pub fn set_network(&mut self, network: Option<Arc<dyn Network>>) {
        self.host_mut().network = network;
    }

    pub(crate) fn host_mut(&mut self) -> &mut Host {
        self.instance.host_mut()
    }

    /// Ends the program: runs its `atexit` callbacks and flushes its files.
    ///
    /// Failures are reported on standard error and in the outcome.
    pub fn finish(&mut self) -> Execution {
        let execution =
            self.with_limits(|this| this.call_for_outcome(this.functions.finish, "finish", &BTreeMap::<(), ()>::new()));
        self.wait_for_connection_records();
        execution
    }

    /// Returns a handle that stops running code from other threads.
    pub fn interrupt_handle(&self) -> InterpreterInterruptHandle {
        InterpreterInterruptHandle { stop: self.instance.stop_handle() }
    }

    /// Removes secrets from what the code writes and returns, until its streams are redirected.
    pub(crate) fn scrub(&mut self, scrubber: &Scrubber) {
        if scrubber.is_empty() {
            return;
        }
        self.scrubber = scrubber.clone();
        let wrap = |sink| -> Box<dyn OutputSink> { Box::new(ScrubbingSink::new(scrubber, sink)) };
        self.host_mut().console.wrap_sink(wrap);
    }

    /// Returns the scrubber of secrets.
    pub(crate) fn scrubber(&self) -> &Scrubber {
        &self.scrubber
    }

    /// Sets the connections of the code.
    pub(crate) fn set_connections(&mut self, connections: Arc<Connections>) {
        self.connections = Some(connections);
    }

    /// Returns whether the code has begun a connection since its run began: what it has sent cannot be taken back.
    pub fn has_used_network(&self) -> bool {
        self.connections.as_ref().is_some_and(|connections| connections.any_opened())
    }

    /// Waits a moment for the records of the connections of code that has ended.
    pub(crate) fn wait_for_connection_records(&self) {
        if let Some(connections) = &self.connections {
            connections.wait_for_records(RECORD_TIMEOUT);
        }
    }

    /// Returns whether the code has open connections.
    pub(crate) fn has_connections(&self) -> bool {
        self.instance.host().files.has_connections()
    }

    /// Sets environment variables, beginning with the next run.
    pub fn set_environment(&mut self, variables: impl IntoIterator<Item = (String, String)>) {
        self.environment.extend(variables);
    }

    /// Returns the environment variables that a request sets first, and forgets them.
    pub(crate) fn take_environment(&mut self) -> BTreeMap<String, String> {
        std::mem::take(&mut self.environment)
    }

    /// Registers the handler of the host call `name`, in place of an earlier one.
    pub fn register_host_call(&mut self, name: impl Into<String>, handler: Arc<dyn HostCall>) {
        let host = self.instance.host_mut();
        let registry = host.embedder.take().and_then(|embedder| embedder.downcast::<HostCallRegistry>().ok());
        let mut registry = registry.map(|registry| HostCallRegistry::clone(&registry)).unwrap_or_default();
        registry.0.insert(name.into(), handler);
        host.embedder = Some(Arc::new(registry));
    }

    /// Returns the file system, which may be changed between executions.
    pub fn files(&mut self) -> &mut Filesystem {
        &mut self.instance.host_mut().files
    }

    /// Returns the handle that stops the instance.
    pub(crate) fn stop_handle(&self) -> Arc<StopHandle> {
        self.instance.stop_handle()
    }

    /// Returns the recording of the code, if it is recorded.
    pub(crate) fn recording(&self) -> Option<&Recording> {
        self.instance.host().recording()
    }

    /// Returns how the replay of the code has diverged, if it has.
    pub(crate) fn divergence(&self) -> Option<String> {
        self.recording().and_then(Recording::divergence)
    }

    /// Returns whether the interpreter has ended: by `os._exit`, a limit or a crash. Later calls return only errors.
    pub fn is_dead(&self) -> bool {
        self.is_broken || self.instance.is_dead()
    }

    /// Returns the largest size that the memory has had, in bytes.
    pub(crate) fn peak_memory(&self) -> u64 {
        self.instance.peak_memory()
    }
}

fn quota(limits: &Limits) -> Quota {
    Quota { bytes: limits.disk, inodes: limits.files, ..Quota::default() }
}

pub(crate) fn console(limits: &Limits, streams: Streams) -> Console {
    Console::new(streams.output, streams.input, limits.output)
}

pub(crate) fn machine_limits(limits: &Limits) -> belljar_emscripten::Limits {
    belljar_emscripten::Limits { memory: limits.memory, output: limits.output, files: quota(limits) }
}

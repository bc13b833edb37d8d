//! The interpreter of code that is run once: in this process, or in one of its own. Sessions in processes of their own
//! share the latter (`kernel_interpreter.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_core::kernel::{CellObserver, InterruptHandle, KernelError};
use belljar_core::{
    Execution, ExitReason, ImageCollector, LimitKind, Limits, Outcome, Progress, RunRequest, Statistics, Stream,
    bounded_json,
};
use belljar_emscripten::console::{self, Discard, OutputSink};
use belljar_emscripten::fs::{Filesystem, Quota};
use belljar_emscripten::network::Network;
use belljar_emscripten::stop::StopReason;
use belljar_network::{Connections, Scrubber};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::exchange::{self, RunCalls};
use super::isolated_mounts::IsolatedMounts;
use super::isolated_network::IsolatedNetwork;
use super::mounts::GuestMount;
use super::one_shot::ObserverSink;
use super::shown_images::{DisplayImage, TakesImages};
use super::wait_clock::WaitEnd;
use crate::guest_call::GuestFunction;
use crate::guest_protocol::{ResumeArguments, RunArguments, RunResult};
use crate::host_calls::{CallError, HostCall, HostCallContext, HostCallRegistry};
use crate::image::Image;
use crate::interpreter::{Interpreter, RECORD_TIMEOUT, Renewal};
use crate::isolation::{
    ChangeObserver, InterpreterProcess, InterpreterProcesses, MountRequest, MountResult, NetworkReply, NetworkRequest,
    ProcessCall, ProcessHost, ProcessHostCall, ProcessHostReply, ProcessReturn, RemoteSignals, ValueFile,
};
use crate::network::NetworkClient;
use crate::scrubbing::ScrubbingSink;
use crate::steps::{Step, StepReply};

/// The interpreter of code that is run once.
pub(in crate::backend) enum RunInterpreter {
    /// An interpreter in this process.
    Local(Box<Interpreter>),
    /// An interpreter in a process of its own.
    Isolated(Box<IsolatedInterpreter>),
}

impl RunInterpreter {
    pub(in crate::backend) fn begin_run(&mut self, request: &RunRequest) -> Step<Execution> {
        match self {
            Self::Local(interpreter) => interpreter.begin_run(request),
            Self::Isolated(interpreter) => interpreter.begin_run(request, true),
        }
    }

    pub(in crate::backend) fn run(&mut self, request: &RunRequest) -> Step<Execution> {
        match self {
            Self::Local(interpreter) => Step::Completed(interpreter.run(request)),
            Self::Isolated(interpreter) => interpreter.begin_run(request, false),
        }
    }

    pub(in crate::backend) fn resume_run(&mut self, wait_end: WaitEnd) -> Step<Execution> {
        match self {
            Self::Local(interpreter) => {
                wait_end.apply(interpreter);
                interpreter.resume_run()
            }
            Self::Isolated(interpreter) => interpreter.resume_run(wait_end),
        }
    }

    pub(in crate::backend) fn finish(&mut self) -> Execution {
        match self {
            Self::Local(interpreter) => interpreter.finish(),
            Self::Isolated(interpreter) => interpreter.finish(),
        }
    }

    pub(in crate::backend) fn is_dead(&self) -> bool {
        match self {
            Self::Local(interpreter) => interpreter.is_dead(),
            Self::Isolated(interpreter) => interpreter.is_dead(),
        }
    }

    pub(in crate::backend) fn has_used_streams(&self) -> bool {
        match self {
            Self::Local(interpreter) => interpreter.has_used_streams(),
            Self::Isolated(interpreter) => interpreter.has_used_streams,
        }
    }

    pub(in crate::backend) fn has_used_network(&self) -> bool {
        match self {
            Self::Local(interpreter) => interpreter.has_used_network(),
            Self::Isolated(interpreter) => interpreter.connections.as_ref().is_some_and(|these| these.any_opened()),
        }
    }

    pub(in crate::backend) fn has_connections(&self) -> bool {
        match self {
            Self::Local(interpreter) => interpreter.has_connections(),
            Self::Isolated(interpreter) => interpreter.host.network.has_connections(),
        }
    }

    pub(in crate::backend) fn interrupt_handle(&self) -> Arc<dyn InterruptHandle> {
        match self {
            Self::Local(interpreter) => Arc::new(interpreter.interrupt_handle()),
            Self::Isolated(interpreter) => interpreter.process.interrupt_handle(),
        }
    }

    /// Returns the file system with the buffers of the value.
    pub(in crate::backend) fn value_files(&mut self) -> &mut Filesystem {
        match self {
            Self::Local(interpreter) => interpreter.files(),
            Self::Isolated(interpreter) => &mut interpreter.host.files,
        }
    }

    /// Returns the interpreter, to connect it to the network.
    pub(in crate::backend) fn network_client(&mut self) -> &mut dyn NetworkClient {
        match self {
            Self::Local(interpreter) => &mut **interpreter,
            Self::Isolated(interpreter) => &mut **interpreter,
        }
    }

    /// Returns the interpreter, if it is in this process.
    pub(in crate::backend) fn local(&mut self) -> Option<&mut Interpreter> {
        match self {
            Self::Local(interpreter) => Some(interpreter),
            Self::Isolated(_) => None,
        }
    }
}

/// An interpreter in a process of its own, on the side of its caller.
pub(in crate::backend) struct IsolatedInterpreter<P: InterpreterProcess + ?Sized = dyn InterpreterProcess> {
    pub(in crate::backend) process: Box<P>,
    pub(in crate::backend) host: IsolatedHost,
    /// The buffers of the variables, until the code begins.
    pub(in crate::backend) variables: Vec<ValueFile>,
    pub(in crate::backend) limits: Limits,
    missing_modules: Arc<BTreeMap<String, String>>,
    pub(in crate::backend) renewal: Renewal,
    has_used_streams: bool,
    start: Duration,
    /// The time for which the request that waits has run.
    pub(in crate::backend) spent: Duration,
    /// The largest size that the memory has had, in bytes, as the process reports it.
    pub(in crate::backend) peak_memory: u64,
    /// The time by which the interpreter's clock is set forward before the next call.
    pub(in crate::backend) asleep: Duration,
    /// The environment variables that the next request sets first.
    environment: BTreeMap<String, String>,
    /// Removes secrets from results and files.
    scrubber: Scrubber,
    /// The connections of the code, if it can use the network.
    connections: Option<Arc<Connections>>,
}

impl IsolatedInterpreter {
    /// Starts an interpreter as a copy of `image`.
    pub(in crate::backend) fn start(
        processes: &dyn InterpreterProcesses,
        image: &Image,
        limits: Limits,
        owner: Option<&Arc<str>>,
        host: IsolatedHost,
        variables: Vec<ValueFile>,
        progress: &dyn Progress,
    ) -> Result<Self, KernelError> {
        let start = Instant::now();
        let process = processes.start(image, &limits, owner, host.mounts.points(), progress)?;
        let interpreter = Self::new(process, host, limits, Renewal::All);
        let missing_modules = image.missing_modules().clone();
        Ok(Self { variables, missing_modules, start: start.elapsed(), ..interpreter })
    }

    /// Runs code. It waits without its thread only if `stepped` is set.
    fn begin_run(&mut self, request: &RunRequest, stepped: bool) -> Step<Execution> {
        let missing_modules = self.missing_modules.clone();
        self.spent = Duration::ZERO;
        let arguments = RunArguments {
            request,
            missing_modules: &missing_modules,
            renewal: std::mem::take(&mut self.renewal),
            installed: false,
            max_value_bytes: self.limits.value,
            stepped,
            environment: self.take_environment(),
        };
        self.call_for_outcome(GuestFunction::Run, &arguments)
    }

    fn resume_run(&mut self, wait_end: WaitEnd) -> Step<Execution> {
        if let Some(reason) = self.end_wait(wait_end) {
            let statistics = Statistics { start: self.start, run: self.spent, peak_memory: 0 };
            return Step::Completed(Execution { outcome: Outcome::Exited(reason), statistics });
        }
        let arguments = ResumeArguments { renewal: None, environment: self.take_environment() };
        self.call_for_outcome(GuestFunction::Resume, &arguments)
    }

    fn finish(&mut self) -> Execution {
        self.spent = Duration::ZERO;
        let finished = self.call_for_outcome(GuestFunction::Finish, &BTreeMap::<(), ()>::new());
        self.wait_for_connection_records();
        match finished {
            Step::Completed(execution) => execution,
            Step::Waiting(_) => {
                let outcome = Outcome::Exited(ExitReason::Crash("the interpreter waits after its end".into()));
                Execution { outcome, statistics: Statistics::default() }
            }
        }
    }

    fn call_for_outcome(&mut self, function: GuestFunction, arguments: &impl Serialize) -> Step<Execution> {
        let (result, run) = self.step::<RunResult>(function, arguments, false);
        let statistics = Statistics { start: self.start, run, peak_memory: self.peak_memory };
        match result {
            Ok(Step::Waiting(wait)) => Step::Waiting(wait),
            Ok(Step::Completed(result)) => Step::Completed(Execution { outcome: result.into(), statistics }),
            Err(outcome) => Step::Completed(Execution { outcome, statistics }),
        }
    }
}

impl<P: InterpreterProcess + ?Sized> IsolatedInterpreter<P> {
    /// Creates the caller's side of the interpreter in `process`.
    pub(in crate::backend) fn new(process: Box<P>, host: IsolatedHost, limits: Limits, renewal: Renewal) -> Self {
        Self {
            process,
            host,
            variables: Vec::new(),
            limits,
            missing_modules: Arc::default(),
            renewal,
            has_used_streams: false,
            start: Duration::ZERO,
            spent: Duration::ZERO,
            peak_memory: 0,
            asleep: Duration::ZERO,
            environment: BTreeMap::new(),
            scrubber: Scrubber::default(),
            connections: None,
        }
    }

    fn is_dead(&self) -> bool {
        self.process.is_dead()
    }

    /// Returns the environment variables that a request sets first, and forgets them.
    pub(in crate::backend) fn take_environment(&mut self) -> BTreeMap<String, String> {
        std::mem::take(&mut self.environment)
    }

    /// Returns the scrubber of secrets.
    pub(in crate::backend) fn scrubber(&self) -> &Scrubber {
        &self.scrubber
    }

    /// Waits a moment for the records of the connections of code that has ended.
    pub(in crate::backend) fn wait_for_connection_records(&self) {
        if let Some(connections) = &self.connections {
            connections.wait_for_records(RECORD_TIMEOUT);
        }
    }

    /// Interrupts code that is about to go on, or ends it. Returns the reason if it has ended.
    pub(in crate::backend) fn end_wait(&mut self, wait_end: WaitEnd) -> Option<ExitReason> {
        match wait_end {
            WaitEnd::WithinLimits => None,
            WaitEnd::Interrupt => {
                let left = self.spent.saturating_add(self.limits.grace);
                self.limits.wall_time = Some(self.limits.wall_time.map_or(left, |limit| limit.min(left)));
                self.process.interrupt_handle().interrupt();
                None
            }
            WaitEnd::Kill(reason) => {
                self.process.interrupt_handle().kill();
                Some(match reason {
                    StopReason::WallTime => ExitReason::Limit(LimitKind::WallTime),
                    StopReason::CpuTime => ExitReason::Limit(LimitKind::CpuTime),
                    StopReason::WaitTime => ExitReason::Limit(LimitKind::WaitTime),
                    StopReason::Requested => ExitReason::Cancelled,
                })
            }
        }
    }

    /// Calls the guest until it ends the request or waits. Returns the time of all steps so far, too.
    ///
    /// # Errors
    /// The result has the outcome of an interpreter that did not return.
    pub(in crate::backend) fn step<R: DeserializeOwned + StepReply>(
        &mut self,
        function: GuestFunction,
        arguments: &impl Serialize,
        is_new_cell: bool,
    ) -> (Result<Step<R>, Outcome>, Duration) {
        let begin = Instant::now();
        let result = self.call::<R>(function, arguments, is_new_cell);
        let run = self.spent + begin.elapsed();
        let step = result.map(|reply| match reply.wait() {
            Some(wait) => {
                self.spent = run;
                Step::Waiting(wait)
            }
            None => {
                self.spent = Duration::ZERO;
                Step::Completed(reply)
            }
        });
        (step, run)
    }

    /// Calls a function of the guest package within the limits of time that are left.
    ///
    /// # Errors
    /// The outcome of an interpreter that did not return.
    pub(in crate::backend) fn call<R: DeserializeOwned>(
        &mut self,
        function: GuestFunction,
        arguments: &impl Serialize,
        is_new_cell: bool,
    ) -> Result<R, Outcome> {
        let crash = |reason: &str| Outcome::Exited(ExitReason::Crash(reason.to_owned()));
        let arguments = serde_json::to_string(arguments).map_err(|error| crash(&error.to_string()))?;
        let limits = self.limits.without_time(self.spent);
        let (files, asleep) = (std::mem::take(&mut self.variables), std::mem::take(&mut self.asleep));
        let (network, arguments, limits) = (self.host.network.is_set(), &arguments, &limits);
        let call = ProcessCall { function, arguments, files: &files, limits, is_new_cell, asleep, network };
        let ProcessReturn { returned, files } = self.process.call(&call, &mut self.host);
        self.host.output.flush();
        self.host.receive(&files);
        self.has_used_streams |= returned.has_used_streams;
        self.peak_memory = returned.peak_memory.min(self.limits.memory);
        let text = returned.result.map_err(Outcome::Exited)?;
        bounded_json::parse::<R>(&self.scrubber.scrub_text(&text))
            .ok_or_else(|| crash("the interpreter returned JSON of an unexpected shape"))
    }
}

impl<P: InterpreterProcess + ?Sized> NetworkClient for IsolatedInterpreter<P> {
    fn set_environment(&mut self, variables: Vec<(String, String)>) {
        self.environment.extend(variables);
    }

    fn scrub(&mut self, scrubber: &Scrubber) {
        if scrubber.is_empty() {
            return;
        }
        self.scrubber = scrubber.clone();
        let output = std::mem::replace(&mut self.host.output, Box::new(Discard));
        self.host.output = Box::new(ScrubbingSink::new(scrubber, output));
    }

    fn set_connections(&mut self, connections: Arc<Connections>) {
        self.connections = Some(connections);
    }

    fn register_host_call(&mut self, name: &str, handler: Arc<dyn HostCall>) {
        self.host.register(name, handler);
    }

    fn set_network(&mut self, network: Arc<dyn Network>, observer: Option<ChangeObserver>) {
        self.host.network.set(network, observer);
    }
}

/// The host of code in another process.
pub(in crate::backend) struct IsolatedHost {
    pub(in crate::backend) output: Box<dyn OutputSink>,
    handlers: HostCallRegistry,
    calls: Option<RunCalls>,
    /// The buffers of values that cross, for the handlers.
    pub(in crate::backend) files: Filesystem,
    pub(in crate::backend) network: IsolatedNetwork,
    pub(in crate::backend) mounts: IsolatedMounts,
    /// The number of buffers of replies that have crossed.
    sent_buffers: u64,
}

impl IsolatedHost {
    pub(in crate::backend) fn new(
        observer: Arc<dyn CellObserver>,
        images: ImageCollector,
        calls: Option<RunCalls>,
        mounts: Vec<GuestMount>,
        limits: &Limits,
    ) -> Self {
        let mut host = Self::with_output(Box::new(ObserverSink(observer)), mounts, limits);
        host.register("takes_images", Arc::new(TakesImages));
        host.register("display", Arc::new(DisplayImage(images)));
        host.register("install", Arc::new(RefusesPackages));
        host.set_calls(calls);
        host
    }

    /// Creates a host without handlers.
    pub(in crate::backend) fn with_output(
        output: Box<dyn OutputSink>,
        mounts: Vec<GuestMount>,
        limits: &Limits,
    ) -> Self {
        let mounts = IsolatedMounts::new(mounts);
        let (handlers, network) = (HostCallRegistry::default(), IsolatedNetwork::default());
        Self { output, handlers, calls: None, files: buffers(limits), network, mounts, sent_buffers: 0 }
    }

    /// Closes the connections and the files of a process that has ended.
    pub(in crate::backend) fn end_process(&mut self) {
        self.network.close_all();
        self.mounts.close_all();
    }

    /// Removes all buffers.
    pub(in crate::backend) fn clear_buffers(&mut self, limits: &Limits) {
        self.files = buffers(limits);
    }

    /// Registers the handler of the host call `name`, in place of an earlier one.
    pub(in crate::backend) fn register(&mut self, name: &str, handler: Arc<dyn HostCall>) {
        self.handlers.0.insert(name.to_owned(), handler);
    }

    /// Sets the calls of functions of the host that the code can make from now on.
    pub(in crate::backend) fn set_calls(&mut self, calls: Option<RunCalls>) {
        for (name, handler) in calls.iter().flat_map(RunCalls::handlers) {
            self.register(name, handler);
        }
        self.sent_buffers = calls.as_ref().map_or(0, RunCalls::written_buffers);
        self.calls = calls;
    }

    /// Takes buffers that the other process has sent, as far as there is room.
    fn receive(&mut self, files: &[ValueFile]) {
        for file in files.iter().filter(|file| file.has_valid_name()) {
            if let Err(error) = exchange::write_buffer(&mut self.files, &file.name, &file.bytes) {
                tracing::debug!(%error, "a buffer of a worker process does not fit");
            }
        }
    }

    /// Returns the buffers that handlers have written since the last call.
    fn take_replies(&mut self) -> Vec<ValueFile> {
        let written = self.calls.as_ref().map_or(0, RunCalls::written_buffers);
        let names = (self.sent_buffers..written).map(|before| format!("reply-{}", before + 1));
        self.sent_buffers = written;
        exchange::take_files(&mut self.files, names, u64::MAX)
    }
}

/// Creates a file system for buffers.
fn buffers(limits: &Limits) -> Filesystem {
    Filesystem::new(Quota { bytes: limits.disk, ..Quota::default() })
}

impl ProcessHost for IsolatedHost {
    fn write(&mut self, stream: Stream, bytes: &[u8]) {
        let stream = match stream {
            Stream::Stdout => console::Stream::Stdout,
            Stream::Stderr => console::Stream::Stderr,
        };
        self.output.write(stream, bytes);
    }

    fn host_call(
        &mut self,
        ProcessHostCall { name, request, files }: ProcessHostCall<'_>,
        signals: &dyn RemoteSignals,
    ) -> Result<ProcessHostReply, String> {
        let handler = self.handlers.0.get(name).cloned();
        let handler = handler.ok_or_else(|| format!("the host has no handler for `{name}`"))?;
        let request: &RawValue = serde_json::from_str(request).map_err(|error| error.to_string())?;
        self.receive(&files);
        let reply = handler.call(request, &mut HostCallContext::remote(&mut self.files, signals));
        let names = files.into_iter().filter(ValueFile::has_valid_name).map(|file| file.name);
        drop(exchange::take_files(&mut self.files, names, u64::MAX));
        let text = reply.map_err(|error| error.to_string())?.get().to_owned();
        Ok(ProcessHostReply { text, files: self.take_replies() })
    }

    fn mounts(&mut self, request: MountRequest) -> Option<MountResult> {
        self.mounts.handle(request)
    }

    fn network(&mut self, request: NetworkRequest, notify: &ChangeObserver) -> Option<NetworkReply> {
        self.network.handle(request, notify)
    }
}

/// The host call `install`, for code in another process.
pub(in crate::backend) struct RefusesPackages;

impl HostCall for RefusesPackages {
    fn call(&self, _: &RawValue, _: &mut HostCallContext<'_>) -> Result<Box<RawValue>, CallError> {
        Err(CallError::Refused(
            "packages cannot be installed while code runs in a worker process: import them, or name them in the call"
                .into(),
        ))
    }
}

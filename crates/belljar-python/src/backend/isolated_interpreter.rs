//! An interpreter in a process of its own, on the side of its caller. Code that is run once (`run_interpreter.rs`) and
//! sessions (`isolated_session.rs`) share it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_core::kernel::KernelError;
use belljar_core::{Execution, ExitReason, LimitKind, Limits, Outcome, Progress, RunRequest, Statistics, bounded_json};
use belljar_emscripten::console::Discard;
use belljar_emscripten::network::Network;
use belljar_emscripten::stop::StopReason;
use belljar_network::{Connections, Scrubber};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::isolated_host::{IsolatedHost, RecordedCode};
use super::wait_clock::WaitEnd;
use crate::guest_call::GuestFunction;
use crate::guest_protocol::{ResumeArguments, RunArguments, RunResult};
use crate::host_calls::HostCall;
use crate::image::Image;
use crate::interpreter::{RECORD_TIMEOUT, Renewal};
use crate::isolation::{
    ChangeObserver, FinishReturn, InterpreterProcess, InterpreterProcesses, ProcessCall, ProcessReturn, RunStart,
    ValueFile,
};
use crate::network::NetworkClient;
use crate::scrubbing::ScrubbingSink;
use crate::steps::{Step, StepReply};

/// An interpreter in a process of its own, on the side of its caller.
pub(in crate::backend) struct IsolatedInterpreter<P: InterpreterProcess + ?Sized = dyn InterpreterProcess> {
    pub(in crate::backend) process: Box<P>,
    pub(in crate::backend) host: IsolatedHost,
    /// The buffers of the variables, until the code begins.
    pub(in crate::backend) variables: Vec<ValueFile>,
    pub(in crate::backend) limits: Limits,
    missing_modules: Arc<BTreeMap<String, String>>,
    pub(in crate::backend) renewal: Renewal,
    pub(in crate::backend) has_used_streams: bool,
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
    pub(in crate::backend) connections: Option<Arc<Connections>>,
    /// True if the code is run once, and ends with [`IsolatedInterpreter::finish`].
    is_run_once: bool,
    /// True once its code was ended while it waited.
    is_ended: bool,
    /// The end of [`GuestFunction::Finish`], if the process has called it.
    finished: Option<FinishReturn>,
}

impl IsolatedInterpreter {
    /// Starts an interpreter as a copy of `image`, or with a state that differs from it.
    pub(in crate::backend) fn start(
        processes: &dyn InterpreterProcesses,
        image: &Image,
        limits: Limits,
        owner: Option<&Arc<str>>,
        host: IsolatedHost,
        (state, renewal): (Option<&[u8]>, Renewal),
        progress: &dyn Progress,
    ) -> Result<Self, KernelError> {
        let start = Instant::now();
        let mounts = host.mounts.points();
        let request = RunStart { image, limits: &limits, owner, mounts: &mounts, state };
        let process = processes.start(&request, progress)?;
        let interpreter = Self::new(process, host, limits, renewal);
        let missing_modules = image.missing_modules().clone();
        Ok(Self { missing_modules, start: start.elapsed(), is_run_once: true, ..interpreter })
    }

    /// Runs code. It waits without its thread only if `stepped` is set.
    pub(in crate::backend) fn begin_run(&mut self, request: &RunRequest, stepped: bool) -> Step<Execution> {
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

    pub(in crate::backend) fn resume_run(&mut self, wait_end: WaitEnd) -> Step<Execution> {
        if let Some(reason) = self.end_wait(wait_end) {
            self.is_ended = true;
            let statistics = Statistics { start: self.start, run: self.spent, peak_memory: 0 };
            return Step::Completed(Execution { outcome: Outcome::Exited(reason), statistics });
        }
        let renewal = Some(std::mem::take(&mut self.renewal)).filter(|renewal| *renewal != Renewal::None);
        let arguments = ResumeArguments { renewal, environment: self.take_environment() };
        self.call_for_outcome(GuestFunction::Resume, &arguments)
    }

    /// Returns the outcome of the end of the program, or `None` if the interpreter has ended before.
    pub(in crate::backend) fn finish(&mut self) -> Option<Outcome> {
        self.spent = Duration::ZERO;
        let outcome = match self.finished.take() {
            Some(finished) => finished.result.map_or_else(Outcome::Exited, |text| {
                let result = bounded_json::parse::<RunResult>(&self.scrubber.scrub_text(&text));
                result.map_or_else(unexpected_shape, Outcome::from)
            }),
            None if self.is_ended || self.is_dead() => return None,
            None => match self.call_for_outcome(GuestFunction::Finish, &BTreeMap::<(), ()>::new()) {
                Step::Completed(execution) => execution.outcome,
                Step::Waiting(_) => Outcome::Exited(ExitReason::Crash("the interpreter waits after its end".into())),
            },
        };
        self.wait_for_connection_records();
        Some(outcome)
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
            is_run_once: false,
            is_ended: false,
            finished: None,
        }
    }

    pub(in crate::backend) fn is_dead(&self) -> bool {
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
        let finish = self.finished.as_ref().map_or(Duration::ZERO, |finished| finished.time);
        let run = self.spent + begin.elapsed().saturating_sub(finish);
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
        let recording = self.host.recorded.as_mut().map(RecordedCode::next_call).unwrap_or_default();
        let is_run = self.is_run_once && function != GuestFunction::Finish;
        let call = ProcessCall {
            function,
            arguments,
            files: &files,
            limits,
            is_new_cell,
            asleep,
            network,
            recording,
            finish: is_run.then_some(&self.limits),
        };
        let ProcessReturn { returned, files, recording, finish } = self.process.call(&call, &mut self.host);
        self.finished = finish;
        if let Some(recorded) = &mut self.host.recorded {
            recorded.end_call(recording);
        }
        self.host.output.flush();
        self.host.receive(&files);
        self.has_used_streams |= returned.has_used_streams;
        self.peak_memory = returned.peak_memory.min(self.limits.memory);
        let text = returned.result.map_err(Outcome::Exited)?;
        bounded_json::parse::<R>(&self.scrubber.scrub_text(&text)).ok_or_else(unexpected_shape)
    }
}

fn unexpected_shape() -> Outcome {
    Outcome::Exited(ExitReason::Crash("the interpreter returned JSON of an unexpected shape".into()))
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

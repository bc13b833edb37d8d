//! Calls of the guest's functions within the limits of time, and the reasons why they do not return.

use std::time::Instant;

use belljar_core::{Execution, ExitReason, LimitKind, Outcome, Statistics, bounded_json};
use belljar_emscripten::InstanceError;
use belljar_emscripten::stop::StopReason;
use belljar_emscripten::termination::Termination;
use belljar_emscripten::watchdog::{DeadlineGuard, TimeLimits};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Interpreter;
use crate::c_api::{self, CApiError, Object};
use crate::guest_protocol::RunResult;

impl Interpreter {
    /// Calls one of the guest's functions within the limits of time.
    ///
    /// # Errors
    /// The outcome of an interpreter that did not return.
    pub(crate) fn call_with_limits<R: DeserializeOwned, A: Serialize>(
        &mut self,
        function: Object,
        name: &str,
        arguments: &A,
    ) -> Result<R, Outcome> {
        let mut result = Err(Outcome::Success(None));
        let execution = self.with_limits(|this| {
            result = this.call_guest(function, name, arguments);
            result.as_ref().err().cloned().unwrap_or(Outcome::Success(None))
        });
        tracing::trace!(run = ?execution.statistics.run, name, "a call of the guest");
        self.host_mut().console.flush();
        result
    }

    /// Runs `work` within the limits of time, less what the request has spent so far.
    pub(crate) fn with_limits(&mut self, work: impl FnOnce(&mut Self) -> Outcome) -> Execution {
        let limits = self.limits.without_time(self.spent);
        let watch = DeadlineGuard::start(
            &self.instance.stop_handle(),
            TimeLimits { wall: limits.wall_time, cpu: limits.cpu_time, grace: limits.grace },
        );
        let start = Instant::now();
        let outcome = work(self);
        drop(watch);
        self.is_broken |= matches!(outcome, Outcome::Exited(ExitReason::Crash(_)));
        let statistics = Statistics {
            start: self.start,
            run: self.spent + start.elapsed(),
            peak_memory: self.instance.peak_memory(),
        };
        Execution { outcome, statistics }
    }

    pub(super) fn call_for_outcome(&mut self, function: Object, name: &str, arguments: &impl Serialize) -> Outcome {
        let result = self.call_guest::<RunResult, _>(function, name, arguments);
        self.host_mut().console.flush();
        result.map_or_else(|outcome| outcome, Outcome::from)
    }

    /// Calls one of the guest's functions.
    ///
    /// # Errors
    /// The outcome of an interpreter that did not return.
    pub(crate) fn call_guest<R: DeserializeOwned, A: Serialize>(
        &mut self,
        function: Object,
        name: &str,
        arguments: &A,
    ) -> Result<R, Outcome> {
        let crash = |reason: String| Outcome::Exited(ExitReason::Crash(reason));
        if self.is_broken {
            return Err(crash(InstanceError::Dead.to_string()));
        }
        let arguments = serde_json::to_string(arguments).map_err(|error| crash(error.to_string()))?;
        let result = self.call_recorded(function, name, &arguments).map_err(Outcome::Exited)?;
        bounded_json::parse(&self.scrubber.scrub_text(&result))
            .ok_or_else(|| crash("the interpreter returned JSON of an unexpected shape".into()))
    }

    /// Calls one of the guest's functions, or the one that a recording has instead if the code is replayed.
    ///
    /// # Errors
    /// The reason why the interpreter did not return.
    pub(crate) fn call_recorded(
        &mut self,
        function: Object,
        name: &str,
        arguments: &str,
    ) -> Result<String, ExitReason> {
        let Some(recording) = self.instance.host().recording().cloned() else {
            return c_api::call(&mut self.instance, function, name, arguments).map_err(|error| self.end_reason(error));
        };
        let result = match recording.call(name, arguments) {
            None => c_api::call(&mut self.instance, function, name, arguments),
            Some((name, arguments)) => {
                let function = self.functions.by_name(&name);
                let function = function.ok_or_else(|| ExitReason::Crash(format!("it has no `{name}`")))?;
                c_api::call(&mut self.instance, function, &name, &arguments)
            }
        };
        recording.end_call();
        recording.end_sleep().map_err(|termination| ExitReason::Crash(termination.to_string()))?;
        result.map_err(|error| self.end_reason(error))
    }

    fn end_reason(&self, error: CApiError) -> ExitReason {
        match error {
            CApiError::Instance(error) => self.exit_reason(error),
            error => ExitReason::Crash(error.to_string()),
        }
    }

    /// Returns the reason why the instance did not return.
    pub(crate) fn exit_reason(&self, error: InstanceError) -> ExitReason {
        match error {
            InstanceError::Terminated(Termination::Exit(status)) => ExitReason::Exit(status & 0xff),
            InstanceError::Terminated(Termination::OutputLimit { .. }) => ExitReason::Limit(LimitKind::Output),
            InstanceError::Terminated(Termination::Stopped) => match self.instance.host().stop.reason() {
                Some(StopReason::WallTime) => ExitReason::Limit(LimitKind::WallTime),
                Some(StopReason::WaitTime) => ExitReason::Limit(LimitKind::WaitTime),
                Some(StopReason::CpuTime) => ExitReason::Limit(LimitKind::CpuTime),
                Some(StopReason::Requested) | None => ExitReason::Cancelled,
            },
            InstanceError::StackOverflow => ExitReason::Limit(LimitKind::Stack),
            other => ExitReason::Crash(other.to_string()),
        }
    }
}

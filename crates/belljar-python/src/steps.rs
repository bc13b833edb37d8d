//! Requests that an interpreter handles in steps: code that waits gives its thread back, and is continued later.
//!
//! While code awaits, nothing of it is on the stack of WebAssembly (`guest/event_loop.py`, `steps`): the interpreter
//! can be continued on any guest thread. The limits of time count the steps, and not the waits between them.

use std::time::Duration;

use belljar_core::kernel::{CellRequest, InterruptHandle as _};
use belljar_core::{Execution, Outcome, RunRequest, Wait};
use serde::de::DeserializeOwned;

use crate::c_api::Object;
use crate::guest_protocol::{ExecuteArguments, ExecuteResult, ResumeArguments, RunArguments, RunResult, ShellCell};
use crate::interpreter::{Interpreter, Renewal};

/// The progress of a request.
pub(crate) enum Step<T> {
    /// The request has ended.
    Completed(T),
    /// The code waits. The interpreter must be continued before it can be used for anything else.
    Waiting(Wait),
}

/// The reply of a guest that may wait.
pub(crate) trait StepReply {
    /// Returns what the guest waits for, if it waits.
    fn wait(&self) -> Option<Wait>;
}

impl StepReply for RunResult {
    fn wait(&self) -> Option<Wait> {
        if let Self::Waiting(wait) = self { Some(wait.into()) } else { None }
    }
}

impl StepReply for ExecuteResult {
    fn wait(&self) -> Option<Wait> {
        if let Self::Waiting(wait) = self { Some(wait.into()) } else { None }
    }
}

impl Interpreter {
    /// Returns whether the guest package of the image can return when code waits.
    pub(crate) fn supports_steps(&self) -> bool {
        self.functions().resume.is_some()
    }

    /// Does the same as [`Interpreter::run`], but returns when the code waits.
    pub(crate) fn begin_run(&mut self, request: &RunRequest) -> Step<Execution> {
        let missing_modules = self.missing_modules().clone();
        let (renewal, installed) = (self.take_renewal(), self.take_has_new_packages());
        let environment = self.take_environment();
        let arguments = RunArguments {
            request,
            missing_modules: &missing_modules,
            renewal,
            installed,
            max_value_bytes: self.limits().value,
            stepped: self.supports_steps(),
            environment,
        };
        self.spent = Duration::ZERO;
        self.run_step(self.functions().run, "run", &arguments)
    }

    /// Continues the code that [`Interpreter::begin_run`] or this function has left waiting.
    pub(crate) fn resume_run(&mut self) -> Step<Execution> {
        let (function, arguments) = self.resume_function();
        self.run_step(function, "resume", &arguments)
    }

    /// Does the same as [`Interpreter::execute`], but returns when the cell waits.
    ///
    /// # Errors
    /// The same as for [`Interpreter::execute`].
    pub(crate) fn begin_cell(&mut self, cell: &CellRequest, color: bool) -> Result<Step<ShellCell>, Outcome> {
        let (installed, renewal) = (self.take_has_new_packages(), self.take_renewal());
        let max_value_bytes = self.limits().value;
        let stepped = self.supports_steps();
        let environment = self.take_environment();
        let arguments = ExecuteArguments { cell, color, max_value_bytes, installed, renewal, stepped, environment };
        self.spent = Duration::ZERO;
        self.cell_step(self.functions().execute, "execute", &arguments)
    }

    /// Continues the cell that [`Interpreter::begin_cell`] or this function has left waiting.
    ///
    /// # Errors
    /// The same as for [`Interpreter::execute`].
    pub(crate) fn resume_cell(&mut self) -> Result<Step<ShellCell>, Outcome> {
        let (function, arguments) = self.resume_function();
        self.cell_step(function, "resume", &arguments)
    }

    /// Interrupts the code that waits, for its next step. The code then has its grace left, and is interrupted and
    /// ended like any other after that.
    pub(crate) fn interrupt_with_grace(&mut self) {
        let left = self.spent.saturating_add(self.limits().grace);
        let wall_time = self.limits().wall_time.map_or(left, |limit| limit.min(left));
        self.set_wall_time(Some(wall_time));
        self.interrupt_handle().interrupt();
    }

    /// Returns the function that continues waiting code, and its arguments.
    fn resume_function(&mut self) -> (Object, ResumeArguments) {
        let renewal = Some(self.take_renewal()).filter(|renewal| *renewal != Renewal::None);
        // An image without the function does not wait: the call of the null object is an error.
        let environment = self.take_environment();
        (self.functions().resume.unwrap_or_default(), ResumeArguments { renewal, environment })
    }

    fn run_step(&mut self, function: Object, name: &str, arguments: &impl serde::Serialize) -> Step<Execution> {
        let (result, execution) = self.step::<RunResult>(function, name, arguments);
        match result {
            Ok(Step::Waiting(wait)) => Step::Waiting(wait),
            Ok(Step::Completed(result)) => Step::Completed(Execution { outcome: result.into(), ..execution }),
            Err(outcome) => Step::Completed(Execution { outcome, ..execution }),
        }
    }

    fn cell_step(
        &mut self,
        function: Object,
        name: &str,
        arguments: &impl serde::Serialize,
    ) -> Result<Step<ShellCell>, Outcome> {
        match self.step::<ExecuteResult>(function, name, arguments).0? {
            Step::Waiting(wait) => Ok(Step::Waiting(wait)),
            Step::Completed(result) => Result::from(result).map(Step::Completed),
        }
    }

    /// Calls the guest until it ends the request or waits. The execution has the statistics of all steps so far.
    fn step<R: DeserializeOwned + StepReply>(
        &mut self,
        function: Object,
        name: &str,
        arguments: &impl serde::Serialize,
    ) -> (Result<Step<R>, Outcome>, Execution) {
        let mut result = Err(Outcome::Success(None));
        let execution = self.with_limits(|this| {
            result = this.call_guest::<R, _>(function, name, arguments);
            result.as_ref().err().cloned().unwrap_or(Outcome::Success(None))
        });
        tracing::trace!(run = ?execution.statistics.run, name, "a step of the guest");
        // A secret may go on after a wait.
        if !result.as_ref().is_ok_and(|reply| reply.wait().is_some()) {
            self.host_mut().console.flush();
        }
        let step = result.map(|reply| match reply.wait() {
            Some(wait) => {
                self.spent = execution.statistics.run;
                Step::Waiting(wait)
            }
            None => {
                self.spent = Duration::ZERO;
                Step::Completed(reply)
            }
        });
        (step, execution)
    }
}

//! Runs of a program: a run that lacks a package is repeated with that package.

use belljar_core::{Execution, ExitReason, MissingDependency, Outcome, RunRequest};
use belljar_python::install::{FailedRun, ImageForRepetition, InstalledPackages};
use belljar_python::{CallEffects, Streams};

use crate::command_error::CommandError;
use crate::console::print_note;
use crate::interrupt::Interrupts;
use crate::run_context::{RunContext, Running};

/// The maximum number of times that a program is run again, each time with another package that it lacked.
const MAX_REPETITIONS: usize = 3;

/// A program that has run. Functions that it registered for its end (`atexit`) have not run yet.
pub(crate) struct ProgramRun {
    pub(crate) running: Running,
    pub(crate) execution: Execution,
    /// The packages that were installed for the program before and between its runs.
    pub(crate) installed: InstalledPackages,
    /// The package that it lacked in its last run, if that is why it failed.
    pub(crate) missing: Option<MissingDependency>,
}

impl ProgramRun {
    /// Runs a program, and again if it lacked a package and has had no effects so far. The image of `context` is then
    /// one with that package. `streams` opens the streams of one run.
    ///
    /// # Errors
    /// Returns an error if an interpreter cannot be created.
    pub(crate) fn new(
        context: &mut RunContext<'_>,
        request: &RunRequest,
        installed: InstalledPackages,
        streams: impl Fn() -> Streams,
        interrupts: &Interrupts,
    ) -> Result<Self, CommandError> {
        let mut limits = context.arguments.limits.for_run();
        let mut options = context.packages.options(context.has_environment());
        let mut running = context.start(limits, streams())?;
        let execution = running.run(request, interrupts);
        let mut run = Self { running, execution, installed, missing: None };
        for _ in 0..MAX_REPETITIONS {
            let Outcome::Error(error) = &run.execution.outcome else { break };
            let has_effects = run.running.interpreter.has_used_streams()
                || run.running.interpreter.has_used_network()
                || run.running.calls.as_ref().is_some_and(CallEffects::any)
                || context.arguments.mount.iter().any(|mount| mount.writable);
            let failed = FailedRun { code: &request.code, image: &context.image, error, has_effects };
            match context.packages.image_for_repetition(&failed, &mut options) {
                Ok(None) => break,
                Ok(Some(ImageForRepetition { image, installed, needs })) => {
                    if context.shows_notes {
                        print_note(&format!("installed {installed}, and started the program again"));
                    }
                    run.installed = InstalledPackages::new(image.packages(), &needs);
                    context.image = image;
                    limits = limits.without_time(run.execution.statistics.run);
                    run.running = context.start(limits, streams())?;
                    run.execution = run.running.run(request, interrupts);
                }
                Err(missing) => {
                    run.missing = Some(missing);
                    break;
                }
            }
        }
        Ok(run)
    }

    /// Runs the functions that the program registered for its end.
    pub(crate) fn finish(&mut self, interrupts: &Interrupts) {
        if self.running.interpreter.is_dead() {
            return;
        }
        let ending = self.running.finish(interrupts);
        self.execution.statistics.run += ending.statistics.run;
        self.execution.statistics.peak_memory = ending.statistics.peak_memory;
        // As in Python, an exception in an atexit function does not change the exit status; a limit or a crash does.
        if matches!(
            ending.outcome,
            Outcome::Exited(ExitReason::Limit(_) | ExitReason::Cancelled | ExitReason::Crash(_))
        ) {
            self.execution.outcome = ending.outcome;
        }
    }
}

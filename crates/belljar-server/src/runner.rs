//! Code run on guest threads: an image for its packages, a fresh interpreter, an outcome.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use belljar_core::kernel::{Backend, Interrupt};
use belljar_core::progress::{NoProgress, Progress};
use belljar_core::{Limits, Outcome, Request};
use belljar_packages::{Inferred, Requirement};
use belljar_python::install::LiveInstaller;
use belljar_python::{Interpreter, Streams};
use belljar_sessions::{Busy, Capacity, Place, Pool, Workplace};
use prometheus_client::metrics::gauge::Gauge;
use rmcp::model::LoggingLevel;
use tokio::sync::oneshot;

use crate::answer::Report;
use crate::arguments::Arguments;
use crate::fresh_kernel::{self, Call};
use crate::images::Images;
use crate::listener::{Listener, Output};
use crate::metrics::Metrics;

/// Why code was not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// Too much is being done already.
    #[error(transparent)]
    Busy(#[from] Busy),
    /// Python cannot be made ready, or a fault of ours.
    #[error("{0}")]
    Failed(String),
}

/// Makes the workplace ready; on a guest thread.
type Opener = Box<dyn Fn(&dyn Progress) -> Result<Workplace, String> + Send + Sync>;

/// Runs code, each piece in an interpreter of its own. Cheap to clone.
#[derive(Clone)]
pub struct Runner {
    shared: Arc<Shared>,
}

struct Shared {
    pool: Arc<Pool>,
    limits: Limits,
    open: Opener,
    workplace: Mutex<Option<Workplace>>,
    /// Runs the code in place of the sandboxed CPython.
    backend: Option<(Arc<dyn Backend>, String)>,
    metrics: Metrics,
}

impl Runner {
    /// Begins to make the workplace ready, by `open`, on a guest thread: whoever calls meanwhile waits for it. When it
    /// fails, the next call tries again.
    pub fn start(
        limits: Limits,
        capacity: Capacity,
        open: impl Fn(&dyn Progress) -> Result<Workplace, String> + Send + Sync + 'static,
    ) -> Self {
        let open = Box::new(open);
        let metrics = Metrics::default();
        let pool = Arc::new(Pool::new(capacity));
        let shared = Shared { pool, limits, open, workplace: Mutex::default(), backend: None, metrics };
        let runner = Self { shared: Arc::new(shared) };
        let opening = Arc::downgrade(&runner.shared);
        let submitted = runner.shared.pool.submit(move |_place| {
            if let Some(shared) = opening.upgrade()
                && let Err(error) = shared.workplace(&NoProgress)
            {
                tracing::error!("Python is not ready: {error}");
            }
        });
        if let Err(error) = submitted {
            tracing::error!(%error, "Python is made ready by the first call");
        }
        runner
    }

    /// Runs each piece of code in a kernel of its own that `backend` makes, whose Python is `python`: `3.13.1`.
    pub fn on(backend: Arc<dyn Backend>, python: &str, limits: Limits, capacity: Capacity) -> Self {
        let open: Opener = Box::new(|_| Err("this server has no CPython in WebAssembly".into()));
        let (pool, metrics) = (Arc::new(Pool::new(capacity)), Metrics::default());
        let backend = Some((backend, python.to_owned()));
        Self { shared: Arc::new(Shared { pool, limits, open, workplace: Mutex::default(), backend, metrics }) }
    }

    /// The limits of every piece of code.
    pub fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    /// The threads that code runs on.
    pub fn pool(&self) -> Arc<Pool> {
        self.shared.pool.clone()
    }

    /// What code is run with, made ready if need be. Must be called on a guest thread.
    ///
    /// # Errors
    /// What opening it says.
    pub fn workplace(&self, progress: &dyn Progress) -> Result<Workplace, String> {
        self.shared.workplace(progress)
    }

    /// The server's numbers.
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    /// Runs a piece of code. When the future is dropped, the code is stopped.
    pub(crate) async fn run(&self, arguments: Arguments, listener: Listener) -> Result<Report, RunError> {
        let begin = Instant::now();
        let result = self.run_now(arguments, listener).await;
        let status = match &result {
            Ok(report) => report.status(),
            Err(RunError::Busy(_)) => "busy",
            Err(RunError::Failed(_)) => "failed",
        };
        self.shared.metrics.answered(status, begin.elapsed());
        result
    }

    async fn run_now(&self, arguments: Arguments, listener: Listener) -> Result<Report, RunError> {
        let stop = Stop::default();
        let (answer, answered) = oneshot::channel();
        let job = Job { shared: self.shared.clone(), arguments, listener, stop: stop.clone() };
        self.shared.pool.submit(move |place| job.run(answer, place))?;
        let _guard = StopOnDrop(stop);
        answered.await.unwrap_or_else(|_| Err(RunError::Failed("the call failed by a fault of Belljar".into())))
    }
}

impl Shared {
    fn workplace(&self, progress: &dyn Progress) -> Result<Workplace, String> {
        // Held while it is made: who comes meanwhile waits here.
        let mut workplace = self.workplace.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(workplace) = &*workplace {
            return Ok(workplace.clone());
        }
        let opened = (self.open)(progress)?;
        *workplace = Some(opened.clone());
        Ok(opened)
    }
}

/// Stops a call, wherever it is.
#[derive(Clone, Default)]
struct Stop(Arc<Mutex<Stage>>);

#[derive(Default)]
enum Stage {
    /// It waits, or its image is being made.
    #[default]
    Before,
    /// It ends what runs.
    Running(Box<dyn FnOnce() + Send>),
    Stopped,
}

impl Stop {
    fn stop(&self) {
        let mut stage = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Stage::Running(end) = std::mem::replace(&mut *stage, Stage::Stopped) {
            end();
        }
    }

    fn stopped(&self) -> bool {
        matches!(*self.0.lock().unwrap_or_else(PoisonError::into_inner), Stage::Stopped)
    }

    /// The code is about to run, and `end` ends it; `false` if it is not to.
    fn running(&self, end: impl FnOnce() + Send + 'static) -> bool {
        let mut stage = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*stage, Stage::Stopped) {
            return false;
        }
        *stage = Stage::Running(Box::new(end));
        true
    }
}

struct StopOnDrop(Stop);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// One call, on a guest thread.
struct Job {
    shared: Arc<Shared>,
    arguments: Arguments,
    listener: Listener,
    stop: Stop,
}

impl Job {
    fn run(mut self, answer: oneshot::Sender<Result<Report, RunError>>, place: Place) {
        if self.stop.stopped() {
            return;
        }
        let (report, interpreter) = match self.execute() {
            Ok((report, interpreter)) => (Ok(report), interpreter),
            Err(error) => (Err(RunError::Failed(error)), None),
        };
        self.listener.end();
        // Who has the answer may call again.
        drop(place);
        // Nobody waits any more, perhaps.
        let _ = answer.send(report);
        // The answer does not wait for the memory to be given back.
        drop(interpreter);
    }

    fn execute(&mut self) -> Result<(Report, Option<Used>), String> {
        if let Some((backend, python)) = self.shared.backend.clone() {
            let limits = Limits { wall_time: self.timeout(), ..self.shared.limits };
            let live = Live::new(self.shared.metrics.live.clone());
            let stop = self.stop.clone();
            let begins = move |interrupt: Arc<dyn Interrupt>| stop.running(move || interrupt.stop());
            let call = Call {
                arguments: std::mem::take(&mut self.arguments),
                limits,
                python: &python,
                listener: &self.listener,
            };
            let report = fresh_kernel::run(&*backend, call, begins)?;
            drop(live);
            return Ok((report, None));
        }
        let place = self.shared.workplace(&self.listener)?;
        let limits = Limits { wall_time: self.timeout(), ..self.shared.limits };
        let mut given = place.given.clone();
        let named = std::mem::take(&mut self.arguments.dependencies);
        given.requirements.extend(named);
        let code = std::mem::take(&mut self.arguments.code);
        let mut report = Report::begin(limits);
        let prepared = place.python.needs(&code, &given, &*place.source).and_then(|needs| {
            report.dependencies = names(needs.required());
            let image = place.python.image_for(&needs, &given, &*place.source, &self.listener)?;
            let is_there = |inferred: &&Inferred| !image.absent().contains_key(&inferred.module);
            let inferred = needs.inferred.iter().filter(is_there).map(|inferred| &inferred.requirement);
            let installed = names(needs.requirements.iter().chain(inferred));
            Ok((image, installed))
        });
        let image = match prepared {
            Ok((image, installed)) => {
                report.dependencies = installed;
                image
            }
            Err(error) if error.is_about_packages() => {
                self.listener.log(LoggingLevel::Error, "belljar", error.to_string());
                report.outcome = Outcome::InstallError(error.to_string());
                return Ok((report, None));
            }
            Err(error) => return Err(error.to_string()),
        };
        if self.stop.stopped() {
            return Err("the call was cancelled".into());
        }
        let output = Output::new(&self.listener);
        let streams = Streams { output: Box::new(output.clone()), input: Box::new(std::io::empty()) };
        let interpreter = place.python.interpreter_with(&image, limits, streams);
        let mut interpreter = interpreter.map_err(|error| error.to_string())?;
        let live = Live::new(self.shared.metrics.live.clone());
        let images = Images::default();
        images.serve(&mut interpreter);
        let installer =
            LiveInstaller::new(&place.python, &image, place.source.clone(), Arc::new(self.listener.clone()));
        interpreter.answer("install", Arc::new(installer));
        let interrupter = interpreter.interrupter();
        if !self.stop.running(move || interrupter.stop()) {
            return Err("the call was cancelled".into());
        }
        self.listener.step("running");
        let request = Request { code, globals: self.arguments.globals.take(), ..Request::default() };
        report.outcome = interpreter.run(&request).outcome;
        if !interpreter.is_dead() {
            let ending = interpreter.finish();
            if matches!(ending.outcome, Outcome::Limit(_) | Outcome::Crash(_)) {
                report.outcome = ending.outcome;
            }
        }
        report.output = output.take();
        report.images = images.take();
        if let (Some(error), false) = (report.error(), matches!(report.outcome, Outcome::Exit(_))) {
            self.listener.log(LoggingLevel::Error, "python", error);
        }
        Ok((report, Some(Used { _interpreter: interpreter, _live: live })))
    }

    fn timeout(&self) -> Option<Duration> {
        match (self.arguments.timeout, self.shared.limits.wall_time) {
            (Some(asked), Some(most)) => Some(asked.min(most)),
            (asked, most) => asked.or(most),
        }
    }
}

/// What a call leaves behind, to be dropped when its answer is on its way.
struct Used {
    _interpreter: Interpreter,
    _live: Live,
}

/// Counts an interpreter while it exists.
struct Live(Gauge);

impl Live {
    fn new(gauge: Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Names, each once, in their order.
fn names<'a>(requirements: impl Iterator<Item = &'a Requirement>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for requirement in requirements {
        if !names.iter().any(|name| name == requirement.name()) {
            names.push(requirement.name().to_owned());
        }
    }
    names
}

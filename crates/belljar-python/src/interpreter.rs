//! One sealed CPython: runs code and says how it ended.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_core::{
    Execution, LimitKind, Limits, Mode, Outcome, PythonError, Request, Statistics, Value, bounded_json,
};
use belljar_emscripten::console::{Console, OutputSink};
use belljar_emscripten::fs::{Filesystem, Quota};
use belljar_emscripten::host::{Host, Termination};
use belljar_emscripten::stop::{Stop, StopReason};
use belljar_emscripten::watchdog::{TimeLimits, Watch};
use belljar_emscripten::{Instance, InstanceError, Program, Setup};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::calls::{Calls, HostCall};
use crate::image::Image;
use crate::interop::{self, InteropError, Object};
use crate::session;

/// What interactive input amounts to so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Completeness {
    /// It can be run.
    Complete,
    /// More lines are needed.
    Incomplete,
    /// No further line makes it Python.
    Invalid,
}

/// The functions of the guest's `_belljar` package that the host calls: objects inside the image.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Functions {
    run: Object,
    is_complete: Object,
    finish: Object,
    execute: Object,
    ask: Object,
}

impl Functions {
    pub(crate) fn run_function(&self) -> Object {
        self.run
    }

    pub(crate) fn execute_function(&self) -> Object {
        self.execute
    }

    /// Imports the package and looks them up.
    pub(crate) fn import(instance: &mut Instance) -> Result<Self, InteropError> {
        let mut function = |name| interop::import(instance, "_belljar", name);
        Ok(Self {
            run: function("run")?,
            is_complete: function("is_complete")?,
            finish: function("finish")?,
            execute: function("execute")?,
            ask: function("ask")?,
        })
    }
}

/// Asks a running interpreter to stop; can be sent to other threads.
#[derive(Clone)]
pub struct Interrupter {
    stop: Arc<Stop>,
}

impl Interrupter {
    /// Raises `KeyboardInterrupt` in the code, as Ctrl-C does. Code may handle it and go on.
    pub fn interrupt(&self) {
        /// As CPython for Emscripten numbers it.
        const SIGINT: i32 = 2;
        self.stop.interrupt(SIGINT);
    }

    /// Ends the code whatever it does; its interpreter is gone then.
    pub fn stop(&self) {
        self.stop.stop(StopReason::Requested);
    }
}

/// What an interpreter is given when it is made.
pub struct Streams {
    /// Takes standard output and error, in order, as they are written.
    pub output: Box<dyn OutputSink>,
    /// Gives standard input.
    pub input: Box<dyn Read + Send>,
}

/// A CPython of its own: no other interpreter sees its variables or files.
///
/// Runs on guest threads only: see [`crate::on_guest_thread`].
pub struct Interpreter {
    instance: Instance,
    functions: Functions,
    limits: Limits,
    /// What is said to code that fails for want of a module, by module.
    absent: Arc<BTreeMap<String, String>>,
    fresh: bool,
    /// Whether our own part inside stopped answering as agreed, though CPython lives on.
    broken: bool,
    start: Duration,
}

/// What [`Interpreter::run`] passes to `_belljar.run`.
#[derive(Serialize)]
struct GuestRequest<'a> {
    code: &'a str,
    filename: &'a str,
    mode: Mode,
    #[serde(skip_serializing_if = "Option::is_none")]
    globals: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    argv: Option<&'a [String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    env: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    absent: &'a BTreeMap<String, String>,
    /// Whether this is the first call since the image was restored: seeds are to be drawn anew.
    fresh: bool,
    max_value_bytes: u64,
}

/// What the guest answers.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum GuestAnswer {
    Value {
        value: Option<String>,
        text: Option<String>,
        #[serde(default)]
        strict: Option<String>,
    },
    Error(PythonError),
    Exit {
        code: i32,
    },
}

impl Interpreter {
    /// A copy of the interpreter in `image`.
    pub(crate) fn restore(
        program: &Program,
        image: &Image,
        limits: Limits,
        streams: Streams,
    ) -> Result<Self, InstanceError> {
        let begin = Instant::now();
        let setup = Setup {
            files: Filesystem::new(quota(&limits)),
            console: console(&limits, streams),
            environment: Vec::new(),
            limits: machine_limits(&limits),
        };
        let instance = program.restore(image.snapshot(), setup)?;
        let (functions, absent) = (image.functions(), image.absent().clone());
        Ok(Self { instance, functions, limits, absent, fresh: true, broken: false, start: begin.elapsed() })
    }

    /// One that goes on from where another copy of `image` was.
    pub(crate) fn woken(instance: Instance, image: &Image, limits: Limits) -> Self {
        let (functions, absent) = (image.functions(), image.absent().clone());
        Self { instance, functions, limits, absent, fresh: false, broken: false, start: Duration::ZERO }
    }

    /// Runs a piece of code to its end, or to a limit.
    pub fn run(&mut self, request: &Request) -> Execution {
        let guest_request = GuestRequest {
            code: &request.code,
            filename: if request.filename.is_empty() { "main.py" } else { &request.filename },
            mode: request.mode,
            globals: request.globals.as_deref(),
            argv: request.argv.as_deref(),
            file: request.file.as_deref(),
            env: &request.env,
            absent: &self.absent,
            fresh: std::mem::take(&mut self.fresh),
            max_value_bytes: self.limits.value,
        };
        let text = serde_json::to_string(&guest_request).unwrap_or_default();
        self.timed(|this| this.ask(this.functions.run, "run", &text))
    }

    /// Asks the guest's `execute`.
    pub(crate) fn execute_request(&mut self, request: &str) -> Result<session::Cell, Outcome> {
        let mut cell = Err(Outcome::Success(None));
        let execution = self.timed(|this| {
            cell = this.call_guest(this.functions.execute, "execute", request).and_then(session::Answer::into_result);
            match &cell {
                Err(outcome) => outcome.clone(),
                Ok(_) => Outcome::Success(None),
            }
        });
        tracing::trace!(run = ?execution.statistics.run, "a cell");
        cell
    }

    /// Asks the guest's `ask`: the content of its answer.
    pub(crate) fn ask_request(&mut self, request: &str) -> Result<serde_json::Value, Outcome> {
        let mut content = Err(Outcome::Success(None));
        self.timed(|this| {
            content = this.call_guest(this.functions.ask, "ask", request).and_then(session::Told::into_result);
            content.as_ref().err().cloned().unwrap_or(Outcome::Success(None))
        });
        content
    }

    /// Whether nothing was run since it was restored; from now on something was.
    pub(crate) fn take_fresh(&mut self) -> bool {
        std::mem::take(&mut self.fresh)
    }

    /// Whether nothing was run since it was restored.
    pub(crate) fn is_fresh(&self) -> bool {
        self.fresh
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Ends code after this much elapsed time, from the next execution on; `None` is never.
    pub fn set_wall_time(&mut self, wall_time: Option<Duration>) {
        self.limits.wall_time = wall_time;
    }

    pub(crate) fn instance_mut(&mut self) -> &mut Instance {
        &mut self.instance
    }

    pub(crate) fn host_mut(&mut self) -> &mut Host {
        self.instance.host_mut()
    }

    /// Ends the program: runs what it registered with `atexit` and flushes its files.
    ///
    /// A failure in there shows on standard error and in the outcome.
    pub fn finish(&mut self) -> Execution {
        self.timed(|this| this.ask(this.functions.finish, "finish", "{}"))
    }

    /// Whether `code`, typed at a prompt, can be run or needs more lines.
    pub fn completeness(&mut self, code: &str) -> Completeness {
        #[derive(Deserialize)]
        struct Answer {
            status: Completeness,
        }
        let request = serde_json::json!({ "code": code }).to_string();
        let answer = interop::call(&mut self.instance, self.functions.is_complete, "is_complete", &request);
        // Code that cannot be judged is run, so that Python says what is wrong with it.
        answer
            .ok()
            .and_then(|text| serde_json::from_str::<Answer>(&text).ok())
            .map_or(Completeness::Complete, |answer| answer.status)
    }

    /// A handle to stop what runs, from other threads.
    pub fn interrupter(&self) -> Interrupter {
        Interrupter { stop: self.instance.stop_switch() }
    }

    /// Lets `call` answer what the code asks of the host by `name`, in place of what did before.
    pub fn answer(&mut self, name: impl Into<String>, call: Arc<dyn HostCall>) {
        let host = self.instance.host_mut();
        let calls = host.embedder.take().and_then(|embedder| embedder.downcast::<Calls>().ok());
        let mut calls = calls.map(|calls| Calls::clone(&calls)).unwrap_or_default();
        calls.0.insert(name.into(), call);
        host.embedder = Some(Arc::new(calls));
    }

    /// Its files, to be changed between executions.
    pub fn files(&mut self) -> &mut Filesystem {
        &mut self.instance.host_mut().files
    }

    /// Whether it has ended: by `os._exit`, a limit or a crash. It answers nothing but that from then on.
    pub fn is_dead(&self) -> bool {
        self.broken || self.instance.is_dead()
    }

    /// How long it took to make.
    pub fn start_time(&self) -> Duration {
        self.start
    }

    fn timed(&mut self, work: impl FnOnce(&mut Self) -> Outcome) -> Execution {
        let watch = Watch::start(
            &self.instance.stop_switch(),
            TimeLimits { wall: self.limits.wall_time, cpu: self.limits.cpu_time, grace: self.limits.grace },
        );
        let begin = Instant::now();
        let outcome = work(self);
        drop(watch);
        self.broken |= matches!(outcome, Outcome::Crash(_));
        let statistics =
            Statistics { start: self.start, run: begin.elapsed(), peak_memory: self.instance.peak_memory() };
        Execution { outcome, statistics }
    }

    fn ask(&mut self, function: Object, name: &str, request: &str) -> Outcome {
        match self.call_guest(function, name, request) {
            Ok(GuestAnswer::Value { value, text, strict }) => {
                Outcome::Success(value.map(|json| Value { text: text.unwrap_or_else(|| json.clone()), json, strict }))
            }
            Ok(GuestAnswer::Error(error)) => Outcome::Error(error),
            Ok(GuestAnswer::Exit { code }) => Outcome::Exit(code & 0xff),
            Err(outcome) => outcome,
        }
    }

    /// The answer of one of the guest's functions, or how the interpreter ended instead of giving one.
    fn call_guest<A: DeserializeOwned>(&mut self, function: Object, name: &str, request: &str) -> Result<A, Outcome> {
        if self.broken {
            return Err(Outcome::Crash(InstanceError::Dead.to_string()));
        }
        match interop::call(&mut self.instance, function, name, request) {
            Ok(answer) => bounded_json::parse(&answer)
                .ok_or_else(|| Outcome::Crash("the interpreter gave an answer that is not JSON as agreed".into())),
            Err(InteropError::Instance(error)) => Err(self.ended(error)),
            Err(error) => Err(Outcome::Crash(error.to_string())),
        }
    }

    /// What it means that the instance did not return.
    fn ended(&self, error: InstanceError) -> Outcome {
        match error {
            InstanceError::Terminated(Termination::Exit(status)) => Outcome::Exit(status & 0xff),
            InstanceError::Terminated(Termination::OutputLimit { .. }) => Outcome::Limit(LimitKind::Output),
            InstanceError::Terminated(Termination::Stopped) => {
                Outcome::Limit(match self.instance.host().stop.reason() {
                    Some(StopReason::WallTime) => LimitKind::WallTime,
                    Some(StopReason::CpuTime) => LimitKind::CpuTime,
                    Some(StopReason::Requested) | None => LimitKind::Stopped,
                })
            }
            InstanceError::StackOverflow => Outcome::Limit(LimitKind::Stack),
            other => Outcome::Crash(other.to_string()),
        }
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

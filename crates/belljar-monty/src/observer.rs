//! The observer of a feed's cell, which receives the questions of the code and asks those for which it blocks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use belljar_core::kernel::{CellObserver, InputError, InputReply, InterruptHandle};
use belljar_core::progress::{NoProgress, Progress, ProgressStep, StepProgress};
use belljar_core::{EncodedValue, FunctionCall, FunctionError, FunctionReply, ReplySender, Stream};
use parking_lot::{Mutex, MutexGuard};
use serde_json::value::to_raw_value;

use crate::budget;
use crate::events::{RunTimes, exception, send, violation};
use crate::link::Link;
use crate::prints::PrintBuffer;
use crate::proto::{Event, Operation, RaisedException, Request, ResourceLimits};
use crate::question::{Answer, Question, answer};
use crate::questions::Questions;
use crate::turn_clock::TurnClock;

/// The name of the guest's calls that block.
const BLOCKING_CALL: &str = "monty:now";
/// The name of the guest's calls that are awaited.
const AWAITED_CALL: &str = "monty:later";
/// The time that code has to end after its feed was aborted.
const ABORT_GRACE: Duration = Duration::from_secs(2);

/// The observer of a feed.
pub(crate) struct FeedObserver {
    link: Arc<Link>,
    prints: Arc<PrintBuffer>,
    limits: ResourceLimits,
    /// The version of the protocol that the parent speaks.
    version: u32,
    times: Mutex<RunTimes>,
    /// The clock of turns, if they have a limit.
    turns: Option<TurnClock>,
    questions: Mutex<Questions>,
    replies: Mutex<Option<ReplySender>>,
    value: Mutex<Option<EncodedValue>>,
    /// A request that ended the feed while its code waited on the stack.
    interrupting: Mutex<Option<Request>>,
    handle: Mutex<Option<Arc<dyn InterruptHandle>>>,
    is_aborted: AtomicBool,
}

impl FeedObserver {
    pub(crate) fn new(
        link: Arc<Link>,
        prints: Arc<PrintBuffer>,
        limits: ResourceLimits,
        version: u32,
        times: RunTimes,
        questions: Questions,
    ) -> Self {
        Self {
            link,
            prints,
            limits,
            version,
            times: Mutex::new(times),
            turns: limits.max_turn_duration_micros.map(|limit| TurnClock::new(Duration::from_micros(limit))),
            questions: Mutex::new(questions),
            replies: Mutex::default(),
            value: Mutex::default(),
            interrupting: Mutex::default(),
            handle: Mutex::default(),
            is_aborted: AtomicBool::default(),
        }
    }

    /// Runs a step of the code, whose time counts. `handle` ends it.
    pub(crate) fn run<T>(&self, handle: Arc<dyn InterruptHandle>, step: impl FnOnce() -> T) -> T {
        self.link.shared.set_running(Some(handle.clone()));
        *self.handle.lock() = Some(handle);
        self.begin_run();
        if self.is_aborted.load(Ordering::Relaxed) {
            self.link.shared.end_running_later(ABORT_GRACE);
        }
        let result = step();
        self.end_run();
        *self.handle.lock() = None;
        self.link.shared.set_running(None);
        result
    }

    /// Begins to count the time of the code.
    fn begin_run(&self) {
        self.times.lock().start();
        if let (Some(turns), Some(handle)) = (&self.turns, &*self.handle.lock()) {
            turns.start(handle);
        }
    }

    /// Stops to count the time of the code.
    fn end_run(&self) {
        self.times.lock().stop();
        if let Some(turns) = &self.turns {
            turns.stop();
        }
    }

    /// Begins the next turn: the parent has answered.
    pub(crate) fn begin_turn(&self) {
        if let Some(turns) = &self.turns {
            turns.begin();
        }
    }

    /// Excludes the feed from the limit of time of turns.
    pub(crate) fn remove_turn_limit(&mut self) {
        self.turns = None;
    }

    /// Returns the error of a turn in which the code has run for too long.
    pub(crate) fn turn_error(&self) -> Option<RaisedException> {
        self.turns.as_ref().and_then(TurnClock::error)
    }

    /// Sends an event that ends a turn, after the output.
    pub(crate) fn emit(&self, event: Event) {
        self.prints.flush();
        let times = *self.times.lock();
        send(&self.link, event, Some((&self.limits, &times)), None);
    }

    /// Returns the times so far.
    pub(crate) fn times(&self) -> RunTimes {
        *self.times.lock()
    }

    /// Returns the questions as JSON, for a dump.
    pub(crate) fn save(&self) -> serde_json::Result<serde_json::Value> {
        serde_json::to_value(&*self.questions.lock())
    }

    /// Takes the value of the feed.
    pub(crate) fn take_value(&self) -> Option<EncodedValue> {
        self.value.lock().take()
    }

    /// Takes the request that ended the feed while its code waited on the stack.
    pub(crate) fn take_interrupting(&self) -> Option<Request> {
        self.interrupting.lock().take()
    }

    /// Sets the sender of replies of a cell that was restored.
    pub(crate) fn attach(&self, replies: ReplySender) {
        *self.replies.lock() = Some(replies);
    }

    /// Returns the questions of the feed.
    pub(crate) fn questions(&self) -> MutexGuard<'_, Questions> {
        self.questions.lock()
    }

    /// Ends the feed: everything that the code waits for is answered by the exception. The code is killed if it goes on
    /// for a while.
    pub(crate) fn abort(&self, exception: &RaisedException) {
        self.questions.lock().abort(exception);
        self.is_aborted.store(true, Ordering::Relaxed);
    }

    /// Sends the code the answers that it receives next.
    pub(crate) fn send_answers(&self) {
        let ready = self.questions.lock().take_ready();
        let replies = self.replies.lock().clone();
        for (id, answer) in ready {
            if let Some(replies) = &replies {
                reply(replies, id, &answer);
            }
        }
    }

    /// Asks the parent on the thread of the code, which waits.
    fn ask(&self, question: &Question) -> Answer {
        if let (Question::Os(call), ..=5) = (question, self.version)
            && let Some(Operation::Import(import)) = &call.call
        {
            // This version of the protocol cannot ask it.
            return Answer::NotFound(import.module.clone());
        }
        let (event, pending) = self.questions.lock().event(question);
        self.end_run();
        self.emit(event);
        let answer = loop {
            let Some(request) = self.link.receive() else {
                break Answer::Abort(exception("RuntimeError", "the parent is gone"));
            };
            match budget::decode(&request).map(|request| request.kind) {
                Err(error) => self.refuse(&error.to_string()),
                Ok(None) => self.refuse("the request has no kind, or one that is not known"),
                Ok(Some(Request::Dump(_))) => self.refuse(
                    "this suspension cannot be saved: the code called without `await` and within a function, so that \
                     its frames are on the stack. Use `await`, or call at the top level",
                ),
                Ok(Some(request @ (Request::Reset(_) | Request::Shutdown(_)))) => {
                    *self.interrupting.lock() = Some(request);
                    if let Some(handle) = &*self.handle.lock() {
                        handle.kill();
                    }
                    break Answer::Abort(exception("RuntimeError", "the session was reset"));
                }
                Ok(Some(request)) => match answer(pending, request) {
                    Ok(answer) => break answer,
                    Err(reason) => self.refuse(&reason),
                },
            }
        };
        self.begin_turn();
        self.begin_run();
        answer
    }

    fn refuse(&self, reason: &str) {
        self.emit(violation(reason));
    }
}

fn reply(replies: &ReplySender, id: u64, answer: &Answer) {
    let text = serde_json::to_string(answer).and_then(|text| to_raw_value(&text));
    let result = match text {
        Ok(json) => Ok(EncodedValue { json, buffers: Vec::new() }),
        Err(error) => Err(FunctionError { name: "RuntimeError".into(), message: error.to_string() }),
    };
    // Ignore send errors: the code may have ended.
    let _ = replies.send(FunctionReply { id, result });
}

impl Progress for FeedObserver {
    fn start(&self, step: ProgressStep) -> Box<dyn StepProgress> {
        NoProgress.start(step)
    }
}

impl CellObserver for FeedObserver {
    fn on_stream(&self, stream: Stream, bytes: &[u8]) {
        self.prints.push(stream, bytes);
    }

    fn on_value(&self, value: EncodedValue) {
        *self.value.lock() = Some(value);
    }

    fn request_input(&self, _: &str, _: bool) -> Result<Receiver<InputReply>, InputError> {
        Err(InputError::Unavailable)
    }

    fn call_function(&self, call: FunctionCall, replies: &ReplySender) {
        let question = serde_json::from_str::<((Question,), serde::de::IgnoredAny)>(call.arguments.json.get());
        let refuse = |message: String| {
            let result = Err(FunctionError { name: "RuntimeError".into(), message });
            // Ignore send errors: the code may have ended.
            let _ = replies.send(FunctionReply { id: call.id, result });
        };
        let question = match question {
            Ok(((question,), _)) => question,
            Err(error) => return refuse(format!("the call of the host cannot be read: {error}")),
        };
        match (call.name.as_str(), question) {
            (AWAITED_CALL, Question::Future(number)) => {
                if !self.questions.lock().claim(number, call.id) {
                    return refuse(format!("there is no future with the number {number}"));
                }
                *self.replies.lock() = Some(replies.clone());
            }
            (AWAITED_CALL, question) => {
                self.questions.lock().queue(call.id, question);
                *self.replies.lock() = Some(replies.clone());
            }
            (BLOCKING_CALL, question @ (Question::Function(_) | Question::Name(_) | Question::Os(_))) => {
                // Code that handles the interrupt of its turn cannot ask any more.
                let answer = self.turn_error().map_or_else(|| self.ask(&question), Answer::Abort);
                match answer {
                    Answer::Abort(_) => self.link.shared.end_running_later(ABORT_GRACE),
                    Answer::Future(number) => self.questions.lock().promise(number),
                    _ => {}
                }
                reply(replies, call.id, &answer);
            }
            (name, _) => refuse(format!("there is no function `{name}` of the host")),
        }
    }

    fn cancel_function(&self, id: u64) {
        self.questions.lock().cancel(id);
    }
}

//! The questions of one feed, and the observer of its cell, which receives them.
//!
//! ```text
//!  the code awaits ──▶ queued ──▶ asked ──┬─ an answer ─▶ ready ──▶ sent when the code is continued
//!                                         └─ a future ──▶ futures ─▶ ready, when the parent has the result
//!  the code blocks ──▶ asked at once, on the thread of the code
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use belljar_core::kernel::{CellObserver, InputError, InputReply, InterruptHandle};
use belljar_core::progress::{NoProgress, Progress, ProgressStep, StepProgress};
use belljar_core::{EncodedValue, FunctionCall, FunctionError, FunctionReply, ReplySender, Stream};
use parking_lot::Mutex;
use prost::Message as _;
use serde::{Deserialize, Serialize};
use serde_json::value::to_raw_value;

use crate::budget;
use crate::frame::MAX_FRAME;
use crate::link::Link;
use crate::prints::Prints;
use crate::proto::{ChildEvent, ErrorEvent, Event, Operation, RaisedException, Request, ResolveFutures, ResourceLimits};
use crate::question::{Answer, Pending, Question, answer};

/// The name of the guest's calls that block.
const BLOCKING_CALL: &str = "monty:now";
/// The name of the guest's calls that are awaited.
const AWAITED_CALL: &str = "monty:later";
/// The time that code has to end after its feed was aborted.
const ABORT_GRACE: Duration = Duration::from_secs(2);
/// The number of suspensions that parents allow by default.
const DEFAULT_SUSPENSIONS: u64 = 1000;

/// The time that the code of a session has run.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct RunTimes {
    /// In all feeds, in microseconds.
    pub(crate) total: u64,
    /// In this feed.
    pub(crate) feed: u64,
    #[serde(skip)]
    started: Option<Instant>,
}

impl RunTimes {
    fn start(&mut self) {
        self.started = Some(Instant::now());
    }

    fn stop(&mut self) {
        if let Some(started) = self.started.take() {
            let time = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.total = self.total.saturating_add(time);
            self.feed = self.feed.saturating_add(time);
        }
    }
}

/// The questions of a feed, which are part of a dump.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Questions {
    /// Those that the parent was not asked yet, with the numbers of the kernel's calls.
    queued: VecDeque<(u64, Question)>,
    /// The one that the parent has to answer.
    asked: Option<(u64, Question, Pending)>,
    /// The kernel's calls that wait for futures, by the futures' numbers.
    futures: BTreeMap<u32, u64>,
    /// The futures that the code has received and does not wait for yet.
    promised: BTreeSet<u32>,
    /// Answers that the code receives when it is continued.
    ready: Vec<(u64, Answer)>,
    /// The number of the next call.
    next: u32,
}

impl Questions {
    /// Creates the questions of a feed, whose calls are numbered from `next` on.
    pub(crate) fn numbered_from(next: u32) -> Self {
        Self { next, ..Self::default() }
    }
}

/// The observer of a feed.
pub(crate) struct FeedObserver {
    link: Arc<Link>,
    prints: Arc<Prints>,
    limits: ResourceLimits,
    /// The version of the protocol that the parent speaks.
    version: u32,
    times: Mutex<RunTimes>,
    questions: Mutex<Questions>,
    replies: Mutex<Option<ReplySender>>,
    value: Mutex<Option<EncodedValue>>,
    /// A request that ended the feed while its code waited on the stack.
    interrupting: Mutex<Option<Request>>,
    handle: Mutex<Option<Arc<dyn InterruptHandle>>>,
    is_aborted: AtomicBool,
}

/// What the parent has to do before the code can go on.
pub(crate) enum NextStep {
    /// Answer a question.
    Ask(Event),
    /// Nothing: the code has answers.
    Continue,
    /// Supply results of futures with these numbers.
    Resolve(Vec<u32>),
    /// Nothing: the code does not wait for the parent.
    Wait,
}

impl FeedObserver {
    pub(crate) fn new(
        link: Arc<Link>,
        prints: Arc<Prints>,
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
        if self.is_aborted.load(Ordering::Relaxed) {
            self.link.shared.end_running_later(ABORT_GRACE);
        }
        self.times.lock().start();
        let result = step();
        self.times.lock().stop();
        *self.handle.lock() = None;
        self.link.shared.set_running(None);
        result
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

    /// Returns the number of the next call, for the next feed.
    pub(crate) fn next_call(&self) -> u32 {
        self.questions.lock().next
    }

    /// Sets the sender of replies of a cell that was restored.
    pub(crate) fn attach(&self, replies: ReplySender) {
        *self.replies.lock() = Some(replies);
    }

    /// Returns what has to happen before the code goes on.
    pub(crate) fn next_step(&self) -> NextStep {
        let mut questions = self.questions.lock();
        if let Some((id, question)) = questions.queued.pop_front() {
            let (event, pending) = self.event(&mut questions, &question);
            questions.asked = Some((id, question, pending));
            return NextStep::Ask(event);
        }
        if !questions.ready.is_empty() {
            return NextStep::Continue;
        }
        if !questions.futures.is_empty() {
            return NextStep::Resolve(questions.futures.keys().copied().collect());
        }
        NextStep::Wait
    }

    /// Returns the event of the question that the parent has to answer, or of the futures that it has to resolve.
    pub(crate) fn pending_event(&self) -> Option<Event> {
        let questions = self.questions.lock();
        match &questions.asked {
            Some((_, question, pending)) => Some(event_of(question, *pending)),
            None if questions.futures.is_empty() => None,
            None => Some(resolve(questions.futures.keys().copied().collect())),
        }
    }

    /// Returns what the parent has to answer, if it was asked something else than futures.
    pub(crate) fn pending(&self) -> Option<Pending> {
        self.questions.lock().asked.as_ref().map(|(_, _, pending)| *pending)
    }

    /// Returns the numbers of the futures that the code waits for.
    pub(crate) fn pending_futures(&self) -> Vec<u32> {
        self.questions.lock().futures.keys().copied().collect()
    }

    /// Adds the answer to the question that the parent was asked.
    pub(crate) fn add_answer(&self, answer: Answer) {
        let mut questions = self.questions.lock();
        let Some((id, question, pending)) = questions.asked.take() else { return };
        match (answer, pending) {
            // Only the result is of interest: the code awaits it already.
            (Answer::Future(number), _) if is_awaited(&question) => {
                questions.futures.insert(number, id);
            }
            (answer, _) => {
                if let Answer::Future(number) = answer {
                    questions.promised.insert(number);
                }
                questions.ready.push((id, answer));
            }
        }
    }

    /// Adds results of futures.
    pub(crate) fn add_results(&self, answers: Vec<(u32, Answer)>) {
        let mut questions = self.questions.lock();
        for (number, answer) in answers {
            if let Some(id) = questions.futures.remove(&number) {
                questions.ready.push((id, answer));
            }
        }
    }

    /// Ends the feed: everything that the code waits for is answered by the exception. The code is killed if it goes on
    /// for a while.
    pub(crate) fn abort(&self, exception: &RaisedException) {
        let mut questions = self.questions.lock();
        let Questions { queued, asked, futures, ready, .. } = &mut *questions;
        let waiting = queued.drain(..).map(|(id, _)| id).chain(asked.take().map(|(id, ..)| id));
        let waiting = waiting.chain(std::mem::take(futures).into_values());
        ready.extend(waiting.map(|id| (id, Answer::Abort(exception.clone()))));
        self.is_aborted.store(true, Ordering::Relaxed);
    }

    /// Sends the code the answers that it receives next.
    pub(crate) fn send_answers(&self) {
        let ready = std::mem::take(&mut self.questions.lock().ready);
        let replies = self.replies.lock().clone();
        for (id, answer) in ready {
            if let Some(replies) = &replies {
                reply(replies, id, &answer);
            }
        }
    }

    /// Returns the event that asks a question, with a number of its own.
    fn event(&self, questions: &mut Questions, question: &Question) -> (Event, Pending) {
        let id = questions.next;
        questions.next = questions.next.wrapping_add(1);
        // A parent that awaits one function cannot begin others meanwhile.
        let is_only = questions.queued.is_empty() && questions.futures.is_empty();
        let pending = match question {
            Question::Function(call) => Pending::Call { id, eager: call.allow_eager_await && is_only },
            Question::Os(call) => {
                let can_be_eager = matches!(call.call, Some(Operation::AsyncSleep(_)));
                Pending::Os { id, eager: call.allow_eager_await && can_be_eager && is_only }
            }
            Question::Name(_) | Question::Future(_) => Pending::Name,
        };
        (event_of(question, pending), pending)
    }

    /// Asks the parent on the thread of the code, which waits.
    fn ask(&self, question: &Question) -> Answer {
        if let (Question::Os(call), ..=5) = (question, self.version)
            && let Some(Operation::Import(import)) = &call.call
        {
            // This version of the protocol cannot ask it.
            return Answer::NotFound(import.module.clone());
        }
        let (event, pending) = self.event(&mut self.questions.lock(), question);
        self.times.lock().stop();
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
        self.times.lock().start();
        answer
    }

    fn refuse(&self, reason: &str) {
        self.emit(violation(reason));
    }
}

/// Returns whether the code awaits the result of a question's call, and not the call itself.
fn is_awaited(question: &Question) -> bool {
    match question {
        Question::Function(call) => call.allow_eager_await,
        Question::Os(call) => call.allow_eager_await,
        Question::Name(_) | Question::Future(_) => false,
    }
}

fn event_of(question: &Question, pending: Pending) -> Event {
    match (question.clone(), pending) {
        (Question::Function(mut call), Pending::Call { id, eager }) => {
            (call.call_id, call.allow_eager_await) = (id, eager);
            Event::FunctionCall(call)
        }
        (Question::Os(mut call), Pending::Os { id, eager }) => {
            (call.call_id, call.allow_eager_await) = (id, eager);
            Event::OsCall(call)
        }
        (Question::Name(lookup), _) => Event::NameLookup(lookup),
        _ => violation("internal error: a question has no event"),
    }
}

/// Returns the event that asks for results of futures.
pub(crate) fn resolve(pending_call_ids: Vec<u32>) -> Event {
    Event::ResolveFutures(ResolveFutures { pending_call_ids })
}

/// Returns an exception without a traceback.
pub(crate) fn exception(exc_type: &str, message: impl Into<String>) -> RaisedException {
    RaisedException { exc_type: exc_type.into(), message: Some(message.into()), traceback: Vec::new() }
}

/// Returns the event of an exception.
pub(crate) fn error_event(exception: RaisedException) -> Event {
    Event::Error(ErrorEvent { exception: Some(exception) })
}

/// Returns the event of a request that is refused. Nothing has changed.
pub(crate) fn violation(reason: &str) -> Event {
    error_event(exception("RuntimeError", reason))
}

/// Sends an event, with the limits and times of the session if there is one.
pub(crate) fn send(
    link: &Link,
    event: Event,
    session: Option<(&ResourceLimits, &RunTimes)>,
    restored_script_name: Option<String>,
) {
    let with = |event| {
        let mut message = ChildEvent { kind: Some(event), restored_script_name: restored_script_name.clone(), ..ChildEvent::default() };
        if let Some((limits, times)) = session {
            message.total_execution_micros = times.total;
            message.feed_execution_micros = times.feed;
            message.max_suspensions = Some(limits.max_suspensions.unwrap_or(DEFAULT_SUSPENSIONS));
            message.max_feed_duration_micros = limits.max_feed_duration_micros;
            message.max_turn_duration_micros = limits.max_turn_duration_micros;
            message.max_total_sleep_micros = limits.max_total_sleep_micros;
        }
        message
    };
    let message = with(event);
    let length = message.encoded_len();
    let message = if length <= MAX_FRAME {
        message
    } else {
        with(error_event(exception("MemoryError", format!("the event takes {length} bytes, and has at most {MAX_FRAME}"))))
    };
    link.sender().send(message.encode_to_vec());
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
                let mut questions = self.questions.lock();
                if !questions.promised.remove(&number) {
                    return refuse(format!("there is no future with the number {number}"));
                }
                questions.futures.insert(number, call.id);
                drop(questions);
                *self.replies.lock() = Some(replies.clone());
            }
            (AWAITED_CALL, question) => {
                self.questions.lock().queued.push_back((call.id, question));
                *self.replies.lock() = Some(replies.clone());
            }
            (BLOCKING_CALL, question @ (Question::Function(_) | Question::Name(_) | Question::Os(_))) => {
                let answer = self.ask(&question);
                match answer {
                    Answer::Abort(_) => self.link.shared.end_running_later(ABORT_GRACE),
                    Answer::Future(number) => {
                        self.questions.lock().promised.insert(number);
                    }
                    _ => {}
                }
                reply(replies, call.id, &answer);
            }
            (name, _) => refuse(format!("there is no function `{name}` of the host")),
        }
    }

    fn cancel_function(&self, id: u64) {
        let mut questions = self.questions.lock();
        questions.queued.retain(|(queued, _)| *queued != id);
        questions.futures.retain(|_, future| *future != id);
        questions.ready.retain(|(ready, _)| *ready != id);
    }
}

//! A session: its kernel, and the feed that runs or is suspended. Its settings and its dumps are in files of their own.

mod dumps;
mod settings;

use std::sync::Arc;
use std::time::Duration;

use belljar_core::activity::trace::Trace;
use belljar_core::kernel::{Backend, CellError, CellRequest, Kernel};
use belljar_core::{
    CellResult, CellStatus, CellStep, Exchange, ExitReason, HostFunction, LimitKind, NoProgress, Wait, Waker,
    WakingInterruptHandle,
};
use serde::{Deserialize, Serialize};
use serde_json::value::to_raw_value;

use crate::arena;
use crate::events::{RunTimes, error_event, exception, exception_of_cell, resolve, violation};
use crate::feed_record::FeedRecord;
use crate::link::Link;
use crate::observer::FeedObserver;
use crate::prints::PrintBuffer;
use crate::proto::{Complete, ErrorEvent, Event, Feed, NamedRef, OsPolicy, Request, ResourceLimits};
use crate::question;
use crate::questions::{NextStep, Questions};
pub(crate) use settings::SessionSettings;

/// The longest timer that is waited for although the parent has futures to resolve, which it cannot do meanwhile.
const MAX_SHORT_TIMER: Duration = Duration::from_millis(20);

/// The settings of a session and a feed for the guest.
#[derive(Serialize)]
struct GuestFeed<'a> {
    session: GuestSettings<'a>,
    number: u32,
    inputs: &'a [NamedRef],
    values: Option<&'a crate::proto::Arena>,
    cwd: &'a str,
    install: Option<&'a [String]>,
}

/// The settings of a session for the guest.
#[derive(Serialize)]
struct GuestSettings<'a> {
    script_name: &'a str,
    max_recursion_depth: Option<u64>,
    version: u32,
    client: [u32; 2],
    policy: &'a OsPolicy,
}

/// How a feed ended, as the guest writes it.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum FeedEnd {
    Complete(Complete),
    Error(ErrorEvent),
}

/// A session that was configured.
pub(crate) struct Session {
    link: Arc<Link>,
    backend: Arc<dyn Backend>,
    settings: SessionSettings,
    prints: Arc<PrintBuffer>,
    /// The kernel that the first feed uses.
    spare: Option<Box<dyn Kernel>>,
    /// The first feed starts it.
    kernel: Option<Box<dyn Kernel>>,
    /// The number of feeds that have begun.
    feeds: u32,
    next_call: u32,
    times: RunTimes,
    /// The code of the feed that was begun last.
    code: String,
    /// The observer of the feed that is suspended.
    suspended: Option<Arc<FeedObserver>>,
    record: FeedRecord,
}

impl Session {
    /// Sets the records of the feeds.
    pub(crate) fn set_record(&mut self, record: FeedRecord) {
        self.record = record;
    }

    /// Uses a kernel that was started ahead of time.
    pub(crate) fn set_spare(&mut self, kernel: Option<Box<dyn Kernel>>) {
        self.spare = kernel;
    }

    pub(crate) fn new(link: Arc<Link>, backend: Arc<dyn Backend>, settings: SessionSettings) -> Self {
        let prints = PrintBuffer::new(link.sender().clone(), settings.print_flush_interval);
        let times = RunTimes::default();
        Self {
            link,
            backend,
            settings,
            prints,
            spare: None,
            kernel: None,
            feeds: 0,
            next_call: 0,
            times,
            code: String::new(),
            suspended: None,
            record: FeedRecord::default(),
        }
    }

    /// Returns the limits and times that events of this session have.
    pub(crate) fn stamps(&self) -> (ResourceLimits, RunTimes) {
        (self.settings.limits, self.suspended.as_ref().map_or(self.times, |observer| observer.times()))
    }

    /// Sends the output so far.
    pub(crate) fn flush(&self) {
        self.prints.flush();
    }

    /// Returns whether a feed has run or the session was restored.
    pub(crate) fn has_begun(&self) -> bool {
        self.feeds > 0 || self.kernel.is_some()
    }

    /// Returns whether a feed is suspended.
    pub(crate) fn is_suspended(&self) -> bool {
        self.suspended.is_some()
    }

    /// Runs a feed until its turn ends.
    pub(crate) fn feed(&mut self, feed: &Feed, trace: &Trace) -> TurnEnd {
        if let Err(reason) = arena::check(feed.values.as_ref(), feed.inputs.iter().map(|input| input.value)) {
            return TurnEnd::Event(violation(&reason));
        }
        if let Err(error) = self.record.begin(&feed.code, &feed.code, trace, &*self.backend) {
            return TurnEnd::Event(error_event(exception("RuntimeError", error.to_string())));
        }
        self.run(&feed.code, &feed.inputs, feed.values.as_ref(), &feed.cwd, None)
    }

    /// Installs packages.
    pub(crate) fn install(&mut self, requirements: &[String], trace: &Trace) -> TurnEnd {
        let shown = format!("# install {}", requirements.join(" "));
        if let Err(error) = self.record.begin("", &shown, trace, &*self.backend) {
            return TurnEnd::Event(error_event(exception("RuntimeError", error.to_string())));
        }
        match self.run("", &[], None, "", Some(requirements)) {
            TurnEnd::Event(Event::Complete(_)) => TurnEnd::Event(Event::Ok(crate::proto::Unit {})),
            other => other,
        }
    }

    fn run(
        &mut self,
        code: &str,
        inputs: &[NamedRef],
        values: Option<&crate::proto::Arena>,
        cwd: &str,
        install: Option<&[String]>,
    ) -> TurnEnd {
        let settings = &self.settings;
        let session = GuestSettings {
            script_name: &settings.script_name,
            max_recursion_depth: settings.limits.max_recursion_depth,
            version: settings.version,
            client: settings.client,
            policy: &settings.os_policy,
        };
        let feed = GuestFeed { session, number: self.feeds, inputs, values, cwd, install };
        let monty = match to_raw_value(&feed) {
            Ok(monty) => monty,
            Err(error) => {
                let reason = format!("failed to pass the feed to the code: {error}");
                return self.not_begun(&reason, violation(&reason));
            }
        };
        let function =
            HostFunction { name: "monty".into(), blocking: true, doc: None, parameters: Vec::new(), returns: None };
        let cell = CellRequest {
            code: code.into(),
            timeout: settings.limits.max_feed_duration_micros.map(Duration::from_micros),
            exchange: Some(Exchange { functions: vec![function], is_resumable: true, ..Exchange::default() }),
            monty: Some(monty),
            ..CellRequest::default()
        };
        if let Err(reason) = self.start() {
            return self.not_begun(&reason, error_event(exception("RuntimeError", reason.as_str())));
        }
        code.clone_into(&mut self.code);
        // An installation has no number, so that those of feeds are what the parent counts.
        self.feeds += u32::from(install.is_none());
        self.times.feed = 0;
        let mut observer = self.observer(Questions::numbered_from(self.next_call));
        if install.is_some() {
            observer.remove_turn_limit();
        }
        let observer = Arc::new(observer);
        let waker = self.waker();
        let recorded = self.record.observe(observer.clone());
        let step = self.step(&observer, |kernel, _| kernel.begin(&cell, recorded, waker));
        self.drive(observer, step)
    }

    /// Ends a feed whose code was not run.
    fn not_begun(&mut self, reason: &str, event: Event) -> TurnEnd {
        self.record.end(Err(reason));
        TurnEnd::Event(event)
    }

    fn observer(&self, questions: Questions) -> FeedObserver {
        let (limits, version) = (self.settings.limits, self.settings.version);
        FeedObserver::new(self.link.clone(), self.prints.clone(), limits, version, self.times, questions)
    }

    fn waker(&self) -> Waker {
        let shared = self.link.shared.clone();
        Waker::new(move || shared.wake())
    }

    /// Starts the kernel.
    fn start(&mut self) -> Result<(), String> {
        if self.kernel.is_none() {
            self.kernel = self.spare.take();
        }
        if self.kernel.is_none() {
            if !self.backend.supports_feeds() {
                return Err("this sandbox does not run feeds".into());
            }
            let kernel = self.backend.start(None, &NoProgress);
            self.kernel = Some(kernel.map_err(|error| format!("failed to start Python: {error}"))?);
        }
        Ok(())
    }

    /// Runs a step of the code.
    fn step(
        &mut self,
        observer: &Arc<FeedObserver>,
        act: impl FnOnce(&mut dyn Kernel, Arc<FeedObserver>) -> CellStep,
    ) -> Option<CellStep> {
        let waker = self.waker();
        let kernel = self.kernel.as_deref_mut()?;
        let handle = Arc::new(WakingInterruptHandle { inner: kernel.interrupt_handle(), waker });
        let record = &self.record;
        Some(observer.run(handle.clone(), || record.run(handle, || act(kernel, observer.clone()))))
    }

    /// Continues the code until its turn ends.
    fn drive(&mut self, observer: Arc<FeedObserver>, mut step: Option<CellStep>) -> TurnEnd {
        loop {
            let wait = match step {
                Some(CellStep::Waiting(wait)) => wait,
                Some(CellStep::Completed(result)) => return self.finish(&observer, result),
                Some(CellStep::Failed(error)) => return self.lost(&observer, &error.to_string()),
                Some(CellStep::Suspended) | None => return self.lost(&observer, "it was suspended"),
            };
            if self.link.shared.is_closed() {
                return TurnEnd::Closed;
            }
            let turn_error = observer.turn_error();
            if let Some(error) = &turn_error {
                // The code has handled the interrupt of its turn, and cannot ask any more.
                observer.questions().abort(error);
            }
            let next = observer.questions().next_step();
            match next {
                NextStep::Ask(event) => {
                    self.suspend(observer);
                    return TurnEnd::Event(event);
                }
                NextStep::Continue => observer.send_answers(),
                NextStep::Resolve(pending) if wait.timer.is_none_or(|timer| timer > MAX_SHORT_TIMER) => {
                    self.suspend(observer);
                    return TurnEnd::Event(resolve(pending));
                }
                // The next step interrupts the code again.
                NextStep::Resolve(_) | NextStep::Wait if turn_error.is_some() => {}
                NextStep::Resolve(_) | NextStep::Wait => self.wait(wait),
            }
            step = self.step(&observer, |kernel, _| kernel.resume());
        }
    }

    /// Leaves the feed until its parent answers.
    fn suspend(&mut self, observer: Arc<FeedObserver>) {
        self.suspended = Some(observer);
        self.record.set_waiting(true);
    }

    /// Waits for the timer of the code, or until it is woken.
    fn wait(&self, wait: Wait) {
        self.link.shared.wait(wait.timer);
    }

    fn finish(&mut self, observer: &Arc<FeedObserver>, result: CellResult) -> TurnEnd {
        self.end_feed(observer);
        let status = result.status;
        let event = match (&status, observer.turn_error()) {
            (CellStatus::TimedOut { after, .. }, _) => error_event(self.time_limit(observer, *after)),
            (CellStatus::KernelDied(reason), _) => self.died(observer, reason),
            (_, Some(error)) => error_event(error),
            (CellStatus::Ok, None) => {
                let end = observer.take_value().and_then(|value| serde_json::from_str(value.json.get()).ok());
                match end {
                    Some(FeedEnd::Complete(complete)) => Event::Complete(complete),
                    Some(FeedEnd::Error(error)) => Event::Error(error),
                    None => violation("the feed ended without a result: the code has changed what Python itself needs"),
                }
            }
            (CellStatus::Error(error), None) => error_event(exception_of_cell(error, "")),
        };
        let has_died = matches!(status, CellStatus::KernelDied(_));
        self.record.end(Ok(status_of(status, &event)));
        if has_died {
            return self.restart(observer, event);
        }
        TurnEnd::new(observer, event)
    }

    fn time_limit(&self, observer: &FeedObserver, limit: Duration) -> crate::proto::RaisedException {
        let spent = Duration::from_micros(observer.times().feed);
        exception("TimeoutError", format!("feed time limit exceeded: {spent:?} > {limit:?}"))
    }

    fn died(&self, observer: &FeedObserver, reason: &ExitReason) -> Event {
        let limit = self.settings.limits.max_feed_duration_micros.map(Duration::from_micros);
        let lost = "the interpreter was ended, and the session's variables are lost";
        let exceeded = match (reason, limit) {
            (ExitReason::Limit(LimitKind::WallTime | LimitKind::WaitTime), Some(limit)) => {
                Some(self.time_limit(observer, limit))
            }
            _ => observer.turn_error(),
        };
        match exceeded {
            Some(mut error) => {
                error.message = error.message.map(|message| format!("{message} ({lost})"));
                error_event(error)
            }
            None => {
                let error = reason.to_cell_error(self.backend.limits());
                error_event(exception_of_cell(&error, &format!(" ({lost})")))
            }
        }
    }

    /// Ends a feed whose interpreter cannot be continued.
    fn lost(&mut self, observer: &Arc<FeedObserver>, reason: &str) -> TurnEnd {
        self.end_feed(observer);
        self.record.end(Err(reason));
        self.restart(observer, violation(&format!("the code cannot be continued: {reason}")))
    }

    /// Replaces an interpreter that has ended.
    fn restart(&mut self, observer: &Arc<FeedObserver>, event: Event) -> TurnEnd {
        if self.link.shared.is_closed() {
            return TurnEnd::Closed;
        }
        if let Some(kernel) = &mut self.kernel
            && let Err(error) = kernel.restart()
        {
            tracing::warn!(%error, "failed to restart the interpreter of a session");
            self.kernel = None;
        }
        TurnEnd::new(observer, event)
    }

    fn end_feed(&mut self, observer: &FeedObserver) {
        self.times = observer.times();
        self.next_call = observer.questions().next_call();
        self.suspended = None;
    }

    /// Continues the feed that is suspended with the answer in a request.
    pub(crate) fn resume(&mut self, request: Request) -> TurnEnd {
        let Some(observer) = self.suspended.clone() else {
            return TurnEnd::Event(violation("no feed is suspended"));
        };
        // Two locks in one statement would be held at the same time.
        let pending = observer.questions().pending();
        let futures = observer.questions().pending_futures();
        let answered = match (pending, request) {
            (_, Request::AbortFeed(abort)) => match abort.exception {
                Some(exception) => {
                    observer.abort(&exception);
                    Ok(())
                }
                None => Err("AbortFeed has no exception".into()),
            },
            (Some(pending), request) => {
                question::answer(pending, request).map(|answer| observer.questions().add_answer(answer))
            }
            (None, Request::ResumeFutures(results)) => {
                question::future_results(results, &futures).map(|answers| observer.questions().add_results(answers))
            }
            (None, _) => Err("the feed waits for results of futures".into()),
        };
        if let Err(reason) = answered {
            return TurnEnd::Event(violation(&reason));
        }
        self.suspended = None;
        self.record.set_waiting(false);
        observer.begin_turn();
        if let Some(kernel) = &mut self.kernel {
            kernel.exclude_wait();
        }
        // The code has not gone on: it still waits, and may have to ask more before it does.
        let wait = Wait { timer: None, for_host: true };
        self.drive(observer, Some(CellStep::Waiting(wait)))
    }

    /// Returns the settings.
    pub(crate) fn settings(&self) -> &SessionSettings {
        &self.settings
    }

    /// Returns the name of the session's script.
    pub(crate) fn script_name(&self) -> &str {
        &self.settings.script_name
    }
}

/// Returns how a feed has ended. The guest catches the exceptions of the code, which `event` has then.
fn status_of(status: CellStatus, event: &Event) -> CellStatus {
    match (status, event) {
        (CellStatus::Ok, Event::Error(ErrorEvent { exception: Some(raised) })) => {
            let (name, message) = (raised.exc_type.clone(), raised.message.clone().unwrap_or_default());
            CellStatus::Error(CellError { name, message, traceback: Vec::new() })
        }
        (status, _) => status,
    }
}

/// The end of a turn.
pub(crate) enum TurnEnd {
    /// The event for the parent.
    Event(Event),
    /// The parent has sent this request while the code waited on the stack, which has ended the feed.
    Interrupted(Request),
    /// The parent is gone.
    Closed,
}

impl TurnEnd {
    fn new(observer: &FeedObserver, event: Event) -> Self {
        observer.take_interrupting().map_or(Self::Event(event), Self::Interrupted)
    }
}

//! Running one cell: what the kernel says is collected until it is done, its time is up, somebody stops it, or it dies.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use belljar_core::kernel::{Answer, Audience, CellRequest, End, Executed, Output};
use serde_json::Value;

use crate::native::client::{Channel, Client};
use crate::native::content::{Question, Raised, Reply, Said};
use crate::native::nursery::Process;
use crate::native::pip::Broker;
use crate::native::processor;
use crate::native::shown::Shown;
use crate::native::switch::{Switch, Wish};
use crate::native::wire::WireError;
use crate::native::wire::message::Received;

/// After so long an interrupt is asked for by a message as well.
const SECOND_INTERRUPT: Duration = Duration::from_secs(1);
/// After so long a cell that somebody interrupted is ended. Its code may have things to clear up.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the first sign of a cell may take, before it is interrupted: a kernel that has not begun ignores `SIGINT`.
const BEGINNING: Duration = Duration::from_millis(300);
/// How long one channel may be behind the other when a cell is done.
const STRAGGLERS: Duration = Duration::from_secs(5);
/// How long a process may take to end after it has closed a socket.
pub(crate) const COLLAPSE: Duration = Duration::from_secs(1);
/// How long a question may go unanswered.
const QUESTION: Duration = Duration::from_secs(600);
/// Questions of one cell.
const MOST_QUESTIONS: usize = 1000;
/// Bytes of all messages of one cell, beside the text that it may write.
const MOST_BYTES: u64 = 1 << 30;
/// Messages of one channel that are taken before others get their turn.
pub(crate) const TURN: usize = 200;
/// What an answer begins with that says why there is none (`guest/belljar_kernel/kernel.py`).
const REFUSED: char = '\x15';
/// Why a cell ended that somebody stopped.
pub(crate) const STOPPED: &str = "Stopped: the cell was ended from outside";

/// What a cell may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Elapsed time, but for what installing takes, which has a bound of its own.
    pub(crate) time: Option<Duration>,
    /// Processor time of the kernel and what it has started.
    pub(crate) processor: Option<Duration>,
    /// Time between the interrupt of a cell whose time is up, and its end.
    pub(crate) grace: Duration,
    /// Bytes that it writes.
    pub(crate) output: u64,
    /// Whether it has no number, and leaves no trace.
    pub(crate) silent: bool,
}

/// A kernel, as a cell needs it.
pub(crate) struct Stage<'a> {
    pub(crate) client: &'a mut Client,
    pub(crate) process: &'a Process,
    pub(crate) switch: &'a Switch,
    pub(crate) broker: &'a mut Broker,
}

/// How a cell's interpreter was lost.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// For a reason of ours, in words.
    Because(String),
    /// It ended.
    Ended,
}

/// Runs a cell. `count` is the number of the one before. Beside what it came to stands what it left for a frontend, if that
/// is not to be shown.
pub(crate) fn run(
    stage: Stage<'_>,
    cell: &CellRequest,
    audience: &Arc<dyn Audience>,
    bounds: Bounds,
    count: u64,
) -> Result<(Executed, Vec<Value>), (Loss, Vec<Output>)> {
    let begun = Instant::now();
    let mut run = Run {
        received: stage.client.received(),
        installed: stage.broker.spent(),
        burnt: bounds.processor.and_then(|_| processor::time(stage.process.death())),
        stage,
        audience,
        bounds,
        shown: Shown::new(audience.clone(), bounds.output),
        begun,
        id: String::new(),
        state: State::default(),
        stop: None,
        question: None,
        questions: 0,
    };
    match run.finish(cell) {
        Ok(mut reply) => {
            let mut payloads = reply.as_mut().map(|reply| std::mem::take(&mut reply.payloads)).unwrap_or_default();
            if !cell.payloads {
                run.shown.add_pages(&std::mem::take(&mut payloads));
            }
            Ok((run.executed(reply, count), payloads))
        }
        Err(loss) => Err((loss, run.shown.take())),
    }
}

struct Run<'a> {
    stage: Stage<'a>,
    audience: &'a Arc<dyn Audience>,
    bounds: Bounds,
    shown: Shown,
    begun: Instant,
    /// The request's.
    id: String,
    state: State,
    stop: Option<Stop>,
    question: Option<(Receiver<Answer>, Instant)>,
    questions: usize,
    /// Bytes of messages that had come before.
    received: u64,
    /// Time that cells before have spent installing.
    installed: Duration,
    /// Processor time that was taken before.
    burnt: Option<Duration>,
}

/// What the kernel has said of the cell.
#[derive(Default)]
struct State {
    busy: bool,
    idle: bool,
    reply: Option<Reply>,
    raised: Option<Raised>,
    /// Since when only one of the channels is missing.
    half: Option<Instant>,
}

/// An interrupt, and what follows it if it does not help.
struct Stop {
    since: Instant,
    is_late: bool,
    signalled: bool,
    asked: bool,
}

impl Run<'_> {
    fn finish(&mut self, cell: &CellRequest) -> Result<Option<Reply>, Loss> {
        self.id = self.stage.client.execute(cell, self.bounds.silent).map_err(|error| self.broken(&error))?;
        let mut more = false;
        loop {
            let until = if more { Instant::now() } else { self.next_moment() };
            let mut others: Vec<BorrowedFd<'_>> = vec![self.stage.process.death(), self.stage.switch.bell()];
            others.extend(self.stage.broker.readiness());
            let ready = self.stage.client.wait(&others, until).map_err(|error| self.broken(&error))?;
            more = match self.listen() {
                Ok(more) => more,
                Err(WireError::Closed) if self.stage.process.ends_before(Instant::now() + COLLAPSE) => {
                    return Err(self.ended());
                }
                Err(error) => return Err(self.broken(&error)),
            };
            self.hold_to_bounds()?;
            if let Some(reply) = self.is_done() {
                return Ok(reply);
            }
            // What it said before it died has been heard by now.
            if ready[0] && !more {
                return Err(self.ended());
            }
            self.stage.broker.serve(self.audience);
            self.answer().map_err(|error| self.broken(&error))?;
            self.obey()?;
        }
    }

    /// When there is something to do even if nothing comes.
    fn next_moment(&self) -> Instant {
        let now = Instant::now();
        let soon = |milliseconds| now + Duration::from_millis(milliseconds);
        let mut moment = soon(1000);
        if self.question.is_some() || self.stage.broker.is_busy() {
            moment = soon(20);
        }
        if let (Some(time), None) = (self.bounds.time, &self.stop) {
            moment = moment.min(self.begun + time + self.installing());
        }
        if self.bounds.processor.is_some() {
            moment = moment.min(soon(100));
        }
        if let Some(stop) = &self.stop {
            moment = moment.min(if stop.signalled { soon(100) } else { soon(5) });
        }
        moment
    }

    /// How long the cell has installed packages for, up to what one installation may take.
    fn installing(&self) -> Duration {
        self.stage.broker.spent().saturating_sub(self.installed).min(self.stage.broker.timeout())
    }

    /// Takes what has come; answers whether there is more.
    fn listen(&mut self) -> Result<bool, WireError> {
        let mut more = false;
        for channel in [Channel::Iopub, Channel::Shell, Channel::Stdin, Channel::Control] {
            let mut left = TURN;
            while left > 0
                && let Some(message) = self.stage.client.next(channel)?
            {
                left -= 1;
                // Whatever else is said belongs to no cell, or to one before.
                if message.parent == self.id {
                    self.hear(channel, &message);
                }
            }
            more |= left == 0;
        }
        Ok(more)
    }

    fn hear(&mut self, channel: Channel, message: &Received) {
        match channel {
            Channel::Iopub => {
                if let Some(said) = Said::read(message) {
                    self.take(said);
                }
            }
            Channel::Shell => {
                if self.state.reply.is_none() {
                    self.state.reply = Reply::read(message);
                }
            }
            Channel::Stdin => {
                if let Some(question) = Question::read(message) {
                    self.ask(&question);
                }
            }
            Channel::Control => {}
        }
    }

    fn take(&mut self, said: Said) {
        match said {
            Said::Busy => self.state.busy = true,
            Said::Idle => self.state.idle = true,
            Said::Raised(raised) => self.state.raised = Some(raised),
            output => self.shown.add(output),
        }
    }

    fn ask(&mut self, question: &Question) {
        self.questions += 1;
        if self.questions > MOST_QUESTIONS {
            return;
        }
        match self.audience.ask(&question.prompt, question.secret) {
            Ok(answer) => self.question = Some((answer, Instant::now())),
            Err(reason) => {
                let (sender, answer) = std::sync::mpsc::channel();
                // Its other end is right here.
                let _ = sender.send(Err(reason));
                self.question = Some((answer, Instant::now()));
            }
        }
    }

    /// Passes an answer on, when there is one.
    fn answer(&mut self) -> Result<(), WireError> {
        let Some((answer, asked)) = &self.question else { return Ok(()) };
        let refused = |reason: &str| format!("{REFUSED}{reason}");
        let text = match answer.try_recv() {
            Ok(Ok(line)) => line,
            Ok(Err(reason)) => refused(&reason),
            Err(TryRecvError::Disconnected) => refused("the client is gone"),
            Err(TryRecvError::Empty) if asked.elapsed() > QUESTION => refused("nobody answered in time"),
            Err(TryRecvError::Empty) => return Ok(()),
        };
        self.question = None;
        self.stage.client.answer(text)
    }

    fn hold_to_bounds(&self) -> Result<(), Loss> {
        let received = self.stage.client.received() - self.received;
        if self.shown.is_too_much() || received > self.bounds.output.saturating_mul(2).saturating_add(MOST_BYTES) {
            return Err(
                self.end(format!("OutputLimit: the cell wrote more than {} bytes (--max-output)", self.bounds.output))
            );
        }
        Ok(())
    }

    /// The reply, once both channels have said that the cell is done.
    fn is_done(&mut self) -> Option<Option<Reply>> {
        let State { idle, reply, half, .. } = &mut self.state;
        match (*idle, reply.is_some()) {
            (true, true) => return Some(reply.take()),
            (false, false) => return None,
            _ => {}
        }
        let since = *half.get_or_insert_with(Instant::now);
        // Messages on iopub are dropped when there are too many.
        (since.elapsed() > STRAGGLERS).then(|| reply.take())
    }

    /// Does what was asked for from outside, or by the clock.
    fn obey(&mut self) -> Result<(), Loss> {
        match self.stage.switch.take() {
            Wish::Stop => return Err(self.end(STOPPED.into())),
            Wish::Interrupt => self.stop_unless_stopping(false),
            Wish::Nothing => {}
        }
        if self.bounds.time.is_some_and(|time| self.begun.elapsed() >= time + self.installing()) {
            self.stop_unless_stopping(true);
        }
        if let (Some(most), Some(before)) = (self.bounds.processor, self.burnt)
            && processor::time(self.stage.process.death()).is_some_and(|now| now.saturating_sub(before) > most)
        {
            return Err(self.end("CpuLimit: the cell used more processor time than it may (--cpu)".into()));
        }
        let has_begun = self.state.busy || self.begun.elapsed() > BEGINNING;
        let Some(stop) = &mut self.stop else { return Ok(()) };
        if !stop.signalled && has_begun {
            stop.signalled = true;
            self.stage.process.interrupt();
            self.stage.broker.give_up();
        }
        if !stop.asked && stop.since.elapsed() > SECOND_INTERRUPT {
            stop.asked = true;
            // One that does not listen is ended soon.
            let _ = self.stage.client.ask_to_interrupt();
        }
        let patience = if stop.is_late { self.bounds.grace } else { PATIENCE };
        if stop.since.elapsed() < patience {
            return Ok(());
        }
        Err(if stop.is_late {
            self.end("TimeLimit: the cell did not stop when it was interrupted, and its interpreter was ended".into())
        } else {
            self.end(format!(
                "Interrupted: the cell did not stop within {} s of the interrupt, and its interpreter was ended",
                PATIENCE.as_secs()
            ))
        })
    }

    fn stop_unless_stopping(&mut self, is_late: bool) {
        if self.stop.is_none() {
            self.stop = Some(Stop { since: Instant::now(), is_late, signalled: false, asked: false });
        }
    }

    /// It has ended, by itself or because it was stopped.
    fn ended(&self) -> Loss {
        if self.stage.switch.take() == Wish::Stop { Loss::Because(STOPPED.into()) } else { Loss::Ended }
    }

    /// Ends the interpreter.
    fn end(&self, why: String) -> Loss {
        self.stage.process.kill();
        Loss::Because(why)
    }

    fn broken(&self, error: &WireError) -> Loss {
        if matches!(error, WireError::Closed) && self.stage.process.ends_before(Instant::now() + COLLAPSE) {
            return self.ended();
        }
        // What a cell prints in a loop may come in one message.
        let name = if matches!(error, WireError::TooLong) { "OutputLimit" } else { "Crash" };
        self.end(format!("{name}: {error}"))
    }

    fn executed(&self, reply: Option<Reply>, count: u64) -> Executed {
        let raised = match &reply {
            Some(reply) => reply.raised.clone(),
            None => self.state.raised.clone(),
        };
        let late = self.bounds.time.filter(|_| self.stop.as_ref().is_some_and(|stop| stop.is_late));
        let end = match (raised, late) {
            (None, _) => End::Success,
            (Some(Raised { error, traceback }), Some(time)) if error.starts_with("KeyboardInterrupt") => {
                drop(error);
                End::Raised {
                    error: format!(
                        "TimeoutError: the cell ran longer than {} s and was interrupted",
                        time.as_secs_f64()
                    ),
                    traceback,
                }
            }
            (Some(Raised { error, traceback }), _) => End::Raised { error, traceback },
        };
        // The guest can say any number: it is the next one, or the same for what has none.
        let next = count.saturating_add(1);
        let count = reply.and_then(|reply| reply.count).filter(|said| *said == count).unwrap_or(next);
        Executed { count, end, outputs: self.shown.take() }
    }
}

//! A worker: seals itself, and runs the calls of the broker.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use belljar_core::MeterScope;
use belljar_core::kernel::InterruptHandle as _;
use belljar_emscripten::network::Network;
use belljar_emscripten::os::pagemap::set_pagemap;
use belljar_emscripten::stop::StopHandle;
use belljar_emscripten::watchdog::{DeadlineGuard, TimeLimits};
use belljar_python::isolation::{
    CallRecording, MountPoint, SavedPart, SessionStart, ValueFile, forwarded_calls, give_buffers, is_value, take_value,
};
use belljar_python::{GuestFunction, GuestMount, Interpreter, Streams};
use belljar_sandbox::worker::{NewWorker, SealLimits, seal};

use crate::background::{Background, with_background};
use crate::channel::{AskingMeter, AskingSleepSaver, Channel, ChannelSink, FAILED, ForwardedCall, shortened};
use crate::frames::FrameError;
use crate::messages::{self, Command, EndReason, Event, InterpreterLimits, MAX_BUFFERS, MAX_STATE};
use crate::remote_mounts::RemoteDirectory;
use crate::remote_network::RemoteNetwork;
use crate::signals::{Current, receive_interrupts};
use crate::template::Shared;

/// The reason for the failure of calls without an interpreter.
const NOT_RUNNING: &str = "no interpreter runs";
/// The size of the stack of the thread that receives interrupts, in bytes.
const CONTROL_STACK: usize = 64 << 10;

/// Serves the broker until it closes the channel, and ends the process.
pub(crate) fn run(worker: NewWorker, shared: Shared) -> ! {
    let NewWorker { descriptors, pagemap } = worker;
    let Ok([channel, control]) = <[OwnedFd; 2]>::try_from(descriptors) else { std::process::exit(FAILED) };
    if let Some(pagemap) = pagemap {
        set_pagemap(pagemap);
    }
    let current = Current::default();
    let interrupted = current.clone();
    let control = std::thread::Builder::new()
        .name("control".into())
        .stack_size(CONTROL_STACK)
        .spawn(move || receive_interrupts(UnixStream::from(control), &interrupted));
    // The first guard starts the thread that enforces limits of time.
    let unused = TimeLimits { wall: Some(Duration::from_secs(3600)), cpu: None, grace: Duration::ZERO };
    drop(DeadlineGuard::start(&Arc::new(StopHandle::default()), unused));
    let channel = Arc::new(Channel::new(UnixStream::from(channel)));
    let served = control.and_then(|_| with_background(|background| serve(&shared, &channel, &current, &background)));
    std::process::exit(if served.is_ok() { 0 } else { FAILED })
}

/// Seals this process, and runs the calls of the broker.
fn serve<'a>(
    shared: &'a Shared,
    channel: &Arc<Channel>,
    current: &Current,
    background: &Background<'a>,
) -> io::Result<()> {
    seal(SealLimits { memory_bytes: shared.worker_memory }).map_err(|failure| io::Error::other(failure.to_string()))?;
    channel.send(&Event::Ready)?;
    // Interpreters that are created on this thread count their memory with it.
    let meter = Arc::new(AskingMeter { channel: channel.clone(), asks: AtomicBool::new(false) });
    let _scope = MeterScope::enter(meter.clone());
    let network = RemoteNetwork::new(channel.clone());
    current.lock().network = Some(network.clone());
    let restorer = Restorer { shared, channel: channel.clone(), current: current.clone() };
    let mut interpreters =
        Interpreters { restorer, running: Err(NOT_RUNNING.into()), gave_way: false, next: None, state: Vec::new() };
    loop {
        match channel.receive() {
            Ok(Command::Restore { number, limits, mounts }) => interpreters.start(number, limits, mounts),
            Ok(Command::Call {
                function,
                arguments,
                files,
                time,
                is_new_cell,
                asleep,
                asks_memory,
                network: has_network,
                interrupts,
                recording,
                finish,
                gives_way,
            }) => {
                meter.asks.store(asks_memory, Ordering::Relaxed);
                let event = match &mut interpreters.running {
                    Ok(running) => {
                        current.lock().interrupt_running(interrupts);
                        if is_new_cell {
                            // The output of each cell is limited by itself.
                            running.redirect(streams(channel));
                        }
                        running.advance_clock(asleep);
                        record(running, channel, recording);
                        running.set_network(has_network.then(|| Arc::new(network.clone()) as Arc<dyn Network>));
                        channel.is_called.store(true, Ordering::Relaxed);
                        let call = GuestCall { function, arguments, files, time, finish };
                        interpreters.gave_way = gives_way;
                        let event = interpreters.call(call, background)?;
                        channel.is_called.store(false, Ordering::Relaxed);
                        event
                    }
                    Err(reason) => failed_call(reason.clone()),
                };
                meter.asks.store(false, Ordering::Relaxed);
                channel.send(&event)?;
            }
            Ok(Command::Discard) => interpreters.discard(&meter, background)?,
            Ok(Command::StatePart(part)) => interpreters.state.extend(part),
            Ok(Command::StartSession { number, limits, start, mounts }) => {
                let started = interpreters.start_session(number, limits, start, mounts);
                channel.send(&Event::Started(started.map_err(|reason| shortened(&reason))))?;
            }
            Ok(Command::Files(request)) => {
                let Ok(running) = &mut interpreters.running else { return Err(io::Error::other(NOT_RUNNING)) };
                channel.send(&Event::Files(request.handle(running)))?;
            }
            Ok(Command::Save(part)) => interpreters.save(part)?,
            Ok(Command::PrepareReplay { max_bytes }) => {
                let is_prepared = interpreters.prepare_replay(max_bytes);
                channel.send(&Event::ReplayPrepared(is_prepared))?;
            }
            Ok(
                Command::HostReply { .. }
                | Command::Grown(_)
                | Command::Network(_)
                | Command::Mount(_)
                | Command::LayerPart { .. }
                | Command::SaveRecording(_)
                | Command::SleepOn,
            ) => {
                return Err(io::Error::other("a reply without a call"));
            }
            Err(FrameError::Closed | FrameError::Unread) => return Ok(()),
            Err(error) => return Err(io::Error::other(error)),
        }
    }
}

/// Returns streams that send the output to the broker and have no input.
fn streams(channel: &Arc<Channel>) -> Streams {
    Streams { output: Box::new(ChannelSink(channel.clone())), input: Box::new(io::empty()) }
}

/// Begins, continues or ends the recording of an interpreter's code.
fn record(running: &mut Interpreter, channel: &Arc<Channel>, recording: CallRecording) {
    match recording {
        CallRecording::None => running.stop_recording(),
        CallRecording::New { max_bytes } => {
            running.start_recording(to_size(max_bytes), Arc::new(AskingSleepSaver(channel.clone())));
        }
        CallRecording::Continued => {}
    }
}

fn to_size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// A call of a function of the guest package.
pub(crate) struct GuestCall {
    function: GuestFunction,
    arguments: String,
    files: Vec<ValueFile>,
    time: messages::TimeLimits,
    finish: Option<messages::TimeLimits>,
}

impl GuestCall {
    /// Makes the call. Returns the event of its end.
    pub(crate) fn run(self, running: &mut Interpreter) -> Event {
        let Self { function, arguments, files, time, finish } = self;
        if let Err(error) = give_buffers(&files, running.files()) {
            return failed_call(format!("the variables do not fit into the code's file system: {error}"));
        }
        let returned = running.call_text(function, &arguments, time.into());
        let value = running.limits().value.min(MAX_BUFFERS as u64);
        let files = if returned.result.is_ok() { take_value(running.files(), value) } else { Vec::new() };
        let has_value = finish.is_some() && returned.result.as_deref().is_ok_and(is_value);
        let finish = finish.filter(|_| has_value).map(|time| {
            let begin = Instant::now();
            let finished = running.call_text(GuestFunction::Finish, "{}", time.into());
            (finished.result.map_err(EndReason::from), begin.elapsed())
        });
        Event::Returned {
            result: returned.result.map_err(EndReason::from),
            files,
            peak_memory: returned.peak_memory,
            has_used_streams: returned.has_used_streams,
            recording: running.recording_state(),
            finish,
        }
    }
}

fn failed_call(reason: String) -> Event {
    let result = Err(EndReason::Crash(reason));
    let files = Vec::new();
    Event::Returned { result, files, peak_memory: 0, has_used_streams: false, recording: None, finish: None }
}

/// The interpreter of this worker, and the one that will be the next.
struct Interpreters<'a> {
    restorer: Restorer<'a>,
    /// The interpreter that runs, or the reason why there is none.
    running: Result<Interpreter, String>,
    /// True if its last call gave way to those of other owners.
    gave_way: bool,
    /// An interpreter that was restored while the worker was idle.
    next: Option<(InterpreterLimits, Interpreter)>,
    /// The bytes that the interpreter of a session begins with.
    state: Vec<u8>,
}

impl<'a> Interpreters<'a> {
    /// Starts interpreter `number`.
    fn start(&mut self, number: u64, limits: InterpreterLimits, mounts: Vec<MountPoint>) {
        let restored = match self.next.take() {
            Some((restored_with, interpreter)) if restored_with == limits => Ok(interpreter),
            _ => self.restorer.restore(limits),
        };
        self.running = restored.and_then(|interpreter| self.restorer.mount(interpreter, mounts));
        self.receive_signals(number);
    }

    /// Starts interpreter `number` of a session.
    fn start_session(
        &mut self,
        number: u64,
        limits: InterpreterLimits,
        start: Option<SavedPart>,
        mounts: Vec<MountPoint>,
    ) -> Result<(), String> {
        let state = std::mem::take(&mut self.state);
        let start = match start {
            None => SessionStart::New,
            Some(SavedPart::Files) => SessionStart::Files(&state),
            Some(SavedPart::State) => SessionStart::State(&state),
        };
        let started = self.restorer.start_session(limits, start);
        self.running = started.and_then(|interpreter| self.restorer.mount(interpreter, mounts));
        self.receive_signals(number);
        self.running.as_ref().map(|_| ()).map_err(Clone::clone)
    }

    /// Makes a call to the interpreter, on this thread or on that for calls that give way. Returns the event of its
    /// end.
    fn call(&mut self, call: GuestCall, background: &Background<'a>) -> io::Result<Event> {
        match &mut self.running {
            Err(reason) => Ok(failed_call(reason.clone())),
            Ok(running) if !self.gave_way => Ok(call.run(running)),
            running => {
                let mut taken = std::mem::replace(running, Err(NOT_RUNNING.into())).map_err(io::Error::other)?;
                let (interpreter, event) = background.run(move || {
                    let event = call.run(&mut taken);
                    (taken, event)
                })?;
                *running = Ok(interpreter);
                Ok(event)
            }
        }
    }

    /// Has interpreter `number`, which runs now, receive the signals for it so far and later.
    fn receive_signals(&self, number: u64) {
        let mut current = self.restorer.current.lock();
        current.running = self.running.as_ref().ok().map(|running| (number, running.interrupt_handle()));
        let Some((_, handle)) = &current.running else { return };
        if current.ended == number {
            handle.kill();
        } else if current.interrupts_of(number) > 0 {
            handle.interrupt();
        }
    }

    /// Sends a part of the interpreter to the broker.
    fn save(&mut self, part: SavedPart) -> io::Result<()> {
        let Restorer { shared, channel, .. } = &self.restorer;
        let saved = match &mut self.running {
            Ok(running) => running.save_part(part, &shared.image),
            Err(reason) => Err(reason.clone()),
        };
        let saved = saved.and_then(|bytes| match bytes.len() {
            0..=MAX_STATE => Ok(bytes),
            length => Err(format!("it has {} MB, and may have {}", length >> 20, MAX_STATE >> 20)),
        });
        channel.send_saved(saved.as_deref().map_err(Clone::clone))
    }

    /// Prepares the replay of the recording that the bytes so far are. Returns whether it is one.
    fn prepare_replay(&mut self, max_bytes: u64) -> bool {
        let recording = std::mem::take(&mut self.state);
        let Ok(running) = &mut self.running else { return false };
        let channel = &self.restorer.channel;
        let saver = Arc::new(AskingSleepSaver(channel.clone()));
        let replayed = running.start_replay(&recording, to_size(max_bytes), saver);
        replayed.is_ok_and(|flag| {
            channel.follow_replay(flag);
            true
        })
    }

    /// Drops the interpreter, and restores the next one, on the thread that its last call ran on. It counts its memory
    /// with `meter`.
    fn discard(&mut self, meter: &Arc<AskingMeter>, background: &Background<'a>) -> io::Result<()> {
        self.restorer.current.lock().running = None;
        let Ok(ended) = std::mem::replace(&mut self.running, Err(NOT_RUNNING.into())) else { return Ok(()) };
        if self.gave_way {
            let (restorer, meter) = (self.restorer.clone(), meter.clone());
            self.next = background.run(move || {
                let _scope = MeterScope::enter(meter);
                restorer.replace(ended)
            })?;
        } else {
            self.next = self.restorer.replace(ended);
        }
        Ok(())
    }
}

/// Restores interpreters, and connects them to the broker. Owned by work on either thread.
#[derive(Clone)]
struct Restorer<'a> {
    shared: &'a Shared,
    channel: Arc<Channel>,
    current: Current,
}

impl Restorer<'_> {
    /// Drops an interpreter, and restores one with the same limits, unless that fails.
    fn replace(&self, ended: Interpreter) -> Option<(InterpreterLimits, Interpreter)> {
        let limits = InterpreterLimits::from(ended.limits());
        // First, since the next one can use its memory.
        drop(ended);
        self.restore(limits).ok().map(|interpreter| (limits, interpreter))
    }

    fn restore(&self, limits: InterpreterLimits) -> Result<Interpreter, String> {
        let Shared { python, image, .. } = self.shared;
        let restored = python.interpreter_with(image, limits.into(), streams(&self.channel));
        Ok(self.forward_calls(restored.map_err(|error| error.to_string())?))
    }

    fn start_session(&self, limits: InterpreterLimits, start: SessionStart<'_>) -> Result<Interpreter, String> {
        let Shared { python, image, packages, .. } = self.shared;
        let started = python.session_interpreter(image, packages, limits.into(), start, streams(&self.channel));
        started.map(|interpreter| self.forward_calls(interpreter))
    }

    /// Mounts the broker's directories.
    fn mount(&self, mut interpreter: Interpreter, mounts: Vec<MountPoint>) -> Result<Interpreter, String> {
        for (guest, directory) in RemoteDirectory::list(&self.channel, mounts) {
            let mounted = GuestMount { guest, directory }.attach(interpreter.files());
            mounted.map_err(|error| format!("failed to mount {}: {}", error.path, error.errno))?;
        }
        Ok(interpreter)
    }

    /// Has the broker handle the calls of an interpreter.
    fn forward_calls(&self, mut interpreter: Interpreter) -> Interpreter {
        for name in forwarded_calls() {
            let (channel, current) = (self.channel.clone(), self.current.clone());
            interpreter.register_host_call(name, Arc::new(ForwardedCall { name, channel, current }));
        }
        interpreter
    }
}

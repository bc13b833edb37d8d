//! The worker's end of the channel, and what of its interpreter leads there: output, calls of the host, and requests
//! for memory.

use std::borrow::Cow;
use std::io::{self, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use belljar_core::UsageMeter;
use belljar_emscripten::console::{OutputSink, Stream as ConsoleStream};
use belljar_emscripten::recording::SleepSaver;
use belljar_emscripten::termination::Termination;
use belljar_python::isolation::{LayerArchive, buffers_of, give_buffers};
use belljar_python::{CallError, HostCall, HostCallContext};
use parking_lot::Mutex;
use serde_json::value::RawValue;

use crate::frames::{self, FrameError};
use crate::messages::{Command, Event, MAX_BUFFERS, MAX_OUTPUT, MAX_REASON, MAX_STATE_PART, OutputStream, SeenSignals};
use crate::signals::Current;

/// The exit status of a worker whose channel has failed, or that could not be sealed.
pub(crate) const FAILED: i32 = 125;

/// Ends the worker: the broker has gone, or has sent the answer to another question.
pub(crate) fn end() -> ! {
    std::process::exit(FAILED)
}

/// Returns a reason as it may be sent.
pub(crate) fn shortened(reason: &str) -> String {
    // No character takes more than four bytes.
    reason.chars().take(MAX_REASON / 4).collect()
}

/// The worker's end of the channel.
pub(crate) struct Channel {
    socket: Mutex<BufReader<UnixStream>>,
    /// True during a call of the broker, in which alone the code may ask for something.
    pub(crate) is_called: AtomicBool,
    /// True while the code is replayed, until the broker was told that the replay has ended.
    replaying: Mutex<Option<Arc<AtomicBool>>>,
}

impl Channel {
    pub(crate) fn new(socket: UnixStream) -> Self {
        let socket = Mutex::new(BufReader::new(socket));
        Self { socket, is_called: AtomicBool::new(false), replaying: Mutex::default() }
    }

    /// Has the broker be told when a replay has ended, before anything that the code does then. `flag` is true while
    /// the code is replayed.
    pub(crate) fn follow_replay(&self, flag: Arc<AtomicBool>) {
        *self.replaying.lock() = Some(flag);
    }

    /// Returns whether a call of the broker runs.
    pub(crate) fn is_called(&self) -> bool {
        self.is_called.load(Ordering::Relaxed)
    }

    /// Sends a question of the code, and returns the broker's answer. Ends the worker if the broker has gone.
    pub(crate) fn ask(&self, event: &Event) -> Command {
        match self.send(event).map(|()| self.receive()) {
            Ok(Ok(command)) => command,
            _ => end(),
        }
    }

    pub(crate) fn send(&self, event: &Event) -> io::Result<()> {
        let mut frame = Vec::new();
        if self.replaying.lock().take_if(|flag| !flag.load(Ordering::Relaxed)).is_some() {
            frames::append(&mut frame, &Event::ReplayEnded)?;
        }
        frames::append(&mut frame, event)?;
        self.socket.lock().get_mut().write_all(&frame)
    }

    pub(crate) fn receive(&self) -> Result<Command, FrameError> {
        frames::read(&mut *self.socket.lock())
    }

    /// Receives the broker's next message about a question of the code. Ends the worker if the broker has gone.
    fn receive_reply(&self) -> Command {
        self.receive().unwrap_or_else(|_| end())
    }

    /// Sends bytes that were to be saved, or the reason why they are not.
    pub(crate) fn send_saved(&self, saved: Result<&[u8], String>) -> io::Result<()> {
        let result = match saved {
            Ok(bytes) => {
                for part in bytes.chunks(MAX_STATE_PART) {
                    self.send(&Event::StatePart(part.to_vec()))?;
                }
                Ok(())
            }
            Err(reason) => Err(shortened(&reason)),
        };
        self.send(&Event::Saved(result))
    }

    /// Sends a recording, or the reason for its end. Ends the worker if the broker has gone.
    fn send_recording(&self, saved: Result<Vec<u8>, Cow<'static, str>>) {
        let saved = saved.as_deref().map_err(|reason| reason.clone().into_owned());
        self.send_saved(saved).unwrap_or_else(|_| end());
    }
}

/// Asks the broker to save recorded code that sleeps.
pub(crate) struct AskingSleepSaver(pub(crate) Arc<Channel>);

impl SleepSaver for AskingSleepSaver {
    fn on_sleep(&self, elapsed: Duration, save: &dyn Fn() -> Result<Vec<u8>, Cow<'static, str>>) {
        let mut command = self.0.ask(&Event::Asleep(elapsed));
        loop {
            match command {
                Command::SaveRecording(_) => self.0.send_recording(save()),
                Command::SleepOn => return,
                _ => end(),
            }
            command = self.0.receive_reply();
        }
    }

    // The broker sees by itself that the code does something.
    fn end_sleep(&self) -> Result<(), Termination> {
        Ok(())
    }
}

/// Asks the broker before the memory of an interpreter grows.
pub(crate) struct AskingMeter {
    pub(crate) channel: Arc<Channel>,
    /// True during a call whose memory is to be asked for.
    pub(crate) asks: AtomicBool,
}

impl UsageMeter for AskingMeter {
    fn grow_memory(&self, bytes: u64) -> bool {
        if !self.asks.load(Ordering::Relaxed) {
            return true;
        }
        match self.channel.ask(&Event::Grow(bytes)) {
            Command::Grown(is_granted) => is_granted,
            _ => end(),
        }
    }

    // The broker knows what an interpreter begins with, and when it ends; it reads the processor time by itself.
    fn add_memory(&self, _: u64) {}

    fn release_memory(&self, _: u64) {}

    fn limits_memory(&self) -> bool {
        self.asks.load(Ordering::Relaxed)
    }

    fn limits_processor_time(&self) -> bool {
        false
    }

    fn add_processor_time(&self, _: Duration) {}

    fn add_network(&self, _: u64) {}

    fn check_network(&self) -> Result<(), String> {
        Ok(())
    }
}

/// Sends what the code writes to the broker.
pub(crate) struct ChannelSink(pub(crate) Arc<Channel>);

impl OutputSink for ChannelSink {
    fn write(&mut self, stream: ConsoleStream, bytes: &[u8]) {
        let stream = match stream {
            ConsoleStream::Stdout => OutputStream::Stdout,
            ConsoleStream::Stderr => OutputStream::Stderr,
        };
        for part in bytes.chunks(MAX_OUTPUT) {
            if self.0.send(&Event::Output { stream, bytes: part.to_vec() }).is_err() {
                end();
            }
        }
    }
}

/// A call of the guest to the host, which the broker handles.
pub(crate) struct ForwardedCall {
    pub(crate) name: &'static str,
    pub(crate) channel: Arc<Channel>,
    pub(crate) current: Current,
}

impl ForwardedCall {
    /// Returns the interrupts so far.
    fn seen_signals(&self, context: &HostCallContext<'_>) -> Result<SeenSignals, CallError> {
        let interrupts = {
            let current = self.current.lock();
            current.running.as_ref().map_or(0, |(number, _)| current.interrupts_of(*number))
        };
        // One that arrives in between is pending, and not counted.
        Ok(SeenSignals { interrupts, is_pending: context.is_interrupted()? })
    }
}

impl HostCall for ForwardedCall {
    fn call(&self, request: &RawValue, context: &mut HostCallContext<'_>) -> Result<Box<RawValue>, CallError> {
        let refused = |error: &dyn std::fmt::Display| CallError::Refused(error.to_string());
        let _pause = context.pause();
        let files = buffers_of(request, context.files(), MAX_BUFFERS as u64)?;
        let signals = self.seen_signals(context)?;
        let (name, request) = (self.name.into(), request.get().into());
        let continued = context.continued_state().map(<[u8]>::to_vec);
        let event = Event::HostCall { name, request, files, signals, continued };
        let (mut bytes, mut command) = (Vec::new(), self.channel.ask(&event));
        let (result, files, incomplete) = loop {
            match command {
                Command::HostReply { result, files, incomplete } => break (result, files, incomplete),
                Command::SaveRecording(state) => self.channel.send_recording(context.save(&state)),
                Command::LayerPart { bytes: part, id } => {
                    bytes.extend(part);
                    if let Some(id) = id {
                        let layer = LayerArchive { id, bytes: std::mem::take(&mut bytes) };
                        layer.add_to(context.files()).unwrap_or_else(|_| end());
                    }
                }
                _ => end(),
            }
            command = self.channel.receive_reply();
        };
        if let Some(reason) = incomplete {
            context.drop_recording(reason);
        }
        let reply = result?;
        give_buffers(&files, context.files())
            .map_err(|error| refused(&format!("the result does not fit into the code's file system: {error}")))?;
        RawValue::from_string(reply).map_err(|error| refused(&error))
    }
}

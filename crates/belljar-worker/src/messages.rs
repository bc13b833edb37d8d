//! The messages of the channel between the broker and a worker: see the tables in `lib.rs`.

use std::time::Duration;

use belljar_core::{ExitReason, LimitKind, Limits, Stream};
use belljar_python::GuestFunction;
use belljar_python::isolation::{
    CallRecording, FileReply, FileRequest, HostCallFailure, MAX_LISTED_PATHS, MAX_TRANSFER, MountPoint, MountRequest,
    MountResult, NetworkReply, NetworkRequest, RecordingState, SavedPart, ValueFile, at_most,
};
use serde::{Deserialize, Serialize};

use crate::frames::{MAX_MESSAGE, Message};

/// The most bytes of output in one message.
pub(crate) const MAX_OUTPUT: usize = 64 << 10;
/// The largest request of a call of the host, in bytes.
pub(crate) const MAX_HOST_REQUEST: usize = 16 << 20;
/// The most buffers of one message. An empty one takes two bytes of it, and many times as many in memory.
pub(crate) const MAX_FILES: usize = 10_000;
/// The largest contents of the buffers of one message, in bytes.
pub(crate) const MAX_BUFFERS: usize = 100 << 20;
/// The most bytes of a part of an interpreter's state in one message.
pub(crate) const MAX_STATE_PART: usize = 1 << 20;
/// The most bytes of the state of an interpreter.
pub(crate) const MAX_STATE: usize = 1 << 30;
/// The longest state of a handler of a call of the host, in bytes.
pub(crate) const MAX_HANDLER_STATE: usize = 1 << 20;
/// The longest reason of a failure, in bytes.
pub(crate) const MAX_REASON: usize = 4096;
/// The most bytes of a message around what the other limits count: names and lengths.
const MAX_REST: usize = 1 << 20;
/// The same of a message with files of a session: numbers of each.
const MAX_FILES_REST: usize = 2 << 20;

/// The bit of a number on the second socket that ends the interpreter instead of interrupting it.
pub(crate) const END_SIGNAL: u64 = 1 << 63;
/// The bit of a number on the second socket that tells the interpreter of a change of its connections instead.
pub(crate) const CHANGE_SIGNAL: u64 = 1 << 62;

/// A message of the broker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Command {
    /// Creates an interpreter.
    Restore {
        /// The number of the interpreter, which interrupts name.
        number: u64,
        limits: InterpreterLimits,
        mounts: Vec<MountPoint>,
    },
    /// Calls a function of the guest package.
    Call {
        function: GuestFunction,
        arguments: String,
        files: Vec<ValueFile>,
        time: TimeLimits,
        /// True for the first call of a cell, and for other requests of a session.
        is_new_cell: bool,
        /// The time by which the interpreter's clock is set forward first.
        asleep: Duration,
        /// True if the worker asks before the interpreter's memory grows.
        asks_memory: bool,
        /// True if the code has a network.
        network: bool,
        /// The number of interrupts that were sent by the second socket, which may arrive after this message.
        interrupts: u64,
        recording: CallRecording,
        /// The limits of `Finish`, if it is to be called as soon as the code has ended with a value.
        finish: Option<TimeLimits>,
        /// True if the call gives way to those of other owners.
        gives_way: bool,
    },
    /// A part of the files of a package, before `HostReply`. The last part has the identifier.
    LayerPart {
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
        id: Option<String>,
    },
    /// Replies to `Grow`: whether the memory may grow.
    Grown(bool),
    /// Replies to `Network`.
    Network(NetworkReply),
    /// Replies to `Mount`.
    Mount(MountResult),
    /// Replies to a call of the host, with the buffers of the reply.
    HostReply {
        result: Result<String, HostCallFailure>,
        files: Vec<ValueFile>,
        /// The reason for the end of the code's recording, if this reply ends it.
        incomplete: Option<String>,
    },
    /// Drops the interpreter.
    Discard,
    /// A part of the bytes that the next `StartSession` begins with.
    StatePart(#[serde(with = "serde_bytes")] Vec<u8>),
    /// Creates the interpreter of a session.
    StartSession {
        /// Its number, which interrupts name.
        number: u64,
        limits: InterpreterLimits,
        /// The part that the bytes so far are; `None` for a new interpreter.
        start: Option<SavedPart>,
        mounts: Vec<MountPoint>,
    },
    /// Asks about the files of the session.
    Files(FileRequest),
    /// Saves a part of the session's interpreter.
    Save(SavedPart),
    /// Prepares the replay of a recording, which the bytes so far are.
    PrepareReplay {
        /// The maximum size of the recording that it goes on as, in bytes.
        max_bytes: u64,
    },
    /// Asks for the recording of the code that waits in a call of the host, with the state of the call's handler, or
    /// that sleeps.
    SaveRecording(#[serde(with = "serde_bytes")] Vec<u8>),
    /// Ends `Asleep`.
    SleepOn,
}

/// A message of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Event {
    /// The worker is sealed.
    Ready,
    /// The code has written to a stream.
    Output {
        stream: OutputStream,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// The code calls the host. The request is JSON, with its buffers.
    HostCall {
        name: String,
        request: String,
        #[serde(deserialize_with = "at_most::<_, _, MAX_FILES>")]
        files: Vec<ValueFile>,
        signals: SeenSignals,
        /// The state of the call's handler, if the code is replayed and waited in this call.
        #[serde(with = "serde_bytes")]
        continued: Option<Vec<u8>>,
    },
    /// The call of the guest package has ended.
    Returned {
        result: Result<String, EndReason>,
        #[serde(deserialize_with = "at_most::<_, _, MAX_FILES>")]
        files: Vec<ValueFile>,
        peak_memory: u64,
        has_used_streams: bool,
        /// The state of the recording, if the code is recorded.
        recording: Option<RecordingState>,
        /// The result of `Finish`, if it was called, and the time that it has taken.
        finish: Option<(Result<String, EndReason>, Duration)>,
    },
    /// The interpreter of the session was created, or the reason why not.
    Started(Result<(), String>),
    /// The reply to `Files`.
    Files(FileReply),
    /// A part of the bytes that were to be saved.
    StatePart(#[serde(with = "serde_bytes")] Vec<u8>),
    /// All parts were sent, or the reason why not.
    Saved(Result<(), String>),
    /// The interpreter's memory is to grow by a number of bytes.
    Grow(u64),
    /// The sockets of the code ask for something.
    Network(NetworkRequest),
    /// The code waits for its connections, until the next message.
    Waiting,
    /// The code asks for something of mounted directories.
    Mount(MountRequest),
    /// The replay was prepared, or the recording is damaged.
    ReplayPrepared(bool),
    /// The code has repeated what it did.
    ReplayEnded,
    /// The code, which is recorded, has slept for this time, and may be saved.
    Asleep(Duration),
}

impl Message for Command {
    fn max_size(_: u8) -> Option<usize> {
        Some(MAX_MESSAGE)
    }
}

impl Message for Event {
    fn max_size(kind: u8) -> Option<usize> {
        // The numbers of the variants in their order.
        match kind {
            0 => Some(1),
            1 => Some(MAX_OUTPUT + MAX_REST),
            2 => Some(MAX_HOST_REQUEST + MAX_BUFFERS + MAX_HANDLER_STATE + MAX_REST),
            3 => Some(MAX_MESSAGE),
            4 | 7 => Some(MAX_REASON + MAX_REST),
            5 => Some(MAX_LISTED_PATHS + MAX_FILES_REST),
            6 => Some(MAX_STATE_PART + MAX_REST),
            // The kind, and a number of 64 bits.
            8 => Some(11),
            9 => Some(MAX_TRANSFER + MAX_REST),
            10 => Some(1),
            11 => Some(MAX_TRANSFER + MAX_REST),
            12 => Some(2),
            13 => Some(1),
            // The kind, a number of 64 bits and one of 32.
            14 => Some(16),
            _ => None,
        }
    }
}

/// The signals that a worker has seen when its code called the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SeenSignals {
    /// The number of interrupts that have arrived for the interpreter.
    pub(crate) interrupts: u64,
    /// True if the code has not received the last one.
    pub(crate) is_pending: bool,
}

/// A standard stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum OutputStream {
    Stdout,
    Stderr,
}

impl From<OutputStream> for Stream {
    fn from(stream: OutputStream) -> Self {
        match stream {
            OutputStream::Stdout => Self::Stdout,
            OutputStream::Stderr => Self::Stderr,
        }
    }
}

/// The limits of an interpreter but for those of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InterpreterLimits {
    pub(crate) memory: u64,
    pub(crate) output: u64,
    pub(crate) disk: u64,
    pub(crate) files: u32,
    pub(crate) value: u64,
}

impl From<&Limits> for InterpreterLimits {
    fn from(&Limits { memory, output, disk, files, value, .. }: &Limits) -> Self {
        Self { memory, output, disk, files, value }
    }
}

impl From<InterpreterLimits> for Limits {
    fn from(limits: InterpreterLimits) -> Self {
        let InterpreterLimits { memory, output, disk, files, value } = limits;
        Self { memory, output, disk, files, value, ..Self::default() }
    }
}

/// The limits of time of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TimeLimits {
    pub(crate) wall: Option<Duration>,
    pub(crate) cpu: Option<Duration>,
    pub(crate) grace: Duration,
}

impl From<TimeLimits> for Limits {
    fn from(TimeLimits { wall, cpu, grace }: TimeLimits) -> Self {
        Self { wall_time: wall, cpu_time: cpu, grace, ..Self::default() }
    }
}

impl From<&Limits> for TimeLimits {
    fn from(limits: &Limits) -> Self {
        Self { wall: limits.wall_time, cpu: limits.cpu_time, grace: limits.grace }
    }
}

/// The reason why an interpreter has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum EndReason {
    WallTime,
    CpuTime,
    WaitTime,
    Output,
    Stack,
    Memory,
    Exit(u8),
    Cancelled,
    Crash(String),
}

impl From<ExitReason> for EndReason {
    fn from(reason: ExitReason) -> Self {
        match reason {
            ExitReason::Limit(LimitKind::WallTime) => Self::WallTime,
            ExitReason::Limit(LimitKind::CpuTime) => Self::CpuTime,
            ExitReason::Limit(LimitKind::WaitTime) => Self::WaitTime,
            ExitReason::Limit(LimitKind::Output) => Self::Output,
            ExitReason::Limit(LimitKind::Stack) => Self::Stack,
            ExitReason::Limit(LimitKind::Memory) => Self::Memory,
            ExitReason::Exit(status) => Self::Exit(u8::try_from(status & 0xff).unwrap_or(u8::MAX)),
            ExitReason::Cancelled => Self::Cancelled,
            ExitReason::Signal(signal) => Self::Crash(format!("signal {signal}")),
            ExitReason::Crash(reason) => Self::Crash(reason),
        }
    }
}

impl From<EndReason> for ExitReason {
    fn from(reason: EndReason) -> Self {
        match reason {
            EndReason::WallTime => Self::Limit(LimitKind::WallTime),
            EndReason::CpuTime => Self::Limit(LimitKind::CpuTime),
            EndReason::WaitTime => Self::Limit(LimitKind::WaitTime),
            EndReason::Output => Self::Limit(LimitKind::Output),
            EndReason::Stack => Self::Limit(LimitKind::Stack),
            EndReason::Memory => Self::Limit(LimitKind::Memory),
            EndReason::Exit(status) => Self::Exit(status.into()),
            EndReason::Cancelled => Self::Cancelled,
            EndReason::Crash(reason) => Self::Crash(reason),
        }
    }
}

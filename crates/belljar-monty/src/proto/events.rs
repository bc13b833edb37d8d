//! Events of the worker.

use prost::{Message, Oneof};
use serde::{Deserialize, Serialize};

use super::json;
use super::{Arena, NodePair, TimeZone, Unit, Uuid};

/// An event.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ChildEvent {
    #[prost(oneof = "Event", tags = "1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12")]
    pub(crate) kind: Option<Event>,
    #[prost(uint64, tag = "20")]
    pub(crate) total_execution_micros: u64,
    #[prost(uint64, optional, tag = "22")]
    pub(crate) max_suspensions: Option<u64>,
    #[prost(string, optional, tag = "23")]
    pub(crate) restored_script_name: Option<String>,
    #[prost(uint64, tag = "24")]
    pub(crate) feed_execution_micros: u64,
    #[prost(uint64, optional, tag = "25")]
    pub(crate) max_feed_duration_micros: Option<u64>,
    #[prost(uint64, optional, tag = "26")]
    pub(crate) max_turn_duration_micros: Option<u64>,
    #[prost(uint64, optional, tag = "27")]
    pub(crate) max_total_sleep_micros: Option<u64>,
}

/// The kinds of events. All but the first end the turn.
#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Event {
    #[prost(message, tag = "1")]
    Print(Print),
    #[prost(message, tag = "2")]
    FunctionCall(FunctionCall),
    #[prost(message, tag = "3")]
    OsCall(OsCall),
    #[prost(message, tag = "4")]
    NameLookup(NameLookup),
    #[prost(message, tag = "5")]
    ResolveFutures(ResolveFutures),
    #[prost(message, tag = "6")]
    Complete(Complete),
    #[prost(message, tag = "7")]
    Error(ErrorEvent),
    #[prost(message, tag = "9")]
    DumpResult(DumpResult),
    #[prost(message, tag = "10")]
    Ok(Unit),
    #[prost(message, tag = "11")]
    FatalError(FatalError),
    #[prost(message, tag = "12")]
    Shutdown(ShutdownDump),
}

/// Output of the code.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Print {
    #[prost(message, repeated, tag = "1")]
    pub(crate) segments: Vec<PrintSegment>,
}

/// Output on one stream: 1 for standard output, 2 for standard error.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct PrintSegment {
    #[prost(int32, tag = "1")]
    pub(crate) stream: i32,
    #[prost(string, tag = "2")]
    pub(crate) text: String,
}

/// The code calls a function of the parent, or a method of an object of the parent.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
pub(crate) struct FunctionCall {
    #[prost(string, tag = "1")]
    pub(crate) function_name: String,
    #[prost(uint32, repeated, tag = "2")]
    pub(crate) args: Vec<u32>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) kwargs: Vec<NodePair>,
    #[prost(uint32, tag = "4")]
    #[serde(default)]
    pub(crate) call_id: u32,
    #[prost(message, optional, tag = "5")]
    #[serde(default)]
    pub(crate) object_id: Option<Uuid>,
    #[prost(bool, tag = "6")]
    #[serde(default)]
    pub(crate) allow_eager_await: bool,
    #[prost(message, optional, tag = "7")]
    pub(crate) values: Option<Arena>,
    #[prost(message, optional, tag = "8")]
    #[serde(default)]
    pub(crate) position: Option<SourceRange>,
}

/// A part of the source, in bytes.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
pub(crate) struct SourceRange {
    #[prost(string, tag = "1")]
    pub(crate) filename: String,
    #[prost(uint32, tag = "2")]
    pub(crate) start: u32,
    #[prost(uint32, tag = "3")]
    pub(crate) end: u32,
}

/// The code uses the parent's files, environment or clock.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
pub(crate) struct OsCall {
    #[prost(uint32, tag = "1")]
    #[serde(default)]
    pub(crate) call_id: u32,
    #[prost(
        oneof = "Operation",
        tags = "2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, \
                30, 31"
    )]
    pub(crate) call: Option<Operation>,
    #[prost(message, optional, tag = "50")]
    #[serde(default)]
    pub(crate) values: Option<Arena>,
    #[prost(bool, tag = "51")]
    #[serde(default)]
    pub(crate) allow_eager_await: bool,
}

/// The operations of the system. A text without a name is a path.
#[derive(Clone, PartialEq, Oneof, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Operation {
    #[prost(string, tag = "2")]
    Exists(String),
    #[prost(string, tag = "3")]
    IsFile(String),
    #[prost(string, tag = "4")]
    IsDir(String),
    #[prost(string, tag = "5")]
    IsSymlink(String),
    #[prost(string, tag = "6")]
    ReadText(String),
    #[prost(string, tag = "7")]
    ReadBytes(String),
    #[prost(string, tag = "8")]
    Stat(String),
    #[prost(string, tag = "9")]
    Iterdir(String),
    #[prost(string, tag = "10")]
    Resolve(String),
    #[prost(string, tag = "11")]
    Absolute(String),
    #[prost(string, tag = "12")]
    Unlink(String),
    #[prost(string, tag = "13")]
    Rmdir(String),
    #[prost(message, tag = "14")]
    WriteText(TextWrite),
    #[prost(message, tag = "15")]
    AppendText(TextWrite),
    #[prost(message, tag = "16")]
    WriteBytes(BytesWrite),
    #[prost(message, tag = "17")]
    AppendBytes(BytesWrite),
    #[prost(message, tag = "18")]
    Open(Open),
    #[prost(message, tag = "19")]
    Mkdir(Mkdir),
    #[prost(message, tag = "20")]
    Rename(Rename),
    #[prost(message, tag = "21")]
    Getenv(Getenv),
    #[prost(message, tag = "22")]
    GetEnviron(Unit),
    #[prost(message, tag = "23")]
    DateToday(Unit),
    #[prost(message, tag = "24")]
    DateTimeNow(DateTimeNow),
    #[prost(message, tag = "25")]
    Urandom(Urandom),
    #[prost(message, tag = "26")]
    Time(TimeCall),
    #[prost(message, tag = "27")]
    Sleep(SleepCall),
    #[prost(message, tag = "28")]
    AsyncSleep(SleepCall),
    #[prost(message, tag = "29")]
    SystemSleep(SleepCall),
    #[prost(message, tag = "30")]
    AsyncSystemSleep(SleepCall),
    #[prost(message, tag = "31")]
    Import(Import),
}

/// Text for a file.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
pub(crate) struct TextWrite {
    #[prost(string, tag = "1")]
    pub(crate) path: String,
    #[prost(string, tag = "2")]
    pub(crate) data: String,
}

/// Bytes for a file.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
pub(crate) struct BytesWrite {
    #[prost(string, tag = "1")]
    pub(crate) path: String,
    #[prost(bytes = "vec", tag = "2")]
    #[serde(with = "json::bytes")]
    pub(crate) data: Vec<u8>,
}

/// Opens a file.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
pub(crate) struct Open {
    #[prost(string, tag = "1")]
    pub(crate) path: String,
    #[prost(string, tag = "2")]
    pub(crate) mode: String,
}

/// Creates a directory.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
pub(crate) struct Mkdir {
    #[prost(string, tag = "1")]
    pub(crate) path: String,
    #[prost(bool, tag = "2")]
    pub(crate) parents: bool,
    #[prost(bool, tag = "3")]
    pub(crate) exist_ok: bool,
}

/// Renames a file or a directory.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
pub(crate) struct Rename {
    #[prost(string, tag = "1")]
    pub(crate) src: String,
    #[prost(string, tag = "2")]
    pub(crate) dst: String,
}

/// Reads an environment variable.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
pub(crate) struct Getenv {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(uint32, tag = "2")]
    pub(crate) default: u32,
}

/// Reads the time of day with its date.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
pub(crate) struct DateTimeNow {
    #[prost(message, optional, tag = "1")]
    pub(crate) tz: Option<TimeZone>,
}

/// Reads random bytes.
#[derive(Clone, Copy, PartialEq, Message, Serialize, Deserialize)]
pub(crate) struct Urandom {
    #[prost(uint64, tag = "1")]
    pub(crate) size: u64,
}

/// Reads a clock.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
pub(crate) struct TimeCall {
    #[prost(string, tag = "1")]
    pub(crate) caller: String,
}

/// Waits.
#[derive(Clone, Copy, PartialEq, Message, Serialize, Deserialize)]
pub(crate) struct SleepCall {
    #[prost(double, tag = "1")]
    pub(crate) seconds: f64,
}

/// Imports a module of the parent.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
pub(crate) struct Import {
    #[prost(string, tag = "1")]
    pub(crate) module: String,
}

/// The code reads a name that is not defined, or an attribute of an object of the parent.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
pub(crate) struct NameLookup {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, optional, tag = "2")]
    #[serde(default)]
    pub(crate) object_id: Option<Uuid>,
    #[prost(message, optional, tag = "3")]
    #[serde(default)]
    pub(crate) position: Option<SourceRange>,
}

/// The code waits for these futures only.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResolveFutures {
    #[prost(uint32, repeated, tag = "1")]
    pub(crate) pending_call_ids: Vec<u32>,
}

/// The snippet has ended with a value.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
pub(crate) struct Complete {
    #[prost(uint32, tag = "1")]
    pub(crate) value: u32,
    #[prost(message, optional, tag = "2")]
    pub(crate) values: Option<Arena>,
}

/// The snippet or the request has failed.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
pub(crate) struct ErrorEvent {
    #[prost(message, optional, tag = "1")]
    pub(crate) exception: Option<RaisedException>,
}

/// An exception with its traceback, the outermost frame first.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
pub(crate) struct RaisedException {
    #[prost(string, tag = "1")]
    pub(crate) exc_type: String,
    #[prost(string, optional, tag = "2")]
    pub(crate) message: Option<String>,
    #[prost(message, repeated, tag = "3")]
    #[serde(default)]
    pub(crate) traceback: Vec<StackFrame>,
}

/// A line and a column, from 1 on.
#[derive(Clone, Copy, PartialEq, Message, Serialize, Deserialize)]
#[serde(from = "(u32, u32)", into = "(u32, u32)")]
pub(crate) struct CodeLoc {
    #[prost(uint32, tag = "1")]
    pub(crate) line: u32,
    #[prost(uint32, tag = "2")]
    pub(crate) column: u32,
}

impl From<(u32, u32)> for CodeLoc {
    fn from((line, column): (u32, u32)) -> Self {
        Self { line, column }
    }
}

impl From<CodeLoc> for (u32, u32) {
    fn from(CodeLoc { line, column }: CodeLoc) -> Self {
        (line, column)
    }
}

/// A frame of a traceback.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct StackFrame {
    #[prost(string, tag = "1")]
    pub(crate) filename: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) start: Option<CodeLoc>,
    #[prost(message, optional, tag = "3")]
    pub(crate) end: Option<CodeLoc>,
    #[prost(string, optional, tag = "4")]
    pub(crate) frame_name: Option<String>,
    #[prost(string, optional, tag = "5")]
    pub(crate) preview_line: Option<String>,
    #[prost(bool, tag = "6")]
    pub(crate) hide_caret: bool,
    #[prost(bool, tag = "7")]
    pub(crate) hide_frame_name: bool,
}

/// The state of a session.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct DumpResult {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) state: Vec<u8>,
}

/// The worker ends because of an error.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct FatalError {
    #[prost(string, tag = "1")]
    pub(crate) message: String,
}

/// The server ends, and has not run the request.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ShutdownDump {
    #[prost(bytes = "vec", optional, tag = "1")]
    pub(crate) dump: Option<Vec<u8>>,
}

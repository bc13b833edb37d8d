//! Requests of the parent.

use prost::{Message, Oneof};
use serde::{Deserialize, Serialize};

use super::{Arena, RaisedException, TimeZone, Unit};

/// A request.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ParentRequest {
    #[prost(oneof = "Request", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11")]
    pub(crate) kind: Option<Request>,
    #[prost(string, optional, tag = "20")]
    pub(crate) trace_parent: Option<String>,
}

/// The kinds of requests.
#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Request {
    #[prost(message, tag = "1")]
    Configure(Configure),
    #[prost(message, tag = "2")]
    InstallDependencies(InstallDependencies),
    #[prost(message, tag = "3")]
    Feed(Feed),
    #[prost(message, tag = "4")]
    ResumeCall(ResumeCall),
    #[prost(message, tag = "5")]
    ResumeNameLookup(ResumeNameLookup),
    #[prost(message, tag = "6")]
    ResumeFutures(ResumeFutures),
    #[prost(message, tag = "7")]
    Dump(Unit),
    #[prost(message, tag = "8")]
    Load(Load),
    #[prost(message, tag = "9")]
    Reset(Unit),
    #[prost(message, tag = "10")]
    Shutdown(Unit),
    #[prost(message, tag = "11")]
    AbortFeed(AbortFeed),
}

/// Begins a session.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Configure {
    #[prost(string, tag = "1")]
    pub(crate) script_name: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) limits: Option<ResourceLimits>,
    #[prost(bool, tag = "3")]
    pub(crate) type_check: bool,
    #[prost(string, tag = "5")]
    pub(crate) monty_version: String,
    #[prost(uint32, tag = "9")]
    pub(crate) protocol_version: u32,
    #[prost(uint32, optional, tag = "10")]
    pub(crate) print_flush_interval_ms: Option<u32>,
    #[prost(message, optional, tag = "11")]
    pub(crate) os_policy: Option<OsPolicy>,
}

/// The limits of a session.
#[derive(Clone, Copy, PartialEq, Message, Serialize, Deserialize)]
pub(crate) struct ResourceLimits {
    #[prost(uint64, optional, tag = "2")]
    pub(crate) max_memory_bytes: Option<u64>,
    #[prost(uint64, optional, tag = "4")]
    pub(crate) max_recursion_depth: Option<u64>,
    #[prost(uint64, optional, tag = "5")]
    pub(crate) max_suspensions: Option<u64>,
    #[prost(uint64, optional, tag = "6")]
    pub(crate) max_feed_duration_micros: Option<u64>,
    #[prost(uint64, optional, tag = "7")]
    pub(crate) max_turn_duration_micros: Option<u64>,
    #[prost(uint64, optional, tag = "8")]
    pub(crate) max_total_sleep_micros: Option<u64>,
}

/// The settings of clocks, sleeps and random numbers.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
pub(crate) struct OsPolicy {
    #[prost(oneof = "Clock", tags = "1, 2, 3")]
    pub(crate) clock: Option<Clock>,
    #[prost(message, optional, tag = "4")]
    pub(crate) time_zone: Option<LocalZone>,
    #[prost(message, optional, tag = "5")]
    pub(crate) sleep: Option<SleepMode>,
    #[prost(oneof = "RandomStart", tags = "6, 7, 8")]
    pub(crate) random_start: Option<RandomStart>,
}

/// The source of the time of day.
#[derive(Clone, Copy, PartialEq, Oneof, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Clock {
    #[prost(message, tag = "1")]
    System(Unit),
    #[prost(message, tag = "2")]
    CallHost(Unit),
    #[prost(message, tag = "3")]
    Fixed(FixedDateTime),
}

/// The zone of times without one.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct LocalZone {
    #[prost(oneof = "Zone", tags = "1, 2, 3")]
    pub(crate) zone: Option<Zone>,
}

/// The kinds of zones.
#[derive(Clone, PartialEq, Oneof, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Zone {
    #[prost(message, tag = "1")]
    Utc(Unit),
    #[prost(string, tag = "2")]
    Name(String),
    #[prost(message, tag = "3")]
    Fixed(TimeZone),
}

/// A clock that stands still.
#[derive(Clone, Copy, PartialEq, Message, Serialize, Deserialize)]
pub(crate) struct FixedDateTime {
    #[prost(int64, tag = "1")]
    pub(crate) unix_seconds: i64,
    #[prost(uint32, tag = "2")]
    pub(crate) microsecond: u32,
}

/// The effect of sleeping.
#[derive(Clone, Copy, PartialEq, Message, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct SleepMode {
    #[prost(oneof = "Sleep", tags = "1, 2, 3")]
    pub(crate) mode: Option<Sleep>,
}

/// The effects of sleeping.
#[derive(Clone, Copy, PartialEq, Oneof, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Sleep {
    #[prost(message, tag = "1")]
    System(SystemSleep),
    #[prost(message, tag = "2")]
    CallHost(Unit),
    #[prost(message, tag = "3")]
    Zero(Unit),
}

/// A sleep for which the parent waits.
#[derive(Clone, Copy, PartialEq, Message, Serialize, Deserialize)]
pub(crate) struct SystemSleep {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) max_micros: Option<u64>,
}

/// The first state of `random`.
#[derive(Clone, PartialEq, Oneof, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RandomStart {
    #[prost(message, tag = "6")]
    RandomSystem(Unit),
    #[prost(message, tag = "7")]
    RandomCallHost(Unit),
    #[prost(message, tag = "8")]
    Seed(RandomSeed),
}

/// An argument of `random.seed`. Integers are signed and little-endian.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct RandomSeed {
    #[prost(oneof = "SeedValue", tags = "1, 2, 3, 4")]
    pub(crate) value: Option<SeedValue>,
}

/// The types of seeds.
#[derive(Clone, PartialEq, Oneof, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SeedValue {
    #[prost(bytes, tag = "1")]
    Int(#[serde(with = "super::json::bytes")] Vec<u8>),
    #[prost(double, tag = "2")]
    Float(f64),
    #[prost(string, tag = "3")]
    Str(String),
    #[prost(bytes, tag = "4")]
    Bytes(#[serde(with = "super::json::bytes")] Vec<u8>),
}

/// Installs packages for the session.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct InstallDependencies {
    #[prost(string, repeated, tag = "1")]
    pub(crate) requirements: Vec<String>,
}

/// Runs a snippet.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Feed {
    #[prost(string, tag = "1")]
    pub(crate) code: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) inputs: Vec<NamedRef>,
    #[prost(message, optional, tag = "3")]
    pub(crate) values: Option<Arena>,
    #[prost(string, tag = "5")]
    pub(crate) cwd: String,
}

/// A variable for a snippet.
#[derive(Clone, PartialEq, Message, Serialize)]
pub(crate) struct NamedRef {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(uint32, tag = "2")]
    pub(crate) value: u32,
}

/// Answers a call.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResumeCall {
    #[prost(uint32, tag = "1")]
    pub(crate) call_id: u32,
    #[prost(message, optional, tag = "2")]
    pub(crate) result: Option<ExtFunctionResult>,
    #[prost(message, optional, tag = "3")]
    pub(crate) values: Option<Arena>,
}

/// The result of a call.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExtFunctionResult {
    #[prost(oneof = "CallResult", tags = "1, 2, 3, 4, 5")]
    pub(crate) kind: Option<CallResult>,
}

/// The kinds of results of calls.
#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum CallResult {
    #[prost(uint32, tag = "1")]
    ReturnValue(u32),
    #[prost(message, tag = "2")]
    Error(RaisedException),
    #[prost(uint32, tag = "3")]
    Future(u32),
    #[prost(string, tag = "4")]
    NotFound(String),
    #[prost(message, tag = "5")]
    NotHandled(Unit),
}

/// Answers the look-up of a name.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResumeNameLookup {
    #[prost(message, optional, tag = "1")]
    pub(crate) values: Option<Arena>,
    #[prost(oneof = "NameResult", tags = "2, 3, 4")]
    pub(crate) kind: Option<NameResult>,
}

/// The results of a look-up.
#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum NameResult {
    #[prost(uint32, tag = "2")]
    Value(u32),
    #[prost(message, tag = "3")]
    Undefined(Unit),
    #[prost(message, tag = "4")]
    Error(RaisedException),
}

/// Supplies results of futures.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResumeFutures {
    #[prost(message, repeated, tag = "1")]
    pub(crate) results: Vec<FutureResult>,
    #[prost(message, optional, tag = "2")]
    pub(crate) values: Option<Arena>,
}

/// The result of a future.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct FutureResult {
    #[prost(uint32, tag = "1")]
    pub(crate) call_id: u32,
    #[prost(message, optional, tag = "2")]
    pub(crate) result: Option<ExtFunctionResult>,
}

/// Restores a session.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Load {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) state: Vec<u8>,
}

/// Ends a snippet that is suspended.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct AbortFeed {
    #[prost(message, optional, tag = "1")]
    pub(crate) exception: Option<RaisedException>,
}

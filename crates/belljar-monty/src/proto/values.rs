//! Python values on the wire, and as the JSON text that the guest reads and writes (`guest/monty_values.py`).
//!
//! A message has one arena of nodes. Containers have the indexes of their children, which come before them.

use prost::{Message, Oneof};
use serde::{Deserialize, Serialize};

use super::json;

/// The content of variants without any.
#[derive(Clone, Copy, PartialEq, Message, Serialize, Deserialize)]
pub(crate) struct Unit {}

/// The values of a message.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Arena {
    #[prost(uint32, tag = "1")]
    #[serde(skip)]
    pub(crate) node_count: u32,
    #[prost(message, repeated, tag = "2")]
    pub(crate) nodes: Vec<MontyNode>,
}

/// One value; in JSON its [`Kind`].
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct MontyNode {
    #[prost(
        oneof = "Kind",
        tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, \
                29, 30, 31, 32, 33"
    )]
    pub(crate) kind: Option<Kind>,
}

/// The type of a value, and its content.
#[derive(Clone, PartialEq, Oneof, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    #[prost(message, tag = "1")]
    Ellipsis(Unit),
    #[prost(message, tag = "2")]
    None(Unit),
    #[prost(message, tag = "3")]
    NotImplemented(Unit),
    #[prost(bool, tag = "4")]
    Boolean(bool),
    #[prost(sint64, tag = "5")]
    Int(i64),
    #[prost(message, tag = "6")]
    Bigint(BigInt),
    #[prost(double, tag = "7")]
    Float(#[serde(with = "json::float")] f64),
    #[prost(string, tag = "8")]
    Str(String),
    #[prost(bytes, tag = "9")]
    Bytes(#[serde(with = "json::bytes")] Vec<u8>),
    #[prost(message, tag = "10")]
    Uuid(Uuid),
    #[prost(message, tag = "11")]
    List(Indexes),
    #[prost(message, tag = "12")]
    Tuple(Indexes),
    #[prost(message, tag = "13")]
    NamedTuple(NamedTuple),
    #[prost(message, tag = "14")]
    Dict(NodePairs),
    #[prost(message, tag = "15")]
    Set(Indexes),
    #[prost(message, tag = "16")]
    FrozenSet(Indexes),
    #[prost(message, tag = "17")]
    Date(Date),
    #[prost(message, tag = "18")]
    Time(Time),
    #[prost(message, tag = "19")]
    Datetime(DateTime),
    #[prost(message, tag = "20")]
    Timedelta(TimeDelta),
    #[prost(message, tag = "21")]
    Timezone(TimeZone),
    #[prost(message, tag = "22")]
    Exception(Exception),
    #[prost(message, tag = "23")]
    Type(Type),
    #[prost(message, tag = "24")]
    ClassInstance(ClassInstance),
    #[prost(message, tag = "25")]
    Function(Function),
    #[prost(string, tag = "26")]
    BuiltinFunction(String),
    #[prost(string, tag = "27")]
    Path(String),
    #[prost(message, tag = "28")]
    FileHandle(FileHandle),
    #[prost(string, tag = "29")]
    Repr(String),
    #[prost(string, tag = "30")]
    Cycle(String),
    #[prost(message, tag = "31")]
    Complex(Complex),
    #[prost(message, tag = "32")]
    Module(Module),
    #[prost(string, tag = "33")]
    Decimal(String),
}

/// The indexes of a container's children; in JSON a list.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Indexes {
    #[prost(uint32, repeated, tag = "1")]
    pub(crate) items: Vec<u32>,
}

/// The indexes of a key and its value; in JSON a list of the two.
#[derive(Clone, Copy, PartialEq, Message, Serialize, Deserialize)]
#[serde(from = "(u32, u32)", into = "(u32, u32)")]
pub(crate) struct NodePair {
    #[prost(uint32, tag = "1")]
    pub(crate) key: u32,
    #[prost(uint32, tag = "2")]
    pub(crate) value: u32,
}

impl From<(u32, u32)> for NodePair {
    fn from((key, value): (u32, u32)) -> Self {
        Self { key, value }
    }
}

impl From<NodePair> for (u32, u32) {
    fn from(NodePair { key, value }: NodePair) -> Self {
        (key, value)
    }
}

/// The entries of a dict or the attributes of an object, in order; in JSON a list.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct NodePairs {
    #[prost(message, repeated, tag = "1")]
    pub(crate) pairs: Vec<NodePair>,
}

/// An integer that has more than 64 bits. Its magnitude is big-endian.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
pub(crate) struct BigInt {
    #[prost(bool, tag = "1")]
    pub(crate) negative: bool,
    #[prost(bytes = "vec", tag = "2")]
    #[serde(with = "json::bytes")]
    pub(crate) magnitude: Vec<u8>,
}

/// A complex number.
#[derive(Clone, Copy, PartialEq, Message, Serialize, Deserialize)]
pub(crate) struct Complex {
    #[prost(double, optional, tag = "1")]
    #[serde(with = "json::optional_float")]
    pub(crate) real: Option<f64>,
    #[prost(double, optional, tag = "2")]
    #[serde(with = "json::optional_float")]
    pub(crate) imag: Option<f64>,
}

/// A named tuple.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
pub(crate) struct NamedTuple {
    #[prost(string, tag = "1")]
    pub(crate) type_name: String,
    #[prost(string, repeated, tag = "2")]
    pub(crate) field_names: Vec<String>,
    #[prost(uint32, repeated, tag = "3")]
    pub(crate) values: Vec<u32>,
}

/// A date.
#[derive(Clone, Copy, PartialEq, Message, Serialize, Deserialize)]
pub(crate) struct Date {
    #[prost(int32, tag = "1")]
    pub(crate) year: i32,
    #[prost(uint32, tag = "2")]
    pub(crate) month: u32,
    #[prost(uint32, tag = "3")]
    pub(crate) day: u32,
}

/// A date with a time.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
pub(crate) struct DateTime {
    #[prost(int32, tag = "1")]
    pub(crate) year: i32,
    #[prost(uint32, tag = "2")]
    pub(crate) month: u32,
    #[prost(uint32, tag = "3")]
    pub(crate) day: u32,
    #[prost(uint32, tag = "4")]
    pub(crate) hour: u32,
    #[prost(uint32, tag = "5")]
    pub(crate) minute: u32,
    #[prost(uint32, tag = "6")]
    pub(crate) second: u32,
    #[prost(uint32, tag = "7")]
    pub(crate) microsecond: u32,
    #[prost(int32, optional, tag = "8")]
    pub(crate) offset_seconds: Option<i32>,
    #[prost(string, optional, tag = "9")]
    pub(crate) timezone_name: Option<String>,
}

/// A time of day.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
pub(crate) struct Time {
    #[prost(uint32, tag = "1")]
    pub(crate) hour: u32,
    #[prost(uint32, tag = "2")]
    pub(crate) minute: u32,
    #[prost(uint32, tag = "3")]
    pub(crate) second: u32,
    #[prost(uint32, tag = "4")]
    pub(crate) microsecond: u32,
    #[prost(int32, optional, tag = "5")]
    pub(crate) offset_seconds: Option<i32>,
    #[prost(string, optional, tag = "6")]
    pub(crate) timezone_name: Option<String>,
    #[prost(uint32, tag = "7")]
    pub(crate) fold: u32,
}

/// A duration.
#[derive(Clone, Copy, PartialEq, Message, Serialize, Deserialize)]
pub(crate) struct TimeDelta {
    #[prost(int32, tag = "1")]
    pub(crate) days: i32,
    #[prost(int32, tag = "2")]
    pub(crate) seconds: i32,
    #[prost(int32, tag = "3")]
    pub(crate) microseconds: i32,
}

/// A fixed offset from UTC.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
pub(crate) struct TimeZone {
    #[prost(int32, tag = "1")]
    pub(crate) offset_seconds: i32,
    #[prost(string, optional, tag = "2")]
    pub(crate) name: Option<String>,
}

/// An exception as a value.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
pub(crate) struct Exception {
    #[prost(string, tag = "1")]
    pub(crate) exc_type: String,
    #[prost(string, optional, tag = "2")]
    pub(crate) arg: Option<String>,
}

/// An open file of the parent's.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
pub(crate) struct FileHandle {
    #[prost(string, tag = "1")]
    pub(crate) path: String,
    #[prost(string, tag = "2")]
    pub(crate) mode: String,
    #[prost(uint64, tag = "3")]
    pub(crate) position: u64,
}

/// The identity of a class, an instance or a module: 16 bytes.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Uuid {
    #[prost(bytes = "vec", tag = "1")]
    #[serde(with = "json::bytes")]
    pub(crate) data: Vec<u8>,
}

/// A type. Its origin is 1 for a type of Python, 2 for a class of the code and 3 for one of the parent.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
pub(crate) struct Type {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) id: Option<Uuid>,
    #[prost(int32, tag = "3")]
    pub(crate) origin: i32,
    #[prost(bool, tag = "4")]
    pub(crate) is_dataclass: bool,
    #[prost(message, optional, tag = "5")]
    pub(crate) attrs: Option<NodePairs>,
}

/// An instance of a class of the code or of the parent.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
pub(crate) struct ClassInstance {
    #[prost(uint32, tag = "1")]
    pub(crate) class_type: u32,
    #[prost(message, optional, tag = "2")]
    pub(crate) instance_id: Option<Uuid>,
    #[prost(message, optional, tag = "3")]
    pub(crate) attrs: Option<NodePairs>,
}

/// A module of the parent.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
pub(crate) struct Module {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) id: Option<Uuid>,
    #[prost(message, optional, tag = "3")]
    pub(crate) attrs: Option<NodePairs>,
}

/// A function of the parent.
#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
pub(crate) struct Function {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, optional, tag = "2")]
    pub(crate) docstring: Option<String>,
}

//! Python values and functions that a caller and the code exchange.
//!
//! Values cross as JSON in the format of `guest/values.py` of `belljar-python`, which keeps Python's types. Large
//! contents, such as those of arrays, are buffers next to the JSON, which refers to them by their positions.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The module that the guest provides to code that can call tools.
pub const TOOLS_MODULE: &str = "tools";
/// The beginning of the names of the functions that this module calls. No function of a caller has such a name, which
/// is not an identifier.
pub const TOOL_OPERATIONS: &str = "tools:";

/// The parts of a request with which code exchanges Python values and calls with its caller.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Exchange {
    /// The variables to set before the code runs: a JSON object of encoded values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variables: Option<Box<RawValue>>,
    /// The buffers of the variables.
    #[serde(skip)]
    pub buffers: Vec<Buffer>,
    /// The functions of the host that the code can call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<HostFunction>,
    /// True if the caller can continue a snapshot of the code: it then provides the functions again, and reads the
    /// value.
    #[serde(skip)]
    pub is_resumable: bool,
}

/// A value of the code or of the host.
#[derive(Debug, Clone)]
pub struct EncodedValue {
    /// The encoded value.
    pub json: Box<RawValue>,
    /// The buffers that it refers to.
    pub buffers: Vec<Buffer>,
}

/// The contents of a large value, in parts, which clones share.
#[derive(Debug, Clone, Default)]
pub struct Buffer(Vec<Bytes>);

impl Buffer {
    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    /// Returns whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes as one part, which are copied only if there are several.
    pub fn contiguous(&self) -> Bytes {
        match self.0.as_slice() {
            [only] => only.clone(),
            parts => parts.concat().into(),
        }
    }

    /// Copies the bytes to `target`, which has their length.
    pub fn copy_to(&self, mut target: &mut [u8]) {
        for part in &self.0 {
            let Some((start, rest)) = target.split_at_mut_checked(part.len()) else { return };
            start.copy_from_slice(part);
            target = rest;
        }
    }
}

impl From<Bytes> for Buffer {
    fn from(bytes: Bytes) -> Self {
        Self(vec![bytes])
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Self {
        Self(vec![bytes.into()])
    }
}

impl From<Vec<Vec<u8>>> for Buffer {
    fn from(parts: Vec<Vec<u8>>) -> Self {
        Self(parts.into_iter().map(Into::into).collect())
    }
}

impl PartialEq for Buffer {
    fn eq(&self, other: &Self) -> bool {
        self.contiguous() == other.contiguous()
    }
}

impl Eq for Buffer {}

/// A function of the host, as code sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFunction {
    /// The name of the variable that contains the function.
    pub name: String,
    /// True if the code calls it without `await`, and waits for the result.
    #[serde(default)]
    pub blocking: bool,
    /// The docstring.
    #[serde(default)]
    pub doc: Option<String>,
    /// The parameters, in order.
    #[serde(default)]
    pub parameters: Vec<Parameter>,
    /// The annotation of the result, as Python source.
    #[serde(default)]
    pub returns: Option<String>,
}

/// A parameter of a [`HostFunction`], as `inspect.Parameter` has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameter {
    /// The name.
    pub name: String,
    /// The number of `inspect.Parameter.kind`: 0 for positional only, 1 for positional or keyword, 2 for `*args`, 3 for
    /// keyword only, 4 for `**kwargs`.
    pub kind: u8,
    /// The annotation, as Python source.
    #[serde(default)]
    pub annotation: Option<String>,
    /// The default, as Python source.
    #[serde(default)]
    pub default: Option<String>,
}

/// A call of a [`HostFunction`] by the code.
#[derive(Debug, Clone)]
pub struct FunctionCall {
    /// The number of the call in its run.
    pub id: u64,
    /// The function's name, which the code can choose freely.
    pub name: String,
    /// The list of positional arguments and the object of keyword arguments, in an encoded list.
    pub arguments: EncodedValue,
}

impl FunctionCall {
    /// Returns whether the call can have an effect outside of the code: not if it asks for names or descriptions of
    /// tools.
    pub fn may_have_effects(&self) -> bool {
        self.name.strip_prefix(TOOL_OPERATIONS).is_none_or(|operation| operation == "call")
    }
}

/// The reply to a [`FunctionCall`].
#[derive(Debug, Clone)]
pub struct FunctionReply {
    /// The call's number.
    pub id: u64,
    /// The result of the function.
    pub result: Result<EncodedValue, FunctionError>,
}

/// An exception that a function of the host raised.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{name}: {message}")]
pub struct FunctionError {
    /// The name of the exception's class.
    pub name: String,
    /// The exception's text.
    pub message: String,
}

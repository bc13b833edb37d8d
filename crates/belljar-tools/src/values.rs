//! Results of tools as values for code, in the encoding of `belljar_core::exchange`.
//!
//! A reply is an object: `one` with a part, or `many` with a list of parts. A part is an object with one key: `value`
//! (an encoded value), `file` (bytes, with `mime`), or `link`.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use belljar_core::{Buffer, EncodedValue};
use serde::{Serialize, Serializer};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use crate::error::ToolFailure;

/// A part of a result.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Part {
    /// Structured content, or text, which is parsed if it is a JSON object or array.
    Json(Value),
    /// Bytes with their media type.
    Binary { data: Vec<u8>, media_type: String },
    /// A resource of the server.
    Link(Link),
}

/// A resource that code can read.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Link {
    pub(crate) uri: String,
    pub(crate) name: String,
    pub(crate) title: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) mime_type: Option<String>,
    pub(crate) size: Option<u64>,
}

/// The result of a call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ToolValue {
    Single(Part),
    List(Vec<Part>),
}

impl From<Vec<Part>> for ToolValue {
    /// A single part is the value itself.
    fn from(mut parts: Vec<Part>) -> Self {
        match parts.pop() {
            Some(only) if parts.is_empty() => Self::Single(only),
            last => {
                parts.extend(last);
                Self::List(parts)
            }
        }
    }
}

/// Parses text that starts like a JSON object or array; other text stays text.
pub(crate) fn parse_text(text: String) -> Part {
    if text.starts_with(['[', '{'])
        && let Ok(value) = serde_json::from_str(&text)
    {
        return Part::Json(value);
    }
    Part::Json(Value::String(text))
}

/// Returns the part of base64 text. Line ends and other characters outside of the alphabet are ignored.
///
/// # Errors
/// Returns an error if the rest is not base64.
pub(crate) fn binary(text: &str, media_type: String) -> Result<Part, ToolFailure> {
    const LENIENT: GeneralPurpose = GeneralPurpose::new(
        &STANDARD,
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
    );
    let data = LENIENT.decode(text).or_else(|_| {
        let clean: Vec<u8> =
            text.bytes().filter(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(byte)).collect();
        LENIENT.decode(clean)
    });
    let data = data.map_err(|error| ToolFailure::Failed(format!("the server sent invalid base64: {error}")))?;
    Ok(Part::Binary { data, media_type })
}

/// A JSON value in the encoding, in which keys that begin with `$` are special.
struct Encoded<'a>(&'a Value);

impl Serialize for Encoded<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Array(items) => serializer.collect_seq(items.iter().map(Encoded)),
            Value::Object(fields) if fields.keys().any(|name| name.starts_with('$')) => {
                let pairs: Vec<(&String, Encoded<'_>)> =
                    fields.iter().map(|(name, value)| (name, Encoded(value))).collect();
                serializer.collect_map([("$dict", pairs)])
            }
            Value::Object(fields) => serializer.collect_map(fields.iter().map(|(name, value)| (name, Encoded(value)))),
            other => other.serialize(serializer),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Reply<'a> {
    One(EncodedPart<'a>),
    Many(Vec<EncodedPart<'a>>),
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase", untagged)]
enum EncodedPart<'a> {
    Value { value: Encoded<'a> },
    File { file: Value, mime: &'a str },
    Link { link: &'a Link },
}

/// Encodes a result.
///
/// # Errors
/// Returns an error if it cannot be written as JSON.
pub(crate) fn encode(value: ToolValue) -> Result<EncodedValue, ToolFailure> {
    let mut buffers: Vec<Buffer> = Vec::new();
    let mut parts = match &value {
        ToolValue::Single(part) => std::slice::from_ref(part),
        ToolValue::List(parts) => parts.as_slice(),
    }
    .iter()
    .map(|part| match part {
        Part::Json(value) => EncodedPart::Value { value: Encoded(value) },
        Part::Binary { data, media_type } => {
            buffers.push(data.clone().into());
            EncodedPart::File { file: json!({"$bytes": buffers.len() - 1}), mime: media_type }
        }
        Part::Link(link) => EncodedPart::Link { link },
    });
    let reply = match (&value, parts.next()) {
        (ToolValue::Single(_), Some(part)) => Reply::One(part),
        (_, first) => Reply::Many(first.into_iter().chain(parts).collect()),
    };
    let json = to_raw_value(&reply).map_err(|error| ToolFailure::Failed(error.to_string()))?;
    drop(reply);
    Ok(EncodedValue { json, buffers })
}

/// Encodes plain data that contains no keys with a special meaning.
///
/// # Errors
/// The same as those of [`encode`].
pub(crate) fn encode_plain(value: &impl Serialize) -> Result<EncodedValue, ToolFailure> {
    let json = to_raw_value(value).map_err(|error| ToolFailure::Failed(error.to_string()))?;
    Ok(EncodedValue { json, buffers: Vec::new() })
}

/// Returns the size of an encoded value, in bytes.
pub(crate) fn size(value: &EncodedValue) -> u64 {
    (value.json.get().len() + value.buffers.iter().map(Buffer::len).sum::<usize>()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(value: ToolValue) -> Value {
        serde_json::from_str(encode(value).unwrap().json.get()).unwrap()
    }

    #[test]
    fn keys_with_a_meaning_are_escaped() {
        let value = json!([{"$ref": {"a": {"$bytes": 1}}, "b": 2}]);
        assert_eq!(
            encoded(ToolValue::Single(Part::Json(value))),
            json!({"one": {"value": [{"$dict": [["$ref", {"a": {"$dict": [["$bytes", 1]]}}], ["b", 2]]}]}})
        );
    }

    #[test]
    fn binary_contents_are_buffers() {
        let part = binary("AQ\nID", "image/png".into()).unwrap();
        let reply = encode(ToolValue::from(vec![parse_text("[1".into()), part])).unwrap();
        assert_eq!(reply.buffers, [Buffer::from(vec![1_u8, 2, 3])]);
        assert_eq!(reply.json.get(), r#"{"many":[{"value":"[1"},{"file":{"$bytes":0},"mime":"image/png"}]}"#);
        assert_eq!(encoded(ToolValue::from(Vec::new())), json!({"many": []}));
        assert!(binary("A", String::new()).is_err());
    }
}

//! The output of tools in the shapes that agents use.

mod conversion;

use base64::Engine;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(crate) use conversion::{
    InvalidBase64, MappedResult, Part, decode, failure_message, from_content, map_resource, map_result, unwrap_single,
};

/// The output of a tool or the contents of a resource.
///
/// ```
/// use belljar_mcp_client::ToolOutput;
/// use serde_json::json;
///
/// let output = ToolOutput::List(vec![ToolOutput::Text("two rows".into()), ToolOutput::Json(json!([1, 2]))]);
/// assert_eq!(output.to_text(), "two rows\n[1,2]");
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolOutput {
    /// Text that is not JSON.
    Text(String),
    /// Structured content, or text that is a JSON object or array.
    Json(Value),
    /// An image, a sound, or another file.
    Binary(Binary),
    /// Several parts, or none.
    List(Vec<ToolOutput>),
}

/// Bytes and their media type.
///
/// ```
/// use belljar_mcp_client::Binary;
///
/// let image = Binary::new(vec![0x89, b'P', b'N', b'G'], "image/png");
/// assert!(image.is_image());
/// assert_eq!(image.data_url(), "data:image/png;base64,iVBORw==");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Binary {
    /// The bytes themselves: in JSON, base64.
    #[serde(with = "base64_text")]
    pub data: Bytes,
    /// The media type, such as `image/png`; `application/octet-stream` if the server did not specify one.
    pub media_type: String,
}

impl Binary {
    /// Creates binary data of a media type.
    ///
    /// ```
    /// # use belljar_mcp_client::Binary;
    /// assert_eq!(Binary::new(vec![1, 2, 3], "image/png").data.len(), 3);
    /// ```
    pub fn new(data: impl Into<Bytes>, media_type: impl Into<String>) -> Self {
        Self { data: data.into(), media_type: media_type.into() }
    }

    /// Returns whether the media type is that of an image.
    ///
    /// ```
    /// # use belljar_mcp_client::Binary;
    /// assert!(Binary::new(vec![], "image/png").is_image());
    /// ```
    pub fn is_image(&self) -> bool {
        self.media_type.starts_with("image/")
    }

    /// Returns whether the media type is that of audio.
    ///
    /// ```
    /// # use belljar_mcp_client::Binary;
    /// assert!(Binary::new(vec![], "audio/wav").is_audio());
    /// ```
    pub fn is_audio(&self) -> bool {
        self.media_type.starts_with("audio/")
    }

    /// Returns the bytes in base64.
    ///
    /// ```
    /// # use belljar_mcp_client::Binary;
    /// assert_eq!(Binary::new(vec![1, 2, 3], "image/png").base64(), "AQID");
    /// ```
    pub fn base64(&self) -> String {
        base64::engine::general_purpose::STANDARD.encode(&self.data)
    }

    /// Returns a `data:` URL, the form in which the APIs of language models accept images.
    ///
    /// ```
    /// # use belljar_mcp_client::Binary;
    /// let image = Binary::new(vec![1, 2, 3], "image/png");
    /// assert_eq!(image.data_url(), "data:image/png;base64,AQID");
    /// ```
    pub fn data_url(&self) -> String {
        format!("data:{};base64,{}", self.media_type, self.base64())
    }
}

impl ToolOutput {
    /// Returns the text, if this is text.
    ///
    /// ```
    /// # use belljar_mcp_client::ToolOutput;
    /// assert_eq!(ToolOutput::Text("hi".into()).as_text(), Some("hi"));
    /// ```
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the JSON value, if this is JSON.
    ///
    /// ```
    /// # use belljar_mcp_client::ToolOutput;
    /// assert_eq!(ToolOutput::Json(1.into()).as_json(), Some(&1.into()));
    /// ```
    pub fn as_json(&self) -> Option<&Value> {
        match self {
            Self::Json(value) => Some(value),
            _ => None,
        }
    }

    /// Converts the output to a type of the program. Text is parsed as JSON; if that fails, it is a string.
    ///
    /// ```
    /// use belljar_mcp_client::ToolOutput;
    /// use serde::Deserialize;
    /// use serde_json::json;
    ///
    /// #[derive(Deserialize)]
    /// struct Weather {
    ///     city: String,
    ///     degrees: f64,
    /// }
    ///
    /// let weather: Weather = ToolOutput::Json(json!({"city": "Oslo", "degrees": -3.5})).into_typed().unwrap();
    /// assert_eq!((weather.city.as_str(), weather.degrees), ("Oslo", -3.5));
    /// assert_eq!(ToolOutput::Text("42".into()).into_typed::<u32>().unwrap(), 42);
    /// assert_eq!(ToolOutput::Text("hi".into()).into_typed::<String>().unwrap(), "hi");
    /// ```
    ///
    /// # Errors
    ///
    /// The output does not match the type. Binary data has the fields of [`Binary`].
    pub fn into_typed<T: DeserializeOwned>(self) -> Result<T, serde_json::Error> {
        match self {
            Self::Text(text) => match serde_json::from_str(&text) {
                Ok(value) => Ok(value),
                Err(error) => serde_json::from_value(Value::String(text)).map_err(|_| error),
            },
            other => serde_json::from_value(other.into_value()?),
        }
    }

    fn into_value(self) -> Result<Value, serde_json::Error> {
        Ok(match self {
            Self::Text(text) => Value::String(text),
            Self::Json(value) => value,
            Self::Binary(binary) => serde_json::to_value(binary)?,
            Self::List(parts) => {
                Value::Array(parts.into_iter().map(Self::into_value).collect::<Result<_, serde_json::Error>>()?)
            }
        })
    }

    /// Returns every binary part, at any depth, in order.
    ///
    /// ```
    /// use belljar_mcp_client::{Binary, ToolOutput};
    ///
    /// let image = Binary::new(vec![1], "image/png");
    /// let output = ToolOutput::List(vec![ToolOutput::Text("plot".into()), ToolOutput::Binary(image.clone())]);
    /// assert_eq!(output.binaries(), [&image]);
    /// ```
    pub fn binaries(&self) -> Vec<&Binary> {
        match self {
            Self::Binary(binary) => vec![binary],
            Self::List(parts) => parts.iter().flat_map(Self::binaries).collect(),
            Self::Text(_) | Self::Json(_) => Vec::new(),
        }
    }

    /// Returns one text for a model that accepts only text: JSON on one line, parts on separate lines, and for each
    /// binary part a note with its type and size.
    ///
    /// ```
    /// # use belljar_mcp_client::{Binary, ToolOutput};
    /// let image = ToolOutput::Binary(Binary::new(vec![1, 2, 3], "image/png"));
    /// assert_eq!(image.to_text(), "[image/png, 3 bytes]");
    /// ```
    pub fn to_text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Json(value) => value.to_string(),
            Self::Binary(binary) => format!("[{}, {} bytes]", binary.media_type, binary.data.len()),
            Self::List(parts) => parts.iter().map(Self::to_text).collect::<Vec<_>>().join("\n"),
        }
    }
}

/// The bytes of binary data as base64 in JSON.
mod base64_text {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use bytes::Bytes;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(data: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(data))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        STANDARD.decode(text.as_bytes()).map(Bytes::from).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn output_survives_json() {
        let image = Binary::new(vec![1, 2, 255], "image/png");
        let output = ToolOutput::List(vec![
            ToolOutput::Text("a".into()),
            ToolOutput::Json(json!({"z": 1, "a": [null]})),
            ToolOutput::Binary(image),
        ]);
        let stored = serde_json::to_string(&output).unwrap();
        assert!(stored.contains(r#"{"binary":{"data":"AQL/","media_type":"image/png"}}"#), "{stored}");
        assert_eq!(serde_json::from_str::<ToolOutput>(&stored).unwrap(), output);
        // A reader does not allow borrowing from the input.
        assert_eq!(serde_json::from_reader::<_, ToolOutput>(stored.as_bytes()).unwrap(), output);
        serde_json::from_str::<Binary>(r#"{"data": "no base64!", "media_type": ""}"#).unwrap_err();
    }
}

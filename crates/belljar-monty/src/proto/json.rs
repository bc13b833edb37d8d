//! Values that JSON does not have: bytes are base64, and floats that are not finite are texts.

/// Bytes.
pub(super) mod bytes {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map_err(D::Error::custom)
    }
}

/// A float.
pub(super) mod float {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    pub(super) enum Float {
        Number(f64),
        Text(String),
    }

    impl From<f64> for Float {
        fn from(value: f64) -> Self {
            match value {
                value if value.is_finite() => Self::Number(value),
                value if value.is_nan() => Self::Text("nan".into()),
                value => Self::Text(if value > 0.0 { "inf" } else { "-inf" }.into()),
            }
        }
    }

    impl Float {
        pub(super) fn value(&self) -> Option<f64> {
            match self {
                Self::Number(value) => Some(*value),
                Self::Text(text) => match text.as_str() {
                    "nan" => Some(f64::NAN),
                    "inf" => Some(f64::INFINITY),
                    "-inf" => Some(f64::NEG_INFINITY),
                    _ => None,
                },
            }
        }
    }

    pub(crate) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        Float::from(*value).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        let float = Float::deserialize(deserializer)?;
        float.value().ok_or_else(|| D::Error::custom("not a float"))
    }
}

/// A part of a complex number.
pub(super) mod optional_float {
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer, de::Error as _};

    use super::float::Float;

    pub(crate) fn serialize<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
        value.map(Float::from).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
        let Some(float) = Option::<Float>::deserialize(deserializer)? else { return Ok(None) };
        float.value().map(Some).ok_or_else(|| D::Error::custom("not a float"))
    }
}

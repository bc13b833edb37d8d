//! JSON from a guest. Two bytes of text per value become thirty bytes per value in memory, so values are counted before
//! they are parsed.

use serde::de::DeserializeOwned;

/// The most values in one text.
const MAX_VALUES: usize = 2_000_000;

/// Parses `text`. Returns `None` when it is not JSON of that type, or has more than two million values.
pub fn parse<T: DeserializeOwned>(text: &str) -> Option<T> {
    // A text has at most as many values as bytes.
    if text.len() > MAX_VALUES && values(text) > MAX_VALUES {
        return None;
    }
    serde_json::from_str(text).ok()
}

/// Returns an upper bound on the number of values in a JSON text.
fn values(json: &str) -> usize {
    let (mut count, mut in_string, mut escaped) = (1, false, false);
    for byte in json.bytes() {
        if in_string {
            in_string = escaped || byte != b'"';
            escaped = !escaped && byte == b'\\';
        } else {
            in_string = byte == b'"';
            count += usize::from(matches!(byte, b',' | b'[' | b'{'));
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{MAX_VALUES, parse};

    #[test]
    fn a_text_of_millions_of_values_is_refused_and_a_long_string_is_not() {
        assert_eq!(parse::<Value>(&format!("[{}0]", "0,".repeat(MAX_VALUES + 1))), None);
        assert!(parse::<Value>(&format!("[\"{}\"]", ",\\\"[".repeat(MAX_VALUES))).is_some());
    }
}

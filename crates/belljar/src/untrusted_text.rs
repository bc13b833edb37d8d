//! Text from untrusted code, packages and servers, as it is shown on a terminal.

use std::borrow::Cow;

use unicode_general_category::{GeneralCategory, get_general_category};

/// Returns whether a character of untrusted text is shown. Not shown are those that a terminal might interpret, or that
/// change the order and the lines of what is shown: control characters, line and paragraph separators, and format
/// characters but the joiners of scripts and emoji.
pub(crate) fn is_shown(character: char) -> bool {
    if character.is_ascii() {
        return !character.is_ascii_control() || matches!(character, '\n' | '\t');
    }
    match get_general_category(character) {
        GeneralCategory::Format => matches!(character, '\u{200c}' | '\u{200d}'),
        GeneralCategory::Control | GeneralCategory::LineSeparator | GeneralCategory::ParagraphSeparator => false,
        _ => true,
    }
}

/// Returns untrusted text without the characters that are not shown.
pub(crate) fn strip_control_chars(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_shown) {
        text.into()
    } else {
        text.chars().filter(|&character| is_shown(character)).collect()
    }
}

/// Returns JSON text with escape sequences of JSON in place of the characters that are not shown: the same value.
pub(crate) fn escape_in_json(json: &str) -> Cow<'_, str> {
    if json.chars().all(is_shown) {
        return json.into();
    }
    let mut escaped = String::with_capacity(json.len());
    for character in json.chars() {
        if is_shown(character) || character == '\r' {
            escaped.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            escaped.push_str(&format!("\\u{unit:04x}"));
        }
    }
    escaped.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_a_terminal_interprets_are_left_out() {
        let text = "a\x1b[2J\u{9b}31m\u{202e}b\u{2028}\x07\r\n\t👩\u{200d}🔬é\u{e0041}";
        assert_eq!(strip_control_chars(text), "a[2J31mb\n\t👩\u{200d}🔬é");
        assert!(matches!(strip_control_chars("plain é"), Cow::Borrowed(_)));
    }

    #[test]
    fn escaped_json_has_the_same_value() {
        let value = serde_json::json!(["\u{9b}31m\u{202e}\u{7f}", "\u{e0041}é", {"\u{2028}": "\x1b\n"}]);
        for json in [serde_json::to_string(&value).unwrap(), serde_json::to_string_pretty(&value).unwrap()] {
            let escaped = escape_in_json(&json);
            assert!(escaped.chars().all(is_shown), "{escaped:?}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&escaped).unwrap(), value);
        }
    }
}

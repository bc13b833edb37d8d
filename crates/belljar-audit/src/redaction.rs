//! Removes what looks like a secret from texts. Secrets that the server itself knows are removed before, by its own
//! function: see [`AuditOptions::scrub`](crate::AuditOptions).

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::{Regex, RegexBuilder};

/// The text in the place of a secret.
const REDACTED: &str = "[redacted]";

/// The names of arguments, variables and headers whose values are secrets, as a part of the name.
const SECRET_NAMES: &str = "passw(?:or)?d|passphrase|secret|token|api[-_]?key|apikey|access[-_]?key|private[-_]?key|authorization|cookie|credential";

/// The patterns. Their first group stays. Keys and tokens may contain asterisks, which are in the place of the server's
/// own secrets: the rest of a key of which one is a part is removed, too.
static PATTERNS: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    let patterns = [
        // A value in quotes after such a name: JSON (also within a string), Python, a dictionary. It may be cut.
        format!(r#"([\w.-]*(?:{SECRET_NAMES})[\w.-]*\\*["']?\s*[:=]\s*[bBrRfFuU]?\\*)(?:"(?:[^"\\]|\\.)*(?:"|$)|'(?:[^'\\]|\\.)*(?:'|$))"#),
        // A value without quotes: a query, a header, a form. Code has expressions there, which are not secrets.
        format!(r#"((?:^|[?&;\s"'])[\w.-]*(?:{SECRET_NAMES})[\w.-]*=)[^&\s"'()\[\]{{}},;]+"#),
        // Credentials of HTTP.
        r"(\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=*-]{8,}".to_owned(),
        // A user's password in an address.
        r"([a-z][a-z0-9+.-]*://[^\s/:@]*:)[^\s/@]+(?:@)".to_owned(),
        // Keys of well-known services, and signed tokens.
        r"()\b(?:sk-|rk_live_|sk_live_|ghp_|gho_|ghs_|ghu_|github_pat_|glpat-|xox[abprs]-|AKIA|ASIA|AIza|hf_|npm_|pypi-)[A-Za-z0-9_*-]{8,}"
            .to_owned(),
        r"()\beyJ[A-Za-z0-9_*-]{8,}\.[A-Za-z0-9_*-]{4,}(?:\.[A-Za-z0-9_*-]*)?".to_owned(),
        r"(-----BEGIN [A-Z ]*PRIVATE KEY-----)(?s:.*?)(?:-----END|$)".to_owned(),
    ];
    let compiled = patterns.iter().map(|pattern| RegexBuilder::new(pattern).case_insensitive(true).build());
    compiled.filter_map(Result::ok).collect()
});

/// Returns the text without what looks like a secret.
pub(crate) fn redact(text: &str) -> String {
    let mut text = Cow::Borrowed(text);
    for pattern in PATTERNS.iter() {
        if let Cow::Owned(replaced) = pattern.replace_all(&text, format!("${{1}}{REDACTED}")) {
            text = Cow::Owned(replaced);
        }
    }
    text.into_owned()
}

/// Returns the beginning of a text of more than `max` characters.
pub(crate) fn shorten(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn all_patterns_are_valid() {
        assert_eq!(PATTERNS.len(), 7);
    }

    #[test]
    fn secrets_are_removed_and_the_rest_stays() {
        for (given, expected) in [
            (r#"{"user": "ann", "password": "p4ss"}"#, r#"{"user": "ann", "password": [redacted]}"#),
            (r#"{"password": "cut off he"#, r#"{"password": [redacted]"#),
            // Nested JSON: more is removed, rather than less.
            (r#"{"a": "{\"api_key\": \"k1\"}"}"#, r#"{"a": "{\"api_key\": \[redacted]}"#),
            (r#"{"OPENAI_API_KEY": "a\"b"}"#, r#"{"OPENAI_API_KEY": [redacted]}"#),
            (
                "requests.get(u, headers={'Authorization': 'Bearer abcdefgh12'})",
                "requests.get(u, headers={'Authorization': [redacted]})",
            ),
            ("/v1/items?page=2&access_token=s3cret&x=1", "/v1/items?page=2&access_token=[redacted]&x=1"),
            ("Authorization: Bearer abcdef.123456", "Authorization: Bearer [redacted]"),
            ("postgres://ann:hunter2@db.example/x", "postgres://ann:[redacted]db.example/x"),
            ("key = 'sk-abcdefgh1234'", "key = '[redacted]'"),
            ("eyJhbGciOiJIUzI1.eyJzdWIiOiIx.abc", "[redacted]"),
            // A secret of the server is a part of these.
            ("key = 'sk-12****345678'", "key = '[redacted]'"),
            ("Bearer ab****.123456", "Bearer [redacted]"),
            ("eyJhbGciO****UzI1.****zdWIiOiIx.abc", "[redacted]"),
            (r#"{"token": "a****b"}"#, r#"{"token": [redacted]}"#),
            ("tokens = tokenize(text)", "tokens = tokenize(text)"),
            ("token = next(stream)", "token = next(stream)"),
            ("max_tokens=500", "max_tokens=[redacted]"),
            ("print('hello')", "print('hello')"),
        ] {
            assert_eq!(redact(given), expected, "{given}");
        }
    }

    #[test]
    fn private_keys_are_removed() {
        let text = "x = '''-----BEGIN RSA PRIVATE KEY-----\nabc\ndef\n-----END RSA PRIVATE KEY-----'''";
        let redacted = redact(text);
        assert!(!redacted.contains("abc") && redacted.contains("BEGIN RSA"), "{redacted}");
    }

    #[test]
    fn long_texts_are_shortened_between_characters() {
        assert_eq!(shorten("äöü", 2), "äö…");
        assert_eq!(shorten("äöü", 3), "äöü");
        assert_eq!(shorten("", 0), "");
        let first = shorten(&"x".repeat(10), 5);
        assert_eq!(first.chars().next().unwrap(), 'x');
    }
}

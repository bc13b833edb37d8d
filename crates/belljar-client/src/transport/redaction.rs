//! URLs without their secrets, for errors and labels: without credentials, query and fragment.

use url::Url;

/// The mark of a removed query.
const REMOVED_QUERY: &str = "?…";

/// Formats a URL without its secrets.
pub(crate) fn url(url: &Url) -> String {
    let mut redacted = url.clone();
    // Neither call can fail for a URL with a host; others do not have credentials.
    let _ = redacted.set_password(None);
    let _ = redacted.set_username("");
    redacted.set_query(None);
    redacted.set_fragment(None);
    let mark = if url.query().is_some() { REMOVED_QUERY } else { "" };
    format!("{redacted}{mark}")
}

/// Formats text that may not be a valid URL without what would be its secrets.
pub(crate) fn invalid_url(text: &str) -> String {
    if let Ok(parsed) = Url::parse(text)
        && parsed.has_host()
    {
        return url(&parsed);
    }
    let (rest, mark) = match text.find(['?', '#']) {
        Some(end) => (&text[..end], REMOVED_QUERY),
        None => (text, ""),
    };
    let (scheme, rest) = rest.split_once("://").map_or(("", rest), |(scheme, rest)| (scheme, rest));
    let separator = if scheme.is_empty() { "" } else { "://" };
    // An unencoded password may contain slashes, so that the last `@` ends the credentials.
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    format!("{scheme}{separator}{rest}{mark}")
}

/// Removes the secrets of every URL in a text, such as the error message of an HTTP client.
pub(crate) fn urls_in(text: &str) -> String {
    let mut redacted = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(separator) = rest.find("://") {
        let is_scheme = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
        let start = rest[..separator].trim_end_matches(is_scheme).len();
        let found = &rest[start..];
        // These characters do not occur in a serialized URL. Brackets and punctuation do, but at the end they belong
        // to the text.
        let end = found.find(|c: char| c.is_whitespace() || matches!(c, '"' | '<' | '>' | '`')).unwrap_or(found.len());
        let found = found[..end].trim_end_matches([')', ']', '}', '\'', ',', '.', ';', ':']);
        redacted.push_str(&rest[..start]);
        if found.contains(['?', '#', '@']) {
            redacted.push_str(&invalid_url(found));
        } else {
            redacted.push_str(found);
        }
        rest = &rest[start + found.len()..];
    }
    redacted.push_str(rest);
    redacted
}

#[cfg(test)]
mod tests {
    use super::{invalid_url, urls_in};

    #[test]
    fn secrets_of_urls_are_removed_from_text() {
        let cases = [
            (
                "error sending request for url (http://ada:hunter2@h:1/mcp?key=se)cret): refused",
                "error sending request for url (http://h:1/mcp?…): refused",
            ),
            (
                "HTTPS://h/a, \"https://h/b?x=1\" and http://[::1]:2/c.",
                "HTTPS://h/a, \"https://h/b?…\" and http://[::1]:2/c.",
            ),
            ("see http://h/#token=1", "see http://h/"),
            ("no URL: a://, ://", "no URL: a://, ://"),
            ("nothing", "nothing"),
        ];
        for (text, expected) in cases {
            assert_eq!(urls_in(text), expected);
        }
    }

    #[test]
    fn invalid_urls_lose_their_secrets_too() {
        assert_eq!(invalid_url("http://ada:hun/ter@h:x/mcp?key=secret"), "http://h:x/mcp?…");
        assert_eq!(invalid_url("example.org/mcp?key=secret"), "example.org/mcp?…");
        assert_eq!(invalid_url("ftp://ada:hunter2@example.org"), "ftp://example.org/");
        assert_eq!(invalid_url("relative"), "relative");
    }
}

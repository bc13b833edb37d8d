//! The path of a request as rules compare it: decoded, and refused where servers read it in different ways.

use percent_encoding::percent_decode_str;

/// Characters that become `.`, `/`, `\` or `%` where a server maps text to compatible or similar characters: full-width
/// forms, leaders and ellipses, the fraction and division slashes, the set minus.
const LOOKALIKES: [char; 10] = [
    '\u{ff0e}', '\u{ff0f}', '\u{ff3c}', '\u{ff05}', '\u{2024}', '\u{2025}', '\u{2026}', '\u{2044}', '\u{2215}',
    '\u{2216}',
];

/// Returns whether each `%` is followed by two hexadecimal digits.
pub(crate) fn has_whole_escapes(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_whole = |digits: &[u8]| digits.iter().all(u8::is_ascii_hexdigit);
    text.match_indices('%').all(|(index, _)| bytes.get(index + 1..index + 3).is_some_and(is_whole))
}

/// Returns the decoded path, without the query.
///
/// # Errors
/// Returns the reason if servers and rules could read the path in different ways: segments of dots, encoded or not,
/// encoded slashes, a second layer of encoding, and characters that are not text.
pub(crate) fn decoded_path(path: &str) -> Result<String, &'static str> {
    if !has_whole_escapes(path) {
        return Err("an incomplete `%`");
    }
    let lower = path.to_ascii_lowercase();
    if lower.contains("%2f") || lower.contains("%5c") || lower.contains('\\') {
        return Err("an encoded slash or a backslash");
    }
    let decoded = percent_decode_str(path).decode_utf8().map_err(|_| "bytes that are not UTF-8")?;
    if decoded.chars().any(char::is_control) {
        return Err("control characters");
    }
    let lower = decoded.to_ascii_lowercase();
    if ["%2e", "%2f", "%5c", "%25"].iter().any(|escape| lower.contains(escape)) {
        return Err("text that is encoded twice");
    }
    if decoded.contains(LOOKALIKES) {
        return Err("a character that some servers read as a dot, a slash or `%`");
    }
    // Some servers cut parameters off before they interpret dots: `/..;x/`. Windows ignores spaces and dots at the end
    // of a name.
    let is_dots = |segment: &str| {
        let name = segment.split(';').next().unwrap_or_default();
        !name.is_empty() && name.chars().all(|c| c == '.' || c.is_whitespace())
    };
    if decoded.split('/').any(is_dots) {
        return Err("a segment of dots");
    }
    if decoded.contains("//") {
        return Err("an empty segment");
    }
    Ok(decoded.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_decoded() {
        for (path, decoded) in
            [("/", "/"), ("/a%20b", "/a b"), ("/%72epos/x", "/repos/x"), ("/a...b/.well-known", "/a...b/.well-known")]
        {
            assert_eq!(decoded_path(path).unwrap(), decoded);
        }
    }

    #[test]
    fn ambiguous_paths_are_refused() {
        for path in [
            "/a/../b",
            "/a/..",
            "/./a",
            "/a/%2e%2e/b",
            "/a/.%2E/b",
            "/a/..%2fb",
            "/a%2Fb",
            "/a%5cb",
            "/a\\b",
            "/a/..;/b",
            "/a/%2e%2e;x/b",
            "/%252e%252e/b",
            "/a%252fb",
            "/%25%32%65",
            "/a%00b",
            "/a%0ab",
            "/%ff",
            "/a%2",
            "/a%zz",
            "/a%u002e",
            "/a/.../b",
            "/a/..%20/b",
            "/a/.%20./b",
            "/a/%20/b",
            "/a/%ef%bc%8e%ef%bc%8e/b",
            "/a%ef%bc%8fb",
            "/a%e2%88%95b",
            "/a/%e2%80%a5/b",
            "/a/%c0%ae%c0%ae/b",
            "/a//b",
            "//a",
        ] {
            assert!(decoded_path(path).is_err(), "{path}");
        }
    }
}

//! The path of a request as rules compare it: decoded, and refused where servers read it in different ways.

use percent_encoding::percent_decode_str;

/// Returns the decoded path, without the query.
///
/// # Errors
/// Returns the reason if servers and rules could read the path in different ways: segments of dots, encoded or not,
/// encoded slashes, a second layer of encoding, and characters that are not text.
pub(crate) fn decoded_path(path: &str) -> Result<String, &'static str> {
    let bytes = path.as_bytes();
    for (index, _) in path.match_indices('%') {
        let digits = bytes.get(index + 1..index + 3).ok_or("an incomplete `%`")?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err("an incomplete `%`");
        }
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
    // Some servers cut parameters off before they interpret dots: `/..;x/`.
    let is_dots = |segment: &str| matches!(segment.split(';').next(), Some("." | ".."));
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
            "/a//b",
            "//a",
        ] {
            assert!(decoded_path(path).is_err(), "{path}");
        }
    }
}

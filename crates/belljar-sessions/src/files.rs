//! Addresses and MIME types of a session's files. Clients are untrusted: an address refers to a file of the session
//! that it names, or is refused.

use belljar_core::files::{FileError, Range, check_path, truncate_for_message};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

use crate::id::SessionId;

/// The scheme of a file address.
const SCHEME: &str = "kernel://";
/// The characters that an address contains as `%XX`: those with a meaning in URIs, and all but printable ASCII.
const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'`')
    .add(b'{')
    .add(b'}')
    .add(b'\\');

/// The address of a file: `kernel://SESSION/PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileAddress {
    /// The session.
    pub session: SessionId,
    /// The path relative to the session's directory.
    pub path: String,
    /// The part of the file that is addressed.
    pub range: Range,
}

impl FileAddress {
    /// Parses an address. Escapes are decoded once, before the path is checked.
    ///
    /// # Errors
    /// Fails if `uri` is not a valid address.
    pub fn parse(uri: &str) -> Result<Self, FileError> {
        let wrong = || FileError::Name(truncate_for_message(uri));
        let rest = uri.strip_prefix(SCHEME).ok_or_else(wrong)?;
        let (session, rest) = rest.split_once('/').ok_or_else(wrong)?;
        let session = SessionId::parse(session).ok_or_else(wrong)?;
        let (path, query) = rest.split_once('?').map_or((rest, ""), |(path, query)| (path, query));
        let path = percent_decode_str(path).decode_utf8().map_err(|_| wrong())?.into_owned();
        check_path(&path)?;
        let mut range = Range::default();
        for (name, value) in query.split('&').filter_map(|part| part.split_once('=')) {
            let value = value.parse().map_err(|_| wrong())?;
            match name {
                "offset" => range.offset = value,
                "length" => range.length = Some(value),
                _ => return Err(wrong()),
            }
        }
        Ok(Self { session, path, range })
    }

    /// Returns the address of a file.
    pub fn format(session: &SessionId, path: &str) -> String {
        format!("{SCHEME}{}/{}", session.as_str(), utf8_percent_encode(path, ESCAPED))
    }
}

/// Checks that the name of an uploaded file is a plain name, without directories.
pub(crate) fn check_plain_name(name: &str) -> Result<(), FileError> {
    if name.contains('/') { Err(FileError::Name(truncate_for_message(name))) } else { check_path(name) }
}

/// Returns the MIME type of a file, determined by its name.
pub fn mime_of(path: &str) -> String {
    let extension = path.rsplit('/').next().and_then(|name| name.rsplit_once('.')).map(|(_, extension)| extension);
    match extension.map(str::to_ascii_lowercase).as_deref() {
        // Types that `mime_guess` lacks, or for which it has a less common name.
        Some("ipynb") => "application/x-ipynb+json".into(),
        Some("parquet") => "application/vnd.apache.parquet".into(),
        Some("py") => "text/x-python".into(),
        Some("pkl" | "pickle" | "npy" | "npz") => "application/octet-stream".into(),
        Some("log" | "txt") => "text/plain".into(),
        _ => mime_guess::from_path(path).first_or_octet_stream().essence_str().to_owned(),
    }
}

/// Returns whether a file of this type, with this content, is returned as text.
pub fn is_text(mime: &str, bytes: &[u8]) -> bool {
    let binary =
        ["image/", "audio/", "video/", "font/"].iter().any(|kind| mime.starts_with(kind)) && !mime.ends_with("+xml");
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    // Parts of binary files may be valid UTF-8 by chance.
    let odd = |c: char| c == '\0' || (!mime.starts_with("text/") && c.is_control() && !c.is_ascii_whitespace());
    !binary && !text.contains(odd)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "W-zFjI5p-ns1Qiu9";

    #[test]
    fn formatted_addresses_parse_to_the_same_parts() {
        let id = SessionId::parse(ID).unwrap();
        for path in ["a.txt", "plots/one two.png", "100%.csv", "what?.txt", "ünï#code.md", "a%2e%2e"] {
            let uri = FileAddress::format(&id, path);
            let read = FileAddress::parse(&uri).unwrap();
            assert_eq!((read.path.as_str(), &read.session), (path, &id), "{uri}");
        }
        assert_eq!(FileAddress::format(&id, "a.txt"), format!("kernel://{ID}/a.txt"));
        let part = FileAddress::parse(&format!("kernel://{ID}/a.bin?offset=10&length=5")).unwrap();
        assert_eq!(part.range, Range { offset: 10, length: Some(5) });
    }

    #[test]
    fn addresses_outside_the_session_are_refused() {
        for path in [
            "",
            "/",
            "../x",
            "a/../../x",
            "%2e%2e/x",
            "%2E%2E%2Fx",
            "a/%2e%2e/%2e%2e/x",
            "..%5cx",
            "a\\..\\x",
            "/etc/passwd",
            "%2fetc/passwd",
            "a//b",
            "./a",
            "a/.",
            ".hidden",
            "a%00b",
            "a?offset=-1",
            "a?nope=1",
        ] {
            assert!(FileAddress::parse(&format!("kernel://{ID}/{path}")).is_err(), "{path}");
        }
        for uri in ["file:///etc/passwd", "kernel://", "kernel:///a", "kernel://../a", "kernel://short/a", "a.txt"] {
            assert!(FileAddress::parse(uri).is_err(), "{uri}");
        }
    }

    #[test]
    fn mime_type_follows_the_file_name() {
        for (path, mime) in [
            ("a.txt", "text/plain"),
            ("plots/b.PNG", "image/png"),
            ("c.csv", "text/csv"),
            ("d.json", "application/json"),
            ("e.svg", "image/svg+xml"),
            ("f", "application/octet-stream"),
            ("g.html", "text/html"),
        ] {
            assert_eq!(mime_of(path), mime, "{path}");
        }
        assert!(is_text("image/svg+xml", b"<svg/>") && is_text("application/octet-stream", b"plain"));
        assert!(!is_text("image/png", b"plain") && !is_text("text/plain", b"\xff"));
    }
}

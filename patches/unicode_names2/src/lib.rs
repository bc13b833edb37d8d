//! The lookup of characters by name, without the table of names (`patches/README.md`).

#![forbid(unsafe_code)]

/// Returns the replacement character for each name that a character could have.
///
/// A name without a character is a syntax error, which CPython reports when it compiles the source.
pub fn character(search_name: &str) -> Option<char> {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b' ' | b'-' | b'_');
    (!search_name.is_empty() && search_name.bytes().all(is_valid)).then_some(char::REPLACEMENT_CHARACTER)
}

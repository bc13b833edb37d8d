//! Parses what a client sends to the server before anything is known of the client: lines on standard input, and those
//! parts of requests over HTTP by which calls to one session are kept in order.

use belljar_server::parse_message;

/// Checks lines of input.
pub(crate) fn check(bytes: &[u8]) {
    for line in bytes.split(|byte| *byte == b'\n') {
        let is_message = parse_message(line);
        // White space around a message changes nothing.
        let spaced = [&b" \t"[..], line, b"\r"].concat();
        assert_eq!(parse_message(&spaced), is_message);
    }
}

//! Reads what a worker process sends, as one that an attacker has taken over could send it. Bytes that are not messages
//! are refused, and messages that were read are the same when they are written and read again.

use belljar_worker::rewrite_events;

/// Checks the bytes of a worker.
pub(crate) fn check(bytes: &[u8]) {
    let frames = rewrite_events(bytes);
    assert_eq!(rewrite_events(&frames), frames);
}

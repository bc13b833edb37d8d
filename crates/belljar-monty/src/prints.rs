//! Output of the code on its way to the parent. Pieces are collected for a few milliseconds.

use std::sync::Arc;
use std::time::Duration;

use belljar_core::Stream;
use parking_lot::Mutex;
use prost::Message as _;

use crate::link::MessageSender;
use crate::proto::{ChildEvent, Event, Print, PrintSegment};

/// The time for which output is collected unless the parent says otherwise.
const FLUSH_INTERVAL: Duration = Duration::from_millis(5);
/// The size in bytes from which output is sent at once.
const MAX_COLLECTED: usize = 64 << 10;

/// The output that was not sent yet.
pub(crate) struct PrintBuffer {
    sender: MessageSender,
    interval: Duration,
    collected: Mutex<Collected>,
}

#[derive(Default)]
struct Collected {
    pieces: Vec<(Stream, Vec<u8>)>,
    size: usize,
    /// True if a thread will send what is collected.
    is_scheduled: bool,
}

impl PrintBuffer {
    /// Creates the output of a session. An interval of zero sends each complete line.
    pub(crate) fn new(sender: MessageSender, interval_milliseconds: Option<u32>) -> Arc<Self> {
        let interval = interval_milliseconds.map_or(FLUSH_INTERVAL, |time| Duration::from_millis(time.into()));
        Arc::new(Self { sender, interval, collected: Mutex::default() })
    }

    /// Adds output.
    pub(crate) fn push(self: &Arc<Self>, stream: Stream, bytes: &[u8]) {
        let mut collected = self.collected.lock();
        match collected.pieces.last_mut() {
            Some((last, piece)) if *last == stream => piece.extend_from_slice(bytes),
            _ => collected.pieces.push((stream, bytes.to_vec())),
        }
        collected.size += bytes.len();
        if self.interval.is_zero() && bytes.contains(&b'\n') || collected.size >= MAX_COLLECTED {
            self.send(&mut collected, false);
        } else if !self.interval.is_zero() && !collected.is_scheduled {
            collected.is_scheduled = true;
            let (prints, interval) = (Arc::downgrade(self), self.interval);
            let started = std::thread::Builder::new().name("prints".into()).stack_size(64 << 10).spawn(move || {
                std::thread::sleep(interval);
                if let Some(prints) = prints.upgrade() {
                    let mut collected = prints.collected.lock();
                    collected.is_scheduled = false;
                    prints.send(&mut collected, false);
                }
            });
            if started.is_err() {
                collected.is_scheduled = false;
                self.send(&mut collected, false);
            }
        }
    }

    /// Sends everything, before an event that ends a turn.
    pub(crate) fn flush(&self) {
        self.send(&mut self.collected.lock(), true);
    }

    /// Sends what is collected. A character that is not complete stays, unless `all` is set.
    fn send(&self, collected: &mut Collected, all: bool) {
        let pieces = std::mem::take(&mut collected.pieces);
        let count = pieces.len();
        let mut segments = Vec::with_capacity(count);
        for (at, (stream, mut bytes)) in pieces.into_iter().enumerate() {
            if !all && at + 1 == count {
                let rest = bytes.split_off(complete_length(&bytes));
                if !rest.is_empty() {
                    collected.pieces.push((stream, rest));
                }
            }
            if !bytes.is_empty() {
                let stream = if stream == Stream::Stdout { 1 } else { 2 };
                segments.push(PrintSegment { stream, text: String::from_utf8_lossy(&bytes).into_owned() });
            }
        }
        collected.size = collected.pieces.iter().map(|(_, bytes)| bytes.len()).sum();
        if !segments.is_empty() {
            let event = ChildEvent { kind: Some(Event::Print(Print { segments })), ..ChildEvent::default() };
            self.sender.send(event.encode_to_vec());
        }
    }
}

/// Returns the length of the complete characters of a text.
fn complete_length(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        _ => bytes.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn character_that_is_not_complete_is_not_cut() {
        let bytes = "aé".as_bytes();
        assert_eq!(complete_length(bytes), 3);
        assert_eq!(complete_length(&bytes[..2]), 1);
        assert_eq!(complete_length(b"a\xff"), 2);
    }
}

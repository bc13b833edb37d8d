//! The side of a channel that the task of the connection uses.

use std::io;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use tokio::time::Instant;

use super::{BUFFER_SIZE, Channel};
use crate::tls_request::TlsRequest;

/// The most bytes that the task takes at once.
const MAX_CHUNK: usize = 64 * 1024;

/// The next piece of what the code wrote.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// Bytes.
    Data(Bytes),
    /// A request for TLS.
    Tls(Box<TlsRequest>),
    /// The code sends nothing more.
    End,
}

impl Channel {
    pub(crate) fn set_connected(&self) {
        self.change(|state| state.connected = true);
    }

    /// Ends the stream to the code.
    pub(crate) fn finish_incoming(&self) {
        self.change(|state| state.incoming_end = true);
    }

    /// Ends both streams: the server closed the connection.
    pub(crate) fn end(&self) {
        self.change(|state| {
            state.incoming_end = true;
            if !state.discards {
                state.outgoing_end = true;
                state.outgoing = BytesMut::new();
            }
        });
    }

    /// Drops what the code writes from now on.
    pub(crate) fn discard_outgoing(&self) {
        self.change(|state| {
            state.discards = true;
            state.outgoing = BytesMut::new();
            state.tls = None;
        });
    }

    /// Fails the connection. Bytes that have arrived stay readable.
    pub(crate) fn fail(&self, error: io::Error) {
        self.change(|state| {
            if !state.failed {
                state.failed = true;
                state.error = Some(error);
                state.outgoing = BytesMut::new();
            }
        });
    }

    /// Adds bytes for the code. Bytes that it does not read are dropped.
    pub(crate) fn push(&self, data: &[u8]) {
        self.change(|state| {
            state.last_activity = Instant::now();
            if state.awaits_answer {
                state.injected |= !data.is_empty();
            } else if !state.reading_ended && !state.failed {
                state.incoming.extend_from_slice(data);
            }
        });
    }

    /// Returns whether the server sent plain text that could be taken for an answer to the request for TLS.
    pub(crate) fn has_injected_text(&self) -> bool {
        self.state.lock().injected
    }

    /// Adds the answer to the request for TLS.
    pub(crate) fn push_answer(&self, answer: &[u8]) {
        self.change(|state| {
            state.awaits_answer = false;
            state.incoming.extend_from_slice(answer);
        });
    }

    /// Waits until there is space for the code's stream, and returns the number of bytes.
    pub(crate) async fn space(&self) -> usize {
        std::future::poll_fn(|context| {
            let mut state = self.state.lock();
            let space = BUFFER_SIZE.saturating_sub(state.incoming.len());
            if space > 0 { Poll::Ready(space) } else { state.wait(context) }
        })
        .await
    }

    /// Waits for the next piece of what the code writes.
    pub(crate) async fn outgoing(&self) -> Outgoing {
        std::future::poll_fn(|context| self.poll_outgoing(context)).await
    }

    fn poll_outgoing(&self, context: &mut Context<'_>) -> Poll<Outgoing> {
        let mut state = self.state.lock();
        let before_tls = state.tls.as_ref().map_or(usize::MAX, |(before, _)| *before);
        let length = state.outgoing.len().min(MAX_CHUNK).min(before_tls);
        if before_tls == 0
            && let Some((_, request)) = state.tls.take()
        {
            return Poll::Ready(Outgoing::Tls(request));
        }
        if length > 0 {
            let was_full = state.outgoing.len() >= BUFFER_SIZE;
            let data = take(&mut state.outgoing, length);
            if let Some((before, _)) = &mut state.tls {
                *before -= length;
            }
            state.last_activity = Instant::now();
            let callback = state.callback.clone().filter(|_| was_full);
            drop(state);
            if let Some(callback) = callback {
                callback();
            }
            return Poll::Ready(Outgoing::Data(data));
        }
        if state.outgoing_end || state.failed {
            return Poll::Ready(Outgoing::End);
        }
        state.wait(context)
    }

    /// Returns bytes that were taken but are not for the current reader.
    pub(crate) fn put_back(&self, data: &[u8]) {
        let mut state = self.state.lock();
        let mut outgoing = BytesMut::from(data);
        outgoing.extend_from_slice(&state.outgoing);
        state.outgoing = outgoing;
        if let Some((before, _)) = &mut state.tls {
            *before += data.len();
        }
    }

    /// Waits until the code has closed the connection, or until it failed.
    pub(crate) async fn closed(&self) {
        std::future::poll_fn(|context| {
            let mut state = self.state.lock();
            if state.closed || state.failed { Poll::Ready(()) } else { state.wait(context) }
        })
        .await;
    }

    /// Returns whether the connection failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.state.lock().failed
    }

    /// Returns the time of the last byte in either direction.
    pub(crate) fn last_activity(&self) -> Instant {
        self.state.lock().last_activity
    }
}

/// Takes bytes from the front. An empty buffer returns its memory.
fn take(buffer: &mut BytesMut, length: usize) -> Bytes {
    let taken = buffer.split_to(length.min(buffer.len())).freeze();
    if buffer.is_empty() {
        *buffer = BytesMut::new();
    }
    taken
}

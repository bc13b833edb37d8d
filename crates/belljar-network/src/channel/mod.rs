//! The two streams of bytes between the code and the task of a connection.
//!
//! ```text
//!  code ── Connection::write ──▶ outgoing ──▶ task ──▶ server
//!  code ◀── Connection::read ─── incoming ◀── task ◀── server
//! ```
//!
//! Each stream is at most [`BUFFER_SIZE`] long and takes no memory while it is empty. The futures of a task are polled
//! by the task alone, so that one waker is enough.

mod task;

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Buf as _, BytesMut};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::connection::{ChangeCallback, Readiness};
use crate::tls_request::{ScanResult, TOKEN, TlsRequest, TlsScan};
pub(crate) use task::Outgoing;

/// The most bytes in each direction.
pub(crate) const BUFFER_SIZE: usize = 256 * 1024;

/// The streams of a connection.
pub(crate) struct Channel {
    state: Mutex<State>,
    token: [u8; TOKEN],
}

struct State {
    outgoing: BytesMut,
    /// The code sends nothing more.
    outgoing_end: bool,
    scan: TlsScan,
    /// A request for TLS, and the number of bytes before it.
    tls: Option<(usize, Box<TlsRequest>)>,
    /// TLS was asked for and is not answered. Until then the code reads nothing of the server: the answer is the
    /// host's.
    awaits_answer: bool,
    /// The server sent plain text that the code had not read when it asked for TLS.
    injected: bool,
    incoming: BytesMut,
    /// The server sends nothing more.
    incoming_end: bool,
    /// The code reads nothing more.
    reading_ended: bool,
    connected: bool,
    /// The error of the connection until the code takes it.
    error: Option<io::Error>,
    /// The connection failed.
    failed: bool,
    /// Bytes that the code writes are dropped: the connection was answered for the last time.
    discards: bool,
    /// The code closed the connection.
    closed: bool,
    last_activity: Instant,
    task: Option<Waker>,
    callback: Option<ChangeCallback>,
}

impl Channel {
    pub(crate) fn new(token: [u8; TOKEN]) -> Self {
        let state = State {
            outgoing: BytesMut::new(),
            outgoing_end: false,
            scan: TlsScan::default(),
            tls: None,
            awaits_answer: false,
            injected: false,
            incoming: BytesMut::new(),
            incoming_end: false,
            reading_ended: false,
            connected: false,
            error: None,
            failed: false,
            discards: false,
            closed: false,
            last_activity: Instant::now(),
            task: None,
            callback: None,
        };
        Self { state: Mutex::new(state), token }
    }

    pub(crate) fn readiness(&self) -> Readiness {
        let state = self.state.lock();
        let over = state.failed || state.closed;
        Readiness {
            readable: over || !state.incoming.is_empty() || state.has_no_more() || state.reading_ended,
            writable: over || state.outgoing_end || state.connected && state.outgoing.len() < BUFFER_SIZE,
            hung_up: over || state.incoming_end && state.outgoing_end,
            error: state.error.is_some(),
        }
    }

    pub(crate) fn read(&self, buffer: &mut [u8], peek: bool) -> io::Result<usize> {
        let mut state = self.state.lock();
        if !state.incoming.is_empty() {
            let length = buffer.len().min(state.incoming.len());
            buffer[..length].copy_from_slice(&state.incoming[..length]);
            if !peek && length > 0 {
                state.incoming.advance(length);
                if state.incoming.is_empty() {
                    state.incoming = BytesMut::new();
                }
                wake(state);
            }
            return Ok(length);
        }
        if let Some(error) = state.error.take() {
            return Err(error);
        }
        if state.has_no_more() || state.reading_ended || state.failed || state.closed || buffer.is_empty() {
            return Ok(0);
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    pub(crate) fn write(&self, data: &[u8]) -> io::Result<usize> {
        let mut state = self.state.lock();
        if let Some(error) = state.error.take() {
            return Err(error);
        }
        if state.failed || state.closed || state.outgoing_end {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if state.discards {
            return Ok(data.len());
        }
        if !state.connected || state.outgoing.len() >= BUFFER_SIZE {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let scanned = state.scan.write(&self.token, data);
        let (request, before, mut plain) = match scanned {
            Ok(ScanResult::Incomplete) => return Ok(data.len()),
            Ok(ScanResult::Plain(before, plain)) => (None, before, plain),
            Ok(ScanResult::Request(request, plain)) => (Some(request), Vec::new(), plain),
            Err(reason) => {
                state.failed = true;
                wake(state);
                return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
            }
        };
        state.outgoing.extend_from_slice(&before);
        if let Some(request) = request {
            state.tls = Some((state.outgoing.len(), request));
            state.awaits_answer = true;
            state.injected = !state.incoming.is_empty();
            state.incoming = BytesMut::new();
        }
        let without = data.len() - plain.len();
        let space = BUFFER_SIZE.saturating_sub(state.outgoing.len());
        plain = plain.get(..space).unwrap_or(plain);
        state.outgoing.extend_from_slice(plain);
        wake(state);
        Ok(without + plain.len())
    }

    /// Adds a request for TLS after what was written, as if the code had written it.
    pub(crate) fn request_tls(&self, request: TlsRequest) {
        let mut state = self.state.lock();
        state.scan = TlsScan::Found;
        state.tls = Some((state.outgoing.len(), Box::new(request)));
        wake(state);
    }

    pub(crate) fn shutdown(&self, read: bool, write: bool) {
        let mut state = self.state.lock();
        if read {
            state.reading_ended = true;
            state.incoming = BytesMut::new();
        }
        if write {
            state.end_outgoing();
        }
        wake(state);
    }

    /// Closes the connection for the code. The task still sends its last bytes.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.reading_ended = true;
        state.incoming = BytesMut::new();
        state.callback = None;
        state.end_outgoing();
        wake(state);
    }

    pub(crate) fn take_error(&self) -> Option<io::Error> {
        self.state.lock().error.take()
    }

    pub(crate) fn is_connected(&self) -> bool {
        let state = self.state.lock();
        state.connected && !state.failed
    }

    pub(crate) fn on_change(&self, callback: ChangeCallback) {
        self.state.lock().callback = Some(callback);
    }

    /// Changes the state and calls the code's callback.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let callback = {
            let mut state = self.state.lock();
            change(&mut state);
            if let Some(waker) = state.task.take() {
                waker.wake();
            }
            state.callback.clone()
        };
        if let Some(callback) = callback {
            callback();
        }
    }
}

impl State {
    /// Returns whether the stream to the code is over. The answer to a request for TLS comes even after the server's
    /// end.
    fn has_no_more(&self) -> bool {
        self.incoming_end && !self.awaits_answer
    }

    fn wait<T>(&mut self, context: &Context<'_>) -> Poll<T> {
        if !self.task.as_ref().is_some_and(|task| task.will_wake(context.waker())) {
            self.task = Some(context.waker().clone());
        }
        Poll::Pending
    }

    /// Ends the stream of the code. Bytes that may have been the beginning of a token are sent.
    fn end_outgoing(&mut self) {
        if !self.outgoing_end {
            self.outgoing_end = true;
            if let TlsScan::Partial(bytes) = std::mem::take(&mut self.scan) {
                self.outgoing.extend_from_slice(&bytes);
            }
        }
    }
}

/// Wakes the task without the lock.
fn wake(mut state: parking_lot::MutexGuard<'_, State>) {
    let task = state.task.take();
    drop(state);
    if let Some(task) = task {
        task.wake();
    }
}

/// The channel of a task, which is shared with the code.
pub(crate) type SharedChannel = Arc<Channel>;

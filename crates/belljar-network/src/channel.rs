//! The two streams of bytes between the code and the task of a connection.
//!
//! ```text
//!  code ── Connection::write ──▶ outgoing ──▶ task ──▶ server
//!  code ◀── Connection::read ─── incoming ◀── task ◀── server
//! ```
//!
//! Each stream is at most [`BUFFER`] long and takes no memory while it is empty. The futures of a task are polled by the
//! task alone, so that one waker is enough.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Buf as _, Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::connection::{ChangeCallback, Readiness};
use crate::tls_request::{Scanned, TOKEN, TlsRequest, TlsScan};

/// The most bytes in each direction.
pub(crate) const BUFFER: usize = 256 * 1024;

/// The most bytes that the task takes at once.
const MAX_CHUNK: usize = 64 * 1024;

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
    pub(crate) fn new(token: [u8; TOKEN]) -> Self {
        let state = State {
            outgoing: BytesMut::new(),
            outgoing_end: false,
            scan: TlsScan::default(),
            tls: None,
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

    // The side of the code.

    pub(crate) fn readiness(&self) -> Readiness {
        let state = self.state.lock();
        let over = state.failed || state.closed;
        Readiness {
            readable: over || !state.incoming.is_empty() || state.incoming_end || state.reading_ended,
            writable: over || state.outgoing_end || state.connected && state.outgoing.len() < BUFFER,
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
        if state.incoming_end || state.reading_ended || state.failed || state.closed || buffer.is_empty() {
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
        if !state.connected || state.outgoing.len() >= BUFFER {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let scanned = state.scan.write(&self.token, data);
        let (request, before, mut plain) = match scanned {
            Ok(Scanned::Incomplete) => return Ok(data.len()),
            Ok(Scanned::Plain(before, plain)) => (None, before, plain),
            Ok(Scanned::Request(request, plain)) => (Some(request), Vec::new(), plain),
            Err(reason) => {
                state.failed = true;
                wake(state);
                return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
            }
        };
        state.outgoing.extend_from_slice(&before);
        if let Some(request) = request {
            state.tls = Some((state.outgoing.len(), request));
        }
        let without = data.len() - plain.len();
        let space = BUFFER.saturating_sub(state.outgoing.len());
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

    /// Closes the connection for the code. What it wrote is still sent.
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

    // The side of the task.

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

    /// Fails the connection. What has arrived for the code stays readable.
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
            if !state.reading_ended && !state.failed {
                state.incoming.extend_from_slice(data);
            }
        });
    }

    /// Waits until there is space for the code's stream, and returns the number of bytes.
    pub(crate) async fn space(&self) -> usize {
        std::future::poll_fn(|context| {
            let mut state = self.state.lock();
            let space = BUFFER.saturating_sub(state.incoming.len());
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
            let was_full = state.outgoing.len() >= BUFFER;
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
    fn wait<T>(&mut self, context: &Context<'_>) -> Poll<T> {
        if !self.task.as_ref().is_some_and(|task| task.will_wake(context.waker())) {
            self.task = Some(context.waker().clone());
        }
        Poll::Pending
    }

    /// Ends the stream of the code. What may have been the beginning of a token is sent.
    fn end_outgoing(&mut self) {
        if !self.outgoing_end {
            self.outgoing_end = true;
            if let TlsScan::Partial(bytes) = std::mem::take(&mut self.scan) {
                self.outgoing.extend_from_slice(&bytes);
            }
        }
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

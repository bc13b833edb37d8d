//! Calls of functions of the host by a kernel's code, over a socket that the kernel creates and the host connects to
//! (`guest/belljar_kernel/exchange.py`).
//!
//! A call is a line of JSON: `{"call": {"id": 1, "name": "…", "arguments": …}}`, or `{"cancel": {"id": 1}}` if the code
//! does not wait for it any more. A reply is a line of JSON, too: `id` with `value` or `error`, and the sizes of its
//! `buffers`, which follow the line. The guest chooses the numbers of its calls, and the host has numbers of its own.
//!
//! The socket lasts as long as the kernel's process. Calls are read only while a cell runs that may make them. All that
//! the guest sends is untrusted: a line is limited in size, and while [`MAX_PENDING`] replies are not written, nothing
//! is read. A guest that breaks the protocol can make no further calls.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Write as _;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use belljar_core::kernel::CellObserver;
use belljar_core::{EncodedValue, FunctionCall, FunctionError, FunctionReply, ReplySender};
use belljar_network::Scrubber;
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The name of the socket, in the directory of the kernel's sockets.
pub(crate) const SOCKET: &str = "functions";

/// The maximum size of a request, in bytes.
const MAX_REQUEST: usize = 64 << 20;
/// The maximum number of calls whose replies are not written yet.
const MAX_PENDING: usize = 10_000;
/// The number of requests that are handled before the kernel's other channels are served.
const REQUEST_BATCH: usize = 200;
/// The number of bytes that one system call reads at most.
const READ_SIZE: usize = 64 << 10;
/// The size of the text of replies that are written at once, in bytes. One reply may be larger.
const WRITE_BATCH: usize = 256 << 10;

/// The connection to a kernel's socket.
pub(crate) struct FunctionSocket {
    stream: Arc<Mutex<UnixStream>>,
    /// The same connection, to read from.
    reader: UnixStream,
    /// The bytes that have arrived and are not handled yet.
    received: Vec<u8>,
    /// The number of bytes of `received` that contain no line end.
    scanned: usize,
    /// The number of the next call.
    next: u64,
    /// True once a call was made that may have had an effect.
    has_effects: bool,
    /// True once the guest has closed the connection or has broken the protocol.
    is_closed: bool,
    /// Removes secrets from arguments.
    scrubber: Scrubber,
}

/// A request of the guest.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Request {
    Call { id: u64, name: String, arguments: Box<RawValue> },
    Cancel { id: u64 },
}

impl FunctionSocket {
    /// Uses a connection to a kernel's socket, whose calls have arguments without secrets.
    ///
    /// # Errors
    /// Returns an error if the system has no further descriptors.
    pub(crate) fn new(stream: UnixStream, scrubber: Scrubber) -> std::io::Result<Self> {
        // Replies are written by a thread that may wait for the guest. Reads never wait.
        stream.set_nonblocking(false)?;
        let reader = stream.try_clone()?;
        Ok(Self {
            stream: Arc::new(Mutex::new(stream)),
            reader,
            received: Vec::new(),
            scanned: 0,
            next: 0,
            has_effects: false,
            is_closed: false,
            scrubber,
        })
    }

    /// Returns whether the code has made a call that may have had an effect.
    pub(crate) fn has_effects(&self) -> bool {
        self.has_effects
    }

    /// Returns the next line, without its end, if one has arrived. Closes the connection if a line is too long.
    fn next_line(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self.received.get(self.scanned..)?.iter().position(|byte| *byte == b'\n') {
                let rest = self.received.split_off(self.scanned + at + 1);
                let mut line = std::mem::replace(&mut self.received, rest);
                self.scanned = 0;
                line.pop();
                return Some(line);
            }
            self.scanned = self.received.len();
            if self.is_closed {
                return None;
            }
            if self.received.len() > MAX_REQUEST {
                self.refuse();
                return None;
            }
            self.received.reserve(READ_SIZE);
            match recv(&self.reader, rustix::buffer::spare_capacity(&mut self.received), RecvFlags::DONTWAIT) {
                Ok((_, 0)) => self.close(),
                Ok(_) => {}
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return None,
                Err(_) => self.close(),
            }
        }
    }

    /// Closes the connection of a kernel that has broken the protocol. Messages that it has sent since are not handled.
    fn refuse(&mut self) {
        self.received = Vec::new();
        self.scanned = 0;
        self.close();
    }

    fn close(&mut self) {
        self.is_closed = true;
        // Fails if the guest has closed its end.
        let _ = self.reader.shutdown(std::net::Shutdown::Both);
    }
}

/// Returns JSON without secrets.
///
/// # Errors
/// Fails if the text is not JSON without the secrets.
fn scrubbed(json: Box<RawValue>, scrubber: &Scrubber) -> serde_json::Result<Box<RawValue>> {
    let scrubbed = match scrubber.scrub_text(json.get()) {
        Cow::Owned(text) => Some(RawValue::from_string(text)),
        Cow::Borrowed(_) => None,
    };
    scrubbed.unwrap_or(Ok(json))
}

/// The calls of one cell. Dropping them cancels those that are in progress.
pub(crate) struct CellCalls<'a> {
    socket: &'a mut FunctionSocket,
    observer: &'a Arc<dyn CellObserver>,
    state: Arc<Mutex<State>>,
    /// The channel of the thread that writes replies, once there is one.
    replies: Option<ReplySender>,
}

/// The state that the cell shares with the thread that writes replies.
#[derive(Default)]
struct State {
    /// The guest's numbers of the calls in progress, by the host's.
    guest_ids: HashMap<u64, u64>,
    /// The host's numbers, by the guest's.
    host_ids: HashMap<u64, u64>,
    /// The number of calls whose replies are not written.
    pending: usize,
    /// The time since which a call is in progress and no replies are being written.
    since: Option<Instant>,
    /// The time for which this was so before.
    used: Duration,
    /// Set while replies are being written, which takes long if the code does not read them.
    is_writing: bool,
}

impl State {
    fn begin(&mut self, host: u64, guest: u64) {
        self.guest_ids.insert(host, guest);
        self.host_ids.insert(guest, host);
        self.pending += 1;
        self.count();
    }

    /// Ends a call, and returns the guest's number. `None` if the call was cancelled.
    fn end(&mut self, host: u64) -> Option<u64> {
        let guest = self.guest_ids.remove(&host)?;
        self.host_ids.remove(&guest);
        self.count();
        Some(guest)
    }

    /// Sets whether replies are being written. `written` is the number of those that have been.
    fn set_writing(&mut self, is_writing: bool, written: usize) {
        self.is_writing = is_writing;
        self.pending -= written;
        self.count();
    }

    /// Starts or stops the clock of calls in progress.
    fn count(&mut self) {
        if self.guest_ids.is_empty() || self.is_writing {
            self.used += self.since.take().map_or(Duration::ZERO, |since| since.elapsed());
        } else {
            self.since.get_or_insert_with(Instant::now);
        }
    }
}

impl<'a> CellCalls<'a> {
    /// Lets a cell make calls, which `observer` receives.
    pub(crate) fn new(socket: &'a mut FunctionSocket, observer: &'a Arc<dyn CellObserver>) -> Self {
        Self { socket, observer, state: Arc::default(), replies: None }
    }

    /// Returns the descriptor that becomes readable when [`serve`](Self::serve) has a request to handle; `None` while
    /// no request is accepted.
    pub(crate) fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        (!self.socket.is_closed && self.state.lock().pending < MAX_PENDING).then(|| self.socket.reader.as_fd())
    }

    /// Returns whether the code waits for a call.
    pub(crate) fn is_busy(&self) -> bool {
        self.state.lock().since.is_some()
    }

    /// Returns the time for which at least one call was in progress, without the time in which replies were written:
    /// the time limit of code that does not read them runs.
    pub(crate) fn elapsed(&self) -> Duration {
        let state = self.state.lock();
        state.used + state.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Handles the requests that have arrived, up to a batch. Returns whether there may be more.
    pub(crate) fn serve(&mut self) -> bool {
        for _ in 0..REQUEST_BATCH {
            if self.state.lock().pending >= MAX_PENDING {
                return false;
            }
            let Some(line) = self.socket.next_line() else { return false };
            match serde_json::from_slice(&line) {
                Ok(Request::Call { id, name, arguments }) => self.call(id, name, arguments),
                Ok(Request::Cancel { id }) => self.cancel(id),
                Err(error) => {
                    tracing::debug!(%error, "closed the connection of a kernel that sent an invalid call");
                    self.socket.refuse();
                }
            }
        }
        true
    }

    fn call(&mut self, guest: u64, name: String, arguments: Box<RawValue>) {
        if self.state.lock().host_ids.contains_key(&guest) {
            return self.socket.refuse();
        }
        let Some(replies) = self.replies() else { return self.socket.refuse() };
        let id = self.socket.next;
        self.socket.next += 1;
        self.state.lock().begin(id, guest);
        let Ok(json) = scrubbed(arguments, &self.socket.scrubber) else {
            let error = FunctionError { name: "ValueError".into(), message: "an argument contains a secret".into() };
            // Ignore send errors: the thread that writes replies has ended with the kernel.
            let _ = replies.send(FunctionReply { id, result: Err(error) });
            return;
        };
        let call = FunctionCall { id, name, arguments: EncodedValue { json, buffers: Vec::new() } };
        self.socket.has_effects |= call.may_have_effects();
        self.observer.call_function(call, &replies);
    }

    fn cancel(&self, guest: u64) {
        let mut state = self.state.lock();
        let Some(host) = state.host_ids.get(&guest).copied() else { return };
        state.end(host);
        state.pending -= 1;
        drop(state);
        self.observer.cancel_function(host);
    }

    /// Returns the channel of replies. Starts the thread that writes them, unless it runs.
    fn replies(&mut self) -> Option<ReplySender> {
        if self.replies.is_none() {
            let (sender, replies) = channel();
            let (stream, state) = (self.socket.stream.clone(), self.state.clone());
            let writer = std::thread::Builder::new().name("calls".into());
            writer.spawn(move || write_replies(&replies, &stream, &state)).ok()?;
            self.replies = Some(sender.into());
        }
        self.replies.clone()
    }
}

impl Drop for CellCalls<'_> {
    fn drop(&mut self) {
        let calls: Vec<u64> = self.state.lock().guest_ids.keys().copied().collect();
        for id in calls {
            self.observer.cancel_function(id);
            let message = "the cell ended before the function of the host replied".into();
            let error = FunctionError { name: "RuntimeError".into(), message };
            if let Some(replies) = &self.replies {
                // The thread that writes ends with the process of a kernel that does not read.
                let _ = replies.send(FunctionReply { id, result: Err(error) });
            }
        }
    }
}

/// The line of a reply.
#[derive(Serialize)]
struct ReplyLine<'a> {
    id: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    buffers: Vec<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a FunctionError>,
}

/// Writes replies, those together that have arrived together, until no call can send any.
fn write_replies(replies: &Receiver<FunctionReply>, stream: &Mutex<UnixStream>, state: &Mutex<State>) {
    while let Ok(first) = replies.recv() {
        let (mut text, mut written) = (Vec::new(), 0);
        let mut next = Some(first);
        while let Some(FunctionReply { id, result }) = next {
            if let Some(id) = state.lock().end(id) {
                written += 1;
                append(&mut text, id, &result);
            }
            next = if text.len() < WRITE_BATCH { replies.try_recv().ok() } else { None };
        }
        state.lock().set_writing(true, 0);
        // Fails if the kernel has ended or the connection was closed.
        let _ = stream.lock().write_all(&text);
        state.lock().set_writing(false, written);
    }
}

fn append(text: &mut Vec<u8>, id: u64, result: &Result<EncodedValue, FunctionError>) {
    let line = match result {
        Ok(EncodedValue { json, buffers }) => {
            let buffers = buffers.iter().map(|buffer| buffer.len()).collect();
            ReplyLine { id, value: Some(json), buffers, error: None }
        }
        Err(error) => ReplyLine { id, value: None, buffers: Vec::new(), error: Some(error) },
    };
    // Writing JSON to a Vec does not fail. The text of a value may have line ends between its parts.
    let start = text.len();
    let _ = serde_json::to_writer(&mut *text, &line);
    for byte in text.iter_mut().skip(start).filter(|byte| **byte == b'\n') {
        *byte = b' ';
    }
    text.push(b'\n');
    for buffer in result.iter().flat_map(|value| &value.buffers) {
        text.extend_from_slice(&buffer.contiguous());
    }
}

#[cfg(test)]
mod tests;

//! The connection between a worker and its parent: requests, events, and the end of both.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use belljar_core::kernel::InterruptHandle;
use parking_lot::{Condvar, Mutex};

use crate::frame::write_frame;

/// The function that sends a message to the parent; it returns false when the parent is gone.
type Send = Box<dyn FnMut(Vec<u8>) -> bool + std::marker::Send>;

/// A worker's end of the connection.
pub struct Link {
    pub(crate) shared: Arc<Shared>,
    requests: Mutex<Receiver<Vec<u8>>>,
    sender: MessageSender,
}

/// The parent's end of the connection, for the transport. Cheap to clone.
#[derive(Clone)]
pub struct ParentEnd {
    requests: Sender<Vec<u8>>,
    shared: Arc<Shared>,
}

/// The state of the connection.
#[derive(Default)]
pub(crate) struct Shared {
    is_closed: AtomicBool,
    is_draining: AtomicBool,
    /// The number of requests that were not received.
    arrived: AtomicUsize,
    /// The handle of the code that runs.
    running: Mutex<Option<Arc<dyn InterruptHandle>>>,
    /// True if something has happened for which the code waits.
    is_awake: Mutex<bool>,
    woken: Condvar,
}

impl Link {
    /// Creates a connection whose events `send` sends. It returns false when the parent is gone.
    pub fn new(send: impl FnMut(Vec<u8>) -> bool + std::marker::Send + 'static) -> (Self, ParentEnd) {
        let (sender, requests) = channel();
        let shared = Arc::new(Shared::default());
        let parent = ParentEnd { requests: sender, shared: shared.clone() };
        let sender = MessageSender { send: Arc::new(Mutex::new(Box::new(send))), shared: shared.clone() };
        (Self { shared, requests: Mutex::new(requests), sender }, parent)
    }

    /// Creates a connection whose events are written to a stream as frames.
    pub fn to_stream(mut stream: impl Write + std::marker::Send + 'static) -> (Self, ParentEnd) {
        Self::new(move |message| write_frame(&mut stream, &message).is_ok())
    }

    /// Returns the next request; `None` when the parent is gone.
    pub(crate) fn receive(&self) -> Option<Vec<u8>> {
        let request = self.requests.lock().recv().ok()?;
        self.shared.arrived.fetch_sub(1, Ordering::AcqRel);
        Some(request).filter(|_| !self.shared.is_closed())
    }

    /// Returns the next request, if one has arrived.
    pub(crate) fn try_receive(&self) -> Option<Vec<u8>> {
        let request = self.requests.lock().try_recv().ok()?;
        self.shared.arrived.fetch_sub(1, Ordering::AcqRel);
        Some(request).filter(|_| !self.shared.is_closed())
    }

    /// Returns whether a request has arrived.
    pub(crate) fn has_arrived(&self) -> bool {
        self.shared.arrived.load(Ordering::Acquire) > 0
    }

    /// Returns what sends messages.
    pub(crate) fn sender(&self) -> &MessageSender {
        &self.sender
    }
}

/// The sender of messages to the parent. Cheap to clone.
#[derive(Clone)]
pub(crate) struct MessageSender {
    send: Arc<Mutex<Send>>,
    shared: Arc<Shared>,
}

impl MessageSender {
    /// Sends a message, unless the parent is gone.
    pub(crate) fn send(&self, message: Vec<u8>) {
        if !self.shared.is_closed() && !(self.send.lock())(message) {
            self.shared.close();
        }
    }
}

impl ParentEnd {
    /// Passes a request to the worker. Returns false when the worker has ended.
    pub fn send(&self, request: Vec<u8>) -> bool {
        self.shared.arrived.fetch_add(1, Ordering::AcqRel);
        self.requests.send(request).is_ok()
    }

    /// Has the worker answer its next request with its state, and end.
    pub fn drain(&self) {
        self.shared.is_draining.store(true, Ordering::Release);
    }

    /// Ends the code that runs, and the worker: the parent is gone.
    pub fn close(&self) {
        self.shared.close();
        // Ends the wait of a worker for a request.
        self.send(Vec::new());
    }
}

impl Shared {
    /// Returns whether the parent is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Returns whether the server ends.
    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }

    fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        if let Some(handle) = &*self.running.lock() {
            handle.kill();
        }
        self.wake();
    }

    /// Sets the handle of the code that runs. It is ended at once if the parent is gone.
    pub(crate) fn set_running(&self, handle: Option<Arc<dyn InterruptHandle>>) {
        let mut running = self.running.lock();
        *running = handle;
        if let (true, Some(handle)) = (self.is_closed(), &*running) {
            handle.kill();
        }
    }

    /// Ends the code that runs now, if it still runs after `grace`.
    pub(crate) fn end_running_later(self: &Arc<Self>, grace: Duration) {
        let Some(handle) = self.running.lock().as_ref().map(Arc::downgrade) else { return };
        let shared = Arc::downgrade(self);
        std::thread::spawn(move || {
            std::thread::sleep(grace);
            let (Some(shared), Some(handle)) = (shared.upgrade(), handle.upgrade()) else { return };
            let running = shared.running.lock();
            if running.as_ref().is_some_and(|running| Arc::ptr_eq(running, &handle)) {
                handle.kill();
            }
        });
    }

    /// Ends a wait, or the next one.
    pub(crate) fn wake(&self) {
        *self.is_awake.lock() = true;
        self.woken.notify_all();
    }

    /// Waits until [`Shared::wake`] is called, at most for `timeout`.
    pub(crate) fn wait(&self, timeout: Option<Duration>) {
        let mut is_awake = self.is_awake.lock();
        if !*is_awake {
            match timeout {
                Some(timeout) => {
                    self.woken.wait_for(&mut is_awake, timeout);
                }
                None => self.woken.wait(&mut is_awake),
            }
        }
        *is_awake = false;
    }
}

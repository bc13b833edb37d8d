//! Belljar as a kernel of Jupyter frontends: a backend of sessions runs the cells of notebooks, consoles and editors.
//!
//! ```text
//!  JupyterLab, nbclient, VS Code
//!    │ shell ──▶ ShellChannel ──▶ queue ──▶ Worker, on a thread of the backend ──▶ Kernel
//!    │ control ▶ ControlChannel ─▶ interrupts the cell, shuts the kernel down        │ CellObserver
//!    │ stdin ◀─▶ InputRequests ◀─────────────────────────────────────────────────────┤
//!    └ iopub ◀── IopubPublisher ◀────────────────────────────────────────────────────┘
//! ```
//!
//! The messages are those of Jupyter's messaging specification, version 5.4, signed with the key of the connection
//! file. A message with an invalid signature is dropped unread.
//!
//! | file | subject |
//! | --- | --- |
//! | `connection` | the connection file |
//! | `message` | messages as signed frames |
//! | `sockets` | the five sockets, and the tasks that read them |
//! | `reply_sender` | replies to the sender of a request |
//! | `iopub` | messages to all frontends |
//! | `stdin` | `input()` |
//! | `worker` | requests of the shell channel, answered in order |
//! | `cell` | the messages of one cell while it runs |
//! | `history` | the cells that ran |
//! | `kernel_info` | `kernel_info_reply` |
//! | `kernelspec` | the files by which frontends find the kernel |
//! | `os` | what depends on the operating system |
//!
//! The crate `zeromq` reads a frame whole, however long its sender declares it to be: a process that can connect to the
//! kernel's sockets can exhaust its memory before any signature is verified. The sockets are on the loopback address,
//! or in the user's own folder.

mod cell;
mod connection;
mod history;
mod iopub;
mod kernel_info;
pub mod kernelspec;
mod message;
mod os;
mod reply_sender;
mod sockets;
mod stdin;
mod worker;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use belljar_core::kernel::InterruptHandle;
use parking_lot::Mutex;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};

pub use connection::{Connection, ConnectionFileError};
pub use kernel_info::KernelInfo;
pub use worker::Worker;

use message::Signer;
use sockets::Sockets;

/// The time that the running cell has to end when the kernel is shut down.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);
/// The time for the last replies to be sent: a socket accepts a message before it is sent.
const LINGER: Duration = Duration::from_millis(100);

/// The reason why a kernel cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum KernelServerError {
    /// The connection file cannot be used.
    #[error("failed to read the connection file {}: {source}", path.display())]
    ConnectionFile {
        /// The path of the file.
        path: PathBuf,
        /// The reason.
        source: ConnectionFileError,
    },
    /// A socket could not be bound.
    #[error("failed to listen on {url}: {source}")]
    Listen {
        /// The address.
        url: String,
        /// The error of the socket.
        source: Box<zeromq::ZmqError>,
    },
    /// The threads of the sockets could not be started.
    #[error("failed to start threads: {0}")]
    StartThreads(#[from] std::io::Error),
}

/// The interrupt handle of the running cell, for the control channel.
#[derive(Clone, Default)]
pub(crate) struct RunningCell(Arc<Mutex<Option<Arc<dyn InterruptHandle>>>>);

impl RunningCell {
    /// Sets the handle of the cell that runs; `None` after it has ended.
    pub(crate) fn set(&self, interrupt: Option<Arc<dyn InterruptHandle>>) {
        *self.0.lock() = interrupt;
    }

    fn with(&self, act: impl FnOnce(&dyn InterruptHandle)) {
        if let Some(running) = &*self.0.lock() {
            act(&**running);
        }
    }

    /// Interrupts the cell that runs, if one does. A later cell is not affected.
    pub(crate) fn interrupt(&self) {
        self.with(|running| running.interrupt());
    }

    /// Ends the interpreter of the cell that runs, if one does.
    pub(crate) fn kill(&self) {
        self.with(|running| running.kill());
    }
}

/// A kernel that listens for frontends.
pub struct KernelServer {
    runtime: Runtime,
    running: RunningCell,
    closing: watch::Sender<bool>,
    /// A channel that is closed when the worker has ended.
    worker_done: Option<mpsc::Receiver<()>>,
    socket_paths: Vec<PathBuf>,
}

/// A handle that interrupts a kernel or shuts it down, from any thread.
#[derive(Clone)]
pub struct Control {
    running: RunningCell,
    closing: watch::Sender<bool>,
}

impl Control {
    /// Raises `KeyboardInterrupt` in the cell that runs, if one does.
    pub fn interrupt(&self) {
        self.running.interrupt();
    }

    /// Ends the server, and the cell that runs, without its cooperation.
    pub fn shut_down(&self) {
        self.closing.send_replace(true);
        self.running.kill();
    }
}

impl KernelServer {
    /// Listens on the addresses of `connection`. Requests are queued until the returned worker is run, on a thread that
    /// suits the backend.
    ///
    /// # Errors
    /// Fails if an address cannot be bound, or threads cannot be started.
    pub fn listen(connection: &Connection, kernel_info: KernelInfo) -> Result<(Self, Worker), KernelServerError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let signer = Arc::new(Signer::new(&connection.key));
        let (running, closing) = (RunningCell::default(), watch::Sender::new(false));
        let control = Control { running: running.clone(), closing: closing.clone() };
        let sockets = runtime.block_on(Sockets::bind(connection, signer))?;
        let socket_paths = connection.socket_paths();
        let (alive, worker_done) = mpsc::channel(1);
        let channels = runtime.block_on(sockets.serve(Arc::new(kernel_info), control));
        let worker = Worker::new(channels, runtime.handle().clone(), running.clone(), closing.clone(), alive);
        Ok((Self { runtime, running, closing, worker_done: Some(worker_done), socket_paths }, worker))
    }

    /// Returns a handle that interrupts the kernel or shuts it down.
    pub fn control(&self) -> Control {
        Control { running: self.running.clone(), closing: self.closing.clone() }
    }

    /// Waits until the kernel is shut down, and a little longer for the running cell to end. A worker that has not
    /// ended by then still runs when this returns, until the process exits.
    pub fn wait(mut self) {
        let mut closing = self.closing.subscribe();
        let worker = self.worker_done.take();
        self.runtime.block_on(async {
            // Cannot fail: `self` has a sender.
            let _ = closing.wait_for(|closing| *closing).await;
            if let Some(mut worker) = worker {
                let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, worker.recv()).await;
            }
            tokio::time::sleep(LINGER).await;
        });
        for path in &self.socket_paths {
            // The frontend may have removed the file already.
            let _ = std::fs::remove_file(path);
        }
        self.runtime.shutdown_background();
    }
}

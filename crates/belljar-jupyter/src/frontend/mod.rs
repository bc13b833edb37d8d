//! Belljar as a kernel of Jupyter: what notebooks, consoles and editors send is run by any backend of sessions.
//!
//! ```text
//!  JupyterLab, nbclient, VS Code
//!    │ shell ──▶ sockets ──▶ queue ──▶ Worker, on the backend's own thread ──▶ Kernel
//!    │ control ▶ sockets ──▶ interrupts what runs, ends the kernel               │ Audience
//!    │ stdin ◀─▶ Questions ◀─────────────────────────────────────────────────────┤
//!    └ iopub ◀── Broadcast ◀─────────────────────────────────────────────────────┘
//! ```
//!
//! The messages are those of Jupyter's messaging specification, version 5.4, signed with the key of the connection file.
//! A message whose signature is not good is dropped unread.
//!
//! | file | subject |
//! | --- | --- |
//! | `connection` | the file that says where to listen |
//! | `message` | messages as frames, signed |
//! | `sockets` | the five sockets, and who reads them |
//! | `iopub` | what all frontends see |
//! | `questions` | `input()` |
//! | `worker` | requests of the shell channel, one after the other |
//! | `cell` | one cell, as its frontends follow it |
//! | `history` | what was run |
//! | `info` | what the kernel says of itself |
//! | `kernelspec` | how frontends find it |
//!
//! The crate `zeromq` reads a frame whole, however long its sender says it is: whoever can open the kernel's sockets can make
//! it run out of memory before any signature is looked at. They are on the loopback address, or in the user's own folder.

mod cell;
mod connection;
mod history;
mod info;
mod iopub;
pub mod kernelspec;
mod message;
mod questions;
mod sockets;
mod worker;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use belljar_core::kernel::Interrupt;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};

pub use connection::Connection;
pub use info::About;
pub use worker::Worker;

use message::Signer;
use sockets::Sockets;

/// Time for what runs to end when the kernel is shut down.
const LAST_CELL: Duration = Duration::from_secs(2);
/// Time for the last replies to leave: a socket takes a message before it is sent.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// Why a kernel cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum FrontendError {
    /// The connection file cannot be used.
    #[error("connection file {}: {reason}", path.display())]
    Connection {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// An address cannot be listened on.
    #[error("cannot listen on {url}: {reason}")]
    Listen {
        /// Where.
        url: String,
        /// What the system says.
        reason: String,
    },
    /// The system gives no threads.
    #[error("cannot start threads: {0}")]
    Threads(#[from] std::io::Error),
}

/// What can be stopped from the control channel.
#[derive(Clone, Default)]
pub(crate) struct Running(Arc<Mutex<Option<Arc<dyn Interrupt>>>>);

impl Running {
    /// What runs now; `None` is nothing.
    pub(crate) fn set(&self, interrupt: Option<Arc<dyn Interrupt>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = interrupt;
    }

    fn with(&self, act: impl FnOnce(&dyn Interrupt)) {
        if let Some(running) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            act(&**running);
        }
    }

    /// Interrupts it. Nothing is kept for what runs next.
    pub(crate) fn interrupt(&self) {
        self.with(|running| running.interrupt());
    }

    /// Ends it.
    pub(crate) fn stop(&self) {
        self.with(|running| running.stop());
    }
}

/// A kernel that listens.
pub struct Frontend {
    runtime: Runtime,
    running: Running,
    closing: watch::Sender<bool>,
    /// Closed when the worker has ended.
    worker_lives: Option<mpsc::Receiver<()>>,
    paths: Vec<PathBuf>,
}

/// Shuts a kernel down, or interrupts it; from any thread.
#[derive(Clone)]
pub struct Control {
    running: Running,
    closing: watch::Sender<bool>,
}

impl Control {
    /// Raises `KeyboardInterrupt` in the cell that runs, if one does.
    pub fn interrupt(&self) {
        self.running.interrupt();
    }

    /// Ends the kernel.
    pub fn shut_down(&self) {
        self.closing.send_replace(true);
        self.running.stop();
    }
}

impl Frontend {
    /// Listens where `connection` says. Requests wait until the worker, which is answered too, is run: on a thread that
    /// suits the backend.
    ///
    /// # Errors
    /// When an address is taken, or the system gives no threads.
    pub fn listen(connection: &Connection, about: About) -> Result<(Self, Worker), FrontendError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let signer = Arc::new(Signer::new(&connection.key));
        let (running, closing) = (Running::default(), watch::Sender::new(false));
        let control = Control { running: running.clone(), closing: closing.clone() };
        let sockets = runtime.block_on(Sockets::bind(connection, signer))?;
        let paths = connection.socket_paths();
        let (alive, worker_lives) = mpsc::channel(1);
        let parts = runtime.block_on(sockets.serve(Arc::new(about), control));
        let worker = Worker::new(parts, runtime.handle().clone(), running.clone(), closing.clone(), alive);
        Ok((Self { runtime, running, closing, worker_lives: Some(worker_lives), paths }, worker))
    }

    /// Shuts it down, or interrupts it.
    pub fn control(&self) -> Control {
        Control { running: self.running.clone(), closing: self.closing.clone() }
    }

    /// Waits until the kernel is shut down, and a little for what runs to end. A worker that has not ended then has to be
    /// left behind: the process is to exit.
    pub fn wait(mut self) {
        let mut closing = self.closing.subscribe();
        let worker = self.worker_lives.take();
        self.runtime.block_on(async {
            // The sender is our own.
            let _ = closing.wait_for(|closing| *closing).await;
            if let Some(mut worker) = worker {
                let _ = tokio::time::timeout(LAST_CELL, worker.recv()).await;
            }
            tokio::time::sleep(LAST_WORDS).await;
        });
        for path in &self.paths {
            // Whoever made the connection file may have cleared up already.
            let _ = std::fs::remove_file(path);
        }
        self.runtime.shutdown_background();
    }
}

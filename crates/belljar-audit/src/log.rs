//! The log of a process.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::chain::Hash;
use crate::digest::Identifier;
use crate::event::Event;
use crate::file::FileSink;
use crate::record::{Details, Record};
use crate::writer::{Head, Message, Sink, Writer};

/// The maximum number of records that wait to be written.
const MAX_QUEUED: usize = 8192;
/// The maximum memory of the records that wait to be written, in bytes.
const MAX_QUEUED_BYTES: usize = 64 << 20;
/// The time that [`Audit::close`] waits for the writer.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The behaviour while records cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FailureMode {
    /// Code is refused until they can be written again.
    #[default]
    Stop,
    /// Code runs. Records wait in the queue, and are lost when it is full.
    Warn,
}

/// The options of a log.
pub struct AuditOptions {
    /// The file, if the log has one. Its chain goes on.
    pub file: Option<FileSink>,
    /// The other places that records are written to.
    pub sinks: Vec<Box<dyn Sink>>,
    /// The behaviour while records cannot be written.
    pub failure: FailureMode,
    /// True if records contain code.
    pub with_code: bool,
    /// Removes the secrets that the server knows from a text.
    pub scrub: Box<dyn Fn(String) -> String + Send>,
    /// Receives errors, once each time that writing begins to fail.
    pub on_failure: Box<dyn Fn(&str) + Send>,
}

impl Default for AuditOptions {
    fn default() -> Self {
        Self {
            file: None,
            sinks: Vec::new(),
            failure: FailureMode::Stop,
            with_code: false,
            scrub: Box::new(|text| text),
            on_failure: Box::new(|error| tracing::error!(error, "audit log")),
        }
    }
}

/// The error of code that is refused, since the log cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the audit log of the server cannot be written, and no code runs without it: {0}")]
pub struct AuditStopped(String);

/// The log of a process, or none. Cheap to clone. Without a log, [`Audit::record`] does nothing.
#[derive(Clone, Default)]
pub struct Audit(Option<Arc<Shared>>);

impl fmt::Debug for Audit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Audit").field("is_on", &self.is_on()).finish_non_exhaustive()
    }
}

pub(crate) struct Shared {
    queue: SyncSender<Message>,
    queued_bytes: AtomicUsize,
    lost: AtomicU64,
    has_failed: AtomicBool,
    is_ending: AtomicBool,
    is_closing: AtomicBool,
    failure: Mutex<Option<String>>,
    mode: FailureMode,
    with_code: bool,
    /// The number of the record of the start of this process.
    server: AtomicU64,
    runs: AtomicU64,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Shared {
    /// Records that the writer took records of this size.
    pub(crate) fn take(&self, bytes: usize) {
        self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns the number of records that were lost since the last call, if there are any.
    pub(crate) fn take_lost(&self) -> Option<u64> {
        Some(self.lost.swap(0, Ordering::Relaxed)).filter(|lost| *lost > 0)
    }

    /// Sets the reason why records cannot be written. Returns whether they could before.
    pub(crate) fn set_failure(&self, failure: Option<&str>) -> bool {
        if failure.is_none() && !self.has_failed.load(Ordering::Relaxed) {
            return false;
        }
        *self.failure.lock() = failure.map(str::to_owned);
        !self.has_failed.swap(failure.is_some(), Ordering::Relaxed)
    }

    /// Returns whether the log ends once the queued records are written.
    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Relaxed)
    }

    /// Returns whether the log ends without the records that cannot be written.
    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Relaxed)
    }
}

impl Audit {
    /// Starts a log. Its first record is written before this returns.
    ///
    /// # Errors
    /// Fails if the first record cannot be written and the mode is [`FailureMode::Stop`], or the system refuses a
    /// thread or a random number.
    pub fn start(options: AuditOptions, first: Record) -> std::io::Result<Self> {
        let AuditOptions { file, mut sinks, failure, with_code, scrub, on_failure } = options;
        let mut batch = Vec::new();
        let (mut head, mut begins) = (None, true);
        if let Some(mut file) = file {
            (head, begins) = (file.head(), file.is_new());
            batch.extend(file.take_recovery());
            sinks.insert(0, Box::new(file));
        }
        let head = match head {
            Some(head) => head,
            None => Head { number: 0, hash: Hash::random()? },
        };
        if begins {
            let previous = Some(head.hash.to_string());
            batch.insert(0, Record::new(Event::AuditOpen, Details { previous, ..Details::default() }));
        }
        batch.push(first);
        let (queue, messages) = mpsc::sync_channel(MAX_QUEUED);
        let shared = Arc::new(Shared {
            queue,
            queued_bytes: AtomicUsize::new(0),
            lost: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            failure: Mutex::default(),
            mode: failure,
            with_code,
            server: AtomicU64::new(0),
            runs: AtomicU64::new(0),
            thread: Mutex::default(),
        });
        let mut writer =
            Writer { shared: shared.clone(), sinks, head, scrub, on_failure, unsynced: None, has_sync_failed: false };
        writer.write(batch);
        shared.server.store(writer.head.number, Ordering::Relaxed);
        if let Err(error) = writer.flush() {
            if failure == FailureMode::Stop {
                return Err(std::io::Error::other(error));
            }
            writer.fail(&error);
        }
        let thread = std::thread::Builder::new().name("audit".into()).spawn(move || writer.run(&messages))?;
        *shared.thread.lock() = Some(thread);
        Ok(Self(Some(shared)))
    }

    /// Returns whether there is a log.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Returns whether records contain code.
    pub fn has_code(&self) -> bool {
        self.0.as_ref().is_some_and(|shared| shared.with_code)
    }

    /// Returns the name of another run or cell, which is unique in the chain.
    pub fn next_run(&self) -> Identifier {
        let load = |shared: &Arc<Shared>| {
            (shared.server.load(Ordering::Relaxed), shared.runs.fetch_add(1, Ordering::Relaxed) + 1)
        };
        let (server, number) = self.0.as_ref().map_or((0, 0), load);
        Identifier::Run { server, number }
    }

    /// Queues a record, which `make` creates if there is a log. Does not block.
    pub fn record(&self, make: impl FnOnce() -> Record) {
        let Some(shared) = &self.0 else { return };
        let mut record = Box::new(make());
        record.cut();
        let size = record.size();
        let before = shared.queued_bytes.fetch_add(size, Ordering::Relaxed);
        let queued =
            before.saturating_add(size) <= MAX_QUEUED_BYTES && shared.queue.try_send(Message::Record(record)).is_ok();
        if !queued {
            shared.queued_bytes.fetch_sub(size, Ordering::Relaxed);
            shared.lost.fetch_add(1, Ordering::Relaxed);
            if shared.set_failure(Some("the queue of records is full")) {
                tracing::error!("the queue of records of the audit log is full: records are lost");
            }
        }
    }

    /// Returns whether code may run.
    ///
    /// # Errors
    /// Fails if records cannot be written, and the mode is [`FailureMode::Stop`].
    pub fn admit(&self) -> Result<(), AuditStopped> {
        match &self.0 {
            Some(shared) if shared.mode == FailureMode::Stop && shared.has_failed.load(Ordering::Relaxed) => {
                let reason = shared.failure.lock().clone();
                Err(AuditStopped(reason.unwrap_or_default()))
            }
            _ => Ok(()),
        }
    }

    /// Writes `last` and everything that is queued, and ends the log. Later records are dropped. Blocks for a few
    /// seconds at most.
    pub fn close(&self, last: impl FnOnce() -> Record) {
        let Some(shared) = &self.0 else { return };
        let Some(thread) = shared.thread.lock().take() else { return };
        shared.is_ending.store(true, Ordering::Relaxed);
        self.record(last);
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        let mut message = Message::Close;
        while let Err(mpsc::TrySendError::Full(same)) = shared.queue.try_send(message) {
            message = same;
            if Instant::now() > deadline {
                break;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        // It may wait for the end of an interval.
        thread.thread().unpark();
        while !thread.is_finished() && Instant::now() < deadline {
            std::thread::sleep(POLL_INTERVAL);
            if shared.has_failed.load(Ordering::Relaxed) {
                shared.is_closing.store(true, Ordering::Relaxed);
            }
        }
    }
}

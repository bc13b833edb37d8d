//! The thread that numbers, seals and writes records.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant, SystemTime};

use serde::Serialize;

use crate::chain::{Hash, seal};
use crate::event::Event;
use crate::log::Shared;
use crate::record::{Details, Record};

/// The maximum number of records that are written at once.
const MAX_BATCH: usize = 256;
/// The time after which written records are synced to the disk.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);
/// The time for which records are collected before they are written together.
const COLLECT_INTERVAL: Duration = Duration::from_millis(10);
/// The number of intervals without a record after which the thread waits for one. Until then it looks for records when
/// an interval is over, so that calls which follow one another do not wake it: that takes the call a system call, and
/// in a virtual machine an interrupt of another processor.
const MAX_IDLE_INTERVALS: u32 = 20;
/// The interval at which a failed write is tried again.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// A record as it is written.
pub struct ChainedRecord {
    /// The record, without secrets.
    pub record: Record,
    /// Its line, without the line break.
    pub line: String,
}

/// A place that records are written to.
pub trait Sink: Send {
    /// Takes records. They are written by [`Sink::flush`], at the latest.
    fn push(&mut self, batch: &[ChainedRecord]);

    /// Writes the records that were taken and have not been written. Those that fail stay, and are written by a later
    /// call.
    ///
    /// # Errors
    /// Fails if not everything could be written.
    fn flush(&mut self) -> io::Result<()>;

    /// Syncs what was written to the disk.
    ///
    /// # Errors
    /// Fails if the sync fails: records that were written may be lost in a power failure.
    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Returns the number of records that this place has lost since the last call, although they were taken.
    fn take_lost(&mut self) -> u64 {
        0
    }

    /// Returns whether the next record should begin a new file.
    fn is_full(&self) -> bool {
        false
    }

    /// Begins a new file.
    ///
    /// # Errors
    /// Fails if the new file cannot be begun; the records go on in the same file.
    fn rotate(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Returns the name for errors.
    fn name(&self) -> String;
}

/// The bytes that a sink has to write. Bytes that were written leave it, also if the rest fails.
#[derive(Default)]
pub(crate) struct Pending {
    bytes: Vec<u8>,
    written: usize,
}

impl Pending {
    pub(crate) fn push(&mut self, batch: &[ChainedRecord]) {
        for chained in batch {
            self.bytes.extend_from_slice(chained.line.as_bytes());
            self.bytes.push(b'\n');
        }
    }

    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Writes the bytes, and returns their number.
    pub(crate) fn write(&mut self, output: &mut impl Write) -> io::Result<u64> {
        let mut count = 0;
        while let Some(rest) = self.bytes.get(self.written..).filter(|rest| !rest.is_empty()) {
            match output.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(length) => {
                    self.written += length;
                    count += length as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.bytes.clear();
        self.written = 0;
        Ok(count)
    }
}

/// A [`Sink`] of lines on a stream.
pub struct StreamSink<W> {
    output: W,
    pending: Pending,
    name: String,
}

impl<W: Write + Send> StreamSink<W> {
    /// Creates a sink. Errors call the stream `name`.
    pub fn new(output: W, name: impl Into<String>) -> Self {
        Self { output, pending: Pending::default(), name: name.into() }
    }
}

impl<W: Write + Send> Sink for StreamSink<W> {
    fn push(&mut self, batch: &[ChainedRecord]) {
        self.pending.push(batch);
    }

    fn flush(&mut self) -> io::Result<()> {
        self.pending.write(&mut self.output)?;
        self.output.flush()
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

/// A message to the thread.
pub(crate) enum Message {
    Record(Box<Record>),
    /// Write what is queued, and end.
    Close,
}

/// The end of a chain: the number and the hash of its last record.
#[derive(Clone, Copy)]
pub(crate) struct Head {
    pub(crate) number: u64,
    pub(crate) hash: Hash,
}

/// The state of the thread.
pub(crate) struct Writer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) sinks: Vec<Box<dyn Sink>>,
    pub(crate) head: Head,
    pub(crate) scrub: Box<dyn Fn(String) -> String + Send>,
    pub(crate) on_failure: Box<dyn Fn(&str) + Send>,
    /// The time of the first write that was not synced, or of the last sync that has failed.
    pub(crate) unsynced: Option<Instant>,
    /// True from a sync that has failed to the next that does not.
    pub(crate) has_sync_failed: bool,
}

#[derive(Serialize)]
struct Beginning {
    seq: u64,
    time: String,
    event: Event,
}

impl Writer {
    /// Writes records until the log is closed.
    pub(crate) fn run(mut self, queue: &Receiver<Message>) {
        let mut idle_intervals = MAX_IDLE_INTERVALS;
        // True if more records are queued than were taken.
        let mut has_more = false;
        loop {
            let mut batch = Vec::new();
            let mut is_closed = false;
            if idle_intervals >= MAX_IDLE_INTERVALS || self.shared.is_ending() {
                let received = match self.unsynced {
                    Some(since) => queue.recv_timeout(SYNC_INTERVAL.saturating_sub(since.elapsed())),
                    None => queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
                };
                match received {
                    Ok(Message::Record(record)) => batch.push(*record),
                    Ok(Message::Close) | Err(RecvTimeoutError::Disconnected) => is_closed = true,
                    Err(RecvTimeoutError::Timeout) => {
                        self.sync();
                        continue;
                    }
                }
            }
            if !is_closed && !has_more && !self.shared.is_ending() {
                // The end of the log ends this wait.
                std::thread::park_timeout(COLLECT_INTERVAL);
            }
            while batch.len() < MAX_BATCH && !is_closed {
                match queue.try_recv() {
                    Ok(Message::Record(record)) => batch.push(*record),
                    Ok(Message::Close) | Err(TryRecvError::Disconnected) => is_closed = true,
                    Err(TryRecvError::Empty) => break,
                }
            }
            has_more = batch.len() == MAX_BATCH;
            if batch.is_empty() && !is_closed {
                idle_intervals += 1;
                self.sync_if_due();
                continue;
            }
            idle_intervals = 0;
            self.shared.take(batch.iter().map(Record::size).sum());
            if let Some(lost) = self.shared.take_lost() {
                batch.push(Record::new(Event::AuditLost, Details { count: Some(lost), ..Details::default() }));
            }
            if !batch.is_empty() {
                // Before the others: the last record of a log is that of the server's end.
                let mut lost: Vec<Record> = self.sinks.iter_mut().filter_map(|sink| lost_by(&mut **sink)).collect();
                lost.append(&mut batch);
                batch = lost;
            }
            self.write(batch);
            // A log that cannot be written is not waited for at the end.
            while let Err(error) = self.flush() {
                self.fail(&error);
                if is_closed {
                    return;
                }
                std::thread::sleep(RETRY_INTERVAL);
                if self.shared.is_closing() {
                    return;
                }
            }
            if !self.has_sync_failed {
                self.shared.set_failure(None);
            }
            self.sync_if_due();
            if is_closed {
                self.sync();
                return;
            }
        }
    }

    /// Seals records and passes them to the sinks.
    pub(crate) fn write(&mut self, batch: Vec<Record>) {
        if batch.is_empty() {
            return;
        }
        if self.sinks.iter().any(|sink| sink.is_full()) {
            self.rotate();
        }
        let chained: Vec<ChainedRecord> = batch.into_iter().map(|record| self.seal(record)).collect();
        for sink in &mut self.sinks {
            sink.push(&chained);
        }
    }

    fn rotate(&mut self) {
        for at in 0..self.sinks.len() {
            let Some(sink) = self.sinks.get_mut(at).filter(|sink| sink.is_full()) else { continue };
            let rotated = sink.flush().and_then(|()| sink.sync()).and_then(|()| sink.rotate());
            match rotated {
                Ok(()) => {
                    let previous = Some(self.head.hash.to_string());
                    let opened = Record::new(Event::AuditOpen, Details { previous, ..Details::default() });
                    let chained = [self.seal(opened)];
                    self.sinks.iter_mut().for_each(|sink| sink.push(&chained));
                }
                Err(error) => tracing::warn!(%error, "failed to begin a new file of the audit log"),
            }
        }
    }

    fn seal(&mut self, mut record: Record) -> ChainedRecord {
        record.prepare(&*self.scrub);
        let number = self.head.number + 1;
        let mut line = line(number, &record);
        let hash = seal(self.head.hash, &mut line);
        self.head = Head { number, hash };
        ChainedRecord { record, line }
    }

    /// Writes what the sinks have.
    pub(crate) fn flush(&mut self) -> Result<(), String> {
        self.unsynced.get_or_insert_with(Instant::now);
        let mut result = Ok(());
        for sink in &mut self.sinks {
            if let Err(error) = sink.flush() {
                result = Err(format!("failed to write {}: {error}", sink.name()));
            }
        }
        result
    }

    /// Syncs what was written a while ago.
    fn sync_if_due(&mut self) {
        if self.unsynced.is_some_and(|since| since.elapsed() >= SYNC_INTERVAL) {
            self.sync();
        }
    }

    /// Syncs what was written. A failure lasts until a later call succeeds.
    fn sync(&mut self) {
        let mut result = Ok(());
        for sink in &mut self.sinks {
            if let Err(error) = sink.sync() {
                result = Err(format!("failed to sync {}: {error}", sink.name()));
            }
        }
        match result {
            Ok(()) => {
                self.unsynced = None;
                if std::mem::take(&mut self.has_sync_failed) {
                    self.shared.set_failure(None);
                }
            }
            Err(error) => {
                self.unsynced = Some(Instant::now());
                self.has_sync_failed = true;
                self.fail(&error);
            }
        }
    }

    pub(crate) fn fail(&mut self, error: &str) {
        if self.shared.set_failure(Some(error)) {
            (self.on_failure)(error);
        }
    }
}

/// Returns the record about the records that a place has lost, if it has lost any.
fn lost_by(sink: &mut dyn Sink) -> Option<Record> {
    let count = Some(sink.take_lost()).filter(|lost| *lost > 0)?;
    Some(Record::new(Event::AuditLost, Details { name: Some(sink.name()), count: Some(count), ..Details::default() }))
}

/// Returns the JSON object of a record, without its hash.
pub(crate) fn line(number: u64, record: &Record) -> String {
    let beginning = Beginning { seq: number, time: timestamp(record.time), event: record.event };
    let mut line = serde_json::to_string(&beginning).unwrap_or_default();
    let details = serde_json::to_string(&record.details).unwrap_or_default();
    if details.len() > 2 {
        line.pop();
        line.push(',');
        line.push_str(details.get(1..).unwrap_or_default());
    }
    line
}

/// Returns a time in RFC 3339, in UTC, with microseconds.
fn timestamp(time: SystemTime) -> String {
    jiff::Timestamp::try_from(time).map(|time| format!("{time:.6}")).unwrap_or_default()
}

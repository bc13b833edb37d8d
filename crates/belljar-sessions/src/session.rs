//! One session: calls wait in its queue and run one after the other, on whichever guest thread is free.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_core::progress::Progress;
use serde_json::Value;

use crate::files::{FileAddress, FileError, FileInfo, Range, check_path, check_plain_name};
use crate::id::SessionId;
use crate::kernel::{Audience, Backend, Bundle, CellRequest, End, Executed, Interrupt, Kernel, KernelError, Output};
use crate::notebook;
use crate::outputs;
use crate::pool::Busy;
use crate::store::{Lease, Store, StoreError};

/// Files that are reported after one cell.
const MOST_REPORTED: usize = 200;
/// Longest file that can be uploaded, in bytes.
const MAX_UPLOAD: usize = 64 << 20;

/// Why nothing was done.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// There is no such session, or there was one.
    #[error(
        "SessionExpiredError: Session {id} not found or has expired. Sessions expire after {after} of inactivity. Please \
         create a new session (use session_id=\"\" or session_id=\"0\") and re-execute your setup code."
    )]
    Expired {
        /// The name that was given, shortened.
        id: String,
        /// `30 minutes`
        after: String,
    },
    /// Its queue is full.
    #[error("SessionBusyError: {waiting} calls to the session wait already; wait for their answers")]
    Queue {
        /// How many wait.
        waiting: usize,
    },
    /// There are too many.
    #[error(
        "TooManySessionsError: {0} sessions are open, and no more can be; clear one that is not needed (--max-sessions)"
    )]
    TooMany(usize),
    /// Too much is being done already.
    #[error("ServerBusyError: {0}")]
    Busy(#[from] Busy),
    /// The kernel does not do it.
    #[error("SessionError: {0}")]
    Kernel(#[from] KernelError),
    /// The file cannot be read or written.
    #[error("FileError: {0}")]
    File(#[from] FileError),
    /// Its state cannot be used.
    #[error("SessionStateError: {0}")]
    Store(#[from] StoreError),
    /// Its variables cannot be brought back.
    #[error(
        "SessionStateError: the session's variables cannot be restored: {0}. Its files can be listed and read; \
         restart_session begins anew with them"
    )]
    Refused(String),
    /// The call ended without an answer: the session was cleared meanwhile, or a fault of ours.
    #[error("SessionError: the session was cleared before the call was answered")]
    Gone,
}

/// An image that a cell shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    /// `image/png`, `image/jpeg` or `image/svg+xml`.
    pub mime: &'static str,
    /// The file, in base64.
    pub data: String,
}

/// A file that is new, or was written to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    /// The file as it is now.
    pub file: FileInfo,
    /// Whether it was not there before.
    pub is_new: bool,
}

/// What a cell came to, and what became of the session's files.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// How it ended.
    pub end: End,
    /// What it gave, in order, cut to what is read.
    pub outputs: Vec<Output>,
    /// The images among it.
    pub pictures: Vec<Picture>,
    /// Files that are new or changed.
    pub files: Vec<FileChange>,
    /// How many more there are.
    pub more_files: usize,
    /// Whether the list of files is another one than before.
    pub list_changed: bool,
}

/// What all sessions are made with.
pub(crate) struct Shop {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) store: Option<Store>,
}

/// What is done to a session, on a guest thread.
/// The answer is whoever waits for it: told when the session is free for the next call.
pub(crate) type Job = Box<dyn FnOnce(&mut State) -> Answered + Send>;

/// Tells whoever waits for a job.
pub(crate) type Answered = Box<dyn FnOnce() + Send>;

/// One session.
pub(crate) struct Session {
    pub(crate) id: SessionId,
    queue: Mutex<Queue>,
    state: Mutex<State>,
    /// When it was used last, in milliseconds since 1970.
    used: AtomicU64,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    busy: bool,
    closed: bool,
    running: Option<Arc<dyn Interrupt>>,
}

/// What became of a job that was handed in.
pub(crate) enum Queued {
    /// The caller must have a guest thread call [`Session::work`].
    First,
    /// It runs after those before it.
    Waiting,
    /// The session is closed: look for it again.
    Closed(Job),
    /// Too many wait.
    Full(usize),
}

impl Session {
    pub(crate) fn new(id: SessionId, stored: bool, now: Duration) -> Self {
        let state = State {
            id: id.clone(),
            kernel: if stored { Slot::Stored } else { Slot::New },
            files: BTreeMap::new(),
            lease: None,
        };
        Self { id, queue: Mutex::default(), state: Mutex::new(state), used: AtomicU64::new(milliseconds(now)) }
    }

    /// A session whose kernel is there already.
    pub(crate) fn with_kernel(id: SessionId, mut kernel: Box<dyn Kernel>, now: Duration) -> Self {
        let files = listed(&mut *kernel);
        let state = State { id: id.clone(), kernel: Slot::Awake(kernel), files, lease: None };
        Self { id, queue: Mutex::default(), state: Mutex::new(state), used: AtomicU64::new(milliseconds(now)) }
    }

    pub(crate) fn touch(&self, now: Duration) {
        self.used.fetch_max(milliseconds(now), Ordering::Relaxed);
    }

    pub(crate) fn used(&self) -> Duration {
        Duration::from_millis(self.used.load(Ordering::Relaxed))
    }

    /// Whether nothing runs and nothing waits.
    pub(crate) fn is_idle(&self) -> bool {
        let queue = self.queue();
        !queue.busy && queue.jobs.is_empty()
    }

    /// Hands in a job; at most `most` may wait.
    pub(crate) fn submit(&self, job: Job, most: usize) -> Queued {
        let mut queue = self.queue();
        if queue.closed {
            return Queued::Closed(job);
        }
        if queue.jobs.len() >= most {
            return Queued::Full(queue.jobs.len());
        }
        queue.jobs.push_back(job);
        if std::mem::replace(&mut queue.busy, true) { Queued::Waiting } else { Queued::First }
    }

    /// Takes back that [`Session::submit`] said `First`: nobody can work.
    pub(crate) fn give_up(&self) {
        let mut queue = self.queue();
        queue.jobs.clear();
        queue.busy = false;
    }

    /// Does what waits, until nothing does.
    pub(crate) fn work(&self) {
        let mut next = self.queue().jobs.pop_front();
        while let Some(job) = next {
            let answered = job(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
            let mut queue = self.queue();
            queue.running = None;
            next = queue.jobs.pop_front();
            queue.busy = next.is_some();
            drop(queue);
            answered();
        }
    }

    /// Takes no more jobs; those that wait are dropped, but for `last`. What runs is ended. Answers whether the caller must
    /// have a guest thread call [`Session::work`].
    pub(crate) fn close(&self, last: Job) -> bool {
        let mut queue = self.queue();
        queue.closed = true;
        queue.jobs.clear();
        queue.jobs.push_back(last);
        if let Some(running) = queue.running.take() {
            running.stop();
        }
        !std::mem::replace(&mut queue.busy, true)
    }

    /// Takes no more jobs if none waits; to be called by the job that is the last.
    pub(crate) fn close_if_last(&self) -> bool {
        let mut queue = self.queue();
        queue.closed = queue.jobs.is_empty();
        queue.closed
    }

    /// What runs now can be stopped by this.
    pub(crate) fn runs(&self, interrupt: Option<Arc<dyn Interrupt>>) {
        self.queue().running = interrupt;
    }

    /// Interrupts what runs; `false` when nothing does.
    pub(crate) fn interrupt(&self) -> bool {
        let queue = self.queue();
        queue.running.iter().for_each(|running| running.interrupt());
        queue.running.is_some()
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Where a session's kernel is.
enum Slot {
    /// Nothing was done yet.
    New,
    /// In the store.
    Stored,
    Awake(Box<dyn Kernel>),
    /// In the store, and cannot be used; these files were in it.
    Refused {
        reason: String,
        files: BTreeMap<String, Vec<u8>>,
    },
}

/// What a session's jobs work on.
pub(crate) struct State {
    id: SessionId,
    kernel: Slot,
    /// The files as they were after the last cell.
    files: BTreeMap<String, (u64, i128)>,
    lease: Option<Lease>,
}

impl State {
    /// The kernel, made or woken if need be.
    fn awake(&mut self, shop: &Shop, progress: &dyn Progress) -> Result<&mut Box<dyn Kernel>, SessionError> {
        if let Some(store) =
            shop.store.as_ref().filter(|store| store.is_lasting() || matches!(self.kernel, Slot::Stored))
            && self.lease.is_none()
        {
            self.lease = Some(store.lease(&self.id, !matches!(self.kernel, Slot::Stored))?);
        }
        match &self.kernel {
            Slot::New => self.kernel = Slot::Awake(shop.backend.start(progress)?),
            Slot::Stored => self.wake(shop, progress)?,
            Slot::Awake(_) | Slot::Refused { .. } => {}
        }
        match &mut self.kernel {
            Slot::Awake(kernel) => Ok(kernel),
            Slot::Refused { reason, .. } => Err(SessionError::Refused(reason.clone())),
            Slot::New | Slot::Stored => Err(SessionError::Gone),
        }
    }

    fn wake(&mut self, shop: &Shop, progress: &dyn Progress) -> Result<(), SessionError> {
        let stored = shop.store.as_ref().ok_or(StoreError::Missing)?.read(&self.id)?;
        self.kernel = match shop.backend.wake(&stored.saved, progress) {
            Ok(mut kernel) => {
                self.files = listed(&mut *kernel);
                Slot::Awake(kernel)
            }
            Err(KernelError::Refused(reason)) => {
                Slot::Refused { reason, files: shop.backend.files_of(&stored.saved).into_iter().collect() }
            }
            Err(other) => return Err(other.into()),
        };
        Ok(())
    }

    /// Runs a cell. `runs` is told what stops it, and answers whether it is to run at all.
    pub(crate) fn execute(
        &mut self,
        shop: &Shop,
        cell: &CellRequest,
        audience: Arc<dyn Audience>,
        now: Duration,
        runs: impl FnOnce(Arc<dyn Interrupt>) -> bool,
    ) -> Result<Report, SessionError> {
        let kernel = self.awake(shop, &*audience)?;
        if !runs(kernel.interrupter()) {
            return Err(SessionError::Gone);
        }
        let mut executed = kernel.execute(cell, audience);
        if let End::Died(reason) = &mut executed.end {
            kernel.restart()?;
            reason.push_str(". The session's variables are lost; its files are kept, and it can be used on");
        }
        let record =
            shop.store.as_ref().is_some_and(Store::is_lasting).then(|| notebook::code_cell(&cell.code, &executed));
        let report = self.report(executed)?;
        self.keep(shop, now)?;
        if let (Some(record), Some(store)) = (record, &shop.store) {
            store.record(&self.id, &record)?;
        }
        Ok(report)
    }

    /// Has images and what is too long in files, and says what became of the files.
    fn report(&mut self, executed: Executed) -> Result<Report, SessionError> {
        let Slot::Awake(kernel) = &mut self.kernel else { return Err(SessionError::Gone) };
        let Executed { count, end, mut outputs } = executed;
        let mut pictures = Vec::new();
        for output in &outputs {
            if let Output::Shown(bundle) | Output::Value(bundle) = output {
                keep_forms(&mut **kernel, bundle, count, &mut pictures);
            }
        }
        if let Some(whole) = outputs::overlong(&outputs) {
            let note = kept(&mut **kernel, &self.id, &format!("output_{count}.txt"), &whole);
            outputs::cut(&mut outputs, &note);
        }
        for output in &mut outputs {
            if let Output::Shown(bundle) | Output::Value(bundle) = output
                && let Some(text) = outputs::plain(bundle).filter(|text| text.len() > outputs::WHOLE).map(str::to_owned)
            {
                let note = kept(&mut **kernel, &self.id, &format!("result_{count}.txt"), &text);
                bundle.insert("text/plain".into(), outputs::cut_text(&text, &note).into());
            }
        }
        let now: Vec<FileInfo> = kernel.files();
        let before = std::mem::take(&mut self.files);
        self.files = now.iter().map(|file| (file.path.clone(), (file.size, file.modified))).collect();
        let list_changed = !before.keys().eq(self.files.keys());
        let changed = now.into_iter().filter(|file| before.get(&file.path) != Some(&(file.size, file.modified)));
        let change = |file: FileInfo| FileChange { is_new: !before.contains_key(&file.path), file };
        let mut files: Vec<FileChange> = changed.map(change).collect();
        files.sort_by(|one, other| one.file.path.cmp(&other.file.path));
        let more_files = files.len().saturating_sub(MOST_REPORTED);
        files.truncate(MOST_REPORTED);
        Ok(Report { end, outputs, pictures, files, more_files, list_changed })
    }

    /// Writes the state, where states are to survive.
    fn keep(&mut self, shop: &Shop, now: Duration) -> Result<(), SessionError> {
        match &shop.store {
            Some(store) if store.is_lasting() => self.write(store, now),
            _ => Ok(()),
        }
    }

    fn write(&mut self, store: &Store, now: Duration) -> Result<(), SessionError> {
        let Slot::Awake(kernel) = &mut self.kernel else { return Ok(()) };
        Ok(store.write(&self.id, &kernel.save()?, now)?)
    }

    /// Puts the kernel to sleep; answers whether there is one in the store now.
    pub(crate) fn sleep(&mut self, shop: &Shop, used: Duration) -> Result<bool, SessionError> {
        let Some(store) = &shop.store else { return Ok(false) };
        if matches!(self.kernel, Slot::Awake(_)) {
            // A state that survives was written after the last cell; unless nothing was run yet.
            if !store.is_lasting() || matches!(store.head(&self.id), Err(StoreError::Missing)) {
                self.write(store, used)?;
            }
            self.kernel = Slot::Stored;
            self.files.clear();
        }
        self.lease = None;
        Ok(matches!(self.kernel, Slot::Stored | Slot::Refused { .. }))
    }

    /// Forgets and deletes everything.
    pub(crate) fn destroy(&mut self, shop: &Shop) -> Result<(), SessionError> {
        self.kernel = Slot::New;
        if let Some(store) = &shop.store {
            if self.lease.is_none() && !matches!(store.head(&self.id), Err(StoreError::Missing)) {
                self.lease = Some(store.lease(&self.id, false)?);
            }
            store.remove(&self.id)?;
        }
        self.lease = None;
        Ok(())
    }

    /// A fresh interpreter; the files stay.
    pub(crate) fn restart(&mut self, shop: &Shop, now: Duration) -> Result<(), SessionError> {
        match self.awake(shop, &belljar_core::NoProgress) {
            Ok(kernel) => kernel.restart()?,
            Err(SessionError::Refused(_)) => {
                let mut kernel = shop.backend.start(&belljar_core::NoProgress)?;
                if let Slot::Refused { files, .. } = &self.kernel {
                    for (path, bytes) in files {
                        kernel.write(path, bytes)?;
                    }
                }
                self.files = listed(&mut *kernel);
                self.kernel = Slot::Awake(kernel);
            }
            Err(error) => return Err(error),
        }
        self.keep(shop, now)
    }

    /// Another kernel with the same variables and files.
    pub(crate) fn fork(&mut self, shop: &Shop) -> Result<Box<dyn Kernel>, SessionError> {
        Ok(self.awake(shop, &belljar_core::NoProgress)?.fork()?)
    }

    /// Keeps a kernel's state that was not run by [`State::execute`].
    pub(crate) fn begin(&mut self, shop: &Shop, now: Duration) -> Result<(), SessionError> {
        self.awake(shop, &belljar_core::NoProgress)?;
        self.keep(shop, now)
    }

    /// The session's files, sorted.
    pub(crate) fn list(&mut self, shop: &Shop) -> Result<Vec<FileInfo>, SessionError> {
        let awake = self.awake(shop, &belljar_core::NoProgress);
        let mut files = match awake.map(|kernel| kernel.files()) {
            Ok(files) => files,
            Err(SessionError::Refused(_)) => self.refused_files(),
            Err(error) => return Err(error),
        };
        files.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(files)
    }

    fn refused_files(&self) -> Vec<FileInfo> {
        let Slot::Refused { files, .. } = &self.kernel else { return Vec::new() };
        let shown = files.iter().filter(|(path, _)| check_path(path).is_ok());
        shown.map(|(path, bytes)| FileInfo { path: path.clone(), size: bytes.len() as u64, modified: 0 }).collect()
    }

    /// Part of a file, and its length.
    pub(crate) fn read(&mut self, shop: &Shop, path: &str, range: Range) -> Result<Vec<u8>, SessionError> {
        check_path(path)?;
        match self.awake(shop, &belljar_core::NoProgress) {
            Ok(kernel) => Ok(kernel.read(path, range)?),
            Err(SessionError::Refused(_)) => {
                let Slot::Refused { files, .. } = &self.kernel else { return Err(SessionError::Gone) };
                let bytes = files.get(path).ok_or_else(|| FileError::Missing(path.into()))?;
                let start = usize::try_from(range.offset).unwrap_or(usize::MAX).min(bytes.len());
                let length = range.length.and_then(|length| usize::try_from(length).ok()).unwrap_or(usize::MAX);
                Ok(bytes[start..start + length.min(bytes.len() - start)].to_vec())
            }
            Err(error) => Err(error),
        }
    }

    /// Writes an uploaded file.
    pub(crate) fn upload(
        &mut self,
        shop: &Shop,
        name: &str,
        bytes: &[u8],
        now: Duration,
    ) -> Result<FileInfo, SessionError> {
        check_plain_name(name)?;
        if bytes.len() > MAX_UPLOAD {
            let reason = format!("it has {} bytes, and at most {MAX_UPLOAD} are taken", bytes.len());
            return Err(FileError::Other { path: name.into(), reason }.into());
        }
        let kernel = self.awake(shop, &belljar_core::NoProgress)?;
        kernel.write(name, bytes)?;
        self.files = listed(&mut **kernel);
        self.keep(shop, now)?;
        Ok(FileInfo { path: name.into(), size: bytes.len() as u64, modified: 0 })
    }
}

fn listed(kernel: &mut dyn Kernel) -> BTreeMap<String, (u64, i128)> {
    kernel.files().into_iter().map(|file| (file.path, (file.size, file.modified))).collect()
}

/// Writes what is too long for an answer to a file; answers the note that stands in its place.
fn kept(kernel: &mut dyn Kernel, id: &SessionId, name: &str, text: &str) -> String {
    match kernel.write(name, text.as_bytes()) {
        Ok(()) => format!("\n[… cut here: all {} bytes are in {}]\n", text.len(), FileAddress::format(id, name)),
        Err(error) => format!("\n[… cut here: of {} bytes the rest is lost, {error}]\n", text.len()),
    }
}

/// A kind of image that clients show.
struct Kind {
    mime: &'static str,
    extension: &'static str,
    /// Whether a file begins as one of this kind does.
    is: fn(&[u8]) -> bool,
}

const KINDS: [Kind; 3] = [
    Kind { mime: "image/png", extension: "png", is: |bytes| bytes.starts_with(b"\x89PNG\r\n\x1a\n") },
    Kind { mime: "image/jpeg", extension: "jpg", is: |bytes| bytes.starts_with(b"\xff\xd8\xff") },
    Kind { mime: "image/svg+xml", extension: "svg", is: |bytes| bytes.trim_ascii_start().starts_with(b"<") },
];

const PLOTLY: &str = "application/vnd.plotly.v1+json";

/// Writes the image among something's forms to a file, and adds it to `pictures`; of a figure of plotly, its page and data.
fn keep_forms(kernel: &mut dyn Kernel, bundle: &Bundle, count: u64, pictures: &mut Vec<Picture>) {
    let number = pictures.len() + 1;
    for kind in &KINDS {
        let Some(form) = bundle.get(kind.mime).and_then(Value::as_str) else { continue };
        let bytes = if kind.extension == "svg" {
            Ok(form.as_bytes().to_vec())
        } else {
            STANDARD.decode(form.replace('\n', ""))
        };
        let Some(bytes) = bytes.ok().filter(|bytes| (kind.is)(bytes)) else { continue };
        let name = format!("inline_{count}_{number}.{}", kind.extension);
        if let Err(error) = kernel.write(&name, &bytes) {
            tracing::debug!(%error, "an image is shown and not kept");
        }
        pictures.push(Picture { mime: kind.mime, data: STANDARD.encode(&bytes) });
        return;
    }
    if let Some(figure) = bundle.get(PLOTLY) {
        let json = figure.as_str().map_or_else(|| figure.to_string(), str::to_owned);
        let html = bundle.get("text/html").and_then(Value::as_str);
        for (extension, text) in [("json", Some(json.as_str())), ("html", html)] {
            // Two figures of one cell are told apart by what is there already.
            let free = (1..).map(|number| format!("plot_{count}_{number}.{extension}"));
            let there = listed(kernel);
            if let (Some(text), Some(name)) = (text, free.take(1000).find(|name| !there.contains_key(name)))
                && let Err(error) = kernel.write(&name, text.as_bytes())
            {
                tracing::debug!(%error, "a figure is shown and not kept");
            }
        }
    }
}

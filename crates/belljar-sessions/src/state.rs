//! What a session is: its kernel, awake or in the store, its files, and what is done to them one call after the other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use belljar_core::progress::Progress;

use crate::error::SessionError;
use crate::files::check_plain_name;
use crate::id::SessionId;
use crate::notebook;
use crate::outputs;
use crate::report::{FileChange, Report, keep_forms, kept};
use crate::store::{Lease, Store, StoreError, Unsettled};
use belljar_core::files::{FileError, FileInfo, Range, check_path};
use belljar_core::kernel::{Audience, Backend, CellRequest, End, Executed, Interrupt, Kernel, KernelError, Output};

/// Files that are reported after one cell.
const MOST_REPORTED: usize = 200;
/// Longest file that can be uploaded, in bytes.
const MAX_UPLOAD: usize = 64 << 20;

/// What all sessions are made with.
pub(crate) struct Shop {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) store: Option<Store>,
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
    /// What was written last, until it is on the disk.
    unsettled: Option<Unsettled>,
}

impl State {
    /// A session that nothing was done to yet, or that is in the store.
    pub(crate) fn new(id: SessionId, stored: bool) -> Self {
        let kernel = if stored { Slot::Stored } else { Slot::New };
        Self { id, kernel, files: BTreeMap::new(), lease: None, unsettled: None }
    }

    /// A session whose kernel is there already.
    pub(crate) fn with_kernel(id: SessionId, mut kernel: Box<dyn Kernel>) -> Self {
        let files = listed(&mut *kernel);
        Self { id, kernel: Slot::Awake(kernel), files, lease: None, unsettled: None }
    }

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
        let Executed { count, mut end, mut outputs } = executed;
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
        if let End::Raised { error, traceback } = &mut end {
            let whole = traceback.join("\n");
            if error.len().max(whole.len()) > outputs::WHOLE {
                let note = kept(&mut **kernel, &self.id, &format!("error_{count}.txt"), &whole);
                for text in traceback.iter_mut().chain([error]).filter(|text| text.len() > outputs::WHOLE) {
                    *text = outputs::cut_text(text, &note);
                }
                if traceback.iter().map(String::len).sum::<usize>() > outputs::WHOLE {
                    *traceback = vec![outputs::cut_text(&whole, &note)];
                }
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
            Some(store) if store.is_lasting() => self.write(store, now).map(drop),
            _ => Ok(()),
        }
    }

    /// Writes the state; `false` when the backend has none to write, and the session lives as long as the process.
    fn write(&mut self, store: &Store, now: Duration) -> Result<bool, SessionError> {
        let Slot::Awake(kernel) = &mut self.kernel else { return Ok(false) };
        match kernel.save() {
            Ok(saved) => self.unsettled = store.write(&self.id, &saved, now)?,
            Err(KernelError::Unsupported(_)) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }

    /// Waits until what was written is on the disk. Called after each job, when its answer is on its way.
    pub(crate) fn settle(&mut self) {
        if let Some(written) = &self.unsettled {
            match written.settle() {
                Ok(()) => self.unsettled = None,
                // The next write tries again, and fails in its caller's sight.
                Err(error) => tracing::warn!(%error, "a session's state may not outlast a power failure"),
            }
        }
    }

    /// Puts the kernel to sleep; answers whether there is one in the store now.
    pub(crate) fn sleep(&mut self, shop: &Shop, used: Duration) -> Result<bool, SessionError> {
        let Some(store) = &shop.store else { return Ok(false) };
        if matches!(self.kernel, Slot::Awake(_)) {
            // A state that survives was written after the last cell; unless nothing was run yet.
            let unwritten = !store.is_lasting() || matches!(store.head(&self.id), Err(StoreError::Missing));
            if unwritten && !self.write(store, used)? {
                return Ok(false);
            }
            self.kernel = Slot::Stored;
            self.files.clear();
        }
        self.settle();
        self.lease = None;
        Ok(matches!(self.kernel, Slot::Stored | Slot::Refused { .. }))
    }

    /// Forgets and deletes everything.
    pub(crate) fn destroy(&mut self, shop: &Shop) -> Result<(), SessionError> {
        self.kernel = Slot::New;
        self.unsettled = None;
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

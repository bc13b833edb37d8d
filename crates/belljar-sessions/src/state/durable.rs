//! A cell that waits on the disk: saving it while it waits, dropping its interpreter, and continuing it.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use belljar_core::activity::trace::SpanName;
use belljar_core::activity::{CodeActivity, CodeKind, CodeOutcome};
use belljar_core::kernel::{Kernel, KernelError};
use belljar_core::{Wait, Waker};

use super::{FileIndex, KernelState, RunningCell, SessionServices, SessionState};
use crate::bases::PendingBase;
use crate::error::SessionError;
use crate::id::SessionId;
use crate::runs::{Run, RunCalls, RunEvent, RunRegistry};
use crate::sessions::{HeldRun, Owner, milliseconds_now};
use crate::store::{Lease, StoreError, StoredRun};

/// The waits of a cell.
pub(crate) struct CellWaits<'a> {
    /// Called when the waiting cell can go on.
    pub(crate) waker: Waker,
    /// Set if the cell can wait on the disk.
    pub(crate) durable: Option<DurableCell>,
    /// The nanoseconds of processor time of the code, if operators see them.
    pub(crate) cpu: Option<&'a AtomicU64>,
}

/// The part of a cell that can wait on the disk.
pub(crate) struct DurableCell {
    pub(crate) run: Arc<Run>,
    /// The calls of the cell; `None` while the interpreter is on the disk.
    pub(crate) calls: Option<Arc<dyn RunCalls>>,
    /// Begins the calls that go on in a restored interpreter, until they were begun.
    pub(crate) start: Option<Box<dyn FnOnce() + Send>>,
    /// True if the cell was read from a store in which it has calls that do not wait for an answer.
    pub(crate) has_sent_calls: bool,
    pub(crate) runs: Arc<RunRegistry>,
    pub(crate) waker: Waker,
    /// True if the cell as it is now is on the disk.
    pub(crate) is_saved: bool,
    /// The beginning of the current wait.
    pub(crate) since: Instant,
    /// Saves the cell while it holds its thread in a wait.
    pub(crate) held: Arc<HeldRun>,
}

impl DurableCell {
    /// Has the cell recorded that is about to begin, or to be restored. `files` are those of the session before it.
    fn record(&self, kernel: &mut dyn Kernel, calls: Option<Arc<dyn RunCalls>>, files: FileIndex) {
        let recorder = self.held.recorder(calls, files);
        self.run.set_recorded(recorder.is_some_and(|recorder| kernel.record(recorder)));
    }

    /// Has the cell recorded that is about to begin.
    pub(super) fn record_new(&self, kernel: &mut dyn Kernel, files: &FileIndex) {
        self.record(kernel, self.calls.clone(), files.clone());
    }

    /// Notes that a cell with a folder of the host is not recorded: what it reads there may be different the next time.
    pub(super) fn refuse_recording(&self) {
        self.run.set_not_durable("the files of the session are in a directory of the host".to_owned());
    }
}

impl SessionState {
    /// Creates the state of a session whose cell waits in the store.
    pub(crate) fn asleep(
        id: SessionId,
        owner: Option<Owner>,
        lease: Lease,
        run: &StoredRun,
        durable: DurableCell,
    ) -> Self {
        let activity = CodeActivity::default();
        let running =
            RunningCell { code: run.info.code.clone(), activity, before: Some(index_of(run)), durable: Some(durable) };
        let mut state = Self::new(id, owner, true);
        (state.kernel, state.lease, state.running) = (KernelState::Asleep, Some(lease), Some(running));
        state
    }

    /// Returns the durable part of the waiting cell.
    pub(crate) fn durable(&mut self) -> Option<&mut DurableCell> {
        self.running.as_mut()?.durable.as_mut()
    }

    /// Returns whether the waiting cell is to be continued before its timer is due: replies have arrived.
    pub(crate) fn has_replies(&mut self) -> bool {
        match &mut self.kernel {
            KernelState::Running(kernel) => kernel.has_replies(),
            KernelState::Asleep => false,
            _ => true,
        }
    }

    /// Wakes the waiting cell if it is asleep and has calls that can go on: those that were sent, or have an answer.
    /// The cell waits on until they reply, and stays on the disk.
    ///
    /// # Errors
    /// Fails if the cell cannot be restored.
    pub(crate) fn wake_for_calls(&mut self, services: &SessionServices) -> Result<(), SessionError> {
        let is_asleep = matches!(self.kernel, KernelState::Asleep);
        let Some(durable) = self.durable() else { return Ok(()) };
        if !is_asleep || !(durable.has_sent_calls || durable.run.has_answers()) {
            return Ok(());
        }
        self.wake(services)?;
        let id = self.id.clone();
        let Some(durable) = self.durable() else { return Ok(()) };
        let store = services.store.as_ref().ok_or(StoreError::Missing)?;
        *durable.run.journal.lock() = store.open_journal(&id, &durable.run.info.id)?;
        durable.run.advance(RunEvent::Wake);
        durable.since = Instant::now();
        if let Some(start) = durable.start.take() {
            start();
        }
        Ok(())
    }

    /// Saves the cell, which waits and goes on by itself after `timer`. Returns whether it is saved.
    ///
    /// # Errors
    /// Fails if the state cannot be written.
    pub(crate) fn save_waiting(
        &mut self,
        services: &SessionServices,
        timer: Option<Duration>,
        now: Duration,
    ) -> Result<bool, SessionError> {
        let (Some(store), KernelState::Running(kernel)) = (&services.store, &mut self.kernel) else {
            return Ok(false);
        };
        let Some(RunningCell { before, durable: Some(durable), .. }) = &mut self.running else { return Ok(false) };
        let Some(calls) = &durable.calls else { return Ok(false) };
        // The cell is about to go on, and is saved when it waits again: its questions are put then.
        if kernel.has_replies() {
            return Ok(false);
        }
        let snapshot = match kernel.snapshot() {
            Ok(snapshot) => snapshot,
            Err(KernelError::Unsupported(_)) if kernel.has_replies() => return Ok(false),
            Err(KernelError::Unsupported(reason)) => {
                tracing::debug!(%reason, "a waiting cell is not saved");
                durable.run.show_questions();
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        };
        let files = entries_of(before.as_ref().unwrap_or(&self.files));
        let wake_at = timer.map(|timer| milliseconds_now().saturating_add(as_milliseconds(timer)));
        let run = durable.run.clone();
        // Locked, so that a call that is sent meanwhile is in the file or in the journal.
        let mut journal = run.journal.lock();
        let stored = StoredRun {
            info: run.info.clone(),
            questions: run.questions(),
            wake_at,
            calls: calls.save(),
            call_count: calls.count(),
            // An answer has removed its question, and its call has not received it or does not wait any more. Asked in
            // this order, so that the call is in one of the three.
            has_sent_calls: run.has_answers() || calls.has_active_calls(),
            files,
            start: None,
            inputs: run.inputs(),
            origin: run.origin(),
        };
        // A call that has ended since the snapshot is in neither of the two: its reply would be lost.
        if kernel.has_replies() {
            return Ok(false);
        }
        let (opened, pending) = store.write_waiting(&self.id, self.owner.as_deref(), &snapshot, &stored, now)?;
        if let Some(tenant) = &self.tenant {
            tenant.set_stored(&self.id, Some(store.size_of(&self.id)));
        }
        *journal = opened;
        drop(journal);
        let base = store.pending_base(&services.backend, snapshot.base);
        self.pending_base = base.map(PendingBase::keep_first).transpose()?.flatten();
        store.commit_run(&self.id, self.owner.as_deref(), &stored)?;
        self.pending_sync = Some(pending);
        durable.is_saved = true;
        run.show_questions();
        Ok(true)
    }

    /// Drops the interpreter of a cell that has waited for at least `idle`. Returns whether it is asleep.
    pub(crate) fn sleep_waiting(&mut self, idle: Duration) -> bool {
        let KernelState::Running(kernel) = &mut self.kernel else { return false };
        let Some(RunningCell { durable: Some(durable), activity, .. }) = &mut self.running else { return false };
        let Some(calls) = &durable.calls else { return false };
        if !durable.is_saved || durable.since.elapsed() < idle {
            return false;
        }
        // Calls reply before they end, so that a reply is seen by one of the two.
        if !durable.run.suspend(|| !calls.has_active_calls() && !kernel.has_replies()) {
            return false;
        }
        if let Some(calls) = durable.calls.take() {
            calls.suspend();
        }
        // Nothing is sent until the cell wakes: an open file for each of many cells would be too many.
        durable.run.journal.lock().close();
        durable.run.interrupt.detach();
        durable.run.advance(RunEvent::Sleep);
        activity.leave();
        self.kernel = KernelState::Asleep;
        true
    }

    /// Leaves the cell on the disk, whose interpreter has ended while it held its thread in a wait.
    pub(super) fn after_suspension(&mut self, mut running: RunningCell) -> Result<Wait, SessionError> {
        let durable = running.durable.as_mut().ok_or(SessionError::Gone)?;
        durable.calls = None;
        durable.is_saved = true;
        durable.since = Instant::now();
        let timer = durable.held.take_timer();
        running.activity.leave();
        self.running = Some(running);
        self.kernel = KernelState::Asleep;
        Ok(Wait { timer, for_host: true })
    }

    /// Drops the kernel: the session goes on from its state in the store, which is from before the cell.
    pub(super) fn discard_kernel(&mut self, services: &SessionServices) {
        let is_stored = self.has_state(services);
        tracing::debug!(session = self.id.as_str(), is_stored, "the interpreter of a session is discarded");
        self.kernel = if is_stored { KernelState::Stored } else { KernelState::NotStarted };
        self.matches_store = true;
    }

    /// Returns whether the session's state is stored. A state that cannot be read is one: the session must not begin
    /// from nothing.
    pub(super) fn has_state(&self, services: &SessionServices) -> bool {
        services.store.as_deref().is_some_and(|store| {
            let is_in_cluster = store.cluster().is_some() && self.was_stored;
            is_in_cluster || !matches!(store.header(&self.id), Err(StoreError::Missing))
        })
    }

    /// Makes the waiting cell ready to go on: restores its interpreter, and notes on the disk that it goes on.
    pub(super) fn prepare_resume(&mut self, services: &SessionServices) -> Result<(), SessionError> {
        if matches!(self.kernel, KernelState::Asleep) {
            self.wake(services)?;
        }
        let id = self.id.clone();
        let Some(durable) = self.durable() else { return Ok(()) };
        let mut journal = durable.run.journal.lock();
        if std::mem::take(&mut durable.is_saved) {
            let store = services.store.as_ref().ok_or(StoreError::Missing)?;
            store.resume_waiting(&id)?;
            journal.close();
            // Another replica cannot go on with the cell from now on.
            store.commit(&id)?;
        }
        drop(journal);
        durable.run.advance(RunEvent::Resume);
        // After the renaming: calls are not in the journal any more, and a saved cell would send them a second time.
        if let Some(start) = durable.start.take() {
            start();
        }
        Ok(())
    }

    /// Restores the interpreter of the cell that waits in the store.
    pub(super) fn wake(&mut self, services: &SessionServices) -> Result<(), SessionError> {
        let running = self.running.as_mut().ok_or(SessionError::Gone)?;
        let durable = running.durable.as_ref().ok_or(SessionError::Gone)?;
        if !running.activity.is_on() {
            // The cell began in another process.
            let scope = durable.run.resumed_scope(&services.activity());
            let kind = if durable.run.info.is_program { CodeKind::Run } else { CodeKind::Cell };
            running.activity = CodeActivity::resumed(&scope, kind, &running.code, services.cpu_clock());
        }
        let activity = running.activity.clone();
        activity.enter(SpanName::Restore);
        let begin = Instant::now();
        let woken = self.restore_waiting(services);
        self.record_wake(services, begin, woken.as_ref().err().map(ToString::to_string));
        match &woken {
            Ok(()) => activity.enter(SpanName::Run),
            Err(error) => activity.end(CodeOutcome::failed(self.recorded_error(error))),
        }
        woken
    }

    fn restore_waiting(&mut self, services: &SessionServices) -> Result<(), SessionError> {
        let store = services.store.as_ref().ok_or(StoreError::Missing)?;
        // If anything fails, the session goes on from before the cell.
        self.discard_kernel(services);
        let (snapshot, stored, sent) = store.read_waiting(&self.id)?;
        if stored.start.is_none() {
            store.set_start(&self.id)?;
        }
        let base = || store.find_base(snapshot.base.as_deref());
        let folder = if stored.info.is_program { None } else { self.folder(services)? };
        let folder = folder.map(|opened| opened.folder);
        let restored = services.backend.restore(&snapshot, &base, folder.as_ref(), &belljar_core::NoProgress);
        let mut kernel = restored?;
        let running = self.running.as_mut().ok_or(SessionError::Gone)?;
        let durable = running.durable.as_mut().ok_or(SessionError::Gone)?;
        let resumer = durable.runs.resumer.get().ok_or(SessionError::Gone)?;
        let resumed = resumer.resume(&durable.run, &stored.calls, &sent);
        let resumed = resumed.map_err(|reason| KernelError::Failed(reason.into()))?;
        durable.run.set_inputs(stored.inputs);
        durable.record(&mut *kernel, Some(resumed.calls.clone()), index_of(&stored));
        let observer = running.activity.observe(durable.run.watched(resumed.observer));
        let replies = kernel.reattach(observer, durable.waker.clone())?;
        durable.run.interrupt.attach(kernel.interrupt_handle());
        durable.calls = Some(resumed.calls);
        durable.start = Some(Box::new(move || (resumed.start)(&replies)));
        durable.has_sent_calls = false;
        self.kernel = KernelState::Running(kernel);
        Ok(())
    }
}

/// Returns the session's files before the cell of a run.
fn index_of(run: &StoredRun) -> FileIndex {
    let index = |(path, size, modified): &(String, u64, i64)| (path.clone(), (*size, i128::from(*modified)));
    run.files.iter().map(index).collect()
}

/// Returns files in the form of [`StoredRun::files`].
pub(crate) fn entries_of(files: &FileIndex) -> Vec<(String, u64, i64)> {
    let entry = |(path, (size, modified)): (&String, &(u64, i128))| {
        (path.clone(), *size, i64::try_from(*modified).unwrap_or(i64::MAX))
    };
    files.iter().map(entry).collect()
}

pub(crate) fn as_milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

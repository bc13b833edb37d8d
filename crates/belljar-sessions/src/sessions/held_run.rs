//! Saves a run whose cell holds its thread in a wait: `input()`, `.result()` of a tool's call, `asyncio.run`, a sleep.
//!
//! ```text
//!  the cell waits ─▶ on_wait … ─▶ `waiting` is written, the questions are put ─▶ the reply ─▶ end_wait: `resumed`
//!                                       └ it has waited for long: the interpreter ends, and the run is asleep
//! ```

use std::sync::Arc;
use std::time::Duration;

use belljar_core::kernel::{INPUT_TIMEOUT, KernelError, KernelSnapshot};
use belljar_core::{
    CellRecorder, HeldCellSaver, HeldSnapshot, HeldWait, HeldWaitDecision, HeldWaitKind, NoProgress, SnapshotOfWait,
};
use parking_lot::Mutex;

use super::cell_call::SAVE_AFTER;
use super::milliseconds_now;
use super::table::{SessionEntry, Shared};
use crate::bases::PendingBase;
use crate::error::SessionError;
use crate::runs::{Run, RunCalls, RunEvent};
use crate::state::FileIndex;
use crate::state::durable::{as_milliseconds, entries_of};
use crate::store::{StartFile, Store, StoreError, StoredRun};

/// The time before the end of a wait for input at which the interpreter ends at the latest.
const BEFORE_TIMEOUT: Duration = Duration::from_secs(10);

/// A run whose cell may hold its thread in a wait.
pub(crate) struct HeldRun {
    shared: Arc<Shared>,
    run: Arc<Run>,
    cell: Mutex<HeldCell>,
}

/// The state of the cell.
#[derive(Default)]
struct HeldCell {
    calls: Option<Arc<dyn RunCalls>>,
    /// The session's files before the cell.
    files: FileIndex,
    /// True if the cell as it waits now is on the disk.
    is_saved: bool,
    /// True if the cell cannot be saved.
    has_failed: bool,
    /// The time after which a cell goes on whose interpreter has ended.
    timer: Option<Duration>,
}

impl HeldRun {
    pub(super) fn new(shared: Arc<Shared>, run: Arc<Run>) -> Self {
        Self { shared, run, cell: Mutex::default() }
    }

    /// Returns the recorder of the cell in the interpreter that is about to run it, unless cells are not recorded.
    /// `files` are those of the session before the cell.
    pub(crate) fn recorder(
        self: &Arc<Self>,
        calls: Option<Arc<dyn RunCalls>>,
        files: FileIndex,
    ) -> Option<CellRecorder> {
        let max_bytes = self.shared.options.replay_memory;
        let is_recorded = max_bytes > 0 && !self.run.info.is_program && self.store().is_ok();
        *self.cell.lock() = HeldCell { calls, files, ..HeldCell::default() };
        is_recorded.then(|| CellRecorder { saver: self.clone(), max_bytes })
    }

    /// Returns the time after which the cell goes on by itself, whose interpreter has ended.
    pub(crate) fn take_timer(&self) -> Option<Duration> {
        self.cell.lock().timer.take()
    }

    fn store(&self) -> Result<&Store, StoreError> {
        let store = self.shared.services.store.as_deref().filter(|store| store.is_persistent());
        store.ok_or(StoreError::Missing)
    }

    /// Makes the snapshot of the cell. Returns the file that has the beginning of its data, if the store has it.
    fn snapshot(&self, snapshot: &mut SnapshotOfWait<'_>) -> Result<(KernelSnapshot, Option<StartFile>), SessionError> {
        if let Some((header, mut file)) = self.store()?.start_of(&self.run.session, &self.run.info.id)? {
            let length = usize::try_from(header.length()).unwrap_or(usize::MAX);
            let HeldSnapshot { metadata, start_length, recording } = snapshot(&header.metadata, length)?;
            let (is_copy, base) = (header.is_copy(), header.base().map(str::to_owned));
            let snapshot = KernelSnapshot { metadata, data: recording, is_copy, base };
            file.length = start_length;
            return Ok((snapshot, Some(file)));
        }
        // The cell is the session's first.
        let start = self.shared.services.backend.start(None, &NoProgress)?.snapshot()?;
        let HeldSnapshot { metadata, start_length, recording } = snapshot(&start.metadata, start.data.len())?;
        let mut data = start.data;
        data.truncate(start_length);
        data.extend_from_slice(&recording);
        Ok((KernelSnapshot { metadata, data, ..start }, None))
    }

    /// Saves the cell. Returns whether it is saved: not if it is about to go on.
    fn save(
        &self,
        cell: &HeldCell,
        wait: &HeldWait<'_>,
        snapshot: &mut SnapshotOfWait<'_>,
    ) -> Result<bool, SessionError> {
        let (run, store) = (&self.run, self.store()?);
        let Some(calls) = &cell.calls else { return Ok(false) };
        let (snapshot, start) = self.snapshot(snapshot)?;
        let wake_at = wait.timer.map(|timer| milliseconds_now().saturating_add(as_milliseconds(timer)));
        // Locked, so that a call that is sent meanwhile is in the file or in the journal.
        let mut journal = run.journal.lock();
        let is_asked = wait.kind != HeldWaitKind::Input || run.asks_for_input();
        let stored = StoredRun {
            info: run.info.clone(),
            questions: run.questions(),
            wake_at,
            calls: calls.save(),
            call_count: calls.count(),
            has_sent_calls: run.has_answers() || calls.has_active_calls(),
            files: entries_of(&cell.files),
            start,
            inputs: run.inputs().saturating_sub((wait.kind == HeldWaitKind::Input).into()),
            origin: run.origin(),
        };
        // An answer or a reply since then is in neither of them: the cell has it, and goes on.
        if !is_asked || (wait.has_replies)() {
            return Ok(false);
        }
        let owner = run.owner.as_deref();
        let now = self.shared.clock.now();
        let (opened, pending) = store.write_waiting(&run.session, owner, &snapshot, &stored, now)?;
        *journal = opened;
        let size = store.size_of(&run.session);
        if let Some(SessionEntry::Active(session)) = self.shared.table.lock().get(&run.session) {
            session.tenant.set_stored(&run.session, Some(size));
        }
        drop(journal);
        if !cell.is_saved {
            run.advance(RunEvent::Wait);
        }
        run.show_questions();
        let base = store.pending_base(&self.shared.services.backend, snapshot.base);
        let base = match base.map(PendingBase::keep_first).transpose() {
            Ok(base) => base.flatten(),
            Err(error) => {
                tracing::warn!(%error, "a waiting cell is not stored: it ends with this server");
                return Ok(true);
            }
        };
        if let Err(error) = pending.sync().and_then(|()| store.commit_run(&run.session, owner, &stored)) {
            tracing::warn!(%error, "failed to sync a waiting cell: a power failure may lose it");
        }
        if let Some(base) = base {
            base.keep();
        }
        Ok(true)
    }

    /// Ends the calls of the cell, which go on elsewhere. Returns false if it is about to go on here.
    fn suspend(&self, cell: &mut HeldCell, wait: &HeldWait<'_>) -> bool {
        let Some(calls) = cell.calls.clone() else { return false };
        let can_end = || {
            !calls.has_active_calls()
                && !(wait.has_replies)()
                && (wait.kind == HeldWaitKind::Calls || wait.is_abandoned || self.run.asks_for_input())
        };
        // Calls reply before they end, so that a reply is seen by one of the two.
        if !self.run.suspend(can_end) {
            return false;
        }
        calls.suspend();
        self.run.journal.lock().close();
        self.run.interrupt.detach();
        self.run.advance(RunEvent::Sleep);
        *cell = HeldCell { timer: wait.timer, ..HeldCell::default() };
        true
    }
}

impl HeldCellSaver for HeldRun {
    fn on_wait(&self, wait: &HeldWait<'_>, snapshot: &mut SnapshotOfWait<'_>) -> HeldWaitDecision {
        let mut cell = self.cell.lock();
        if cell.has_failed {
            self.run.show_questions();
            return HeldWaitDecision::Wait;
        }
        if wait.is_abandoned {
            let is_suspended = cell.is_saved && self.suspend(&mut cell, wait);
            return if is_suspended { HeldWaitDecision::Suspend } else { HeldWaitDecision::Wait };
        }
        self.run.set_held(true);
        let is_wanted = if cell.is_saved {
            self.run.has_hidden_questions() || (wait.has_replies)()
        } else {
            self.run.has_questions() || wait.elapsed >= SAVE_AFTER
        };
        if is_wanted {
            match self.save(&cell, wait, snapshot) {
                Ok(is_saved) => cell.is_saved |= is_saved,
                Err(error) => {
                    let reason = if let SessionError::Kernel(KernelError::Unsupported(reason)) = error {
                        tracing::info!(%reason, "a cell that holds its thread does not survive the end of the server");
                        reason.into_owned()
                    } else {
                        tracing::warn!(%error, "a cell that holds its thread is not saved");
                        error.to_string()
                    };
                    cell.has_failed = true;
                    self.run.set_not_durable(reason);
                }
            }
        }
        let end = self.shared.options.sleep_after;
        let end = match wait.kind {
            HeldWaitKind::Input => end.min(INPUT_TIMEOUT.saturating_sub(BEFORE_TIMEOUT)),
            HeldWaitKind::Calls => end,
            // Only the code knows when it goes on.
            HeldWaitKind::Sleep => return HeldWaitDecision::Wait,
        };
        if cell.is_saved && wait.elapsed >= end && self.suspend(&mut cell, wait) {
            self.run.set_held(false);
            return HeldWaitDecision::Suspend;
        }
        HeldWaitDecision::Wait
    }

    fn end_wait(&self) -> Result<(), String> {
        let mut cell = self.cell.lock();
        self.run.set_held(false);
        if !std::mem::take(&mut cell.is_saved) {
            return Ok(());
        }
        let mut journal = self.run.journal.lock();
        // Before the next instruction of the code: no cell goes on twice.
        let store = self.store().map_err(|error| error.to_string())?;
        store.resume_waiting(&self.run.session).map_err(|error| error.to_string())?;
        journal.close();
        store.commit(&self.run.session).map_err(|error| error.to_string())?;
        drop(journal);
        self.run.advance(RunEvent::Resume);
        Ok(())
    }
}

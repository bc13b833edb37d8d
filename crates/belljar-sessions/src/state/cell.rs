//! The cells of a session: each is begun, continued, and reported with the files that it has changed.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use belljar_core::activity::trace::SpanName;
use belljar_core::activity::{CodeActivity, CodeKind, CodeOutcome};
use belljar_core::files::FileInfo;
use belljar_core::kernel::{CellError, CellObserver, CellRequest, InterruptHandle, KernelError};
use belljar_core::{CellResult, CellStatus, CellStep, ExitReason, Output, Wait};

use super::durable::{CellWaits, DurableCell};
use super::{FileIndex, KernelState, SessionServices, SessionState, file_index};
use crate::error::SessionError;
use crate::notebook;
use crate::outputs::truncate;
use crate::report::{AfterKernelDeath, AnswerOptions, CellReport, FileChange, save_images};
use crate::store::Store;
use crate::traceback;

/// The maximum number of files that a cell's report lists.
const MAX_REPORTED_FILES: usize = 200;

/// The decision about a cell whose code is about to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CellStart {
    Started,
    /// The caller has gone.
    Cancelled,
    /// The cell was interrupted while it was queued.
    Interrupted,
}

/// A cell that has begun.
pub(super) struct RunningCell {
    pub(super) code: String,
    pub(super) activity: CodeActivity,
    /// The files before the cell, if they may differ from those after the last one.
    pub(super) before: Option<FileIndex>,
    /// Set if the cell can wait on the disk.
    pub(super) durable: Option<DurableCell>,
}

/// The progress of a cell.
pub(crate) enum CellProgress {
    Completed(Box<CellReport>),
    /// The cell waits: [`SessionState::resume`] continues it.
    Waiting(Wait),
}

impl From<CellReport> for CellProgress {
    fn from(report: CellReport) -> Self {
        Self::Completed(Box::new(report))
    }
}

impl SessionState {
    /// Runs a cell until it ends or waits. `begin_running` receives the cell's interrupt handle when the kernel is
    /// ready for its code, and `waker` is called when the waiting cell can go on.
    pub(crate) fn execute(
        &mut self,
        services: &SessionServices,
        cell: CellRequest,
        observer: Arc<dyn CellObserver>,
        now: Duration,
        begin_running: impl FnOnce(Arc<dyn InterruptHandle>) -> CellStart,
        CellWaits { waker, durable, cpu }: CellWaits<'_>,
    ) -> Result<CellProgress, SessionError> {
        let CellRequest { scope, .. } = &cell;
        scope.set_session(self.id.as_str());
        let is_program = durable.as_ref().is_some_and(|durable| durable.run.info.is_program);
        let kind = if is_program { CodeKind::Run } else { CodeKind::Cell };
        let activity = CodeActivity::begin(scope, kind, &cell.code, services.cpu_clock());
        let observer = activity.observe(observer);
        if !matches!(self.kernel, KernelState::Running(_)) {
            activity.enter(SpanName::Restore);
        }
        if let Err(error) = self.ensure_running(services, &*observer) {
            activity.end(CodeOutcome::failed(self.recorded_error(&error)));
            return Err(error);
        }
        let KernelState::Running(kernel) = &mut self.kernel else { return Err(SessionError::Gone) };
        match begin_running(kernel.interrupt_handle()) {
            CellStart::Started => {}
            CellStart::Cancelled => return Err(SessionError::Gone),
            CellStart::Interrupted => return Ok(CellReport::interrupted().into()),
        }
        let matches_store = std::mem::replace(&mut self.matches_store, false);
        // Files that the host has changed in the session's folder are not changes of the cell.
        let before = services.folders.is_some().then(|| file_index(&mut **kernel));
        let is_resumable = cell.exchange.as_ref().is_none_or(|exchange| exchange.is_resumable);
        match &durable {
            Some(durable) if before.is_some() => durable.refuse_recording(),
            Some(durable) if matches_store && is_resumable => durable.record_new(&mut **kernel, &self.files),
            _ => {}
        }
        // The kernel reports when the code begins: after its packages were installed.
        let step = activity.measure_with(cpu, || kernel.begin(&cell, observer, waker));
        self.after_step(services, RunningCell { code: cell.code, activity, before, durable }, step, now)
    }

    /// Continues the cell that waits, until it ends or waits again. Its processor time is added to `cpu`.
    pub(crate) fn resume(
        &mut self,
        services: &SessionServices,
        now: Duration,
        cpu: Option<&AtomicU64>,
    ) -> Result<CellProgress, SessionError> {
        self.prepare_resume(services)?;
        let running = self.running.take().ok_or(SessionError::Gone)?;
        let KernelState::Running(kernel) = &mut self.kernel else { return Err(SessionError::Gone) };
        let step = running.activity.measure_with(cpu, || kernel.resume());
        self.after_step(services, running, step, now)
    }

    /// Ends a step of a cell: keeps the cell if it waits, or reports it.
    fn after_step(
        &mut self,
        services: &SessionServices,
        running: RunningCell,
        step: CellStep,
        now: Duration,
    ) -> Result<CellProgress, SessionError> {
        match step {
            CellStep::Waiting(wait) => {
                self.running = Some(running);
                Ok(CellProgress::Waiting(wait))
            }
            CellStep::Completed(result) if self.loses_to_cancellation(services, &result.status) => {
                running.activity.end(&result.status);
                if let (Some(_), Some(store)) = (running.durable, &services.store) {
                    store.remove_waiting(&self.id)?;
                }
                self.discard_kernel(services);
                Err(KernelError::Cancelled.into())
            }
            CellStep::Completed(result) => self.complete(services, running, result, now).map(Into::into),
            CellStep::Suspended => self.after_suspension(running).map(CellProgress::Waiting),
            CellStep::Failed(error) => {
                running.activity.end(CodeOutcome::failed(self.recorded_error(&error)));
                self.discard_kernel(services);
                Err(error.into())
            }
        }
    }

    /// Returns whether a cell has ended its interpreter because its call was cancelled, while the state from before it
    /// is stored. The session goes on from that: what was answered before is not lost.
    fn loses_to_cancellation(&self, services: &SessionServices, status: &CellStatus) -> bool {
        let is_persistent = services.store.as_deref().is_some_and(Store::is_persistent);
        matches!(status, CellStatus::KernelDied(ExitReason::Cancelled)) && is_persistent && self.has_state(services)
    }

    /// Reports and stores a cell that has ended.
    fn complete(
        &mut self,
        services: &SessionServices,
        RunningCell { code, activity, mut before, durable }: RunningCell,
        result: CellResult,
        now: Duration,
    ) -> Result<CellReport, SessionError> {
        activity.end(&result.status);
        let KernelState::Running(kernel) = &mut self.kernel else { return Err(SessionError::Gone) };
        let mut after_death = AfterKernelDeath::Files;
        if let CellStatus::KernelDied(reason) = &result.status {
            tracing::debug!(session = self.id.as_str(), ?reason, "the interpreter has ended, and starts again");
            match kernel.restart() {
                Err(KernelError::ProcessEnded) => after_death = self.recover(services)?,
                restarted => restarted?,
            }
        }
        let limits = *services.backend.limits();
        let is_program = durable.as_ref().is_some_and(|durable| durable.run.info.is_program);
        let is_recorded = !is_program && services.store.as_deref().is_some_and(Store::is_persistent);
        let record = is_recorded.then(|| notebook::code_cell(&code, &result, &limits));
        let mut answers = services.answers;
        if is_program {
            // It has no files for the rest of its output.
            answers.max_bytes = usize::MAX;
        }
        if after_death != AfterKernelDeath::Files {
            // The files are those from before the cell.
            before = None;
        }
        let report = CellReport { after_death, ..self.report(result, before, answers)? };
        self.persist(services, now)?;
        if let (Some(_), Some(store)) = (durable, &services.store) {
            store.remove_waiting(&self.id)?;
        }
        if let (Some(record), Some(store)) = (record, &services.store) {
            store.append_cell(&self.id, &record)?;
        }
        // A program ends now, and with it what was stored of it.
        if !is_program {
            self.commit(services)?;
        }
        Ok(report)
    }

    /// Saves images and overlong text in files, and reports the changes to the session's files. `before` has the files
    /// before the cell, if they may differ from those after the last one.
    fn report(
        &mut self,
        result: CellResult,
        before: Option<FileIndex>,
        answers: AnswerOptions,
    ) -> Result<CellReport, SessionError> {
        let KernelState::Running(kernel) = &mut self.kernel else { return Err(SessionError::Gone) };
        let CellResult { execution_count: count, mut status, mut outputs } = result;
        let mut images = Vec::new();
        for output in &outputs {
            if let Output::Display(bundle) | Output::ExecuteResult(bundle) = output {
                save_images(&mut **kernel, bundle, count, &mut images);
            }
        }
        if let CellStatus::Error(CellError { traceback, .. }) | CellStatus::TimedOut { traceback, .. } = &mut status
            && !answers.all_frames
        {
            traceback::leave_out_library_frames(traceback);
        }
        truncate(&mut **kernel, &self.id, count, answers.max_bytes, &mut outputs, &mut status);
        let now: Vec<FileInfo> = kernel.files();
        let last = std::mem::take(&mut self.files);
        self.files = now.iter().map(|file| (file.path.clone(), (file.size, file.modified))).collect();
        let list_changed = !last.keys().eq(self.files.keys());
        let before = before.unwrap_or(last);
        let changed = now.into_iter().filter(|file| before.get(&file.path) != Some(&(file.size, file.modified)));
        let change = |file: FileInfo| FileChange { is_new: !before.contains_key(&file.path), file };
        let mut files: Vec<FileChange> = changed.map(change).collect();
        files.sort_by(|one, other| one.file.path.cmp(&other.file.path));
        let more_files = files.len().saturating_sub(MAX_REPORTED_FILES);
        files.truncate(MAX_REPORTED_FILES);
        let memory = kernel.memory();
        let after_death = AfterKernelDeath::default();
        Ok(CellReport { status, outputs, images, files, more_files, list_changed, memory, after_death })
    }
}

//! Cells of persistent sessions as runs: they can wait on the disk, and their results wait for clients that left.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use belljar_audit::{Details, Event, Identifier};
use belljar_core::kernel::{CellObserver, CellRequest, OneShotRequest};
use belljar_core::{Party, Wait};
use serde_json::Value;
use tokio::sync::oneshot;

use super::cell_call::CellCall;
use super::held_run::HeldRun;
use super::queueing::{job, result};
use super::table::SessionEntry;
use super::{Sessions, new_id};
use crate::error::SessionError;
use crate::history::CellGuard;
use crate::id::SessionId;
use crate::parking::ParkedWork;
use crate::report::CellReport;
use crate::runs::{Run, RunAnswer, RunCalls, RunId, RunInfo, RunOutcome, RunResumer, RunState};
use crate::session::{JobKind, JobWait, Session};
use crate::state::SessionState;
use crate::state::durable::DurableCell;
use crate::store::{ListedRun, RunCommand, Store, StoreError, StoredResult};
use crate::tenants::{Tenant, TenantKey};

/// The result of a cell that goes on after a restart.
pub type ResumedReport = std::pin::Pin<Box<dyn Future<Output = Result<CellReport, SessionError>> + Send>>;

/// A run that goes on after a restart, and the result of its cell.
pub type ResumedRun = (Arc<Run>, ResumedReport);

/// The runs of a store.
#[derive(Default)]
pub struct StoredRuns {
    /// The runs that wait.
    pub waiting: Vec<ResumedRun>,
    /// The runs that were lost, since their process ended while their code ran.
    pub lost: Vec<Arc<Run>>,
}

impl Sessions {
    /// Returns whether cells can wait on the disk.
    pub fn are_durable(&self) -> bool {
        self.persistent_store().is_some()
    }

    /// Returns whether [`Sessions::create_program`] creates runs, which can wait on the disk.
    pub fn supports_programs(&self) -> bool {
        self.are_durable() && self.shared.services.backend.supports_programs()
    }

    fn persistent_store(&self) -> Option<&Store> {
        self.shared.services.store.as_deref().filter(|store| store.is_persistent())
    }

    /// Returns a key for a purpose, which each process with the same data directory or store gets.
    ///
    /// # Errors
    /// Fails if there is no data directory, or its key cannot be read.
    pub fn derive_key(&self, purpose: &str) -> Result<[u8; 32], StoreError> {
        let store = self.persistent_store().ok_or(StoreError::Damaged("there is no data directory"))?;
        store.derive_key(purpose)
    }

    /// Sets what continues the calls of runs. Only the first call has an effect.
    pub fn set_run_resumer(&self, resumer: Arc<dyn RunResumer>) {
        let _ = self.shared.runs.resumer.set(resumer);
    }

    /// Creates the run of a cell that is about to be queued.
    ///
    /// # Errors
    /// Fails if the session does not exist.
    pub fn create_run(
        &self,
        session: &SessionId,
        code: &str,
        arguments: Value,
        is_new_session: bool,
    ) -> Result<Arc<Run>, SessionError> {
        self.create_run_of(session, code, arguments, is_new_session, false)
    }

    /// Creates a session that runs `program` as its only cell, and the run of that. Returns `None` if programs of this
    /// backend cannot wait on the disk.
    ///
    /// # Errors
    /// Fails if the maximum number of sessions is open.
    pub fn create_program(&self, program: OneShotRequest, arguments: Value) -> Result<Option<Arc<Run>>, SessionError> {
        let code = program.code.clone();
        let Some(kernel) = self.shared.services.backend.program(program) else { return Ok(None) };
        let id = new_id()?;
        let (owner, tenant) = (self.owner.clone(), self.tenant.clone());
        let session = Session::with_kernel(id.clone(), owner, tenant, kernel, self.shared.clock.now());
        self.shared.add(Arc::new(session.with_program(true)))?;
        self.create_run_of(&id, &code, arguments, true, true).map(Some)
    }

    /// Ends the session of a program that has ended.
    ///
    /// # Errors
    /// Fails if the session has ended before, or its files cannot be deleted.
    pub fn end_program(&self, run: &Run) -> impl Future<Output = Result<(), SessionError>> + Send + use<> {
        self.for_owner(run.owner.clone()).end(&run.session)
    }

    fn create_run_of(
        &self,
        session: &SessionId,
        code: &str,
        arguments: Value,
        is_new_session: bool,
        is_program: bool,
    ) -> Result<Arc<Run>, SessionError> {
        let id = RunId::parse(new_id()?.as_str()).ok_or(SessionError::Gone)?;
        let (code, began) = (code.to_owned(), milliseconds_now());
        let info = RunInfo { id, code, arguments, began, is_new_session, is_program };
        let owner = self.open(session)?.owner.clone();
        let run = Arc::new(Run::new(info, session.clone(), owner, RunState::Pending));
        self.commit_journal_of(&run);
        self.shared.runs.insert(run.clone());
        Ok(run)
    }

    /// Runs a cell as a run. Dropping the future does not end the cell: see [`Run::cancel`].
    ///
    /// # Errors
    /// Fails if the cell was not run. The report contains the errors of the cell itself.
    pub fn execute_run(
        &self,
        run: &Arc<Run>,
        cell: CellRequest,
        observer: Arc<dyn CellObserver>,
        calls: Arc<dyn RunCalls>,
    ) -> impl Future<Output = Result<CellReport, SessionError>> + Send + use<> {
        let kind = JobKind::Cell(cell.code.len());
        run.set_origin(cell.scope.origin());
        let queued = self.open(&run.session).and_then(|session| {
            let record = self.record_cell(&session, &cell.code);
            let call = self.cell_call(run, record);
            let work = move |state: &mut SessionState, session: &Session| {
                call.begin(state, session, cell, observer, Some(calls))
            };
            self.queue_code(session, kind, Box::new(work))
        });
        result(queued.map(|(ticket, queued)| {
            // The run begins even if its client leaves, and may wait for as long as runs may.
            ticket.detach();
            queued
        }))
    }

    fn cell_call(&self, run: &Arc<Run>, record: Option<CellGuard>) -> CellCall {
        if let Some(CellGuard(record)) = &record {
            record.set_run(run);
            run.set_record(record);
        }
        CellCall {
            shared: self.shared.clone(),
            cancellation: run.cancellation.clone(),
            work: ParkedWork::new(self.shared.pool.clone(), self.tenant_of_run(run)),
            run: Some(run.clone()),
            arrival: SystemTime::now(),
            record,
        }
    }

    fn tenant_of_run(&self, run: &Run) -> Tenant {
        match &run.owner {
            Some(owner) => self.shared.pool.tenants().find(TenantKey::Owner(owner)),
            None => self.tenant.clone(),
        }
    }

    /// Finds a run of this client.
    pub fn find_run(&self, id: &str) -> Option<Arc<Run>> {
        self.shared.runs.find(&RunId::parse(id)?, self.owner.as_ref())
    }

    /// Returns the runs of this client that have not ended, and those whose results wait for it; the oldest first.
    pub fn runs(&self) -> Vec<Arc<Run>> {
        let mut runs = self.shared.runs.all();
        runs.retain(|run| run.owner.is_none() || run.owner == self.owner);
        runs
    }

    /// Returns the state of a run's calls in the store, if its code waits there.
    pub fn saved_calls(&self, run: &Run) -> Option<Value> {
        let listed = self.persistent_store()?.listed_run(run.session.clone())?;
        (listed.run.info.id == run.info.id).then_some(listed.run.calls)
    }

    /// Ends a run with a result. If its client has left, the result is stored: in a cluster, the run ends once it is.
    pub fn complete_run(&self, run: &Run, result: Value, outcome: RunOutcome) {
        if let Some(cluster) = self.cluster() {
            return self.complete_in_cluster(cluster, run, result, outcome);
        }
        if !run.is_detached() {
            self.shared.runs.remove(&run.info.id);
        } else if let Some(store) = self.persistent_store() {
            let stored = StoredResult {
                info: run.info.clone(),
                session: run.session.as_str().to_owned(),
                owner: run.owner.as_deref().map(str::to_owned),
                ended: milliseconds_now(),
                result: result.clone(),
                outcome: Some(outcome),
                call_count: run.call_count(),
            };
            if let Err(error) = store.write_result(&stored) {
                tracing::warn!(%error, "the result of a run is not stored: it is lost when the server ends");
            }
        }
        run.complete(result, Some(outcome));
    }

    /// Reads the runs of the store: those that wait go on when it is time, and those with results are listed. Must be
    /// called once, before other calls.
    pub fn resume_stored_runs(&self) -> StoredRuns {
        let mut found = StoredRuns::default();
        let Some(store) = self.persistent_store() else { return found };
        for stored in store.results() {
            self.add_result(store, stored);
        }
        let runs = store.runs().unwrap_or_else(|error| {
            tracing::warn!(%error, "failed to read the runs of the data directory");
            Vec::new()
        });
        for listed in runs {
            if listed.is_lost {
                found.lost.extend(self.lost_run(store, listed));
            } else {
                found.waiting.extend(self.resume_stored(store, listed));
            }
        }
        found
    }

    fn add_result(&self, store: &Store, stored: StoredResult) {
        let StoredResult { info, session, owner, ended, result, outcome, call_count } = stored;
        let Some(session) = SessionId::parse(&session) else { return };
        if is_over(ended, self.shared.options.run_ttl) {
            store.remove_result(&info.id);
            return;
        }
        let run = Run::new(info, session, owner.as_deref().map(Into::into), RunState::Asleep);
        run.set_call_count(call_count);
        run.complete(result, outcome);
        self.shared.runs.insert(Arc::new(run));
    }

    pub(super) fn lost_run(&self, store: &Store, listed: ListedRun) -> Option<Arc<Run>> {
        // Another server may have the session, in which the cell goes on.
        let _lease = store.lease(&listed.session, false).ok()?;
        let ListedRun { session, owner, run, .. } = listed;
        let removed = if run.info.is_program { store.remove(&session) } else { store.remove_waiting(&session) };
        if let Err(error) = removed {
            tracing::warn!(%error, "failed to delete the state of a lost run");
        }
        let call_count = run.call_count;
        let run = Arc::new(Run::new(run.info, session, owner.as_deref().map(Into::into), RunState::Asleep));
        run.set_call_count(call_count);
        self.shared.runs.insert(run.clone());
        Some(run)
    }

    pub(super) fn resume_stored(&self, store: &Store, listed: ListedRun) -> Option<ResumedRun> {
        let lease = match store.lease(&listed.session, false) {
            Ok(lease) => lease,
            Err(error) => {
                tracing::info!(%error, "a waiting run is not continued here");
                return None;
            }
        };
        let ListedRun { session: id, owner, run: stored, .. } = listed;
        let owner: Option<super::Owner> = owner.as_deref().map(Into::into);
        let run = Arc::new(Run::new(stored.info.clone(), id.clone(), owner.clone(), RunState::Asleep));
        run.restore_questions(&stored.questions);
        run.set_call_count(stored.call_count);
        run.set_origin(stored.origin.clone());
        self.commit_journal_of(&run);
        self.shared.runs.insert(run.clone());
        let record = self.record_cell_of(&id, owner.as_ref(), &run.info.code);
        if let Some(CellGuard(record)) = &record {
            record.begin();
        }
        let call = self.cell_call(&run, record);
        run.set_waker(call.work.waker());
        let durable = DurableCell {
            run: run.clone(),
            calls: None,
            start: None,
            has_sent_calls: stored.has_sent_calls || store.has_sent_calls(&id),
            runs: self.shared.runs.clone(),
            waker: call.work.waker(),
            is_saved: true,
            since: Instant::now(),
            held: Arc::new(HeldRun::new(self.shared.clone(), run.clone())),
        };
        let has_sent_calls = durable.has_sent_calls;
        let handle = call.begin_asleep(&run);
        let state = SessionState::asleep(id.clone(), owner.clone(), lease, &stored, durable);
        let (tenant, now) = (self.tenant_of_run(&run), self.shared.clock.now());
        let session = Session::with_running_job(state, id.clone(), owner, tenant, now, handle);
        let session = Arc::new(session.with_program(stored.info.is_program));
        {
            let mut table = self.shared.table.lock();
            table.insert(id.clone(), SessionEntry::Active(session.clone()));
            self.shared.note_presence(&id);
        }
        let (done, answer) = oneshot::channel();
        let (work, current) = (call.work.clone(), Arc::new(parking_lot::Mutex::new(session.clone())));
        let due = stored.wake_at.map(|time| Duration::from_millis(time.saturating_sub(milliseconds_now())));
        // Calls whose results the old process has not received are dealt with at once.
        let timer = if has_sent_calls { Some(Duration::ZERO) } else { due };
        let next = call.next(Wait { timer: due, for_host: true });
        session.park(JobWait { work, timer, next: job(next, current, done) });
        Some((run, Box::pin(result(Ok(answer)))))
    }

    /// Forks a session whose cell waits: the cell of the new one waits, too, as a run of its own, without a client.
    /// Returns `None` if [`Sessions::fork`] is to be used: no cell waits, or it cannot be copied, or calls are queued
    /// behind it.
    ///
    /// # Errors
    /// Fails if the session does not exist, or cannot be copied.
    pub fn fork_run(&self, id: &SessionId) -> Result<Option<(SessionId, Arc<Run>, ResumedReport)>, SessionError> {
        let session = self.open(id)?;
        let Some(store) = self.persistent_store() else { return Ok(None) };
        let waits = self.shared.runs.all().into_iter().any(|run| run.session == *id && run.state().is_waiting());
        if !waits || session.waiting() > 0 || self.shared.services.folders.is_some() {
            return Ok(None);
        }
        session.save_waiting(&self.shared.services, self.shared.clock.now());
        let (new, run) = (new_id()?, RunId::parse(new_id()?.as_str()).ok_or(SessionError::Gone)?);
        let listed = match store.fork_waiting(id, &new, run) {
            // The cell has gone on meanwhile.
            Err(StoreError::Missing) | Ok(None) => return Ok(None),
            other => other?,
        };
        let forked = listed.and_then(|listed| self.resume_stored(store, listed));
        if forked.is_some() {
            self.record_fork(id, &new);
        }
        Ok(forked.map(|(run, report)| (new, run, report)))
    }

    /// Puts runs to sleep that have waited for long, carries out the commands of operators, and ends runs and results
    /// whose time is over. Must be called every second or so, on a thread that may block.
    pub fn maintain_runs(&self) {
        let Some(store) = self.persistent_store() else { return };
        if self.shared.is_ending.load(Ordering::Relaxed) {
            // Commands are for the next process.
            return;
        }
        for (id, command) in store.take_run_commands() {
            let Some(run) = self.shared.runs.all().into_iter().find(|run| run.info.id == id) else { continue };
            if let Some(activity) = self.shared.services.activity.get() {
                let outcome = match &command {
                    RunCommand::Cancel => "cancel",
                    RunCommand::Answer { answer: RunAnswer::Declined, .. } => "deny",
                    RunCommand::Answer { .. } => "answer",
                };
                activity.record_session(Event::ApprovalAnswer, run.session.as_str(), run.owner.as_deref(), || {
                    Details {
                        run: Some(Identifier::for_secret(run.info.id.as_str())),
                        outcome: Some(outcome.into()),
                        by: Some("operator"),
                        ..Details::default()
                    }
                });
            }
            match command {
                RunCommand::Cancel => run.cancel(),
                RunCommand::Answer { call, answer } => {
                    if let Err(error) = run.answer(call, answer, Party::Operator) {
                        tracing::info!(%error, "an answer to a run came too late");
                    }
                }
            }
        }
        let ttl = self.shared.options.run_ttl;
        for run in self.shared.runs.all() {
            match run.state() {
                RunState::Waiting => self.sleep_run(&run),
                RunState::Completed if is_over(run.ended(), ttl) => {
                    store.remove_result(&run.info.id);
                    self.shared.runs.remove(&run.info.id);
                    if let Some(cluster) = self.cluster() {
                        cluster.drop_run(&run.info.id);
                    }
                }
                _ => {}
            }
        }
    }

    fn sleep_run(&self, run: &Run) {
        let session = match self.shared.table.lock().get(&run.session) {
            Some(SessionEntry::Active(session)) => session.clone(),
            _ => return,
        };
        session.sleep_waiting(&self.shared.services, self.shared.options.sleep_after);
    }

    /// Saves the cells that wait, since the process is about to end.
    pub(super) fn save_waiting_runs(&self) {
        for run in self.shared.runs.all() {
            let session = match self.shared.table.lock().get(&run.session) {
                Some(SessionEntry::Active(session)) => session.clone(),
                _ => continue,
            };
            session.save_waiting(&self.shared.services, self.shared.clock.now());
        }
    }
}

/// Returns whether the time after `ended`, in milliseconds since 1970, exceeds `ttl`.
fn is_over(ended: u64, ttl: Duration) -> bool {
    Duration::from_millis(milliseconds_now().saturating_sub(ended)) > ttl
}

/// Returns the time since 1970, in milliseconds.
pub(crate) fn milliseconds_now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

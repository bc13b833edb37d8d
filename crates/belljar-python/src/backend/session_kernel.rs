//! A session's kernel: IPython's shell in an interpreter of its own.

use std::sync::Arc;
use std::time::Duration;

use belljar_core::files::{FileError, FileInfo, Range};
use belljar_core::kernel::{
    CellError, CellObserver, CellRequest, FindBase, InterruptHandle, Kernel, KernelError, KernelSnapshot, ShellError,
    ShellRequest,
};
use belljar_core::{
    CellRecorder, CellResult, CellStatus, CellStep, ExitReason, NoProgress, Outcome, Progress, ReplySender,
    SessionFolder, Waker,
};
use belljar_emscripten::SnapshotDelta;
use belljar_emscripten::console::Discard;
use belljar_network::Connections;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::held_cell::ReplayedCell;
use super::isolated_session::IsolatedSession;
use super::kernel_interpreter::KernelInterpreter;
use super::mounts::{GuestMount, mount_all, mounts_of_session};
use super::replay::Awaited;
use super::running_cell::RunningCell;
use super::waiting_cell::WaitingCell;
use super::{SessionRuntime, WasmBackend};
use crate::interpreter::{Renewal, Streams};
use crate::isolation::SessionStart;
use crate::packages::{PackageSet, WheelId};
use crate::steps::Step;

/// The time for a shell request, which may run the session's code: properties, `__repr__`.
const SHELL_REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The name of this backend in snapshots.
const BACKEND_NAME: &str = "wasm";

/// The metadata of a snapshot, which is serialized as JSON into saved sessions.
#[derive(Serialize, Deserialize)]
pub(super) struct SnapshotMetadata {
    /// [`BACKEND_NAME`].
    backend: String,
    /// [`Image::id`](crate::Image::id) of the image that the snapshot differs from.
    image: String,
    /// A description of the Python that ran, for error messages.
    python: String,
    /// The session's wheels.
    members: Vec<WheelId>,
    /// The number of the last cell.
    count: u64,
    #[serde(default)]
    renewal: Renewal,
    /// The cell that waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    waiting: Option<WaitingCell>,
    /// The network policy of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    network: Option<Value>,
    /// The cell that held its thread while it waited: its recording follows the state from which it is replayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) replay: Option<ReplayedCell>,
    /// True if a worker process has chosen the state: it is restored in another one only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    isolated: bool,
}

impl SnapshotMetadata {
    /// Reads the metadata of a snapshot.
    ///
    /// # Errors
    /// Returns [`KernelError::IncompatibleSnapshot`] if the metadata does not have the expected form.
    pub(super) fn read(metadata: &Value) -> Result<Self, KernelError> {
        serde_json::from_value(metadata.clone())
            .map_err(|_| KernelError::IncompatibleSnapshot("its description cannot be read".into()))
    }
}

/// The kernel of one session.
pub(super) struct WasmKernel {
    pub(super) backend: WasmBackend,
    pub(super) session_runtime: SessionRuntime,
    pub(super) packages: PackageSet,
    pub(super) interpreter: KernelInterpreter,
    /// The number of the last cell.
    pub(super) execution_count: u64,
    /// The network policy of the session, which narrows that of the backend.
    pub(super) network: Option<Value>,
    /// The connections of the interpreter, once a cell has run that can use the network.
    pub(super) connections: Option<Arc<Connections>>,
    /// The cell that waits.
    pub(super) running: Option<RunningCell>,
    /// The waiting cell of the restored snapshot, which has no observer yet.
    pub(super) unattached: Option<WaitingCell>,
    /// The cell of the restored snapshot that is to be replayed, and its recording.
    pub(super) replay: Option<(ReplayedCell, Vec<u8>)>,
    /// Set if the cell that waits is to be replayed.
    pub(super) awaited: Option<Awaited>,
    /// The recorder of the next cell.
    pub(super) recorder: Option<CellRecorder>,
}

impl WasmKernel {
    /// Starts a kernel from the image of sessions.
    pub(super) fn start(
        backend: WasmBackend,
        session_runtime: SessionRuntime,
        folder: Option<&SessionFolder>,
        progress: &dyn Progress,
    ) -> Result<Self, KernelError> {
        let packages = session_runtime.packages.clone();
        let limits = backend.session_limits();
        let mounts = mounts_of_session(&backend.shared.mounts, folder)?;
        let interpreter = match &backend.shared.processes {
            Some(processes) => {
                let (image, processes) = (&session_runtime.image, processes.clone());
                let start = (SessionStart::New, Renewal::All);
                let image = (image, session_runtime.kept_image.as_ref());
                let session = IsolatedSession::start(processes, image, &packages, limits, start, mounts, progress)?;
                KernelInterpreter::Isolated(Box::new(session))
            }
            None => {
                let python = &session_runtime.runtime.python;
                let interpreter = python.interpreter_with(&session_runtime.image, limits, null_streams());
                let mut interpreter = interpreter.map_err(|error| KernelError::Start(error.into()))?;
                for layer in packages.layers_not_in(session_runtime.image.packages()) {
                    interpreter.files().add_layer(layer.clone());
                }
                mount_all(interpreter.files(), &mounts)?;
                KernelInterpreter::Local(Box::new(interpreter))
            }
        };
        Ok(Self::new(backend, session_runtime, packages, interpreter, 0))
    }

    fn new(
        backend: WasmBackend,
        session_runtime: SessionRuntime,
        packages: PackageSet,
        mut interpreter: KernelInterpreter,
        execution_count: u64,
    ) -> Self {
        interpreter.network_client().scrub(&backend.shared.scrubber());
        Self {
            backend,
            session_runtime,
            packages,
            interpreter,
            execution_count,
            network: None,
            connections: None,
            running: None,
            unattached: None,
            replay: None,
            awaited: None,
            recorder: None,
        }
    }

    /// Starts a kernel that continues from a snapshot.
    pub(super) fn restore(
        backend: WasmBackend,
        snapshot: &KernelSnapshot,
        base: FindBase<'_>,
        folder: Option<&SessionFolder>,
        progress: &dyn Progress,
    ) -> Result<Self, KernelError> {
        let metadata = SnapshotMetadata::read(&snapshot.metadata)?;
        let session_runtime = match metadata.backend.as_str() {
            BACKEND_NAME => backend.runtime_of_image(&metadata.image, base, progress)?,
            _ => None,
        };
        let Some(session_runtime) = session_runtime else {
            return Err(KernelError::IncompatibleSnapshot(
                format!(
                    "it was saved by another build of Belljar, or before its cache was cleaned ({}, {})",
                    metadata.backend, metadata.python
                )
                .into(),
            ));
        };
        let is_isolated = backend.shared.processes.is_some();
        if metadata.isolated && !is_isolated {
            let reason = "it was saved by a worker process, and is restored with --isolation process only";
            return Err(KernelError::IncompatibleSnapshot(reason.into()));
        }
        let (start, recording) = match &metadata.replay {
            None => (&*snapshot.data, None),
            Some(replay) => {
                replay.check(&backend.session_limits())?;
                let parts = snapshot.data.split_at_checked(replay.start_length);
                let (start, recording) =
                    parts.ok_or_else(|| KernelError::IncompatibleSnapshot("its recording is missing".into()))?;
                (start, Some(recording.to_vec()))
            }
        };
        let runtime = &session_runtime.runtime;
        let packages =
            runtime.python.package_set(&metadata.members, &*runtime.installer, progress).map_err(|error| {
                KernelError::IncompatibleSnapshot(format!("its packages are not available: {error}").into())
            })?;
        let renewal = if snapshot.is_copy { metadata.renewal.of_copy() } else { metadata.renewal };
        let mounts = mounts_of_session(&backend.shared.mounts, folder)?;
        let interpreter = match &backend.shared.processes {
            Some(processes) => {
                let (image, limits) = (&session_runtime.image, backend.session_limits());
                let start = (SessionStart::State(start), renewal);
                let (image, processes) = ((image, session_runtime.kept_image.as_ref()), processes.clone());
                let session = IsolatedSession::start(processes, image, &packages, limits, start, mounts, progress)?;
                KernelInterpreter::Isolated(Box::new(session))
            }
            None => {
                let delta = SnapshotDelta::from_bytes(start);
                let delta = delta.map_err(|error| KernelError::IncompatibleSnapshot(error.into()))?;
                restore_delta(&backend, &session_runtime, &delta, &packages, &mounts, renewal)?
            }
        };
        let mut kernel = Self::new(backend, session_runtime, packages, interpreter, metadata.count);
        kernel.unattached = metadata.waiting;
        kernel.network = metadata.network;
        kernel.replay = metadata.replay.zip(recording);
        Ok(kernel)
    }
}

/// Restores an interpreter of this process.
fn restore_delta(
    backend: &WasmBackend,
    SessionRuntime { runtime, image, .. }: &SessionRuntime,
    delta: &SnapshotDelta,
    packages: &PackageSet,
    mounts: &[GuestMount],
    renewal: Renewal,
) -> Result<KernelInterpreter, KernelError> {
    let limits = backend.session_limits();
    let interpreter = runtime.python.restore_interpreter(image, delta, packages, limits, null_streams());
    let mut interpreter = interpreter.map_err(|error| KernelError::IncompatibleSnapshot(error.into()))?;
    interpreter.set_renewal(renewal);
    mount_all(interpreter.files(), mounts)?;
    Ok(KernelInterpreter::Local(Box::new(interpreter)))
}

/// Returns streams that discard output and have no input.
pub(super) fn null_streams() -> Streams {
    Streams { output: Box::new(Discard), input: Box::new(std::io::empty()) }
}

/// Returns the reason why an interpreter ended in which the shell did not return.
pub(super) fn exit_reason(outcome: Outcome) -> ExitReason {
    match outcome {
        Outcome::Exited(reason) => reason,
        Outcome::Error(error) => ExitReason::Crash(format!("{}: {} (in the shell itself)", error.kind, error.message)),
        Outcome::InstallError(reason) => ExitReason::Crash(reason),
        Outcome::Success(_) => ExitReason::Crash("it ended without a result".into()),
    }
}

impl Kernel for WasmKernel {
    fn execute(&mut self, cell: &CellRequest, observer: Arc<dyn CellObserver>) -> CellResult {
        let running = match self.prepare(cell, observer, None) {
            Ok(running) => running,
            Err(refused) => return refused,
        };
        let result = match self.interpreter.execute(cell, self.backend.shared.color) {
            Ok(Step::Completed(cell)) => Ok(cell),
            Ok(Step::Waiting(_)) => {
                Err(Outcome::Exited(ExitReason::Crash("the code waits, but its caller does not".into())))
            }
            Err(outcome) => Err(outcome),
        };
        self.complete(running, result)
    }

    fn begin(&mut self, cell: &CellRequest, observer: Arc<dyn CellObserver>, waker: Waker) -> CellStep {
        let running = match self.prepare(cell, observer, Some(&waker)) {
            Ok(running) => running,
            Err(refused) => return CellStep::Completed(refused),
        };
        let step = self.interpreter.begin_cell(cell, self.backend.shared.color);
        self.after_step(running, step)
    }

    fn resume(&mut self) -> CellStep {
        let Some(mut running) = self.running.take() else {
            let status = CellStatus::KernelDied(ExitReason::Crash("no cell waits".into()));
            let execution_count = self.execution_count;
            return CellStep::Completed(CellResult { execution_count, status, outputs: Vec::new() });
        };
        if self.interpreter.is_replaying() {
            let step = self.replay(&running);
            return self.after_step(running, step);
        }
        self.interpreter.end_wait(running.clock.end_wait());
        if let Some(held) = &running.held {
            held.begin_step(self.interpreter.spent());
        }
        let step = self.interpreter.resume_cell();
        self.after_step(running, step)
    }

    fn record(&mut self, recorder: CellRecorder) -> bool {
        self.recorder = Some(recorder);
        true
    }

    fn exclude_wait(&mut self) {
        if let Some(running) = &mut self.running {
            running.clock.exclude_wait();
        }
    }

    fn has_replies(&mut self) -> bool {
        if self.interpreter.is_replaying() {
            return self.has_replies_for_replay();
        }
        let Some(running) = &self.running else { return false };
        // Only the code can see if something has arrived for a connection.
        self.interpreter.has_connections() || running.calls.as_ref().is_some_and(|calls| calls.save().is_none())
    }

    fn reattach(&mut self, observer: Arc<dyn CellObserver>, waker: Waker) -> Result<ReplySender, KernelError> {
        match self.replay.take() {
            Some((cell, recording)) => self.attach_replayed_cell(cell, &recording, observer, waker),
            None => self.attach_waiting_cell(observer, waker),
        }
    }

    fn shell_request(&mut self, request: &ShellRequest) -> Result<Value, KernelError> {
        self.interpreter.set_wall_time(Some(SHELL_REQUEST_TIMEOUT));
        self.interpreter.shell_request(request).map_err(|outcome| {
            let error = match outcome {
                Outcome::Error(error) => ShellError::Exception(CellError {
                    name: error.kind,
                    message: error.message,
                    traceback: vec![error.traceback],
                }),
                other => ShellError::Exited(exit_reason(other)),
            };
            KernelError::Shell(error)
        })
    }

    fn memory(&mut self) -> Option<u64> {
        Some(self.interpreter.peak_memory())
    }

    fn interrupt_handle(&self) -> Arc<dyn InterruptHandle> {
        self.interpreter.interrupt_handle()
    }

    fn restart(&mut self) -> Result<(), KernelError> {
        match &mut self.interpreter {
            KernelInterpreter::Isolated(session) => {
                let files = session.save_files()?;
                let (start, mounts) = ((SessionStart::Files(&files), Renewal::All), session.mounts());
                **session = session.start_another(start, mounts, &NoProgress)?;
            }
            KernelInterpreter::Local(ended) => {
                let files = ended.files().clone();
                let SessionRuntime { runtime, image, .. } = &self.session_runtime;
                let interpreter = runtime.python.interpreter_with(image, self.backend.session_limits(), null_streams());
                let mut interpreter = interpreter.map_err(|error| KernelError::Failed(error.into()))?;
                interpreter.replace_filesystem(files).map_err(|error| KernelError::Failed(error.into()))?;
                **ended = interpreter;
            }
        }
        self.interpreter.network_client().scrub(&self.backend.shared.scrubber());
        (self.running, self.unattached, self.replay, self.connections) = (None, None, None, None);
        self.execution_count = 0;
        Ok(())
    }

    fn fork(&mut self, folder: Option<&SessionFolder>) -> Result<Box<dyn Kernel>, KernelError> {
        let renewal = self.interpreter.renewal().of_copy();
        let mounts = mounts_of_session(&self.backend.shared.mounts, folder)?;
        let (backend, session_runtime, packages) =
            (self.backend.clone(), self.session_runtime.clone(), self.packages.clone());
        let interpreter = match &mut self.interpreter {
            KernelInterpreter::Isolated(session) => {
                let state = session.save_state()?;
                let copy = session.start_another((SessionStart::State(&state), renewal), mounts, &NoProgress)?;
                KernelInterpreter::Isolated(Box::new(copy))
            }
            KernelInterpreter::Local(interpreter) => {
                let delta = interpreter.delta(&session_runtime.image);
                let delta = delta.map_err(|error| KernelError::Failed(error.into()))?;
                restore_delta(&backend, &session_runtime, &delta, &packages, &mounts, renewal)?
            }
        };
        let mut kernel = Self::new(backend, session_runtime, packages, interpreter, self.execution_count);
        kernel.network.clone_from(&self.network);
        Ok(Box::new(kernel))
    }

    fn snapshot(&mut self) -> Result<KernelSnapshot, KernelError> {
        let waiting = self.waiting_cell()?;
        let SessionRuntime { runtime, image, .. } = &self.session_runtime;
        let isolated = self.backend.shared.processes.is_some();
        // A cell that waits may have installed some.
        let packages = match &self.running {
            Some(running) => self.interpreter.packages_after(&running.installer),
            None => self.packages.clone(),
        };
        let data = self.interpreter.save(image)?;
        let metadata = SnapshotMetadata {
            backend: BACKEND_NAME.into(),
            image: image.id().to_owned(),
            python: runtime.python.description(),
            members: packages.wheel_ids().cloned().collect(),
            count: self.execution_count,
            renewal: self.interpreter.renewal(),
            waiting,
            network: self.network.clone(),
            replay: None,
            isolated,
        };
        let metadata = serde_json::to_value(metadata).map_err(|error| KernelError::Failed(error.into()))?;
        Ok(KernelSnapshot { metadata, data, is_copy: false, base: Some(image.id().to_owned()) })
    }

    fn files(&mut self) -> Vec<FileInfo> {
        self.interpreter.files()
    }

    fn read(&mut self, path: &str, range: Range) -> Result<Vec<u8>, FileError> {
        self.interpreter.read(path, range)
    }

    fn write(&mut self, path: &str, bytes: &[u8]) -> Result<(), FileError> {
        self.interpreter.write(path, bytes)
    }
}

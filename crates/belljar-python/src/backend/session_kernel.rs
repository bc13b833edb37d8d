//! A session's kernel: IPython's shell in an interpreter of its own.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use belljar_core::files::{FileError, FileInfo, MAX_READ, Range};
use belljar_core::kernel::{
    CellError, CellObserver, CellRequest, InterruptHandle, Kernel, KernelError, KernelSnapshot, ShellError,
    ShellRequest,
};
use belljar_core::{
    CellResult, CellStatus, CellStep, EncodedValue, ExitReason, Outcome, OutputCollector, Progress, ReplySender,
    SessionFolder, Stream, TOOLS_MODULE, Waker,
};
use belljar_emscripten::console::Discard;
use belljar_emscripten::fs::{AT_FDCWD, FileEntry, FileType, Filesystem};
use belljar_emscripten::{Errno, SnapshotDelta};
use belljar_packages::{Dependencies, GeneralHint as _, shorten_message};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::exchange::{self, RunCalls};
use super::mounts::mount_all;
use super::session_calls::{CollectorSink, DisplayHandler, InputHandler, NoCellRunning};
use super::wait_clock::WaitClock;
use super::waiting_cell::WaitingCell;
use super::{PythonRuntime, SessionRuntime, WasmBackend};
use crate::guest_protocol::ShellCell;
use crate::host_calls::HostCall;
use crate::install::{CellPackages, RuntimeInstaller};
use crate::interpreter::{Interpreter, Renewal, Streams};
use crate::packages::{PackageSet, WheelId};
use crate::session::SESSION_DIRECTORY;
use crate::steps::Step;

/// The time for a shell request, which may run the session's code: properties, `__repr__`.
const SHELL_REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum number of files of a session that are listed.
const MAX_FILES: usize = 20_000;
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
}

impl SnapshotMetadata {
    /// Reads the metadata of a snapshot.
    ///
    /// # Errors
    /// Returns [`KernelError::IncompatibleSnapshot`] if the metadata does not have the expected form.
    fn read(snapshot: &KernelSnapshot) -> Result<Self, KernelError> {
        serde_json::from_value(snapshot.metadata.clone())
            .map_err(|_| KernelError::IncompatibleSnapshot("its description cannot be read".into()))
    }
}

/// The kernel of one session.
pub(super) struct WasmKernel {
    pub(super) backend: WasmBackend,
    pub(super) session_runtime: SessionRuntime,
    pub(super) packages: PackageSet,
    pub(super) interpreter: Interpreter,
    /// The number of the last cell.
    execution_count: u64,
    /// The cell that waits.
    pub(super) running: Option<RunningCell>,
    /// The waiting cell of the restored snapshot, which has no observer yet.
    pub(super) unattached: Option<WaitingCell>,
}

impl WasmKernel {
    /// Starts a kernel from the image of sessions.
    pub(super) fn start(
        backend: WasmBackend,
        session_runtime: SessionRuntime,
        folder: Option<&SessionFolder>,
    ) -> Result<Self, KernelError> {
        let python = &session_runtime.runtime.python;
        let interpreter = python.interpreter_with(&session_runtime.image, backend.session_limits(), null_streams());
        let mut interpreter = interpreter.map_err(|error| KernelError::Start(error.into()))?;
        let packages = session_runtime.packages.clone();
        for layer in packages.layers_not_in(session_runtime.image.packages()) {
            interpreter.files().add_layer(layer.clone());
        }
        let mut kernel = Self {
            backend,
            session_runtime,
            packages,
            interpreter,
            execution_count: 0,
            running: None,
            unattached: None,
        };
        kernel.mount(folder)?;
        Ok(kernel)
    }

    /// Mounts the directories of the host that the code can use, and the session's folder. Snapshots do not contain
    /// mounts.
    pub(super) fn mount(&mut self, folder: Option<&SessionFolder>) -> Result<(), KernelError> {
        mount_all(self.interpreter.files(), &self.backend.shared.mounts, folder)
    }

    /// Starts a kernel that continues from a snapshot.
    pub(super) fn restore(
        backend: WasmBackend,
        snapshot: &KernelSnapshot,
        base: Option<&Path>,
        progress: &dyn Progress,
    ) -> Result<Self, KernelError> {
        let metadata = SnapshotMetadata::read(snapshot)?;
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
        let delta = SnapshotDelta::from_bytes(&snapshot.data)
            .map_err(|error| KernelError::IncompatibleSnapshot(error.into()))?;
        let runtime = &session_runtime.runtime;
        let packages =
            runtime.python.package_set(&metadata.members, &*runtime.installer, progress).map_err(|error| {
                KernelError::IncompatibleSnapshot(format!("its packages are not available: {error}").into())
            })?;
        let renewal = if snapshot.is_copy { metadata.renewal.of_copy() } else { metadata.renewal };
        let mut kernel = Self::from_delta(backend, session_runtime, &delta, packages, metadata.count, renewal)?;
        kernel.unattached = metadata.waiting;
        Ok(kernel)
    }

    fn from_delta(
        backend: WasmBackend,
        session_runtime: SessionRuntime,
        delta: &SnapshotDelta,
        packages: PackageSet,
        execution_count: u64,
        renewal: Renewal,
    ) -> Result<Self, KernelError> {
        let SessionRuntime { runtime, image, .. } = &session_runtime;
        let limits = backend.session_limits();
        let interpreter = runtime.python.restore_interpreter(image, delta, &packages, limits, null_streams());
        let mut interpreter = interpreter.map_err(|error| KernelError::IncompatibleSnapshot(error.into()))?;
        interpreter.set_renewal(renewal);
        Ok(Self { backend, session_runtime, packages, interpreter, execution_count, running: None, unattached: None })
    }

    /// Installs the packages that the cell imports, and returns their names. A failure is reported in the cell's
    /// output, and the cell runs anyway: it may not reach the import.
    fn install_imports(
        &mut self,
        installer: &RuntimeInstaller,
        cell: &CellRequest,
        observer: &dyn CellObserver,
        outputs: &OutputCollector,
    ) -> Vec<String> {
        let runtime = &self.session_runtime.runtime;
        let mut modules = self.interpreter.local_modules();
        if cell.tools {
            modules.push(TOOLS_MODULE.into());
        }
        let needs = runtime.python.needs_of_cell(&cell.code, &self.packages, &modules, &*runtime.installer);
        let mut names = Vec::new();
        let installed = needs.and_then(|needs| {
            if needs.is_empty() {
                return Ok(CellPackages::default());
            }
            names.extend(needs.required().chain(&needs.optional).map(|requirement| requirement.name().to_owned()));
            self.interpreter.install(installer, &needs)
        });
        let report_failure = |reason: &str| notify(&format!("[not installed: {reason}]\n"), observer, outputs);
        match installed {
            Ok(CellPackages { installed, refused }) => {
                refused.iter().for_each(|reason| report_failure(reason));
                if !installed.is_empty() {
                    observer.on_installed(&installed.to_string());
                }
            }
            Err(error) => report_failure(&error.with_general_hint()),
        }
        names
    }

    /// Installs the package without which a cell failed, if any, for running the cell again. The cell's output
    /// reports it. `module` is the name that the guest gave; `tried` are the packages that the cell imports itself.
    fn install_missing(
        &mut self,
        installer: &RuntimeInstaller,
        module: &str,
        tried: &[String],
        observer: &dyn CellObserver,
        outputs: &OutputCollector,
    ) {
        let PythonRuntime { python, installer: source, .. } = &self.session_runtime.runtime;
        let modules = self.interpreter.local_modules();
        let inferred = python.package_of_missing_module(module, &installer.packages(), &modules, &**source);
        let Some(inferred) = inferred else { return };
        if tried.iter().any(|name| name == inferred.requirement.name()) {
            return;
        }
        let needs = Dependencies { inferred: vec![inferred], ..Dependencies::default() };
        let text = match self.interpreter.install(installer, &needs) {
            Ok(CellPackages { installed, .. }) if !installed.is_empty() => {
                observer.on_installed(&installed.to_string());
                format!("[installed {installed}, which provides {module}: run the cell again]\n")
            }
            result => {
                let reason = match result {
                    Ok(CellPackages { refused, .. }) => refused.into_iter().next(),
                    Err(error) => Some(shorten_message(&error.with_general_hint())),
                };
                let reason = reason.unwrap_or_else(|| format!("no package provides {module}"));
                format!("[not installed: {reason}]\n")
            }
        };
        notify(&text, observer, outputs);
    }
}

/// Adds a message of Belljar's own to a cell's output.
fn notify(text: &str, observer: &dyn CellObserver, outputs: &OutputCollector) {
    observer.on_stream(Stream::Stderr, text.as_bytes());
    outputs.push_notice(text);
}

/// Returns streams that discard output and have no input.
fn null_streams() -> Streams {
    Streams { output: Box::new(Discard), input: Box::new(std::io::empty()) }
}

/// Returns the reason why an interpreter ended in which the shell did not return.
fn exit_reason(outcome: Outcome) -> ExitReason {
    match outcome {
        Outcome::Exited(reason) => reason,
        Outcome::Error(error) => ExitReason::Crash(format!("{}: {} (in the shell itself)", error.kind, error.message)),
        Outcome::InstallError(reason) => ExitReason::Crash(reason),
        Outcome::Success(_) => ExitReason::Crash("it ended without a result".into()),
    }
}

/// A cell that has begun.
pub(super) struct RunningCell {
    pub(super) observer: Arc<dyn CellObserver>,
    pub(super) outputs: OutputCollector,
    pub(super) installer: Arc<RuntimeInstaller>,
    /// The packages that the cell imports.
    pub(super) tried: Vec<String>,
    /// The calls of functions of the host that the cell can make.
    pub(super) calls: Option<RunCalls>,
    /// False if the cell exchanges values with a caller that only this process has.
    pub(super) is_resumable: bool,
    pub(super) clock: WaitClock,
}

impl WasmKernel {
    /// Prepares the interpreter for a cell: its packages, its streams and its calls of the host.
    ///
    /// # Errors
    /// The result of a cell that cannot begin.
    fn prepare(
        &mut self,
        cell: &CellRequest,
        observer: Arc<dyn CellObserver>,
        waker: Option<&Waker>,
    ) -> Result<RunningCell, CellResult> {
        let outputs = OutputCollector::new(observer.clone());
        let installer = self.installer(&observer);
        let tried = self.install_imports(&installer, cell, &*observer, &outputs);
        let exchange = cell.exchange.as_ref();
        let calls = match exchange::begin(&mut self.interpreter, exchange, cell.tools, &observer, waker) {
            Ok(calls) => calls,
            Err(error) => {
                let error = CellError { name: "OSError".into(), message: error.to_string(), traceback: Vec::new() };
                let status = CellStatus::Error(error);
                return Err(CellResult { execution_count: self.execution_count, status, outputs: outputs.take() });
            }
        };
        self.connect(&outputs, &installer, &observer);
        let limits = self.backend.session_limits().with_timeout(cell.timeout);
        self.interpreter.set_wall_time(limits.wall_time);
        let is_resumable = exchange.is_none_or(|exchange| exchange.is_resumable);
        let clock = WaitClock::new(&limits, cell.timeout);
        Ok(RunningCell { observer, outputs, installer, tried, calls, is_resumable, clock })
    }

    /// Returns the installer of a cell.
    pub(super) fn installer(&self, observer: &Arc<dyn CellObserver>) -> Arc<RuntimeInstaller> {
        let PythonRuntime { python, installer, .. } = &self.session_runtime.runtime;
        let progress: Arc<dyn Progress> = observer.clone();
        Arc::new(RuntimeInstaller::with_packages(python, self.packages.clone(), installer.clone(), progress))
    }

    /// Connects the interpreter's streams and host calls to a cell.
    pub(super) fn connect(
        &mut self,
        outputs: &OutputCollector,
        installer: &Arc<RuntimeInstaller>,
        observer: &Arc<dyn CellObserver>,
    ) {
        let sink = Box::new(CollectorSink(outputs.clone()));
        self.interpreter.redirect(Streams { output: sink, input: Box::new(std::io::empty()) });
        self.interpreter.register_host_call("install", installer.clone());
        self.interpreter.register_host_call("show", Arc::new(DisplayHandler(outputs.clone())));
        self.interpreter.register_host_call("input", Arc::new(InputHandler(observer.clone())));
    }

    /// Ends a cell whose code has ended.
    fn complete(&mut self, running: RunningCell, result: Result<ShellCell, Outcome>) -> CellResult {
        let RunningCell { observer, outputs, installer, tried, calls, is_resumable: _, clock } = running;
        // The handlers hold the cell's output and its observer.
        self.interpreter.redirect(null_streams());
        let refusal: Arc<dyn HostCall> = Arc::new(NoCellRunning);
        for name in ["install", "show", "input"] {
            self.interpreter.register_host_call(name, refusal.clone());
        }
        if calls.is_some() {
            exchange::end(&mut self.interpreter, &refusal);
        }
        if let Ok(ShellCell { value: Some(value), .. }) = &result {
            let buffers = exchange::take_buffers(self.interpreter.files(), self.backend.shared.limits.value);
            match RawValue::from_string(value.clone()) {
                Ok(json) => observer.on_value(EncodedValue { json, buffers }),
                Err(error) => tracing::debug!(%error, "a cell's value is not JSON"),
            }
        }
        if let Ok(ShellCell { missing_module: Some(module), .. }) = &result {
            self.install_missing(&installer, module, &tried, &*observer, &outputs);
        }
        self.packages = installer.packages();
        self.session_runtime.runtime.python.compile_imported_in_background(&self.packages);
        // A cell that the shell did not finish has no number of its own.
        self.execution_count = result.as_ref().map_or(self.execution_count + 1, |cell| cell.execution_count);
        let status = match result {
            Ok(ShellCell { error: None, .. }) => CellStatus::Ok,
            Ok(ShellCell { error: Some(error), .. }) => match clock.expired() {
                Some((after, waited)) if error.name == "KeyboardInterrupt" => {
                    CellStatus::TimedOut { after, waited, traceback: error.traceback }
                }
                _ => CellStatus::Error(error),
            },
            Err(outcome) => CellStatus::KernelDied(exit_reason(outcome)),
        };
        CellResult { execution_count: self.execution_count, status, outputs: outputs.take() }
    }

    fn after_step(&mut self, mut running: RunningCell, step: Result<Step<ShellCell>, Outcome>) -> CellStep {
        match step {
            Ok(Step::Waiting(wait)) => {
                let wait = running.clock.begin_wait(wait);
                self.running = Some(running);
                CellStep::Waiting(wait)
            }
            Ok(Step::Completed(cell)) => CellStep::Completed(self.complete(running, Ok(cell))),
            Err(outcome) => CellStep::Completed(self.complete(running, Err(outcome))),
        }
    }
}

impl Kernel for WasmKernel {
    fn execute(&mut self, cell: &CellRequest, observer: Arc<dyn CellObserver>) -> CellResult {
        let running = match self.prepare(cell, observer, None) {
            Ok(running) => running,
            Err(refused) => return refused,
        };
        let result = self.interpreter.execute(cell, self.backend.shared.color);
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
        running.clock.end_wait().apply(&mut self.interpreter);
        let step = self.interpreter.resume_cell();
        self.after_step(running, step)
    }

    fn exclude_wait(&mut self) {
        if let Some(running) = &mut self.running {
            running.clock.exclude_wait();
        }
    }

    fn has_replies(&mut self) -> bool {
        let calls = self.running.as_ref().and_then(|running| running.calls.as_ref());
        calls.is_some_and(|calls| calls.save().is_none())
    }

    fn reattach(&mut self, observer: Arc<dyn CellObserver>, waker: Waker) -> Result<ReplySender, KernelError> {
        self.attach_waiting_cell(observer, waker)
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

    fn interrupt_handle(&self) -> Arc<dyn InterruptHandle> {
        Arc::new(self.interpreter.interrupt_handle())
    }

    fn restart(&mut self) -> Result<(), KernelError> {
        let files = self.interpreter.files().clone();
        let python = &self.session_runtime.runtime.python;
        let interpreter =
            python.interpreter_with(&self.session_runtime.image, self.backend.session_limits(), null_streams());
        let mut interpreter = interpreter.map_err(|error| KernelError::Failed(error.into()))?;
        interpreter.replace_filesystem(files).map_err(|error| KernelError::Failed(error.into()))?;
        self.interpreter = interpreter;
        (self.running, self.unattached) = (None, None);
        self.execution_count = 0;
        Ok(())
    }

    fn fork(&mut self, folder: Option<&SessionFolder>) -> Result<Box<dyn Kernel>, KernelError> {
        let delta = self.interpreter.delta(&self.session_runtime.image);
        let delta = delta.map_err(|error| KernelError::Failed(error.into()))?;
        let mut kernel = Self::from_delta(
            self.backend.clone(),
            self.session_runtime.clone(),
            &delta,
            self.packages.clone(),
            self.execution_count,
            self.interpreter.renewal().of_copy(),
        )?;
        kernel.mount(folder)?;
        Ok(Box::new(kernel))
    }

    fn snapshot(&mut self) -> Result<KernelSnapshot, KernelError> {
        let waiting = self.waiting_cell()?;
        let SessionRuntime { runtime, image, .. } = &self.session_runtime;
        let delta = self.interpreter.delta(image).map_err(|error| KernelError::Failed(error.into()))?;
        let metadata = SnapshotMetadata {
            backend: BACKEND_NAME.into(),
            image: image.id().to_owned(),
            python: runtime.python.description(),
            members: self.packages.wheel_ids().cloned().collect(),
            count: self.execution_count,
            renewal: self.interpreter.renewal(),
            waiting,
        };
        let metadata = serde_json::to_value(metadata).map_err(|error| KernelError::Failed(error.into()))?;
        let data = delta.to_bytes().map_err(|error| KernelError::Failed(error.into()))?;
        Ok(KernelSnapshot { metadata, data, is_copy: false, base: Some(image.id().to_owned()) })
    }

    fn files(&mut self) -> Vec<FileInfo> {
        let listing = self.interpreter.files().list(SESSION_DIRECTORY, MAX_FILES);
        let listing = listing.map(|listing| listing.files).unwrap_or_default();
        let visible = listing.into_iter().filter(|file| {
            file.file_type == FileType::Regular && !file.path.split('/').any(|name| name.starts_with('.'))
        });
        let info = |file: FileEntry| FileInfo {
            path: file.path,
            size: file.size,
            modified: i128::from(file.modified.seconds) * 1_000_000_000 + i128::from(file.modified.nanoseconds),
        };
        visible.map(info).collect()
    }

    fn read(&mut self, path: &str, range: Range) -> Result<Vec<u8>, FileError> {
        let (guest_path, size) = resolve_regular_file(self.interpreter.files(), path)?;
        let available = size.saturating_sub(range.offset);
        let length = range.length.unwrap_or(available).min(available);
        if length > MAX_READ {
            return Err(FileError::TooLong { path: path.into(), size });
        }
        let bytes = self.interpreter.files().read_part(&guest_path, range.offset, length);
        bytes.map_err(|error| FileError::Other { path: path.into(), reason: error.errno.to_string() })
    }

    fn write(&mut self, path: &str, bytes: &[u8]) -> Result<(), FileError> {
        let files = self.interpreter.files();
        match resolve_regular_file(files, path) {
            Ok(_) | Err(FileError::Missing(_)) => {}
            Err(error) => return Err(error),
        }
        files.write_file(&format!("{SESSION_DIRECTORY}/{path}"), bytes).map_err(|error| match error.errno {
            Errno::ENOSPC => FileError::Full(path.into()),
            errno => FileError::Other { path: path.into(), reason: errno.to_string() },
        })
    }
}

/// Returns the guest's path of a regular file and its size. Follows no link on the way.
fn resolve_regular_file(files: &mut Filesystem, path: &str) -> Result<(String, u64), FileError> {
    let mut guest_path = SESSION_DIRECTORY.to_owned();
    let mut names = path.split('/').peekable();
    while let Some(name) = names.next() {
        guest_path = format!("{guest_path}/{name}");
        let stat = files.stat_at(AT_FDCWD, &guest_path, false).map_err(|_| FileError::Missing(path.into()))?;
        match (names.peek().is_some(), stat.file_type) {
            (true, FileType::Directory) => {}
            (false, FileType::Regular) => return Ok((guest_path, stat.size)),
            _ => return Err(FileError::Name(path.into())),
        }
    }
    Err(FileError::Name(path.into()))
}

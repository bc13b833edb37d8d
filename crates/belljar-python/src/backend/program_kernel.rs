//! Code in an interpreter of its own as a kernel with one cell, so that it can wait where cells can: on the disk.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use belljar_core::activity::trace::SpanName;
use belljar_core::files::{FileError, FileInfo, Range};
use belljar_core::kernel::{
    Backend as _, CellError, CellObserver, CellRequest, CompletedRun, InputError, InputReply, InterruptHandle, Kernel,
    KernelError, KernelSnapshot, OneShotRequest,
};
use belljar_core::mime::DisplayEvent;
use belljar_core::progress::{ProgressStep, StepProgress};
use belljar_core::{
    CallCancellation, CellResult, CellStatus, CellStep, ConnectionRecord, EncodedValue, ExitReason, FunctionCall,
    InstallRecord, OutputCollector, Progress, ReplySender, RestoredRun, RunStep, SavedOutput, SessionFolder, Stream,
    WaitingRun, Waker,
};

use super::{WasmBackend, waiting_run};

/// The key of the output in the metadata of a snapshot.
const OUTPUT: &str = "output";

/// A kernel that runs one program. Its observer receives the report.
pub(super) struct ProgramKernel {
    backend: WasmBackend,
    state: State,
    /// The output so far, and the observer of the program.
    client: Option<(OutputCollector, Arc<dyn CellObserver>)>,
    cancellation: CallCancellation,
}

enum State {
    New(OneShotRequest),
    /// A program of another process, or one that was put to sleep.
    Saved(KernelSnapshot),
    Waiting(Box<dyn WaitingRun>),
    Completed,
}

impl ProgramKernel {
    pub(super) fn new(backend: WasmBackend, request: OneShotRequest) -> Self {
        Self { backend, state: State::New(request), client: None, cancellation: CallCancellation::default() }
    }

    /// Returns the kernel of a snapshot, if it is one of a program.
    pub(super) fn restored(backend: WasmBackend, snapshot: &KernelSnapshot) -> Option<Self> {
        let state = waiting_run::is_run(snapshot).then(|| State::Saved(snapshot.clone()))?;
        Some(Self { backend, state, client: None, cancellation: CallCancellation::default() })
    }

    fn observer(&self) -> Result<Arc<dyn CellObserver>, KernelError> {
        let (output, inner) = self.client.clone().ok_or(KernelError::Cancelled)?;
        Ok(Arc::new(ProgramObserver { output, inner }))
    }

    fn after_step(&mut self, step: Result<RunStep, KernelError>) -> CellStep {
        let status = match step {
            Ok(RunStep::Waiting(wait, run)) => {
                self.state = State::Waiting(run);
                return CellStep::Waiting(wait);
            }
            Ok(RunStep::Completed(completed)) => self.complete(*completed),
            Err(error) => {
                let message = error.to_string();
                CellStatus::Error(CellError { name: "RuntimeError".into(), message, traceback: Vec::new() })
            }
        };
        let outputs = self.client.take().map(|(output, _)| output.take()).unwrap_or_default();
        CellStep::Completed(CellResult { execution_count: 1, status, outputs })
    }

    fn complete(&self, CompletedRun { report, interpreter }: CompletedRun) -> CellStatus {
        drop(interpreter);
        let status = CellStatus::from(&report.outcome);
        if let Some((_, observer)) = &self.client {
            observer.on_report(report);
        }
        status
    }
}

impl Kernel for ProgramKernel {
    fn execute(&mut self, cell: &CellRequest, observer: Arc<dyn CellObserver>) -> CellResult {
        let waker = Waker::new(|| ());
        match self.begin(cell, observer, waker) {
            CellStep::Completed(result) => result,
            CellStep::Waiting(_) | CellStep::Suspended | CellStep::Failed(_) => {
                let status =
                    CellStatus::KernelDied(ExitReason::Crash("the code waits, but its caller does not".into()));
                CellResult { execution_count: 1, status, outputs: Vec::new() }
            }
        }
    }

    /// Begins the program. The cell is not used.
    fn begin(&mut self, _: &CellRequest, observer: Arc<dyn CellObserver>, waker: Waker) -> CellStep {
        self.client = Some((OutputCollector::new(observer.clone()), observer));
        let step = match (std::mem::replace(&mut self.state, State::Completed), self.observer()) {
            (State::New(request), Ok(observer)) => self.backend.begin_run(request, observer, &self.cancellation, waker),
            _ => Err(KernelError::Unsupported("a program runs once".into())),
        };
        self.after_step(step)
    }

    fn resume(&mut self) -> CellStep {
        let step = match std::mem::replace(&mut self.state, State::Completed) {
            State::Waiting(run) => run.resume(),
            _ => Err(KernelError::Unsupported("no program waits".into())),
        };
        self.after_step(step)
    }

    fn exclude_wait(&mut self) {
        if let State::Waiting(run) = &mut self.state {
            run.exclude_wait();
        }
    }

    fn has_replies(&mut self) -> bool {
        if let State::Waiting(run) = &mut self.state { run.has_replies() } else { true }
    }

    fn reattach(&mut self, observer: Arc<dyn CellObserver>, waker: Waker) -> Result<ReplySender, KernelError> {
        let State::Saved(snapshot) = std::mem::replace(&mut self.state, State::Completed) else {
            return Err(KernelError::Unsupported("no program waits in the snapshot".into()));
        };
        let saved = snapshot.metadata.get(OUTPUT).cloned().unwrap_or_default();
        let saved: SavedOutput = serde_json::from_value(saved)
            .map_err(|_| KernelError::IncompatibleSnapshot("its output cannot be read".into()))?;
        self.client = Some((OutputCollector::restored(observer.clone(), saved), observer));
        let restored = self.backend.restore_run(&snapshot, self.observer()?, &self.cancellation, waker)?;
        let RestoredRun { run, replies } = restored;
        self.state = State::Waiting(run);
        Ok(replies)
    }

    fn interrupt_handle(&self) -> Arc<dyn InterruptHandle> {
        Arc::new(ProgramInterrupt(self.cancellation.clone()))
    }

    fn restart(&mut self) -> Result<(), KernelError> {
        self.state = State::Completed;
        Ok(())
    }

    fn fork(&mut self, _: Option<&SessionFolder>) -> Result<Box<dyn Kernel>, KernelError> {
        Err(KernelError::Unsupported("a program is not a session".into()))
    }

    fn snapshot(&mut self) -> Result<KernelSnapshot, KernelError> {
        let (State::Waiting(run), Some((output, _))) = (&mut self.state, &self.client) else {
            return Err(KernelError::Unsupported("no program waits".into()));
        };
        let mut snapshot = run.snapshot()?;
        let output = output.save();
        let output = serde_json::to_value(output).map_err(|error| KernelError::Failed(error.into()))?;
        if let Some(metadata) = snapshot.metadata.as_object_mut() {
            metadata.insert(OUTPUT.into(), output);
        }
        // The image is that of the program's packages, and not one of sessions.
        snapshot.base = None;
        Ok(snapshot)
    }

    fn files(&mut self) -> Vec<FileInfo> {
        Vec::new()
    }

    fn read(&mut self, path: &str, _: Range) -> Result<Vec<u8>, FileError> {
        Err(FileError::Missing(path.into()))
    }

    fn write(&mut self, path: &str, _: &[u8]) -> Result<(), FileError> {
        Err(FileError::Missing(path.into()))
    }
}

/// Interrupts or kills a program.
struct ProgramInterrupt(CallCancellation);

impl InterruptHandle for ProgramInterrupt {
    fn interrupt(&self) {
        if let Some(handle) = self.0.handle() {
            handle.interrupt();
        } else {
            // The code has not begun.
            self.kill();
        }
    }

    fn kill(&self) {
        drop(self.0.kill_on_drop());
    }
}

/// Collects the output of a program, and passes everything on.
struct ProgramObserver {
    /// Passes output on to `inner`.
    output: OutputCollector,
    inner: Arc<dyn CellObserver>,
}

impl Progress for ProgramObserver {
    fn start(&self, step: ProgressStep) -> Box<dyn StepProgress> {
        self.inner.start(step)
    }
}

impl CellObserver for ProgramObserver {
    fn on_stream(&self, stream: Stream, bytes: &[u8]) {
        self.output.write(stream, bytes);
    }

    fn on_display(&self, event: &DisplayEvent) {
        self.inner.on_display(event);
    }

    fn on_phase(&self, name: &str) {
        self.inner.on_phase(name);
    }

    fn on_stage(&self, stage: SpanName) {
        self.inner.on_stage(stage);
    }

    fn on_install(&self, record: &InstallRecord) {
        self.inner.on_install(record);
    }

    fn on_debug(&self, message: &str) {
        self.inner.on_debug(message);
    }

    fn on_tool_call(&self, line: &str) {
        self.inner.on_tool_call(line);
    }

    fn on_connection(&self, record: &ConnectionRecord) {
        self.inner.on_connection(record);
    }

    fn request_input(&self, prompt: &str, secret: bool) -> Result<Receiver<InputReply>, InputError> {
        self.inner.request_input(prompt, secret)
    }

    fn on_value(&self, value: EncodedValue) {
        self.inner.on_value(value);
    }

    fn call_function(&self, call: FunctionCall, replies: &ReplySender) {
        self.inner.call_function(call, replies);
    }

    fn on_holding_wait(&self) {
        self.inner.on_holding_wait();
    }

    fn cancel_function(&self, id: u64) {
        self.inner.cancel_function(id);
    }
}

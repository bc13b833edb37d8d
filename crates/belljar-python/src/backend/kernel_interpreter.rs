//! The interpreter of a session: in this process, or in one of its own.
//!
//! A kernel drives its interpreter through [`KernelInterpreter`] alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use belljar_core::files::{FileError, FileInfo, Range};
use belljar_core::kernel::{CellObserver, CellRequest, InterruptHandle, KernelError, ShellRequest};
use belljar_core::{Exchange, Outcome, OutputCollector, Progress, Waker};
use belljar_emscripten::console::Discard;
use belljar_emscripten::fs::Filesystem;
use belljar_emscripten::recording::{Recording, SleepSaver};
use belljar_network::Scrubber;
use belljar_packages::Dependencies;
use serde_json::Value;

use super::exchange::{self, RunCalls};
use super::held_cell::HeldCell;
use super::isolated_host::RecordedCode;
use super::isolated_session::IsolatedSession;
use super::session_calls::CollectorSink;
use super::wait_clock::WaitEnd;
use crate::guest_call::GuestFunction;
use crate::guest_protocol::{ShellArguments, ShellCell, ShellResult};
use crate::host_calls::HostCall;
use crate::image::Image;
use crate::install::{CellPackages, PrepareError, RuntimeInstaller};
use crate::interpreter::{Interpreter, Renewal, Streams};
use crate::isolation::{FileReply, FileRequest};
use crate::network::NetworkClient;
use crate::packages::PackageSet;
use crate::session_files::{self, ListedFile};
use crate::steps::Step;

/// The interpreter of a session.
pub(super) enum KernelInterpreter {
    /// An interpreter in this process.
    Local(Box<Interpreter>),
    /// An interpreter in a process of its own.
    Isolated(Box<IsolatedSession>),
}

impl KernelInterpreter {
    /// Records the code from now on, in at most `max_bytes`. `saver` saves it while it sleeps.
    pub(super) fn start_recording(&mut self, max_bytes: usize, saver: Arc<dyn SleepSaver>) {
        match self {
            Self::Local(interpreter) => interpreter.start_recording(max_bytes, saver),
            Self::Isolated(session) => session.interpreter.host.recorded = Some(RecordedCode::new(max_bytes, saver)),
        }
    }

    /// Begins the replay of a recording, which goes on as a recording of at most `max_bytes`. Returns what is true
    /// while the code repeats what it did.
    ///
    /// # Errors
    /// Fails if the recording is damaged.
    pub(super) fn start_replay(&mut self, recording: &[u8], max_bytes: usize) -> Result<Arc<AtomicBool>, KernelError> {
        match self {
            Self::Local(interpreter) => {
                let recording = Recording::replay(recording, max_bytes, interpreter.stop_handle());
                let recording = recording.map_err(|error| KernelError::IncompatibleSnapshot(error.into()))?;
                let flag = recording.replaying_flag();
                interpreter.host_mut().start_recording(recording);
                Ok(flag)
            }
            Self::Isolated(session) => {
                session.interpreter.process.prepare_replay(recording, max_bytes as u64)?;
                let recorded = session.interpreter.host.recorded.insert(RecordedCode::replay());
                Ok(recorded.is_replaying.clone())
            }
        }
    }

    /// Sets what saves replayed code while it sleeps.
    pub(super) fn set_sleep_saver(&mut self, saver: Arc<dyn SleepSaver>) {
        match self {
            Self::Local(interpreter) => {
                interpreter.recording().into_iter().for_each(|it| it.set_sleep_saver(saver.clone()))
            }
            Self::Isolated(session) => {
                if let Some(recorded) = &mut session.interpreter.host.recorded {
                    recorded.sleep_saver = Some(saver);
                }
            }
        }
    }

    /// Ends the recording of the code.
    pub(super) fn stop_recording(&mut self) {
        match self {
            Self::Local(interpreter) => interpreter.stop_recording(),
            Self::Isolated(session) => session.interpreter.host.recorded = None,
        }
    }

    /// Returns whether the code repeats what it did.
    pub(super) fn is_replaying(&self) -> bool {
        match self {
            Self::Local(interpreter) => interpreter.recording().is_some_and(Recording::is_replaying),
            Self::Isolated(session) => {
                let recorded = session.interpreter.host.recorded.as_ref();
                recorded.is_some_and(|recorded| recorded.is_replaying.load(Ordering::Relaxed))
            }
        }
    }

    /// Notes that the replayed code has ended, which it did not before.
    pub(super) fn note_early_end(&mut self) {
        const REASON: &str = "it ended";
        match self {
            Self::Local(interpreter) => {
                interpreter.recording().inspect(|recording| recording.set_incomplete(REASON));
            }
            Self::Isolated(session) => {
                if let Some(recorded) = &mut session.interpreter.host.recorded {
                    recorded.divergence = Some(format!("{REASON}, which it did not before"));
                }
            }
        }
    }

    /// Returns how the replay of the code has diverged, if it has.
    pub(super) fn divergence(&self) -> Option<String> {
        match self {
            Self::Local(interpreter) => interpreter.divergence(),
            Self::Isolated(session) => session.interpreter.host.recorded.as_ref()?.divergence.clone(),
        }
    }

    /// Adds packages that were installed for a cell before it began.
    ///
    /// # Errors
    /// Fails if the interpreter cannot be moved to another process, which has them.
    pub(super) fn add_packages(
        &mut self,
        packages: &PackageSet,
        present: &PackageSet,
        progress: &dyn Progress,
    ) -> Result<(), KernelError> {
        match self {
            Self::Local(interpreter) => {
                for layer in packages.layers_not_in(present) {
                    interpreter.files().add_layer(layer.clone());
                }
                Ok(())
            }
            Self::Isolated(session) => session.move_to(packages, progress),
        }
    }

    /// Forgets the state that the next cell renews.
    pub(super) fn drop_renewal(&mut self) {
        match self {
            Self::Local(interpreter) => drop(interpreter.take_renewal()),
            Self::Isolated(session) => session.interpreter.renewal = Renewal::None,
        }
    }

    /// Returns whether the code has open connections.
    pub(super) fn has_connections(&self) -> bool {
        match self {
            Self::Local(interpreter) => interpreter.has_connections(),
            Self::Isolated(session) => session.interpreter.host.network.has_connections(),
        }
    }

    /// Returns the interpreter, to connect it to the network.
    pub(super) fn network_client(&mut self) -> &mut dyn NetworkClient {
        match self {
            Self::Local(interpreter) => &mut **interpreter,
            Self::Isolated(session) => &mut session.interpreter,
        }
    }

    /// Waits a moment for the records of the connections of code that has ended.
    pub(super) fn wait_for_connection_records(&self) {
        match self {
            Self::Local(interpreter) => interpreter.wait_for_connection_records(),
            Self::Isolated(session) => session.interpreter.wait_for_connection_records(),
        }
    }

    /// Runs a cell to its end.
    ///
    /// # Errors
    /// Returns the outcome of an interpreter in which the shell did not return.
    pub(super) fn execute(&mut self, cell: &CellRequest, color: bool) -> Result<Step<ShellCell>, Outcome> {
        match self {
            Self::Local(interpreter) => interpreter.execute(cell, color).map(Step::Completed),
            Self::Isolated(session) => session.begin_cell(cell, color, false),
        }
    }

    /// Runs a cell until it ends or waits.
    ///
    /// # Errors
    /// The same as for [`KernelInterpreter::execute`].
    pub(super) fn begin_cell(&mut self, cell: &CellRequest, color: bool) -> Result<Step<ShellCell>, Outcome> {
        match self {
            Self::Local(interpreter) => interpreter.begin_cell(cell, color),
            Self::Isolated(session) => {
                let stepped = session.image.functions().resume.is_some();
                session.begin_cell(cell, color, stepped)
            }
        }
    }

    /// Ends the wait of a cell: interrupts it or ends it if it has exceeded a limit.
    pub(super) fn end_wait(&mut self, wait_end: WaitEnd) {
        match self {
            Self::Local(interpreter) => wait_end.apply(interpreter),
            Self::Isolated(session) => session.ended = session.interpreter.end_wait(wait_end),
        }
    }

    /// Continues the cell that waits.
    ///
    /// # Errors
    /// The same as for [`KernelInterpreter::execute`].
    pub(super) fn resume_cell(&mut self) -> Result<Step<ShellCell>, Outcome> {
        match self {
            Self::Local(interpreter) => interpreter.resume_cell(),
            Self::Isolated(session) => session.resume_cell(),
        }
    }

    /// Sends a request to the shell.
    ///
    /// # Errors
    /// The outcome that ended the request, or the interpreter.
    pub(super) fn shell_request(&mut self, request: &ShellRequest) -> Result<Value, Outcome> {
        match self {
            Self::Local(interpreter) => interpreter.shell_request(request),
            Self::Isolated(session) => {
                let arguments = ShellArguments { request, renewal: session.interpreter.renewal };
                session.interpreter.call::<ShellResult>(GuestFunction::Ask, &arguments, true)?.into()
            }
        }
    }

    /// Returns the time for which the cell that waits has run.
    pub(super) fn spent(&self) -> Duration {
        match self {
            Self::Local(interpreter) => interpreter.spent,
            Self::Isolated(session) => session.interpreter.spent,
        }
    }

    /// Sets the time for which the cell that waits has run.
    pub(super) fn set_spent(&mut self, spent: Duration) {
        match self {
            Self::Local(interpreter) => interpreter.spent = spent,
            Self::Isolated(session) => session.interpreter.spent = spent,
        }
    }

    /// Continues a cell that has run for the time `spent` and was in no interpreter for the time `asleep`.
    pub(super) fn set_times(&mut self, spent: Duration, asleep: Duration) {
        match self {
            Self::Local(interpreter) => {
                interpreter.advance_clock(asleep);
                interpreter.spent = spent;
            }
            Self::Isolated(session) => {
                (session.interpreter.spent, session.interpreter.asleep) = (spent, asleep);
            }
        }
    }

    /// Sets the limit of elapsed time for what runs next; `None` removes it.
    pub(super) fn set_wall_time(&mut self, wall_time: Option<Duration>) {
        match self {
            Self::Local(interpreter) => interpreter.set_wall_time(wall_time),
            Self::Isolated(session) => session.interpreter.limits.wall_time = wall_time,
        }
    }

    /// Returns the state that the next cell renews.
    pub(super) fn renewal(&self) -> Renewal {
        match self {
            Self::Local(interpreter) => interpreter.renewal(),
            Self::Isolated(session) => session.interpreter.renewal,
        }
    }

    /// Returns the largest size that the memory has had, in bytes.
    pub(super) fn peak_memory(&self) -> u64 {
        match self {
            Self::Local(interpreter) => interpreter.peak_memory(),
            Self::Isolated(session) => session.interpreter.peak_memory.max(session.image.memory_size()),
        }
    }

    /// Returns a handle that stops the code from other threads.
    pub(super) fn interrupt_handle(&self) -> Arc<dyn InterruptHandle> {
        match self {
            Self::Local(interpreter) => Arc::new(interpreter.interrupt_handle()),
            Self::Isolated(session) => session.handle.clone(),
        }
    }

    /// Connects the interpreter's output to a cell.
    pub(super) fn redirect(&mut self, outputs: &OutputCollector) {
        let sink = Box::new(CollectorSink(outputs.clone()));
        match self {
            Self::Local(interpreter) => {
                interpreter.redirect(Streams { output: sink, input: Box::new(std::io::empty()) });
            }
            Self::Isolated(session) => session.interpreter.host.output = sink,
        }
    }

    /// Discards the output from now on, and forgets the signals of the cell that has ended.
    pub(super) fn end_cell(&mut self) {
        match self {
            Self::Local(interpreter) => {
                interpreter.redirect(Streams { output: Box::new(Discard), input: Box::new(std::io::empty()) });
            }
            Self::Isolated(session) => {
                session.interpreter.host.output = Box::new(Discard);
                session.handle.end_cell();
            }
        }
    }

    /// Registers the handler of the host call `name`, in place of an earlier one.
    pub(super) fn register_host_call(&mut self, name: &str, handler: Arc<dyn HostCall>) {
        match self {
            Self::Local(interpreter) => interpreter.register_host_call(name, handler),
            Self::Isolated(session) => session.interpreter.host.register(name, handler),
        }
    }

    /// Prepares the interpreter for a cell with an exchange: see [`exchange::begin`].
    ///
    /// # Errors
    /// Returns an error if the buffers do not fit into the code's file system.
    pub(super) fn begin_exchange(
        &mut self,
        exchange: Option<&Exchange>,
        tools: bool,
        observer: &Arc<dyn CellObserver>,
        waker: Option<&Waker>,
        held: Option<Arc<HeldCell>>,
        scrubber: &Scrubber,
    ) -> Result<Option<RunCalls>, KernelError> {
        match self {
            Self::Local(interpreter) => exchange::begin(interpreter, exchange, tools, observer, waker, held, scrubber),
            Self::Isolated(session) => {
                let calls = exchange::calls_of(exchange, tools, observer, waker, held, scrubber);
                let interpreter = &mut session.interpreter;
                interpreter.host.clear_buffers(&interpreter.limits);
                interpreter.host.set_calls(calls.clone());
                interpreter.variables = exchange.map(exchange::variables_of).unwrap_or_default();
                Ok(calls)
            }
        }
    }

    /// Registers the host calls of a cell that waited in another interpreter.
    pub(super) fn register_calls(&mut self, calls: &RunCalls) {
        match self {
            Self::Local(interpreter) => calls.register(interpreter),
            Self::Isolated(session) => session.interpreter.host.set_calls(Some(calls.clone())),
        }
    }

    /// Ends the calls of a cell: `refusal` handles those that follow.
    pub(super) fn end_calls(&mut self, refusal: &Arc<dyn HostCall>) {
        for name in exchange::NAMES {
            self.register_host_call(name, refusal.clone());
        }
    }

    /// Returns the file system with the buffers of the value.
    pub(super) fn value_files(&mut self) -> &mut Filesystem {
        match self {
            Self::Local(interpreter) => interpreter.files(),
            Self::Isolated(session) => &mut session.interpreter.host.files,
        }
    }

    /// Returns the modules in the working directory, and names that are not modules.
    pub(super) fn local_modules(&mut self) -> Vec<String> {
        session_files::local_modules(self.list_files())
    }

    /// Installs packages: adds their files to the file system. The next cell finds them.
    ///
    /// # Errors
    /// Returns an error if a required package cannot be installed.
    pub(super) fn install(
        &mut self,
        installer: &RuntimeInstaller,
        needs: &Dependencies,
        progress: &dyn Progress,
    ) -> Result<CellPackages, PrepareError> {
        match self {
            Self::Local(interpreter) => interpreter.install(installer, needs),
            Self::Isolated(session) => session.install(installer, needs, progress),
        }
    }

    /// Returns the packages of the session after a cell that had this installer.
    pub(super) fn packages_after(&self, installer: &RuntimeInstaller) -> PackageSet {
        match self {
            Self::Local(_) => installer.packages(),
            Self::Isolated(session) => installer.available().unwrap_or_else(|| session.packages.clone()),
        }
    }

    /// Returns the state for another interpreter: the difference from `image`.
    ///
    /// # Errors
    /// Fails if the interpreter has ended, or the state is too large.
    pub(super) fn save(&mut self, image: &Image) -> Result<Vec<u8>, KernelError> {
        match self {
            Self::Local(interpreter) => {
                let delta = interpreter.delta(image).map_err(|error| KernelError::Failed(error.into()))?;
                delta.to_bytes().map_err(|error| KernelError::Failed(error.into()))
            }
            Self::Isolated(session) => session.save_state(),
        }
    }

    fn list_files(&mut self) -> Vec<ListedFile> {
        match self {
            Self::Local(interpreter) => interpreter.list_session_files(),
            Self::Isolated(session) => match &mut session.folder {
                Some(folder) => session_files::list(folder),
                None => match session.interpreter.process.files(&FileRequest::List) {
                    Ok(FileReply::List(files)) => files,
                    _ => Vec::new(),
                },
            },
        }
    }

    /// Returns the session's regular files, without hidden ones.
    pub(super) fn files(&mut self) -> Vec<FileInfo> {
        session_files::visible(self.list_files())
    }

    /// Reads a part of a file of the session, without secrets.
    ///
    /// # Errors
    /// Fails if the file does not exist, or is not a regular file that the session has made.
    pub(super) fn read(&mut self, path: &str, range: Range) -> Result<Vec<u8>, FileError> {
        match self {
            Self::Local(interpreter) => interpreter.read_session_file(path, range),
            Self::Isolated(session) => {
                let scrubber = session.interpreter.scrubber().clone();
                if let Some(folder) = &mut session.folder {
                    return session_files::read(folder, &scrubber, path, range);
                }
                scrubber.read_part(range.offset, range.length.unwrap_or(u64::MAX), |offset, count| {
                    let length = range.length.map(|_| count);
                    let reply = session.ask(&FileRequest::Read { path: path.into(), offset, length }, path)?;
                    session_files::read_bytes(reply, path)
                })
            }
        }
    }

    /// Writes a whole file of the session.
    ///
    /// # Errors
    /// Fails if the file does not fit into the session's space.
    pub(super) fn write(&mut self, path: &str, bytes: &[u8]) -> Result<(), FileError> {
        match self {
            Self::Local(interpreter) => interpreter.write_session_file(path, bytes),
            Self::Isolated(session) => {
                if let Some(folder) = &mut session.folder {
                    return session_files::write(folder, path, bytes);
                }
                let reply = session.ask(&FileRequest::Write { path: path.into(), bytes: bytes.into() }, path)?;
                session_files::write_result(reply, path)
            }
        }
    }
}

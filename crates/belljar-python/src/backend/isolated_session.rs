//! The interpreter of a session in a process of its own: its start, its cells, what is saved of it, and its move to
//! another process that has more packages.

use std::sync::Arc;
use std::time::Duration;

use belljar_core::files::FileError;
use belljar_core::kernel::{CellRequest, InterruptHandle, KernelError};
use belljar_core::{ExitReason, Limits, Outcome, Progress};
use belljar_emscripten::console::Discard;
use belljar_emscripten::fs::{Filesystem, Quota};
use belljar_packages::Dependencies;
use parking_lot::Mutex;

use super::isolated_host::IsolatedHost;
use super::isolated_interpreter::IsolatedInterpreter;
use super::mounts::{GuestMount, mount_all};
use crate::guest_call::GuestFunction;
use crate::guest_protocol::{ExecuteArguments, ExecuteResult, ResumeArguments, ShellCell};
use crate::image::Image;
use crate::install::{CellPackages, PrepareError, RuntimeInstaller};
use crate::interpreter::Renewal;
use crate::isolation::{
    FileReply, FileRequest, InterpreterProcesses, SavedPart, SessionProcess, SessionRequest, SessionStart,
};
use crate::kept_image::KeptImage;
use crate::packages::PackageSet;
use crate::session::SESSION_DIRECTORY;
use crate::steps::Step;

/// The interpreter of a session in a process of its own, on the side of its kernel. No other code runs in the process.
pub(super) struct IsolatedSession {
    pub(super) interpreter: IsolatedInterpreter<dyn SessionProcess>,
    processes: Arc<dyn InterpreterProcesses>,
    pub(super) image: Image,
    /// The place of the image, if it is that of an earlier build.
    kept_image: Option<KeptImage>,
    /// The packages that the process has.
    pub(super) packages: PackageSet,
    /// True if packages were installed since the last cell.
    has_new_packages: bool,
    pub(super) handle: Arc<SessionHandle>,
    /// The reason why the cell that is about to go on was ended.
    pub(super) ended: Option<ExitReason>,
    /// The folder of the session (`--files`). It is read and written without the process.
    pub(super) folder: Option<Filesystem>,
}

impl IsolatedSession {
    /// Starts an interpreter with these packages, those of `image` among them.
    ///
    /// # Errors
    /// See [`InterpreterProcesses::start_session`].
    pub(super) fn start(
        processes: Arc<dyn InterpreterProcesses>,
        (image, kept_image): (&Image, Option<&KeptImage>),
        packages: &PackageSet,
        limits: Limits,
        (start, renewal): (SessionStart<'_>, Renewal),
        mounts: Vec<GuestMount>,
        progress: &dyn Progress,
    ) -> Result<Self, KernelError> {
        let folder = folder_of(&mounts)?;
        let host = IsolatedHost::with_output(Box::new(Discard), mounts, &limits);
        let mounts = &host.mounts.points();
        let memory = image.memory_size();
        let request = SessionRequest { packages, kept_image, limits: &limits, memory, start, mounts };
        let process = processes.start_session(&request, progress)?;
        let handle = Arc::new(SessionHandle::new(process.interrupt_handle()));
        let interpreter = IsolatedInterpreter::new(process, host, limits, renewal);
        Ok(Self {
            interpreter,
            processes,
            image: image.clone(),
            kept_image: kept_image.cloned(),
            packages: packages.clone(),
            has_new_packages: false,
            handle,
            ended: None,
            folder,
        })
    }

    /// Starts an interpreter with the same packages, and with these directories, in another process.
    ///
    /// # Errors
    /// The same as for [`IsolatedSession::start`].
    pub(super) fn start_another(
        &self,
        start: (SessionStart<'_>, Renewal),
        mounts: Vec<GuestMount>,
        progress: &dyn Progress,
    ) -> Result<Self, KernelError> {
        let limits = self.interpreter.limits;
        let image = (&self.image, self.kept_image.as_ref());
        Self::start(self.processes.clone(), image, &self.packages, limits, start, mounts, progress)
    }

    /// Returns the directories of the host that the session has.
    pub(super) fn mounts(&self) -> Vec<GuestMount> {
        self.interpreter.host.mounts.mounts().to_vec()
    }

    /// Saves the state, for an interpreter in another process.
    ///
    /// # Errors
    /// Fails if the interpreter has ended, or the state is too large.
    pub(super) fn save_state(&mut self) -> Result<Vec<u8>, KernelError> {
        self.interpreter.process.save(SavedPart::State)
    }

    /// Saves the files, for an interpreter in another process. The code may have ended this one.
    ///
    /// # Errors
    /// Returns [`KernelError::ProcessEnded`] if the files are lost.
    pub(super) fn save_files(&mut self) -> Result<Vec<u8>, KernelError> {
        let process = &mut self.interpreter.process;
        match process.save(SavedPart::Files) {
            Err(_) if process.has_ended() => Err(KernelError::ProcessEnded),
            saved => saved,
        }
    }

    pub(super) fn begin_cell(
        &mut self,
        cell: &CellRequest,
        color: bool,
        stepped: bool,
    ) -> Result<Step<ShellCell>, Outcome> {
        let arguments = ExecuteArguments {
            cell,
            color,
            max_value_bytes: self.interpreter.limits.value,
            installed: std::mem::take(&mut self.has_new_packages),
            renewal: std::mem::take(&mut self.interpreter.renewal),
            stepped,
            environment: self.interpreter.take_environment(),
        };
        self.interpreter.spent = Duration::ZERO;
        to_cell(self.interpreter.step(GuestFunction::Execute, &arguments, true).0)
    }

    pub(super) fn resume_cell(&mut self) -> Result<Step<ShellCell>, Outcome> {
        if let Some(reason) = self.ended.take() {
            return Err(Outcome::Exited(reason));
        }
        let renewal = Some(std::mem::take(&mut self.interpreter.renewal)).filter(|renewal| *renewal != Renewal::None);
        let arguments = ResumeArguments { renewal, environment: self.interpreter.take_environment() };
        to_cell(self.interpreter.step(GuestFunction::Resume, &arguments, false).0)
    }

    pub(super) fn ask(&mut self, request: &FileRequest, path: &str) -> Result<FileReply, FileError> {
        let reply = self.interpreter.process.files(request);
        reply.map_err(|error| FileError::Other { path: path.into(), reason: error.to_string() })
    }

    /// Installs packages. A sealed process cannot open files, so that the session goes on in another one that has the
    /// packages from its beginning.
    pub(super) fn install(
        &mut self,
        installer: &RuntimeInstaller,
        needs: &Dependencies,
        progress: &dyn Progress,
    ) -> Result<CellPackages, PrepareError> {
        // The process gets its files itself.
        let mut unused_files = Filesystem::new(Quota::default());
        let installed = installer.install(needs, &mut unused_files)?;
        let packages = installer.packages();
        if packages.key() == self.packages.key() {
            return Ok(installed);
        }
        // The state refers to the files of all packages that it had.
        if self.packages.wheel_ids().any(|id| !packages.wheel_ids().any(|there| there == id)) {
            let reason = "it needs another version of a package that the session has: start another session";
            return Err(PrepareError::Process(reason.into()));
        }
        self.move_to(&packages, progress).map_err(|error| PrepareError::Process(error.into()))?;
        Ok(installed)
    }

    /// Moves the interpreter into a process with these packages. No cell runs.
    pub(super) fn move_to(&mut self, packages: &PackageSet, progress: &dyn Progress) -> Result<(), KernelError> {
        let state = self.save_state()?;
        let (limits, memory) = (&self.interpreter.limits, self.image.memory_size());
        let mounts = &self.interpreter.host.mounts.points();
        let (kept_image, start) = (self.kept_image.as_ref(), SessionStart::State(&state));
        let request = SessionRequest { packages, kept_image, limits, memory, start, mounts };
        let process = self.processes.start_session(&request, progress)?;
        self.handle.replace(process.interrupt_handle());
        self.interpreter.process = process;
        self.interpreter.host.end_process();
        self.packages = packages.clone();
        self.has_new_packages = true;
        Ok(())
    }
}

/// Returns the folder of a session among its directories, at the path that its code has for it.
fn folder_of(mounts: &[GuestMount]) -> Result<Option<Filesystem>, KernelError> {
    let folder = mounts.iter().find(|mount| mount.guest == SESSION_DIRECTORY);
    let folder = folder.map(|folder| -> Result<Filesystem, KernelError> {
        let mut files = Filesystem::new(Quota::default());
        mount_all(&mut files, std::slice::from_ref(folder))?;
        Ok(files)
    });
    folder.transpose()
}

fn to_cell(step: Result<Step<ExecuteResult>, Outcome>) -> Result<Step<ShellCell>, Outcome> {
    match step? {
        Step::Waiting(wait) => Ok(Step::Waiting(wait)),
        Step::Completed(result) => Result::from(result).map(Step::Completed),
    }
}

/// The handle of a session's code, which stays valid when the code moves to another process before it begins.
pub(super) struct SessionHandle(Mutex<HandleState>);

struct HandleState {
    inner: Arc<dyn InterruptHandle>,
    /// True if the cell was interrupted.
    is_interrupted: bool,
    is_killed: bool,
}

impl SessionHandle {
    fn new(inner: Arc<dyn InterruptHandle>) -> Self {
        Self(Mutex::new(HandleState { inner, is_interrupted: false, is_killed: false }))
    }

    /// Sets the handle of the process that the code is in from now on, which receives the signals so far.
    fn replace(&self, inner: Arc<dyn InterruptHandle>) {
        let mut state = self.0.lock();
        if state.is_killed {
            inner.kill();
        } else if state.is_interrupted {
            inner.interrupt();
        }
        state.inner = inner;
    }

    pub(super) fn end_cell(&self) {
        self.0.lock().is_interrupted = false;
    }
}

impl InterruptHandle for SessionHandle {
    fn interrupt(&self) {
        let mut state = self.0.lock();
        state.is_interrupted = true;
        state.inner.interrupt();
    }

    fn kill(&self) {
        let mut state = self.0.lock();
        state.is_killed = true;
        state.inner.kill();
    }
}

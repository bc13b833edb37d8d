//! The host's handle of a sandbox.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};

use crate::channel::Channel;
use crate::control_group::ControlGroup;
use crate::error::{Error, SpecError};
use crate::exit_status::ExitStatus;
use crate::fork_server::{self, LauncherProcess};
use crate::launcher::ORPHAN_KILL_TIMEOUT;
use crate::policy::Policy;
use crate::protocol::{Command, Report, Task};
use crate::spec::Spec;
use crate::syscalls;

/// The longest wait for a report of the launcher. It is as long as the start of a kernel may take: a busy machine needs
/// seconds.
const REPORT_TIMEOUT: Duration = Duration::from_secs(60);

/// The time that the launcher has to reap the first process before it is killed as well.
const REAP_TIMEOUT: Duration = Duration::from_millis(200);

/// The standard streams of the program. `None` is `/dev/null`.
#[derive(Debug, Default)]
pub struct Streams {
    /// Standard input.
    pub input: Option<OwnedFd>,
    /// Standard output. It should be a pipe: with any other file, the code can do everything that the descriptor
    /// allows.
    pub output: Option<OwnedFd>,
    /// Standard error, likewise.
    pub errors: Option<OwnedFd>,
}

/// A sandbox. Dropping it kills all processes inside, and waits for their end: with namespaces a fifth of a second at
/// most, without them some seconds if the code defends itself by forking.
#[derive(Debug)]
pub struct Sandbox {
    launcher: LauncherProcess,
    channel: Channel,
    /// The pidfd of the first process in the namespaces; `None` without namespaces.
    pub(crate) first: Option<OwnedFd>,
    /// Landlock's ruleset; `None` without namespaces.
    pub(crate) ruleset: Option<OwnedFd>,
    program: Option<OwnedFd>,
    listener: Option<OwnedFd>,
    memory_folders: HashMap<PathBuf, OwnedFd>,
    exit_status: Option<ExitStatus>,
    exceeded_memory: bool,
    pub(crate) spec: Spec,
    /// The control group. As a field it is dropped after [`Self::kill`] has run, when the group is empty.
    pub(crate) group: Option<ControlGroup>,
}

/// Creates a sandbox and, unless it is [idle](Spec::idle), starts its program. Returns when the program runs.
///
/// Blocks for a few milliseconds. The first call also starts the fork server. It may be called from any thread; that
/// thread may end before the sandbox does.
///
/// # Errors
///
/// Returns [`Error::InvalidSpec`] for an invalid specification; [`Error::Setup`] with the step that failed.
pub fn spawn(spec: &Spec, policy: Policy, streams: Streams) -> Result<Sandbox, Error> {
    spec.check()?;
    if policy != Policy::Full && spec.arguments.is_empty() {
        return Err(SpecError::IdleWithoutNamespaces.into());
    }
    if policy != Policy::Full && spec.listener.is_some() {
        return Err(SpecError::ListenerWithoutNamespaces.into());
    }
    let (channel, launcher_end) = Channel::pair().map_err(Error::failed_to("create a socket"))?;
    let null = File::options().write(true).open("/dev/null").map_err(Error::failed_to("open /dev/null"))?;
    let output = streams.output.as_ref().map_or(null.as_fd(), AsFd::as_fd);
    let errors = streams.errors.as_ref().map_or(null.as_fd(), AsFd::as_fd);
    let launcher = fork_server::launch(launcher_end.as_fd(), output, errors)?;
    // Only the launcher keeps these descriptors: when it ends, the other ends of all three see the end of file.
    drop((launcher_end, streams.output, streams.errors));
    // From here on, dropping the sandbox kills the launcher.
    let mut sandbox = Sandbox::new(launcher, channel, spec.clone());
    if let Some(groups) = &spec.control_groups {
        // The launcher waits for its task, and has not started any process.
        sandbox.group = Some(ControlGroup::new(groups, spec, sandbox.launcher.pid)?);
    }
    sandbox.setup(policy, streams.input)?;
    Ok(sandbox)
}

impl Sandbox {
    /// Creates the handle of a sandbox that is not set up.
    fn new(launcher: LauncherProcess, channel: Channel, spec: Spec) -> Self {
        Self {
            launcher,
            channel,
            first: None,
            ruleset: None,
            program: None,
            listener: None,
            memory_folders: HashMap::new(),
            exit_status: None,
            exceeded_memory: false,
            spec,
            group: None,
        }
    }

    /// Sends the launcher its task, and waits until the sandbox is ready.
    fn setup(&mut self, policy: Policy, input: Option<OwnedFd>) -> Result<(), Error> {
        let task = Task { spec: self.spec.clone(), policy };
        let input: Vec<BorrowedFd<'_>> = input.iter().map(AsFd::as_fd).collect();
        match self.channel.send(&task, &input) {
            Ok(()) => {}
            // The launcher ended: its report, which is read below, has the reason.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Err(SpecError::TooLarge(error).into()),
            Err(error) => return Err(Error::failed_to("send the task to the launcher")(error)),
        }
        self.set_receive_timeout(Some(REPORT_TIMEOUT))?;
        // The launcher reports the first process, which reports that it is ready: their messages may come in any order.
        let mut is_ready = false;
        while !is_ready || (policy == Policy::Full && self.first.is_none()) {
            match self.receive()? {
                Some((Report::Failed(failure), _)) => return Err(Error::Setup(failure)),
                Some((Report::InitStarted, descriptors)) => self.first = descriptors.into_iter().next(),
                Some((Report::Ready { memory_folders, has_program, has_listener }, descriptors)) => {
                    let mut descriptors = descriptors.into_iter();
                    if policy == Policy::Full {
                        self.ruleset = descriptors.next();
                    }
                    if has_program {
                        self.program = descriptors.next();
                    }
                    if has_listener {
                        self.listener = descriptors.next();
                    }
                    self.memory_folders = memory_folders.into_iter().zip(descriptors).collect();
                    is_ready = true;
                }
                Some((report, _)) => self.record(&report),
                None => return Err(Error::LauncherExited("it sent no report".to_owned())),
            }
        }
        self.set_receive_timeout(None)
    }

    fn set_receive_timeout(&self, timeout: Option<Duration>) -> Result<(), Error> {
        set_socket_timeout(&self.channel, Timeout::Recv, timeout)
            .map_err(|error| Error::failed_to("set a socket timeout")(error.into()))
    }

    fn receive(&self) -> Result<Option<(Report, Vec<OwnedFd>)>, Error> {
        self.channel.receive(true).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => Error::Timeout(REPORT_TIMEOUT),
            _ => Error::failed_to("receive a report from the launcher")(error),
        })
    }

    /// Returns the process ID of the launcher.
    #[must_use]
    pub fn launcher_pid(&self) -> u32 {
        self.launcher.pid
    }

    /// Returns the pidfd of the launcher. It becomes readable when all processes of the sandbox have ended.
    #[must_use]
    pub fn launcher_pidfd(&self) -> BorrowedFd<'_> {
        self.launcher.pidfd.as_fd()
    }

    /// Returns the pidfd of the program, or `None` if the sandbox is idle.
    #[must_use]
    pub fn program_pidfd(&self) -> Option<BorrowedFd<'_>> {
        self.program.as_ref().map(AsFd::as_fd)
    }

    /// Returns the listening socket of [`Spec::listener`], once. It accepts connections of the processes inside: no
    /// other process can connect to it.
    #[must_use]
    pub fn take_listener(&mut self) -> Option<OwnedFd> {
        self.listener.take()
    }

    /// Returns the host's descriptor of a folder in [memory](crate::FolderSource::Memory), by its path inside. A
    /// duplicate of it outlives the sandbox.
    ///
    /// The code controls the content of the folder: links may lead to any path, and reading a FIFO may block forever.
    /// Open files below the folder with `openat2(2)`, `RESOLVE_BENEATH`, `RESOLVE_NO_SYMLINKS` and `O_NONBLOCK`, and
    /// read regular files only.
    #[must_use]
    pub fn folder(&self, inside: &Path) -> Option<BorrowedFd<'_>> {
        self.memory_folders.get(inside).map(AsFd::as_fd)
    }

    /// Sends a signal to the program.
    ///
    /// # Errors
    ///
    /// Fails if the sandbox is idle, or the program has ended.
    pub fn signal(&self, signal: i32) -> Result<(), Error> {
        let program = self.program.as_ref().ok_or(SpecError::NoProgram)?;
        syscalls::signal(program.as_fd(), signal).map_err(Error::failed_to("send a signal"))
    }

    /// Kills all processes inside, and keeps the sandbox with the files in its folders.
    ///
    /// # Errors
    ///
    /// Fails if the sandbox has ended.
    pub fn kill_all(&mut self) -> Result<(), Error> {
        self.channel.send(&Command::KillAll, &[]).map_err(Error::failed_to("send a command to the sandbox"))?;
        self.set_receive_timeout(Some(REPORT_TIMEOUT))?;
        loop {
            match self.receive()? {
                Some((Report::CommandDone, _)) => return self.set_receive_timeout(None),
                Some((report, _)) => self.record(&report),
                None => return Err(Error::LauncherExited("it did not execute a command".to_owned())),
            }
        }
    }

    /// Returns whether all processes were killed because they exceeded the memory limit, since the last call.
    #[must_use]
    pub fn exceeded_memory(&mut self) -> bool {
        while let Ok(Some((report, _))) = self.channel.receive::<Report>(false) {
            self.record(&report);
        }
        std::mem::take(&mut self.exceeded_memory)
    }

    fn record(&mut self, report: &Report) {
        match report {
            Report::ProgramExited(status) => self.exit_status = Some(*status),
            Report::MemoryLimitExceeded => self.exceeded_memory = true,
            _ => {}
        }
    }

    /// Waits until all processes of the sandbox have ended.
    ///
    /// # Errors
    ///
    /// Fails if a system call that waits fails.
    pub fn wait(&mut self) -> Result<ExitStatus, Error> {
        while let Some((report, _)) = self.receive()? {
            self.record(&report);
        }
        // A signal to this process may end the wait early.
        let wait = || syscalls::poll([(self.launcher_pidfd(), libc::POLLIN)], -1);
        while wait().map_err(Error::failed_to("wait for the launcher"))? == [0] {}
        Ok(self.exit_status.unwrap_or(ExitStatus::Killed))
    }

    /// Kills all processes inside, and the sandbox.
    pub fn kill(&mut self) {
        let milliseconds = |time: Duration| time.as_millis().try_into().unwrap_or(i32::MAX);
        if let Some(first) = &self.first {
            // The launcher then reaps it and exits. The only possible error is that it has already ended.
            let _ = syscalls::signal(first.as_fd(), libc::SIGKILL);
            let _ = syscalls::poll([(self.launcher_pidfd(), libc::POLLIN)], milliseconds(REAP_TIMEOUT));
        } else if rustix::net::shutdown(&self.channel, rustix::net::Shutdown::Both).is_ok() {
            // Without namespaces the kernel kills nothing when the launcher ends: it has to kill its descendants first.
            let _ = syscalls::poll([(self.launcher_pidfd(), libc::POLLIN)], milliseconds(2 * ORPHAN_KILL_TIMEOUT));
        }
        // Most often it has ended by now. If it is killed, it ends within moments.
        let _ = syscalls::signal(self.launcher_pidfd(), libc::SIGKILL);
        let _ = syscalls::poll([(self.launcher_pidfd(), libc::POLLIN)], milliseconds(REPORT_TIMEOUT));
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command as Process;

    use super::*;

    /// The launcher may be without a processor between the fork of the first process and its report of it.
    #[test]
    fn reports_of_the_launcher_and_of_the_first_process_may_come_in_any_order() {
        let mut process = Process::new("sleep").arg("600").spawn().unwrap();
        let pidfd = || syscalls::pidfd_open(process.id().cast_signed()).unwrap();
        let (channel, launcher_end) = Channel::pair().unwrap();
        let launcher = LauncherProcess { pid: process.id(), pidfd: pidfd() };
        let mut sandbox = Sandbox::new(launcher, channel, Spec::new(["true"]));
        let (ruleset, program) = (File::open("/dev/null").unwrap(), pidfd());
        let ready = Report::Ready { memory_folders: Vec::new(), has_program: true, has_listener: false };
        launcher_end.send(&ready, &[ruleset.as_fd(), program.as_fd()]).unwrap();
        launcher_end.send(&Report::ProgramExited(ExitStatus::Exited(3)), &[]).unwrap();
        launcher_end.send(&Report::InitStarted, &[program.as_fd()]).unwrap();

        sandbox.setup(Policy::Full, None).unwrap();
        assert!(sandbox.first.is_some() && sandbox.ruleset.is_some() && sandbox.program.is_some());
        assert_eq!(sandbox.exit_status, Some(ExitStatus::Exited(3)));
        drop(sandbox);
        assert!(!process.wait().unwrap().success());
    }
}

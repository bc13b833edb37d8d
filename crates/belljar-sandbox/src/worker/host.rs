//! The host's handles of the template and of its workers.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use serde::Serialize;

use super::{ForkRequest, TemplateReply, TemplateReport};
use crate::channel::Channel;
use crate::error::Error;
use crate::syscalls;

/// The longest wait for a fork; a busy machine may need most of it.
const FORK_TIMEOUT: Duration = Duration::from_secs(20);
/// The longest wait for a template to be ready: it may have to build what workers share.
const READY_TIMEOUT: Duration = Duration::from_secs(600);

/// A template that workers are forked from. Dropping it ends the template and all of its workers.
#[derive(Debug)]
pub struct WorkerTemplate {
    channel: Mutex<Channel>,
    process: Mutex<Child>,
    report: TemplateReport,
}

impl WorkerTemplate {
    /// Starts `command` as a template, with a clean environment, and waits until it is ready. The command must call
    /// [`Template::if_child`](super::Template::if_child) with its first argument.
    ///
    /// # Errors
    ///
    /// [`Error::LauncherExited`] with the reason if the template cannot be made ready.
    pub fn start(command: &[OsString], task: &impl Serialize) -> Result<Self, Error> {
        let (channel, template_end) = Channel::pair().map_err(Error::failed_to("create a socket"))?;
        set_timeout(&channel, READY_TIMEOUT)?;
        let Some((program, arguments)) = command.split_first() else {
            let error = io::ErrorKind::InvalidInput.into();
            return Err(Error::failed_to("start the template of workers")(error));
        };
        let process = Command::new(program)
            .args(arguments)
            .env_clear()
            // A Ctrl-C in the terminal is handled by the host alone.
            .process_group(0)
            .stdin(template_end.into_descriptor())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(Error::failed_to("start the template of workers"))?;
        // From here on, the process is ended on failure.
        let mut template =
            Self { channel: Mutex::new(channel), process: Mutex::new(process), report: TemplateReport::default() };
        let reply = {
            let channel = template.channel.lock();
            channel.send(task, &[]).map_err(Error::failed_to("send a task to the template of workers"))?;
            receive(&channel, READY_TIMEOUT)?
        };
        match reply {
            (TemplateReply::Ready(report), _) => {
                template.report = report;
                set_timeout(&template.channel.lock(), FORK_TIMEOUT)?;
                Ok(template)
            }
            (TemplateReply::Failed(reason), _) => Err(Error::LauncherExited(reason)),
            _ => Err(unexpected()),
        }
    }

    /// Returns the layers that this machine does not provide.
    pub fn report(&self) -> &TemplateReport {
        &self.report
    }

    /// Returns whether the template has ended.
    pub fn has_ended(&self) -> bool {
        !matches!(self.process.lock().try_wait(), Ok(None))
    }

    /// Forks a worker, which gets `descriptors`.
    ///
    /// # Errors
    ///
    /// When the template has ended, or the system refuses another process.
    pub fn fork(&self, descriptors: &[BorrowedFd<'_>]) -> Result<WorkerProcess, Error> {
        let channel = self.channel.lock();
        channel.send(&ForkRequest {}, descriptors).map_err(Error::failed_to("send a request to the template"))?;
        match receive(&channel, FORK_TIMEOUT)? {
            (TemplateReply::Forked(_), descriptors) => {
                let pidfd = descriptors.into_iter().next().ok_or_else(unexpected)?;
                Ok(WorkerProcess { pidfd })
            }
            (TemplateReply::NotForked(reason), _) => Err(Error::failed_to("fork a worker")(io::Error::other(reason))),
            _ => Err(unexpected()),
        }
    }
}

impl Drop for WorkerTemplate {
    fn drop(&mut self) {
        let process = self.process.get_mut();
        // It may have ended already.
        let _ = process.kill();
        let _ = process.wait();
    }
}

fn unexpected() -> Error {
    Error::LauncherExited("the template of workers sent an unexpected message".to_owned())
}

fn set_timeout(channel: &Channel, timeout: Duration) -> Result<(), Error> {
    set_socket_timeout(channel, Timeout::Recv, Some(timeout))
        .map_err(|error| Error::failed_to("set a socket timeout")(error.into()))
}

fn receive(channel: &Channel, timeout: Duration) -> Result<(TemplateReply, Vec<OwnedFd>), Error> {
    let received = channel.receive(true).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => Error::Timeout(timeout),
        _ => Error::failed_to("receive a reply of the template")(error),
    })?;
    received.ok_or_else(|| Error::LauncherExited("the template of workers ended".to_owned()))
}

/// The process of a worker. Dropping it kills the process.
#[derive(Debug)]
pub struct WorkerProcess {
    pidfd: OwnedFd,
}

impl WorkerProcess {
    /// Returns whether the process has ended.
    pub fn has_ended(&self) -> bool {
        // An error is not expected, and no reason to use the process.
        syscalls::poll([(self.pidfd.as_fd(), libc::POLLIN)], 0).map_or(true, |[events]| events != 0)
    }

    /// Kills the process. Does nothing if it has ended.
    pub fn kill(&self) {
        let _ = syscalls::signal(self.pidfd.as_fd(), libc::SIGKILL);
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

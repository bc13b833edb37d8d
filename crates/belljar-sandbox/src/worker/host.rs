//! The host's handles of the template and of its workers.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use serde::Serialize;

use super::{ForkRequest, TemplateReply, TemplateReport};
use crate::channel::Channel;
use crate::error::Error;
use crate::memory_limit;
use crate::process_tree::process_id;
use crate::syscalls::{self, ProcessClock};

/// The longest wait for a fork; a busy machine needs seconds.
const FORK_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest wait for a template to be ready: it may have to build what workers share.
const READY_TIMEOUT: Duration = Duration::from_secs(600);

/// A template that workers are forked from. Dropping it ends the template and all of its workers.
#[derive(Debug)]
pub struct WorkerTemplate {
    connection: Mutex<Connection>,
    process: Mutex<Child>,
    report: TemplateReport,
}

/// The connection to a template.
#[derive(Debug)]
struct Connection {
    channel: Channel,
    /// The number of requests to fork a worker so far.
    requests: u64,
}

impl WorkerTemplate {
    /// Starts `command` as a template, with a clean environment, and waits until it is ready. The command must call
    /// [`Template::if_child`](super::Template::if_child) with its first argument.
    ///
    /// # Errors
    ///
    /// Returns [`Error::LauncherExited`] with the reason if the template cannot be made ready.
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
        let connection = Mutex::new(Connection { channel, requests: 0 });
        let mut template = Self { connection, process: Mutex::new(process), report: TemplateReport::default() };
        let channel = &template.connection.get_mut().channel;
        channel.send(task, &[]).map_err(Error::failed_to("send a task to the template of workers"))?;
        match receive(channel, READY_TIMEOUT)? {
            (TemplateReply::Ready(report), _) => {
                set_timeout(channel, FORK_TIMEOUT)?;
                template.report = report;
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
    /// Fails if the template has ended, or the system refuses another process.
    pub fn fork(&self, descriptors: &[BorrowedFd<'_>]) -> Result<WorkerProcess, Error> {
        let mut connection = self.connection.lock();
        connection.requests += 1;
        let Connection { channel, requests: number } = &*connection;
        channel
            .send(&ForkRequest { number: *number }, descriptors)
            .map_err(Error::failed_to("send a request to the template"))?;
        loop {
            match receive(channel, FORK_TIMEOUT)? {
                // The reply to a request that was given up. Its worker ends, since no other end of its descriptors is
                // open.
                (TemplateReply::Forked(late) | TemplateReply::NotForked(late, _), _) if late < *number => {}
                (TemplateReply::Forked(replied), descriptors) if replied == *number => {
                    let pidfd = descriptors.into_iter().next().ok_or_else(unexpected)?;
                    return Ok(WorkerProcess { pidfd, id: OnceLock::new(), clock: OnceLock::new() });
                }
                (TemplateReply::NotForked(replied, reason), _) if replied == *number => {
                    return Err(Error::failed_to("fork a worker")(io::Error::other(reason)));
                }
                _ => return Err(unexpected()),
            }
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
    /// The process ID, once it is known. It may be that of another process after the end of this one.
    id: OnceLock<i32>,
    /// The clock of its processor time, once it was read.
    clock: OnceLock<ProcessClock>,
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

    /// Returns the memory of the process, in bytes: its pages that belong to no file, resident or swapped out, and its
    /// page tables. Pages that it shares with the template count. Returns `None` if the process has ended, or `/proc`
    /// does not show it.
    pub fn memory_bytes(&self) -> Option<u64> {
        // If the process has ended and its number was given to another one, the result is that of the other one:
        // killing by the pidfd then does nothing.
        memory_limit::process_bytes(Path::new(&format!("/proc/{}", self.id()?)))
    }

    /// Returns the processor time that all threads of the process have used, as the kernel measures it. Returns `None`
    /// if the process has ended.
    pub fn processor_time(&self) -> Option<Duration> {
        let time = self.unchecked_processor_time()?;
        (!self.has_ended()).then_some(time)
    }

    /// Does the same as [`processor_time`](Self::processor_time), with a system call less: the time is that of the
    /// process only if the process has not ended afterwards.
    pub fn unchecked_processor_time(&self) -> Option<Duration> {
        let clock = match self.clock.get() {
            Some(clock) => clock,
            None => {
                let clock = ProcessClock::of(self.id()?).ok()?;
                self.clock.get_or_init(|| clock)
            }
        };
        clock.now().ok()
    }

    /// Returns the process ID. It is valid only if the process has not ended afterwards.
    fn id(&self) -> Option<i32> {
        if let Some(id) = self.id.get() {
            return Some(*id);
        }
        let id = process_id(self.pidfd.as_fd())?;
        Some(*self.id.get_or_init(|| id))
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_reply_is_not_taken_for_the_next_one() {
        let sleep = || Command::new("sleep").arg("600").spawn().unwrap();
        let pidfd = |child: &Child| syscalls::pidfd_open(i32::try_from(child.id()).unwrap()).unwrap();
        let (channel, template_end) = Channel::pair().unwrap();
        set_timeout(&channel, Duration::from_millis(100)).unwrap();
        let template = WorkerTemplate {
            connection: Mutex::new(Connection { channel, requests: 0 }),
            process: Mutex::new(sleep()),
            report: TemplateReport::default(),
        };
        assert!(matches!(template.fork(&[]), Err(Error::Timeout(_))));
        set_timeout(&template.connection.lock().channel, FORK_TIMEOUT).unwrap();
        let (mut first, mut second) = (sleep(), sleep());
        for (number, child) in [(1, &first), (2, &second)] {
            let pidfd = pidfd(child);
            template_end.send(&TemplateReply::Forked(number), &[pidfd.as_fd()]).unwrap();
        }
        let worker = template.fork(&[]).unwrap();
        assert!(worker.memory_bytes().is_some_and(|bytes| bytes > 0));
        assert!(worker.processor_time().is_some());
        drop(worker);
        assert!(!second.wait().unwrap().success());
        assert!(matches!(first.try_wait(), Ok(None)));
        first.kill().unwrap();
        first.wait().unwrap();
        template_end.send(&TemplateReply::NotForked(3, "too many processes".to_owned()), &[]).unwrap();
        assert!(template.fork(&[]).is_err_and(|error| error.to_string().contains("too many processes")));
        // A reply to a request that was not made.
        template_end.send(&TemplateReply::Forked(5), &[]).unwrap();
        assert!(matches!(template.fork(&[]), Err(Error::LauncherExited(_))));
    }
}

//! The process of a kernel: its signals, and the way in which it ended.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use belljar_sandbox::{Channel, ExitStatus, Sandbox};
use nix::poll::PollFlags;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group, pidfd_send_signal};
use serde::Deserialize;

use crate::linux::zmtp::peer::wait_for;
use crate::linux::zygote::receive;

/// The time within which the zygote must report the exit status of a kernel that has exited.
const REAP_TIMEOUT: Duration = Duration::from_millis(500);

/// The zygote's message that a kernel has exited.
#[derive(Deserialize)]
struct ExitReport {
    /// As in Python's `waitstatus_to_exitcode`: negative for a signal.
    exit_code: i32,
}

/// The process of a kernel. Dropping it kills the process.
pub(crate) struct KernelProcess {
    /// The pidfd that signals are sent to: unlike a process id it is never reused.
    pidfd: OwnedFd,
    /// The process group that the kernel leads, if a sandbox does not end the kernel's child processes.
    group: Option<Pid>,
    exit_source: ExitSource,
}

/// The source of a kernel's exit status.
pub(crate) enum ExitSource {
    /// The zygote sends the status over this channel.
    Zygote(Channel),
    /// The sandbox that was created for the kernel, and that ends with it.
    Sandbox(Box<Mutex<Sandbox>>),
}

/// The way in which a kernel's process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelExitStatus {
    /// It exited with this status.
    Exited(i32),
    /// This signal killed it.
    Signalled(i32),
    /// It was killed because it exceeded its memory limit.
    OverMemory,
    /// The status was lost.
    Unknown,
}

impl std::fmt::Display for KernelExitStatus {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exited(status) => write!(formatter, "exit status {status}"),
            Self::Signalled(signal) => write!(formatter, "signal {signal}"),
            Self::OverMemory => formatter.write_str("memory limit"),
            Self::Unknown => formatter.write_str("unknown exit status"),
        }
    }
}

impl KernelProcess {
    pub(crate) fn new(pidfd: OwnedFd, group: Option<Pid>, exit_source: ExitSource) -> Self {
        Self { pidfd, group, exit_source }
    }

    /// Returns the descriptor that becomes readable when the process has exited.
    pub(crate) fn exit_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Returns whether the process has exited.
    pub(crate) fn has_ended(&self) -> bool {
        self.wait_until(Instant::now())
    }

    /// Waits until the process exits. Returns `false` if it has not exited before `deadline`.
    pub(crate) fn wait_until(&self, deadline: Instant) -> bool {
        wait_for(&[(self.exit_fd(), PollFlags::POLLIN)], deadline).is_ok_and(|ready| ready[0])
    }

    /// Sends `SIGINT`, which Python raises as `KeyboardInterrupt` even while a C function runs.
    pub(crate) fn interrupt(&self) {
        let _ = pidfd_send_signal(&self.pidfd, Signal::INT);
    }

    /// Kills the process and its child processes.
    pub(crate) fn kill(&self) {
        if let Some(group) = self.group.filter(|_| !self.has_ended()) {
            // The process id is not reused before the process was reaped.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
    }

    /// Returns how the process ended. May be called once, after the process has exited.
    pub(crate) fn status(&self) -> KernelExitStatus {
        let exit_channel = match &self.exit_source {
            ExitSource::Zygote(exit_channel) => exit_channel,
            ExitSource::Sandbox(sandbox) => {
                return match sandbox.lock().wait() {
                    Ok(ExitStatus::Exited(status)) => KernelExitStatus::Exited(status),
                    Ok(ExitStatus::Signalled(signal)) => KernelExitStatus::Signalled(signal),
                    Ok(ExitStatus::MemoryLimitExceeded) => KernelExitStatus::OverMemory,
                    Ok(ExitStatus::Killed) | Err(_) => KernelExitStatus::Unknown,
                };
            }
        };
        match receive::<ExitReport>(exit_channel, Instant::now() + REAP_TIMEOUT) {
            Ok(Some((ExitReport { exit_code }, _))) if exit_code < 0 => KernelExitStatus::Signalled(-exit_code),
            Ok(Some((ExitReport { exit_code }, _))) => KernelExitStatus::Exited(exit_code),
            _ => KernelExitStatus::Unknown,
        }
    }
}

impl Drop for KernelProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

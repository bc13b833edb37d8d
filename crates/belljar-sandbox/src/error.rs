//! The errors of setting a sandbox up: the step that failed, the system's error, and a hint for the machine's operator.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A part of setting a sandbox up. Steps are taken in about this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Reading and checking the specification of the sandbox.
    Specification,
    /// Changing from root to the session's user.
    Identity,
    /// Creating the user namespace, within which the other steps need no privileges on the host.
    UserNamespace,
    /// Creating the namespaces for mounts, processes, network, System V objects, host name and control groups.
    Namespaces,
    /// Starting the process with number 1 of the new process namespace.
    Init,
    /// Bringing the loopback interface of the new network namespace up.
    Loopback,
    /// Building the root that the code sees.
    Root,
    /// Binding a path of the host into the root.
    Path,
    /// Mounting a new `/proc`.
    Proc,
    /// Forbidding user namespaces within the sandbox.
    NestedNamespaces,
    /// Applying the rules of Landlock.
    Landlock,
    /// Setting the resource limits of a process.
    Limits,
    /// Dropping all capabilities, and every way to gain one.
    Privileges,
    /// Installing the system call filters.
    Seccomp,
    /// Starting the program.
    Program,
    /// Moving a process that was forked elsewhere into the sandbox.
    Entry,
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Specification => "reading the specification",
            Self::Identity => "changing to the session's user",
            Self::UserNamespace => "creating a user namespace",
            Self::Namespaces => "creating namespaces",
            Self::Init => "starting the first process of the namespace",
            Self::Loopback => "bringing the loopback interface up",
            Self::Root => "building the root that the code sees",
            Self::Path => "making a path visible",
            Self::Proc => "mounting /proc",
            Self::NestedNamespaces => "forbidding nested namespaces",
            Self::Landlock => "restricting paths with Landlock",
            Self::Limits => "setting resource limits",
            Self::Privileges => "dropping privileges",
            Self::Seccomp => "installing the system call filters",
            Self::Program => "starting the program",
            Self::Entry => "entering the sandbox",
        })
    }
}

/// A failed step, as the launcher reports it to the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepFailure {
    /// The step that failed.
    pub step: Step,
    /// The operation within the step, and its error if that was not a system call's.
    pub operation: String,
    /// The system's error number, if a system call failed.
    pub errno: Option<i32>,
}

impl StepFailure {
    /// Creates a failure of `operation`, a part of `step`, from an I/O error.
    pub(crate) fn new(step: Step, operation: impl Into<String>, error: &io::Error) -> Self {
        let errno = error.raw_os_error();
        let operation = operation.into();
        Self { step, operation: if errno.is_some() { operation } else { format!("{operation}: {error}") }, errno }
    }

    /// Creates a failure that was not reported by a system call.
    pub(crate) fn from_reason(step: Step, reason: impl Into<String>) -> Self {
        Self { step, operation: reason.into(), errno: None }
    }

    /// Returns what the operator of the machine can do about the failure.
    #[must_use]
    pub fn hint(&self) -> Hint {
        let refused = matches!(self.errno, Some(libc::EPERM | libc::EACCES));
        match self.step {
            Step::UserNamespace | Step::Namespaces if self.errno == Some(libc::ENOSPC) => Hint::RaiseNamespaceLimit,
            Step::UserNamespace | Step::Namespaces if self.errno == Some(libc::EINVAL) => Hint::BuildNamespaces,
            Step::UserNamespace | Step::Namespaces | Step::Root | Step::Loopback | Step::NestedNamespaces
                if refused =>
            {
                Hint::AllowUserNamespaces
            }
            Step::Proc => Hint::UnmaskProc,
            Step::Landlock => Hint::EnableLandlock,
            Step::Seccomp => Hint::EnableSeccomp,
            Step::Identity => Hint::GrantSessionUsers,
            Step::Path if refused => Hint::MakePathReadable,
            Step::Path => Hint::CheckPath,
            Step::Program => Hint::CheckProgram,
            _ => Hint::Report,
        }
    }
}

impl fmt::Display for StepFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.step, self.operation)?;
        if let Some(errno) = self.errno {
            write!(formatter, ": {}", io::Error::from_raw_os_error(errno))?;
        }
        Ok(())
    }
}

/// A change to the machine or to the specification that may remove the cause of an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hint {
    /// The number of user namespaces is exhausted, or limited to 0.
    RaiseNamespaceLimit,
    /// The kernel was built without namespaces.
    BuildNamespaces,
    /// The system does not let ordinary users create namespaces.
    AllowUserNamespaces,
    /// A container runtime masks parts of `/proc`.
    UnmaskProc,
    /// Landlock is missing, or its version is too old.
    EnableLandlock,
    /// The kernel lacks seccomp filters, or an outer filter forbids to add one.
    EnableSeccomp,
    /// Root cannot change to the session's user.
    GrantSessionUsers,
    /// The session's user cannot reach a path.
    MakePathReadable,
    /// A path does not exist, or is of another kind.
    CheckPath,
    /// The program cannot be executed inside.
    CheckProgram,
    /// The session's user cannot open a device.
    OpenDevice,
    /// A process of the sandbox was killed by something else.
    CheckSystemLog,
    /// The machine was too busy.
    TryAgain,
    /// A step failed that does not fail on any supported system.
    Report,
}

impl fmt::Display for Hint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::RaiseNamespaceLimit => {
                "the limit on user namespaces is reached: raise user.max_user_namespaces (sysctl -w \
                 user.max_user_namespaces=15000)"
            }
            Self::BuildNamespaces => {
                "the kernel was built without these namespaces: it needs CONFIG_USER_NS, CONFIG_PID_NS, CONFIG_NET_NS, \
                 CONFIG_IPC_NS and CONFIG_UTS_NS"
            }
            Self::AllowUserNamespaces => {
                "this system keeps ordinary users from creating namespaces. On Debian: sysctl -w \
                 kernel.unprivileged_userns_clone=1. On Ubuntu 24.04 and later: sysctl -w \
                 kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile with `userns,` for this \
                 program. In Docker: --security-opt seccomp=unconfined --security-opt apparmor=unconfined \
                 --security-opt systempaths=unconfined"
            }
            Self::UnmaskProc => {
                "a new /proc may only be mounted where the present one is not masked. In Docker: --security-opt \
                 systempaths=unconfined; in Kubernetes: procMount: Unmasked"
            }
            Self::EnableLandlock => {
                "Landlock is missing: it needs Linux 5.13 with CONFIG_SECURITY_LANDLOCK, and `landlock` in the list of \
                 security modules (boot with lsm=landlock,… in front of what /sys/kernel/security/lsm shows)"
            }
            Self::EnableSeccomp => {
                "the kernel needs CONFIG_SECCOMP_FILTER, and a filter that holds this process must allow it to add one"
            }
            Self::GrantSessionUsers => {
                "as root, every session needs a user ID of its own, and the capabilities CAP_SETUID, CAP_SETGID and \
                 CAP_SYS_ADMIN; or start as an ordinary user"
            }
            Self::MakePathReadable => {
                "the session's user cannot reach this path: make it and the folders above it readable, or choose \
                 another"
            }
            Self::CheckPath => "check that the path exists and is of the expected kind",
            Self::CheckProgram => "check that the path of the program is visible in the sandbox",
            Self::OpenDevice => "chmod o+rw, or permanently a udev rule with MODE=\"0666\"",
            Self::CheckSystemLog => "the system log names the cause if something killed it (memory, for example)",
            Self::TryAgain => "the machine may be overloaded; try again",
            Self::Report => "this does not happen on Linux 5.13 or later; please report it with this message",
        })
    }
}

/// A [`Spec`](crate::Spec), or a call, that cannot be followed on any machine.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// The program is not named by an absolute path.
    #[error("the program {} is not an absolute path", .0.display())]
    ProgramNotAbsolute(PathBuf),
    /// An environment variable has an invalid name, or a NUL in its value.
    #[error("invalid environment variable {0:?}")]
    InvalidVariable(String),
    /// An argument of the program contains a NUL.
    #[error("an argument contains a NUL")]
    NulInArgument,
    /// A path is not absolute, contains `..` or a NUL.
    #[error("{} is not a plain absolute path", .0.display())]
    NotPlainPath(PathBuf),
    /// A path inside belongs to the sandbox itself.
    #[error("{} is reserved for the sandbox", .0.display())]
    ReservedPath(PathBuf),
    /// There are more folders than descriptors fit into one message.
    #[error("there are {count} folders, more than {max}")]
    TooManyFolders {
        /// The number of folders.
        count: usize,
        /// The largest number allowed.
        max: usize,
    },
    /// There are more devices than a sandbox can have.
    #[error("there are {count} devices, more than {max}")]
    TooManyDevices {
        /// The number of devices.
        count: usize,
        /// The largest number allowed.
        max: usize,
    },
    /// A device of the host cannot be passed through.
    #[error("invalid device {}: {reason}", path.display())]
    Device {
        /// The path of the device.
        path: PathBuf,
        /// The reason why it cannot be passed through.
        reason: DeviceError,
    },
    /// The specification is larger than one message to the launcher.
    #[error("the specification is too large: {0}")]
    TooLarge(io::Error),
    /// A sandbox without a program was asked for without namespaces.
    #[error("an idle sandbox needs namespaces")]
    IdleWithoutNamespaces,
    /// A listening socket was asked for without namespaces.
    #[error("a listening socket for code needs namespaces")]
    ListenerWithoutNamespaces,
    /// The sandbox has no namespaces that a process could enter.
    #[error("only an idle sandbox can be entered")]
    NotIdle,
    /// The sandbox has no program that could receive a signal.
    #[error("the sandbox runs no program")]
    NoProgram,
}

/// The reason why a device cannot be passed through.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The path does not name a file below `/dev`.
    #[error("it must be named by its path below /dev")]
    NotBelowDev,
    /// The sandbox has a file of this name itself.
    #[error("the sandbox has its own")]
    OwnDevice,
    /// The device's metadata cannot be read.
    #[error("failed to read its metadata: {0}")]
    Metadata(#[from] io::Error),
    /// The path is a symbolic link, whose target could change before it is followed.
    #[error("it is a symbolic link: name its target")]
    Symlink,
    /// The path is not a character device.
    #[error("it is not a character device")]
    NotCharacterDevice,
    /// The device gives access to the memory, the I/O ports or the log of the machine.
    #[error("it gives access to the memory, the I/O ports or the log of the machine")]
    MachineDevice,
    /// The session's user may not open the device.
    #[error("the session's user cannot open it (mode {mode:03o})")]
    PermissionDenied {
        /// The permission bits of the device.
        mode: u32,
    },
}

/// An error of a sandbox.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A step of the launcher, or of a process that enters, failed.
    #[error("failed to set up the sandbox: {0}")]
    Setup(StepFailure),
    /// The specification is invalid.
    #[error("invalid sandbox specification: {0}")]
    InvalidSpec(#[from] SpecError),
    /// This machine cannot provide the isolation that the policy requires.
    #[error("the {policy} sandbox is not available on this machine: {missing}")]
    IsolationUnavailable {
        /// The policy that was asked for.
        policy: crate::Policy,
        /// The step that fails on this machine.
        missing: StepFailure,
    },
    /// The launcher exited without a report: it was killed, or this program does not call
    /// [`run_fork_server_if_child`](crate::run_fork_server_if_child).
    #[error("the launcher exited before the sandbox was ready: {0}")]
    LauncherExited(String),
    /// The sandbox was not ready in time.
    #[error("the sandbox was not ready within {0:?}")]
    Timeout(Duration),
    /// A system call of the host failed.
    #[error("failed to {operation}: {source}")]
    System {
        /// The operation that failed, as a verb phrase.
        operation: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl Error {
    /// Returns a closure for `map_err` that creates an [`Error::System`] for a failed `operation`.
    pub(crate) fn failed_to(operation: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { operation, source }
    }

    /// Returns what the operator of the machine can do about the error, if anything is known.
    #[must_use]
    pub fn hint(&self) -> Option<Hint> {
        match self {
            Self::Setup(failure) | Self::IsolationUnavailable { missing: failure, .. } => Some(failure.hint()),
            Self::InvalidSpec(SpecError::Device { reason: DeviceError::PermissionDenied { .. }, .. }) => {
                Some(Hint::OpenDevice)
            }
            Self::LauncherExited(_) => Some(Hint::CheckSystemLog),
            Self::Timeout(_) => Some(Hint::TryAgain),
            Self::InvalidSpec(_) | Self::System { .. } => None,
        }
    }
}

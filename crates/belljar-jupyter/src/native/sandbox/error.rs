//! What can go wrong before the sandbox stands, in words: which step, what the system said, and what to do about it.

use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};

/// A part of setting a sandbox up. Steps are taken in about this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// The description of the sandbox was read and found to make sense.
    Specification,
    /// Root gives itself up for the session's user.
    Identity,
    /// A user namespace, in which all else needs no privileges.
    UserNamespace,
    /// Namespaces for mounts, processes, network, System V objects, host name and control groups.
    Namespaces,
    /// The process with number 1 of the new process namespace.
    Init,
    /// The loopback interface of the new network.
    Loopback,
    /// The root that the code sees.
    Root,
    /// A path of the host that is to be seen inside.
    Path,
    /// A fresh `/proc`.
    Proc,
    /// No user namespaces within the sandbox.
    NestedNamespaces,
    /// The rules of Landlock.
    Landlock,
    /// Limits of each process.
    Limits,
    /// No capabilities, and no way to gain any.
    Privileges,
    /// The filter of system calls.
    Seccomp,
    /// The program itself.
    Program,
    /// A process that was forked elsewhere enters the sandbox.
    Entry,
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Specification => "reading what to run",
            Self::Identity => "becoming the session's user",
            Self::UserNamespace => "making a user namespace",
            Self::Namespaces => "making namespaces",
            Self::Init => "starting the namespace's first process",
            Self::Loopback => "bringing the loopback interface up",
            Self::Root => "making the root that the code sees",
            Self::Path => "making a path visible",
            Self::Proc => "mounting /proc",
            Self::NestedNamespaces => "forbidding nested namespaces",
            Self::Landlock => "restricting paths with Landlock",
            Self::Limits => "setting limits",
            Self::Privileges => "giving up privileges",
            Self::Seccomp => "filtering system calls",
            Self::Program => "starting the program",
            Self::Entry => "entering the sandbox",
        })
    }
}

/// A step that failed inside the launcher, as it reaches whoever asked for the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Which step.
    pub step: Step,
    /// What exactly was tried.
    pub tried: String,
    /// The system's error number, if a system call failed.
    pub errno: Option<i32>,
}

impl Failure {
    /// A failure of `step` while doing `tried`.
    pub(crate) fn new(step: Step, tried: impl Into<String>, error: &io::Error) -> Self {
        let errno = error.raw_os_error();
        let tried = tried.into();
        Self { step, tried: if errno.is_some() { tried } else { format!("{tried}: {error}") }, errno }
    }

    /// A failure that no system call reported.
    pub(crate) fn plain(step: Step, tried: impl Into<String>) -> Self {
        Self { step, tried: tried.into(), errno: None }
    }

    /// What whoever runs the machine can do about it.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        let refused = matches!(self.errno, Some(libc::EPERM | libc::EACCES));
        match self.step {
            Step::UserNamespace | Step::Namespaces if self.errno == Some(libc::ENOSPC) => {
                "no more user namespaces are allowed here: raise user.max_user_namespaces \
                 (sysctl -w user.max_user_namespaces=15000)"
            }
            Step::UserNamespace | Step::Namespaces if self.errno == Some(libc::EINVAL) => {
                "the kernel was built without these namespaces: CONFIG_USER_NS, CONFIG_PID_NS, CONFIG_NET_NS and their \
                 like are needed"
            }
            Step::UserNamespace | Step::Namespaces | Step::Root | Step::Loopback | Step::NestedNamespaces
                if refused =>
            {
                "this system keeps ordinary users from making namespaces. On Debian: sysctl -w \
                 kernel.unprivileged_userns_clone=1. On Ubuntu 24.04 and later: sysctl -w \
                 kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile with `userns,` for this \
                 program. In Docker: --security-opt seccomp=unconfined --security-opt apparmor=unconfined \
                 --security-opt systempaths=unconfined"
            }
            Step::Proc => {
                "a fresh /proc is only allowed where the present one is whole. In Docker: --security-opt \
                 systempaths=unconfined; in Kubernetes: procMount: Unmasked"
            }
            Step::Landlock => {
                "Landlock is missing: it needs Linux 5.13 with CONFIG_SECURITY_LANDLOCK, and `landlock` in the list of \
                 security modules (boot with lsm=landlock,… in front of what /sys/kernel/security/lsm shows)"
            }
            Step::Seccomp => "the kernel needs CONFIG_SECCOMP_FILTER, and a filter around us must let us add one",
            Step::Identity => {
                "as root, every session needs a user id of its own, and the capabilities CAP_SETUID, CAP_SETGID and \
                 CAP_SYS_ADMIN; or start as an ordinary user"
            }
            Step::Path if refused => {
                "the session's user cannot reach this path: make it and the folders above readable, or choose another"
            }
            Step::Path => "make sure that the path exists and is what it should be",
            Step::Program => "make sure that the program is at a path which the sandbox shows",
            _ => "this should not happen on Linux 5.13 or later; please report it with these words",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.step, self.tried)?;
        if let Some(errno) = self.errno {
            write!(formatter, ": {}", io::Error::from_raw_os_error(errno))?;
        }
        Ok(())
    }
}

/// Why there is no sandbox.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A step inside failed.
    #[error("the sandbox does not stand: {0}\nhint: {hint}", hint = .0.remedy())]
    Step(Failure),
    /// The description cannot be followed on any machine.
    #[error("the sandbox is described wrongly: {0}")]
    Specification(String),
    /// This machine allows less than was asked for.
    #[error(
        "this machine cannot seal native code as was asked ({asked}): {missing}\nhint: {}; or choose the WebAssembly \
         sandbox, which needs nothing of this; or, by name, `native-weak`", .missing.remedy()
    )]
    TooWeak {
        /// What was asked for.
        asked: super::Policy,
        /// What is missing.
        missing: Failure,
    },
    /// The launcher ended without a word: it was killed, or this program does not call [`launch_if_asked`].
    ///
    /// [`launch_if_asked`]: super::launch_if_asked
    #[error(
        "the launcher ended before the sandbox stood ({0})\nhint: if something killed it, see the system's log for \
         what (memory, for example)"
    )]
    Launcher(String),
    /// It did not stand in time.
    #[error("the sandbox did not stand within {0:?}\nhint: the machine may be overloaded; try again")]
    Slow(std::time::Duration),
    /// A system call on this side failed.
    #[error("{doing}: {source}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl Error {
    /// For `map_err`: an [`Error::System`] that says what was tried.
    pub(crate) fn doing(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { doing, source }
    }
}

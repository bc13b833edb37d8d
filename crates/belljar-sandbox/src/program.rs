//! The start of the program: the last steps in the process that executes it, after which none of this crate's code is
//! left in the process.

use std::ffi::{CString, OsStr};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use crate::error::{Step, StepFailure};
use crate::landlock::{self, LandlockAccess};
use crate::policy::IsolationLevel;
use crate::seccomp::Filters;
use crate::spec::{FolderSource, ResourceLimits, Spec};
use crate::syscalls::{self, Fork};

/// The value of `RLIMIT_CORE`. With 0 the kernel would still pass a crashed process to a program that collects core
/// dumps (`core(5)`), as root and outside the sandbox; with 1 it does not.
const NO_CORE: u64 = 1;

/// The largest number of pending signals.
const MAX_PENDING_SIGNALS: u64 = 1024;
/// The largest number of bytes locked in memory.
const MAX_LOCKED_BYTES: u64 = 64 << 10;

/// The rules of Landlock that a program gets.
#[derive(Clone, Copy)]
pub(crate) enum LandlockRules<'a> {
    /// A ruleset that was created for the sandbox's own root.
    Created(&'a OwnedFd),
    /// Rules for the host's root, with these writable folders. The process of the program creates the ruleset, since
    /// `/proc/self` is among its paths.
    OfHost(&'a [PathBuf]),
}

/// The Landlock rules and system call filters of a program. Both are `None` only under
/// [`Policy::Unsandboxed`](crate::Policy::Unsandboxed).
#[derive(Clone, Copy)]
pub(crate) struct Confinement<'a> {
    pub(crate) rules: Option<LandlockRules<'a>>,
    pub(crate) filters: Option<&'a Filters>,
}

/// A program that runs.
pub(crate) struct StartedProgram {
    /// The process ID in its parent's process namespace.
    pub(crate) pid: libc::pid_t,
    pub(crate) pidfd: OwnedFd,
}

/// Starts the program of `spec` in a new process, and waits until it runs.
pub(crate) fn start(
    spec: &Spec,
    confinement: Confinement<'_>,
    streams: Vec<OwnedFd>,
) -> Result<StartedProgram, StepFailure> {
    let exec_args = ExecArgs::new(spec)?;
    // The new process reports a failure through this pipe; executing the program closes its end.
    let (reader, writer) = pipe()?;
    match syscalls::fork().map_err(|error| StepFailure::new(Step::Program, "fork(2)", &error))? {
        Fork::Child => {
            drop(reader);
            let failure = exec_program(spec, &exec_args, confinement, streams);
            // An error is ignored: the reader may be gone.
            let _ = serde_json::to_vec(&failure).map(|text| File::from(writer).write_all(&text));
            syscalls::exit(127)
        }
        Fork::Parent(pid) => {
            drop((writer, streams));
            let mut text = Vec::new();
            let reading = |error| StepFailure::new(Step::Program, "waiting for the program", &error);
            File::from(reader).read_to_end(&mut text).map_err(reading)?;
            if !text.is_empty() {
                let unread = |_| {
                    StepFailure::from_reason(
                        Step::Program,
                        "the process ended before it executed the program, with an unreadable report",
                    )
                };
                return Err(serde_json::from_slice(&text).unwrap_or_else(unread));
            }
            let pidfd =
                syscalls::pidfd_open(pid).map_err(|error| StepFailure::new(Step::Program, "pidfd_open(2)", &error))?;
            Ok(StartedProgram { pid, pidfd })
        }
    }
}

fn pipe() -> Result<(OwnedFd, OwnedFd), StepFailure> {
    io::pipe()
        .map(|(reader, writer)| (reader.into(), writer.into()))
        .map_err(|error| StepFailure::new(Step::Program, "pipe(2)", &error))
}

/// The arguments and the environment of `execve(2)`.
struct ExecArgs {
    arguments: Vec<CString>,
    environment: Vec<CString>,
}

impl ExecArgs {
    fn new(spec: &Spec) -> Result<Self, StepFailure> {
        let wrong = |error: io::Error| StepFailure::new(Step::Specification, "arguments or environment", &error);
        let arguments =
            spec.arguments.iter().map(|text| syscalls::c_string(text)).collect::<Result<_, _>>().map_err(wrong)?;
        let variable = |(name, value): (&String, &String)| syscalls::c_string(OsStr::new(&format!("{name}={value}")));
        let environment = spec.environment.iter().map(variable).collect::<Result<_, _>>().map_err(wrong)?;
        Ok(Self { arguments, environment })
    }
}

/// Confines this process and executes the program. Returns only on failure.
fn exec_program(spec: &Spec, exec_args: &ExecArgs, confinement: Confinement<'_>, streams: Vec<OwnedFd>) -> StepFailure {
    match confine_self(spec, confinement, streams) {
        Ok(()) => {
            let error = syscalls::execute(&exec_args.arguments, &exec_args.environment);
            let program = spec.arguments.first().map(|text| text.display().to_string()).unwrap_or_default();
            StepFailure::new(Step::Program, format!("executing {program}"), &error)
        }
        Err(failure) => failure,
    }
}

/// Makes all steps that precede the execution of the program.
fn confine_self(spec: &Spec, confinement: Confinement<'_>, streams: Vec<OwnedFd>) -> Result<(), StepFailure> {
    let program = |doing: &'static str| move |error: io::Error| StepFailure::new(Step::Program, doing, &error);
    // The kernel kills the program when its parent ends.
    syscalls::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong).map_err(program("prctl(2)"))?;
    syscalls::reset_signals().map_err(program("resetting signals"))?;
    syscalls::setsid().map_err(program("setsid(2)"))?;
    let input = match streams.into_iter().next() {
        Some(given) => given,
        None => OpenOptions::new().read(true).open("/dev/null").map_err(program("opening /dev/null"))?.into(),
    };
    syscalls::make_standard(input.as_fd(), 0).map_err(program("dup2(2)"))?;
    let entering = |error| StepFailure::new(Step::Program, format!("entering {}", spec.directory.display()), &error);
    std::env::set_current_dir(&spec.directory).map_err(entering)?;
    for (resource, limit) in rlimits(&spec.limits) {
        syscalls::set_limit(resource, limit)
            .map_err(|error| StepFailure::new(Step::Limits, format!("setrlimit({resource}, {limit})"), &error))?;
    }
    syscalls::prctl(libc::PR_SET_NO_NEW_PRIVS, 1)
        .map_err(|error| StepFailure::new(Step::Privileges, "prctl(PR_SET_NO_NEW_PRIVS)", &error))?;
    if let Some(rules) = confinement.rules {
        let created;
        let ruleset = match rules {
            LandlockRules::Created(ruleset) => ruleset,
            LandlockRules::OfHost(folders) => {
                let access = LandlockAccess { readable: &spec.readable, writable: folders, devices: &spec.devices };
                created = landlock::create_ruleset(IsolationLevel::Weak, access)?;
                &created
            }
        };
        syscalls::landlock_restrict_self(ruleset.as_fd())
            .map_err(|error| StepFailure::new(Step::Landlock, "landlock_restrict_self(2)", &error))?;
        // Without namespaces the process may have no capabilities, and then it cannot change the bounding set either.
        let capget = |error| StepFailure::new(Step::Privileges, "capget(2)", &error);
        if syscalls::has_capabilities().map_err(capget)? {
            syscalls::drop_bounding_set()
                .map_err(|error| StepFailure::new(Step::Privileges, "dropping the bounding set", &error))?;
            give_up_capabilities()?;
        }
    }
    syscalls::close_at_exec().map_err(program("close_range(2)"))?;
    match confinement.filters {
        Some(filters) => filters.install(),
        None => Ok(()),
    }
}

/// Drops all capabilities of a process that executes no program.
pub(crate) fn give_up_capabilities() -> Result<(), StepFailure> {
    let wrong = |error| StepFailure::new(Step::Privileges, "dropping capabilities", &error);
    syscalls::drop_capabilities().map_err(wrong)?;
    syscalls::prctl(libc::PR_SET_NO_NEW_PRIVS, 1).map_err(wrong)
}

/// Returns the resources and their limits, hard and soft, for `setrlimit(2)`.
pub(crate) fn rlimits(limits: &ResourceLimits) -> Vec<(u32, u64)> {
    let optional = [
        // The address space includes memory that is only reserved; the data segment is memory that a program uses.
        (libc::RLIMIT_AS, limits.address_bytes),
        (libc::RLIMIT_DATA, limits.memory_bytes),
        (libc::RLIMIT_CPU, limits.processor_seconds),
    ];
    let fixed = [
        (libc::RLIMIT_NPROC, limits.processes),
        (libc::RLIMIT_NOFILE, limits.open_files),
        (libc::RLIMIT_FSIZE, limits.file_bytes),
        (libc::RLIMIT_CORE, NO_CORE),
        (libc::RLIMIT_MEMLOCK, MAX_LOCKED_BYTES),
        (libc::RLIMIT_SIGPENDING, MAX_PENDING_SIGNALS),
        (libc::RLIMIT_MSGQUEUE, 0),
        (libc::RLIMIT_NICE, 0),
        (libc::RLIMIT_RTPRIO, 0),
    ];
    let all = fixed.into_iter().chain(optional.into_iter().filter_map(|(resource, limit)| Some((resource, limit?))));
    // A process without privileges cannot raise its hard limits: the host's apply if they are lower.
    all.map(|(resource, limit)| (resource, limit.min(syscalls::hard_limit(resource).unwrap_or(limit)))).collect()
}

/// Returns the folders that a program without a root of its own may write to. They must be folders of the host, at the
/// same path.
pub(crate) fn host_folders(spec: &Spec) -> Result<Vec<PathBuf>, StepFailure> {
    let in_place = |inside: &Path, source: &FolderSource| matches!(source, FolderSource::Host(path) if path == inside);
    match spec.folders.iter().find(|folder| !in_place(&folder.inside, &folder.source)) {
        Some(folder) => {
            let reason = format!("{} must be a folder of the host, at the same path", folder.inside.display());
            Err(StepFailure::from_reason(Step::Specification, reason))
        }
        None => Ok(spec.folders.iter().map(|folder| folder.inside.clone()).collect()),
    }
}

//! The last steps before the code runs, in the process that will run it; from here on nothing of ours is left in it.

use std::ffi::{CString, OsStr};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use super::calls::{self, Fork};
use super::landlock;
use super::seccomp::Filters;
use super::spec::Source;
use super::{Failure, Limits, Spec, Step, Strength};

/// `RLIMIT_CORE`. With 0 the kernel still hands a crashed process to a program that collects them, as root and outside
/// the sandbox. 1 is its word for "no".
const NO_CORE: u64 = 1;

/// Signals that may wait, and bytes that may be locked in memory.
const PENDING_SIGNALS: u64 = 1024;
const LOCKED_BYTES: u64 = 64 << 10;

/// Rules of Landlock.
#[derive(Clone, Copy)]
pub(super) enum Rules<'a> {
    /// Made for a root of our own.
    Made(&'a OwnedFd),
    /// For the host's, with these folders: made by the program's process, as `/proc/self` is among the paths.
    OfHost(&'a [PathBuf]),
}

/// What a program is held to. Without [`Policy::Unsandboxed`](super::Policy::Unsandboxed) both are there.
#[derive(Clone, Copy)]
pub(super) struct Seal<'a> {
    pub(super) rules: Option<Rules<'a>>,
    pub(super) filters: Option<&'a Filters>,
}

/// A program that runs.
pub(super) struct Started {
    /// Its number, as its parent sees it.
    pub(super) process: libc::pid_t,
    pub(super) descriptor: OwnedFd,
}

/// Starts the program of `spec` in a new process, and waits until it runs.
pub(super) fn start(spec: &Spec, seal: Seal<'_>, streams: Vec<OwnedFd>) -> Result<Started, Failure> {
    let words = Words::new(spec)?;
    // What goes wrong in the new process comes back through here; that it executes the program closes the other end.
    let (reader, writer) = pipe()?;
    match calls::fork().map_err(|error| Failure::new(Step::Program, "fork(2)", &error))? {
        Fork::Child => {
            drop(reader);
            let failure = become_program(spec, &words, seal, streams);
            // The reader is told, or there is none.
            let _ = serde_json::to_vec(&failure).map(|text| File::from(writer).write_all(&text));
            calls::exit(127)
        }
        Fork::Parent(process) => {
            drop((writer, streams));
            let mut text = Vec::new();
            let reading = |error| Failure::new(Step::Program, "waiting for the program", &error);
            File::from(reader).read_to_end(&mut text).map_err(reading)?;
            if !text.is_empty() {
                let unread = |_| Failure::plain(Step::Program, "the program was not started, and did not say why");
                return Err(serde_json::from_slice(&text).unwrap_or_else(unread));
            }
            let descriptor = calls::process_descriptor(process)
                .map_err(|error| Failure::new(Step::Program, "pidfd_open(2)", &error))?;
            Ok(Started { process, descriptor })
        }
    }
}

fn pipe() -> Result<(OwnedFd, OwnedFd), Failure> {
    io::pipe()
        .map(|(reader, writer)| (reader.into(), writer.into()))
        .map_err(|error| Failure::new(Step::Program, "pipe(2)", &error))
}

/// Arguments and environment as the system takes them.
struct Words {
    arguments: Vec<CString>,
    environment: Vec<CString>,
}

impl Words {
    fn new(spec: &Spec) -> Result<Self, Failure> {
        let wrong = |error: io::Error| Failure::new(Step::Specification, "arguments or environment", &error);
        let arguments = spec.arguments.iter().map(|text| calls::text(text)).collect::<Result<_, _>>().map_err(wrong)?;
        let variable = |(name, value): (&String, &String)| calls::text(OsStr::new(&format!("{name}={value}")));
        let environment = spec.environment.iter().map(variable).collect::<Result<_, _>>().map_err(wrong)?;
        Ok(Self { arguments, environment })
    }
}

/// Never returns but with a failure.
fn become_program(spec: &Spec, words: &Words, seal: Seal<'_>, streams: Vec<OwnedFd>) -> Failure {
    match seal_self(spec, seal, streams) {
        Ok(()) => {
            let error = calls::execute(&words.arguments, &words.environment);
            let program = spec.arguments.first().map(|text| text.display().to_string()).unwrap_or_default();
            Failure::new(Step::Program, format!("executing {program}"), &error)
        }
        Err(failure) => failure,
    }
}

fn seal_self(spec: &Spec, seal: Seal<'_>, streams: Vec<OwnedFd>) -> Result<(), Failure> {
    let program = |doing: &'static str| move |error: io::Error| Failure::new(Step::Program, doing, &error);
    // Whoever waits for the program is gone: so is the program.
    calls::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong).map_err(program("prctl(2)"))?;
    calls::reset_signals().map_err(program("resetting signals"))?;
    calls::leave_terminal().map_err(program("setsid(2)"))?;
    let input = match streams.into_iter().next() {
        Some(given) => given,
        None => OpenOptions::new().read(true).open("/dev/null").map_err(program("opening /dev/null"))?.into(),
    };
    calls::make_standard(input.as_fd(), 0).map_err(program("dup2(2)"))?;
    let entering = |error| Failure::new(Step::Program, format!("entering {}", spec.directory.display()), &error);
    std::env::set_current_dir(&spec.directory).map_err(entering)?;
    for (resource, most) in limits(&spec.limits) {
        calls::set_limit(resource, most)
            .map_err(|error| Failure::new(Step::Limits, format!("setrlimit({resource}, {most})"), &error))?;
    }
    calls::prctl(libc::PR_SET_NO_NEW_PRIVS, 1)
        .map_err(|error| Failure::new(Step::Privileges, "prctl(PR_SET_NO_NEW_PRIVS)", &error))?;
    if let Some(rules) = seal.rules {
        let made;
        let rules = match rules {
            Rules::Made(rules) => rules,
            Rules::OfHost(folders) => {
                let reach = landlock::Reach { readable: &spec.readable, writable: folders, devices: &spec.devices };
                made = landlock::rules(Strength::Weak, reach)?;
                &made
            }
        };
        calls::restrict_self(rules.as_fd())
            .map_err(|error| Failure::new(Step::Landlock, "landlock_restrict_self(2)", &error))?;
        // Without namespaces there may be none, and then none can be dropped from the bounding set either.
        let asking = |error| Failure::new(Step::Privileges, "capget(2)", &error);
        if calls::has_capabilities().map_err(asking)? {
            calls::empty_bounding_set()
                .map_err(|error| Failure::new(Step::Privileges, "emptying the bounding set", &error))?;
            give_up_capabilities()?;
        }
    }
    calls::close_at_exec().map_err(program("close_range(2)"))?;
    match seal.filters {
        Some(filters) => filters.install(),
        None => Ok(()),
    }
}

/// No capabilities, for a process that executes nothing.
pub(super) fn give_up_capabilities() -> Result<(), Failure> {
    let wrong = |error| Failure::new(Step::Privileges, "dropping capabilities", &error);
    calls::drop_capabilities().map_err(wrong)?;
    calls::prctl(libc::PR_SET_NO_NEW_PRIVS, 1).map_err(wrong)
}

/// Resources and how much of each there is, hard and soft, for `setrlimit(2)`.
pub(super) fn limits(limits: &Limits) -> Vec<(u32, u64)> {
    let optional = [
        // Address space also holds what is only reserved; the data segment is what a program has of its own.
        (libc::RLIMIT_AS, limits.address_bytes),
        (libc::RLIMIT_DATA, limits.memory_bytes),
        (libc::RLIMIT_CPU, limits.processor_seconds),
    ];
    let fixed = [
        (libc::RLIMIT_NPROC, limits.processes),
        (libc::RLIMIT_NOFILE, limits.descriptors),
        (libc::RLIMIT_FSIZE, limits.file_bytes),
        (libc::RLIMIT_CORE, NO_CORE),
        (libc::RLIMIT_MEMLOCK, LOCKED_BYTES),
        (libc::RLIMIT_SIGPENDING, PENDING_SIGNALS),
        (libc::RLIMIT_MSGQUEUE, 0),
        (libc::RLIMIT_NICE, 0),
        (libc::RLIMIT_RTPRIO, 0),
    ];
    let all = fixed.into_iter().chain(optional.into_iter().filter_map(|(resource, most)| Some((resource, most?))));
    // Nobody without privileges raises what it was given itself.
    all.map(|(resource, most)| (resource, most.min(calls::highest_limit(resource).unwrap_or(most)))).collect()
}

/// The folders that a program without a root of its own may write to: those of the host, where they are.
pub(super) fn host_folders(spec: &Spec) -> Result<Vec<PathBuf>, Failure> {
    let in_place = |inside: &Path, source: &Source| matches!(source, Source::Host(path) if path == inside);
    match spec.folders.iter().find(|folder| !in_place(&folder.inside, &folder.source)) {
        Some(folder) => {
            let tried = format!("{} must be a folder of the host, at the same path", folder.inside.display());
            Err(Failure::plain(Step::Specification, tried))
        }
        None => Ok(spec.folders.iter().map(|folder| folder.inside.clone()).collect()),
    }
}

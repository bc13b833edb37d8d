//! The sandbox's first process, number 1 inside. It builds the root, starts the program, reaps processes that have
//! ended, and measures the memory of all processes together. When it ends, the kernel kills all other processes inside.
//!
//! The system call filters are not installed in it, since it runs only this file. It has the code's user, but the code
//! cannot trace it (Landlock, seccomp), and the kernel shields number 1 from signals of its own namespace.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use crate::channel::Channel;
use crate::error::{Step, StepFailure};
use crate::exit_status::ExitStatus;
use crate::landlock::{self, LandlockAccess};
use crate::memory_limit;
use crate::namespaces;
use crate::policy::IsolationLevel;
use crate::program::{self, Confinement, LandlockRules, StartedProgram};
use crate::protocol::{Command, Report};
use crate::rootfs::{self, StagedPaths};
use crate::seccomp::Filters;
use crate::socket_memory::SocketMeter;
use crate::spec::{Folder, Spec};
use crate::syscalls;

/// The interval of memory measurements, in milliseconds.
const MEMORY_CHECK_INTERVAL: i32 = 250;

/// Runs the first process, from its first to its last step.
pub(crate) fn run(
    channel: &Channel,
    spec: &Spec,
    staged: &StagedPaths,
    streams: Vec<OwnedFd>,
) -> Result<(), StepFailure> {
    let step = |operation: &'static str| move |error: io::Error| StepFailure::new(Step::Init, operation, &error);
    syscalls::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong).map_err(step("prctl(PR_SET_PDEATHSIG)"))?;
    namespaces::configure_network_and_hostname()?;
    let sockets = SocketMeter::new().map_err(step("opening a netlink socket"))?;
    let writable = rootfs::pivot_root(spec, staged)?;
    // After the settings of the namespace, which limit the buffers of sockets.
    let listener = spec.listener.map(namespaces::listen_on_loopback).transpose()?;
    let access = LandlockAccess { readable: &[], writable: &writable, devices: &spec.devices };
    let ruleset = landlock::create_ruleset(IsolationLevel::Full, access)?;
    let filters = Filters::get(IsolationLevel::Full, false)?;
    let folders = open_memory_folders(spec)?;
    let children = syscalls::child_signalfd().map_err(step("signalfd(2)"))?;
    let started = if spec.arguments.is_empty() {
        None
    } else {
        let confinement = Confinement { rules: Some(LandlockRules::Created(&ruleset)), filters: Some(filters) };
        Some(program::start(spec, confinement, streams)?)
    };
    // The remaining steps need no capability, and the host's streams are for the program alone.
    program::give_up_capabilities()?;
    let null = File::options().read(true).write(true).open("/dev/null").map_err(step("opening /dev/null"))?;
    for stream in 0..=2 {
        syscalls::make_standard(null.as_fd(), stream).map_err(step("dup2(2)"))?;
    }
    let report = ReadyReport { ruleset, program: started.as_ref(), listener, folders };
    report.send(channel, spec).map_err(step("sending a report to the host"))?;
    drop(report);
    supervise(channel, spec, &children, &sockets, started.as_ref()).map_err(step("supervising"))
}

fn memory_folders(spec: &Spec) -> impl Iterator<Item = &Folder> {
    spec.folders.iter().filter(|folder| folder.source.is_memory())
}

/// Opens the folders in memory, for the host.
fn open_memory_folders(spec: &Spec) -> Result<Vec<File>, StepFailure> {
    memory_folders(spec)
        .map(|folder| {
            File::open(&folder.inside)
                .map_err(|error| StepFailure::new(Step::Root, format!("opening {}", folder.inside.display()), &error))
        })
        .collect()
}

/// The parts of a sandbox that is ready, for the host. This process closes its descriptors of them.
struct ReadyReport<'a> {
    ruleset: OwnedFd,
    program: Option<&'a StartedProgram>,
    listener: Option<OwnedFd>,
    folders: Vec<File>,
}

impl ReadyReport<'_> {
    fn send(&self, channel: &Channel, spec: &Spec) -> io::Result<()> {
        let mut descriptors: Vec<BorrowedFd<'_>> = vec![self.ruleset.as_fd()];
        descriptors.extend(self.program.map(|program| program.pidfd.as_fd()));
        descriptors.extend(self.listener.as_ref().map(OwnedFd::as_fd));
        descriptors.extend(self.folders.iter().map(File::as_fd));
        let memory_folders = memory_folders(spec).map(|folder| folder.inside.clone()).collect();
        let (has_program, has_listener) = (self.program.is_some(), self.listener.is_some());
        channel.send(&Report::Ready { memory_folders, has_program, has_listener }, &descriptors)
    }
}

/// Reaps children, executes commands and enforces the memory limit, until the program or the host ends.
fn supervise(
    channel: &Channel,
    spec: &Spec,
    children: &OwnedFd,
    sockets: &SocketMeter,
    started: Option<&StartedProgram>,
) -> io::Result<()> {
    let proc = Path::new("/proc");
    let interval = if spec.limits.memory_bytes.is_some() { MEMORY_CHECK_INTERVAL } else { -1 };
    let mut memory_exceeded = false;
    loop {
        let watched = [(channel.as_fd(), libc::POLLIN), (children.as_fd(), libc::POLLIN)];
        let [channel_events, child_events] = syscalls::poll(watched, interval)?;
        if channel_events != 0 {
            match channel.receive::<Command>(false) {
                Ok(Some((Command::KillAll, _))) => {
                    syscalls::kill_all();
                    channel.send(&Report::CommandDone, &[])?;
                }
                Ok(None) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        if child_events != 0 {
            // One signal may represent several children that ended together.
            rustix::io::read(children, &mut [0_u8; 512])?;
        }
        while let Some(reaped) = syscalls::reap() {
            if started.is_some_and(|started| started.pid == reaped.pid) {
                let status = if memory_exceeded {
                    ExitStatus::MemoryLimitExceeded
                } else {
                    ExitStatus::from_wait_status(reaped.status)
                };
                // An error is ignored: the host may be gone.
                let _ = channel.send(&Report::ProgramExited(status), &[]);
                return Ok(());
            }
        }
        let is_exceeded =
            |limit| sockets.exceeds_internet_limit(proc) || memory_limit::is_exceeded(proc, sockets, limit);
        if spec.limits.memory_bytes.is_some_and(is_exceeded) {
            memory_exceeded = true;
            syscalls::kill_all();
            if started.is_none() {
                let _ = channel.send(&Report::MemoryLimitExceeded, &[]);
            }
        }
    }
}

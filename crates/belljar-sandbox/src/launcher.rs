//! The launcher: a fork of the [fork server](crate::fork_server), which sets one sandbox up and lives as long as it.
//!
//! It has one thread and none of the host's memory, so it can do things that a server must not: change its user, leave
//! its namespaces, fork. When its [`Channel`] to the host closes, because the host dropped the sandbox or died, it
//! exits. When it ends for any reason, the kernel kills the sandbox's first process, and with that all others.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::channel::Channel;
use crate::error::{Step, StepFailure};
use crate::exit_status::ExitStatus;
use crate::init;
use crate::namespaces;
use crate::policy::{IsolationLevel, Policy};
use crate::process_tree::children;
use crate::program::{self, Confinement, LandlockRules};
use crate::protocol::{Report, Task};
use crate::seccomp::Filters;
use crate::spec::Spec;
use crate::syscalls::{self, Fork};

/// The exit status of a launcher that failed. The reason was sent over the channel.
const SETUP_FAILED: i32 = 125;

/// The `oom_score_adj` of all processes inside, from -1000 to 1000: when the machine is out of memory, the kernel kills
/// them before the host.
pub(crate) const OOM_SCORE_ADJ: u32 = 500;

/// The time in which descendants that fork are killed.
pub(crate) const ORPHAN_KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// Becomes the launcher whose host is at the other end of `channel`, and never returns. `ready` is the result of the
/// steps that the fork server made in this process.
pub(crate) fn run(channel: &Channel, ready: io::Result<()>) -> ! {
    if let Err(error) = ready {
        fail(channel, &StepFailure::new(Step::Init, "becoming a launcher", &error));
    }
    let (task, streams) = match channel.receive::<Task>(true) {
        Ok(Some(received)) => received,
        Ok(None) => syscalls::exit(SETUP_FAILED),
        Err(error) => fail(channel, &StepFailure::new(Step::Specification, "receiving the task", &error)),
    };
    let Task { spec, policy } = task;
    let outcome = match policy {
        Policy::Full => run_with_namespaces(channel, spec, streams),
        Policy::Weak => run_without_namespaces(channel, spec, streams, Some(IsolationLevel::Weak)),
        Policy::Unsandboxed => run_without_namespaces(channel, spec, streams, None),
    };
    match outcome {
        Ok(()) => syscalls::exit(0),
        Err(failure) => fail(channel, &failure),
    }
}

fn fail(channel: &Channel, failure: &StepFailure) -> ! {
    // An error is ignored: the host may be gone.
    let _ = channel.send(&Report::Failed(failure.clone()), &[]);
    syscalls::exit(SETUP_FAILED)
}

fn run_with_namespaces(channel: &Channel, mut spec: Spec, streams: Vec<OwnedFd>) -> Result<(), StepFailure> {
    set_inherited_attributes();
    let staged = namespaces::drop_to_session_user(&mut spec, true)?;
    namespaces::unshare_namespaces()?;
    let init = |operation: &'static str| move |error: io::Error| StepFailure::new(Step::Init, operation, &error);
    match syscalls::fork().map_err(init("fork(2)"))? {
        Fork::Child => match init::run(channel, &spec, &staged, streams) {
            Ok(()) => syscalls::exit(0),
            Err(failure) => fail(channel, &failure),
        },
        Fork::Parent(first) => {
            drop(streams);
            let first = syscalls::pidfd_open(first).map_err(init("pidfd_open(2)"))?;
            let sent = channel.send(&Report::InitStarted, &[first.as_fd()]);
            sent.map_err(init("sending a report to the host"))?;
            program::give_up_capabilities()?;
            wait_for(channel, &first)
        }
    }
}

/// Runs a program of the host, held by Landlock and system call filters if there is a `level`, and by nothing
/// otherwise.
fn run_without_namespaces(
    channel: &Channel,
    mut spec: Spec,
    streams: Vec<OwnedFd>,
    level: Option<IsolationLevel>,
) -> Result<(), StepFailure> {
    set_inherited_attributes();
    let init = |operation: &'static str| move |error: io::Error| StepFailure::new(Step::Init, operation, &error);
    let folders = program::host_folders(&spec)?;
    // A user that root assigned to this session owns no files but those that the session creates.
    let owns_files = syscalls::user() != 0;
    namespaces::drop_to_session_user(&mut spec, false)?;
    // Orphans become children of this process, and are killed with the others.
    syscalls::prctl(libc::PR_SET_CHILD_SUBREAPER, 1).map_err(init("prctl(PR_SET_CHILD_SUBREAPER)"))?;
    let filters = level.map(|level| Filters::get(level, owns_files)).transpose()?;
    let rules = level.map(|_| LandlockRules::OfHost(&folders));
    let started = program::start(&spec, Confinement { rules, filters }, streams)?;
    let program = started.pidfd.as_fd();
    let ready = Report::Ready { memory_folders: Vec::new(), has_program: true, has_listener: false };
    channel.send(&ready, &[program]).map_err(init("sending a report to the host"))?;
    loop {
        let [hung_up, ended] =
            syscalls::poll([(channel.as_fd(), 0), (program, libc::POLLIN)], -1).map_err(init("poll(2)"))?;
        if hung_up != 0 {
            // The host is gone: the program must not go on.
            kill_descendants();
            return Ok(());
        }
        if ended != 0 {
            break;
        }
    }
    while let Some(reaped) = syscalls::reap() {
        if reaped.pid == started.pid {
            let _ = channel.send(&Report::ProgramExited(ExitStatus::from_wait_status(reaped.status)), &[]);
        }
    }
    kill_descendants();
    Ok(())
}

/// Kills the program and all processes that it left behind. All are descendants of this process, a subreaper. The
/// search is repeated for processes that fork faster than they are found.
fn kill_descendants() {
    let deadline = Instant::now() + ORPHAN_KILL_TIMEOUT;
    while Instant::now() < deadline {
        let own_children = children(std::process::id().cast_signed());
        if own_children.is_empty() {
            return;
        }
        let mut found = own_children;
        let mut killed = 0;
        while let Some(process) = found.get(killed).copied() {
            killed += 1;
            // It may have ended by itself.
            let _ = syscalls::pidfd_open(process).and_then(|pidfd| syscalls::signal(pidfd.as_fd(), libc::SIGKILL));
            found.extend(children(process));
        }
        syscalls::wait_for_child();
        while syscalls::reap().is_some() {}
    }
}

/// Sets the attributes that all processes inside inherit.
fn set_inherited_attributes() {
    rustix::process::umask(rustix::fs::Mode::WGRP | rustix::fs::Mode::WOTH);
    // On a kernel without this file, processes inside have the default score.
    let _ = fs::write("/proc/self/oom_score_adj", OOM_SCORE_ADJ.to_string());
}

/// Waits until the sandbox's first process ends. Kills it if the host is gone.
fn wait_for(channel: &Channel, first: &OwnedFd) -> Result<(), StepFailure> {
    loop {
        let watched = [(channel.as_fd(), 0), (first.as_fd(), libc::POLLIN)];
        let [hung_up, ended] =
            syscalls::poll(watched, -1).map_err(|error| StepFailure::new(Step::Init, "poll(2)", &error))?;
        if hung_up != 0 {
            let _ = syscalls::signal(first.as_fd(), libc::SIGKILL);
        }
        if hung_up != 0 || ended != 0 {
            syscalls::reap();
            return Ok(());
        }
    }
}

//! The launcher: a copy of the [fork server](super::fork_server), which puts one sandbox together and stays as long as it
//! stands.
//!
//! It has one thread and no memory of the server's, so it can do what a server must not: give up its user, leave its
//! namespaces, fork. When its [`Channel`] to the host closes, because the host is done or dead, it ends; when it ends,
//! however, the kernel kills the sandbox's first process, and with that one all others.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use super::calls::{self, Fork};
use super::channel::{Channel, Report, Task};
use super::init;
use super::namespaces;
use super::program::{self, Rules, Seal};
use super::seccomp::Filters;
use super::{Ended, Failure, Policy, Spec, Step, Strength};

/// What a launcher ends with if it could not do its work; the reason went over the channel.
const FAILED: i32 = 125;

/// How readily the kernel kills what is inside when the machine is out of memory, from -1000 to 1000: before the
/// server.
pub(super) const KILL_FIRST: u32 = 500;

/// How long orphans are looked for.
pub(super) const ORPHANS: Duration = Duration::from_secs(5);

/// Becomes the launcher whose host speaks over `channel`, and never returns. `ready` is how the steps before went.
pub(super) fn run(channel: &Channel, ready: io::Result<()>) -> ! {
    if let Err(error) = ready {
        fail(channel, &Failure::new(Step::Init, "becoming a launcher", &error));
    }
    let (task, streams) = match channel.receive::<Task>(true) {
        Ok(Some(received)) => received,
        Ok(None) => calls::exit(FAILED),
        Err(error) => fail(channel, &Failure::new(Step::Specification, "reading the task", &error)),
    };
    let Task { spec, policy } = task;
    let outcome = match policy {
        Policy::Full => full(channel, spec, streams),
        Policy::Weak => alone(channel, spec, streams, Some(Strength::Weak)),
        Policy::Unsandboxed => alone(channel, spec, streams, None),
    };
    match outcome {
        Ok(()) => calls::exit(0),
        Err(failure) => fail(channel, &failure),
    }
}

fn fail(channel: &Channel, failure: &Failure) -> ! {
    // The host may be gone, and then there is nobody to tell.
    let _ = channel.send(&Report::Failed(failure.clone()), &[]);
    calls::exit(FAILED)
}

fn full(channel: &Channel, mut spec: Spec, streams: Vec<OwnedFd>) -> Result<(), Failure> {
    prepare();
    let lent = namespaces::take_identity(&mut spec, true)?;
    namespaces::leave()?;
    let starting = |error| Failure::new(Step::Init, "fork(2)", &error);
    match calls::fork().map_err(starting)? {
        Fork::Child => match init::run(channel, &spec, &lent, streams) {
            Ok(()) => calls::exit(0),
            Err(failure) => fail(channel, &failure),
        },
        Fork::Parent(first) => {
            drop(streams);
            let first =
                calls::process_descriptor(first).map_err(|error| Failure::new(Step::Init, "pidfd_open(2)", &error))?;
            let told = channel.send(&Report::Begun, &[first.as_fd()]);
            told.map_err(|error| Failure::new(Step::Init, "telling the host", &error))?;
            program::give_up_capabilities()?;
            wait_for(channel, &first)
        }
    }
}

/// Without namespaces: a program of the host, held back by Landlock and filters of system calls, or by nothing.
fn alone(channel: &Channel, mut spec: Spec, streams: Vec<OwnedFd>, strength: Option<Strength>) -> Result<(), Failure> {
    prepare();
    let folders = program::host_folders(&spec)?;
    // A user that root has chosen for this session has no files but what the session makes.
    let owns_files = calls::user() != 0;
    namespaces::take_identity(&mut spec, false)?;
    // What outlives its parent becomes ours, and is killed with the rest.
    calls::prctl(libc::PR_SET_CHILD_SUBREAPER, 1).map_err(|error| Failure::new(Step::Init, "prctl(2)", &error))?;
    let seal = strength.map(|strength| Filters::of(strength, owns_files)).transpose()?;
    let started =
        program::start(&spec, Seal { rules: strength.map(|_| Rules::OfHost(&folders)), filters: seal }, streams)?;
    let program = started.descriptor.as_fd();
    let standing = Report::Standing { folders: Vec::new(), program: true };
    channel.send(&standing, &[program]).map_err(|error| Failure::new(Step::Init, "telling the host", &error))?;
    loop {
        let [hung_up, ended] = calls::poll([(channel.as_fd(), 0), (program, libc::POLLIN)], -1)
            .map_err(|error| Failure::new(Step::Init, "poll(2)", &error))?;
        if hung_up != 0 {
            // Nobody listens any more: the program must not go on.
            bury_orphans();
            return Ok(());
        }
        if ended != 0 {
            break;
        }
    }
    while let Some(reaped) = calls::reap() {
        if reaped.process == started.process {
            let _ = channel.send(&Report::Ended(Ended::of(reaped.status)), &[]);
        }
    }
    bury_orphans();
    Ok(())
}

/// Kills the program and what it left behind: all that is below this process, which orphans come to be below, too. Whoever
/// forks faster than it is looked for is looked for again.
fn bury_orphans() {
    let until = Instant::now() + ORPHANS;
    while Instant::now() < until {
        let children = children_of("thread-self");
        if children.is_empty() {
            return;
        }
        let mut all = children;
        let mut known = 0;
        while let Some(process) = all.get(known) {
            known += 1;
            // It may have ended by itself.
            let _ = calls::process_descriptor(*process).and_then(|it| calls::signal(it.as_fd(), libc::SIGKILL));
            all.extend(children_of(&process.to_string()));
        }
        calls::wait_for_one();
        while calls::reap().is_some() {}
    }
}

/// Processes that a process, by its name in `/proc`, has started from any of its threads.
fn children_of(process: &str) -> Vec<libc::pid_t> {
    let numbers = |path: &Path| -> Vec<libc::pid_t> {
        let text = fs::read_to_string(path.join("children")).unwrap_or_default();
        text.split_whitespace().filter_map(|number| number.parse().ok()).collect()
    };
    let folder = Path::new("/proc").join(process);
    match fs::read_dir(folder.join("task")) {
        Ok(threads) => threads.flatten().flat_map(|thread| numbers(&thread.path())).collect(),
        Err(_) => numbers(&folder),
    }
}

fn prepare() {
    // Both are inherited by all that runs inside.
    rustix::process::umask(rustix::fs::Mode::WGRP | rustix::fs::Mode::WOTH);
    // A kernel without the file kills whom it likes.
    let _ = fs::write("/proc/self/oom_score_adj", KILL_FIRST.to_string());
}

/// Stays until the sandbox's first process ends, or the host does.
fn wait_for(channel: &Channel, first: &OwnedFd) -> Result<(), Failure> {
    loop {
        let watched = [(channel.as_fd(), 0), (first.as_fd(), libc::POLLIN)];
        let [hung_up, ended] = calls::poll(watched, -1).map_err(|error| Failure::new(Step::Init, "poll(2)", &error))?;
        if hung_up != 0 {
            let _ = calls::signal(first.as_fd(), libc::SIGKILL);
        }
        if hung_up != 0 || ended != 0 {
            calls::reap();
            return Ok(());
        }
    }
}

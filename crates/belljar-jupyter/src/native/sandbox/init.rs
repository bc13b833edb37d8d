//! The sandbox's first process: number 1 inside. It makes the root, starts the program, buries the dead, and watches
//! how much memory all of them take together. When it ends, the kernel kills whatever else is there.
//!
//! It is not held by the filters, since it runs nothing but this file. It has the code's user, but the code cannot
//! trace it (Landlock, seccomp), and the kernel shields number 1 from signals of its own namespace.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use super::calls;
use super::channel::{Channel, Order, Report};
use super::landlock;
use super::memory;
use super::namespaces;
use super::program::{self, Rules, Seal, Started};
use super::root::{self, Lent};
use super::running::is_in_memory;
use super::seccomp::Filters;
use super::{Ended, Failure, Spec, Step, Strength};

/// How often memory is counted, in milliseconds.
const COUNT_EVERY: i32 = 250;

/// The first process, from its first to its last step.
pub(super) fn run(channel: &Channel, spec: &Spec, lent: &Lent, streams: Vec<OwnedFd>) -> Result<(), Failure> {
    let step = |doing: &'static str| move |error: io::Error| Failure::new(Step::Init, doing, &error);
    calls::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong).map_err(step("prctl(PR_SET_PDEATHSIG)"))?;
    namespaces::settle()?;
    let writable = root::enter(spec, lent)?;
    let reach = landlock::Reach { readable: &[], writable: &writable, devices: &spec.devices };
    let rules = landlock::rules(Strength::Full, reach)?;
    let filters = Filters::of(Strength::Full, false)?;
    let folders = folders(spec)?;
    let children = calls::watch_children().map_err(step("signalfd(2)"))?;
    let started = if spec.arguments.is_empty() {
        None
    } else {
        Some(program::start(spec, Seal { rules: Some(Rules::Made(&rules)), filters: Some(filters) }, streams)?)
    };
    // Nothing that is done from here on needs any. The host's streams are the program's alone.
    program::give_up_capabilities()?;
    let nothing = File::options().read(true).write(true).open("/dev/null").map_err(step("opening /dev/null"))?;
    for stream in 0..=2 {
        calls::make_standard(nothing.as_fd(), stream).map_err(step("dup2(2)"))?;
    }
    report(channel, spec, &rules, started.as_ref(), &folders).map_err(step("telling the host"))?;
    drop((rules, folders));
    stay(channel, spec, &children, started.as_ref()).map_err(step("watching"))
}

/// Descriptors of the folders in memory, for the host.
fn folders(spec: &Spec) -> Result<Vec<File>, Failure> {
    let in_memory = spec.folders.iter().filter(|folder| is_in_memory(&folder.source));
    in_memory
        .map(|folder| {
            let wrong = |error| Failure::new(Step::Root, format!("opening {}", folder.inside.display()), &error);
            File::open(&folder.inside).map_err(wrong)
        })
        .collect()
}

fn report(
    channel: &Channel,
    spec: &Spec,
    rules: &OwnedFd,
    started: Option<&Started>,
    folders: &[File],
) -> io::Result<()> {
    let mut descriptors: Vec<BorrowedFd<'_>> = vec![rules.as_fd()];
    descriptors.extend(started.map(|started| started.descriptor.as_fd()));
    descriptors.extend(folders.iter().map(File::as_fd));
    let in_memory = spec.folders.iter().filter(|folder| is_in_memory(&folder.source));
    let folders = in_memory.map(|folder| folder.inside.clone()).collect();
    channel.send(&Report::Standing { folders, program: started.is_some() }, &descriptors)
}

/// Until the program ends, or the host does.
fn stay(channel: &Channel, spec: &Spec, children: &OwnedFd, started: Option<&Started>) -> io::Result<()> {
    let every = if spec.limits.memory_bytes.is_some() { COUNT_EVERY } else { -1 };
    let mut over_memory = false;
    loop {
        let watched = [(channel.as_fd(), libc::POLLIN), (children.as_fd(), libc::POLLIN)];
        let [spoken, died] = calls::poll(watched, every)?;
        if spoken != 0 {
            match channel.receive::<Order>(false) {
                Ok(Some((Order::Empty, _))) => {
                    calls::kill_all();
                    channel.send(&Report::Done, &[])?;
                }
                Ok(None) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        if died != 0 {
            // One signal may stand for several that came together.
            rustix::io::read(children, &mut [0_u8; 512])?;
        }
        while let Some(reaped) = calls::reap() {
            if started.is_some_and(|started| started.process == reaped.process) {
                let ended = if over_memory { Ended::OverMemory } else { Ended::of(reaped.status) };
                // The host may be gone; then it does not ask.
                let _ = channel.send(&Report::Ended(ended), &[]);
                return Ok(());
            }
        }
        if spec.limits.memory_bytes.is_some_and(|most| memory::exceeds(Path::new("/proc"), most)) {
            over_memory = true;
            calls::kill_all();
            if started.is_none() {
                let _ = channel.send(&Report::OverMemory, &[]);
            }
        }
    }
}

//! The template: the process that workers are forked from.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{ForkRequest, TemplateReply, calls};
use crate::channel::Channel;
use crate::error::{Step, StepFailure};
use crate::fork_server::own_channel;
use crate::policy::WORKER_USER;
use crate::syscalls::{self, Fork, MountAttributes};
use crate::{landlock, namespaces, program};

/// The directory over which the empty root is mounted. Every system has it.
const ROOT: &str = "/proc";

/// The exit status of a template that could not be made ready.
const SETUP_FAILED: i32 = 125;

/// The layers that this machine does not provide. Without any, all fields are `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateReport {
    /// The reason why workers have no namespaces of their own.
    pub without_namespaces: Option<String>,
    /// The reason why Landlock does not restrict workers.
    pub without_landlock: Option<String>,
}

/// The template, in its own process.
#[derive(Debug)]
pub struct Template {
    channel: Channel,
}

/// A worker that was just forked. No code of others may run in it before [`seal`](super::seal).
#[derive(Debug)]
pub struct NewWorker {
    /// The descriptors that the host sent.
    pub descriptors: Vec<OwnedFd>,
    /// The process's `/proc/self/pagemap`, if it can be opened.
    pub pagemap: Option<File>,
}

impl Template {
    /// Returns the template if this process was started as one, with `argument` as its first argument. Called first in
    /// `main`: before any file is opened or thread started.
    pub fn if_child(argument: &str) -> Option<Self> {
        std::env::args_os().nth(1).is_some_and(|first| first == argument).then(Self::in_child)
    }

    /// Returns the template in a process that was started as one by another program, such as a Python interpreter.
    /// Called before that opens a file that it goes on to use, or starts a thread.
    pub fn in_child() -> Self {
        // The host's own parent may have left descriptors open.
        // SAFETY: nothing goes on to use descriptors, as documented.
        match unsafe { syscalls::close_inherited() }.and_then(|()| own_channel()) {
            Ok(channel) => Self { channel },
            Err(_) => syscalls::exit(SETUP_FAILED),
        }
    }

    /// Receives the embedder's task.
    ///
    /// # Errors
    ///
    /// The system's, or `InvalidData` for another message.
    pub fn task<T: DeserializeOwned>(&self) -> io::Result<T> {
        let received = self.channel.receive::<T>(true)?;
        received.map(|(task, _)| task).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// Reports that the template cannot be made ready, and ends the process.
    pub fn fail(&self, reason: &str) -> ! {
        // An error is ignored: the host may be gone.
        let _ = self.channel.send(&TemplateReply::Failed(reason.to_owned()), &[]);
        syscalls::exit(SETUP_FAILED)
    }

    /// Serves requests to fork workers until the host ends. Returns only in workers.
    ///
    /// The process must have one thread.
    pub fn serve(self) -> NewWorker {
        match self.try_serve() {
            Ok(worker) => worker,
            Err((channel, failure)) => Self { channel }.fail(&failure.to_string()),
        }
    }

    fn try_serve(self) -> Result<NewWorker, (Channel, StepFailure)> {
        let Self { channel } = self;
        let prepared = match prepare() {
            Ok(prepared) => prepared,
            Err(failure) => return Err((channel, failure)),
        };
        let Prepared { report, proc, ruleset } = prepared;
        if channel.send(&TemplateReply::Ready(report), &[]).is_err() {
            syscalls::exit(0);
        }
        syscalls::set_auto_reap_children(true);
        while let Ok(Some((ForkRequest { number }, descriptors))) = channel.receive(true) {
            let forked = match syscalls::fork() {
                Ok(Fork::Child) => {
                    return match enter(&proc, ruleset.as_ref()) {
                        Ok(pagemap) => Ok(NewWorker { descriptors, pagemap }),
                        // The host sees that the worker's channel is closed.
                        Err(_) => syscalls::exit(SETUP_FAILED),
                    };
                }
                Ok(Fork::Parent(pid)) => syscalls::pidfd_open(pid),
                Err(error) => Err(error),
            };
            let sent = match &forked {
                Ok(pidfd) => channel.send(&TemplateReply::Forked(number), &[pidfd.as_fd()]),
                Err(error) => channel.send(&TemplateReply::NotForked(number, error.to_string()), &[]),
            };
            if sent.is_err() {
                break;
            }
        }
        syscalls::exit(0)
    }
}

/// The parts of the first process that workers start with.
struct Prepared {
    report: TemplateReport,
    /// The machine's `/proc`, which is not in the root any more.
    proc: OwnedFd,
    ruleset: Option<OwnedFd>,
}

/// Leaves everything of the machine that a template needs no more. Returns in the first process of the namespaces, if
/// there are any; the calling process waits for it and exits.
fn prepare() -> Result<Prepared, StepFailure> {
    let init = |operation: &'static str| move |error: io::Error| StepFailure::new(Step::Init, operation, &error);
    let threads = fs::read_dir("/proc/self/task").map_err(init("reading /proc/self/task"))?.count();
    if threads != 1 {
        return Err(StepFailure::from_reason(Step::Init, format!("the template has {threads} threads and not one")));
    }
    // The image of a filter takes a millisecond to encode, which workers need not spend.
    calls::filters()?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let proc = rustix::fs::open("/proc", flags, Mode::empty())
        .map_err(|error| StepFailure::new(Step::Init, "opening /proc", &error.into()))?;
    if syscalls::user() == 0 {
        syscalls::set_uid_gid(WORKER_USER)
            .map_err(|error| StepFailure::new(Step::Identity, format!("changing to user {WORKER_USER}"), &error))?;
    }
    let mut report = TemplateReport::default();
    match namespaces::unshare_namespaces() {
        Ok(()) => {
            match syscalls::fork().map_err(init("fork(2)"))? {
                Fork::Parent(_) => {
                    program::give_up_capabilities()?;
                    syscalls::wait_for_child();
                    syscalls::exit(0)
                }
                Fork::Child => end_with_parent()?,
            }
            enter_empty_root()?;
        }
        Err(failure) => report.without_namespaces = Some(failure.to_string()),
    }
    let ruleset = match landlock::create_empty_ruleset() {
        Ok(ruleset) => Some(ruleset),
        Err(failure) => {
            report.without_landlock = Some(failure.to_string());
            None
        }
    };
    let wrong = |error| StepFailure::new(Step::Privileges, "dropping privileges", &error);
    if syscalls::has_capabilities().map_err(wrong)? {
        syscalls::drop_bounding_set().map_err(wrong)?;
    }
    program::give_up_capabilities()?;
    Ok(Prepared { report, proc, ruleset })
}

/// Enters an empty root that cannot be written to.
fn enter_empty_root() -> Result<(), StepFailure> {
    let root = |operation: &'static str| move |error: io::Error| StepFailure::new(Step::Root, operation, &error);
    syscalls::mount(
        Path::new("none"),
        Path::new(ROOT),
        "tmpfs",
        libc::MS_NOSUID | libc::MS_NODEV,
        "size=4k,nr_inodes=2",
    )
    .map_err(root("mount(tmpfs)"))?;
    syscalls::pivot_root(Path::new(ROOT)).map_err(root("pivot_root(2)"))?;
    syscalls::set_mount_attributes(Path::new("/"), MountAttributes::READ_ONLY_NOSUID_NODEV_NOEXEC, false)
        .map_err(root("mount_setattr(2)"))
}

/// Has the kernel end this process with its parent.
fn end_with_parent() -> Result<(), StepFailure> {
    syscalls::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong)
        .map_err(|error| StepFailure::new(Step::Init, "prctl(PR_SET_PDEATHSIG)", &error))
}

/// Performs the steps of a worker that precede its threads. Returns its `pagemap`.
fn enter(proc: &OwnedFd, ruleset: Option<&OwnedFd>) -> Result<Option<File>, StepFailure> {
    end_with_parent()?;
    syscalls::set_auto_reap_children(false);
    let pagemap = rustix::fs::openat(proc, "self/pagemap", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    if let Some(ruleset) = ruleset {
        syscalls::landlock_restrict_self(ruleset.as_fd())
            .map_err(|error| StepFailure::new(Step::Landlock, "landlock_restrict_self(2)", &error))?;
    }
    Ok(pagemap.ok().map(File::from))
}

//! The user of the launcher, and the namespaces of the sandbox.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with};

use crate::error::{Step, StepFailure};
use crate::rootfs::{self, StagedPaths};
use crate::spec::Spec;
use crate::syscalls;

/// The user and group ID of the code as seen inside.
pub(crate) const INSIDE_USER: u32 = 1000;

/// The namespaces of a sandbox, except its user namespace.
pub(crate) const ALL: i32 = libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP;

/// Changes from root to the session's user; does nothing for an ordinary user. With `stage`, paths that only root can
/// reach are made reachable before, for a root that is built later.
pub(crate) fn drop_to_session_user(spec: &mut Spec, stage: bool) -> Result<StagedPaths, StepFailure> {
    if syscalls::user() != 0 {
        return match spec.user {
            Some(user) if user != syscalls::user() => {
                Err(StepFailure::from_reason(Step::Identity, format!("only root can run code as user {user}")))
            }
            _ => Ok(StagedPaths::default()),
        };
    }
    let Some(user) = spec.user.filter(|user| *user != 0) else {
        return Err(StepFailure::from_reason(Step::Identity, "code never runs as root, and no user was given"));
    };
    let mut staged = StagedPaths::default();
    let has_paths = !spec.readable.is_empty() || spec.folders.iter().any(|folder| !folder.source.is_memory());
    if stage && has_paths {
        syscalls::unshare(libc::CLONE_NEWNS)
            .map_err(|error| StepFailure::new(Step::Identity, "unshare(CLONE_NEWNS)", &error))?;
        rootfs::make_mounts_private()?;
        staged = rootfs::stage_readable_paths(spec)?;
    }
    syscalls::set_uid_gid(user)
        .map_err(|error| StepFailure::new(Step::Identity, format!("changing to user {user}"), &error))?;
    Ok(staged)
}

/// Creates the namespaces. This process stays in its process namespace; the next process that it forks is the first of
/// the new one.
pub(crate) fn unshare_namespaces() -> Result<(), StepFailure> {
    let (user, group) = (syscalls::user(), syscalls::group());
    let step =
        |operation: &'static str| move |error: std::io::Error| StepFailure::new(Step::UserNamespace, operation, &error);
    syscalls::unshare(libc::CLONE_NEWUSER).map_err(step("unshare(CLONE_NEWUSER)"))?;
    // A process without privileges may write gid_map only after this.
    fs::write("/proc/self/setgroups", "deny").map_err(step("writing /proc/self/setgroups"))?;
    fs::write("/proc/self/uid_map", format!("{INSIDE_USER} {user} 1")).map_err(step("writing /proc/self/uid_map"))?;
    fs::write("/proc/self/gid_map", format!("{INSIDE_USER} {group} 1")).map_err(step("writing /proc/self/gid_map"))?;
    syscalls::unshare(ALL).map_err(|error| StepFailure::new(Step::Namespaces, "unshare(2)", &error))?;
    rootfs::make_mounts_private()
}

/// Creates the listening socket on which the host accepts connections of the code. A socket belongs to the network
/// namespace in which it was created, whichever process has its descriptor.
pub(crate) fn listen_on_loopback(port: u16) -> Result<OwnedFd, StepFailure> {
    let create = || {
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
        // `net.core.somaxconn` of the namespace is lower.
        listen(&socket, i32::MAX)?;
        Ok(socket)
    };
    create().map_err(|error: Errno| StepFailure::new(Step::Loopback, "creating the listening socket", &error.into()))
}

/// Sets the host name, and brings the loopback interface up.
pub(crate) fn configure_network_and_hostname() -> Result<(), StepFailure> {
    syscalls::set_host_name(c"sandbox")
        .map_err(|error| StepFailure::new(Step::Namespaces, "sethostname(2)", &error))?;
    syscalls::bring_loopback_up().map_err(|error| StepFailure::new(Step::Loopback, "ioctl(SIOCSIFFLAGS)", &error))
}

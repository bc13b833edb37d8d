//! Who the launcher is, and the namespaces that it leaves its machine for.

use std::fs;

use super::calls;
use super::root::{self, Lent};
use super::running::is_in_memory;
use super::{Failure, Spec, Step};

/// The user and group that the code sees itself as.
pub(super) const INSIDE: u32 = 1000;

/// All that a sandbox has of its own, besides users.
pub(super) const ALL: i32 = libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP;

/// Root gives itself up for the session's user. Paths that only root can reach are made reachable before, unless there
/// is to be no root of our own.
pub(super) fn take_identity(spec: &mut Spec, lend: bool) -> Result<Lent, Failure> {
    if calls::user() != 0 {
        return match spec.user {
            Some(user) if user != calls::user() => {
                Err(Failure::plain(Step::Identity, format!("only root can run code as user {user}")))
            }
            _ => Ok(Lent::default()),
        };
    }
    let Some(user) = spec.user.filter(|user| *user != 0) else {
        return Err(Failure::plain(Step::Identity, "code is never run as root, and no user was given"));
    };
    let mut lent = Lent::default();
    let anything = !spec.readable.is_empty() || spec.folders.iter().any(|folder| !is_in_memory(&folder.source));
    if lend && anything {
        calls::unshare(libc::CLONE_NEWNS)
            .map_err(|error| Failure::new(Step::Identity, "unshare(CLONE_NEWNS)", &error))?;
        root::keep_mounts_private()?;
        lent = root::lend(spec)?;
    }
    calls::become_user(user).map_err(|error| Failure::new(Step::Identity, format!("becoming user {user}"), &error))?;
    Ok(lent)
}

/// Makes the namespaces. This process stays in its process namespace; the next one that it forks is the first of a new
/// one.
pub(super) fn leave() -> Result<(), Failure> {
    let (user, group) = (calls::user(), calls::group());
    let users = |doing: &'static str| move |error: std::io::Error| Failure::new(Step::UserNamespace, doing, &error);
    calls::unshare(libc::CLONE_NEWUSER).map_err(users("unshare(CLONE_NEWUSER)"))?;
    // Only then may one who is not root map its group.
    fs::write("/proc/self/setgroups", "deny").map_err(users("writing /proc/self/setgroups"))?;
    fs::write("/proc/self/uid_map", format!("{INSIDE} {user} 1")).map_err(users("writing /proc/self/uid_map"))?;
    fs::write("/proc/self/gid_map", format!("{INSIDE} {group} 1")).map_err(users("writing /proc/self/gid_map"))?;
    calls::unshare(ALL).map_err(|error| Failure::new(Step::Namespaces, "unshare(2)", &error))?;
    root::keep_mounts_private()
}

/// Makes the new network and the new name usable.
pub(super) fn settle() -> Result<(), Failure> {
    calls::set_host_name(c"sandbox").map_err(|error| Failure::new(Step::Namespaces, "sethostname(2)", &error))?;
    calls::bring_loopback_up().map_err(|error| Failure::new(Step::Loopback, "ioctl(SIOCSIFFLAGS)", &error))
}

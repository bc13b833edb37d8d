//! The system calls of setting a sandbox up, as safe functions that answer [`io::Result`].
//!
//! They change the process that calls them, for good. Only the launcher calls them: a process of one thread, which
//! runs nothing but [`super::launcher`].

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

/// Attributes of a mount, of `mount_setattr(2)`.
#[derive(Clone, Copy)]
pub(super) struct MountAttributes(pub(super) u64);

impl MountAttributes {
    pub(super) const NOSUID: Self = Self(libc::MOUNT_ATTR_NOSUID);
    /// Nothing can be written, no set-user-id bit counts, no device answers.
    pub(super) const SEALED: Self = Self(libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV);
    /// And nothing can be executed.
    pub(super) const INERT: Self = Self(Self::SEALED.0 | libc::MOUNT_ATTR_NOEXEC);
    /// For folders that the code writes to.
    pub(super) const WRITABLE: Self = Self(libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV);
    /// For a device that the code may use.
    pub(super) const DEVICE: Self = Self(Self::NOSUID.0 | libc::MOUNT_ATTR_NOEXEC);
    pub(super) const READ_ONLY: Self = Self(libc::MOUNT_ATTR_RDONLY);
}

/// The version of capabilities that has 64 of them, `_LINUX_CAPABILITY_VERSION_3`.
pub(super) const CAPABILITY_VERSION: u32 = 0x2008_0522;

/// More capabilities than this have no place in the kernel's sets.
const MOST_CAPABILITIES: u32 = 64;

/// `CLOSE_RANGE_CLOEXEC`: the descriptors go when the program starts, so that a failure to start it can be told.
const CLOSE_AT_EXEC: libc::c_uint = 4;

/// `bytes` as the system takes text.
pub(super) fn text(bytes: &OsStr) -> io::Result<CString> {
    CString::new(bytes.as_bytes()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// `mount(2)`.
pub(super) fn mount(source: &Path, target: &Path, kind: &str, flags: u64, options: &str) -> io::Result<()> {
    let (source, target) = (text(source.as_os_str())?, text(target.as_os_str())?);
    let (kind, options) = (text(kind.as_ref())?, text(options.as_ref())?);
    // SAFETY: all four are NUL-terminated and live until the call returns, which keeps none of them.
    let result =
        unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast()) };
    check(result.into()).map(drop)
}

/// Sets attributes of the mount at `target`, and of all mounts below it if `recursive`.
pub(super) fn set_mount_attributes(target: &Path, attributes: MountAttributes, recursive: bool) -> io::Result<()> {
    let target = text(target.as_os_str())?;
    let attributes = libc::mount_attr { attr_set: attributes.0, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let flags = if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is NUL-terminated, and the structure is passed with its size; both outlive the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            target.as_ptr(),
            flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    check(result).map(drop)
}

/// Makes `root`, a mount, the root of the mount namespace, and drops the former root.
///
/// The old root is put over the new one and then detached (`pivot_root(".", ".")`, see its manual), so that no folder
/// for it is needed.
pub(super) fn pivot_into(root: &Path) -> io::Result<()> {
    std::env::set_current_dir(root)?;
    let here = c".";
    // SAFETY: both arguments are one static, NUL-terminated string.
    check(unsafe { libc::syscall(libc::SYS_pivot_root, here.as_ptr(), here.as_ptr()) })?;
    // SAFETY: a static, NUL-terminated string.
    check(unsafe { libc::umount2(here.as_ptr(), libc::MNT_DETACH) }.into())?;
    std::env::set_current_dir("/")
}

/// `unshare(2)` for namespaces.
pub(super) fn unshare(namespaces: libc::c_int) -> io::Result<()> {
    // SAFETY: takes no pointers. New namespaces leave this process's memory and descriptors as they are.
    check(unsafe { libc::unshare(namespaces) }.into()).map(drop)
}

/// Which side of a [`fork`] this is.
pub(super) enum Fork {
    /// The new process.
    Child,
    /// The old one, with the new one's number as seen from here.
    Parent(libc::pid_t),
}

/// `fork(2)`.
pub(super) fn fork() -> io::Result<Fork> {
    // SAFETY: the fork server and the launcher have one thread, so that the copy holds no lock whose owner is missing.
    match check(unsafe { libc::fork() }.into())? {
        0 => Ok(Fork::Child),
        process => Ok(Fork::Parent(process as libc::pid_t)),
    }
}

/// Gives up every group and becomes `user`, in a group of the same number.
pub(super) fn become_user(user: u32) -> io::Result<()> {
    // SAFETY: no groups are passed, and so none is read.
    check(unsafe { libc::setgroups(0, ptr::null()) }.into())?;
    // SAFETY: takes numbers alone.
    check(unsafe { libc::setresgid(user, user, user) }.into())?;
    // SAFETY: takes numbers alone.
    check(unsafe { libc::setresuid(user, user, user) }.into())?;
    // Who changes its user becomes unreadable, to itself too, and could not write its own uid_map.
    prctl(libc::PR_SET_DUMPABLE, 1)
}

/// `prctl(2)` for the operations that take a number.
pub(super) fn prctl(operation: libc::c_int, argument: libc::c_ulong) -> io::Result<()> {
    let none: libc::c_ulong = 0;
    // SAFETY: callers choose among operations that take numbers alone; the unused arguments are 0, as they must be.
    check(unsafe { libc::prctl(operation, argument, none, none, none) }.into()).map(drop)
}

/// How much of a resource (`RLIMIT_…`) this process may give itself at most.
pub(super) fn highest_limit(resource: u32) -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is written during the call.
    check(unsafe { libc::getrlimit(resource as _, &raw mut limit) }.into())?;
    Ok(limit.rlim_max)
}

/// Whether this process has any capability.
pub(super) fn has_capabilities() -> io::Result<bool> {
    let (header, mut sets) = ([CAPABILITY_VERSION, 0], [0_u32; 6]);
    // SAFETY: both arrays have the size that version 3 prescribes.
    check(unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) })?;
    Ok(sets != [0; 6])
}

/// Sets soft and hard limit of a resource (`RLIMIT_…`).
pub(super) fn set_limit(resource: u32, most: u64) -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: the structure is read during the call.
    check(unsafe { libc::setrlimit(resource as _, &raw const limit) }.into()).map(drop)
}

/// Drops all capabilities.
pub(super) fn drop_capabilities() -> io::Result<()> {
    // The header: version and process (0: this one). The data: three sets, in two halves.
    let (header, none) = ([CAPABILITY_VERSION, 0], [0_u32; 6]);
    // SAFETY: both arrays have the size that version 3 prescribes.
    check(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) }).map(drop)
}

/// Drops the chance to gain a capability by executing a file. Takes a capability itself.
pub(super) fn empty_bounding_set() -> io::Result<()> {
    for capability in 0..=u64::from(MOST_CAPABILITIES) {
        match prctl(libc::PR_CAPBSET_DROP, capability) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => break,
            outcome => outcome?,
        }
    }
    prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL as libc::c_ulong)
}

/// The highest capability that this kernel knows.
pub(super) fn highest_capability() -> u64 {
    let known = |capability: &u64| {
        let none: libc::c_ulong = 0;
        // SAFETY: takes numbers alone.
        unsafe { libc::prctl(libc::PR_CAPBSET_READ, *capability, none, none, none) >= 0 }
    };
    (0..u64::from(MOST_CAPABILITIES)).take_while(known).last().unwrap_or(0)
}

/// The version of Landlock's interface that this kernel has.
pub(super) fn landlock_version() -> io::Result<i64> {
    // LANDLOCK_CREATE_RULESET_VERSION
    let ask_version: libc::c_uint = 1;
    // SAFETY: with this flag no structure is read.
    check(unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, ptr::null::<u8>(), 0_usize, ask_version) })
}

/// Holds this process to a ruleset of Landlock.
pub(super) fn restrict_self(ruleset: BorrowedFd<'_>) -> io::Result<()> {
    let flags: libc::c_uint = 0;
    // SAFETY: takes numbers alone.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), flags) }).map(drop)
}

/// All descriptors but the standard streams are closed when a program starts.
pub(super) fn close_at_exec() -> io::Result<()> {
    // SAFETY: nothing is closed yet, and so no owner of a descriptor is wronged.
    check(unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, CLOSE_AT_EXEC) }).map(drop)
}

/// Makes `descriptor` a standard stream (0, 1 or 2).
pub(super) fn make_standard(descriptor: BorrowedFd<'_>, number: RawFd) -> io::Result<()> {
    // SAFETY: the standard streams have no owner in Rust who would close them.
    check(unsafe { libc::dup2(descriptor.as_raw_fd(), number) }.into()).map(drop)
}

/// Executes a program; returns if that fails, with the reason.
pub(super) fn execute(arguments: &[CString], environment: &[CString]) -> io::Error {
    let pointers = |texts: &[CString]| -> Vec<*const libc::c_char> {
        texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
    };
    let (vector, variables) = (pointers(arguments), pointers(environment));
    let Some(program) = arguments.first() else { return io::Error::from_raw_os_error(libc::EINVAL) };
    // SAFETY: the arrays end with a null pointer, and all that they point to is alive.
    unsafe { libc::execve(program.as_ptr(), vector.as_ptr(), variables.as_ptr()) };
    io::Error::last_os_error()
}

/// Ends this process without running anything else.
pub(super) fn exit(status: i32) -> ! {
    // SAFETY: nothing of this process is needed any more.
    unsafe { libc::_exit(status) }
}

/// A new session without a terminal.
pub(super) fn leave_terminal() -> io::Result<()> {
    // SAFETY: takes nothing.
    check(unsafe { libc::setsid() }.into()).map(drop)
}

/// Signals as a program expects them: none blocked, `SIGPIPE` ends it (Rust ignores it).
pub(super) fn reset_signals() -> io::Result<()> {
    // SAFETY: a zeroed set is valid, and sigemptyset writes within it.
    let none = unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        none
    };
    // SAFETY: the set is initialised; the former one is not asked for.
    check(unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut()) }.into())?;
    // SAFETY: the default action is a valid one.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    Ok(())
}

/// Whether children that end are forgotten at once, instead of waiting for somebody to ask how. Passed on to copies.
pub(super) fn forget_children(forget: bool) {
    // SAFETY: both actions are valid ones, and neither runs anything.
    unsafe { libc::signal(libc::SIGCHLD, if forget { libc::SIG_IGN } else { libc::SIG_DFL }) };
}

/// A process group of its own.
pub(super) fn lead_group() -> io::Result<()> {
    // SAFETY: takes numbers alone.
    check(unsafe { libc::setpgid(0, 0) }.into()).map(drop)
}

/// A descriptor that is readable when a child has ended; `SIGCHLD` itself is blocked.
pub(super) fn watch_children() -> io::Result<OwnedFd> {
    // SAFETY: a zeroed set is valid, and the two calls write within it.
    let set = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        set
    };
    // SAFETY: the set is initialised; the former one is not asked for.
    check(unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut()) }.into())?;
    // SAFETY: -1 asks for a new descriptor; the set is initialised.
    let descriptor =
        check(unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) }.into())?;
    // SAFETY: the descriptor is new, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as RawFd) })
}

/// A descriptor that stands for a process, also after it has ended.
pub(super) fn process_descriptor(process: libc::pid_t) -> io::Result<OwnedFd> {
    let flags: libc::c_uint = 0;
    // SAFETY: takes numbers alone.
    let descriptor = check(unsafe { libc::syscall(libc::SYS_pidfd_open, process, flags) })?;
    // SAFETY: the descriptor is new, and nobody else's. It closes itself at exec.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as RawFd) })
}

/// Sends a signal to the process that a descriptor stands for.
pub(super) fn signal(process: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    let flags: libc::c_uint = 0;
    // SAFETY: no information goes with the signal, which the null pointer says.
    let result = unsafe {
        libc::syscall(libc::SYS_pidfd_send_signal, process.as_raw_fd(), signal, ptr::null::<libc::siginfo_t>(), flags)
    };
    check(result).map(drop)
}

/// Kills every process that this one can name: inside a process namespace, all but its first.
pub(super) fn kill_all() {
    // SAFETY: takes numbers alone. That there is nobody to kill is fine.
    unsafe { libc::kill(-1, libc::SIGKILL) };
}

/// A process that has ended.
pub(super) struct Reaped {
    /// Its number.
    pub(super) process: libc::pid_t,
    /// How, as `wait(2)` tells it.
    pub(super) status: libc::c_int,
}

/// One child that has ended, if there is any.
pub(super) fn reap() -> Option<Reaped> {
    let mut status = 0;
    // SAFETY: the status is written during the call.
    let process = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
    (process > 0).then_some(Reaped { process, status })
}

/// Waits until one child, if there is any, has ended.
pub(super) fn wait_for_one() {
    // SAFETY: the status is not asked for.
    unsafe { libc::waitpid(-1, ptr::null_mut(), 0) };
}

/// Waits until one of `descriptors` is readable or hung up, or `milliseconds` (-1: for ever) have passed. Answers the
/// events of each.
pub(super) fn poll<const N: usize>(
    descriptors: [(BorrowedFd<'_>, libc::c_short); N],
    milliseconds: i32,
) -> io::Result<[libc::c_short; N]> {
    let mut polled =
        descriptors.map(|(descriptor, events)| libc::pollfd { fd: descriptor.as_raw_fd(), events, revents: 0 });
    // SAFETY: the array is passed with its length.
    match check(unsafe { libc::poll(polled.as_mut_ptr(), N as libc::nfds_t, milliseconds) }.into()) {
        Ok(_) => Ok(polled.map(|one| one.revents)),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok([0; N]),
        Err(error) => Err(error),
    }
}

/// Sets the host name of this namespace.
pub(super) fn set_host_name(name: &CStr) -> io::Result<()> {
    // SAFETY: the name is passed with its length.
    check(unsafe { libc::sethostname(name.as_ptr(), name.count_bytes()) }.into()).map(drop)
}

/// Brings the loopback interface of this network namespace up.
pub(super) fn bring_loopback_up() -> io::Result<()> {
    // SAFETY: takes numbers alone.
    let socket = check(unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) }.into())?;
    // SAFETY: the descriptor is new, and nobody else's.
    let socket = unsafe { OwnedFd::from_raw_fd(socket as RawFd) };
    // SAFETY: all of the structure's fields may be zero.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(c"lo".to_bytes()) {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the call reads the structure, whose name is NUL-terminated.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) }.into()).map(drop)
}

/// The user that this process is.
pub(super) fn user() -> u32 {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::geteuid() }
}

/// The group that this process is in.
pub(super) fn group() -> u32 {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::getegid() }
}

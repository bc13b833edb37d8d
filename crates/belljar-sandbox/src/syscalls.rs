//! The system calls of setting a sandbox up, as safe functions that return [`io::Result`].
//!
//! Most of them change the calling process irrevocably. Only the fork server, the launcher and the sandbox's first
//! process call those: each has one thread, and runs only [`crate::fork_server`], [`crate::launcher`] and
//! [`crate::init`].

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::time::Duration;

/// The attributes of a mount, for `mount_setattr(2)`.
#[derive(Clone, Copy)]
pub(crate) struct MountAttributes(pub(crate) u64);

impl MountAttributes {
    pub(crate) const NOSUID: Self = Self(libc::MOUNT_ATTR_NOSUID);
    /// For files of the host that the code may read and execute.
    pub(crate) const READ_ONLY_NOSUID_NODEV: Self =
        Self(libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV);
    /// For files of the host that the code may only read.
    pub(crate) const READ_ONLY_NOSUID_NODEV_NOEXEC: Self =
        Self(Self::READ_ONLY_NOSUID_NODEV.0 | libc::MOUNT_ATTR_NOEXEC);
    /// For folders that the code writes to.
    pub(crate) const WRITABLE: Self = Self(libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV);
    /// For a device that the code may use.
    pub(crate) const DEVICE: Self = Self(Self::NOSUID.0 | libc::MOUNT_ATTR_NOEXEC);
    pub(crate) const READ_ONLY: Self = Self(libc::MOUNT_ATTR_RDONLY);
}

/// `_LINUX_CAPABILITY_VERSION_3`, the version of capability sets with 64 bits.
pub(crate) const CAPABILITY_VERSION: u32 = 0x2008_0522;

/// The size of the kernel's capability sets.
const MAX_CAPABILITIES: u32 = 64;

/// The highest number of a standard signal. Real-time signals follow, which no shell ignores: see `signal(7)`.
const MAX_STANDARD_SIGNAL: libc::c_int = 31;

/// Closes the descriptors at exec, not at once: until then the pipe for errors is needed.
const CLOSE_RANGE_CLOEXEC: libc::c_uint = 4;

/// Converts `text` to a NUL-terminated string; fails with `EINVAL` if it contains a NUL.
pub(crate) fn c_string(text: &OsStr) -> io::Result<CString> {
    CString::new(text.as_bytes()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Mounts a file system, or bind-mounts `source`: `mount(2)`.
pub(crate) fn mount(source: &Path, target: &Path, kind: &str, flags: u64, options: &str) -> io::Result<()> {
    let (source, target) = (c_string(source.as_os_str())?, c_string(target.as_os_str())?);
    let (kind, options) = (c_string(kind.as_ref())?, c_string(options.as_ref())?);
    // SAFETY: all four are NUL-terminated and live until the call returns, which keeps none of them.
    let result =
        unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast()) };
    check(result.into()).map(drop)
}

/// Sets attributes of the mount at `target`, and of all mounts below it if `recursive`: `mount_setattr(2)`.
pub(crate) fn set_mount_attributes(target: &Path, attributes: MountAttributes, recursive: bool) -> io::Result<()> {
    let target = c_string(target.as_os_str())?;
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

/// Makes `root`, a mount, the root of the mount namespace, and detaches the former root: `pivot_root(2)`.
///
/// The old root is stacked on the new one and then detached (`pivot_root(".", ".")`, see the manual), so that no folder
/// is needed for it.
pub(crate) fn pivot_root(root: &Path) -> io::Result<()> {
    std::env::set_current_dir(root)?;
    let current = c".";
    // SAFETY: both arguments are one static, NUL-terminated string.
    check(unsafe { libc::syscall(libc::SYS_pivot_root, current.as_ptr(), current.as_ptr()) })?;
    // SAFETY: a static, NUL-terminated string.
    check(unsafe { libc::umount2(current.as_ptr(), libc::MNT_DETACH) }.into())?;
    std::env::set_current_dir("/")
}

/// Creates namespaces: `unshare(2)`.
pub(crate) fn unshare(namespaces: libc::c_int) -> io::Result<()> {
    // SAFETY: takes no pointers. New namespaces leave this process's memory and descriptors as they are.
    check(unsafe { libc::unshare(namespaces) }.into()).map(drop)
}

/// The side of a [`fork`] on which it returned.
pub(crate) enum Fork {
    /// The new process.
    Child,
    /// The old process, with the process ID of the new one in its own namespace.
    Parent(libc::pid_t),
}

/// Forks this process: `fork(2)`.
pub(crate) fn fork() -> io::Result<Fork> {
    // SAFETY: the fork server, the launcher and the first process have one thread, so the child holds no lock whose
    // owner it lacks.
    match check(unsafe { libc::fork() }.into())? {
        0 => Ok(Fork::Child),
        process => Ok(Fork::Parent(process as libc::pid_t)),
    }
}

/// Drops all supplementary groups, and sets the user and group IDs to `user`: `setgroups(2)`, `setresgid(2)`,
/// `setresuid(2)`.
pub(crate) fn set_uid_gid(user: u32) -> io::Result<()> {
    // SAFETY: with a size of 0, the pointer is not read.
    check(unsafe { libc::setgroups(0, ptr::null()) }.into())?;
    // SAFETY: takes only numbers.
    check(unsafe { libc::setresgid(user, user, user) }.into())?;
    // SAFETY: takes only numbers.
    check(unsafe { libc::setresuid(user, user, user) }.into())?;
    // A process that changes its user becomes undumpable: even it itself could not write its uid_map.
    prctl(libc::PR_SET_DUMPABLE, 1)
}

/// Performs an operation of `prctl(2)` that takes a number.
pub(crate) fn prctl(operation: libc::c_int, argument: libc::c_ulong) -> io::Result<()> {
    let none: libc::c_ulong = 0;
    // SAFETY: all callers choose operations that take only numbers; the unused arguments are 0, as the kernel requires.
    check(unsafe { libc::prctl(operation, argument, none, none, none) }.into()).map(drop)
}

/// Returns the hard limit of a resource (`RLIMIT_…`).
pub(crate) fn hard_limit(resource: u32) -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is written during the call.
    check(unsafe { libc::getrlimit(resource as _, &raw mut limit) }.into())?;
    Ok(limit.rlim_max)
}

/// Returns whether this process has any capability.
pub(crate) fn has_capabilities() -> io::Result<bool> {
    let (header, mut sets) = ([CAPABILITY_VERSION, 0], [0_u32; 6]);
    // SAFETY: both arrays have the sizes that version 3 prescribes.
    check(unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) })?;
    Ok(sets != [0; 6])
}

/// Sets the soft and the hard limit of a resource (`RLIMIT_…`).
pub(crate) fn set_limit(resource: u32, value: u64) -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur: value, rlim_max: value };
    // SAFETY: the structure is read during the call.
    check(unsafe { libc::setrlimit(resource as _, &raw const limit) }.into()).map(drop)
}

/// Drops all capabilities.
pub(crate) fn drop_capabilities() -> io::Result<()> {
    // The header: version and process (0 is the caller). The data: three sets, in two halves.
    let (header, none) = ([CAPABILITY_VERSION, 0], [0_u32; 6]);
    // SAFETY: both arrays have the sizes that version 3 prescribes.
    check(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) }).map(drop)
}

/// Drops the bounding set and the ambient set, by which executing a file could gain capabilities. Requires
/// `CAP_SETPCAP`.
pub(crate) fn drop_bounding_set() -> io::Result<()> {
    for capability in 0..=u64::from(MAX_CAPABILITIES) {
        match prctl(libc::PR_CAPBSET_DROP, capability) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => break,
            outcome => outcome?,
        }
    }
    prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL as libc::c_ulong)
}

/// Returns the highest capability that this kernel knows.
pub(crate) fn highest_capability() -> u64 {
    let known = |capability: &u64| {
        let none: libc::c_ulong = 0;
        // SAFETY: takes only numbers.
        unsafe { libc::prctl(libc::PR_CAPBSET_READ, *capability, none, none, none) >= 0 }
    };
    (0..u64::from(MAX_CAPABILITIES)).take_while(known).last().unwrap_or(0)
}

/// Returns the version of Landlock's interface in this kernel.
pub(crate) fn landlock_version() -> io::Result<i64> {
    const LANDLOCK_CREATE_RULESET_VERSION: libc::c_uint = 1;
    // SAFETY: with this flag no structure is read.
    check(unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, ptr::null::<u8>(), 0_usize, LANDLOCK_CREATE_RULESET_VERSION)
    })
}

/// Restricts this process by a ruleset of Landlock: `landlock_restrict_self(2)`.
pub(crate) fn landlock_restrict_self(ruleset: BorrowedFd<'_>) -> io::Result<()> {
    let flags: libc::c_uint = 0;
    // SAFETY: takes only numbers.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), flags) }).map(drop)
}

/// Marks all descriptors but the standard streams to be closed when a program is executed.
pub(crate) fn close_at_exec() -> io::Result<()> {
    // SAFETY: closes no descriptor now, so all owners of descriptors stay valid.
    check(unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, CLOSE_RANGE_CLOEXEC) }).map(drop)
}

/// Closes all descriptors but the standard streams.
///
/// # Safety
/// No descriptor may have an owner: the process has just begun.
pub(crate) unsafe fn close_inherited() -> io::Result<()> {
    // SAFETY: the caller guarantees that nothing refers to the descriptors.
    check(unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) }).map(drop)
}

/// Duplicates `descriptor` onto a standard stream (0, 1 or 2): `dup2(2)`.
pub(crate) fn make_standard(descriptor: BorrowedFd<'_>, number: RawFd) -> io::Result<()> {
    // SAFETY: the standard streams have no owner in Rust that would close them.
    check(unsafe { libc::dup2(descriptor.as_raw_fd(), number) }.into()).map(drop)
}

/// Executes a program: `execve(2)`. Returns only on failure, with the system's error.
pub(crate) fn execute(arguments: &[CString], environment: &[CString]) -> io::Error {
    let pointers = |texts: &[CString]| -> Vec<*const libc::c_char> {
        texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
    };
    let (vector, variables) = (pointers(arguments), pointers(environment));
    let Some(program) = arguments.first() else { return io::Error::from_raw_os_error(libc::EINVAL) };
    // SAFETY: the arrays end with a null pointer, and all strings that they point to are alive.
    unsafe { libc::execve(program.as_ptr(), vector.as_ptr(), variables.as_ptr()) };
    io::Error::last_os_error()
}

/// Exits at once, without running destructors or exit handlers.
pub(crate) fn exit(status: i32) -> ! {
    // SAFETY: no code of this process runs after the call.
    unsafe { libc::_exit(status) }
}

/// Creates a session without a terminal: `setsid(2)`.
pub(crate) fn setsid() -> io::Result<()> {
    // SAFETY: takes no arguments.
    check(unsafe { libc::setsid() }.into()).map(drop)
}

/// Resets signals to the state that a program expects: none is blocked or ignored.
pub(crate) fn reset_signals() -> io::Result<()> {
    // SAFETY: a zeroed set is valid, and sigemptyset writes within it.
    let none = unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        none
    };
    // SAFETY: the set is initialised; a null pointer for the former set is allowed.
    check(unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut()) }.into())?;
    // A shell starts jobs in the background with SIGINT ignored, and Rust ignores SIGPIPE: a program inherits that. The
    // calls for SIGKILL and SIGSTOP, whose actions are fixed, fail.
    for signal in 1..=MAX_STANDARD_SIGNAL {
        // SAFETY: the default action is a valid one.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    Ok(())
}

/// Sets whether the kernel reaps children that end (`SIGCHLD` is ignored). Forks inherit it.
pub(crate) fn set_auto_reap_children(enabled: bool) {
    // SAFETY: both actions are valid, and neither runs a handler.
    unsafe { libc::signal(libc::SIGCHLD, if enabled { libc::SIG_IGN } else { libc::SIG_DFL }) };
}

/// Creates a process group led by this process: `setpgid(2)`.
pub(crate) fn lead_process_group() -> io::Result<()> {
    // SAFETY: takes only numbers.
    check(unsafe { libc::setpgid(0, 0) }.into()).map(drop)
}

/// Blocks `SIGCHLD`, and returns a descriptor that is readable when a child has ended: `signalfd(2)`.
pub(crate) fn child_signalfd() -> io::Result<OwnedFd> {
    // SAFETY: a zeroed set is valid, and the two calls write within it.
    let set = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        set
    };
    // SAFETY: the set is initialised; a null pointer for the former set is allowed.
    check(unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut()) }.into())?;
    // SAFETY: -1 asks for a new descriptor; the set is initialised.
    let descriptor =
        check(unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) }.into())?;
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as RawFd) })
}

/// Returns a descriptor of a process, which stays valid after the process has ended: `pidfd_open(2)`.
pub(crate) fn pidfd_open(pid: libc::pid_t) -> io::Result<OwnedFd> {
    let flags: libc::c_uint = 0;
    // SAFETY: takes only numbers.
    let descriptor = check(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, flags) })?;
    // SAFETY: the descriptor is new and has no other owner. It is closed on exec.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as RawFd) })
}

/// Sends a signal to a process: `pidfd_send_signal(2)`.
pub(crate) fn signal(pidfd: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    let flags: libc::c_uint = 0;
    // SAFETY: a null pointer sends the signal without further information.
    let result = unsafe {
        libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signal, ptr::null::<libc::siginfo_t>(), flags)
    };
    check(result).map(drop)
}

/// The clock of the processor time that all threads of a process use: `clock_getcpuclockid(3)`. Once the process has
/// ended and its number was given to another one, it is that one's clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProcessClock(libc::clockid_t);

impl ProcessClock {
    /// Returns the clock of a process.
    pub(crate) fn of(pid: i32) -> io::Result<Self> {
        let mut clock = 0;
        // SAFETY: writes to `clock` alone. Returns the number of an error, and does not set `errno`.
        match unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) } {
            0 => Ok(Self(clock)),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// Returns the time.
    pub(crate) fn now(self) -> io::Result<Duration> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes to `time` alone. A clock of a process that has ended is an error.
        check(unsafe { libc::clock_gettime(self.0, &raw mut time) }.into())?;
        let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
        Ok(Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default()))
    }
}

/// Kills every process that this one may signal: called by the first process of a namespace, all others in it.
pub(crate) fn kill_all() {
    // SAFETY: takes only numbers. An error, which means that there are no processes to kill, is ignored.
    unsafe { libc::kill(-1, libc::SIGKILL) };
}

/// A child that was reaped.
pub(crate) struct Reaped {
    pub(crate) pid: libc::pid_t,
    /// The status that `wait(2)` returned.
    pub(crate) status: libc::c_int,
}

/// Reaps one child that has ended, if any has.
pub(crate) fn reap() -> Option<Reaped> {
    let mut status = 0;
    // SAFETY: the status is written during the call.
    let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
    (pid > 0).then_some(Reaped { pid, status })
}

/// Waits until one child has ended, and reaps it. Returns at once if this process has no children.
pub(crate) fn wait_for_child() {
    // SAFETY: a null pointer for the status is allowed.
    unsafe { libc::waitpid(-1, ptr::null_mut(), 0) };
}

/// Waits until one of `descriptors` is readable or hung up, or `milliseconds` (-1: for ever) have passed: `poll(2)`.
/// Returns the events of each, all 0 if a signal ended the wait.
pub(crate) fn poll<const N: usize>(
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
pub(crate) fn set_host_name(name: &CStr) -> io::Result<()> {
    // SAFETY: the name is passed with its length.
    check(unsafe { libc::sethostname(name.as_ptr(), name.count_bytes()) }.into()).map(drop)
}

/// Brings the loopback interface of this network namespace up.
pub(crate) fn bring_loopback_up() -> io::Result<()> {
    // SAFETY: takes only numbers.
    let socket = check(unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) }.into())?;
    // SAFETY: the descriptor is new and has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(socket as RawFd) };
    // SAFETY: all fields of the structure may be zero.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(c"lo".to_bytes()) {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the call reads the structure, whose name is NUL-terminated.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) }.into()).map(drop)
}

/// Returns the effective user ID.
pub(crate) fn user() -> u32 {
    // SAFETY: takes no arguments and cannot fail.
    unsafe { libc::geteuid() }
}

/// Returns the effective group ID.
pub(crate) fn group() -> u32 {
    // SAFETY: takes no arguments and cannot fail.
    unsafe { libc::getegid() }
}

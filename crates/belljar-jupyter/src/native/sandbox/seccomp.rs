//! Which system calls the code may make: two filters in the kernel.
//!
//! The first is a list of what is allowed; everything else, also what future kernels add, answers `ENOSYS`, upon which
//! libraries fall back to older calls. So do `clone3` and `io_uring`, whose arguments a filter cannot see. The second
//! answers `EPERM` to calls that are known and refused, so that the answer reads as what it is. Calls of another
//! architecture kill the process (`int 0x80`), and x32's numbers are in no list.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use super::{Failure, Step, Strength, allow_list};

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: TargetArch = TargetArch::x86_64;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: TargetArch = TargetArch::aarch64;

/// What Python, the libraries of science and a shell need.
#[rustfmt::skip]
const ALLOWED: &[c_long] = &[
    // Files by descriptor.
    libc::SYS_read, libc::SYS_write, libc::SYS_readv, libc::SYS_writev, libc::SYS_pread64, libc::SYS_pwrite64,
    libc::SYS_preadv, libc::SYS_pwritev, libc::SYS_preadv2, libc::SYS_pwritev2, libc::SYS_close,
    libc::SYS_close_range, libc::SYS_lseek, libc::SYS_fstat, libc::SYS_fstatfs, libc::SYS_fsync,
    libc::SYS_fdatasync, libc::SYS_sync_file_range, libc::SYS_ftruncate, libc::SYS_fallocate, libc::SYS_fadvise64,
    libc::SYS_readahead, libc::SYS_flock, libc::SYS_fcntl, libc::SYS_ioctl, libc::SYS_dup, libc::SYS_dup3,
    libc::SYS_pipe2, libc::SYS_sendfile, libc::SYS_splice, libc::SYS_tee, libc::SYS_vmsplice,
    libc::SYS_copy_file_range, libc::SYS_getdents64, libc::SYS_fchmod, libc::SYS_fchown, libc::SYS_fchdir,
    libc::SYS_fgetxattr, libc::SYS_fsetxattr, libc::SYS_flistxattr, libc::SYS_fremovexattr,
    // Files by path. `openat2` is not here: the mode of what it creates stands where a filter cannot look.
    libc::SYS_openat, libc::SYS_statx, libc::SYS_newfstatat, libc::SYS_faccessat, libc::SYS_faccessat2,
    libc::SYS_readlinkat, libc::SYS_mkdirat, libc::SYS_unlinkat, libc::SYS_renameat, libc::SYS_renameat2,
    libc::SYS_linkat, libc::SYS_symlinkat, libc::SYS_fchmodat, FCHMODAT2, libc::SYS_fchownat, libc::SYS_utimensat,
    libc::SYS_truncate, libc::SYS_statfs, libc::SYS_chdir, libc::SYS_getcwd, libc::SYS_umask, libc::SYS_mknodat,
    libc::SYS_getxattr, libc::SYS_setxattr, libc::SYS_listxattr, libc::SYS_removexattr, libc::SYS_lgetxattr,
    libc::SYS_lsetxattr, libc::SYS_llistxattr, libc::SYS_lremovexattr, libc::SYS_sync, libc::SYS_syncfs,
    libc::SYS_inotify_init1, libc::SYS_inotify_add_watch, libc::SYS_inotify_rm_watch,
    // Memory. `memfd_create` is not here: no limit counts its pages.
    libc::SYS_mmap, libc::SYS_munmap, libc::SYS_mprotect, libc::SYS_mremap, libc::SYS_madvise, libc::SYS_msync,
    libc::SYS_mincore, libc::SYS_mlock, libc::SYS_mlock2, libc::SYS_munlock, libc::SYS_mlockall,
    libc::SYS_munlockall, libc::SYS_brk, libc::SYS_membarrier, libc::SYS_get_mempolicy, libc::SYS_pkey_alloc,
    libc::SYS_pkey_free, libc::SYS_pkey_mprotect,
    // Processes and threads.
    libc::SYS_clone, libc::SYS_execve, libc::SYS_execveat, libc::SYS_exit, libc::SYS_exit_group, libc::SYS_wait4,
    libc::SYS_waitid, libc::SYS_kill, libc::SYS_tkill, libc::SYS_tgkill, libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal, libc::SYS_getpid, libc::SYS_getppid, libc::SYS_gettid, libc::SYS_getpgid,
    libc::SYS_setpgid, libc::SYS_getsid, libc::SYS_setsid, libc::SYS_set_tid_address, libc::SYS_set_robust_list,
    libc::SYS_get_robust_list, libc::SYS_rseq, libc::SYS_futex, libc::SYS_futex_waitv, libc::SYS_prctl,
    libc::SYS_personality, libc::SYS_seccomp, libc::SYS_getrusage, libc::SYS_times, libc::SYS_getrlimit,
    libc::SYS_setrlimit, libc::SYS_prlimit64, libc::SYS_getpriority, libc::SYS_setpriority, libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity, libc::SYS_sched_setaffinity, libc::SYS_sched_getparam, libc::SYS_sched_setparam,
    libc::SYS_sched_getscheduler, libc::SYS_sched_setscheduler, libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min, libc::SYS_sched_rr_get_interval, libc::SYS_sched_getattr,
    libc::SYS_sched_setattr, libc::SYS_ioprio_get, libc::SYS_getcpu, libc::SYS_restart_syscall,
    libc::SYS_landlock_create_ruleset, libc::SYS_landlock_add_rule, libc::SYS_landlock_restrict_self,
    // Who one is.
    libc::SYS_getuid, libc::SYS_geteuid, libc::SYS_getgid, libc::SYS_getegid, libc::SYS_getresuid,
    libc::SYS_getresgid, libc::SYS_getgroups, libc::SYS_setuid, libc::SYS_setgid, libc::SYS_setreuid,
    libc::SYS_setregid, libc::SYS_setresuid, libc::SYS_setresgid, libc::SYS_setfsuid, libc::SYS_setfsgid,
    libc::SYS_capget, libc::SYS_capset, libc::SYS_uname, libc::SYS_sysinfo,
    // Signals.
    libc::SYS_rt_sigaction, libc::SYS_rt_sigprocmask, libc::SYS_rt_sigpending, libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_sigqueueinfo, libc::SYS_rt_tgsigqueueinfo, libc::SYS_rt_sigreturn, libc::SYS_rt_sigsuspend,
    libc::SYS_sigaltstack, libc::SYS_signalfd4,
    // Time.
    libc::SYS_clock_gettime, libc::SYS_clock_getres, libc::SYS_clock_nanosleep, libc::SYS_nanosleep,
    libc::SYS_gettimeofday, libc::SYS_getitimer, libc::SYS_setitimer, libc::SYS_timer_create,
    libc::SYS_timer_settime, libc::SYS_timer_gettime, libc::SYS_timer_getoverrun, libc::SYS_timer_delete,
    libc::SYS_timerfd_create, libc::SYS_timerfd_settime, libc::SYS_timerfd_gettime,
    // Waiting.
    libc::SYS_ppoll, libc::SYS_pselect6, libc::SYS_epoll_create1, libc::SYS_epoll_ctl, libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2, libc::SYS_eventfd2,
    // Sockets; of which kind, the other filter says.
    libc::SYS_socket, libc::SYS_socketpair, libc::SYS_bind, libc::SYS_listen, libc::SYS_accept, libc::SYS_accept4,
    libc::SYS_connect, libc::SYS_getsockname, libc::SYS_getpeername, libc::SYS_sendto, libc::SYS_recvfrom,
    libc::SYS_sendmsg, libc::SYS_recvmsg, libc::SYS_sendmmsg, libc::SYS_recvmmsg, libc::SYS_setsockopt,
    libc::SYS_getsockopt, libc::SYS_shutdown, libc::SYS_getrandom,
];

/// Calls that newer architectures do without.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const ALLOWED_OF_OLD: &[c_long] = &[
    libc::SYS_open, libc::SYS_creat, libc::SYS_stat, libc::SYS_lstat, libc::SYS_access, libc::SYS_readlink,
    libc::SYS_mkdir, libc::SYS_rmdir, libc::SYS_unlink, libc::SYS_rename, libc::SYS_link, libc::SYS_symlink,
    libc::SYS_chmod, libc::SYS_chown, libc::SYS_lchown, libc::SYS_utime, libc::SYS_utimes, libc::SYS_futimesat,
    libc::SYS_mknod, libc::SYS_getdents, libc::SYS_dup2, libc::SYS_pipe, libc::SYS_inotify_init, libc::SYS_fork,
    libc::SYS_vfork, libc::SYS_getpgrp, libc::SYS_arch_prctl, libc::SYS_time, libc::SYS_alarm, libc::SYS_pause,
    libc::SYS_signalfd, libc::SYS_eventfd, libc::SYS_epoll_create, libc::SYS_epoll_wait, libc::SYS_poll,
    libc::SYS_select,
];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_OF_OLD: &[c_long] = &[];

/// Known, and refused whatever the arguments.
#[rustfmt::skip]
const REFUSED: &[c_long] = &[
    // Other processes' memory and descriptors.
    libc::SYS_ptrace, libc::SYS_process_vm_readv, libc::SYS_process_vm_writev, libc::SYS_process_madvise,
    libc::SYS_process_mrelease, libc::SYS_pidfd_getfd, libc::SYS_kcmp,
    // Mounts, roots, namespaces.
    libc::SYS_mount, libc::SYS_umount2, libc::SYS_pivot_root, libc::SYS_chroot, libc::SYS_unshare, libc::SYS_setns,
    libc::SYS_fsopen, libc::SYS_fsconfig, libc::SYS_fsmount, libc::SYS_fspick, libc::SYS_open_tree,
    libc::SYS_move_mount, libc::SYS_mount_setattr, libc::SYS_name_to_handle_at, libc::SYS_open_by_handle_at,
    libc::SYS_quotactl, libc::SYS_quotactl_fd, libc::SYS_fanotify_init, libc::SYS_fanotify_mark,
    // The kernel itself.
    libc::SYS_bpf, libc::SYS_perf_event_open, libc::SYS_userfaultfd, libc::SYS_init_module, libc::SYS_finit_module,
    libc::SYS_delete_module, libc::SYS_kexec_load, libc::SYS_reboot, libc::SYS_syslog, libc::SYS_acct,
    libc::SYS_swapon, libc::SYS_swapoff, libc::SYS_lookup_dcookie,
    // Keys, which no namespace divides.
    libc::SYS_add_key, libc::SYS_request_key, libc::SYS_keyctl,
    // The machine's clock and names.
    libc::SYS_settimeofday, libc::SYS_clock_settime, libc::SYS_adjtimex, libc::SYS_clock_adjtime,
    libc::SYS_sethostname, libc::SYS_setdomainname, libc::SYS_setgroups, libc::SYS_vhangup,
    // Memory that no limit counts, and where it lies.
    libc::SYS_memfd_create, libc::SYS_memfd_secret, libc::SYS_shmget, libc::SYS_shmat, libc::SYS_shmctl,
    libc::SYS_semget, libc::SYS_semop, libc::SYS_semctl, libc::SYS_msgget, libc::SYS_msgsnd, libc::SYS_msgrcv,
    libc::SYS_mq_open, libc::SYS_mbind, libc::SYS_set_mempolicy, libc::SYS_move_pages, libc::SYS_migrate_pages,
    // Old asynchronous input and output, of which nothing here makes use.
    libc::SYS_io_setup, libc::SYS_ioprio_set,
];

/// Refused, where they exist.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const REFUSED_OF_OLD: &[c_long] = &[
    libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_modify_ldt, libc::SYS_uselib, libc::SYS_ustat, libc::SYS_sysfs,
    libc::SYS__sysctl, libc::SYS_kexec_file_load,
];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_OF_OLD: &[c_long] = &[];

/// `fchmodat2(2)`, which glibc 2.39 calls for `fchmodat`; it has this number on every architecture.
const FCHMODAT2: c_long = 452;

/// Flags of `clone(2)` that make namespaces.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

/// Calls that change how a process runs, which their first argument names.
const OF_PROCESSES: [c_long; 5] = [
    libc::SYS_prlimit64,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setaffinity,
];

/// What changes a file, or tells of changes, and is not Landlock's to refuse. Without a root of our own, and as a user whom
/// files of the host belong to, nothing else would.
#[rustfmt::skip]
const OF_FILES: &[c_long] = &[
    libc::SYS_fchmod, libc::SYS_fchmodat, FCHMODAT2, libc::SYS_fchown, libc::SYS_fchownat, libc::SYS_utimensat,
    libc::SYS_setxattr, libc::SYS_lsetxattr, libc::SYS_fsetxattr, libc::SYS_removexattr, libc::SYS_lremovexattr,
    libc::SYS_fremovexattr, libc::SYS_inotify_add_watch,
];
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const OF_FILES_OF_OLD: &[c_long] = &[
    libc::SYS_chmod, libc::SYS_chown, libc::SYS_lchown, libc::SYS_utime, libc::SYS_utimes, libc::SYS_futimesat,
];
#[cfg(not(target_arch = "x86_64"))]
const OF_FILES_OF_OLD: &[c_long] = &[];

/// Set-user-id and set-group-id: a file with these in a folder of the host would lend the sandbox's user to whoever
/// else is on the machine.
const LENDING_BITS: [u32; 2] = [libc::S_ISUID, libc::S_ISGID];

/// The filters, as programs for the kernel.
pub(super) struct Filters {
    /// In the order in which they are installed.
    pub(super) programs: [BpfProgram; 2],
}

impl Filters {
    /// The filters of a sandbox of `strength`. `owns_files` is whether files of the host belong to the user that the code
    /// is, who has no other to be. Made once: copies of a process that has them have them, too.
    pub(super) fn of(strength: Strength, owns_files: bool) -> Result<&'static Self, Failure> {
        static MADE: [OnceLock<Filters>; 3] = [const { OnceLock::new() }; 3];
        let made = match (strength, owns_files) {
            (Strength::Full, _) => &MADE[0],
            (Strength::Weak, false) => &MADE[1],
            (Strength::Weak, true) => &MADE[2],
        };
        match made.get() {
            Some(filters) => Ok(filters),
            None => {
                let filters = Self::new(strength, owns_files)?;
                Ok(made.get_or_init(|| filters))
            }
        }
    }

    fn new(strength: Strength, owns_files: bool) -> Result<Self, Failure> {
        let allowed = allow_list::program(allowed(), libc::ENOSYS as u16)
            .ok_or_else(|| Failure::plain(Step::Seccomp, "the list of allowed calls has too many gaps"))?;
        let refused = refused(strength, owns_files).and_then(|rules| {
            let eperm = SeccompAction::Errno(libc::EPERM as u32);
            SeccompFilter::new(rules, SeccompAction::Allow, eperm, ARCHITECTURE)?.try_into()
        });
        let refused = refused.map_err(|error| Failure::plain(Step::Seccomp, error.to_string()))?;
        // The kernel takes the stricter answer, and of two errors that of the filter installed last.
        Ok(Self { programs: [allowed, refused] })
    }

    /// Holds this process, and all that it will start, to the filters.
    pub(super) fn install(&self) -> Result<(), Failure> {
        for program in &self.programs {
            seccompiler::apply_filter(program).map_err(|error| match error {
                seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error) => {
                    Failure::new(Step::Seccomp, "installing a filter", &error)
                }
                other => Failure::plain(Step::Seccomp, other.to_string()),
            })?;
        }
        Ok(())
    }
}

/// The calls that the first filter allows.
pub(super) fn allowed() -> impl Iterator<Item = c_long> {
    ALLOWED.iter().chain(ALLOWED_OF_OLD).copied()
}

/// The second filter's rules: every one of them ends in `EPERM`.
fn refused(strength: Strength, owns_files: bool) -> Result<BTreeMap<c_long, Vec<SeccompRule>>, BackendError> {
    let mut rules: BTreeMap<c_long, Vec<SeccompRule>> =
        REFUSED.iter().chain(REFUSED_OF_OLD).map(|call| (*call, Vec::new())).collect();
    let has = |argument, bits: u64| condition(argument, SeccompCmpOp::MaskedEq(bits), bits);
    let is_not = |argument, value: u64| condition(argument, SeccompCmpOp::Ne, value);
    let is = |argument, value: u64| condition(argument, SeccompCmpOp::Eq, value);

    for flag in NAMESPACES {
        rules.entry(libc::SYS_clone).or_default().push(all([has(0, flag as u64)])?);
    }
    // Typing into the terminal of whoever started the server; TIOCLINUX pastes into a console.
    for request in [libc::TIOCSTI, libc::TIOCLINUX] {
        rules.entry(libc::SYS_ioctl).or_default().push(all([is(1, request)])?);
    }
    // Asking, the default, and addresses that are not random (debuggers, some benchmarks).
    let harmless = [0xffff_ffff, 0, libc::ADDR_NO_RANDOMIZE as u64];
    rules.entry(libc::SYS_personality).or_default().push(all(harmless.map(|value| is_not(0, value)))?);

    // The sandbox's first process is of the same user, and must neither starve nor be kept from its descriptors. Without
    // namespaces that holds for all processes of the user: a limit that is set for one can end it. `0` is oneself.
    let others = |argument| match strength {
        Strength::Full => is(argument, 1),
        Strength::Weak => is_not(argument, 0),
    };
    for call in OF_PROCESSES {
        let rule = match (strength, call) {
            // ZeroMQ has it say of each thread, by its number, that it is an ordinary one, and aborts otherwise.
            (Strength::Weak, libc::SYS_sched_setscheduler) => all([others(0), is_not(1, libc::SCHED_OTHER as u64)])?,
            _ => all([others(0)])?,
        };
        rules.entry(call).or_default().push(rule);
    }
    let priority = rules.entry(libc::SYS_setpriority).or_default();
    priority.push(all([is(0, libc::PRIO_PROCESS.into()), others(1)])?);
    priority.push(all([is_not(0, libc::PRIO_PROCESS.into())])?);

    // Memory that is shared and has no file: once it is unmapped, nothing that we count tells of its pages. `/dev/shm` is
    // for that, which has a size.
    let nameless = (libc::MAP_SHARED | libc::MAP_ANONYMOUS) as u64;
    rules.entry(libc::SYS_mmap).or_default().push(all([has(3, nameless)])?);

    let unix = libc::AF_UNIX as u64;
    let kind = |argument, kind: i32| condition(argument, SeccompCmpOp::MaskedEq(0xf), kind as u64);
    let socket = rules.entry(libc::SYS_socket).or_default();
    match strength {
        Strength::Full => {
            let families = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
            socket.push(all(families.map(|family| is_not(0, family as u64)))?);
            for family in [libc::AF_INET, libc::AF_INET6] {
                socket.push(all([is(0, family as u64), kind(1, libc::SOCK_RAW)])?);
            }
            // Routes (0) are asked for by glibc; other protocols of netlink are wide doors into the kernel.
            socket.push(all([is(0, libc::AF_NETLINK as u64), is_not(2, 0)])?);
        }
        // The network is the host's here, and so are the names of sockets: nothing may be connected to, nor sent to
        // by address. Being connected to is all that a kernel needs.
        Strength::Weak => {
            socket.push(all([is_not(0, unix)])?);
            for call in [libc::SYS_socket, libc::SYS_socketpair] {
                for sort in [libc::SOCK_DGRAM, libc::SOCK_RAW] {
                    rules.entry(call).or_default().push(all([kind(1, sort)])?);
                }
            }
            rules.insert(libc::SYS_connect, Vec::new());
        }
    }
    rules.entry(libc::SYS_socketpair).or_default().push(all([is_not(0, unix)])?);

    for bit in LENDING_BITS.map(u64::from) {
        rules.entry(libc::SYS_fchmod).or_default().push(all([has(1, bit)])?);
        rules.entry(libc::SYS_fchmodat).or_default().push(all([has(2, bit)])?);
        rules.entry(FCHMODAT2).or_default().push(all([has(2, bit)])?);
        rules.entry(libc::SYS_mknodat).or_default().push(all([has(2, bit)])?);
        // O_TMPFILE contains O_DIRECTORY; the bit that is its own is what counts.
        for creating in [libc::O_CREAT as u64, (libc::O_TMPFILE & !libc::O_DIRECTORY) as u64] {
            rules.entry(libc::SYS_openat).or_default().push(all([has(2, creating), has(3, bit)])?);
            #[cfg(target_arch = "x86_64")]
            rules.entry(libc::SYS_open).or_default().push(all([has(1, creating), has(2, bit)])?);
        }
        #[cfg(target_arch = "x86_64")]
        for call in [libc::SYS_chmod, libc::SYS_creat, libc::SYS_mknod] {
            rules.entry(call).or_default().push(all([has(1, bit)])?);
        }
    }
    if strength == Strength::Weak && owns_files {
        // In place of the rules that they have: an empty list holds whatever the arguments.
        rules.extend(OF_FILES.iter().chain(OF_FILES_OF_OLD).map(|call| (*call, Vec::new())));
    }
    Ok(rules)
}

fn condition(argument: u8, operation: SeccompCmpOp, value: u64) -> Result<SeccompCondition, BackendError> {
    // The kernel looks at 32 bits of these arguments, and so do we: the rest could be filled to slip past.
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operation, value & 0xffff_ffff)
}

/// A rule that holds if all of its conditions do.
fn all<const N: usize>(conditions: [Result<SeccompCondition, BackendError>; N]) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(conditions.into_iter().collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filters_fit_the_kernels_bound() {
        for (strength, owns_files) in [(Strength::Full, false), (Strength::Weak, false), (Strength::Weak, true)] {
            for program in Filters::new(strength, owns_files).unwrap().programs {
                // BPF_MAXINSNS
                assert!(program.len() < 4096, "{} instructions", program.len());
            }
        }
    }

    #[test]
    fn nothing_is_both_allowed_and_refused_outright() {
        let both = |call: &&c_long| ALLOWED.contains(call) || ALLOWED_OF_OLD.contains(call);
        assert_eq!(REFUSED.iter().chain(REFUSED_OF_OLD).find(both), None);
    }
}

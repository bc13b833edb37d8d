//! The system calls that the code may make: seccomp filters.
//!
//! The first filter allows the calls of a list. All others, including those of future kernels, fail with `ENOSYS`, upon
//! which libraries fall back to older calls. That includes `clone3` and `io_uring`, whose arguments a filter cannot
//! read. The second filter fails known but forbidden calls with `EPERM`, the usual error for a missing permission. The
//! third ignores calls that succeed without an effect, and the fourth fails `sendfile` with the error upon which its
//! callers copy. A call of another architecture kills the process (`int 0x80`), and the numbers of x32 are not in the
//! list.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

use crate::architecture::{
    ALLOWED_LEGACY, FILE_METADATA_LEGACY, OPEN_LEGACY, REFUSED_LEGACY, SET_MODE_LEGACY, TARGET_ARCH,
};
use crate::bpf;
use crate::error::{Step, StepFailure};
use crate::policy::IsolationLevel;

/// The calls that interpreters, scientific libraries and shells make.
#[rustfmt::skip]
const ALLOWED: &[c_long] = &[
    // Files by descriptor. `splice`, `tee` and `vmsplice` are not allowed: they put whole pages into pipes and sockets,
    // of which only the used bytes are counted.
    libc::SYS_read, libc::SYS_write, libc::SYS_readv, libc::SYS_writev, libc::SYS_pread64, libc::SYS_pwrite64,
    libc::SYS_preadv, libc::SYS_pwritev, libc::SYS_preadv2, libc::SYS_pwritev2, libc::SYS_close,
    libc::SYS_close_range, libc::SYS_lseek, libc::SYS_fstat, libc::SYS_fstatfs, libc::SYS_fsync,
    libc::SYS_fdatasync, libc::SYS_sync_file_range, libc::SYS_ftruncate, libc::SYS_fallocate, libc::SYS_fadvise64,
    libc::SYS_readahead, libc::SYS_flock, libc::SYS_fcntl, libc::SYS_ioctl, libc::SYS_dup, libc::SYS_dup3,
    libc::SYS_pipe2, libc::SYS_sendfile, libc::SYS_copy_file_range, libc::SYS_getdents64, libc::SYS_fchmod, libc::SYS_fchown, libc::SYS_fchdir,
    libc::SYS_fgetxattr, libc::SYS_fsetxattr, libc::SYS_flistxattr, libc::SYS_fremovexattr,
    // Files by path. `openat2` is not allowed: it takes the mode of a new file by pointer, where a filter cannot read
    // it.
    libc::SYS_openat, libc::SYS_statx, libc::SYS_newfstatat, libc::SYS_faccessat, libc::SYS_faccessat2,
    libc::SYS_readlinkat, libc::SYS_mkdirat, libc::SYS_unlinkat, libc::SYS_renameat, libc::SYS_renameat2,
    libc::SYS_linkat, libc::SYS_symlinkat, libc::SYS_fchmodat, FCHMODAT2, libc::SYS_fchownat, libc::SYS_utimensat,
    libc::SYS_truncate, libc::SYS_statfs, libc::SYS_chdir, libc::SYS_getcwd, libc::SYS_umask, libc::SYS_mknodat,
    libc::SYS_getxattr, libc::SYS_setxattr, libc::SYS_listxattr, libc::SYS_removexattr, libc::SYS_lgetxattr,
    libc::SYS_lsetxattr, libc::SYS_llistxattr, libc::SYS_lremovexattr, libc::SYS_sync, libc::SYS_syncfs,
    libc::SYS_inotify_init1, libc::SYS_inotify_add_watch, libc::SYS_inotify_rm_watch,
    // Memory. `memfd_create` is not allowed: no limit counts its pages.
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
    // User and group IDs, capabilities, system information.
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
    // Polling.
    libc::SYS_ppoll, libc::SYS_pselect6, libc::SYS_epoll_create1, libc::SYS_epoll_ctl, libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2, libc::SYS_eventfd2,
    // Sockets. The second filter restricts their families and types.
    libc::SYS_socket, libc::SYS_socketpair, libc::SYS_bind, libc::SYS_listen, libc::SYS_accept, libc::SYS_accept4,
    libc::SYS_connect, libc::SYS_getsockname, libc::SYS_getpeername, libc::SYS_sendto, libc::SYS_recvfrom,
    libc::SYS_sendmsg, libc::SYS_recvmsg, libc::SYS_sendmmsg, libc::SYS_recvmmsg, libc::SYS_setsockopt,
    libc::SYS_getsockopt, libc::SYS_shutdown, libc::SYS_getrandom,
];

/// Calls that are refused with any arguments.
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
    // Keys: keyrings are not namespaced.
    libc::SYS_add_key, libc::SYS_request_key, libc::SYS_keyctl,
    // The machine's clock and names.
    libc::SYS_settimeofday, libc::SYS_clock_settime, libc::SYS_adjtimex, libc::SYS_clock_adjtime,
    libc::SYS_sethostname, libc::SYS_setdomainname, libc::SYS_setgroups, libc::SYS_vhangup,
    // Memory that no limit counts, and its placement on NUMA nodes.
    libc::SYS_memfd_create, libc::SYS_memfd_secret, libc::SYS_shmget, libc::SYS_shmat, libc::SYS_shmctl,
    libc::SYS_semget, libc::SYS_semop, libc::SYS_semctl, libc::SYS_msgget, libc::SYS_msgsnd, libc::SYS_msgrcv,
    libc::SYS_mq_open, libc::SYS_mbind, libc::SYS_set_mempolicy, libc::SYS_move_pages, libc::SYS_migrate_pages,
    // Legacy asynchronous I/O, which no supported library uses.
    libc::SYS_io_setup, libc::SYS_ioprio_set,
];

/// `fchmodat2(2)`, which glibc 2.39 calls for `fchmodat`. It has the same number on every architecture.
const FCHMODAT2: c_long = 452;

/// Flags of `clone(2)` that create namespaces.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

/// Calls that change the limits or the scheduling of a process, given by their first argument.
const PROCESS_SCHEDULING: [c_long; 5] = [
    libc::SYS_prlimit64,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setaffinity,
];

/// Calls that change a file's metadata, or report changes, which Landlock does not restrict. Nothing else restricts
/// them for code that sees the host's root, as a user that owns files of the host.
#[rustfmt::skip]
const FILE_METADATA: &[c_long] = &[
    libc::SYS_fchmod, libc::SYS_fchmodat, FCHMODAT2, libc::SYS_fchown, libc::SYS_fchownat, libc::SYS_utimensat,
    libc::SYS_setxattr, libc::SYS_lsetxattr, libc::SYS_fsetxattr, libc::SYS_removexattr, libc::SYS_lremovexattr,
    libc::SYS_fremovexattr, libc::SYS_inotify_add_watch,
];

/// The set-user-ID and set-group-ID bits: an executable with these in a folder of the host would let other users of the
/// machine act as the sandbox's user.
const SET_ID_BITS: [u32; 2] = [libc::S_ISUID, libc::S_ISGID];

/// Options of sockets (`SOL_SOCKET`) that enlarge buffers. Setting them has no effect, as above the system's limits.
const BUFFER_SIZES: [i32; 4] = [libc::SO_SNDBUF, libc::SO_RCVBUF, libc::SO_SNDBUFFORCE, libc::SO_RCVBUFFORCE];

/// Types of internet sockets that are refused: raw ones, and protocols that Python does not use.
const REFUSED_SOCKET_TYPES: [i32; 5] =
    [libc::SOCK_RAW, libc::SOCK_RDM, libc::SOCK_SEQPACKET, libc::SOCK_DCCP, SOCK_PACKET];

/// `SOCK_PACKET` of `linux/net.h`.
const SOCK_PACKET: i32 = 10;

/// The filters, as BPF programs.
pub(crate) struct Filters {
    /// The programs, in the order in which they are installed.
    pub(crate) programs: [BpfProgram; 4],
}

impl Filters {
    /// Returns the filters of a sandbox of `level`. `owns_files` means that the code's user owns files of the host. The
    /// filters are encoded once per process, and forks inherit them.
    pub(crate) fn get(level: IsolationLevel, owns_files: bool) -> Result<&'static Self, StepFailure> {
        static ENCODED: [OnceLock<Filters>; 3] = [const { OnceLock::new() }; 3];
        let encoded = match (level, owns_files) {
            (IsolationLevel::Full, _) => &ENCODED[0],
            (IsolationLevel::Weak, false) => &ENCODED[1],
            (IsolationLevel::Weak, true) => &ENCODED[2],
        };
        match encoded.get() {
            Some(filters) => Ok(filters),
            None => {
                let filters = Self::new(level, owns_files)?;
                Ok(encoded.get_or_init(|| filters))
            }
        }
    }

    fn new(level: IsolationLevel, owns_files: bool) -> Result<Self, StepFailure> {
        let allowed = bpf::encode_allow_list(allowed_calls(), libc::ENOSYS as u16)
            .ok_or_else(|| StepFailure::from_reason(Step::Seccomp, "the list of allowed calls has too many gaps"))?;
        let encode = |rules: Result<Rules, BackendError>, errno: i32| {
            let action = SeccompAction::Errno(errno as u32);
            let encoded = rules
                .and_then(|rules| SeccompFilter::new(rules, SeccompAction::Allow, action, TARGET_ARCH)?.try_into());
            encoded.map_err(|error| StepFailure::from_reason(Step::Seccomp, error.to_string()))
        };
        let refused = encode(refusal_rules(level, owns_files), libc::EPERM)?;
        let ignored = encode(ignored_rules(), 0)?;
        // It takes pages as `splice` does. After this error, which old kernels gave for files, callers read and write.
        let replaced = encode(Ok(BTreeMap::from([(libc::SYS_sendfile, Vec::new())])), libc::ENOTSOCK)?;
        // The kernel applies the stricter result, and of two errors that of the filter installed last.
        Ok(Self { programs: [allowed, refused, ignored, replaced] })
    }

    /// Installs the filters in this process. Its children inherit them.
    pub(crate) fn install(&self) -> Result<(), StepFailure> {
        for program in &self.programs {
            seccompiler::apply_filter(program).map_err(|error| match error {
                seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error) => {
                    StepFailure::new(Step::Seccomp, "installing a filter", &error)
                }
                other => StepFailure::from_reason(Step::Seccomp, other.to_string()),
            })?;
        }
        Ok(())
    }
}

/// Returns the calls that the first filter allows.
pub(crate) fn allowed_calls() -> impl Iterator<Item = c_long> {
    ALLOWED.iter().chain(ALLOWED_LEGACY).copied()
}

/// The rules of a filter, by system call. An empty list matches any arguments.
type Rules = BTreeMap<c_long, Vec<SeccompRule>>;

/// Returns the rules of the third filter. A call that matches one of them succeeds without an effect.
fn ignored_rules() -> Result<Rules, BackendError> {
    let is = |argument, value: u64| condition(argument, SeccompCmpOp::Eq, value);
    let rule = |option: i32| all([is(1, libc::SOL_SOCKET as u64), is(2, option as u64)]);
    Ok(BTreeMap::from([(libc::SYS_setsockopt, BUFFER_SIZES.map(rule).into_iter().collect::<Result<_, _>>()?)]))
}

/// Returns the rules of the second filter. A call that matches one of them fails with `EPERM`.
fn refusal_rules(level: IsolationLevel, owns_files: bool) -> Result<Rules, BackendError> {
    let mut rules: Rules = REFUSED.iter().chain(REFUSED_LEGACY).map(|call| (*call, Vec::new())).collect();
    let has = |argument, bits: u64| condition(argument, SeccompCmpOp::MaskedEq(bits), bits);
    let is_not = |argument, value: u64| condition(argument, SeccompCmpOp::Ne, value);
    let is = |argument, value: u64| condition(argument, SeccompCmpOp::Eq, value);

    for flag in NAMESPACES {
        rules.entry(libc::SYS_clone).or_default().push(all([has(0, flag as u64)])?);
    }
    // TIOCSTI types into the terminal that the server was started from; TIOCLINUX pastes into a console.
    for request in [libc::TIOCSTI, libc::TIOCLINUX] {
        rules.entry(libc::SYS_ioctl).or_default().push(all([is(1, request)])?);
    }
    // Reading the personality, and the default.
    let harmless = [0xffff_ffff, 0];
    rules.entry(libc::SYS_personality).or_default().push(all(harmless.map(|value| is_not(0, value)))?);

    // The memory limit counts pipes of the default size.
    rules.entry(libc::SYS_fcntl).or_default().push(all([is(1, libc::F_SETPIPE_SZ as u64)])?);

    // The sandbox's first process has the same user. The code must not be able to starve it, or to set its limit on
    // descriptors. Without namespaces the same goes for all processes of the user: setting a limit can end a process.
    // The process ID `0` is the caller.
    let others = |argument| match level {
        IsolationLevel::Full => is(argument, 1),
        IsolationLevel::Weak => is_not(argument, 0),
    };
    for call in PROCESS_SCHEDULING {
        let rule = match (level, call) {
            // ZeroMQ sets SCHED_OTHER for each of its threads, by thread ID, and aborts if that fails.
            (IsolationLevel::Weak, libc::SYS_sched_setscheduler) => {
                all([others(0), is_not(1, libc::SCHED_OTHER as u64)])?
            }
            _ => all([others(0)])?,
        };
        rules.entry(call).or_default().push(rule);
    }
    let priority = rules.entry(libc::SYS_setpriority).or_default();
    priority.push(all([is(0, libc::PRIO_PROCESS.into()), others(1)])?);
    priority.push(all([is_not(0, libc::PRIO_PROCESS.into())])?);

    // Shared memory without a file: once it is unmapped, no counter of the sandbox includes its pages. Code can share
    // memory in `/dev/shm`, whose size is limited.
    let shared_anonymous = (libc::MAP_SHARED | libc::MAP_ANONYMOUS) as u64;
    rules.entry(libc::SYS_mmap).or_default().push(all([has(3, shared_anonymous)])?);

    let unix = libc::AF_UNIX as u64;
    let kind = |argument, kind: i32| condition(argument, SeccompCmpOp::MaskedEq(0xf), kind as u64);
    let socket = rules.entry(libc::SYS_socket).or_default();
    match level {
        IsolationLevel::Full => {
            let families = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
            socket.push(all(families.map(|family| is_not(0, family as u64)))?);
            for family in [libc::AF_INET, libc::AF_INET6].map(|family| family as u64) {
                for sort in REFUSED_SOCKET_TYPES {
                    socket.push(all([is(0, family), kind(1, sort)])?);
                }
                // The memory of other protocols' sockets (MPTCP) is not measured.
                let known = [0, libc::IPPROTO_TCP as u64, libc::IPPROTO_UDP as u64];
                let [default, tcp, udp] = known.map(|protocol| is_not(2, protocol));
                socket.push(all([is(0, family), default, tcp, udp])?);
            }
            // glibc reads routes (protocol 0); the other protocols of netlink expose much of the kernel.
            socket.push(all([is(0, libc::AF_NETLINK as u64), is_not(2, 0)])?);
        }
        // The network and the names of Unix sockets are the host's here: the code may neither connect to an address nor
        // send to one. A Jupyter kernel only accepts connections.
        IsolationLevel::Weak => {
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

    for bit in SET_ID_BITS.map(u64::from) {
        rules.entry(libc::SYS_fchmod).or_default().push(all([has(1, bit)])?);
        rules.entry(libc::SYS_fchmodat).or_default().push(all([has(2, bit)])?);
        rules.entry(FCHMODAT2).or_default().push(all([has(2, bit)])?);
        rules.entry(libc::SYS_mknodat).or_default().push(all([has(2, bit)])?);
        // O_TMPFILE contains O_DIRECTORY; the bit that is its own is what counts.
        for creating in [libc::O_CREAT as u64, (libc::O_TMPFILE & !libc::O_DIRECTORY) as u64] {
            rules.entry(libc::SYS_openat).or_default().push(all([has(2, creating), has(3, bit)])?);
            for call in OPEN_LEGACY {
                rules.entry(*call).or_default().push(all([has(1, creating), has(2, bit)])?);
            }
        }
        for call in SET_MODE_LEGACY {
            rules.entry(*call).or_default().push(all([has(1, bit)])?);
        }
    }
    if level == IsolationLevel::Weak && owns_files {
        // An empty list matches any arguments. It replaces the rules of these calls.
        rules.extend(FILE_METADATA.iter().chain(FILE_METADATA_LEGACY).map(|call| (*call, Vec::new())));
    }
    Ok(rules)
}

fn condition(argument: u8, operation: SeccompCmpOp, value: u64) -> Result<SeccompCondition, BackendError> {
    // The kernel reads only 32 bits of these arguments. Comparing more would let a call with other high bits pass.
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operation, value & 0xffff_ffff)
}

/// Creates a rule that matches if all conditions do.
fn all<const N: usize>(conditions: [Result<SeccompCondition, BackendError>; N]) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(conditions.into_iter().collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_fit_the_limit_of_the_kernel() {
        for (level, owns_files) in
            [(IsolationLevel::Full, false), (IsolationLevel::Weak, false), (IsolationLevel::Weak, true)]
        {
            for program in Filters::new(level, owns_files).unwrap().programs {
                // BPF_MAXINSNS
                assert!(program.len() < 4096, "{} instructions", program.len());
            }
        }
    }

    #[test]
    fn no_call_is_both_allowed_and_refused() {
        let both = |call: &&c_long| ALLOWED.contains(call) || ALLOWED_LEGACY.contains(call);
        assert_eq!(REFUSED.iter().chain(REFUSED_LEGACY).find(both), None);
    }
}

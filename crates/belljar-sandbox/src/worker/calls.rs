//! The system calls of a sealed worker: seccomp filters.
//!
//! One filter allows the calls of a list; all others fail with `EPERM`. Another refuses allowed calls by their
//! arguments. A call of another architecture kills the process.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

use crate::architecture::TARGET_ARCH;
use crate::bpf;
use crate::error::{Step, StepFailure};

/// The calls that a virtual machine makes while it runs code.
#[rustfmt::skip]
const ALLOWED: &[c_long] = &[
    // The channel to the host. `sendmsg` and `recvmsg`, which pass descriptors, are not allowed.
    libc::SYS_read, libc::SYS_write, libc::SYS_recvfrom, libc::SYS_sendto, libc::SYS_close,
    // Memory. The other filter refuses memory that can be executed or that no limit counts.
    libc::SYS_mmap, libc::SYS_munmap, libc::SYS_mprotect, libc::SYS_mremap, libc::SYS_madvise, libc::SYS_brk,
    // The pages that were written to, from a descriptor that was opened before.
    libc::SYS_ioctl, libc::SYS_pread64,
    // Threads. They were started before, but may not have run yet: glibc then ends a thread that cannot be registered.
    libc::SYS_set_robust_list, libc::SYS_rseq, libc::SYS_futex, libc::SYS_sched_yield, libc::SYS_gettid, libc::SYS_getpid, libc::SYS_exit, libc::SYS_exit_group,
    // Faults of guests arrive as signals, which only the kernel sends.
    libc::SYS_rt_sigaction, libc::SYS_rt_sigprocmask, libc::SYS_rt_sigreturn, libc::SYS_sigaltstack,
    // Time and random numbers.
    libc::SYS_clock_gettime, libc::SYS_clock_nanosleep, libc::SYS_getrandom, libc::SYS_restart_syscall,
];

/// `PAGEMAP_SCAN` of the kernel's `linux/fs.h`: `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: u64 = 0xc060_6610;

/// Returns the numbers of the system calls that a sealed worker may make.
pub fn allowed_calls() -> &'static [c_long] {
    ALLOWED
}

/// Returns the filters in the order in which they are installed: after the last, no other can be. They are encoded once
/// per process and inherited by forks.
pub(super) fn filters() -> Result<&'static [BpfProgram; 2], StepFailure> {
    static ENCODED: OnceLock<[BpfProgram; 2]> = OnceLock::new();
    if let Some(encoded) = ENCODED.get() {
        return Ok(encoded);
    }
    let failed = |reason: String| StepFailure::from_reason(Step::Seccomp, reason);
    let allowed = bpf::encode_allow_list(ALLOWED.iter().copied(), libc::EPERM as u16)
        .ok_or_else(|| failed("the list of a worker's calls has too many gaps".into()))?;
    let refused = refusals().map_err(|error| failed(error.to_string()))?;
    Ok(ENCODED.get_or_init(|| [refused, allowed]))
}

/// Encodes the refusals by arguments.
fn refusals() -> Result<BpfProgram, BackendError> {
    use SeccompCmpArgLen::{Dword, Qword};
    use SeccompCmpOp::{MaskedEq, Ne};
    let one = |argument, length, operation, value: u64| {
        SeccompRule::new(vec![SeccompCondition::new(argument, length, operation, value)?])
    };
    let executable = libc::PROT_EXEC as u64;
    let shared_anonymous = (libc::MAP_SHARED | libc::MAP_ANONYMOUS) as u64;
    let growing = libc::MAP_GROWSDOWN as u64;
    let rules = BTreeMap::from([
        (
            libc::SYS_mmap,
            vec![
                one(2, Dword, MaskedEq(executable), executable)?,
                // No limit counts their pages: shared memory belongs to no process, and what grows like a stack is not
                // data to the kernel.
                one(3, Dword, MaskedEq(shared_anonymous), shared_anonymous)?,
                one(3, Dword, MaskedEq(growing), growing)?,
            ],
        ),
        (libc::SYS_mprotect, vec![one(2, Dword, MaskedEq(executable), executable)?]),
        (libc::SYS_ioctl, vec![one(1, Dword, Ne, PAGEMAP_SCAN)?]),
        // The sockets of the channel are connected, and need no address.
        (libc::SYS_sendto, vec![one(4, Qword, Ne, 0)?]),
    ]);
    SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(libc::EPERM as u32), TARGET_ARCH)?.try_into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn worker_has_few_system_calls() {
        assert!(ALLOWED.len() <= 45, "{}", ALLOWED.len());
        let different: BTreeSet<_> = ALLOWED.iter().collect();
        assert_eq!(different.len(), ALLOWED.len());
        for program in filters().unwrap() {
            // BPF_MAXINSNS
            assert!(program.len() < 4096, "{} instructions", program.len());
        }
    }

    #[test]
    fn number_of_system_calls_is_documented() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/security.md");
        let page = std::fs::read_to_string(page).unwrap();
        let row = page.lines().find(|line| line.starts_with("| seccomp, on all threads |")).unwrap();
        assert!(row.contains(&format!(" {} system calls", ALLOWED.len())), "{}: {row}", ALLOWED.len());
    }

    #[test]
    fn no_call_that_reaches_outside_is_allowed() {
        let outside = [
            libc::SYS_openat,
            libc::SYS_socket,
            libc::SYS_connect,
            libc::SYS_sendmsg,
            libc::SYS_recvmsg,
            libc::SYS_clone,
            libc::SYS_clone3,
            libc::SYS_execve,
            libc::SYS_kill,
            libc::SYS_tgkill,
            libc::SYS_ptrace,
            libc::SYS_process_vm_readv,
            libc::SYS_pidfd_getfd,
            libc::SYS_memfd_create,
            libc::SYS_pkey_mprotect,
            libc::SYS_io_uring_setup,
            libc::SYS_bpf,
            libc::SYS_prctl,
            libc::SYS_unshare,
        ];
        assert_eq!(outside.iter().find(|call| ALLOWED.contains(call)), None);
    }
}

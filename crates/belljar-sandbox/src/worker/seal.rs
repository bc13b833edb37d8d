//! The last steps of a worker: its resource limits, and the filters of all its threads.

use crate::error::{Step, StepFailure};
use crate::syscalls;

use super::calls;

/// The most address space of a worker, in bytes. Virtual machines reserve gigabytes for each memory.
const MAX_ADDRESS_BYTES: u64 = 128 << 30;
/// The most bytes of the stack of the first thread, which the kernel does not count as private memory. Other threads
/// have stacks that it does count.
const MAX_STACK_BYTES: u64 = 8 << 20;

/// The resource limits of a worker.
#[derive(Debug, Clone, Copy)]
pub struct SealLimits {
    /// The most bytes of private memory: heaps, stacks and the memories of virtual machines.
    ///
    /// The kernel checks it when memory is mapped or made writable, and leaves gaps: a process whose address space is
    /// full can make reserved memory writable, and `mremap` enlarges the stack of the first thread. The host therefore
    /// also measures [`WorkerProcess::memory_bytes`](super::WorkerProcess::memory_bytes).
    pub memory_bytes: u64,
}

/// Sets the resource limits and the system call filters of all threads of this process, a worker. No thread can be
/// started afterwards.
///
/// # Errors
///
/// Fails with the step that failed. The process must then end.
pub fn seal(limits: SealLimits) -> Result<(), StepFailure> {
    let all = [
        (libc::RLIMIT_AS, MAX_ADDRESS_BYTES),
        (libc::RLIMIT_DATA, limits.memory_bytes),
        (libc::RLIMIT_STACK, MAX_STACK_BYTES),
        // No descriptor, process, file or lock can be created.
        (libc::RLIMIT_NOFILE, 0),
        (libc::RLIMIT_NPROC, 0),
        (libc::RLIMIT_FSIZE, 0),
        (libc::RLIMIT_CORE, 0),
        (libc::RLIMIT_MEMLOCK, 0),
        (libc::RLIMIT_SIGPENDING, 0),
        (libc::RLIMIT_MSGQUEUE, 0),
        (libc::RLIMIT_NICE, 0),
        (libc::RLIMIT_RTPRIO, 0),
    ];
    for (resource, limit) in all {
        let limit = limit.min(syscalls::hard_limit(resource).unwrap_or(limit));
        syscalls::set_limit(resource, limit)
            .map_err(|error| StepFailure::new(Step::Limits, format!("setrlimit({resource})"), &error))?;
    }
    for program in calls::filters()? {
        seccompiler::apply_filter_all_threads(program).map_err(|error| match error {
            seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error) => {
                StepFailure::new(Step::Seccomp, "installing a filter", &error)
            }
            other => StepFailure::from_reason(Step::Seccomp, other.to_string()),
        })?;
    }
    Ok(())
}

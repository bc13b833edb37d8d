//! Conversion of the result of a system call to the result of its import.

use crate::Errno;
use crate::guest_memory::GuestMemory;
use crate::host::{Call, Host, split};
use crate::termination::Termination;

/// A failure of a system call.
pub(super) enum SyscallError {
    /// The guest receives an error number.
    Errno(Errno),
    /// The guest is terminated.
    Termination(Termination),
}

impl From<Errno> for SyscallError {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl From<Termination> for SyscallError {
    fn from(termination: Termination) -> Self {
        Self::Termination(termination)
    }
}

/// The result of the body of a system call: a number that is not negative, 0 for calls without a result.
pub(super) type SyscallResult = Result<i32, SyscallError>;

/// Runs the body of an `env` import: errors are returned as negative numbers.
pub(super) fn env(
    call: &mut Call<'_>,
    body: impl FnOnce(&mut GuestMemory<'_>, &mut Host) -> SyscallResult,
) -> wasmtime::Result<i32> {
    let (mut memory, host) = split(call)?;
    to_guest(body(&mut memory, host), Errno::negative)
}

/// Runs the body of a `wasi_snapshot_preview1` import: errors are returned as positive numbers. Results other than 0
/// are written through pointers.
pub(super) fn wasi(
    call: &mut Call<'_>,
    body: impl FnOnce(&mut GuestMemory<'_>, &mut Host) -> SyscallResult,
) -> wasmtime::Result<i32> {
    let (mut memory, host) = split(call)?;
    to_guest(body(&mut memory, host), Errno::positive)
}

fn to_guest(result: SyscallResult, error: fn(Errno) -> i32) -> wasmtime::Result<i32> {
    match result {
        Ok(value) => Ok(value),
        Err(SyscallError::Errno(errno)) => Ok(error(errno)),
        Err(SyscallError::Termination(termination)) => Err(termination.into()),
    }
}

//! From what a system call comes to, to what its import answers.

use crate::Errno;
use crate::guest::GuestMemory;
use crate::host::{Call, Host, Termination, split};

/// What keeps a system call from its result.
pub(super) enum Failure {
    /// The guest is told.
    Errno(Errno),
    /// The guest ends.
    Termination(Termination),
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl From<Termination> for Failure {
    fn from(termination: Termination) -> Self {
        Self::Termination(termination)
    }
}

/// What the body of a system call comes to: a number that is not negative, 0 where there is nothing to tell.
pub(super) type Answer = Result<i32, Failure>;

/// Runs the body of an `env` import: errors are answered as negative numbers.
pub(super) fn env(
    call: &mut Call<'_>,
    body: impl FnOnce(&mut GuestMemory<'_>, &mut Host) -> Answer,
) -> wasmtime::Result<i32> {
    let (mut memory, host) = split(call)?;
    answer(body(&mut memory, host), Errno::negative)
}

/// Runs the body of a `wasi_snapshot_preview1` import: errors are answered as positive numbers. Results other than 0
/// go through pointers there.
pub(super) fn wasi(
    call: &mut Call<'_>,
    body: impl FnOnce(&mut GuestMemory<'_>, &mut Host) -> Answer,
) -> wasmtime::Result<i32> {
    let (mut memory, host) = split(call)?;
    answer(body(&mut memory, host), Errno::positive)
}

fn answer(result: Answer, error: fn(Errno) -> i32) -> wasmtime::Result<i32> {
    match result {
        Ok(value) => Ok(value),
        Err(Failure::Errno(errno)) => Ok(error(errno)),
        Err(Failure::Termination(termination)) => Err(termination.into()),
    }
}

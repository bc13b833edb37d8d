//! Exit statuses of the command.

use std::process::ExitCode;

/// A failure of the code that was run, or of a tool.
pub(crate) const FAILURE: u8 = 1;
/// A failure of belljar itself: before or instead of running the code, or in writing its output.
pub(crate) const NOT_STARTED: u8 = 2;
/// A time limit, as in `timeout(1)`.
pub(crate) const TIMED_OUT: u8 = 124;
/// Any other limit.
pub(crate) const LIMIT_REACHED: u8 = 125;
/// A failed installation of the code's packages, which therefore cannot be executed (as in shells).
pub(crate) const NOT_INSTALLED: u8 = 126;
/// An interruption, as shells report SIGINT.
pub(crate) const INTERRUPTED: u8 = 130;
/// A crash of the interpreter, as shells report SIGABRT.
pub(crate) const CRASHED: u8 = 134;
/// A reader that closed the pipe, as shells report SIGPIPE.
pub(crate) const BROKEN_PIPE: u8 = 141;

/// Ends the process with the exit status `code`.
pub(crate) fn exit(code: u8) -> ! {
    std::process::exit(code.into())
}

/// Returns success for `true` and [`FAILURE`] for `false`.
pub(crate) fn success_if(succeeded: bool) -> ExitCode {
    if succeeded { ExitCode::SUCCESS } else { ExitCode::from(FAILURE) }
}

//! The functions of a program that take variable arguments.
//!
//! Emscripten passes variable arguments by a pointer to all of them, in the last parameter. The type of a function does
//! not show if this is its last parameter's meaning, so the functions are known by name.

use std::collections::BTreeSet;

use crate::translate::{Symbol, Symbols};

/// The variadic functions of C libraries: POSIX, GNU and BSD extensions, and musl's and Emscripten's own. Functions
/// whose arguments are a `va_list`, such as `vprintf`, are not variadic.
const C_LIBRARY: &[&str] = &[
    "__isoc99_fscanf",
    "__isoc99_fwscanf",
    "__isoc99_scanf",
    "__isoc99_sscanf",
    "__isoc99_swscanf",
    "__isoc99_wscanf",
    "__small_fprintf",
    "__small_printf",
    "__small_sprintf",
    "asprintf",
    "dprintf",
    "emscripten_console_errorf",
    "emscripten_console_logf",
    "emscripten_console_tracef",
    "emscripten_console_warnf",
    "emscripten_dbgf",
    "emscripten_errf",
    "emscripten_log",
    "emscripten_outf",
    "err",
    "errx",
    "execl",
    "execle",
    "execlp",
    "fcntl",
    "fiprintf",
    "fprintf",
    "fscanf",
    "fwprintf",
    "fwscanf",
    "ioctl",
    "iprintf",
    "mremap",
    "open",
    "openat",
    "prctl",
    "printf",
    "scanf",
    "sem_open",
    "semctl",
    "siprintf",
    "sniprintf",
    "snprintf",
    "sprintf",
    "sscanf",
    "strfmon",
    "strfmon_l",
    "swprintf",
    "swscanf",
    "syscall",
    "syslog",
    "ulimit",
    "warn",
    "warnx",
    "wprintf",
    "wscanf",
];

/// Returns the table slots of the variadic functions among a main module's symbols. `more` are names in addition to
/// those of the C library.
pub(crate) fn variadic_slots(symbols: &Symbols, more: &[&str]) -> BTreeSet<u32> {
    let slot = |name: &&str| match symbols.0.get(*name) {
        Some(Symbol::Function(slot)) => Some(*slot),
        Some(Symbol::Data(_)) | None => None,
    };
    C_LIBRARY.iter().chain(more).filter_map(slot).collect()
}

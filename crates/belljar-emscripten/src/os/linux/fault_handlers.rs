//! The handlers of the signals that traps of WebAssembly raise.
//!
//! wasmtime installs them with its first engine. Other software in the process may replace them later, such as Python's
//! `faulthandler`, and a fault of a guest would then end the process. They are therefore compared, and installed again,
//! when an instance starts and before a safepoint page is protected.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;

const SIGNALS: [libc::c_int; 4] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE];

/// wasmtime's handlers.
static HANDLERS: OnceLock<[libc::sigaction; SIGNALS.len()]> = OnceLock::new();

/// Records the current handlers as wasmtime's. Must be called right after an engine was created.
pub(crate) fn record() {
    HANDLERS.get_or_init(|| SIGNALS.map(current));
}

/// Installs wasmtime's handlers again where others have replaced them.
pub(crate) fn restore() {
    let Some(handlers) = HANDLERS.get() else { return };
    for (signal, handler) in SIGNALS.into_iter().zip(handlers) {
        if current(signal).sa_sigaction == handler.sa_sigaction {
            continue;
        }
        // SAFETY: the handler was installed by wasmtime for this signal, and is never unloaded: engines, of which one
        // exists, keep it.
        if unsafe { libc::sigaction(signal, handler, ptr::null_mut()) } != 0 {
            tracing::error!(error = %std::io::Error::last_os_error(), signal, "failed to restore a handler");
        }
    }
}

fn current(signal: libc::c_int) -> libc::sigaction {
    let mut action = MaybeUninit::zeroed();
    // SAFETY: the call only writes the structure, for which zeros are valid, too.
    unsafe {
        libc::sigaction(signal, ptr::null(), action.as_mut_ptr());
        action.assume_init()
    }
}

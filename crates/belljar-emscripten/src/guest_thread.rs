//! Threads that guests run on.
//!
//! Python recurses deeply and its C code uses the native stack for it, so a guest needs far more stack than a thread
//! usually has. wasmtime limits the part that wasm uses; this module ensures that the thread really has that much.

use std::cell::Cell;

/// The native stack of a guest thread, in bytes. It is virtual: only touched pages use memory.
pub const STACK_SIZE: usize = 128 << 20;

thread_local! {
    static IS_GUEST_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether the calling thread was created by [`run`].
pub fn is_guest_thread() -> bool {
    IS_GUEST_THREAD.get()
}

/// Runs `work` on a new guest thread and waits for it.
///
/// # Errors
/// Fails if the system cannot create another thread.
///
/// # Panics
/// Panics if `work` panics, with the same payload.
pub fn run<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> std::io::Result<T> {
    run_during(name, work, || ())
}

/// Does the same as [`run`]. The calling thread does `meanwhile` before it waits.
///
/// # Errors
/// Fails if the system cannot create another thread; `meanwhile` is not called then.
///
/// # Panics
/// Panics if `work` panics, with the same payload, or if `meanwhile` panics.
pub fn run_during<T: Send>(
    name: &str,
    work: impl FnOnce() -> T + Send,
    meanwhile: impl FnOnce(),
) -> std::io::Result<T> {
    std::thread::scope(|scope| {
        let thread =
            std::thread::Builder::new().name(name.into()).stack_size(STACK_SIZE).spawn_scoped(scope, || {
                IS_GUEST_THREAD.set(true);
                work()
            })?;
        meanwhile();
        match thread.join() {
            Ok(value) => Ok(value),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

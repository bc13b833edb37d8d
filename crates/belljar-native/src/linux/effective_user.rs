//! Acts on files as a session's user, on one thread.

use std::marker::PhantomData;

use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_res_gid, set_thread_res_uid};

/// A guard during which this thread's effective user and group are those of a session. The thread's real user stays
/// what it was, so the thread can change back; other threads are not affected.
pub(crate) struct EffectiveUserGuard {
    previous: (Uid, Gid),
    /// Makes the guard `!Send`: it belongs to the thread that made it.
    _thread: PhantomData<*const ()>,
}

impl EffectiveUserGuard {
    /// Changes this thread's effective user, and its effective group to the group of the same number.
    ///
    /// # Errors
    /// Returns an error if this thread's real user is not root.
    pub(crate) fn for_user(user: u32) -> std::io::Result<Self> {
        let previous = (rustix::process::getuid(), rustix::process::getgid());
        set_thread_res_gid(None, Gid::from_raw(user), None)?;
        let guard = Self { previous, _thread: PhantomData };
        // If this fails, dropping the guard restores the group.
        set_thread_res_uid(None, Uid::from_raw(user), None)?;
        Ok(guard)
    }
}

impl Drop for EffectiveUserGuard {
    fn drop(&mut self) {
        let (user, group) = self.previous;
        let restored = set_thread_res_uid(None, user, None).and_then(|()| set_thread_res_gid(None, group, None));
        if let Err(error) = restored {
            // Does not happen: a thread may always take its real user again. If it did, the thread would continue with
            // fewer rights, not with more.
            tracing::error!(%error, "failed to restore a thread's effective user");
        }
    }
}

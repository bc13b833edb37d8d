//! Doing something as a session's user, on one thread.

use std::marker::PhantomData;

use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_res_gid, set_thread_res_uid};

/// As long as this is there, the thread's files are another user's. The thread can go back, as its real user stays what it
/// was; other threads notice nothing.
pub(crate) struct Acting {
    back: (Uid, Gid),
    /// It belongs to the thread that made it.
    _thread: PhantomData<*const ()>,
}

impl Acting {
    /// Becomes that user and its group.
    ///
    /// # Errors
    /// When this thread's real user is not root.
    pub(crate) fn as_user(user: u32) -> std::io::Result<Self> {
        let back = (rustix::process::getuid(), rustix::process::getgid());
        set_thread_res_gid(None, Gid::from_raw(user), None)?;
        let acting = Self { back, _thread: PhantomData };
        // If this fails, what has been done is undone.
        set_thread_res_uid(None, Uid::from_raw(user), None)?;
        Ok(acting)
    }
}

impl Drop for Acting {
    fn drop(&mut self) {
        let (user, group) = self.back;
        let done = set_thread_res_uid(None, user, None).and_then(|()| set_thread_res_gid(None, group, None));
        if let Err(error) = done {
            // Not possible: a thread may always take its real user again. Whatever it does next would fail or not, safely:
            // it has fewer rights, not more.
            tracing::error!(%error, "a thread stays a session's user");
        }
    }
}

//! Linux: the priority of a thread.

use thread_priority::ThreadPriority;
use thread_priority::unix::{
    NormalThreadSchedulePolicy, ThreadSchedulePolicy, set_thread_priority_and_policy, thread_native_id,
};

pub use super::unix::*;

/// Gives the calling thread the policy `SCHED_IDLE`: a thread of another policy that wakes up takes the processor at
/// once, and may choose one on which only such threads run, as if it were idle (sched(7)).
pub(crate) fn set_idle_policy() {
    let policy = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    if let Err(error) = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, policy) {
        tracing::debug!(%error, "failed to lower the priority of a thread");
    }
}

//! Cancellation of calls: what happens to a call's code when its caller has gone.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::kernel::InterruptHandle;

/// The cancellation state of one call. Clones share it.
#[derive(Clone, Default)]
pub struct CallCancellation(Arc<Mutex<CallState>>);

#[derive(Default)]
enum CallState {
    /// The call waits for a thread, or what it runs in is being prepared.
    #[default]
    Pending,
    /// The call's code runs.
    Running(Arc<dyn InterruptHandle>),
    /// The code has ended.
    Finished,
    /// The caller has gone. Code that has not begun must not begin.
    Cancelled,
}

impl CallCancellation {
    /// Records that the code is about to run. Returns whether it may: `false` if the call was cancelled.
    #[must_use]
    pub fn begin_running(&self, handle: Arc<dyn InterruptHandle>) -> bool {
        let mut state = self.0.lock();
        if matches!(*state, CallState::Cancelled) {
            return false;
        }
        *state = CallState::Running(handle);
        true
    }

    /// Records that the code has ended.
    pub fn finish(&self) {
        *self.0.lock() = CallState::Finished;
    }

    /// Returns whether the call was cancelled before its code began or while it ran.
    pub fn is_cancelled(&self) -> bool {
        matches!(*self.0.lock(), CallState::Cancelled)
    }

    /// Returns the handle of the code, if it runs.
    pub fn handle(&self) -> Option<Arc<dyn InterruptHandle>> {
        if let CallState::Running(handle) = &*self.0.lock() { Some(handle.clone()) } else { None }
    }

    /// Returns a guard that, when it is dropped, cancels the call and kills the interpreter that runs its code.
    pub fn kill_on_drop(&self) -> CancelOnDrop {
        CancelOnDrop { call: self.clone(), grace: None }
    }

    /// Returns a guard that, when it is dropped, cancels the call, interrupts its code, and kills the interpreter after
    /// `grace` if the code still runs.
    pub fn interrupt_on_drop(&self, grace: Duration) -> CancelOnDrop {
        CancelOnDrop { call: self.clone(), grace: Some(grace) }
    }
}

/// A guard that cancels a call when it is dropped.
pub struct CancelOnDrop {
    call: CallCancellation,
    /// The time between interrupt and kill; `None` kills at once.
    grace: Option<Duration>,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let mut state = self.call.0.lock();
        let handle = match &*state {
            CallState::Running(handle) => handle.clone(),
            CallState::Finished | CallState::Cancelled => return,
            CallState::Pending => {
                *state = CallState::Cancelled;
                return;
            }
        };
        match self.grace {
            None => {
                *state = CallState::Cancelled;
                handle.kill();
            }
            Some(grace) => {
                handle.interrupt();
                drop(state);
                kill_after(grace, self.call.clone());
            }
        }
    }
}

/// Kills the interpreter of `call` if it still runs after `grace`.
fn kill_after(grace: Duration, call: CallCancellation) {
    let watcher = std::thread::Builder::new().name("cancel".into()).spawn(move || {
        std::thread::sleep(grace);
        if let CallState::Running(handle) = &*call.0.lock() {
            handle.kill();
        }
    });
    if let Err(error) = watcher {
        tracing::warn!(%error, "failed to start the thread that kills a cancelled call: its code may run on");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// A handle that reports what is done to it.
    struct Recorder(mpsc::Sender<&'static str>);

    impl InterruptHandle for Recorder {
        fn interrupt(&self) {
            let _ = self.0.send("interrupt");
        }

        fn kill(&self) {
            let _ = self.0.send("kill");
        }
    }

    fn recorder() -> (Arc<dyn InterruptHandle>, mpsc::Receiver<&'static str>) {
        let (sender, events) = mpsc::channel();
        (Arc::new(Recorder(sender)), events)
    }

    #[test]
    fn a_call_cancelled_while_pending_does_not_begin() {
        let call = CallCancellation::default();
        drop(call.kill_on_drop());
        assert!(call.is_cancelled());
        assert!(!call.begin_running(recorder().0));
    }

    #[test]
    fn a_running_call_is_killed_or_interrupted_first() {
        let (handle, events) = recorder();
        let call = CallCancellation::default();
        assert!(call.begin_running(handle));
        drop(call.kill_on_drop());
        assert_eq!(events.try_iter().collect::<Vec<_>>(), ["kill"]);

        let (handle, events) = recorder();
        let call = CallCancellation::default();
        assert!(call.begin_running(handle));
        drop(call.interrupt_on_drop(Duration::ZERO));
        assert_eq!(events.iter().take(2).collect::<Vec<_>>(), ["interrupt", "kill"]);
    }

    #[test]
    fn a_finished_call_is_left_alone() {
        let (handle, events) = recorder();
        let call = CallCancellation::default();
        assert!(call.begin_running(handle));
        call.finish();
        drop(call.interrupt_on_drop(Duration::ZERO));
        drop(call);
        assert_eq!(events.iter().next(), None);
    }
}

//! Linux and macOS: signals and processes.

use std::io;
use std::os::unix::process::{CommandExt as _, parent_id};
use std::process::Command;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tokio::signal::unix::{SignalKind, signal};

use super::Signal;

/// The interval at which a process checks that its parent process still exists.
const PARENT_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Calls `handle` for each of these signals from now on. Returns only if they cannot be handled.
pub(crate) fn for_each_signal(signals: &[Signal], mut handle: impl FnMut(Signal)) -> io::Result<()> {
    let numbers = signals.iter().map(|signal| match signal {
        Signal::Interrupt => SIGINT,
        Signal::Terminate => SIGTERM,
    });
    Signals::new(numbers)?.forever().for_each(|number| {
        handle(if number == SIGINT { Signal::Interrupt } else { Signal::Terminate });
    });
    Ok(())
}

/// Calls `handle` for each SIGHUP from now on. Returns only if it cannot be handled.
pub(crate) async fn for_each_hangup(mut handle: impl FnMut()) {
    let Ok(mut hangups) = signal(SignalKind::hangup()) else { return };
    while hangups.recv().await.is_some() {
        handle();
    }
}

/// The signals that end a server. They are caught from now on, and not only once they are waited for.
pub(crate) struct EndingSignals {
    /// SIGINT, SIGTERM and SIGHUP.
    caught: io::Result<[tokio::signal::unix::Signal; 3]>,
}

impl EndingSignals {
    pub(crate) fn catch() -> Self {
        let catch =
            || Ok([signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?]);
        Self { caught: catch() }
    }

    /// Waits for Ctrl-C or SIGTERM, with which service managers end a process, and for SIGHUP if `hangup_ends`.
    pub(crate) async fn wait(self, hangup_ends: bool) {
        match self.caught {
            Ok([mut interrupt, mut terminate, mut hangup]) => tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                Some(()) = hangup.recv(), if hangup_ends => {}
            },
            Err(error) => {
                tracing::warn!(%error, "failed to handle signals");
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Calls `act` on a thread of its own when the parent process has ended.
pub(crate) fn on_parent_exit(act: impl FnOnce() + Send + 'static) {
    let parent = parent_id();
    std::thread::spawn(move || {
        while parent_id() == parent {
            std::thread::sleep(PARENT_CHECK_INTERVAL);
        }
        act();
    });
}

/// Starts the command's process in a process group of its own, so that Ctrl-C in this terminal is not for it.
pub(crate) fn start_in_own_process_group(command: &mut Command) {
    command.process_group(0);
}

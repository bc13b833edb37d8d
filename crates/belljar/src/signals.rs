//! The signals of a terminal and of frontends, as events for a thread that waits for them.

pub(crate) use system::for_each;

/// A signal to the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// SIGINT, or Ctrl-C.
    Interrupt,
    /// SIGTERM, which Windows does not have.
    Terminate,
}

#[cfg(unix)]
mod system {
    use std::io;

    use signal_hook::consts::{SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;

    use super::Signal;

    /// Calls `handle` for each of these signals from now on. Returns only if they cannot be handled.
    pub(crate) fn for_each(signals: &[Signal], mut handle: impl FnMut(Signal)) -> io::Result<()> {
        let numbers = signals.iter().map(|signal| match signal {
            Signal::Interrupt => SIGINT,
            Signal::Terminate => SIGTERM,
        });
        Signals::new(numbers)?.forever().for_each(|number| {
            handle(if number == SIGINT { Signal::Interrupt } else { Signal::Terminate });
        });
        Ok(())
    }
}

#[cfg(not(unix))]
mod system {
    use std::io;

    use super::Signal;

    /// Calls `handle` for each Ctrl-C from now on. Returns only if it cannot be handled.
    pub(crate) fn for_each(_: &[Signal], mut handle: impl FnMut(Signal)) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let error = runtime.block_on(async {
            loop {
                match tokio::signal::ctrl_c().await {
                    Ok(()) => handle(Signal::Interrupt),
                    Err(error) => break error,
                }
            }
        });
        Err(error)
    }
}

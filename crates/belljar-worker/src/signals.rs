//! What arrives by the second socket of a worker: interrupts, the end of an interpreter, and changes of connections.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use belljar_core::kernel::InterruptHandle as _;
use belljar_python::InterpreterInterruptHandle;
use parking_lot::Mutex;

use crate::messages::{CHANGE_SIGNAL, END_SIGNAL};
use crate::remote_network::RemoteNetwork;

/// The interpreter that runs, as the thread sees it that receives interrupts.
pub(crate) type Current = Arc<Mutex<CurrentInterpreter>>;

#[derive(Default)]
pub(crate) struct CurrentInterpreter {
    /// The interpreter that runs, by its number.
    pub(crate) running: Option<(u64, InterpreterInterruptHandle)>,
    /// The interpreter that was interrupted last, which may not be created yet, and the number of times.
    interrupts: (u64, u64),
    /// The same of the interrupts that have arrived by the second socket. Some may have come with a call before.
    received: (u64, u64),
    /// The interpreter that was ended last, which may not be created yet.
    pub(crate) ended: u64,
    /// The network of the interpreter that runs.
    pub(crate) network: Option<RemoteNetwork>,
}

impl CurrentInterpreter {
    /// Returns how often an interpreter was interrupted.
    pub(crate) fn interrupts_of(&self, number: u64) -> u64 {
        if self.interrupts.0 == number { self.interrupts.1 } else { 0 }
    }

    /// Receives an interrupt by the second socket.
    fn receive_interrupt(&mut self, number: u64) {
        let before = if self.received.0 == number { self.received.1 } else { 0 };
        self.received = (number, before + 1);
        self.interrupt(number, before + 1);
    }

    /// Interrupts the interpreter that runs, unless it has been interrupted as many times. Code that an interrupt has
    /// continued must not wait again before the interrupt arrives.
    pub(crate) fn interrupt_running(&mut self, count: u64) {
        if let Some((number, _)) = self.running {
            self.interrupt(number, count);
        }
    }

    /// Interrupts an interpreter that was interrupted `count` times, unless it has been already.
    fn interrupt(&mut self, number: u64, count: u64) {
        if count <= self.interrupts_of(number) {
            return;
        }
        self.interrupts = (number, count);
        if let Some((_, handle)) = self.running.as_ref().filter(|(running, _)| *running == number) {
            handle.interrupt();
        }
    }
}

/// Passes interrupts to the interpreter that they are for, and ends it.
pub(crate) fn receive_interrupts(mut control: UnixStream, current: &Current) {
    let mut number = [0; 8];
    while control.read_exact(&mut number).is_ok() {
        let signal = u64::from_le_bytes(number);
        let (number, is_end) = (signal & !(END_SIGNAL | CHANGE_SIGNAL), signal & END_SIGNAL != 0);
        let mut current = current.lock();
        if signal & CHANGE_SIGNAL != 0 {
            if let Some(network) = &current.network {
                network.notify();
            }
            continue;
        }
        if !is_end {
            current.receive_interrupt(number);
            continue;
        }
        current.ended = number;
        if let Some((_, handle)) = current.running.as_ref().filter(|(running, _)| *running == number) {
            handle.kill();
        }
    }
}

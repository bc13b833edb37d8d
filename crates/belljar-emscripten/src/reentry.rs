//! Calls back into the program, from a host function that the program called.
//!
//! This is for embedders that add host functions of their own (see [`Program::open`](crate::Program::open)): what they
//! are given are pointers, and what they answer often has to be allocated by the program.

use wasmtime::AsContextMut;

use crate::exports;
use crate::guest::GuestMemory;
use crate::host::{Call, Host, Termination, split};

/// The program behind a call in progress.
pub struct Reentry<'a, 'b> {
    call: &'a mut Call<'b>,
}

impl<'a, 'b> Reentry<'a, 'b> {
    /// The program that made `call`.
    pub fn new(call: &'a mut Call<'b>) -> Self {
        Self { call }
    }

    /// Calls the program's function `name`, whose parameters are all 32-bit integers; answers its result, 0 when it
    /// has none.
    ///
    /// # Errors
    /// When there is no such function, or it does not return: pass the error on, the program is unwinding.
    pub fn call(&mut self, name: &str, arguments: &[u32]) -> wasmtime::Result<u32> {
        exports::call(self.call.as_context_mut(), name, arguments)
    }

    /// The program's memory, until the next call.
    ///
    /// # Errors
    /// When the program is not instantiated whole yet.
    pub fn memory(&mut self) -> Result<GuestMemory<'_>, Termination> {
        split(self.call).map(|(memory, _)| memory)
    }

    /// Files, console and clocks.
    pub fn host(&mut self) -> &mut Host {
        self.call.data_mut()
    }
}

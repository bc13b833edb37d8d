//! Calls into the program from a host function that the program called.
//!
//! This is for embedders that add their own host functions (see [`Program::open`](crate::Program::open)): such
//! functions receive pointers, and often have to return memory that the program's allocator provides.

use wasmtime::AsContextMut;

use crate::dylink;
use crate::exports;
use crate::guest_memory::{GuestMemory, Ptr};
use crate::host::{Call, Host, split};
use crate::termination::Termination;

/// The program that made a host call.
pub struct GuestCaller<'a, 'b> {
    call: &'a mut Call<'b>,
}

impl<'a, 'b> GuestCaller<'a, 'b> {
    /// Creates a caller for the program that made `call`.
    pub fn new(call: &'a mut Call<'b>) -> Self {
        Self { call }
    }

    /// Calls the program's function `name`, whose parameters are all 32-bit integers. Returns its result, or 0 if it
    /// has none.
    ///
    /// # Errors
    /// Fails if the function does not exist or does not return. The error must be passed on: the program is unwinding.
    pub fn call(&mut self, name: &str, arguments: &[u32]) -> wasmtime::Result<u32> {
        exports::call(self.call.as_context_mut(), name, arguments)
    }

    /// Returns the address of the program's variable `name`.
    ///
    /// # Errors
    /// Fails if the program has no such variable.
    pub fn address_of(&mut self, name: &str) -> Result<Ptr, Termination> {
        let address = dylink::main_data(&mut self.call.as_context_mut(), name);
        address.ok_or_else(|| Termination::Missing(name.into()))
    }

    /// Returns the program's memory, which can be used until the next call.
    ///
    /// # Errors
    /// Fails if the program is not completely instantiated yet.
    pub fn memory(&mut self) -> Result<GuestMemory<'_>, Termination> {
        split(self.call).map(|(memory, _)| memory)
    }

    /// Returns the files, console and clocks.
    pub fn host(&mut self) -> &mut Host {
        self.call.data_mut()
    }
}

//! The memory of interpreters, as that of the owner whose code they run.

use std::sync::Arc;

use belljar_core::{UsageMeter, current_meter};
use belljar_emscripten::{Instance, MemoryMeter};

/// The meter of an owner, for an instance.
struct OwnerMemory(Arc<dyn UsageMeter>);

impl MemoryMeter for OwnerMemory {
    fn grow(&self, bytes: u64) -> bool {
        self.0.grow_memory(bytes)
    }

    fn add(&self, bytes: u64) {
        self.0.add_memory(bytes);
    }

    fn release(&self, bytes: u64) {
        self.0.release_memory(bytes);
    }
}

/// Counts the memory of `instance` for the owner whose job this thread runs, if it has one.
pub(crate) fn count_for_owner(instance: &mut Instance) {
    if let Some(meter) = current_meter() {
        instance.set_memory_meter(Arc::new(OwnerMemory(meter)));
    }
}

//! The only module that depends on the processor's architecture: the processors that code for all of them needs.

pub(crate) use processor::is_baseline;

#[cfg(target_arch = "x86_64")]
mod processor {
    /// Returns whether this machine's processor has the extensions of x86-64-v2 for which Cranelift has code.
    pub(crate) fn is_baseline() -> bool {
        std::is_x86_feature_detected!("sse4.2") && std::is_x86_feature_detected!("popcnt")
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod processor {
    /// Returns `true`: code for all processors uses no extensions.
    pub(crate) fn is_baseline() -> bool {
        true
    }
}

//! The compiler and its settings, shared by every program of a process.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use sha2::{Digest, Sha256};
use wasmtime::{Config, OptLevel, RegallocAlgorithm};

use crate::memory::ImageMemory;

/// Native stack that wasm frames may use, in bytes. Threads that run guests have [`crate::thread::STACK_SIZE`].
const MAX_WASM_STACK: usize = 60 << 20;

/// How a program that will not end is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum HardStop {
    /// A load at each loop header from a page that can be closed. Costs next to nothing; needs `mprotect` and
    /// the signal handling that wasmtime brings for its traps.
    #[default]
    Safepoint,
    /// A counter compared at each loop header and function entry. About a fifth slower; works everywhere.
    Epoch,
}

/// How much time compiling may take. What comes of either runs on the same engine, beside the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Effort {
    /// In less than half the time, code that is larger and slower.
    Quick,
    /// The best code.
    #[default]
    Full,
}

/// Compiles modules and holds what all their instances share. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    inner: wasmtime::Engine,
    hard_stop: HardStop,
    /// Only compiles. Made when it is needed.
    quick: Arc<OnceLock<wasmtime::Engine>>,
}

impl Engine {
    /// An engine for this machine's processor.
    ///
    /// # Errors
    /// When wasmtime does not support the processor or operating system.
    pub fn new(hard_stop: HardStop) -> wasmtime::Result<Self> {
        let inner = wasmtime::Engine::new(&config(hard_stop))?;
        Ok(Self { inner, hard_stop, quick: Arc::default() })
    }

    /// How instances of this engine are stopped.
    pub fn hard_stop(&self) -> HardStop {
        self.hard_stop
    }

    /// Identifies what this build compiles to: equal fingerprints mean that compiled code and snapshots can be
    /// exchanged. A hexadecimal string.
    pub fn fingerprint(&self) -> String {
        let mut hasher = DigestHasher(Sha256::new());
        self.inner.precompile_compatibility_hash().hash(&mut hasher);
        self.hard_stop.hash(&mut hasher);
        hasher.0.update(env!("CARGO_PKG_VERSION"));
        hasher.0.update(crate::translate::VERSION.to_le_bytes());
        hasher.0.update(crate::snapshot::VERSION.to_le_bytes());
        hex(&hasher.0.finalize()[..16])
    }

    /// Native code for a module, on all processors; on those of a thread pool of rayon's where called from one.
    ///
    /// # Errors
    /// When the module is not valid, or uses what is switched off.
    pub fn compile(&self, effort: Effort, wasm: &[u8]) -> wasmtime::Result<Vec<u8>> {
        let compiler = match effort {
            Effort::Full => &self.inner,
            Effort::Quick => match self.quick.get() {
                Some(quick) => quick,
                None => {
                    let mut config = config(self.hard_stop);
                    // The register allocator takes half of the time. Neither setting keeps `inner` from running the code.
                    config.cranelift_opt_level(OptLevel::None);
                    config.cranelift_regalloc_algorithm(RegallocAlgorithm::SinglePass);
                    let quick = wasmtime::Engine::new(&config)?;
                    self.quick.get_or_init(|| quick)
                }
            },
        };
        compiler.precompile_module(wasm)
    }

    /// The wasmtime engine, for what this crate does not offer.
    pub fn wasmtime(&self) -> &wasmtime::Engine {
        &self.inner
    }
}

fn config(hard_stop: HardStop) -> Config {
    let mut config = Config::new();
    config
        // What the exception translation emits, and what CPython's call trampoline asks types with.
        .wasm_exceptions(true)
        .wasm_gc(true)
        .wasm_function_references(true)
        .cranelift_opt_level(OptLevel::Speed)
        .max_wasm_stack(MAX_WASM_STACK)
        // Unused, but must not be the smaller one.
        .async_stack_size(MAX_WASM_STACK)
        .epoch_interruption(hard_stop == HardStop::Epoch)
        .with_host_memory(Arc::new(ImageMemory))
        // Only exceptions live there, and not for long.
        .gc_heap_reservation(1 << 20)
        // Functions have no names once translated, so that backtraces would only cost time.
        .wasm_backtrace_max_frames(None)
        // Address maps serve the same backtraces, and so does what other unwinders read.
        .generate_address_map(false)
        .native_unwind_info(false);
    config
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Lets `Hash` implementations feed a digest, whose value is the same in every process.
struct DigestHasher(Sha256);

impl Hasher for DigestHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let digest = self.0.clone().finalize();
        u64::from_le_bytes(digest[..8].try_into().unwrap_or_default())
    }
}

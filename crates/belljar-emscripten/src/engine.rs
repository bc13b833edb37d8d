//! The compiler and its settings, shared by all programs of a process.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use sha2::{Digest, Sha256};
use wasmtime::{Config, Module, OptLevel, RegallocAlgorithm};

use crate::memory::ImageMemory;
use crate::os::{NEEDS_UNWIND_INFO, fault_handlers};
use crate::versions::{SNAPSHOT_VERSION, TRANSLATION_VERSION};

/// The native stack that wasm frames may use, in bytes. Threads that run guests have
/// [`crate::guest_thread::STACK_SIZE`].
const MAX_WASM_STACK: usize = 60 << 20;

/// The mechanism that interrupts a program that does not end by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum InterruptMode {
    /// A load at each loop header from a page that can be made inaccessible. Costs next to nothing; needs `mprotect`
    /// and the signal handling that wasmtime installs for its traps.
    #[default]
    Safepoint,
    /// A counter compared at each loop header and function entry. About a fifth slower; works everywhere.
    Epoch,
}

/// The optimization level. The output of both levels runs on the same engine, also side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CompileTier {
    /// Compiles in less than half the time to larger and slower code. Functions of libraries are compiled when they are
    /// called.
    Quick,
    /// Compiles to the best code.
    #[default]
    Optimized,
}

/// The processors that compiled code runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Processor {
    /// Those with all extensions of this machine's processor.
    #[default]
    Native,
    /// All that belong to the platform: x86-64-v2 (SSE4.2 and POPCNT, since 2009), or 64-bit Arm. Code that is compiled
    /// on one machine can be installed on others.
    Baseline,
}

impl Processor {
    /// The extensions of x86-64-v2 for which Cranelift has code.
    #[cfg(target_arch = "x86_64")]
    const BASELINE: [&str; 5] = ["has_sse3", "has_ssse3", "has_sse41", "has_sse42", "has_popcnt"];
    #[cfg(not(target_arch = "x86_64"))]
    const BASELINE: [&str; 0] = [];

    /// Returns whether this machine's processor is one of them.
    pub fn is_available(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            let is_v2 = std::is_x86_feature_detected!("sse4.2") && std::is_x86_feature_detected!("popcnt");
            self == Self::Native || is_v2
        }
        #[cfg(not(target_arch = "x86_64"))]
        true
    }
}

/// A compiler, with the state that all instances of its modules share. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    inner: wasmtime::Engine,
    interrupt_mode: InterruptMode,
    processor: Processor,
    /// An engine that only compiles; created on first use.
    quick: Arc<OnceLock<wasmtime::Engine>>,
}

impl Engine {
    /// Creates an engine for this machine's processor.
    ///
    /// # Errors
    /// Fails if wasmtime does not support the processor or operating system.
    pub fn new(interrupt_mode: InterruptMode) -> wasmtime::Result<Self> {
        Self::for_processor(interrupt_mode, Processor::Native)
    }

    /// Creates an engine for these processors.
    ///
    /// # Errors
    /// Fails if this machine's processor is not one of them, or if wasmtime does not support the operating system.
    pub fn for_processor(interrupt_mode: InterruptMode, processor: Processor) -> wasmtime::Result<Self> {
        if !processor.is_available() {
            return Err(wasmtime::Error::msg("the processor has no SSE4.2"));
        }
        let inner = wasmtime::Engine::new(&config(interrupt_mode, processor)?)?;
        fault_handlers::record();
        Ok(Self { inner, interrupt_mode, processor, quick: Arc::default() })
    }

    /// Returns the mechanism that interrupts instances of this engine.
    pub fn interrupt_mode(&self) -> InterruptMode {
        self.interrupt_mode
    }

    /// Returns a hexadecimal string that identifies the output of this build: compiled code and snapshots can be
    /// exchanged between engines with equal fingerprints.
    pub fn fingerprint(&self) -> String {
        let mut hasher = DigestHasher(Sha256::new());
        self.inner.precompile_compatibility_hash().hash(&mut hasher);
        self.interrupt_mode.hash(&mut hasher);
        hasher.0.update(env!("CARGO_PKG_VERSION"));
        hasher.0.update(TRANSLATION_VERSION.to_le_bytes());
        hasher.0.update(SNAPSHOT_VERSION.to_le_bytes());
        hex::encode(&hasher.0.finalize()[..16])
    }

    /// Compiles a module to native code on all processors, or on the threads of a rayon pool when called from one.
    ///
    /// # Errors
    /// Fails if the module is not valid, or uses a feature that is disabled.
    pub fn compile(&self, effort: CompileTier, wasm: &[u8]) -> wasmtime::Result<Vec<u8>> {
        let compiler = match effort {
            CompileTier::Optimized => &self.inner,
            CompileTier::Quick => match self.quick.get() {
                Some(quick) => quick,
                None => {
                    let mut config = config(self.interrupt_mode, self.processor)?;
                    // Register allocation takes half of the time. `inner` can run the code that these settings produce.
                    config.cranelift_opt_level(OptLevel::None);
                    config.cranelift_regalloc_algorithm(RegallocAlgorithm::SinglePass);
                    let quick = wasmtime::Engine::new(&config)?;
                    self.quick.get_or_init(|| quick)
                }
            },
        };
        compiler.precompile_module(wasm)
    }

    /// Compiles a module for use in this process.
    pub(crate) fn module(&self, effort: CompileTier, wasm: &[u8]) -> wasmtime::Result<Module> {
        if effort == CompileTier::Optimized {
            return Module::new(&self.inner, wasm);
        }
        let code = self.compile(effort, wasm)?;
        // SAFETY: the bytes are the output of a compiler whose code this engine can run.
        unsafe { Module::deserialize(&self.inner, code) }
    }

    /// Returns the wasmtime engine, for features that this crate does not offer.
    pub fn wasmtime(&self) -> &wasmtime::Engine {
        &self.inner
    }
}

fn config(interrupt_mode: InterruptMode, processor: Processor) -> wasmtime::Result<Config> {
    let mut config = Config::new();
    config
        // Needed by the output of the exception translation, and by the type tests of CPython's call trampoline.
        .wasm_exceptions(true)
        .wasm_gc(true)
        .wasm_function_references(true)
        .cranelift_opt_level(OptLevel::Speed)
        .max_wasm_stack(MAX_WASM_STACK)
        // Unused, but must not be smaller than the wasm stack.
        .async_stack_size(MAX_WASM_STACK)
        .epoch_interruption(interrupt_mode == InterruptMode::Epoch)
        .with_host_memory(Arc::new(ImageMemory))
        // The heap holds only exceptions, and not for long.
        .gc_heap_reservation(1 << 20)
        // Translated functions have no names, so collecting backtraces would only cost time.
        .wasm_backtrace_max_frames(None)
        // Address maps and unwind information serve the same backtraces and other unwinders.
        .generate_address_map(false)
        .native_unwind_info(NEEDS_UNWIND_INFO);
    if processor == Processor::Baseline {
        // With a target, Cranelift uses no extension that is not named.
        config.target(env!("BELLJAR_TARGET"))?;
        for extension in Processor::BASELINE {
            // SAFETY: `for_processor` has checked that this machine's processor has the extensions.
            unsafe { config.cranelift_flag_enable(extension) };
        }
    }
    Ok(config)
}

/// A hasher that feeds a digest, whose value is the same in every process.
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

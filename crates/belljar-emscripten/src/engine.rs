//! The compiler and its settings, shared by all programs of a process.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use sha2::{Digest, Sha256};
use wasmtime::{Config, Module, OptLevel, RegallocAlgorithm};

use crate::architecture::is_baseline;
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
    /// All that belong to the platform: x86-64-v2 (SSE4.2 and POPCNT, since 2009), or 64-bit Arm (Armv8.0). Code that
    /// is compiled on one machine can be installed on others.
    Baseline,
}

impl Processor {
    /// Returns whether this machine's processor is one of them.
    pub fn is_available(self) -> bool {
        self == Self::Native || is_baseline()
    }
}

/// A platform that code is compiled for in advance, for all of its processors (see [`Processor::Baseline`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    triple: &'static str,
}

impl Target {
    /// The platforms whose code other platforms compile, where the feature `cross-compile` is enabled.
    pub const ALL: [Self; 2] =
        [Self { triple: "aarch64-unknown-linux-gnu" }, Self { triple: "x86_64-unknown-linux-gnu" }];

    /// The platform of this program.
    pub const HOST: Self = Self { triple: env!("BELLJAR_TARGET") };

    /// Returns the platform with this name, which is one that rustc uses, if this build compiles for it.
    pub fn from_triple(triple: &str) -> Option<Self> {
        let others: &[Self] = if cfg!(feature = "cross-compile") { &Self::ALL } else { &[] };
        std::iter::once(&Self::HOST).chain(others).find(|target| target.triple == triple).copied()
    }

    /// Returns the platform's name.
    pub fn triple(self) -> &'static str {
        self.triple
    }

    /// Returns the extensions of x86-64-v2 for which Cranelift has code. Code for other architectures uses none.
    fn extensions(self) -> &'static [&'static str] {
        if self.triple.starts_with("x86_64-") {
            &["has_sse3", "has_ssse3", "has_sse41", "has_sse42", "has_popcnt"]
        } else {
            &[]
        }
    }
}

/// A compiler, with the state that all instances of its modules share. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    inner: wasmtime::Engine,
    interrupt_mode: InterruptMode,
    /// The platform whose processors all run the code; `None` for this machine's processor.
    target: Option<Target>,
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
        Self::with(interrupt_mode, (processor == Processor::Baseline).then_some(Target::HOST))
    }

    /// Creates an engine that compiles for all processors of a platform. It can load the code only if the platform is
    /// this program's.
    ///
    /// # Errors
    /// Fails if wasmtime does not support the platform.
    pub fn for_target(interrupt_mode: InterruptMode, target: Target) -> wasmtime::Result<Self> {
        Self::with(interrupt_mode, Some(target))
    }

    fn with(interrupt_mode: InterruptMode, target: Option<Target>) -> wasmtime::Result<Self> {
        let inner = wasmtime::Engine::new(&config(interrupt_mode, target)?)?;
        fault_handlers::record();
        Ok(Self { inner, interrupt_mode, target, quick: Arc::default() })
    }

    /// Returns the mechanism that interrupts instances of this engine.
    pub fn interrupt_mode(&self) -> InterruptMode {
        self.interrupt_mode
    }

    /// Returns a hexadecimal string that identifies the code of this build: engines with equal fingerprints can
    /// exchange compiled code.
    pub fn fingerprint(&self) -> String {
        let mut hasher = DigestHasher(Sha256::new());
        self.inner.precompile_compatibility_hash().hash(&mut hasher);
        self.interrupt_mode.hash(&mut hasher);
        update_versions(&mut hasher.0);
        hex::encode(&hasher.0.finalize()[..16])
    }

    /// Returns a hexadecimal string that identifies the snapshots of this build. Builds with equal strings can exchange
    /// snapshots, for whichever processor they compile: neither memory nor the tables of a guest contain machine code.
    pub fn snapshot_fingerprint() -> String {
        let mut digest = Sha256::new();
        update_versions(&mut digest);
        hex::encode(&digest.finalize()[..16])
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
                    let mut config = config(self.interrupt_mode, self.target)?;
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

fn config(interrupt_mode: InterruptMode, target: Option<Target>) -> wasmtime::Result<Config> {
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
    if let Some(target) = target {
        // With a target, Cranelift uses no extension that is not named.
        config.target(target.triple())?;
        for extension in target.extensions() {
            // SAFETY: before it loads code, wasmtime compares its extensions with those of this machine's processor.
            unsafe { config.cranelift_flag_enable(extension) };
        }
    }
    Ok(config)
}

/// Adds the versions of the formats that this crate writes.
fn update_versions(digest: &mut Sha256) {
    digest.update(env!("CARGO_PKG_VERSION"));
    digest.update(TRANSLATION_VERSION.to_le_bytes());
    digest.update(SNAPSHOT_VERSION.to_le_bytes());
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

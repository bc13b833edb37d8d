//! A running copy of a program: its own memory, files, descriptors and output.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use wasmtime::{AsContextMut, Global, Ref, Store, ThrownException, Trap, UpdateDeadline, Val, WasmParams, WasmResults};

use crate::clock::Clock;
use crate::console::Console;
use crate::dylink::LinkState;
use crate::engine::InterruptMode;
use crate::exports::ShadowStack;
use crate::fs::Filesystem;
use crate::guest_memory::GuestMemory;
use crate::guest_thread::is_guest_thread;
use crate::host::{Host, MainModule};
use crate::limits::{Limits, MemoryBudget, MemoryMeter};
use crate::memory::{MemoryImage, WASM_PAGE, safepoint_page, with_image};
use crate::os::{differing_pages, private_dirty_pages};
use crate::program::{Program, ProgramError};
use crate::snapshot::memory_digest;
use crate::sources::Sources;
use crate::stop::{SafepointPage, StopHandle, StopMechanism};
use crate::termination::Termination;
use crate::working_set::WorkingSet;

/// The configuration of a new instance.
pub struct InstanceConfig {
    /// The files. A restored instance gets those of its snapshot instead; see [`Instance::host_mut`] to change them.
    pub files: Filesystem,
    /// The standard streams.
    pub console: Console,
    /// `NAME=value` strings. A program reads them when it boots; a restored one has read them already.
    pub environment: Vec<String>,
    /// The resource limits.
    pub limits: Limits,
}

impl InstanceConfig {
    /// Returns a configuration with no files and no environment, discarded output and default limits.
    pub fn isolated() -> Self {
        let limits = Limits::default();
        Self { files: Filesystem::new(limits.files), console: Console::closed(), environment: Vec::new(), limits }
    }
}

/// An error in creating or running an instance. After any error of a call, the instance is dead.
#[derive(Debug, thiserror::Error)]
pub enum InstanceError {
    /// A host function ended the program.
    #[error(transparent)]
    Terminated(#[from] Termination),
    /// The program violated a rule of WebAssembly, for example by accessing memory out of bounds.
    #[error("the program crashed: {0}")]
    Trapped(Trap),
    /// The program exceeded its native stack, or its shadow stack.
    #[error("the program ran out of stack")]
    StackOverflow,
    /// A C++ exception or `longjmp` left the program.
    #[error("the program threw an exception that nothing caught")]
    Uncaught,
    /// The program ended or crashed in an earlier call.
    #[error("this instance has ended and cannot be called again")]
    Dead,
    /// The calling thread's stack is too small: see [`crate::guest_thread::run`].
    #[error("the calling thread is not a guest thread: its stack is too small")]
    WrongThread,
    /// wasmtime failed to allocate memory or to provide an import or export.
    #[error("{0:#}")]
    Engine(wasmtime::Error),
    /// A file of the program or a snapshot could not be read.
    #[error("failed to read {path}: {error}")]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The underlying I/O error.
        error: std::io::Error,
    },
    /// The program's initial memory exceeds the memory limit.
    #[error("the program needs {needed} bytes of memory to start, but its limit is {limit}")]
    TooLittleMemory {
        /// The size of the initial memory in bytes.
        needed: u64,
        /// The memory limit in bytes.
        limit: u64,
    },
    /// The snapshot was taken by another build or of another program, or is damaged.
    #[error("failed to use the snapshot: {0}")]
    Snapshot(String),
    /// The program's own files could not be used.
    #[error(transparent)]
    Program(#[from] ProgramError),
}

impl From<wasmtime::Error> for InstanceError {
    fn from(error: wasmtime::Error) -> Self {
        if let Some(termination) = error.downcast_ref::<Termination>() {
            return Self::Terminated(termination.clone());
        }
        match error.downcast_ref::<Trap>() {
            Some(Trap::StackOverflow) => return Self::StackOverflow,
            Some(trap) => return Self::Trapped(*trap),
            None => {}
        }
        if error.is::<ThrownException>() { Self::Uncaught } else { Self::Engine(error) }
    }
}

/// A running copy of a [`Program`]. Dropping it releases everything it holds.
pub struct Instance {
    store: Store<Host>,
    main: MainModule,
    program: Program,
    dead: bool,
    /// Set if an earlier instance used the memory, so that it has most pages of the working set.
    is_reused: bool,
    /// The pages that the first call is expected to write to.
    working_set: Option<WorkingSet>,
}

impl Program {
    /// Creates a new instance, none of whose code has run.
    ///
    /// # Errors
    /// Fails if memory cannot be mapped.
    pub fn instantiate(&self, config: InstanceConfig) -> Result<Instance, InstanceError> {
        let path = self.memory_file();
        let length = self.memory_pages() * WASM_PAGE as u64;
        let image = File::open(&path)
            .and_then(|file| MemoryImage::new(file, 0, length))
            .map_err(|error| InstanceError::File { path, error })?;
        Instance::new(self, &image, config)
    }
}

impl Instance {
    pub(crate) fn new(program: &Program, image: &MemoryImage, config: InstanceConfig) -> Result<Self, InstanceError> {
        let needed = image.len() as u64;
        if needed > config.limits.memory {
            return Err(InstanceError::TooLittleMemory { needed, limit: config.limits.memory });
        }
        let mut host = Host::new(config.files, config.console, config.limits.memory);
        host.environment = config.environment;
        host.linked = LinkState::new(program);
        let mut store = Store::new(program.engine().wasmtime(), host);
        store.limiter(|host| &mut host.memory_budget);
        let stop = store.data().stop.clone();
        if program.engine().interrupt_mode() == InterruptMode::Epoch {
            store.set_epoch_deadline(1);
            store.epoch_deadline_callback(|call| {
                call.data().stop.check()?;
                Ok(UpdateDeadline::Continue(1))
            });
        }
        let (instance, is_reused) = with_image(program.memory_pages(), image, || program.instantiate_main(&mut store));
        let instance = instance?;
        let missing = |name: &str| ProgramError::Missing(name.into());
        let memory = instance.get_memory(&mut store, "memory").ok_or_else(|| missing("memory"))?;
        let table = instance
            .get_table(&mut store, "__indirect_function_table")
            .ok_or_else(|| missing("__indirect_function_table"))?;
        let main = MainModule { instance, memory, table };
        // An image may be larger than the module's own minimum.
        let size = memory.data_size(&store);
        store.data_mut().memory_budget.record(size);
        store.data_mut().main = Some(main);
        let mut this = Self { store, main, program: program.clone(), dead: false, is_reused, working_set: None };
        this.arm(&stop)?;
        this.instantiate_helpers()?;
        Ok(this)
    }

    /// Gives the stop handle its means of stopping this instance.
    fn arm(&mut self, stop: &StopHandle) -> Result<(), InstanceError> {
        let trigger = match self.program.engine().interrupt_mode() {
            InterruptMode::Epoch => StopMechanism::Epoch(self.program.engine().wasmtime().clone()),
            InterruptMode::Safepoint => {
                // SAFETY: the program's memory comes from this crate's memory creator, is mapped until the store is
                // dropped, and never moves.
                let (address, length) = unsafe { safepoint_page(self.main.memory.data_ptr(&self.store)) };
                // SAFETY: the mapping lives as long as the store, and `Drop for Instance` disarms the stop handle
                // before the store is dropped. The page lies beyond the maximum size of memory, so host functions
                // refuse to access it: only guest code does.
                StopMechanism::Page(unsafe { SafepointPage::new(address, length) })
            }
        };
        stop.arm(trigger);
        Ok(())
    }

    fn instantiate_helpers(&mut self) -> Result<(), InstanceError> {
        let program = self.program.clone();
        let (helpers, mut slot) = program.helpers();
        for (module, exports) in helpers {
            let mut imports = Vec::new();
            for import in module.imports() {
                imports.push(match (import.module(), import.name()) {
                    ("env", "memory") => self.main.memory.into(),
                    ("env", "__indirect_function_table") => self.main.table.into(),
                    (from, name) => program.linker().get(&mut self.store, from, name)?,
                });
            }
            let helper = wasmtime::Instance::new(&mut self.store, module, &imports)?;
            for export in exports {
                let function = helper.get_func(&mut self.store, export);
                let function = function.ok_or_else(|| ProgramError::Missing(export.clone()))?;
                self.main.table.set(&mut self.store, slot.into(), Ref::Func(Some(function)))?;
                slot += 1;
            }
        }
        Ok(())
    }

    /// Calls an exported function. Must be called on a guest thread ([`crate::guest_thread::run`]).
    ///
    /// # Errors
    /// Fails if the program has no export of that name and type, or does not return from it; it is dead in the latter
    /// case.
    pub fn call<P: WasmParams, R: WasmResults>(&mut self, export: &str, parameters: P) -> Result<R, InstanceError> {
        if self.dead {
            return Err(InstanceError::Dead);
        }
        if !is_guest_thread() {
            return Err(InstanceError::WrongThread);
        }
        let function = self.main.instance.get_typed_func::<P, R>(&mut self.store, export)?;
        self.prefault_working_set();
        // Set until the call returns, so that the instance stays dead if the host panics during the call.
        self.dead = true;
        let result = function.call(&mut self.store, parameters).map_err(|error| self.explain(error))?;
        self.dead = false;
        Ok(result)
    }

    /// Sets the pages that the first call is expected to write to.
    pub(crate) fn set_working_set(&mut self, working_set: &WorkingSet) {
        self.working_set = (!self.is_reused).then(|| working_set.clone());
    }

    /// Prefaults the working set before the first call. Restoring does not do this, so that an instance that is never
    /// called costs next to nothing.
    fn prefault_working_set(&mut self) {
        if let Some(working_set) = self.working_set.take() {
            self.prefault(&working_set);
        }
    }

    /// Has the kernel copy pages that are about to be written to.
    pub(crate) fn prefault(&mut self, pages: &WorkingSet) {
        let (base, length) = (self.main.memory.data_ptr(&self.store), self.main.memory.data_size(&self.store));
        // SAFETY: this is the program's linear memory, which is mapped completely and is writable.
        unsafe { pages.prefault(base, length) };
    }

    /// Returns the pages of memory that were written to since this instance was restored.
    pub(crate) fn written_pages(&self) -> std::io::Result<WorkingSet> {
        WorkingSet::from_written_pages(self.main.memory.data_ptr(&self.store), self.main.memory.data_size(&self.store))
    }

    /// Returns the first page and length of each run of pages that may have been written to since this instance was
    /// restored from `image`: on systems that do not report them, those that differ.
    pub(crate) fn dirty_page_runs(&self, image: &[u8]) -> Vec<(u32, u32)> {
        let memory = self.main.memory.data(&self.store);
        private_dirty_pages(memory.as_ptr(), memory.len()).unwrap_or_else(|_| differing_pages(memory, image))
    }

    /// Converts an engine error to the error of this instance.
    fn explain(&mut self, error: wasmtime::Error) -> InstanceError {
        match InstanceError::from(error) {
            InstanceError::Trapped(Trap::UnreachableCodeReached) if self.shadow_stack_overflowed() => {
                InstanceError::StackOverflow
            }
            // A stop arrives as a trap: a safepoint's load faults. A trap that the program causes itself at the same
            // time ends it as well, so it need not be distinguished.
            InstanceError::Trapped(_) if self.store.data().stop.stopped() => Termination::Stopped.into(),
            other => other,
        }
    }

    /// Returns whether the stack pointer is below the shadow stack, as after a trap of the translator's stack checks.
    fn shadow_stack_overflowed(&mut self) -> bool {
        let stack = ShadowStack::current(&mut self.store.as_context_mut());
        stack.is_ok_and(|stack| stack.top() < stack.end())
    }

    /// Clears the shadow stack below the stack pointer, where earlier calls have left values. Called between calls.
    ///
    /// # Errors
    /// Fails if the program has no shadow stack.
    pub fn clear_unused_stack(&mut self) -> Result<(), InstanceError> {
        let stack = ShadowStack::current(&mut self.store.as_context_mut())?;
        let unused = stack.end()..stack.top();
        // Without an export of its lowest address, the stack's extent is unknown.
        if stack.end() > 0
            && let Ok(bytes) = self.memory().slice_mut(unused.start, unused.len() as u32)
        {
            bytes.fill(0);
        }
        Ok(())
    }

    /// Returns the value of an exported `i32` global, which for data is its address.
    ///
    /// # Errors
    /// Fails if the program has no such export.
    pub fn global(&mut self, export: &str) -> Result<u32, InstanceError> {
        match self.exported_global(export)?.get(&mut self.store) {
            Val::I32(value) => Ok(value.cast_unsigned()),
            _ => Err(ProgramError::Missing(export.into()).into()),
        }
    }

    pub(crate) fn exported_global(&mut self, export: &str) -> Result<Global, InstanceError> {
        let global = self.main.instance.get_global(&mut self.store, export);
        Ok(global.ok_or_else(|| ProgramError::Missing(export.into()))?)
    }

    /// Returns the table slot of a helper module's export, counted from the first export of the first helper module.
    pub fn helper_slot(&self, index: u32) -> u32 {
        self.program.helpers().1 + index
    }

    /// Returns the guest's memory.
    pub fn memory(&mut self) -> GuestMemory<'_> {
        GuestMemory::new(self.main.memory.data_mut(&mut self.store))
    }

    /// Returns the files, console and clocks.
    pub fn host(&self) -> &Host {
        self.store.data()
    }

    /// Returns the files, console and clocks for changes between calls.
    pub fn host_mut(&mut self) -> &mut Host {
        self.store.data_mut()
    }

    /// Makes the clocks, the times of files and the random bytes of this instance the same in every instance that makes
    /// the same calls. Copies of the instance do not inherit this.
    ///
    /// The random bytes are public: state that the program derives from them must not be used.
    pub fn make_reproducible(&mut self) {
        let host = self.host_mut();
        let before = host.clock.before();
        let sources = Sources::reproducible(before);
        host.clock.set_sources(sources.clone());
        host.files.set_sources(sources);
        if before.is_zero() {
            // The instance is not a copy: its files were created a moment ago.
            host.files.reset_times();
        }
    }

    /// Returns a digest of the program and of the contents of memory: deltas of copies of this instance can be applied
    /// to any instance with an equal digest.
    pub fn memory_digest(&self) -> [u8; 32] {
        memory_digest(self.program.identity(), self.main.memory.data(&self.store))
    }

    /// Returns the handle that stops this instance from any thread.
    pub fn stop_handle(&self) -> Arc<StopHandle> {
        self.store.data().stop.clone()
    }

    /// Returns the largest size that linear memory has had, in bytes.
    pub fn peak_memory(&self) -> u64 {
        self.store.data().memory_budget.peak() as u64
    }

    /// Counts linear memory with `meter` from now on, until the instance is dropped.
    pub fn set_memory_meter(&mut self, meter: Arc<dyn MemoryMeter>) {
        let bytes = self.main.memory.data_size(&self.store) as u64;
        self.store.data_mut().memory_budget.set_meter(meter, bytes);
    }

    /// Returns whether the program has ended or crashed.
    pub fn is_dead(&self) -> bool {
        self.dead
    }

    /// Returns the program that this instance is a copy of.
    pub fn program(&self) -> &Program {
        &self.program
    }

    pub(crate) fn parts(&mut self) -> (&mut Store<Host>, MainModule) {
        (&mut self.store, self.main)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // After this, the store's memories are unmapped or reused, so the safepoint page must not be protected any
        // more.
        self.store.data().stop.disarm();
    }
}

impl Host {
    /// Creates a host with its own stop handle and memory budget, without a module.
    pub fn new(files: Filesystem, console: Console, memory_limit: u64) -> Self {
        Self {
            files,
            console,
            clock: Clock::starting_at(Duration::ZERO),
            environment: Vec::new(),
            stop: Arc::default(),
            embedder: None,
            network: None,
            memory_budget: MemoryBudget::new(memory_limit),
            linked: LinkState::default(),
            closures: crate::ffi::Closures::default(),
            mapped_files: std::collections::BTreeMap::new(),
            main: None,
        }
    }

    pub(crate) fn empty() -> Self {
        Self::new(Filesystem::new(crate::fs::Quota::default()), Console::closed(), 0)
    }
}

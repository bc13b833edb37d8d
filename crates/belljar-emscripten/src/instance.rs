//! One running copy of a program: its own memory, files, descriptors and output.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use wasmtime::{Global, Ref, Store, ThrownException, Trap, UpdateDeadline, Val, WasmParams, WasmResults};

use crate::clock::Clock;
use crate::console::Console;
use crate::dylink::Linked;
use crate::engine::HardStop;
use crate::fs::Filesystem;
use crate::guest::GuestMemory;
use crate::host::{Host, MainModule, Termination};
use crate::limits::{Limits, MemoryBudget};
use crate::memory::{MemoryImage, safepoint_page, with_image};
use crate::pagemap::{PAGE, own_pages};
use crate::program::{Program, ProgramError};
use crate::stop::{SafepointPage, Stop, Trigger};
use crate::thread::is_guest_thread;
use crate::working_set::WorkingSet;

/// What an instance is given at its start.
pub struct Setup {
    /// Its files. A restored instance gets those of its snapshot instead; see [`Instance::host_mut`] to change them.
    pub files: Filesystem,
    /// Its standard streams.
    pub console: Console,
    /// `NAME=value` strings. A program reads them when it boots: a restored one has read them already.
    pub environment: Vec<String>,
    /// What it may use.
    pub limits: Limits,
}

impl Setup {
    /// Empty files and environment, output dropped, default limits.
    pub fn sealed() -> Self {
        let limits = Limits::default();
        Self { files: Filesystem::new(limits.files), console: Console::closed(), environment: Vec::new(), limits }
    }
}

/// Why an instance could not be made, or could not go on. After any of these from a call, it is dead.
#[derive(Debug, thiserror::Error)]
pub enum InstanceError {
    /// A host function ended the program.
    #[error(transparent)]
    Terminated(#[from] Termination),
    /// The program did what wasm does not allow, such as touching memory outside of its own.
    #[error("the program crashed: {0}")]
    Trapped(Trap),
    /// It used more native stack than it may.
    #[error("the program ran out of stack")]
    StackOverflow,
    /// A C++ exception or `longjmp` left the program.
    #[error("the program threw an exception that nothing caught")]
    Uncaught,
    /// It ended or crashed in an earlier call.
    #[error("this instance has ended and cannot be called again")]
    Dead,
    /// The calling thread's stack is too small: see [`crate::thread::run`].
    #[error("instances run on guest threads only; this thread's stack is too small")]
    WrongThread,
    /// Memory, an import or an export could not be had.
    #[error("{0:#}")]
    Engine(wasmtime::Error),
    /// A file of the program or a snapshot could not be used.
    #[error("cannot use {path}: {error}")]
    File {
        /// The file.
        path: PathBuf,
        /// What happened.
        error: std::io::Error,
    },
    /// It would not fit into the memory that it may use.
    #[error("{given} bytes of memory are too few to start in: it takes {needed}")]
    TooLittleMemory {
        /// Bytes of memory that it has from the start.
        needed: u64,
        /// Bytes that it may use.
        given: u64,
    },
    /// The snapshot was taken by another build or of another program.
    #[error("the snapshot does not fit: {0}")]
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

/// A running copy of a [`Program`]. Dropped, it leaves nothing behind.
pub struct Instance {
    store: Store<Host>,
    main: MainModule,
    program: Program,
    dead: bool,
    /// The pages that the first call is going to write to.
    expected: Option<WorkingSet>,
}

impl Instance {
    pub(crate) fn new(program: &Program, image: &MemoryImage, setup: Setup) -> Result<Self, InstanceError> {
        let needed = image.len() as u64;
        if needed > setup.limits.memory {
            return Err(InstanceError::TooLittleMemory { needed, given: setup.limits.memory });
        }
        let mut host = Host::new(setup.files, setup.console, setup.limits.memory);
        host.environment = setup.environment;
        host.linked = Linked::new(program);
        let mut store = Store::new(program.engine().wasmtime(), host);
        store.limiter(|host| &mut host.memory_budget);
        let stop = store.data().stop.clone();
        if program.engine().hard_stop() == HardStop::Epoch {
            store.set_epoch_deadline(1);
            store.epoch_deadline_callback(|call| {
                call.data().stop.check()?;
                Ok(UpdateDeadline::Continue(1))
            });
        }
        let instance = with_image(program.memory_pages(), image, || program.instantiate_main(&mut store))?;
        let missing = |name: &str| ProgramError::Missing(name.into());
        let memory = instance.get_memory(&mut store, "memory").ok_or_else(|| missing("memory"))?;
        let table = instance
            .get_table(&mut store, "__indirect_function_table")
            .ok_or_else(|| missing("__indirect_function_table"))?;
        let main = MainModule { instance, memory, table };
        // An image may be larger than the module's own minimum.
        let size = memory.data_size(&store);
        store.data_mut().memory_budget.note(size);
        store.data_mut().main = Some(main);
        let mut this = Self { store, main, program: program.clone(), dead: false, expected: None };
        this.arm(&stop)?;
        this.place_residents()?;
        Ok(this)
    }

    /// Tells the stop switch how to reach this instance.
    fn arm(&mut self, stop: &Stop) -> Result<(), InstanceError> {
        let trigger = match self.program.engine().hard_stop() {
            HardStop::Epoch => Trigger::Epoch(self.program.engine().wasmtime().clone()),
            HardStop::Safepoint => {
                // SAFETY: the program's memory comes from this crate's creator, is mapped until the store is dropped,
                // and never moves.
                let (address, length) = unsafe { safepoint_page(self.main.memory.data_ptr(&self.store)) };
                // SAFETY: the mapping lives as said above, and `Drop for Instance` disarms before it goes. The page lies
                // beyond what memory can grow to, so that host functions refuse to touch it: only guest code does.
                Trigger::Page(unsafe { SafepointPage::new(address, length) })
            }
        };
        stop.arm(trigger);
        Ok(())
    }

    fn place_residents(&mut self) -> Result<(), InstanceError> {
        let program = self.program.clone();
        let (residents, mut slot) = program.residents();
        for (module, exports) in residents {
            let mut imports = Vec::new();
            for import in module.imports() {
                imports.push(match (import.module(), import.name()) {
                    ("env", "memory") => self.main.memory.into(),
                    ("env", "__indirect_function_table") => self.main.table.into(),
                    (from, name) => program.linker().get(&mut self.store, from, name)?,
                });
            }
            let resident = wasmtime::Instance::new(&mut self.store, module, &imports)?;
            for export in exports {
                let function = resident.get_func(&mut self.store, export);
                let function = function.ok_or_else(|| ProgramError::Missing(export.clone()))?;
                self.main.table.set(&mut self.store, slot.into(), Ref::Func(Some(function)))?;
                slot += 1;
            }
        }
        Ok(())
    }

    /// Calls an exported function. Must be on a guest thread ([`crate::thread::run`]).
    ///
    /// # Errors
    /// When there is no such export of that type, or the program did not return: it is dead then.
    pub fn call<P: WasmParams, R: WasmResults>(&mut self, export: &str, parameters: P) -> Result<R, InstanceError> {
        if self.dead {
            return Err(InstanceError::Dead);
        }
        if !is_guest_thread() {
            return Err(InstanceError::WrongThread);
        }
        let function = self.main.instance.get_typed_func::<P, R>(&mut self.store, export)?;
        self.prepare();
        // Set until the call returns, so that a panic of the host in between leaves it set.
        self.dead = true;
        let result = function.call(&mut self.store, parameters).map_err(|error| self.explain(error))?;
        self.dead = false;
        Ok(result)
    }

    /// The first call is going to write to these pages.
    pub(crate) fn expect_writes(&mut self, expected: WorkingSet) {
        self.expected = Some(expected);
    }

    /// The first time, has the pages copied that are going to be written to. Not done when the instance is restored:
    /// one that is never called shall cost next to nothing.
    fn prepare(&mut self) {
        if let Some(expected) = self.expected.take() {
            self.copy_ahead(&expected);
        }
    }

    /// Has pages copied that are about to be written to.
    pub(crate) fn copy_ahead(&mut self, pages: &WorkingSet) {
        let (base, length) = (self.main.memory.data_ptr(&self.store), self.main.memory.data_size(&self.store));
        // SAFETY: this is the program's linear memory, which is mapped whole and can be written to.
        unsafe { pages.prepare(base, length) };
    }

    /// The pages of memory that were written to since this instance was restored.
    pub(crate) fn written_pages(&self) -> std::io::Result<WorkingSet> {
        WorkingSet::observed(self.main.memory.data_ptr(&self.store), self.main.memory.data_size(&self.store))
    }

    /// First page and length of each run of pages that may have been written to since this instance was restored; all of
    /// them where the system does not tell.
    pub(crate) fn may_have_written(&self) -> Vec<(u32, u32)> {
        let (base, length) = (self.main.memory.data_ptr(&self.store), self.main.memory.data_size(&self.store));
        let all = u32::try_from(length / PAGE).unwrap_or(u32::MAX);
        own_pages(base, length).unwrap_or_else(|_| vec![(0, all)])
    }

    /// What an error of the engine means for this instance.
    fn explain(&self, error: wasmtime::Error) -> InstanceError {
        match InstanceError::from(error) {
            // A safepoint's load faulted: that is how a stop arrives. A fault of the program's own making at the
            // same time ends it all the same.
            InstanceError::Trapped(_) if self.store.data().stop.stopped() => Termination::Stopped.into(),
            other => other,
        }
    }

    /// The value of an exported `i32` global, which for data is its address.
    ///
    /// # Errors
    /// When there is no such export.
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

    /// The table slot of a resident's export, counted from the first export of the first resident.
    pub fn resident_slot(&self, index: u32) -> u32 {
        self.program.residents().1 + index
    }

    /// The guest's memory.
    pub fn memory(&mut self) -> GuestMemory<'_> {
        GuestMemory::new(self.main.memory.data_mut(&mut self.store))
    }

    /// Files, console and clocks.
    pub fn host(&self) -> &Host {
        self.store.data()
    }

    /// Files, console and clocks, to be changed between calls.
    pub fn host_mut(&mut self) -> &mut Host {
        self.store.data_mut()
    }

    /// The switch that stops this instance, from any thread.
    pub fn stop_switch(&self) -> Arc<Stop> {
        self.store.data().stop.clone()
    }

    /// Most bytes of linear memory that it has had.
    pub fn peak_memory(&self) -> u64 {
        self.store.data().memory_budget.peak() as u64
    }

    /// Whether it has ended or crashed.
    pub fn is_dead(&self) -> bool {
        self.dead
    }

    /// The program it is a copy of.
    pub fn program(&self) -> &Program {
        &self.program
    }

    pub(crate) fn parts(&mut self) -> (&mut Store<Host>, MainModule) {
        (&mut self.store, self.main)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // The store's memories are unmapped, or used by others, after this; nobody may close the safepoint page from then on.
        self.store.data().stop.disarm();
    }
}

impl Host {
    /// A host with its own switch and budget, before any module is there.
    pub fn new(files: Filesystem, console: Console, memory_limit: u64) -> Self {
        Self {
            files,
            console,
            clock: Clock::starting_at(Duration::ZERO),
            environment: Vec::new(),
            stop: Arc::default(),
            embedder: None,
            memory_budget: MemoryBudget::new(memory_limit),
            linked: Linked::default(),
            closures: crate::ffi::Closures::default(),
            mapped_files: std::collections::BTreeMap::new(),
            main: None,
        }
    }

    pub(crate) fn empty() -> Self {
        Self::new(Filesystem::new(crate::fs::Quota::default()), Console::closed(), 0)
    }
}

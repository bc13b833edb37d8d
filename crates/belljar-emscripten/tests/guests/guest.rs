//! Compiles, starts and calls a guest.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use belljar_emscripten::dylink::{Libraries, Library, LibraryError};
use belljar_emscripten::fs::{FileBytes, Layer, LayerBuilder};
use belljar_emscripten::program::Source;
use belljar_emscripten::translate::{self, Options};
use belljar_emscripten::wasmtime::{self, Module, WasmResults};
use belljar_emscripten::{
    CompileTier, Engine, Instance, InstanceConfig, InstanceError, InterruptMode, Program, Snapshot, WorkingSet,
    guest_thread, snapshot,
};
use sha2::{Digest, Sha256};

/// The definitions that all guests share: memory, table, tags, a stack from 64 KiB down to 16 KiB, a heap from 128 KiB
/// up that is never freed, and `__dl_seterr`, which stores the message at 8192.
const PRELUDE: &str = r#"
  (memory (export "memory") 64 256)
  (table (export "__indirect_function_table") 8 funcref)
  (global $stack (export "__stack_pointer") (mut i32) (i32.const 65536))
  (global (export "__stack_low") i32 (i32.const 16384))
  (global $heap (mut i32) (i32.const 131072))
  (tag $cpp (export "__cpp_exception") (param i32))
  (tag $longjmp (export "__c_longjmp") (param i32))
  (func $malloc (export "malloc") (param $size i32) (result i32)
    global.get $heap
    global.get $heap local.get $size i32.add i32.const 15 i32.add i32.const -16 i32.and global.set $heap)
  (func (export "calloc") (param i32 i32) (result i32) local.get 0 local.get 1 i32.mul call $malloc)
  (func (export "free") (param i32))
  (func (export "__dl_seterr") (param i32 i32) i32.const 8192 local.get 0 i32.const 1001 memory.copy)
"#;
/// The address where `__dl_seterr` stores the message.
const DLERROR: u32 = 8192;

/// Assembles a module with the prelude between its `imports` and its `body`.
pub(crate) fn module(imports: &str, body: &str) -> Vec<u8> {
    assemble(&format!("(module {imports} {PRELUDE} {body})"))
}

pub(crate) fn assemble(text: &str) -> Vec<u8> {
    wat::parse_str(text).unwrap_or_else(|error| panic!("{error}"))
}

thread_local! {
    /// True if the functions of libraries are compiled when they are called.
    static IS_LAZY: Cell<bool> = const { Cell::new(false) };
}

/// A compiler of libraries that counts its calls.
pub(crate) struct Compiler {
    engine: Engine,
    is_lazy: bool,
    pub(crate) compiled: AtomicUsize,
}

impl Compiler {
    /// Compiles a library whose functions are compiled when they are called.
    fn lazy_library(&self, bytes: &[u8]) -> Result<Arc<Library>, LibraryError> {
        let directory = tempfile::tempdir().unwrap();
        Library::compile(&self.engine, CompileTier::Quick, bytes, directory.path())?;
        assert!(directory.path().join("library.functions").exists(), "the functions were compiled at once");
        self.compiled.fetch_add(1, Ordering::Relaxed);
        // SAFETY: `Library::compile` just wrote the files, and no other code has access to the directory.
        Ok(Arc::new(unsafe { Library::open(&self.engine, directory.path()) }?))
    }
}

impl Libraries for Compiler {
    fn library(&self, bytes: &FileBytes) -> Result<Arc<Library>, LibraryError> {
        if self.is_lazy {
            return self.lazy_library(bytes);
        }
        let options = Options { safepoints: true, stack_checks: true, ..Options::default() };
        let not_side = |error: String| LibraryError::NotASideModule(error);
        let translated = translate::translate(bytes, &options).map_err(|error| not_side(error.to_string()))?;
        let dylink = translated.dylink.ok_or_else(|| not_side("no dylink.0".into()))?;
        let module = Module::new(self.engine.wasmtime(), &translated.wasm);
        let module = module.map_err(|error| LibraryError::Compile(format!("{error:#}")))?;
        self.compiled.fetch_add(1, Ordering::Relaxed);
        let hash = Sha256::digest(bytes).into();
        let data = translated.segments.into_iter().map(Into::into).collect();
        Ok(Arc::new(Library::new(hash, module, data, translated.symbols, dylink)?))
    }
}

/// A running guest with libraries installed.
pub(crate) struct Guest {
    pub(crate) instance: Instance,
    pub(crate) compiler: Arc<Compiler>,
    pub(crate) layer: Arc<Layer>,
}

impl Guest {
    /// Starts `wasm` with `files` installed. Keeps only the exports in `keep` and those that the host needs.
    pub(crate) fn start(wasm: &[u8], keep: &[&str], files: &[(&str, Vec<u8>)]) -> Self {
        Self::start_with(wasm, keep, files, |_| {})
    }

    pub(crate) fn start_with(
        wasm: &[u8],
        keep: &[&str],
        files: &[(&str, Vec<u8>)],
        change: impl FnOnce(&mut InstanceConfig),
    ) -> Self {
        let engine = Engine::new(InterruptMode::Safepoint).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let keep: BTreeSet<String> = keep.iter().map(|&name| name.to_owned()).collect();
        let options = Options { keep_exports: Some(keep), safepoints: true, stack_checks: true, ..Options::default() };
        let source = Source { wasm, options, helpers: vec![] };
        Program::compile(&engine, &source, directory.path()).unwrap();
        let is_lazy = IS_LAZY.get();
        let compiler = Arc::new(Compiler { engine: engine.clone(), is_lazy, compiled: AtomicUsize::new(0) });
        // SAFETY: `Program::compile` just wrote the files, and no other code has access to the directory.
        let program = unsafe { Program::open(&engine, directory.path(), Some(compiler.clone()), |_| Ok(())) }.unwrap();
        // The symbols are read on first use, which may be after the directory is removed.
        program.symbols().unwrap();

        let mut layer = LayerBuilder::new();
        for (path, bytes) in files {
            layer.file(path, bytes.clone()).unwrap();
        }
        let layer = layer.finish("libraries");
        let mut config = InstanceConfig::isolated();
        config.files.add_layer(layer.clone());
        change(&mut config);
        let instance = program.instantiate(config).unwrap();
        Self { instance, compiler, layer }
    }

    pub(crate) fn call<R: WasmResults>(&mut self, export: &str, parameters: impl wasmtime::WasmParams) -> R {
        self.try_call(export, parameters).unwrap()
    }

    pub(crate) fn try_call<R: WasmResults>(
        &mut self,
        export: &str,
        parameters: impl wasmtime::WasmParams,
    ) -> Result<R, InstanceError> {
        self.instance.call(export, parameters)
    }

    /// Allocates guest memory and copies `bytes` into it.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> u32 {
        let address = self.call("malloc", bytes.len() as u32);
        self.instance.memory().write(address, bytes).unwrap();
        address
    }

    pub(crate) fn put_words(&mut self, words: &[u32]) -> u32 {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.put(&bytes)
    }

    pub(crate) fn word(&mut self, address: u32) -> u32 {
        self.instance.memory().read_u32(address).unwrap()
    }

    /// Calls `dlopen` as libc does. Returns the handle, or the message of `dlerror`.
    pub(crate) fn open(&mut self, path: &str, flags: u32) -> Result<u32, String> {
        let mut dso = vec![0; 36];
        dso[4..8].copy_from_slice(&flags.to_le_bytes());
        dso.extend(path.bytes());
        dso.push(0);
        let handle = self.put(&dso);
        match self.call::<i32>("open", handle) {
            1 => Ok(handle),
            _ => Err(self.dlerror()),
        }
    }

    /// Calls `dlsym`.
    pub(crate) fn symbol(&mut self, handle: u32, name: &str) -> Result<u32, String> {
        let name = self.put(format!("{name}\0").as_bytes());
        match self.call("symbol", (handle, name)) {
            0 => Err(self.dlerror()),
            address => Ok(address),
        }
    }

    /// Calls the function `name`, without parameters, of a library.
    pub(crate) fn run(&mut self, handle: u32, name: &str) -> i32 {
        let function = self.symbol(handle, name).unwrap();
        self.call("call", function)
    }

    fn dlerror(&mut self) -> String {
        let memory = self.instance.memory();
        String::from_utf8(memory.c_bytes(DLERROR, 1001).unwrap().to_vec()).unwrap()
    }

    /// Takes a snapshot and starts a copy of it.
    pub(crate) fn copy(&mut self) -> Result<Self, InstanceError> {
        let file = snapshot::anonymous_file().unwrap();
        self.instance.snapshot(&file, vec![], WorkingSet::default())?;
        let program = self.instance.program().clone();
        let snapshot = Snapshot::open(file, &program, std::slice::from_ref(&self.layer))?;
        let instance = program.restore(&snapshot, InstanceConfig::isolated())?;
        Ok(Self { instance, compiler: self.compiler.clone(), layer: self.layer.clone() })
    }
}

/// Runs a test on a guest thread: with libraries that are compiled at once, and with libraries whose functions are
/// compiled when they are called.
pub(crate) fn on_guest_thread(test: impl Fn() + Sync) {
    for is_lazy in [false, true] {
        let run = || {
            IS_LAZY.set(is_lazy);
            test();
        };
        guest_thread::run("test", run).unwrap();
    }
}

//! Tests of system calls as a guest makes them: by name, with numbers, in its memory.

mod descriptors;
mod files;
mod hostile;

use std::io::Cursor;

use wasmtime::{Engine, Extern, ExternType, Linker, Module, Store, Val, ValType};

use crate::Errno;
use crate::console::{Capture, Console, Stream};
use crate::fs::{AT_FDCWD, Filesystem, LayerBuilder, Quota};
use crate::guest_memory::{GuestMemory, Ptr};
use crate::host::{Host, MainModule};
use crate::stop::StopReason;
use crate::termination::Termination;

const WASI: &str = "wasi_snapshot_preview1";

/// The addresses where the tests put paths and buffers.
const PATH: Ptr = 1024;
const OTHER_PATH: Ptr = 8192;
const BUFFER: Ptr = 16_384;
/// The address where the module's allocator puts a mapping.
const MAPPING: Ptr = 131_072;

/// A module with memory and an allocator that has room for one mapping.
const MODULE: &str = r#"(module
    (memory (export "memory") 4)
    (table (export "__indirect_function_table") 4 funcref)
    (global (export "__stack_pointer") (mut i32) (i32.const 65536))
    (func (export "emscripten_builtin_memalign") (param i32 i32) (result i32)
        (select (i32.const 131072) (i32.const 0) (i32.le_u (local.get 1) (i32.const 131072))))
    (func (export "malloc") (param i32) (result i32) (i32.const 0))
    (func (export "free") (param i32))
)"#;

struct Machine {
    store: Store<Host>,
    linker: Linker<Host>,
    main: MainModule,
    output: Capture,
}

impl Machine {
    fn new() -> Self {
        Self::with_input("")
    }

    fn with_input(input: &'static str) -> Self {
        let engine = Engine::default();
        let output = Capture::default();
        let console = Console::new(Box::new(output.clone()), Box::new(Cursor::new(input)), 100);
        let host = Host::new(Filesystem::new(Quota::default()), console, 1 << 20);
        let mut store = Store::new(&engine, host);
        let mut linker = Linker::new(&engine);
        crate::syscall::define(&mut linker).unwrap();
        let module = Module::new(&engine, wat::parse_str(MODULE).unwrap()).unwrap();
        let instance = linker.instantiate(&mut store, &module).unwrap();
        let memory = instance.get_memory(&mut store, "memory").unwrap();
        let table = instance.get_table(&mut store, "__indirect_function_table").unwrap();
        let main = MainModule { instance, memory, table };
        store.data_mut().main = Some(main);
        Self { store, linker, main, output }
    }

    fn files(&mut self) -> &mut Filesystem {
        &mut self.store.data_mut().files
    }

    fn memory(&mut self) -> GuestMemory<'_> {
        GuestMemory::new(self.main.memory.data_mut(&mut self.store))
    }

    /// Calls an import; numbers are converted to its parameter types.
    fn call(&mut self, module: &str, name: &str, arguments: &[i64]) -> wasmtime::Result<Option<i64>> {
        let Ok(Extern::Func(function)) = self.linker.get(&mut self.store, module, name) else {
            panic!("there is no {name}")
        };
        let kind = function.ty(&self.store);
        assert_eq!(kind.params().len(), arguments.len(), "{name}");
        let arguments: Vec<Val> = kind.params().zip(arguments).map(|(kind, &value)| convert(&kind, value)).collect();
        let mut results = vec![Val::I32(0); kind.results().len()];
        function.call(&mut self.store, &arguments, &mut results)?;
        Ok(results.first().and_then(|result| match result {
            Val::I32(value) => Some(i64::from(*value)),
            Val::I64(value) => Some(*value),
            _ => None,
        }))
    }

    /// Calls `env.__syscall_NAME`.
    fn syscall(&mut self, name: &str, arguments: &[i64]) -> Result<i64, i64> {
        let result = self.call("env", &format!("__syscall_{name}"), arguments).unwrap().unwrap();
        if result < 0 { Err(result) } else { Ok(result) }
    }

    /// Calls `wasi_snapshot_preview1.NAME`.
    fn wasi(&mut self, name: &str, arguments: &[i64]) -> i32 {
        self.call(WASI, name, arguments).unwrap().unwrap() as i32
    }

    fn path(&mut self, path: &str) -> i64 {
        self.text(PATH, path)
    }

    fn text(&mut self, at: Ptr, text: &str) -> i64 {
        self.memory().write(at, text.as_bytes()).unwrap();
        self.memory().write_u8(at + text.len() as u32, 0).unwrap();
        i64::from(at)
    }

    /// Creates a file and opens it for reading and writing.
    fn open(&mut self, path: &str) -> i64 {
        let path = self.path(path);
        self.memory().write_u32(512, 0o666).unwrap();
        self.syscall("openat", &[i64::from(AT_FDCWD), path, 0o102, 512]).unwrap()
    }

    /// Writes a list of buffers to `at`.
    fn buffers(&mut self, at: Ptr, buffers: &[(Ptr, u32)]) {
        for (index, (start, length)) in (0..).zip(buffers) {
            self.memory().write_u32(at + 8 * index, *start).unwrap();
            self.memory().write_u32(at + 8 * index + 4, *length).unwrap();
        }
    }
}

fn convert(kind: &ValType, value: i64) -> Val {
    match kind {
        ValType::I32 => Val::I32(value as i32),
        ValType::I64 => Val::I64(value),
        ValType::F32 => Val::F32((value as f32).to_bits()),
        ValType::F64 => Val::F64((value as f64).to_bits()),
        ValType::Ref(_) | ValType::V128 => Val::null_extern_ref(),
    }
}

const CWD: i64 = AT_FDCWD as i64;

fn refused(errno: Errno) -> Result<i64, i64> {
    Err(i64::from(errno.negative()))
}

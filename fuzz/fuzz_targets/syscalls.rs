//! Calls the system interface with arbitrary arguments. Each instance receives many calls, so that later calls can
//! misuse the descriptors, mappings and directories of earlier ones. A call may return an errno, trap or end the
//! program, but it must not panic or access memory of the host (the address sanitizer, which is on by default, detects
//! that).

#![no_main]

use std::fmt::Write;
use std::sync::{LazyLock, OnceLock};

use arbitrary::Arbitrary;
use belljar_emscripten::fs::{Filesystem, LayerBuilder, Quota};
use belljar_emscripten::program::Source;
use belljar_emscripten::translate::Options;
use belljar_emscripten::{Engine, InstanceConfig, InstanceError, InterruptMode, Program, guest_thread};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

/// The imports and their parameters: `i` for 32 bits, `I` for 64 bits. All of them return 32 bits.
const IMPORTS: &[(&str, &str, &str)] = &[
    ("env", "__syscall_chdir", "i"),
    ("env", "__syscall_chmod", "ii"),
    ("env", "__syscall_dup", "i"),
    ("env", "__syscall_dup3", "iii"),
    ("env", "__syscall_faccessat", "iiii"),
    ("env", "__syscall_fadvise64", "iIIi"),
    ("env", "__syscall_fallocate", "iiII"),
    ("env", "__syscall_fchdir", "i"),
    ("env", "__syscall_fchmod", "ii"),
    ("env", "__syscall_fchmodat2", "iiii"),
    ("env", "__syscall_fchown32", "iii"),
    ("env", "__syscall_fchownat", "iiiii"),
    ("env", "__syscall_fcntl64", "iii"),
    ("env", "__syscall_fdatasync", "i"),
    ("env", "__syscall_fstat64", "ii"),
    ("env", "__syscall_fstatfs64", "iii"),
    ("env", "__syscall_ftruncate64", "iI"),
    ("env", "__syscall_getcwd", "ii"),
    ("env", "__syscall_getdents64", "iii"),
    ("env", "__syscall_ioctl", "iii"),
    ("env", "__syscall_lstat64", "ii"),
    ("env", "__syscall_mkdirat", "iii"),
    ("env", "__syscall_mknodat", "iiii"),
    ("env", "__syscall_newfstatat", "iiii"),
    ("env", "__syscall_openat", "iiii"),
    ("env", "__syscall_pipe", "i"),
    ("env", "__syscall_poll", "iii"),
    ("env", "__syscall_readlinkat", "iiii"),
    ("env", "__syscall_renameat", "iiii"),
    ("env", "__syscall_rmdir", "i"),
    ("env", "__syscall_stat64", "ii"),
    ("env", "__syscall_statfs64", "iii"),
    ("env", "__syscall_symlinkat", "iii"),
    ("env", "__syscall_truncate64", "iI"),
    ("env", "__syscall_umask_js", "i"),
    ("env", "__syscall_unlinkat", "iii"),
    ("env", "__syscall_utimensat", "iiii"),
    ("env", "_mmap_js", "iiiiIii"),
    ("env", "_msync_js", "iiiiiI"),
    ("env", "_munmap_js", "iiiiiI"),
    ("wasi_snapshot_preview1", "clock_res_get", "ii"),
    ("wasi_snapshot_preview1", "clock_time_get", "iIi"),
    ("wasi_snapshot_preview1", "environ_get", "ii"),
    ("wasi_snapshot_preview1", "environ_sizes_get", "ii"),
    ("wasi_snapshot_preview1", "fd_close", "i"),
    ("wasi_snapshot_preview1", "fd_fdstat_get", "ii"),
    ("wasi_snapshot_preview1", "fd_pread", "iiiIi"),
    ("wasi_snapshot_preview1", "fd_pwrite", "iiiIi"),
    ("wasi_snapshot_preview1", "fd_read", "iiii"),
    ("wasi_snapshot_preview1", "fd_seek", "iIii"),
    ("wasi_snapshot_preview1", "fd_sync", "i"),
    ("wasi_snapshot_preview1", "fd_write", "iiii"),
    ("wasi_snapshot_preview1", "random_get", "ii"),
];

/// The maximum number of parameters of an import.
const MAX_PARAMETERS: usize = 7;
/// The address of the input's bytes in memory: paths, buffers, lists of buffers, times.
const DATA: u32 = 1024;
/// The size of memory in bytes.
const MEMORY: i64 = 4 << 16;

/// An input of the fuzzer.
#[derive(Debug, Arbitrary)]
struct Input<'a> {
    calls: Vec<Call>,
    data: &'a [u8],
}

#[derive(Debug, Arbitrary)]
struct Call {
    import: u8,
    arguments: [Argument; MAX_PARAMETERS],
}

/// An argument. Most values are plausible, so that calls get beyond their first check.
#[derive(Debug, Clone, Copy, Arbitrary)]
enum Argument {
    /// A descriptor, a flag, a count.
    Small(u8),
    /// `AT_FDCWD`.
    WorkingDirectory,
    /// An address in the input's bytes.
    Data(u8),
    /// An address close to the end of memory.
    End(u8),
    Any(i64),
}

impl Argument {
    fn value(self) -> i64 {
        match self {
            Argument::Small(value) => i64::from(value),
            Argument::WorkingDirectory => -100,
            Argument::Data(offset) => i64::from(DATA) + i64::from(offset),
            Argument::End(offset) => MEMORY - i64::from(offset),
            Argument::Any(value) => value,
        }
    }
}

/// Returns a program that exports each import as a function of [`MAX_PARAMETERS`] 64-bit numbers, and an allocator
/// without bounds.
fn module() -> String {
    let mut imports = String::new();
    let mut functions = String::new();
    for (number, (module, name, parameters)) in IMPORTS.iter().enumerate() {
        let types: String = parameters.chars().map(|kind| if kind == 'i' { " i32" } else { " i64" }).collect();
        let _ = writeln!(imports, r#"(import "{module}" "{name}" (func $i{number} (param{types}) (result i32)))"#);
        let arguments: String = parameters
            .chars()
            .enumerate()
            .map(|(at, kind)| match kind {
                'i' => format!("(i32.wrap_i64 (local.get {at}))"),
                _ => format!("(local.get {at})"),
            })
            .collect();
        let parameters = " i64".repeat(MAX_PARAMETERS);
        let _ = writeln!(
            functions,
            r#"(func (export "{number}") (param{parameters}) (result i32) (call $i{number} {arguments}))"#
        );
    }
    format!(
        r#"(module {imports}
            (memory (export "memory") 4 8)
            (table (export "__indirect_function_table") 4 funcref)
            (global (export "__stack_pointer") (mut i32) (i32.const 65536))
            (func (export "emscripten_builtin_memalign") (param i32 i32) (result i32) (local.get 1))
            (func (export "malloc") (param i32) (result i32) (local.get 0))
            (func (export "free") (param i32))
            {functions})"#
    )
}

/// The program and the directory of its files.
static PROGRAM: LazyLock<(TempDir, Program)> = LazyLock::new(|| {
    let engine = Engine::new(InterruptMode::Epoch).expect("the processor is one that wasmtime supports");
    let directory = tempfile::tempdir().expect("there is a directory for temporary files");
    let wasm = wat::parse_str(module()).expect("the module is well-formed");
    let source = Source { wasm: &wasm, options: Options::default(), helpers: Vec::new() };
    Program::compile(&engine, &source, directory.path()).expect("the module is an Emscripten program");
    // SAFETY: `compile` has just written the directory.
    let program = unsafe { Program::open(&engine, directory.path(), None, |_| Ok(())) };
    let program = program.expect("the files are those that were compiled");
    (directory, program)
});

static FILES: OnceLock<Filesystem> = OnceLock::new();

/// Returns a small file system with a small quota above a layer.
fn files() -> Filesystem {
    let files = FILES.get_or_init(|| {
        let mut files = Filesystem::new(Quota { bytes: 1 << 20, inodes: 50, open_files: 20 });
        let mut layer = LayerBuilder::new();
        layer.file("/a/b", b"a file of a layer".to_vec()).expect("the path is plain");
        files.add_layer(layer.finish("layer"));
        files.set_cwd("/tmp").expect("it exists");
        files
    });
    files.clone()
}

fn run(input: &Input<'_>) {
    let config = InstanceConfig { files: files(), ..InstanceConfig::isolated() };
    let mut instance = PROGRAM.1.instantiate(config).expect("the module imports what there is");
    let stop = instance.stop_handle();
    let data = input.data.get(..input.data.len().min(4096)).unwrap_or_default();
    instance.memory().write(DATA, data).expect("memory is larger than that");
    for call in &input.calls {
        // Calls that would block are interrupted.
        stop.interrupt(2);
        let import = usize::from(call.import) % IMPORTS.len();
        let [a, b, c, d, e, f, g] = call.arguments.map(Argument::value);
        match instance.call::<_, i32>(&import.to_string(), (a, b, c, d, e, f, g)) {
            Ok(_) => {}
            Err(InstanceError::Terminated(_) | InstanceError::Trapped(_)) => return,
            Err(error) => panic!("{}: {error}", IMPORTS[import].1),
        }
    }
    let usage = instance.host().files.usage();
    let quota = instance.host().files.quota();
    assert!(usage.bytes <= quota.bytes && usage.inodes <= quota.inodes && usage.open_files <= quota.open_files);
}

fuzz_target!(|input: Input<'_>| {
    guest_thread::run("fuzz", || run(&input)).expect("the system has another thread");
});

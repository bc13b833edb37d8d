//! System calls as a guest makes them: by name, with numbers, in its memory.

use std::io::Cursor;

use wasmtime::{Engine, Extern, ExternType, Linker, Module, Store, Val, ValType};

use crate::Errno;
use crate::console::{Capture, Console, Stream};
use crate::fs::{AT_FDCWD, Filesystem, LayerBuilder, Quota};
use crate::guest::{GuestMemory, Ptr};
use crate::host::{Host, MainModule, Termination};
use crate::stop::StopReason;

const WASI: &str = "wasi_snapshot_preview1";

/// Where the tests put paths and buffers.
const PATH: Ptr = 1024;
const OTHER_PATH: Ptr = 8192;
const BUFFER: Ptr = 16_384;
/// Where the module's allocator puts a mapping.
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
        super::define(&mut linker).unwrap();
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

    /// Calls an import; numbers are converted to what it takes.
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

    /// Opens a file for reading and writing, making it.
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

#[test]
fn wild_arguments_are_answered_and_never_crash_the_host() {
    let nasty = [
        0,
        1,
        2,
        3,
        -1,
        -100,
        7,
        512,
        i64::from(PATH),
        262_140,
        262_144,
        i64::from(i32::MAX),
        i64::from(i32::MIN),
        i64::MAX,
        i64::MIN,
        0x2000_0000,
    ];
    let mut machine = Machine::new();
    let imports: Vec<(String, String)> = machine
        .linker
        .iter(&mut machine.store)
        .filter(|(_, _, item)| matches!(item, Extern::Func(_)))
        .map(|(module, name, _)| (module.to_owned(), name.to_owned()))
        .collect();
    assert!(imports.len() > 100, "{}", imports.len());
    for (module, name) in imports {
        let Ok(Extern::Func(function)) = machine.linker.get(&mut machine.store, &module, &name) else { continue };
        let count = match ExternType::Func(function.ty(&machine.store)) {
            ExternType::Func(kind) => kind.params().len(),
            _ => 0,
        };
        let mut machine = Machine::new();
        let mut seed = 1_usize;
        for round in 0..400 {
            // So that waiting ends at once.
            machine.store.data().stop.interrupt(2);
            machine.path("/dev/zero");
            let arguments: Vec<i64> = (0..count)
                .map(|at| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let spread = if round < nasty.len() { round + at } else { seed >> 33 };
                    nasty[spread % nasty.len()]
                })
                .collect();
            let result = machine.call(&module, &name, &arguments);
            if let (Ok(Some(result)), true) = (&result, name.starts_with("__syscall_")) {
                assert!((-1000..=i64::from(i32::MAX)).contains(result), "{name}{arguments:?} = {result}");
            }
        }
    }
}

#[test]
fn a_file_is_written_found_and_read_through_lists_of_buffers() {
    let mut machine = Machine::new();
    let fd = machine.open("f");
    machine.memory().write(BUFFER, b"hello, world").unwrap();
    machine.buffers(64, &[(BUFFER, 5), (0, 0), (BUFFER + 5, 7)]);
    assert_eq!(machine.wasi("fd_write", &[fd, 64, 3, 8]), 0);
    assert_eq!(machine.memory().read_u32(8), Ok(12));
    machine.buffers(64, &[(BUFFER + 100, 4), (BUFFER + 200, 100)]);
    assert_eq!(machine.wasi("fd_pread", &[fd, 64, 2, 7, 8]), 0);
    assert_eq!(machine.memory().read_u32(8), Ok(5));
    assert_eq!(machine.memory().slice(BUFFER + 100, 4), Ok(&b"worl"[..]));
    assert_eq!(machine.memory().slice(BUFFER + 200, 1), Ok(&b"d"[..]));
    assert_eq!(machine.wasi("fd_seek", &[fd, -5, 2, 16]), 0);
    assert_eq!(machine.memory().read_u64(16), Ok(7));
    machine.buffers(64, &[(BUFFER, 3)]);
    assert_eq!(machine.wasi("fd_pwrite", &[fd, 64, 1, 0, 8]), 0);
    assert_eq!(machine.wasi("fd_read", &[fd, 64, 1, 8]), 0);
    assert_eq!(machine.memory().slice(BUFFER, 3), Ok(&b"wor"[..]));
    assert_eq!(machine.wasi("fd_sync", &[fd]), 0);
    assert_eq!(machine.wasi("fd_close", &[fd]), 0);
    assert_eq!(machine.wasi("fd_close", &[fd]), Errno::EBADF.positive());
}

#[test]
fn a_bad_buffer_spoils_the_whole_call_before_anything_is_moved() {
    let mut machine = Machine::new();
    machine.files().write_file("f", b"12345678").unwrap();
    let fd = machine.open("f");
    machine.buffers(64, &[(BUFFER, 4), (262_143, 4)]);
    assert_eq!(machine.wasi("fd_read", &[fd, 64, 2, 8]), Errno::EFAULT.positive());
    assert_eq!(machine.wasi("fd_read", &[fd, 64, 1, 262_142]), Errno::EFAULT.positive());
    assert_eq!(machine.wasi("fd_write", &[fd, 262_140, 1, 8]), Errno::EFAULT.positive());
    assert_eq!(machine.wasi("fd_write", &[fd, 64, 1025, 8]), Errno::EINVAL.positive());
    assert_eq!(machine.wasi("fd_pread", &[fd, 64, 1, -1, 8]), Errno::EINVAL.positive());
    assert_eq!(machine.wasi("fd_seek", &[fd, 0, 1, 16]), 0);
    assert_eq!(machine.memory().read_u64(16), Ok(0));
}

#[test]
fn output_reaches_the_console_until_its_limit() {
    let mut machine = Machine::new();
    machine.memory().write(BUFFER, &[b'x'; 60]).unwrap();
    machine.buffers(64, &[(BUFFER, 60)]);
    assert_eq!(machine.wasi("fd_write", &[1, 64, 1, 8]), 0);
    assert_eq!(machine.wasi("fd_write", &[0, 64, 1, 8]), Errno::EBADF.positive());
    assert_eq!(machine.wasi("fd_pwrite", &[1, 64, 1, 0, 8]), Errno::ESPIPE.positive());
    let ended = machine.call(WASI, "fd_write", &[2, 64, 1, 8]).unwrap_err();
    assert_eq!(ended.downcast_ref(), Some(&Termination::OutputLimit { limit: 100 }));
    let expected = [(Stream::Stdout, vec![b'x'; 60]), (Stream::Stderr, vec![b'x'; 40])];
    assert_eq!(machine.output.take(), expected);
}

#[test]
fn input_comes_from_the_console_and_ends() {
    let mut machine = Machine::with_input("line\n");
    machine.buffers(64, &[(BUFFER, 3), (BUFFER + 3, 100)]);
    assert_eq!(machine.wasi("fd_read", &[0, 64, 2, 8]), 0);
    assert_eq!(machine.memory().read_u32(8), Ok(3));
    machine.buffers(64, &[(BUFFER, 100)]);
    for expected in [2, 0] {
        assert_eq!(machine.wasi("fd_read", &[0, 64, 1, 8]), 0);
        assert_eq!(machine.memory().read_u32(8), Ok(expected));
    }
    assert_eq!(machine.wasi("fd_read", &[1, 64, 1, 8]), Errno::EBADF.positive());
    assert_eq!(machine.wasi("fd_pread", &[0, 64, 1, 0, 8]), Errno::ESPIPE.positive());
    let path = machine.path("/dev/stdin");
    let again = machine.syscall("openat", &[CWD, path, 0, 0]).unwrap();
    assert_eq!(machine.wasi("fd_read", &[again, 64, 1, 8]), 0);
}

#[test]
fn stat_is_laid_out_as_emscripten_does_it() {
    let mut machine = Machine::new();
    machine.files().write_file("f", b"12345").unwrap();
    let path = machine.path("f");
    let times = i64::from(BUFFER);
    machine.memory().write_i64(BUFFER, 77).unwrap();
    machine.memory().write_u32(BUFFER + 8, 5).unwrap();
    machine.memory().write_i64(BUFFER + 16, -3).unwrap();
    machine.memory().write_u32(BUFFER + 24, 6).unwrap();
    assert_eq!(machine.syscall("utimensat", &[CWD, path, times, 0]), Ok(0));
    assert_eq!(machine.syscall("stat64", &[path, times]), Ok(0));
    let fd = machine.open("f");
    for (name, arguments) in [
        ("fstat64", vec![fd, times + 200]),
        ("lstat64", vec![path, times + 200]),
        ("newfstatat", vec![CWD, path, times + 200, 0x100]),
        ("newfstatat", vec![fd, 100, times + 200, 0x1000]),
    ] {
        machine.memory().slice_mut(BUFFER + 200, 96).unwrap().fill(0xff);
        assert_eq!(machine.syscall(name, &arguments), Ok(0), "{name}");
        let memory = machine.memory();
        assert_eq!(memory.slice(BUFFER, 96), memory.slice(BUFFER + 200, 96), "{name}");
    }
    let memory = machine.memory();
    assert_eq!(memory.read_u32(BUFFER + 4), Ok(0o100_644));
    assert_eq!(memory.read_u32(BUFFER + 8), Ok(1));
    assert_eq!(memory.read_u64(BUFFER + 24), Ok(5));
    assert_eq!(memory.read_u32(BUFFER + 36), Ok(1));
    assert_eq!((memory.read_i64(BUFFER + 40), memory.read_u32(BUFFER + 48)), (Ok(77), Ok(5)));
    assert_eq!((memory.read_i64(BUFFER + 56), memory.read_u32(BUFFER + 64)), (Ok(-3), Ok(6)));
    assert_ne!(memory.read_u64(BUFFER + 88), Ok(0));
    assert_eq!(machine.syscall("newfstatat", &[CWD, 100, times, 0]), refused(Errno::ENOENT));
    machine.memory().write_u32(BUFFER + 8, 1_000_000_000).unwrap();
    assert_eq!(machine.syscall("utimensat", &[CWD, path, times, 0]), refused(Errno::EINVAL));
    assert_eq!(machine.syscall("utimensat", &[fd, 0, 0, 0]), Ok(0));
}

#[test]
fn directories_are_listed_in_records_of_280_bytes() {
    let mut machine = Machine::new();
    machine.files().write_file("/d/name", b"").unwrap();
    machine.files().create_dir_all("/d/sub").unwrap();
    let path = machine.path("/d");
    let fd = machine.syscall("openat", &[CWD, path, 0o200_000, 0]).unwrap();
    let buffer = i64::from(BUFFER);
    assert_eq!(machine.syscall("getdents64", &[fd, buffer, 279]), refused(Errno::EINVAL));
    assert_eq!(machine.syscall("getdents64", &[fd, 262_000, 560]), refused(Errno::EFAULT));
    assert_eq!(machine.syscall("getdents64", &[fd, buffer, 900]), Ok(840));
    let memory = machine.memory();
    assert_eq!(memory.c_bytes(BUFFER + 19, 256), Ok(&b"."[..]));
    assert_eq!(memory.c_bytes(BUFFER + 280 + 19, 256), Ok(&b".."[..]));
    let third = BUFFER + 560;
    assert_eq!(memory.c_bytes(third + 19, 256), Ok(&b"name"[..]));
    assert_eq!(memory.read_u16(third + 16), Ok(280));
    assert_eq!(memory.read_u8(third + 18), Ok(8));
    assert_eq!(machine.syscall("getdents64", &[fd, buffer, 1000]), Ok(280));
    assert_eq!(machine.memory().read_u8(BUFFER + 18), Ok(4));
    assert_eq!(machine.syscall("getdents64", &[fd, buffer, 1000]), Ok(0));
    assert_eq!(machine.wasi("fd_seek", &[fd, 0, 0, 16]), 0);
    assert_eq!(machine.syscall("getdents64", &[fd, buffer, 2000]), Ok(1120));
}

#[test]
fn names_are_made_moved_and_removed() {
    let mut machine = Machine::new();
    let path = machine.path("d");
    assert_eq!(machine.syscall("mkdirat", &[CWD, path, 0o755]), Ok(0));
    assert_eq!(machine.syscall("mkdirat", &[CWD, path, 0o755]), refused(Errno::EEXIST));
    let other = machine.text(OTHER_PATH, "link");
    assert_eq!(machine.syscall("symlinkat", &[path, CWD, other]), Ok(0));
    assert_eq!(machine.syscall("readlinkat", &[CWD, other, i64::from(BUFFER), 100]), Ok(1));
    assert_eq!(machine.memory().read_u8(BUFFER), Ok(b'd'));
    assert_eq!(machine.syscall("readlinkat", &[CWD, other, i64::from(BUFFER), 0]), refused(Errno::EINVAL));
    assert_eq!(machine.syscall("unlinkat", &[CWD, other, 1]), refused(Errno::EINVAL));
    assert_eq!(machine.syscall("unlinkat", &[CWD, other, 0]), Ok(0));
    assert_eq!(machine.syscall("renameat", &[CWD, path, CWD, other]), Ok(0));
    assert_eq!(machine.syscall("chdir", &[other]), Ok(0));
    assert_eq!(machine.syscall("getcwd", &[i64::from(BUFFER), 100]), Ok(11));
    assert_eq!(machine.memory().c_bytes(BUFFER, 100), Ok(&b"/home/link"[..]));
    assert_eq!(machine.syscall("getcwd", &[i64::from(BUFFER), 10]), refused(Errno::ERANGE));
    assert_eq!(machine.syscall("getcwd", &[i64::from(BUFFER), 0]), refused(Errno::EINVAL));
    let path = machine.path("/home/link");
    assert_eq!(machine.syscall("rmdir", &[path]), Ok(0));
    assert_eq!(machine.syscall("getcwd", &[i64::from(BUFFER), 100]), refused(Errno::ENOENT));
    let path = machine.path("/tmp");
    let fd = machine.syscall("openat", &[CWD, path, 0, 0]).unwrap();
    assert_eq!(machine.syscall("fchdir", &[fd]), Ok(0));
    let path = machine.path("file");
    assert_eq!(machine.syscall("mknodat", &[CWD, path, 0o100_600, 0]), Ok(0));
    assert_eq!(machine.syscall("mknodat", &[CWD, path, 0o020_600, 0]), refused(Errno::EPERM));
    assert_eq!(machine.syscall("mknodat", &[CWD, path, 0o170_000, 0]), refused(Errno::EINVAL));
    assert_eq!(machine.syscall("umask_js", &[0o77]), Ok(0o22));
}

#[test]
fn permissions_are_changed_and_asked_for() {
    let mut machine = Machine::new();
    machine.files().write_file("f", b"").unwrap();
    let path = machine.path("f");
    assert_eq!(machine.syscall("chmod", &[path, 0o400]), Ok(0));
    assert_eq!(machine.syscall("faccessat", &[CWD, path, 4, 0]), Ok(0));
    assert_eq!(machine.syscall("faccessat", &[CWD, path, 2, 0]), refused(Errno::EACCES));
    assert_eq!(machine.syscall("faccessat", &[CWD, path, 8, 0]), refused(Errno::EINVAL));
    assert_eq!(machine.syscall("fchmodat2", &[CWD, path, 0o600, 0]), Ok(0));
    assert_eq!(machine.syscall("faccessat", &[CWD, path, 6, 0]), Ok(0));
    let fd = machine.open("f");
    assert_eq!(machine.syscall("fchmod", &[fd, 0]), Ok(0));
    assert_eq!(machine.syscall("faccessat", &[CWD, path, 4, 0]), refused(Errno::EACCES));
    assert_eq!(machine.syscall("fchown32", &[fd, 1, 1]), Ok(0));
    assert_eq!(machine.syscall("fchownat", &[CWD, path, 1, 1, 0]), Ok(0));
    let path = machine.path("absent");
    assert_eq!(machine.syscall("fchownat", &[CWD, path, 1, 1, 0]), refused(Errno::ENOENT));
}

#[test]
fn lengths_are_set_and_checked() {
    let mut machine = Machine::new();
    let fd = machine.open("f");
    assert_eq!(machine.syscall("ftruncate64", &[fd, 100]), Ok(0));
    assert_eq!(machine.syscall("ftruncate64", &[fd, -1]), refused(Errno::EINVAL));
    assert_eq!(machine.syscall("fallocate", &[fd, 0, 50, 100]), Ok(0));
    assert_eq!(machine.syscall("fallocate", &[fd, 1, 0, 1]), refused(Errno::EOPNOTSUPP));
    assert_eq!(machine.syscall("fallocate", &[fd, 0, i64::MAX, 1]), refused(Errno::EFBIG));
    assert_eq!(machine.syscall("fallocate", &[fd, 0, 0, 0]), refused(Errno::EINVAL));
    let path = machine.path("f");
    assert_eq!(machine.files().read_file("f", 1000).unwrap().len(), 150);
    assert_eq!(machine.syscall("truncate64", &[path, 3]), Ok(0));
    assert_eq!(machine.syscall("truncate64", &[path, i64::MAX]), refused(Errno::EFBIG));
    assert_eq!(machine.syscall("fadvise64", &[fd, 0, 0, 0]), Ok(0));
    assert_eq!(machine.syscall("fdatasync", &[99]), refused(Errno::EBADF));
    assert_eq!(machine.syscall("statfs64", &[path, 84, i64::from(BUFFER)]), Ok(0));
    assert_eq!(machine.syscall("fstatfs64", &[fd, 84, i64::from(BUFFER) + 100]), Ok(0));
    let memory = machine.memory();
    assert_eq!(memory.read_u32(BUFFER + 4), Ok(4096));
    assert_eq!(memory.read_u64(BUFFER + 8), Ok(Quota::default().bytes / 4096));
    assert_eq!(memory.slice(BUFFER, 72), memory.slice(BUFFER + 100, 72));
}

#[test]
fn fcntl_and_ioctl_answer_what_programs_ask() {
    let mut machine = Machine::new();
    let fd = machine.open("f");
    let varargs = 64;
    let fcntl = |machine: &mut Machine, command: i64, argument: u32| {
        machine.memory().write_u32(64, argument).unwrap();
        machine.syscall("fcntl64", &[fd, command, varargs])
    };
    assert_eq!(fcntl(&mut machine, 3, 0), Ok(2));
    assert_eq!(fcntl(&mut machine, 4, 0o6001), Ok(0));
    assert_eq!(fcntl(&mut machine, 3, 0), Ok(0o6002));
    assert_eq!(fcntl(&mut machine, 0, 50), Ok(50));
    assert_eq!(fcntl(&mut machine, 1030, 50), Ok(51));
    assert_eq!(machine.syscall("fcntl64", &[50, 1, 0]), Ok(0));
    assert_eq!(machine.syscall("fcntl64", &[51, 1, 0]), Ok(1));
    assert_eq!(fcntl(&mut machine, 2, 1), Ok(0));
    assert_eq!(fcntl(&mut machine, 1, 0), Ok(1));
    assert_eq!(fcntl(&mut machine, 12, BUFFER), Ok(0));
    assert_eq!(fcntl(&mut machine, 13, BUFFER), Ok(0));
    assert_eq!(fcntl(&mut machine, 99, 0), refused(Errno::EINVAL));
    assert_eq!(machine.memory().read_u16(BUFFER), Ok(2));
    for terminal in [0x5401, 0x5413, 0x540f] {
        assert_eq!(machine.syscall("ioctl", &[1, terminal, varargs]), refused(Errno::ENOTTY));
    }
    machine.files().write_file("f", b"12345").unwrap();
    machine.memory().write_u32(64, BUFFER).unwrap();
    assert_eq!(machine.syscall("ioctl", &[fd, 0x541b, varargs]), Ok(0));
    assert_eq!(machine.memory().read_u32(BUFFER), Ok(5));
    machine.memory().write_u32(BUFFER, 0).unwrap();
    assert_eq!(machine.syscall("ioctl", &[fd, 0x5421, varargs]), Ok(0));
    assert_eq!(machine.syscall("fcntl64", &[fd, 3, 0]), Ok(0o2002));
    assert_eq!(machine.syscall("ioctl", &[fd, 0, varargs]), refused(Errno::EINVAL));
    assert_eq!(machine.syscall("dup", &[fd]), Ok(4));
    assert_eq!(machine.syscall("dup3", &[fd, 9, 0o2_000_000]), Ok(9));
    assert_eq!(machine.wasi("fd_fdstat_get", &[fd, i64::from(BUFFER)]), 0);
    assert_eq!(machine.memory().read_u8(BUFFER), Ok(4));
}

#[test]
fn polling_finds_what_is_ready_and_sleeps_otherwise() {
    let mut machine = Machine::new();
    assert_eq!(machine.syscall("pipe", &[0]), refused(Errno::EFAULT));
    assert_eq!(machine.syscall("pipe", &[64]), Ok(0));
    let (reader, writer) = (machine.memory().read_u32(64).unwrap(), machine.memory().read_u32(68).unwrap());
    let entry = |machine: &mut Machine, at: Ptr, fd: u32, events: u16| {
        machine.memory().write_u32(at, fd).unwrap();
        machine.memory().write_u16(at + 4, events).unwrap();
    };
    entry(&mut machine, 128, reader, 1);
    assert_eq!(machine.syscall("poll", &[128, 1, 1]), Ok(0));
    machine.store.data().stop.interrupt(2);
    assert_eq!(machine.syscall("poll", &[128, 1, -1]), refused(Errno::EINTR));
    entry(&mut machine, 136, writer, 4);
    entry(&mut machine, 144, 99, 1);
    entry(&mut machine, 152, u32::MAX, 1);
    assert_eq!(machine.syscall("poll", &[128, 4, -1]), Ok(2));
    let found: Vec<u16> = (0..4).map(|at| machine.memory().read_u16(128 + 8 * at + 6).unwrap()).collect();
    assert_eq!(found, [0, 4, 0x20, 0]);
    machine.files().close(writer as i32).unwrap();
    assert_eq!(machine.syscall("poll", &[128, 1, 0]), Ok(1));
    assert_eq!(machine.memory().read_u16(134), Ok(0x10));
    assert_eq!(machine.syscall("poll", &[128, 5000, 0]), refused(Errno::EINVAL));
    machine.store.data().stop.stop(StopReason::Requested);
    let ended = machine.call("env", "__syscall_poll", &[0, 0, -1]).unwrap_err();
    assert_eq!(ended.downcast_ref(), Some(&Termination::Stopped));
}

#[test]
fn a_mapping_is_a_copy_that_is_written_back() {
    let mut machine = Machine::new();
    machine.files().write_file("f", b"0123456789").unwrap();
    let fd = machine.open("f");
    let map = |machine: &mut Machine, length: i64, flags: i64, fd: i64, offset: i64| {
        machine.call("env", "_mmap_js", &[length, 3, flags, fd, offset, 64, 68]).unwrap().unwrap() as i32
    };
    machine.memory().slice_mut(MAPPING, 100).unwrap().fill(0xff);
    assert_eq!(map(&mut machine, 20, 1, fd, 2), 0);
    assert_eq!((machine.memory().read_u32(64), machine.memory().read_u32(68)), (Ok(1), Ok(MAPPING)));
    assert_eq!(machine.memory().slice(MAPPING, 10), Ok(&b"23456789\0\0"[..]));
    assert_eq!(machine.memory().read_u8(MAPPING + 20), Ok(0xff));
    machine.memory().write(MAPPING, b"changed by the guest").unwrap();
    let back = |machine: &mut Machine, name: &str, protection: i64, flags: i64| {
        machine.call("env", name, &[i64::from(MAPPING), 20, protection, flags, fd, 2]).unwrap().unwrap() as i32
    };
    assert_eq!(back(&mut machine, "_munmap_js", 3, 2), 0);
    assert_eq!(back(&mut machine, "_munmap_js", 1, 1), 0);
    assert_eq!(machine.files().read_file("f", 100).unwrap(), b"0123456789");
    assert_eq!(back(&mut machine, "_msync_js", 3, 1), 0);
    assert_eq!(machine.files().read_file("f", 100).unwrap(), b"01changed ");
    assert_eq!(map(&mut machine, 0, 1, fd, 0), Errno::EINVAL.negative());
    assert_eq!(map(&mut machine, 1, 1, fd, -1), Errno::EINVAL.negative());
    assert_eq!(map(&mut machine, 1, 1, 0, 0), Errno::EACCES.negative());
    assert_eq!(map(&mut machine, -1, 1, fd, 0), Errno::ENOMEM.negative());
    assert_eq!(map(&mut machine, 200_000, 1, fd, 0), Errno::ENOMEM.negative());
    let path = machine.path("/dev/zero");
    let device = machine.syscall("openat", &[CWD, path, 2, 0]).unwrap();
    assert_eq!(map(&mut machine, 1, 1, device, 0), Errno::ENODEV.negative());
    let path = machine.path("f");
    let read_only = machine.syscall("openat", &[CWD, path, 0, 0]).unwrap();
    assert_eq!(map(&mut machine, 1, 1, read_only, 0), Errno::EACCES.negative());
    assert_eq!(map(&mut machine, 1, 2, read_only, 0), 0);
}

#[test]
fn files_of_a_layer_are_served_like_any_other() {
    let mut machine = Machine::new();
    let mut builder = LayerBuilder::new();
    builder.file("/lib/module.py", b"print()".to_vec()).unwrap();
    machine.files().add_layer(builder.finish("layer"));
    let path = machine.path("/lib/module.py");
    let fd = machine.syscall("openat", &[CWD, path, 0, 0]).unwrap();
    machine.buffers(64, &[(BUFFER, 100)]);
    assert_eq!(machine.wasi("fd_read", &[fd, 64, 1, 8]), 0);
    assert_eq!(machine.memory().slice(BUFFER, 7), Ok(&b"print()"[..]));
}

#[test]
fn paths_that_are_not_text_are_refused() {
    let mut machine = Machine::new();
    machine.memory().write(PATH, b"\xff\xfe\0").unwrap();
    assert_eq!(machine.syscall("rmdir", &[i64::from(PATH)]), refused(Errno::EILSEQ));
    machine.memory().slice_mut(PATH, 5000).unwrap().fill(b'/');
    assert_eq!(machine.syscall("rmdir", &[i64::from(PATH)]), refused(Errno::ENAMETOOLONG));
    machine.memory().slice_mut(262_100, 44).unwrap().fill(b'/');
    assert_eq!(machine.syscall("rmdir", &[262_100]), refused(Errno::EFAULT));
}

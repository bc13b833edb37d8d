//! Restores saved sessions whose bytes were changed. The changes are made to a valid delta, since arbitrary bytes would
//! not get beyond its header. A delta may be refused, or restored as an instance whose calls may fail, but it must not
//! cause a panic or an access to memory of the host (the address sanitizer, which is on by default, detects that).

#![no_main]

use std::sync::LazyLock;

use arbitrary::Arbitrary;
use belljar_emscripten::program::Source;
use belljar_emscripten::translate::Options;
use belljar_emscripten::{
    Engine, InstanceConfig, InterruptMode, Program, Snapshot, SnapshotDelta, WorkingSet, guest_thread, snapshot,
};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

/// A program that counts in its memory and in an exported global variable, both of which are in a delta, and reads the
/// monotonic clock, whose time is in it, too.
const MODULE: &str = r#"(module
    (import "wasi_snapshot_preview1" "clock_time_get" (func $time (param i32 i64 i32) (result i32)))
    (memory (export "memory") 4 8)
    (table (export "__indirect_function_table") 4 funcref)
    (global (export "__stack_pointer") (mut i32) (i32.const 65536))
    (global $counter (export "counter") (mut i32) (i32.const 0))
    (func (export "emscripten_builtin_memalign") (param i32 i32) (result i32) (local.get 1))
    (func (export "malloc") (param i32) (result i32) (local.get 0))
    (func (export "free") (param i32))
    (func (export "count") (result i32)
        (global.set $counter (i32.add (global.get $counter) (i32.const 1)))
        (i32.store (i32.const 4096) (global.get $counter))
        (global.get $counter))
    (func (export "time") (result i32) (call $time (i32.const 1) (i64.const 0) (i32.const 8192))))"#;

/// An input of the fuzzer.
#[derive(Debug, Arbitrary)]
struct Input {
    edits: Vec<Edit>,
    /// The bytes that are cut off at the end.
    cut: u16,
}

/// A change to a delta. Positions are taken modulo its length.
#[derive(Debug, Clone, Copy, Arbitrary)]
enum Edit {
    Replace { at: u32, byte: u8 },
    Insert { at: u32, byte: u8 },
    Remove { at: u32 },
}

impl Edit {
    fn apply(self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let length = bytes.len();
        match self {
            Edit::Replace { at, byte } => bytes[at as usize % length] = byte,
            Edit::Insert { at, byte } => bytes.insert(at as usize % length, byte),
            Edit::Remove { at } => drop(bytes.remove(at as usize % length)),
        }
    }
}

/// The program with the directory of its files, the snapshot that the delta belongs to, and the bytes of the delta.
struct Saved {
    _directory: TempDir,
    program: Program,
    base: Snapshot,
    delta: Vec<u8>,
}

static SAVED: LazyLock<Saved> = LazyLock::new(|| {
    let engine = Engine::new(InterruptMode::Epoch).expect("the processor is one that wasmtime supports");
    let directory = tempfile::tempdir().expect("there is a directory for temporary files");
    let wasm = wat::parse_str(MODULE).expect("the module is well-formed");
    let source = Source { wasm: &wasm, options: Options::default(), helpers: Vec::new() };
    Program::compile(&engine, &source, directory.path()).expect("the module is an Emscripten program");
    // SAFETY: `compile` has just written the directory.
    let program = unsafe { Program::open(&engine, directory.path(), None, |_| Ok(())) };
    let program = program.expect("the files are those that were compiled");
    let mut instance = program.instantiate(InstanceConfig::isolated()).expect("the module imports what there is");
    let file = snapshot::anonymous_file().expect("there is memory for a snapshot");
    instance.snapshot(&file, Vec::new(), WorkingSet::default()).expect("the instance is between calls");
    let base = Snapshot::open(file, &program, &[]).expect("the snapshot was just written");
    let mut changed = program.restore(&base, InstanceConfig::isolated()).expect("the snapshot is of this program");
    changed.call::<_, i32>("count", ()).expect("the program counts");
    changed.host_mut().files.write_file("/home/d/f", b"contents").expect("there is room for a file");
    let delta = changed.delta(&base).expect("the instance is between calls");
    let delta = delta.to_bytes().expect("its description is short");
    Saved { _directory: directory, program, base, delta }
});

fn run(input: &Input) {
    let Saved { program, base, delta, .. } = &*SAVED;
    let mut bytes = delta.clone();
    input.edits.iter().take(1000).for_each(|edit| edit.apply(&mut bytes));
    bytes.truncate(bytes.len().saturating_sub(usize::from(input.cut)));
    let Ok(delta) = SnapshotDelta::from_bytes(&bytes) else { return };
    let Ok(mut instance) = program.restore_with_delta(base, &delta, &[], InstanceConfig::isolated()) else { return };
    let _ = instance.call::<_, i32>("count", ());
    let _ = instance.call::<_, i32>("time", ());
    let files = &mut instance.host_mut().files;
    let _ = files.list("/", 1000);
    let _ = files.remove("/home");
}

fuzz_target!(|input: Input| {
    guest_thread::run("fuzz", || run(&input)).expect("the system has another thread");
});

//! Compiles a program for another platform, and runs it there.
//!
//! `platforms write TRIPLE DIRECTORY`, on any machine, writes the program's code for the platform, and a snapshot of an
//! instance that has run on this machine. It needs the feature `cross-compile`. `platforms run DIRECTORY`, on a machine
//! of that platform, restores the snapshot with that code and calls it. `cargo xtask test-arm64` runs both.

#![expect(clippy::print_stdout, reason = "an example prints its result")]

use std::error::Error;
use std::fs::File;
use std::path::Path;
use std::process::ExitCode;

use belljar_emscripten::console::{Capture, Console};
use belljar_emscripten::program::{ProgramError, Source};
use belljar_emscripten::translate::Options;
use belljar_emscripten::{
    Engine, InstanceConfig, InterruptMode, Processor, Program, Snapshot, Target, WorkingSet, guest_thread,
};

/// A program that counts in a global and in memory, calls through its table, catches an exception, rounds and divides.
const PROGRAM: &str = r#"(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 4 65536)
  (type $step (func (param i32) (result i32)))
  (table (export "__indirect_function_table") 2 funcref)
  (elem (i32.const 1) $add_one)
  (global $stack (export "__stack_pointer") (mut i32) (i32.const 65536))
  (global $calls (mut i32) (i32.const 0))
  (tag $negative (param i32))
  (data (i32.const 1024) "hello\n")
  (func $add_one (param i32) (result i32) (i32.add (local.get 0) (i32.const 1)))
  (func $refuse (param i32) (throw $negative (local.get 0)))
  (func (export "count") (result i32)
    (global.set $calls (call_indirect (type $step) (global.get $calls) (i32.const 1)))
    (i32.store (i32.const 2048) (i32.add (i32.load (i32.const 2048)) (i32.const 1)))
    (i32.add (i32.mul (i32.const 100) (global.get $calls)) (i32.load (i32.const 2048))))
  (func (export "catch") (param i32) (result i32)
    (block $caught (result i32)
      (try_table (catch $negative $caught) (call $refuse (local.get 0)))
      (i32.const -1)))
  (func (export "divide") (param f64 f64) (result i32)
    (i32.trunc_sat_f64_s (f64.nearest (f64.div (local.get 0) (local.get 1)))))
  (func (export "sum") (param $last i32) (result i32) (local $sum i32)
    (loop $next
      (local.set $sum (i32.add (local.get $sum) (local.get $last)))
      (br_if $next (local.tee $last (i32.sub (local.get $last) (i32.const 1)))))
    (local.get $sum))
  (func (export "out_of_bounds") (drop (i32.load (i32.const -8))))
  (func (export "hello") (result i32)
    (i32.store (i32.const 64) (i32.const 1024))
    (i32.store (i32.const 68) (i32.const 6))
    (call $write (i32.const 1) (i32.const 64) (i32.const 1) (i32.const 72))))"#;

/// The directory of the code for the other platform, that of the code for this one, and the snapshot.
const FOR_TARGET: &str = "target";
const FOR_HOST: &str = "host";
const SNAPSHOT: &str = "snapshot";

const USAGE: &str = "usage: platforms write TRIPLE DIRECTORY | platforms run DIRECTORY";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let work = || -> Result<(), String> {
        let result = match *arguments {
            ["write", triple, directory] => write(triple, Path::new(directory)),
            ["run", directory] => run(Path::new(directory)),
            _ => Err(USAGE.into()),
        };
        result.map_err(|error| error.to_string())
    };
    match guest_thread::run("platforms", work) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            eprintln!("platforms: {error}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("platforms: failed to start a thread: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write(triple: &str, directory: &Path) -> Result<(), Box<dyn Error>> {
    let target = Target::from_triple(triple).ok_or("this build does not compile for the platform")?;
    let wasm = wat::parse_str(PROGRAM)?;
    let source =
        Source { wasm: &wasm, options: Options { safepoints: true, ..Options::default() }, helpers: Vec::new() };
    let (for_target, for_host) = (directory.join(FOR_TARGET), directory.join(FOR_HOST));
    std::fs::create_dir_all(&for_target)?;
    std::fs::create_dir_all(&for_host)?;
    Program::compile(&Engine::for_target(InterruptMode::Safepoint, target)?, &source, &for_target)?;
    let engine = Engine::for_processor(InterruptMode::Safepoint, Processor::Baseline)?;
    Program::compile(&engine, &source, &for_host)?;
    if target != Target::HOST && !matches!(open(&engine, &for_target), Err(ProgramError::OtherBuild { .. })) {
        return Err("code for another platform was opened on this one".into());
    }
    let mut instance = open(&engine, &for_host)?.instantiate(InstanceConfig::isolated())?;
    for _ in 0..3 {
        instance.call::<_, i32>("count", ())?;
    }
    instance.snapshot(&File::create_new(directory.join(SNAPSHOT))?, Vec::new(), WorkingSet::default())?;
    println!("compiled on {} for {triple}", Target::HOST.triple());
    Ok(())
}

fn run(directory: &Path) -> Result<(), Box<dyn Error>> {
    let engine = Engine::for_processor(InterruptMode::Safepoint, Processor::Baseline)?;
    let program = open(&engine, &directory.join(FOR_TARGET))?;
    let snapshot = Snapshot::open(File::open(directory.join(SNAPSHOT))?, &program, &[])?;
    let capture = Capture::default();
    let console = Console::new(Box::new(capture.clone()), Box::new(std::io::empty()), 1 << 20);
    let mut instance = program.restore(&snapshot, InstanceConfig { console, ..InstanceConfig::isolated() })?;
    let wrong = |name: &str, result: i32| Err(format!("{name} returned {result}").into());
    for (name, wanted) in [("count", 404), ("count", 505), ("hello", 0)] {
        let result = instance.call::<_, i32>(name, ())?;
        if result != wanted {
            return wrong(name, result);
        }
    }
    for (name, argument, wanted) in [("catch", 7, 7), ("sum", 1000, 500_500)] {
        let result = instance.call::<_, i32>(name, argument)?;
        if result != wanted {
            return wrong(name, result);
        }
    }
    let result = instance.call::<_, i32>("divide", (7.0, 2.0))?;
    if result != 4 {
        return wrong("divide", result);
    }
    let output: Vec<u8> = capture.take().into_iter().flat_map(|(_, bytes)| bytes).collect();
    if output != b"hello\n" {
        return Err(format!("it printed {:?}", String::from_utf8_lossy(&output)).into());
    }
    // A fault of the guest is a signal, whose handler reads the registers of this processor.
    if instance.call::<_, ()>("out_of_bounds", ()).is_ok() {
        return Err("an access beyond memory did not fail".into());
    }
    println!("restored and run on {}", Target::HOST.triple());
    Ok(())
}

fn open(engine: &Engine, directory: &Path) -> Result<Program, ProgramError> {
    // SAFETY: `write` wrote the directory, as its user states by naming it.
    unsafe { Program::open(engine, directory, None, |_| Ok(())) }
}

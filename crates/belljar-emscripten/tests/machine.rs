//! Tests of the crate from outside: small programs in WAT, compiled, run, stopped, saved and restored.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use belljar_emscripten::console::{Capture, Console, Stream};
use belljar_emscripten::fs::Filesystem;
use belljar_emscripten::program::{HelperModule, ProgramError, Source};
use belljar_emscripten::stop::StopReason;
use belljar_emscripten::termination::Termination;
use belljar_emscripten::translate::Options;
use belljar_emscripten::watchdog::{DeadlineGuard, TimeLimits};
use belljar_emscripten::{
    Engine, Instance, InstanceConfig, InstanceError, InterruptMode, Limits, Processor, Program, Snapshot, Target,
    WorkingSet, guest_thread,
};

/// A program with a counter in memory and one in a global, and some ways to misbehave.
const PROGRAM: &str = r#"(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "env" "no_such_import" (func $missing))
  (memory (export "memory") 4 65536)
  (table (export "__indirect_function_table") 2 funcref)
  (global $stack (export "__stack_pointer") (mut i32) (i32.const 65536))
  (global $hidden (mut i32) (i32.const 0))
  (data (i32.const 1024) "hello\n")
  (func (export "count") (result i32)
    (global.set $hidden (i32.add (global.get $hidden) (i32.const 1)))
    (i32.store (i32.const 2048) (i32.add (i32.load (i32.const 2048)) (i32.const 1)))
    (i32.add (i32.mul (i32.const 100) (global.get $hidden)) (i32.load (i32.const 2048))))
  (func (export "spin") (loop (br 0)))
  (func (export "nested_spin") (local i32) (loop (loop (br_if 1 (i32.eqz (local.get 0))) (br 0))))
  (func $down (export "recurse") (param i32) (result i32) (i32.add (call $down (local.get 0)) (i32.const 1)))
  (func (export "crash") (drop (i32.load (i32.const -8))))
  (func (export "ask") (call $missing))
  (func (export "hello") (result i32)
    (i32.store (i32.const 64) (i32.const 1024))
    (i32.store (i32.const 68) (i32.const 6))
    (call $write (i32.const 1) (i32.const 64) (i32.const 1) (i32.const 72)))
  (func (export "grow") (param i32) (result i32) (memory.grow (local.get 0))))"#;

fn compile(engine: &Engine, wat: &str) -> (tempfile::TempDir, Program) {
    let directory = tempfile::tempdir().unwrap();
    let wasm = wat::parse_str(wat).unwrap();
    let options = Options { safepoints: engine.interrupt_mode() == InterruptMode::Safepoint, ..Options::default() };
    let source = Source { wasm: &wasm, options, helpers: Vec::new() };
    Program::compile(engine, &source, directory.path()).unwrap();
    let program = open(engine, directory.path()).unwrap();
    (directory, program)
}

fn open(engine: &Engine, directory: &Path) -> Result<Program, ProgramError> {
    // SAFETY: `compile` above wrote the directory.
    unsafe { Program::open(engine, directory, None, |_| Ok(())) }
}

fn config_with(capture: &Capture, limits: Limits) -> InstanceConfig {
    let console = Console::new(Box::new(capture.clone()), Box::new(std::io::empty()), limits.output);
    InstanceConfig { files: Filesystem::new(limits.files), console, environment: Vec::new(), limits }
}

/// Runs a test on a guest thread with a program compiled for each interrupt mode.
fn with_program(test: impl Fn(&Program) + Sync) {
    for interrupt_mode in [InterruptMode::Safepoint, InterruptMode::Epoch] {
        let engine = Engine::new(interrupt_mode).unwrap();
        let (_directory, program) = compile(&engine, PROGRAM);
        guest_thread::run("test", || test(&program)).unwrap();
    }
}

fn count(instance: &mut Instance) -> i32 {
    instance.call("count", ()).unwrap()
}

#[test]
fn instances_share_nothing() {
    with_program(|program| {
        let mut one = program.instantiate(InstanceConfig::isolated()).unwrap();
        let mut other = program.instantiate(InstanceConfig::isolated()).unwrap();
        assert_eq!((count(&mut one), count(&mut one)), (101, 202));
        assert_eq!(count(&mut other), 101);
    });
}

#[test]
fn restored_instance_continues_from_the_original_state() {
    with_program(|program| {
        let mut original = program.instantiate(InstanceConfig::isolated()).unwrap();
        count(&mut original);
        let file = belljar_emscripten::snapshot::anonymous_file().unwrap();
        original.snapshot(&file, b"mine".to_vec(), WorkingSet::default()).unwrap();
        assert_eq!(count(&mut original), 202);
        let snapshot = Snapshot::open(file, program, &[]).unwrap();
        assert_eq!(snapshot.extra(), b"mine");
        for _ in 0..3 {
            let mut copy = program.restore(&snapshot, InstanceConfig::isolated()).unwrap();
            assert_eq!((count(&mut copy), count(&mut copy)), (202, 303));
        }
    });
}

#[test]
fn code_for_other_processors_continues_from_a_snapshot() {
    let native = Engine::new(InterruptMode::Safepoint).unwrap();
    let baseline = Engine::for_processor(InterruptMode::Safepoint, Processor::Baseline).unwrap();
    let (_native_directory, native) = compile(&native, PROGRAM);
    let (directory, baseline) = compile(&baseline, PROGRAM);
    let same = open(&Engine::for_target(InterruptMode::Safepoint, Target::HOST).unwrap(), directory.path());
    assert!(same.is_ok(), "the engines of the baseline and of its platform differ");
    assert_eq!(native.identity(), baseline.identity());
    let restore = || {
        let mut original = native.instantiate(InstanceConfig::isolated()).unwrap();
        count(&mut original);
        let file = belljar_emscripten::snapshot::anonymous_file().unwrap();
        original.snapshot(&file, Vec::new(), WorkingSet::default()).unwrap();
        let snapshot = Snapshot::open(file, &baseline, &[]).unwrap();
        let mut copy = baseline.restore(&snapshot, InstanceConfig::isolated()).unwrap();
        assert_eq!((count(&mut copy), count(&mut copy)), (202, 303));
    };
    guest_thread::run("test", restore).unwrap();
}

#[test]
fn only_platforms_that_this_build_compiles_for_are_targets() {
    assert_eq!(Target::from_triple(Target::HOST.triple()), Some(Target::HOST));
    assert_eq!(Target::from_triple("riscv64gc-unknown-linux-gnu"), None);
    for other in Target::ALL.into_iter().filter(|target| *target != Target::HOST) {
        let found = Target::from_triple(other.triple());
        assert_eq!(found.is_some(), cfg!(feature = "cross-compile"), "{}", other.triple());
    }
}

#[test]
fn measured_working_set_leaves_results_unchanged() {
    with_program(|program| {
        let mut original = program.instantiate(InstanceConfig::isolated()).unwrap();
        count(&mut original);
        let first_write = |copy: &mut Instance| -> Result<(), InstanceError> {
            assert_eq!(count(copy), 202);
            Ok(())
        };
        let working_set = original.measure_working_set(first_write).unwrap();
        assert!(working_set.pages() >= 1);
        let file = belljar_emscripten::snapshot::anonymous_file().unwrap();
        original.snapshot(&file, Vec::new(), working_set).unwrap();
        let snapshot = Snapshot::open(file, program, &[]).unwrap();
        let mut copy = program.restore(&snapshot, InstanceConfig::isolated()).unwrap();
        assert_eq!((count(&mut copy), count(&mut copy)), (202, 303));
        assert_eq!(count(&mut original), 202, "the rehearsal was another's");
    });
}

#[test]
fn grown_memory_is_part_of_a_snapshot() {
    with_program(|program| {
        let mut original = program.instantiate(InstanceConfig::isolated()).unwrap();
        assert_eq!(original.call::<i32, i32>("grow", 10).unwrap(), 4);
        original.memory().write_u32(13 * 65536, 77).unwrap();
        let file = belljar_emscripten::snapshot::anonymous_file().unwrap();
        original.snapshot(&file, Vec::new(), WorkingSet::default()).unwrap();
        let snapshot = Snapshot::open(file, program, &[]).unwrap();
        let mut copy = program.restore(&snapshot, InstanceConfig::isolated()).unwrap();
        assert_eq!(copy.memory().read_u32(13 * 65536), Ok(77));
        assert_eq!(copy.call::<i32, i32>("grow", 1).unwrap(), 14);
    });
}

#[test]
fn damaged_or_foreign_snapshot_is_refused_with_the_reason() {
    let engine = Engine::new(InterruptMode::Safepoint).unwrap();
    let (_directory, program) = compile(&engine, PROGRAM);
    let (_other_directory, other) = compile(&engine, &PROGRAM.replace("hello", "hallo"));
    let bytes = guest_thread::run("test", || {
        let mut file = tempfile::tempfile().unwrap();
        program
            .instantiate(InstanceConfig::isolated())
            .unwrap()
            .snapshot(&file, Vec::new(), WorkingSet::default())
            .unwrap();
        let mut bytes = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
        file.rewind().unwrap();
        file.read_exact(&mut bytes).unwrap();
        bytes
    })
    .unwrap();
    let refusal = |bytes: &[u8], program: &Program| {
        let mut file: File = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        match Snapshot::open(file, program, &[]) {
            Ok(_) => panic!("accepted"),
            Err(error) => error.to_string(),
        }
    };
    assert!(refusal(&bytes, &other).contains("another build or of another program"));
    assert!(refusal(b"", &program).contains("too short"));
    assert!(refusal(&bytes[..bytes.len() - 4096], &program).contains("damaged"));
    let changed = |at: usize| {
        let mut copy = bytes.clone();
        copy[at] ^= 1;
        refusal(&copy, &program)
    };
    assert!(changed(0).contains("not a snapshot"));
    assert!(changed(8).contains("version"));
    assert!(changed(70).contains("checksum"));
}

#[test]
fn a_program_of_another_build_is_refused() {
    let safepoints = Engine::new(InterruptMode::Safepoint).unwrap();
    let (directory, _program) = compile(&safepoints, PROGRAM);
    let epochs = Engine::new(InterruptMode::Epoch).unwrap();
    assert!(matches!(open(&epochs, directory.path()), Err(ProgramError::OtherBuild { .. })));
}

#[test]
fn hard_stop_ends_loops_but_not_other_instances() {
    with_program(|program| {
        let mut bystander = program.instantiate(InstanceConfig::isolated()).unwrap();
        for export in ["spin", "nested_spin"] {
            let mut instance = program.instantiate(InstanceConfig::isolated()).unwrap();
            let stop = instance.stop_handle();
            let _watch = DeadlineGuard::start(
                &stop,
                TimeLimits { wall: Some(Duration::from_millis(5)), ..TimeLimits::default() },
            );
            let error = instance.call::<(), ()>(export, ()).unwrap_err();
            assert!(matches!(error, InstanceError::Terminated(Termination::Stopped)), "{error:?}");
            assert_eq!(stop.reason(), Some(StopReason::WallTime));
            assert!(matches!(instance.call::<(), i32>("count", ()), Err(InstanceError::Dead)));
            count(&mut bystander);
        }
        assert_eq!(count(&mut bystander), 303);
    });
}

#[test]
fn stop_before_the_first_call_is_effective() {
    with_program(|program| {
        let mut instance = program.instantiate(InstanceConfig::isolated()).unwrap();
        instance.stop_handle().stop(StopReason::Requested);
        let error = instance.call::<(), ()>("spin", ()).unwrap_err();
        assert!(matches!(error, InstanceError::Terminated(Termination::Stopped)), "{error:?}");
    });
}

#[test]
fn stop_after_the_instance_is_dropped_has_no_effect() {
    with_program(|program| {
        let stop = program.instantiate(InstanceConfig::isolated()).unwrap().stop_handle();
        stop.stop(StopReason::Requested);
        assert_eq!(count(&mut program.instantiate(InstanceConfig::isolated()).unwrap()), 101);
    });
}

#[test]
fn crash_ends_only_its_instance_and_reports_the_reason() {
    with_program(|program| {
        let mut bystander = program.instantiate(InstanceConfig::isolated()).unwrap();
        let mut crash = |export: &str| {
            let mut instance = program.instantiate(InstanceConfig::isolated()).unwrap();
            let error = match export {
                "recurse" => instance.call::<i32, i32>(export, 1).unwrap_err(),
                _ => instance.call::<(), ()>(export, ()).unwrap_err(),
            };
            assert!(instance.is_dead());
            count(&mut bystander);
            error
        };
        assert!(matches!(crash("crash"), InstanceError::Trapped(_)));
        assert!(matches!(crash("recurse"), InstanceError::StackOverflow));
        let asked = crash("ask").to_string();
        assert!(asked.contains("env.no_such_import"), "{asked}");
    });
}

#[test]
fn output_beyond_the_limit_ends_the_program() {
    with_program(|program| {
        let capture = Capture::default();
        let mut instance =
            program.instantiate(config_with(&capture, Limits { output: 16, ..Limits::default() })).unwrap();
        assert_eq!(instance.call::<(), i32>("hello", ()).unwrap(), 0);
        assert_eq!(instance.call::<(), i32>("hello", ()).unwrap(), 0);
        let error = instance.call::<(), i32>("hello", ()).unwrap_err();
        assert!(matches!(error, InstanceError::Terminated(Termination::OutputLimit { limit: 16 })), "{error:?}");
        assert_eq!(capture.take(), [(Stream::Stdout, b"hello\nhello\nhell".to_vec())]);
    });
}

#[test]
fn growth_beyond_the_limit_fails_without_ending_the_program() {
    with_program(|program| {
        let limits = Limits { memory: 16 * 65536, ..Limits::default() };
        let mut instance = program.instantiate(config_with(&Capture::default(), limits)).unwrap();
        assert_eq!(instance.call::<i32, i32>("grow", 13).unwrap(), -1);
        assert_eq!(instance.call::<i32, i32>("grow", 12).unwrap(), 4);
        assert_eq!(instance.peak_memory(), 16 * 65536);
        assert_eq!(count(&mut instance), 101);
    });
}

#[test]
fn threads_with_small_stacks_are_refused() {
    let engine = Engine::new(InterruptMode::Safepoint).unwrap();
    let (_directory, program) = compile(&engine, PROGRAM);
    let mut instance = program.instantiate(InstanceConfig::isolated()).unwrap();
    assert!(matches!(instance.call::<(), i32>("count", ()), Err(InstanceError::WrongThread)));
}

#[test]
fn helper_modules_have_slots_in_every_instance_and_copy() {
    let wat = r#"(module
      (type $answer (func (result i32)))
      (memory (export "memory") 1 16)
      (table (export "__indirect_function_table") 1 funcref)
      (func (export "through") (param i32) (result i32) (call_indirect (type $answer) (local.get 0))))"#;
    let helper = HelperModule {
        module: wat::parse_str(
            r#"(module (import "env" "memory" (memory 1))
              (func (export "answer") (result i32) (i32.load (i32.const 8))))"#,
        )
        .unwrap(),
        exports: vec!["answer".into()],
    };
    let engine = Engine::new(InterruptMode::Safepoint).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let wasm = wat::parse_str(wat).unwrap();
    let options = Options { safepoints: true, ..Options::default() };
    Program::compile(&engine, &Source { wasm: &wasm, options, helpers: vec![helper] }, directory.path()).unwrap();
    let program = Arc::new(open(&engine, directory.path()).unwrap());
    guest_thread::run("test", || {
        let ask = |instance: &mut Instance| {
            let slot = instance.helper_slot(0).cast_signed();
            instance.call::<i32, i32>("through", slot).unwrap()
        };
        let mut instance = program.instantiate(InstanceConfig::isolated()).unwrap();
        instance.memory().write_u32(8, 42).unwrap();
        assert_eq!(ask(&mut instance), 42);
        let file = belljar_emscripten::snapshot::anonymous_file().unwrap();
        instance.snapshot(&file, Vec::new(), WorkingSet::default()).unwrap();
        let snapshot = Snapshot::open(file, &program, &[]).unwrap();
        assert_eq!(ask(&mut program.restore(&snapshot, InstanceConfig::isolated()).unwrap()), 42);
    })
    .unwrap();
}

//! Differential test of the translation of exceptions against V8, which runs the legacy instructions themselves.
//!
//! Random modules (`generate.rs`) are run untranslated by node (`v8.mjs`) and translated by wasmtime. Each exported
//! function is called with several arguments, and all observable results must agree: the value returned, or the tag
//! thrown and its values, or that it trapped; a hash of every intermediate value; the number of calls and loop
//! iterations.
//!
//! `cargo test -p belljar-emscripten --test exceptions_differential` tries a hundred modules. To try many:
//!
//! ```sh
//! BELLJAR_EXCEPTIONS_MODULES=10000 cargo test -p belljar-emscripten --test exceptions_differential
//! ```
//!
//! and to repeat one, also set `BELLJAR_EXCEPTIONS_FIRST` to the seed that the failure names. The test needs `node`, or
//! the program that `BELLJAR_NODE` names, and is ignored without it; see `belljar-testing`.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod generate;

use std::path::Path;
use std::process::{Command, ExitCode};

use belljar_emscripten::InterruptMode;
use belljar_emscripten::translate::{Options, translate};
use wasmtime::{Engine, Extern, FuncType, Instance, Module, Store, Tag, TagType, ThrownException, Trap, Val, ValType};

const ARGUMENTS: [i32; 4] = [0, 1, 7, -3];
const FUEL: i32 = 300;

belljar_testing::trials! {
    translated_exceptions_behave_as_in_v8: [Node],
}

fn main() -> ExitCode {
    belljar_testing::main(trials)
}

fn translated_exceptions_behave_as_in_v8() {
    let first: u64 = number("BELLJAR_EXCEPTIONS_FIRST", 0);
    let count: u64 = number("BELLJAR_EXCEPTIONS_MODULES", 100);
    let modules: Vec<Vec<u8>> = (first..first + count).map(generate::module).collect();
    let directory = tempfile::tempdir().unwrap();
    for (index, module) in modules.iter().enumerate() {
        std::fs::write(directory.path().join(format!("{index}.wasm")), module).unwrap();
    }
    let expected = in_v8(directory.path(), modules.len());
    let mut expected = expected.lines();

    let engine = engine();
    let mut kinds = [("returned", 0), ("threw", 0), ("trapped", 0)];
    for (index, (seed, module)) in (first..).zip(&modules).enumerate() {
        for line in in_wasmtime(&engine, seed, index, module) {
            let in_v8 = expected.next().expect("node printed too few lines");
            assert_eq!(line, in_v8, "wasmtime (left) and V8 (right) differ for seed {seed}");
            for (kind, seen) in &mut kinds {
                *seen += usize::from(line.contains(*kind));
            }
        }
    }
    assert_eq!(expected.next(), None);
    if count >= 10 {
        assert!(kinds.iter().all(|(_, seen)| *seen > 0), "the modules are too much alike: {kinds:?}");
    }
    eprintln!("{count} modules: {kinds:?}");
}

fn number(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(value) => value.parse().unwrap_or_else(|error| panic!("{variable}={value}: {error}")),
        Err(_) => default,
    }
}

/// Returns the output of node.
fn in_v8(directory: &Path, modules: usize) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/exceptions_differential/v8.mjs");
    let mut command = Command::new(belljar_testing::node());
    command
        .arg(script)
        .arg(directory)
        .args([modules, generate::FUNCTIONS as usize, FUEL as usize].map(|n| n.to_string()));
    command.args(ARGUMENTS.map(|argument| argument.to_string()));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn engine() -> Engine {
    belljar_emscripten::Engine::new(InterruptMode::Safepoint).unwrap().wasmtime().clone()
}

/// Returns the same lines as `v8.mjs` prints. Odd seeds also have safepoints and stack padding, and every third seed
/// inlines, none of which may change the results.
fn in_wasmtime(engine: &Engine, seed: u64, index: usize, module: &[u8]) -> Vec<String> {
    let mut options = Options { reserved_slots: 3, ..Options::default() };
    if seed % 2 == 1 {
        options.safepoints = true;
        options.stack_padding = vec![("f0".to_owned(), 256), ("f3".to_owned(), 16)];
    }
    if seed % 3 == 1 {
        options.inline = 400;
    }
    let translated = translate(module, &options).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    let module = Module::new(engine, &translated.wasm).unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
    let mut store = Store::new(engine, ());
    let imported = Tag::new(&mut store, &TagType::new(FuncType::new(engine, [ValType::I32], []))).unwrap();
    let instance = Instance::new(&mut store, &module, &[Extern::Tag(imported)]).unwrap();
    let hash = instance.get_global(&mut store, "hash").unwrap();
    let fuel = instance.get_global(&mut store, "fuel").unwrap();
    let mut lines = vec![];
    for function in 0..generate::FUNCTIONS {
        for argument in ARGUMENTS {
            hash.set(&mut store, Val::I32(0)).unwrap();
            fuel.set(&mut store, Val::I32(FUEL)).unwrap();
            let what = outcome(&mut store, instance, imported, function, argument);
            let (hash, fuel) = (hash.get(&mut store).unwrap_i32(), fuel.get(&mut store).unwrap_i32());
            lines.push(format!("{index} f{function}({argument}) {what}; hash {hash}, fuel {fuel}"));
        }
    }
    lines
}

fn outcome(store: &mut Store<()>, instance: Instance, imported: Tag, function: u32, argument: i32) -> String {
    let function = instance.get_typed_func::<i32, i32>(&mut *store, &format!("f{function}")).unwrap();
    let error = match function.call(&mut *store, argument) {
        Ok(value) => return format!("returned {value}"),
        Err(error) => error,
    };
    if !error.is::<ThrownException>() {
        assert_eq!(error.downcast_ref(), Some(&Trap::UnreachableCodeReached), "{error:?}");
        return "trapped".to_owned();
    }
    let exception = store.take_pending_exception().unwrap();
    let thrown = exception.tag(&mut *store).unwrap();
    let mut tags = vec![("imported", imported)];
    for name in ["empty", "pair"] {
        tags.push((name, instance.get_tag(&mut *store, name).unwrap()));
    }
    let (name, _) = tags.into_iter().find(|(_, tag)| Tag::eq(tag, &thrown, &*store)).unwrap();
    let values: Vec<Val> = exception.fields(&mut *store).unwrap().collect();
    let values: String = values.iter().map(|value| format!(" {}", value.unwrap_i32())).collect();
    format!("threw {name}{values}")
}

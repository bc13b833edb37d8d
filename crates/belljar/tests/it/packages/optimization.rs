//! Functions of extension modules are compiled when they are called in the first use, and whole modules with full
//! optimization for later ones.

use std::path::Path;
use std::time::{Duration, Instant};

use super::copy_warm_cache;
use crate::harness::{Belljar, Run, cache, cache_entries};

/// A package with one extension module, whose functions are compiled one by one at first.
const CODE: &str = "import jiter; print(jiter.from_json(b'[1]'))";

/// Returns the number of extension modules in a cache that are not compiled as a whole: their entries contain the
/// module itself.
fn quickly_compiled(cache: &Path) -> usize {
    let is_module = |file: std::fs::DirEntry| file.path().extension().is_some_and(|extension| extension == "wasm");
    // An entry that is being deleted has no files.
    let has_module = |entry: &std::path::PathBuf| entry.read_dir().is_ok_and(|files| files.flatten().any(is_module));
    cache_entries(cache, "library").iter().filter(|entry| has_module(entry)).count()
}

fn new_cache() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    copy_warm_cache(cache(), directory.path());
    directory
}

fn run(cache: &Path, no_background: &str) -> Run {
    let run = Belljar::with_cache(cache).env("BELLJAR_NO_BACKGROUND", no_background).args(["run", "-c", CODE]).run();
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), "[1]\n"), "{run:?}");
    run
}

/// Waits until the extension module is compiled as a whole, and the entry that it replaces is deleted.
fn wait_for_optimization(cache: &Path) {
    let start = Instant::now();
    while quickly_compiled(cache) > 0 || cache_entries(cache, "library").len() != 1 {
        assert!(start.elapsed() < Duration::from_secs(300), "the extension module was not compiled again");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn short_run_leaves_optimization_to_another_process() {
    let directory = new_cache();
    run(directory.path(), "0");
    wait_for_optimization(directory.path());
    run(directory.path(), "0");
}

#[test]
fn server_leaves_optimization_to_another_process() {
    let directory = new_cache();
    let command = Belljar::with_cache(directory.path()).env("BELLJAR_NO_BACKGROUND", "0");
    let example = command.args(["example", "--preload", "jiter", "--deps", "jiter"]).run();
    assert_eq!(example.status, Some(0), "{example:?}");
    wait_for_optimization(directory.path());
}

#[test]
fn cache_optimize_compiles_what_runs_left() {
    let directory = new_cache();
    let optimize = || {
        let run = Belljar::with_cache(directory.path()).args(["cache", "optimize"]).run();
        assert_eq!(run.status, Some(0), "{run:?}");
        run.stderr
    };
    run(directory.path(), "1");
    run(directory.path(), "1");
    assert_eq!(quickly_compiled(directory.path()), 1);
    let stderr = optimize();
    assert!(stderr.contains("extension modules compiled: 1"), "{stderr}");
    assert_eq!((quickly_compiled(directory.path()), cache_entries(directory.path(), "library").len()), (0, 1));
    run(directory.path(), "1");
    let stderr = optimize();
    assert!(stderr.contains("extension modules compiled: 0"), "{stderr}");
}

/// Runs code with `jiter` and returns the number of fragments of its module that the process compiled.
fn compiled_fragments(cache: &Path, code: &str) -> usize {
    let command = Belljar::with_cache(cache).env("BELLJAR_LOG", "belljar_emscripten=trace");
    let run = command.args(["run", "-c", code]).run();
    assert_eq!(run.status, Some(0), "{run:?}");
    run.stderr.matches("compiled functions of a library").count()
}

#[test]
fn functions_are_compiled_once_they_are_called() {
    let directory = new_cache();
    let import = compiled_fragments(directory.path(), "import jiter");
    assert!(import > 0);
    // The image contains the imported module, and the same code does not call a function of it.
    assert_eq!(compiled_fragments(directory.path(), "import jiter"), 0);
    let parse = "import jiter; print(jiter.from_json(b'[1]'))";
    assert!(compiled_fragments(directory.path(), parse) > 0);
    let run = Belljar::with_cache(directory.path()).args(["cache", "optimize"]).run();
    assert_eq!(run.status, Some(0), "{run:?}");
    assert_eq!(compiled_fragments(directory.path(), parse), 0);
}

#[test]
fn image_does_not_depend_on_the_code_of_extension_modules() {
    let directory = new_cache();
    let image = || {
        run(directory.path(), "1");
        let [entry] = &cache_entries(directory.path(), "image")[..] else { panic!("not one image") };
        let bytes = std::fs::read(entry.join("packages.image")).unwrap();
        std::fs::remove_dir_all(entry).unwrap();
        bytes
    };
    let lazy = image();
    let run = Belljar::with_cache(directory.path()).args(["cache", "optimize"]).run();
    assert_eq!(run.status, Some(0), "{run:?}");
    assert_eq!(quickly_compiled(directory.path()), 0);
    assert!(lazy == image(), "the images differ");
}

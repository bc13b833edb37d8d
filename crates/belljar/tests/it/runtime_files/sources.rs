//! `--runtime`, `--pyodide` and `--offline`.

use std::fs;
use std::path::Path;

use crate::harness::downloads;
use crate::harness::{Belljar, Run};

/// Warms up an empty cache with `--runtime`.
fn warmup(runtime: &Path) -> Run {
    let cache = tempfile::tempdir().unwrap();
    Belljar::with_cache(cache.path()).args(["warmup", "-q", "--runtime"]).arg(runtime).run()
}

#[test]
fn runtime_directory_without_files_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    for path in [directory.path().to_owned(), directory.path().join("absent")] {
        let run = warmup(&path);
        assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""), "{run:?}");
        assert!(run.stderr.contains("pyodide.asm.wasm"), "{run:?}");
    }
}

#[test]
fn missing_runtime_directory_is_reported_despite_a_warm_cache() {
    let directory = tempfile::tempdir().unwrap();
    let absent = directory.path().join("absent");
    for args in [&["run", "-c", "1"][..], &["stdio"], &["warmup"], &["packages", "lock", "--deps", "rich"]] {
        let run = Belljar::new().args(args).env("BELLJAR_RUNTIME", &absent).run();
        assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""), "{args:?}: {run:?}");
        assert!(run.stderr.contains("absent is not a directory\nhint: "), "{args:?}: {run:?}");
    }
}

#[test]
fn files_of_another_release_are_refused() {
    let files = ["pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json"];
    let directory = tempfile::tempdir().unwrap();
    for wrong in files {
        for file in files {
            let copy = directory.path().join(file);
            fs::copy(downloads().join(file), &copy).unwrap();
            if file == wrong {
                let mut bytes = fs::read(&copy).unwrap();
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
                fs::write(&copy, bytes).unwrap();
            }
        }
        let run = warmup(directory.path());
        assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""), "{wrong}: {run:?}");
        assert!(run.stderr.contains(wrong), "{wrong}: {run:?}");
    }
}

#[test]
fn unknown_release_error_lists_known_releases() {
    let run = Belljar::new().args(["run", "--pyodide", "0.1", "-c", "1"]).run();
    assert_eq!(run.status, Some(2));
    assert!(run.stderr.contains("314.0.7") && run.stderr.contains("315.0.0-alpha.2"), "{run:?}");
}

#[test]
fn the_next_release_runs_the_same_code() {
    let code = "import sys, json, asyncio, sqlite3, re\nassert await asyncio.sleep(0, 1) == 1\n\
                assert sqlite3.connect(':memory:').execute('select 6 * 7').fetchone() == (42,)\nsys.version_info[:2]";
    let next = |args: &[&str]| Belljar::new().env("BELLJAR_PYODIDE", "315.0.0-alpha.2").arg("run").args(args).run();
    let run = next(&["-q", "-p", "-c", code]);
    assert_eq!(run.status, Some(0), "{run:?}");
    assert_eq!(run.stdout.split_whitespace().collect::<String>(), "[3,15]");
    assert_eq!(next(&["-c", "import sys; sys.exit(3)"]).status, Some(3));
    assert_eq!(next(&["-c", "1 / 0"]).status, Some(1));
    assert_eq!(next(&["--timeout", "0.3", "-c", "while True: pass"]).status, Some(124));
    assert_eq!(next(&["-c", "import js"]).status, Some(1));
    assert_eq!(next(&["-c", "def f(): f()\nf()"]).status, Some(1));
    assert_eq!(next(&["-c", "import os; os.abort()"]).status, Some(134));
}

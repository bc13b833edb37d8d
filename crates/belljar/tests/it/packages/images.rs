//! Images with packages: modules imported beforehand, without a visible difference.

use std::path::Path;

use crate::harness::{Belljar, cache_entries};
use crate::wheels::Wheels;

#[test]
fn named_modules_are_imported_into_the_image() {
    let wheels = Wheels::new().with("ready", "1.0", &[("ready/__init__.py", ""), ("ready/part.py", "")]);
    let code = "import sys; print([name in sys.modules for name in ('wave', 'ready.part')])";
    assert_eq!(wheels.run(&[], code).stdout, "[False, False]\n");
    assert_eq!(wheels.run(&["--preload", "wave,ready.part"], code).stdout, "[True, True]\n");
    assert_eq!(wheels.run(&["--preload", "wave"], code).stdout, "[True, False]\n");
    // The modules may have read it.
    assert_eq!(wheels.run(&["--preload", "wave,ready.part", "--env", "A=1"], code).stdout, "[False, False]\n");
    let with_more = "import six, sys; print(six.__name__, 'ready.part' in sys.modules)";
    let run =
        Belljar::new().args(["run", "--find-links", wheels.path(), "--preload", "ready.part", "-c", with_more]).run();
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), "six True\n"), "{run:?}");
    let run = wheels.run(&["--preload", "a;import os"], code);
    assert!(
        run.status == Some(2) && run.stderr.contains("--preload: `a;import os` is not the name of a module"),
        "{run:?}"
    );
}

#[test]
fn warmup_reports_modules_that_fail_to_import() {
    let wheels = Wheels::new().with("raises", "1.0", &[("raises.py", "raise ValueError('not here')")]);
    let arguments = ["warmup", "--quiet", "--find-links", wheels.path(), "--preload", "json,raises"];
    let run = Belljar::new().env("UV_NO_INDEX", "1").args(arguments).run();
    assert_eq!(run.status, Some(2), "{run:?}");
    assert!(run.stderr.contains("failed to import `raises`") && run.stderr.contains("not here"), "{run:?}");
}

#[test]
fn module_error_at_import_is_raised_in_the_code() {
    let wheels = Wheels::new().with("raises", "1.0", &[("raises.py", "raise ValueError('not here')")]);
    let run = wheels.run(&[], "try:\n import raises\nexcept ValueError as error: print(error)\nimport raises");
    assert_eq!((run.status, run.stdout.as_str()), (Some(1), "not here\n"), "{run:?}");
}

#[test]
fn module_output_at_import_appears_in_the_code() {
    let wheels = Wheels::new().with("talks", "1.0", &[("talks.py", "print('hello')")]);
    for _ in 0..2 {
        let run = wheels.run(&[], "print('first')\nimport talks\nimport talks");
        assert_eq!((run.status, run.stdout.as_str()), (Some(0), "first\nhello\n"), "{run:?}");
    }
}

#[test]
fn module_exit_or_crash_at_import_spares_the_image() {
    for (name, source) in [("exits", "import os; os._exit(3)"), ("leaves", "import sys; sys.exit(4)")] {
        let wheels = Wheels::new().with(name, "1.0", &[(&format!("{name}.py"), source)]);
        let run = wheels.run(&[], &format!("print('first', flush=True)\nimport {name}"));
        assert_eq!(run.stdout, "first\n", "{run:?}");
        assert!(matches!(run.status, Some(3 | 4)), "{run:?}");
    }
}

#[test]
fn endless_import_is_left_to_the_code() {
    let wheels = Wheels::new().with("hangs", "1.0", &[("hangs.py", "while True: pass")]);
    let run = wheels.run(&["--timeout", "5"], "print('first', flush=True)\nimport hangs");
    assert_eq!((run.status, run.stdout.as_str()), (Some(124), "first\n"), "{run:?}");
}

#[test]
fn modules_see_the_environment_of_the_code() {
    let source = "import os; level = os.environ.get('LEVEL', 'none')";
    let wheels = Wheels::new().with("looks", "1.0", &[("looks.py", source)]);
    let code = "import looks; print(looks.level)";
    assert_eq!(wheels.run(&[], code).stdout, "none\n");
    assert_eq!(wheels.run(&["--env", "LEVEL=7"], code).stdout, "7\n");
}

#[test]
fn copies_of_an_image_share_nothing() {
    let wheels = Wheels::new().with("state", "1.0", &[("state.py", "seen = []")]);
    for _ in 0..2 {
        let run = wheels.run(&[], "import state; state.seen.append(1); print(state.seen)");
        assert_eq!(run.stdout, "[1]\n", "{run:?}");
    }
}

#[test]
fn memory_limit_during_import_is_raised_in_the_code() {
    let filler = "data = [bytearray(1 << 20) for _ in range(40)]";
    let wheels = Wheels::new().with("heavy", "1.0", &[("heavy/__init__.py", ""), ("heavy/data.py", filler)]);
    let code = "print('begun')\nimport heavy.data";
    let run = wheels.run(&["--memory", "50MB"], code);
    assert_eq!(run.stdout, "begun\n", "{run:?}");
    assert!(run.stderr.contains("MemoryError"), "{run:?}");
    assert_eq!(wheels.run(&["--memory", "200MB"], code).status, Some(0));
}

#[test]
fn package_files_are_writable_copies_per_interpreter() {
    let wheels = Wheels::new().with("mine", "1.0", &[("mine.py", "x = 1")]);
    let code = "import mine; print(open(mine.__file__).read()); open(mine.__file__, 'w').write('x = 2')";
    for _ in 0..2 {
        assert_eq!(wheels.run(&[], code).stdout, "x = 1\n");
    }
}

#[test]
fn library_written_by_the_guest_is_refused() {
    let code = "import glob, importlib.machinery, os, shutil, sys
import jiter
path = glob.glob(os.path.dirname(jiter.__file__) + '/*.so')[0]
shutil.copy(path, '/tmp/jiter.so')
with open(path, 'r+b') as library:
    library.write(library.read(1))
for name, where in [('jiter', '/tmp/jiter.so'), ('jiter.again', path)]:
    loader = importlib.machinery.ExtensionFileLoader(name, where)
    try:
        loader.create_module(importlib.machinery.ModuleSpec(name, loader, origin=where))
    except ImportError as error:
        print('not installed by the host' in str(error))
print(jiter.from_json(b'1'))";
    let run = Belljar::new().args(["run", "-c", code]).run();
    // The library at the second path is loaded already, so it is not read again, and it has no `PyInit_again`.
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), "True\nFalse\n1\n"), "{run:?}");
}

#[test]
fn two_processes_install_the_same_set_at_once() {
    let wheels = Wheels::new().with("shared", "1.0", &[("shared.py", "x = 1")]);
    let start = || wheels.belljar().args(["-c", "import shared; print(shared.x)"]).start();
    for running in [start(), start(), start()] {
        let run = running.wait();
        assert_eq!((run.status, run.stdout.as_str()), (Some(0), "1\n"), "{run:?}");
    }
}

#[test]
fn cached_packages_can_be_listed_and_deleted() {
    let cache = tempfile::tempdir().unwrap();
    let wheels = Wheels::new().with("kept", "1.0", &[("kept.py", "x = 1")]);
    // A copy of the warm cache, so that CPython is not compiled again.
    super::copy_warm_cache(crate::harness::cache(), cache.path());
    let belljar = || Belljar::with_cache(cache.path()).env("UV_NO_INDEX", "1");
    let run = || {
        let run = belljar().args(["run", "--find-links", wheels.path(), "-c", "import kept; print(kept.x)"]).run();
        assert_eq!((run.status, run.stdout.as_str()), (Some(0), "1\n"), "{run:?}");
    };
    run();
    let listed = belljar().args(["packages", "list"]).run();
    assert!(listed.stdout.contains("kept-1.0-py3-none-any.whl"), "{listed:?}");
    let cleaned = belljar().args(["packages", "clean"]).run();
    assert_eq!(cleaned.status, Some(0), "{cleaned:?}");
    let listed = belljar().args(["packages", "list"]).run();
    assert!(listed.stdout.contains("0 images, 0 B") && !listed.stdout.contains(".whl"), "{listed:?}");
    run();
}

/// Returns whether each of the modules of `apart` has bytecode in a cache.
fn compiled(cache: &Path, modules: &[&str]) -> Vec<bool> {
    let indices: Vec<Vec<u8>> = cache_entries(cache, "bytecode-")
        .iter()
        .map(|entry| std::fs::read(entry.join("wheel.index")).unwrap())
        .collect();
    let has = |module: &&str| {
        let path = format!("/apart/__pycache__/{module}.cpython-");
        indices.iter().any(|index| index.windows(path.len()).any(|bytes| bytes == path.as_bytes()))
    };
    modules.iter().map(has).collect()
}

#[test]
fn modules_are_compiled_once_they_are_imported() {
    let modules = [
        ("apart/__init__.py", "from . import used\n\ndef load():\n    from . import late\n    return late.name"),
        ("apart/used.py", "name = 'used'"),
        ("apart/late.py", "name = 'late'"),
        ("apart/unused.py", "name = 'unused'"),
        ("apart/broken.py", "name = "),
    ];
    let wheels = Wheels::new().with("apart", "1.0", &modules);
    let cache = tempfile::tempdir().unwrap();
    super::copy_parts(cache.path());
    let run = |code: &str| {
        let options = ["run", "-q", "--find-links", wheels.path(), "-c", code];
        Belljar::with_cache(cache.path()).env("UV_NO_INDEX", "1").args(options).run()
    };
    let compiled = || compiled(cache.path(), &["__init__", "used", "late", "unused", "broken"]);
    let first = run("import apart; print(apart.used.name)");
    assert_eq!((first.stdout.as_str(), first.status), ("used\n", Some(0)), "{first:?}");
    assert_eq!(compiled(), [true, true, false, false, false]);
    for _ in 0..2 {
        assert_eq!(run("import apart; print(apart.load())").stdout, "late\n");
        assert_eq!(compiled(), [true, true, true, false, false]);
    }
    for _ in 0..2 {
        let broken = run("import apart, importlib; importlib.import_module('apart.broken')");
        assert!(broken.status == Some(1) && broken.stderr.contains("SyntaxError"), "{broken:?}");
    }
    assert_eq!(run("import apart.unused as unused; print(unused.name)").stdout, "unused\n");
    assert_eq!(compiled()[..4], [true; 4]);
}

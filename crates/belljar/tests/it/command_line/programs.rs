//! Sources of the code, its arguments and its environment.

use crate::harness::Belljar;
use crate::wheels::Wheels;

const SHOW: &str = "import sys; print(sys.argv)";

#[test]
fn arguments_arrive_as_python_gives_them() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("x.py"), SHOW).unwrap();
    let show = |args: &[&str], input: &str| {
        let run = Belljar::new().directory(directory.path()).arg("run").args(args).input(input).run();
        assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""), "{args:?}");
        run.stdout
    };
    assert_eq!(show(&["x.py"], ""), "['x.py']\n");
    assert_eq!(
        show(&["x.py", "one", "--two", "-c", "", "--", "é"], ""),
        "['x.py', 'one', '--two', '-c', '', '--', 'é']\n"
    );
    assert_eq!(show(&["-c", SHOW], ""), "['-c']\n");
    assert_eq!(show(&["-c", SHOW, "one", "--two"], ""), "['-c', 'one', '--two']\n");
    assert_eq!(show(&["-", "one"], SHOW), "['-', 'one']\n");
    assert_eq!(show(&["-"], SHOW), "['-']\n");
    assert_eq!(show(&[], SHOW), "['-']\n");
}

#[test]
fn environment_contains_only_given_variables() {
    let show = "import os; print(sorted(os.environ.items() - {('HOME', os.environ['HOME'])}))";
    let run = Belljar::new()
        .env("SECRET", "1")
        .args(["run", "--env", "A=1", "--env", "B=x=y z", "--env", "C=", "-c"])
        .arg(show)
        .run();
    assert!(run.stdout.contains("('A', '1'), ('B', 'x=y z'), ('C', '')"), "{run:?}");
    assert!(!run.stdout.contains("SECRET") && !run.stdout.contains("CARGO"), "{run:?}");
}

#[test]
fn name_and_file_are_those_of_a_script() {
    let run = Belljar::run_with(["-c", "print(__name__)\ndef f(): pass\nprint(f.__module__)"]);
    assert_eq!(run.stdout, "__main__\n__main__\n");
}

#[test]
fn a_byte_order_mark_and_windows_lines_are_read() {
    let run = Belljar::new().args(["run", "-"]).input("\u{feff}print(1)\r\nif 1:\r\n    print(2)\r\n").run();
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), "1\n2\n"), "{run:?}");
}

#[test]
fn an_empty_program_runs() {
    for code in ["", "\n\n", "# nothing", "''"] {
        let run = Belljar::new().args(["run", "-"]).input(code).run();
        assert_eq!((run.status, run.stdout.as_str(), run.stderr.as_str()), (Some(0), "", ""), "{code:?}");
    }
}

#[test]
fn last_value_is_printed_on_request() {
    for (code, printed) in [("6 * 7", "42\n"), ("'text'", "text\n"), ("x = 1", ""), ("None", ""), ("1;", "")] {
        let run = Belljar::run_with(["-p", "-c", code]);
        assert_eq!((run.status, run.stdout.as_str()), (Some(0), printed), "{code}: {run:?}");
    }
}

#[test]
fn statistics_are_written_to_standard_error() {
    let run = Belljar::run_with(["--stats", "-c", "print(1)"]);
    assert_eq!(run.stdout, "1\n");
    assert!(run.stderr.starts_with("start ") && run.stderr.contains("peak memory"), "{run:?}");
    assert!(run.stderr.trim_end().ends_with("on a thread of this process"), "{run:?}");
}

#[test]
fn top_level_await_works() {
    let run = Belljar::run_with([
        "-p",
        "-c",
        "import asyncio; await asyncio.gather(asyncio.sleep(0, 1), asyncio.sleep(0, 2))",
    ]);
    assert_eq!(run.status, Some(0), "{run:?}");
    assert!(run.stdout.contains('1') && run.stdout.contains('2'), "{run:?}");
}

#[test]
fn tracebacks_name_the_script() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("sub")).unwrap();
    std::fs::write(directory.path().join("sub/my script.py"), "def f():\n    print(__file__)\n    1 / 0\nf()").unwrap();
    let run = Belljar::new().directory(directory.path()).args(["run", "sub/my script.py"]).run();
    assert_eq!((run.status, run.stdout.as_str()), (Some(1), "sub/my script.py\n"), "{run:?}");
    let frames = "  File \"sub/my script.py\", line 4, in <module>\n    f()\n";
    assert!(run.stderr.contains(frames) && run.stderr.contains("line 3, in f\n    1 / 0\n"), "{run:?}");
    std::fs::write(directory.path().join("wrong.py"), "def (").unwrap();
    let run = Belljar::new().directory(directory.path()).args(["run", "wrong.py"]).run();
    assert!(run.stderr.contains("File \"wrong.py\", line 1"), "{run:?}");
}

#[test]
fn files_that_are_not_kept_are_named_once() {
    let code = "import os\nos.mkdir('d')\nfor name in ('a.csv', 'd/b', '.hidden'):\n    open(name, 'w').close()\n\
                open('/tmp/c', 'w').close()\nopen('gone', 'w').close()\nos.remove('gone')";
    let run = Belljar::run_with(["-c", code]);
    let note =
        "not kept after the run: a.csv, d/b\nhint: --mount DIR:/out:rw keeps the files that the code writes to /out\n";
    assert_eq!((run.status, run.stderr.as_str()), (Some(0), note), "{run:?}");
    let directory = tempfile::tempdir().unwrap();
    let mount = format!("{}:/out:rw", directory.path().display());
    let quiet = ["-q", "-c", code];
    let mounted = ["--mount", &mount, "-c", "open('/out/kept', 'w').write('x')"];
    for options in [&quiet[..], &mounted[..]] {
        let run = Belljar::run_with(options.iter().copied());
        assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    }
    assert!(directory.path().join("kept").exists());
}

#[test]
fn misspelt_options_get_suggestions() {
    for (args, hint) in [
        (&["--timout", "3", "x.py"][..], "did you mean --timeout?"),
        (&["--memori=3", "x.py"], "did you mean --memory?"),
        (&["x.ipynb", "--fnd-links", "x"], "did you mean --find-links?"),
        (&["x.ipynb", "-o", "y.ipynb", "z"], "-o FILE writes the executed notebook to FILE"),
    ] {
        let run = Belljar::without_cache().arg("run").args(args).run();
        assert!(run.status == Some(2) && run.stderr.contains(&format!("\nhint: {hint}\n")), "{args:?}: {run:?}");
    }
}

#[test]
fn modules_run_as_programs() {
    let wheels = Wheels::new().with(
        "alpha",
        "1.0",
        &[
            ("alpha/__init__.py", "print('package')"),
            ("alpha/__main__.py", "import sys; print(__name__, sys.argv[1:])"),
            ("alpha/tool.py", "import sys; sys.exit(7)"),
        ],
    );
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("own.py"), "import helper\nprint(__name__, helper.name)").unwrap();
    std::fs::write(directory.path().join("helper.py"), "name = 'helper'").unwrap();
    let show = |args: &[&str], input: &str| {
        let all = [&["run", "-q", "--find-links", wheels.path(), "-m"], args].concat();
        let run = Belljar::new().env("UV_NO_INDEX", "1").directory(directory.path()).args(all).input(input).run();
        (run.status, run.stdout, run.stderr)
    };
    let succeeded = |text: &str| (Some(0), text.to_owned(), String::new());
    assert_eq!(show(&["json.tool", "--compact"], "{\"a\": 1}"), succeeded("{\"a\":1}\n"));
    // Its own options are not those of Belljar.
    assert_eq!(show(&["alpha", "-q", "--timeout", "x"], ""), succeeded("package\n__main__ ['-q', '--timeout', 'x']\n"));
    assert_eq!(
        show(&["alpha", "--timeout", "x", "-m", "y"], ""),
        succeeded("package\n__main__ ['--timeout', 'x', '-m', 'y']\n")
    );
    assert_eq!(show(&["alpha", "--", "one"], ""), succeeded("package\n__main__ ['one']\n"));
    assert_eq!(show(&["own"], ""), succeeded("__main__ helper\n"));
    let (status, out, error) = show(&["alpha.tool"], "");
    assert_eq!((status, out.as_str(), error.as_str()), (Some(7), "package\n", ""));
    let (status, _, error) = show(&["json.nothing"], "");
    assert!(status == Some(1) && error.contains("No module named json.nothing"), "{status:?} {error}");
    let (status, _, error) = show(&["./x.py"], "");
    assert!(status == Some(2) && error.contains("write a module's name, such as json.tool"), "{status:?} {error}");
}

#[test]
fn functions_that_are_missing_in_webassembly_are_explained() {
    for (code, advice) in [
        ("import hashlib\nhashlib.scrypt(b'', salt=b'', n=2, r=1, p=1)", "has no hashlib.scrypt: CPython has it from"),
        ("from hashlib import scrypt", "use hashlib.pbkdf2_hmac"),
        ("import signal\nsignal.alarm(1)", "has no signal.alarm: no signals arrive here: limit a call"),
    ] {
        let run = Belljar::run_with(["-c", code]);
        assert!(run.status == Some(1) && run.stderr.contains(advice), "{code}: {run:?}");
    }
    let code = "import hashlib, getpass\nprint(hasattr(hashlib, 'scrypt'), getpass.getuser())";
    assert_eq!(Belljar::run_with(["-c", code]).stdout, "False user\n");
}

//! Exit statuses and error messages.

use crate::harness::Belljar;

/// Runs `code` with `options` and returns the exit status and standard error.
fn run(options: &[&str], code: &str) -> (Option<i32>, String) {
    let run = Belljar::new().arg("run").args(options).args(["-c", code]).run();
    (run.status, run.stderr)
}

#[test]
fn the_exit_status_is_the_one_that_python_gives() {
    for (code, status, stderr) in [
        ("pass", 0, ""),
        ("1", 0, ""),
        ("import sys; sys.exit()", 0, ""),
        ("import sys; sys.exit(None)", 0, ""),
        ("import sys; sys.exit(0)", 0, ""),
        ("import sys; sys.exit(3)", 3, ""),
        ("import sys; sys.exit(255)", 255, ""),
        ("import sys; sys.exit(300)", 44, ""),
        ("import sys; sys.exit(-1)", 255, ""),
        ("import sys; sys.exit(True)", 1, ""),
        ("import sys; sys.exit('so long')", 1, "so long\n"),
        ("import sys; sys.exit([1, 2])", 1, "[1, 2]\n"),
        ("raise SystemExit", 0, ""),
        ("exit(4)", 4, ""),
        ("quit()", 0, ""),
        ("import os; os._exit(5)", 5, ""),
    ] {
        assert_eq!(run(&[], code), (Some(status), stderr.into()), "{code}");
    }
}

#[test]
fn an_exception_is_printed_as_python_prints_it() {
    insta::assert_snapshot!(run(&[], "def f(x):\n    return 1 / x\nf(0)").1, @r#"
    Traceback (most recent call last):
      File "main.py", line 3, in <module>
        f(0)
        ~^^^
      File "main.py", line 2, in f
        return 1 / x
               ~~^~~
    ZeroDivisionError: division by zero
    "#);
    assert_eq!(run(&[], "1 / 0").0, Some(1));
    assert_eq!(run(&[], "def").0, Some(1));
    assert_eq!(run(&["--memory", "64MB"], "x = b'a' * (1 << 30)").0, Some(1));
    assert_eq!(run(&[], "raise KeyboardInterrupt").0, Some(130));
}

#[test]
fn limits_have_statuses_of_their_own() {
    for (options, code, status, message) in [
        (&["--timeout", "0.2"][..], "while True: pass", 124, "belljar: the code ran out of time\n"),
        (&["--cpu", "0.2"], "while True: pass", 124, "belljar: the code ran out of processor time\n"),
        (&["--max-output", "10KB"], "while True: print('x' * 99)", 125, "belljar: the code wrote too much output\n"),
    ] {
        let (came, stderr) = run(options, code);
        assert_eq!(came, Some(status), "{code}");
        assert!(stderr.starts_with(message) && stderr.contains("\nhint: --"), "{code}: {stderr}");
    }
}

#[test]
fn crash_is_reported_with_status_134() {
    for (code, words) in [
        ("import os; os.abort()", "aborted"),
        ("import ctypes; ctypes.string_at(0xffffffff, 9)", "memory"),
        ("import faulthandler; faulthandler._sigsegv()", "crashed its interpreter"),
    ] {
        let (status, stderr) = run(&[], code);
        assert_eq!(status, Some(134), "{code}: {stderr}");
        assert!(stderr.contains("belljar: the code crashed its interpreter") && stderr.contains(words), "{stderr}");
    }
}

#[test]
fn errors_of_belljar_have_status_2() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("latin.py"), b"print('\xe9')").unwrap();
    let arguments: [&[&str]; 15] = [
        &["run", "absent.py"],
        &["run", "latin.py"],
        &["run", "."],
        &["run", "--timeout", "soon", "-c", "1"],
        &["run", "--timeout", "-1", "-c", "1"],
        &["run", "--memory", "much", "-c", "1"],
        &["run", "--env", "NOVALUE", "-c", "1"],
        &["run", "--mount", "nowhere", "-c", "1"],
        &["run", "--mount", "absent:/data", "-c", "1"],
        &["run", "--nonsense"],
        &["run", "--pyodide", "1.2.3", "-c", "1"],
        &["run", "--runtime", "absent", "-c", "1"],
        &["run", "-o", "out.ipynb", "-c", "1"],
        &["run", "-o", "out.ipynb", "latin.py"],
        &["nonsense"],
    ];
    let mut errors = String::new();
    for arguments in arguments {
        let run = Belljar::new().directory(directory.path()).args(arguments).run();
        assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""), "{arguments:?}: {run:?}");
        errors += &format!("$ belljar {}\n{}\n", arguments.join(" "), run.stderr);
    }
    insta::assert_snapshot!(errors);
}

#[test]
fn error_at_shutdown_is_printed_without_changing_the_status() {
    let (status, stderr) = run(&[], "import atexit, sys\natexit.register(lambda: 1 / 0)\nsys.exit(3)");
    assert_eq!(status, Some(3), "{stderr}");
    assert!(stderr.contains("ZeroDivisionError"), "{stderr}");
    assert_eq!(
        run(&["--timeout", "0.3"], "import atexit\n@atexit.register\ndef f():\n  while True: pass").0,
        Some(124)
    );
    let (status, stderr) = run(&["--timeout", "0.3"], "class C:\n  def __del__(self):\n    while True: pass\nc = C()");
    assert_eq!(status, Some(124), "{stderr}");
}

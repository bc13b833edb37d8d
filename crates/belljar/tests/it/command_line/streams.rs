//! Standard input, output and error.

use std::io::{BufRead, BufReader, Read, Write};

use crate::harness::Belljar;

#[test]
fn standard_input_reaches_the_code() {
    let code = "a = input('? '); b = input(); import sys; print(a, b, repr(sys.stdin.read()))";
    let run = Belljar::new().args(["run", "-c", code]).input("one\ntwo é\nthree\nfour").run();
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), "? one two é 'three\\nfour'\n"), "{run:?}");
}

#[test]
fn input_at_the_end_of_standard_input_raises() {
    let run = Belljar::run_with(["-c", "input()"]);
    assert_eq!(run.status, Some(1));
    assert!(run.stderr.contains("EOFError: EOF when reading a line\n"), "{run:?}");
    // The program was read from standard input, to its end.
    let run = Belljar::new().args(["run", "-"]).input("input()\nprint(1)\n").run();
    assert!(run.stderr.contains("EOFError: EOF when reading a line\n"), "{run:?}");
}

#[test]
fn binary_input_is_read_as_bytes() {
    let run =
        Belljar::new().args(["run", "-c", "import sys; print(sys.stdin.buffer.read())"]).input(*b"\xff\0\xfe").run();
    assert_eq!(run.stdout, "b'\\xff\\x00\\xfe'\n");
}

#[test]
fn output_without_a_final_newline_is_printed() {
    let run = Belljar::run_with(["-c", "import sys; print('out', end=''); sys.stderr.write('err')"]);
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("out", "err"));
    // The same holds if the code ends without running destructors.
    let run = Belljar::run_with(["-c", "import os; print('out', end=''); os._exit(0)"]);
    assert_eq!(run.stdout, "out");
}

#[test]
fn output_arrives_while_the_code_runs() {
    let code = "print('ready'); print('you said', input())";
    let mut running = Belljar::new().args(["run", "-c", code]).start();
    let mut stdout = BufReader::new(running.child.stdout.take().unwrap());
    let mut line = String::new();
    // The code waits for a reply: if its first line were held back until its end, the test would hang.
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    running.child.stdin.take().unwrap().write_all(b"yes\n").unwrap();
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "you said yes\n");
    assert_eq!(running.wait().status, Some(0));
}

#[test]
fn output_and_errors_on_one_stream_keep_their_order() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("both");
    let code = "import sys\nfor i in range(50): print(i); print('e', file=sys.stderr)\nprint('end', end='')\n1/0";
    let both = std::fs::File::options().create(true).append(true).open(&path).unwrap();
    let status =
        Belljar::new().args(["run", "-c", code]).into_command().stdout(both.try_clone().unwrap()).stderr(both).status();
    assert_eq!(status.unwrap().code(), Some(1));
    let text = std::fs::read_to_string(path).unwrap();
    let expected: String = (0..50).map(|i| format!("{i}\ne\n")).collect();
    assert!(text.starts_with(&format!("{expected}endTraceback (most recent call last):\n")), "{text}");
}

#[test]
fn closed_output_pipe_ends_the_run() {
    let mut running = Belljar::new().args(["run", "-c", "while True: print('x' * 100)"]).start();
    let mut stdout = running.child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 1000]).unwrap();
    drop(stdout);
    let run = running.wait();
    // The status that a shell shows for a program that SIGPIPE ended.
    assert_eq!((run.status, run.stderr.as_str()), (Some(141), ""));
}

#[test]
fn closed_pipe_ends_commands_quietly() {
    let nowhere = tempfile::tempdir().unwrap();
    for args in [
        &["completions", "bash"][..],
        &["config", "zed"],
        &["packages", "list"],
        &["native", "status"],
        &["run", "-p", "-c", "1"],
        &["run", "--json", "-c", "1"],
        &["example", "--no-install"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Belljar::new().args(args).env("BELLJAR_NATIVE", nowhere.path()).into_command();
        let output = command.stdout(writer).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(141), "{args:?}: {stderr}");
        assert!(!stderr.contains("panicked") && !stderr.contains("pipe"), "{args:?}: {stderr}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn full_disk_on_standard_output_is_an_error() {
    for args in [&["completions", "bash"][..], &["config", "zed"], &["run", "-p", "-c", "1"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = Belljar::new().args(args).into_command().stdout(full).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains("belljar: failed to write to standard output: No space left"), "{args:?}: {stderr}");
    }
    // The code goes on without its output, and its own failure has precedence.
    for (code, status) in [("print(1)", 2), ("print(1); raise SystemExit", 2), ("print(1); raise SystemExit(3)", 3)] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = Belljar::new().args(["run", "-c", code]).into_command().stdout(full).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{code}: {stderr}");
        assert!(stderr.starts_with("belljar: failed to write to standard output: No space left"), "{code}: {stderr}");
    }
}

#[test]
fn much_output_arrives_whole() {
    let run = Belljar::run_with(["-c", "for i in range(100_000): print(i)"]);
    let expected: String = (0..100_000).map(|i| format!("{i}\n")).collect();
    assert!(run.stdout == expected, "{} bytes came", run.stdout.len());
}

#[test]
fn what_was_written_before_a_limit_is_kept() {
    let run = Belljar::run_with(["--timeout", "3", "-c", "print('a', end=''); print('b')\nwhile True: pass"]);
    assert_eq!((run.status, run.stdout.as_str()), (Some(124), "ab\n"));
    let run = Belljar::run_with(["--max-output", "5", "-c", "print('0123456789')"]);
    assert_eq!((run.status, run.stdout.as_str()), (Some(125), "01234"));
}

//! `belljar run -i`, driven through a pipe.

use crate::harness::{Belljar, Run};
use crate::wheels::Wheels;

fn prompt(args: &[&str], input: &str) -> Run {
    // The history is in the shared cache; no test reads it.
    Belljar::new().args(["run", "-i"]).args(args).input(input).run()
}

#[test]
fn prompt_runs_input_and_prints_values() {
    let run = prompt(&[], "x = 6\nx * 7\n'text'\nNone\n");
    assert_eq!(run.status, Some(0), "{run:?}");
    assert!(run.stdout.contains("42\n") && run.stdout.contains("'text'\n"), "{run:?}");
    assert!(!run.stdout.contains("None"), "{run:?}");
}

#[test]
fn prompt_continues_a_block_until_an_empty_line() {
    let run = prompt(&[], "for i in range(2):\n    print('line', i)\n\nprint('after')\n");
    assert!(run.stdout.contains("line 0\nline 1\n") && run.stdout.contains("after\n"), "{run:?}");
}

#[test]
fn prompt_continues_after_an_error() {
    let run = prompt(&[], "1 / 0\ndef\nprint('still here')\n");
    assert_eq!(run.status, Some(0), "{run:?}");
    assert!(run.stderr.contains("ZeroDivisionError") && run.stderr.contains("SyntaxError"), "{run:?}");
    assert!(run.stdout.contains("still here\n"), "{run:?}");
}

#[test]
fn exit_ends_the_prompt_with_its_status() {
    assert_eq!(prompt(&[], "import sys\nsys.exit(3)\nprint('not here')\n").status, Some(3));
    assert_eq!(prompt(&[], "exit()\n").status, Some(0));
    let run = prompt(&[], "exit\nprint('not here')\n");
    assert!(run.status == Some(0) && !run.stdout.contains("not here"), "{run:?}");
}

#[test]
fn script_runs_before_the_prompt() {
    let run = prompt(&["-c", "x = 20"], "x + 1\n");
    assert!(run.stdout.contains("21\n"), "{run:?}");
}

#[test]
fn prompt_starts_a_new_interpreter_after_a_limit() {
    let run = prompt(&["--timeout", "3"], "x = 1\nwhile True: pass\n\nprint('x' in globals())\n");
    assert_eq!(run.status, Some(0), "{run:?}");
    assert!(run.stderr.contains("a new one was started"), "{run:?}");
    assert!(run.stdout.contains("False\n"), "{run:?}");
}

#[test]
fn prompt_installs_an_optional_dependency_for_the_next_input() {
    let wheels = Wheels::with_optional_dependency();
    let run = wheels.belljar().args(["-i", "-q"]).input("import tables\ntables.export()\ntables.export()\n").run();
    assert_eq!(run.status, Some(0), "{run:?}");
    assert_eq!(run.stderr.matches("ImportError: tables needs sheets").count(), 1, "{run:?}");
    assert!(run.stderr.contains("hint: installed sheets 1.0, which provides sheets: run the input again"), "{run:?}");
    assert!(run.stdout.contains("'exported'"), "{run:?}");
}

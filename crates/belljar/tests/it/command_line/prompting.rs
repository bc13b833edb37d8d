//! `belljar run -i`, driven through a pipe.

use crate::harness::{Belljar, Run};

fn prompt(args: &[&str], input: &str) -> Run {
    // A cache of its own would be needed to keep the history apart; there is none that tests read.
    Belljar::new().args(["run", "-i"]).args(args).input(input).run()
}

#[test]
fn what_is_typed_is_run_and_its_values_shown() {
    let run = prompt(&[], "x = 6\nx * 7\n'text'\nNone\n");
    assert_eq!(run.status, Some(0), "{run:?}");
    assert!(run.stdout.contains("42\n") && run.stdout.contains("'text'\n"), "{run:?}");
    assert!(!run.stdout.contains("None"), "{run:?}");
}

#[test]
fn blocks_go_on_until_an_empty_line() {
    let run = prompt(&[], "for i in range(2):\n    print('line', i)\n\nprint('after')\n");
    assert!(run.stdout.contains("line 0\nline 1\n") && run.stdout.contains("after\n"), "{run:?}");
}

#[test]
fn errors_are_shown_and_the_prompt_goes_on() {
    let run = prompt(&[], "1 / 0\ndef\nprint('still here')\n");
    assert_eq!(run.status, Some(0), "{run:?}");
    assert!(run.stderr.contains("ZeroDivisionError") && run.stderr.contains("SyntaxError"), "{run:?}");
    assert!(run.stdout.contains("still here\n"), "{run:?}");
}

#[test]
fn an_exit_ends_it_with_its_status() {
    assert_eq!(prompt(&[], "import sys\nsys.exit(3)\nprint('not here')\n").status, Some(3));
    assert_eq!(prompt(&[], "exit()\n").status, Some(0));
}

#[test]
fn a_program_given_runs_first() {
    let run = prompt(&["-c", "x = 20"], "x + 1\n");
    assert!(run.stdout.contains("21\n"), "{run:?}");
}

#[test]
fn after_a_limit_a_new_interpreter_takes_over() {
    let run = prompt(&["--timeout", "0.3"], "x = 1\nwhile True: pass\n\nprint('x' in globals())\n");
    assert_eq!(run.status, Some(0), "{run:?}");
    assert!(run.stderr.contains("a new one takes its place"), "{run:?}");
    assert!(run.stdout.contains("False\n"), "{run:?}");
}

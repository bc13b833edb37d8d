//! Ctrl-C: the first interrupts Python, a second ends the process.

use std::io::{BufRead, BufReader};
use std::process::{ChildStdout, Command};

use crate::harness::{Belljar, Run, Running};

/// Starts `code`, which must print a line when it is ready to be interrupted.
pub(super) fn start(code: &str) -> (Running, BufReader<ChildStdout>) {
    let mut running = Belljar::new().args(["run", "-c", code]).start();
    let mut stdout = BufReader::new(running.child.stdout.take().unwrap());
    wait_for_line(&mut stdout);
    (running, stdout)
}

pub(super) fn wait_for_line(stdout: &mut BufReader<ChildStdout>) {
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert!(line.ends_with('\n'), "it ended before it was ready: {line:?}");
}

pub(super) fn press(running: &Running) {
    let process = running.child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &process]).status().unwrap().success());
}

fn interrupted(code: &str) -> Run {
    let (running, _stdout) = start(code);
    press(&running);
    running.wait()
}

#[test]
fn an_interrupt_raises_keyboard_interrupt() {
    for wait in ["while True: pass", "import time; time.sleep(600)", "import re; re.match('(?:x+x+)+y', 'x' * 60)"] {
        let run = interrupted(&format!("print('ready')\n{wait}"));
        assert_eq!(run.status, Some(130), "{run:?}");
        assert!(run.stderr.ends_with("KeyboardInterrupt\n"), "{run:?}");
    }
}

#[test]
fn code_may_handle_an_interrupt() {
    let run =
        interrupted("import sys\nprint('ready')\ntry:\n  while True: pass\nexcept KeyboardInterrupt: sys.exit(5)");
    assert_eq!((run.status, run.stderr.as_str()), (Some(5), ""));
}

#[test]
fn a_second_interrupt_ends_the_process() {
    let code = "print('ready')\nwhile True:\n  try:\n    while True: pass\n  except KeyboardInterrupt: print('again')";
    let (running, mut stdout) = start(code);
    press(&running);
    wait_for_line(&mut stdout);
    press(&running);
    assert_eq!(running.wait().status, Some(130));
}

#[test]
fn an_interrupt_ends_a_sleep_in_a_coroutine_of_asyncio_run() {
    let wait = "import asyncio, time\nasync def main():\n  print('ready')\n  time.sleep(600)\n  await asyncio.sleep(600)\n\
                asyncio.run(main())";
    let run = interrupted(wait);
    assert_eq!(run.status, Some(130), "{run:?}");
    assert!(run.stderr.ends_with("KeyboardInterrupt\n"), "{run:?}");
}

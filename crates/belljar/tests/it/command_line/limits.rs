//! `--timeout`, `--cpu`, `--grace`, `--memory`, `--max-output`, `--disk`.

use crate::harness::Belljar;

#[test]
fn sleeping_takes_time_but_no_processor_time() {
    let code = "import time; time.sleep(3); print('done')";
    let run = Belljar::run_with(["--cpu", "2", "-c", code]);
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), "done\n"), "{run:?}");
    assert_eq!(Belljar::run_with(["--timeout", "0.1", "-c", code]).status, Some(124));
}

#[test]
fn grace_interrupts_code_before_it_is_stopped() {
    let code = "import time\ntry: time.sleep(60)\nexcept KeyboardInterrupt: print('cleaned up')";
    let run = Belljar::run_with(["--timeout", "3", "--grace", "60", "-c", code]);
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), "cleaned up\n"), "{run:?}");
    let stubborn = "while True:\n  try:\n    while True: pass\n  except KeyboardInterrupt: print('no', flush=True)";
    let run = Belljar::run_with(["--timeout", "3", "--grace", "3", "-c", stubborn]);
    assert_eq!((run.status, run.stdout.as_str()), (Some(124), "no\n"), "{run:?}");
}

#[test]
fn memory_is_bounded_and_the_code_can_go_on() {
    let code = "try: x = bytearray(100 << 20)\nexcept MemoryError: print('full')";
    assert_eq!(Belljar::run_with(["--memory", "64MB", "-c", code]).stdout, "full\n");
    assert_eq!(Belljar::run_with(["--memory", "256MB", "-c", code]).stdout, "");
}

#[test]
fn memory_limit_below_the_interpreters_need_is_refused() {
    let run = Belljar::run_with(["--memory", "1MB", "-c", "print(1)"]);
    assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""), "{run:?}");
    assert!(run.stderr.starts_with("belljar: "), "{run:?}");
}

#[test]
fn files_are_bounded() {
    let code = "open('/tmp/x', 'wb').write(bytes(3 << 20))";
    let run = Belljar::run_with(["--disk", "1MB", "-c", code]);
    assert_eq!(run.status, Some(1));
    assert!(run.stderr.contains("No space left on device"), "{run:?}");
    assert_eq!(Belljar::run_with(["--disk", "8MB", "-c", code]).status, Some(0));
}

#[test]
fn zero_timeout_is_a_time_limit() {
    let run = Belljar::run_with(["--timeout", "0", "-c", "while True: pass"]);
    assert_eq!(run.status, Some(124), "{run:?}");
    let run = Belljar::run_with(["--timeout", "1e18", "--cpu", "1e18", "-c", "print(1)"]);
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), "1\n"), "{run:?}");
}

//! Tests of system calls other than those on files: time, the environment, randomness, memory, the end of the process.

use belljar_emscripten::InstanceError;
use belljar_emscripten::console::{Capture, Console, Stream};
use belljar_emscripten::stop::StopReason;
use belljar_emscripten::termination::Termination;

use crate::guest::{Guest, module, on_guest_thread};

const IMPORTS: &str = r#"
  (import "env" "emscripten_get_now" (func $now (result f64)))
  (import "env" "exit" (func $exit (param i32)))
  (import "env" "_abort_js" (func $abort))
  (import "env" "__assert_fail" (func $assert_fail (param i32 i32 i32 i32)))
  (import "env" "__call_sighandler" (func $call_sighandler (param i32 i32)))
  (import "env" "emscripten_resize_heap" (func $resize_heap (param i32) (result i32)))
  (import "env" "emscripten_get_heap_max" (func $heap_max (result i32)))
  (import "env" "_emscripten_get_progname" (func $progname (param i32 i32)))
  (import "env" "_timegm_js" (func $timegm (param i32) (result i64)))
  (import "env" "_gmtime_js" (func $gmtime (param i64 i32)))
  (import "env" "_tzset_js" (func $tzset (param i32 i32 i32 i32)))
  (import "env" "_emscripten_log_formatted" (func $log (param i32 i32)))
  (import "env" "__syscall_connect" (func $connect (param i32 i32 i32 i32 i32 i32) (result i32)))
  (import "env" "unknown_import" (func $unknown))
  (import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
  (import "wasi_snapshot_preview1" "environ_sizes_get" (func $environ_sizes_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "environ_get" (func $environ_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "random_get" (func $random_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "clock_time_get" (func $clock_time_get (param i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "clock_res_get" (func $clock_res_get (param i32 i32) (result i32)))"#;

const BODY: &str = r#"
  (elem (i32.const 1) $handler)
  (func $handler (param i32) (i32.store (i32.const 4096) (local.get 0)))
  ;; As libc sleeps; gives how often it looked at the clock.
  (func (export "sleep") (param $milliseconds f64) (result i32)
    (local $end f64) (local $looks i32)
    (local.set $end (f64.add (call $now) (local.get $milliseconds)))
    (loop $again
      (local.set $looks (i32.add (local.get $looks) (i32.const 1)))
      (br_if $again (f64.lt (call $now) (local.get $end))))
    (local.get $looks))
  (func (export "__funcs_on_exit") (i32.store (i32.const 4096) (i32.const 1)))
  (func (export "fflush") (param i32) (result i32)
    (call $log (i32.const 1) (i32.const 4100)) (i32.load (i32.const 4096)))
  (data (i32.const 4100) "flushed\00")
  (func (export "exit") (param i32) local.get 0 call $exit)
  (func (export "proc_exit") (param i32) local.get 0 call $proc_exit)
  (func (export "abort") call $abort)
  (func (export "unknown") call $unknown)
  (func (export "assert_fail") (param i32 i32) local.get 0 local.get 1 i32.const 12 i32.const 0 call $assert_fail)
  (func (export "call_sighandler") (param i32 i32) local.get 0 local.get 1 call $call_sighandler)
  (func (export "resize_heap") (param i32) (result i32) local.get 0 call $resize_heap)
  (func (export "heap_max") (result i32) call $heap_max)
  (func (export "pages") (result i32) memory.size)
  (func (export "progname") (param i32 i32) local.get 0 local.get 1 call $progname)
  (func (export "timegm") (param i32) (result i64) local.get 0 call $timegm)
  (func (export "gmtime") (param i64 i32) local.get 0 local.get 1 call $gmtime)
  (func (export "tzset") (param i32 i32 i32 i32) local.get 0 local.get 1 local.get 2 local.get 3 call $tzset)
  (func (export "log") (param i32 i32) local.get 0 local.get 1 call $log)
  (func (export "connect") (result i32)
    i32.const 0 i32.const 0 i32.const 0 i32.const 0 i32.const 0 i32.const 0 call $connect)
  (func (export "environ_sizes_get") (param i32 i32) (result i32) local.get 0 local.get 1 call $environ_sizes_get)
  (func (export "environ_get") (param i32 i32) (result i32) local.get 0 local.get 1 call $environ_get)
  (func (export "random_get") (param i32 i32) (result i32) local.get 0 local.get 1 call $random_get)
  (func (export "clock_time_get") (param i32 i32) (result i32) local.get 0 i64.const 0 local.get 1 call $clock_time_get)
  (func (export "clock_res_get") (param i32 i32) (result i32) local.get 0 local.get 1 call $clock_res_get)"#;

const EXPORTS: [&str; 20] = [
    "sleep",
    "exit",
    "proc_exit",
    "abort",
    "unknown",
    "assert_fail",
    "call_sighandler",
    "resize_heap",
    "heap_max",
    "pages",
    "progname",
    "timegm",
    "gmtime",
    "tzset",
    "log",
    "connect",
    "environ_sizes_get",
    "environ_get",
    "random_get",
    "clock_time_get",
];

const EFAULT: i32 = 21;
const EINVAL: i32 = 28;
/// The end of the guest's memory, 4 MiB.
const END: u32 = 4 << 20;

fn guest_with(change: impl FnOnce(&mut belljar_emscripten::InstanceConfig)) -> Guest {
    let keep = [&EXPORTS[..], &["clock_res_get"]].concat();
    Guest::start_with(&module(IMPORTS, BODY), &keep, &[], change)
}

fn guest() -> Guest {
    guest_with(|_| {})
}

fn termination(result: Result<(), InstanceError>) -> Termination {
    match result {
        Err(InstanceError::Terminated(termination)) => termination,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_way_to_end_is_reported_distinctly() {
    on_guest_thread(|| {
        assert_eq!(termination(guest().try_call("proc_exit", 3)), Termination::Exit(3));
        assert_eq!(termination(guest().try_call("abort", ())), Termination::Abort("abort() was called".into()));
        let unknown = Termination::Unsupported("env.unknown_import".into());
        assert_eq!(termination(guest().try_call("unknown", ())), unknown);
        let mut guest = guest();
        let condition = guest.put(b"x > 0\0");
        let failed = Termination::Abort("assertion failed: x > 0, at ?:12, in ?".into());
        assert_eq!(termination(guest.try_call("assert_fail", (condition, u32::MAX))), failed);
    });
}

#[test]
fn exit_runs_atexit_functions_and_flushes() {
    on_guest_thread(|| {
        let output = Capture::default();
        let console = Console::new(Box::new(output.clone()), Box::new(std::io::empty()), 1000);
        let mut guest = guest_with(|config| config.console = console);
        assert_eq!(termination(guest.try_call("exit", 4)), Termination::Exit(4));
        assert_eq!(output.take(), [(Stream::Stdout, b"flushed\n".to_vec())]);
        assert_eq!(guest.word(4096), 1);
    });
}

#[test]
fn console_messages_go_to_standard_streams_within_the_limit() {
    on_guest_thread(|| {
        let output = Capture::default();
        let console = Console::new(Box::new(output.clone()), Box::new(std::io::empty()), 10);
        let mut guest = guest_with(|config| config.console = console);
        let text = guest.put(b"hello\0");
        guest.call::<()>("log", (2, text));
        assert_eq!(termination(guest.try_call("log", (1, text))), Termination::OutputLimit { limit: 10 });
        assert_eq!(output.take(), [(Stream::Stderr, b"hello\n".to_vec()), (Stream::Stdout, b"hell".to_vec())]);
    });
}

#[test]
fn environment_is_set_by_the_host() {
    on_guest_thread(|| {
        let mut guest = guest_with(|config| config.environment = vec!["A=1".into(), "LONGER=two".into()]);
        let sizes = guest.put_words(&[0, 0]);
        assert_eq!(guest.call::<i32>("environ_sizes_get", (sizes, sizes + 4)), 0);
        assert_eq!((guest.word(sizes), guest.word(sizes + 4)), (2, 15));
        let (pointers, strings) = (guest.put(&[0; 8]), guest.put(&[0xff; 15]));
        assert_eq!(guest.call::<i32>("environ_get", (pointers, strings)), 0);
        assert_eq!((guest.word(pointers), guest.word(pointers + 4)), (strings, strings + 4));
        assert_eq!(guest.instance.memory().slice(strings, 15).unwrap(), b"A=1\0LONGER=two\0");
        for (pointers, strings) in [(END - 2, strings), (pointers, END - 2), (u32::MAX, u32::MAX)] {
            assert_eq!(guest.call::<i32>("environ_get", (pointers, strings)), EFAULT);
            assert_eq!(guest.call::<i32>("environ_sizes_get", (pointers.max(END), strings)), EFAULT);
        }
    });
}

#[test]
fn random_get_fills_exactly_the_buffer() {
    on_guest_thread(|| {
        let mut guest = guest();
        let buffer = guest.put(&[0; 100_002]);
        assert_eq!(guest.call::<i32>("random_get", (buffer + 1, 100_000)), 0);
        let memory = guest.instance.memory();
        let bytes = memory.slice(buffer, 100_002).unwrap();
        assert_eq!((bytes[0], bytes[100_001]), (0, 0));
        // Each value is expected 390 times.
        assert!((0..=255u8).all(|value| bytes[1..100_001].iter().filter(|&&byte| byte == value).count() > 200));
        for (at, length) in [(END - 1, 2), (0, END + 1), (u32::MAX, 1), (1, u32::MAX)] {
            assert_eq!(guest.call::<i32>("random_get", (at, length)), EFAULT);
        }
    });
}

#[test]
fn clocks_answer_in_nanoseconds() {
    on_guest_thread(|| {
        let mut guest = guest();
        let out = guest.put(&[0; 8]);
        for clock in 0..4 {
            assert_eq!(guest.call::<i32>("clock_time_get", (clock, out)), 0);
            let time = guest.instance.memory().read_u64(out).unwrap();
            assert_eq!(time % 1000, 0);
            assert_eq!(time > 1_700_000_000_000_000_000, clock == 0);
            assert_eq!(guest.call::<i32>("clock_res_get", (clock, out)), 0);
            assert_eq!(guest.instance.memory().read_u64(out).unwrap(), 1000);
        }
        for call in ["clock_time_get", "clock_res_get"] {
            assert_eq!(guest.call::<i32>(call, (4, out)), EINVAL);
            assert_eq!(guest.call::<i32>(call, (-1, out)), EINVAL);
            assert_eq!(guest.call::<i32>(call, (0, END - 7)), EFAULT);
        }
    });
}

#[test]
fn a_sleeping_guest_does_not_burn_the_processor() {
    on_guest_thread(|| {
        // Without host sleeps, it would read the clock some hundred thousand times.
        let looks = guest().call::<u32>("sleep", 300.0);
        assert!(looks < 2000, "{looks}");
    });
}

#[test]
fn a_signal_ends_a_sleep_and_a_stop_ends_the_program() {
    on_guest_thread(|| {
        let mut guest = guest();
        let hour = 3_600_000.0;
        let stop = guest.instance.stop_handle();
        std::thread::scope(|scope| {
            scope.spawn(|| stop.interrupt(2));
            guest.call::<i32>("sleep", hour);
            assert_eq!(stop.take_signal(), 2);
            scope.spawn(|| stop.stop(StopReason::Requested));
            assert_eq!(termination(guest.try_call::<i32>("sleep", hour).map(drop)), Termination::Stopped);
        });
    });
}

#[test]
fn calendar_is_utc_and_accepts_any_time() {
    on_guest_thread(|| {
        let mut guest = guest();
        let tm = guest.put(&[0xff; 44]);
        guest.call::<()>("gmtime", (951_782_400i64 + 3661, tm));
        let fields: Vec<u32> = (0..10).map(|index| guest.word(tm + 4 * index)).collect();
        assert_eq!(fields, [1, 1, 1, 29, 1, 100, 2, 59, 0, 0]);
        assert_eq!(guest.call::<i64>("timegm", tm), 951_782_400 + 3661);
        assert_eq!(guest.word(tm + 40), u32::MAX, "the zone's name is libc's to set");
        for time in [i64::MIN, i64::MAX] {
            guest.call::<()>("gmtime", (time, tm));
            assert_eq!(guest.word(tm + 20), 0);
            guest.call::<()>("gmtime", (time, END - 3));
        }
        assert_eq!(guest.call::<i64>("timegm", u32::MAX), -1);
        let zone = guest.put(&[0xff; 16]);
        guest.call::<()>("tzset", (zone, zone + 4, zone + 8, zone + 12));
        assert_eq!(guest.instance.memory().slice(zone, 16).unwrap(), b"\0\0\0\0\0\0\0\0UTC\0UTC\0");
        guest.call::<()>("tzset", (u32::MAX, 0, 0, 0));
    });
}

#[test]
fn memory_grows_up_to_the_limit_and_no_further() {
    on_guest_thread(|| {
        let mut guest = guest_with(|config| config.limits.memory = 6 << 20);
        assert_eq!(guest.call::<u32>("heap_max", ()), 6 << 20);
        assert_eq!(guest.call::<i32>("resize_heap", END + 1), 1);
        let grown = guest.call::<u32>("pages", ());
        assert!((65..=77).contains(&grown), "at most a fifth more, to whole pages: {grown}");
        assert_eq!(guest.call::<i32>("resize_heap", (6 << 20) + 1), 0);
        assert_eq!(guest.call::<i32>("resize_heap", u32::MAX), 0);
        assert_eq!(guest.call::<i32>("resize_heap", 6 << 20), 1);
        assert_eq!(guest.call::<u32>("pages", ()), 96);
    });
}

#[test]
fn a_signal_handler_is_called_and_a_wild_one_is_a_trap() {
    on_guest_thread(|| {
        let mut guest = guest();
        guest.call::<()>("call_sighandler", (1, 15));
        assert_eq!(guest.word(4096), 15);
        for wild in [0, 5, 1 << 20, u32::MAX] {
            let mut guest = self::guest();
            assert!(matches!(guest.try_call::<()>("call_sighandler", (wild, 15)), Err(InstanceError::Trapped(_))));
        }
    });
}

#[test]
fn program_name_is_truncated_to_its_buffer() {
    on_guest_thread(|| {
        let mut guest = guest();
        let buffer = guest.put(&[0xff; 20]);
        for (length, expected) in [(4u32, &b"./t\0\xff"[..]), (20, b"./this.program\0\xff")] {
            guest.call::<()>("progname", (buffer, length));
            assert_eq!(guest.instance.memory().slice(buffer, expected.len() as u32).unwrap(), expected);
        }
        for (at, length) in [(buffer, 0), (buffer, -1), (END - 1, 20)] {
            guest.call::<()>("progname", (at, length));
        }
    });
}

#[test]
fn connect_fails_as_not_a_socket() {
    on_guest_thread(|| assert_eq!(guest().call::<i32>("connect", ()), -57));
}

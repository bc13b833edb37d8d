//! Tests of limits, interrupts, crashes and hostile guests.

use std::time::{Duration, Instant};

use belljar_core::kernel::{Backend as _, KernelError};
use belljar_core::{CellStatus, ExitReason, LimitKind, Limits, NoProgress};
use belljar_native::{NativeBackend, NativeOptions, StartError, ZygoteError};
use belljar_sandbox::Policy;
use belljar_testing::{Capability, Trial};

use crate::trials::harness::{PYTHON, Session, in_each, limits, options, strongest, text_of};

const SECOND: Duration = Duration::from_secs(1);
/// A time limit within which a cell that has little to do writes its first output, also on a busy machine.
const SHORT_LIMIT: Duration = Duration::from_secs(5);

pub(crate) fn trials() -> Vec<Trial> {
    let own = |name: &str, test: fn()| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    };
    [
        in_each("timed_out_cell_is_interrupted_and_keeps_variables", too_long),
        in_each("c_function_is_interrupted", in_a_c_function),
        in_each("cell_that_ignores_interrupts_is_killed", does_not_stop),
        in_each("interrupt_from_another_thread_stops_the_cell", interrupt_from_outside),
        in_each("interrupt_before_the_code_begins_is_reported", interrupt_before_the_code),
        in_each("kill_from_another_thread_ends_the_interpreter", stop_from_outside),
        in_each("exit_of_the_interpreter_is_reported", ends_and_restarts),
        in_each("output_limit_ends_the_cell", too_much_output),
        in_each("displayed_objects_are_limited", shown_is_bounded),
        in_each("forged_messages_affect_only_their_session", hostile_sockets),
        in_each("forged_execution_count_is_ignored", wild_counts),
        in_each("copies_and_snapshots_are_unsupported", unsupported),
        vec![
            own("cpu_limit_applies_to_each_cell", processor_time),
            // Only the sandbox bounds memory.
            belljar_testing::trial("memory_limit_is_reported", &[Capability::NativeSandbox], too_much_memory),
            own("prestarted_kernels_are_used_once", started_ahead),
            own("environment_without_ipykernel_is_refused", without_ipykernel),
            own("dropped_backend_leaves_no_processes", nothing_is_left),
            own("backend_dropped_while_it_prepares_kernels_leaves_no_files", dropped_early),
        ],
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn too_long(session: &mut Session) {
    // The first cell of a kernel takes longer.
    session.text("1");
    let executed = session.run_within("x = 1\nprint('started')\nwhile True: pass", Some(SHORT_LIMIT));
    assert_eq!(text_of(&executed), "started\n");
    assert!(matches!(&executed.status, CellStatus::TimedOut { after: SHORT_LIMIT, .. }), "{executed:?}");
    let error = executed.status.error(&limits()).unwrap();
    assert_eq!(error.to_string(), "TimeoutError: the cell ran longer than 5 s and was interrupted");
    assert_eq!(session.text("x"), "1");
}

fn in_a_c_function(session: &mut Session) {
    // The regular expression holds the interpreter's lock, so the kernel would not read a message.
    let executed = session.run_within("import re\nre.match('(a+)+$', 'a' * 40 + 'b')", Some(SECOND));
    assert!(matches!(&executed.status, CellStatus::TimedOut { .. }), "{executed:?}");
    let executed = session.run_within("import subprocess\nsubprocess.run(['sleep', '50'])", Some(SECOND));
    assert!(matches!(&executed.status, CellStatus::TimedOut { .. }), "{executed:?}");
    assert_eq!(session.text("'alive'"), "'alive'");
}

fn does_not_stop(session: &mut Session) {
    let code = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('started')\nwhile True: pass";
    session.text("1");
    let executed = session.run_within(code, Some(SHORT_LIMIT));
    assert_eq!(text_of(&executed), "started\n");
    assert_eq!(
        executed.status,
        CellStatus::KernelDied(ExitReason::Limit(LimitKind::WallTime)),
        "{:?}",
        executed.outputs
    );
    session.kernel.restart().unwrap();
    assert_eq!(session.text("'new'"), "'new'");
}

fn interrupt_from_outside(session: &mut Session) {
    let interrupt = session.kernel.interrupt_handle();
    let thread = session.after_first_output(move || interrupt.interrupt());
    let error = session.error("y = 2\nimport time\nprint('started', flush=True)\ntime.sleep(100)");
    thread.join().unwrap();
    assert!(error.starts_with("KeyboardInterrupt"), "{error}");
    assert_eq!(session.text("y"), "2");
}

/// The kernel of this session waits for the interrupt before it begins the cell's code, where ipykernel discards it.
const WAIT_BEFORE_THE_CODE: &str = "\
import sys, time
kernel = get_ipython().kernel
async def wait(*arguments, **options):
    del kernel.do_execute
    print('started', flush=True)
    sys.stdout.flush()
    time.sleep(100)
kernel.do_execute = wait";

fn interrupt_before_the_code(session: &mut Session) {
    session.run(WAIT_BEFORE_THE_CODE);
    let interrupt = session.kernel.interrupt_handle();
    let thread = session.after_first_output(move || interrupt.interrupt());
    let error = session.error("y = 2");
    thread.join().unwrap();
    assert!(error.starts_with("KeyboardInterrupt"), "{error}");
    assert_eq!(session.text("'y' in globals()"), "False");
}

fn stop_from_outside(session: &mut Session) {
    let interrupt = session.kernel.interrupt_handle();
    let thread = session.after_first_output(move || interrupt.kill());
    let begun = Instant::now();
    let reason = session.exit_reason("import time\nprint('started', flush=True)\ntime.sleep(100)", None);
    thread.join().unwrap();
    assert_eq!(reason, ExitReason::Cancelled);
    assert!(begun.elapsed() < 60 * SECOND);
}

fn ends_and_restarts(session: &mut Session) {
    for (code, expected) in [
        ("import os\nprint('output', flush=True)\nos._exit(3)", ExitReason::Exit(3)),
        ("import ctypes\nctypes.string_at(0)", ExitReason::Signal(11)),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", ExitReason::Signal(9)),
    ] {
        session.text("open('kept.txt', 'w').write('kept')\nx = 1");
        assert_eq!(session.exit_reason(code, None), expected, "{code}");
        session.kernel.restart().unwrap();
        assert_eq!(session.run("1").execution_count, 1);
        assert_eq!(session.text("open('kept.txt').read()"), "'kept'");
        assert!(session.error("x").starts_with("NameError"));
    }
}

fn too_much_output(session: &mut Session) {
    let reason = session.exit_reason("while True: print('x' * 10_000)", Some(60 * SECOND));
    assert_eq!(reason, ExitReason::Limit(LimitKind::Output));
}

fn shown_is_bounded(session: &mut Session) {
    let executed = session.run("from IPython.display import display\nfor n in range(300): display(n)");
    assert_eq!(executed.status, CellStatus::Ok);
    let text = text_of(&executed);
    assert_eq!(text.matches("[not shown: a cell displays at most 100 objects").count(), 1, "{text}");
}

/// The guest sends forged messages over its kernel's sockets, and replaces the sockets.
fn hostile_sockets(session: &mut Session) {
    // Forged messages of this cell, and malformed frames, over the kernel's own sockets.
    let code = "import gc, zmq\nfrom ipykernel.kernelapp import IPKernelApp\napp = IPKernelApp.instance()\nkernel = app.kernel\n\
                parent = kernel.get_parent('shell')\nsession = kernel.session\n\
                for kind in ('status', 'stream', 'display_data', 'execute_result', 'error', 'nonsense'):\n\
                \x20   for content in ({}, {'data': 1}, {'name': 'stdout'}, {'text': [1]}, {'execution_state': {}}):\n\
                \x20       session.send(kernel.iopub_socket, kind, content, parent=parent)\n\
                session.send(kernel.iopub_socket, 'stream', {'name': 'stdout', 'text': 'forged'}, parent={'msg_id': 'other'})\n\
                for parts in ([b''], [b'<IDS|MSG>'], [b'x'] * 60, [b'<IDS|MSG>', b'0' * 64, b'{', b'{', b'{', b'{']):\n\
                \x20   kernel.iopub_socket.send_multipart(parts)\nprint('after')";
    assert_eq!(session.text(code), "after\n");
    // A message of too many parts ends the connection.
    let code = "kernel.iopub_socket.send_multipart([b'x'] * 1000)\nimport time\ntime.sleep(30)";
    let reason = session.exit_reason(code, Some(60 * SECOND));
    assert!(matches!(&reason, ExitReason::Crash(text) if text.contains("broke the protocol")), "{reason:?}");
    session.kernel.restart().unwrap();
    // Links and files in the directory of sockets do not keep another kernel from starting.
    let code = "import json, os\nfrom ipykernel.connect import get_connection_file\n\
                folder = os.path.dirname(get_connection_file())\n\
                for name in os.listdir(folder):\n    os.unlink(f'{folder}/{name}')\n    os.symlink('/etc/passwd', f'{folder}/{name}')\n\
                os.mkdir(f'{folder}/d')\nos.mkfifo(f'{folder}/d/fifo')\nos._exit(0)";
    session.exit_reason(code, None);
    session.kernel.restart().unwrap();
    assert_eq!(session.text("'alive'"), "'alive'");
}

/// The guest cannot choose the number of a cell.
fn wild_counts(session: &mut Session) {
    for wild in ["2**64 - 1", "2**64", "-5", "2**200"] {
        session.run(&format!("get_ipython().execution_count = {wild}"));
        let before = session.run("1").execution_count;
        // A cell that waited for the wild number would run into the timeout.
        let next = session.run_within("2", Some(30 * SECOND));
        assert_eq!((next.status, next.execution_count), (CellStatus::Ok, before + 1), "{wild}");
    }
}

fn unsupported(session: &mut Session) {
    assert!(matches!(session.kernel.fork(None), Err(KernelError::Unsupported(_))));
    assert!(matches!(session.kernel.snapshot(), Err(KernelError::Unsupported(_))));
}

fn processor_time() {
    let limits = Limits { cpu_time: Some(SECOND), ..limits() };
    let native = NativeBackend::new(NativeOptions { limits, ..options(strongest()) }).unwrap();
    let mut session = Session::new(&native);
    // Together more than the limit, and each much less: the kernel needs some time itself.
    let burn = "import time\nwhile time.process_time() - begun < 0.4: pass";
    for _ in 0..4 {
        session.text(&format!("import time\nbegun = time.process_time()\n{burn}"));
    }
    for code in ["while True: pass", "!sh -c 'while :; do :; done'"] {
        let reason = session.exit_reason(code, Some(120 * SECOND));
        assert_eq!(reason, ExitReason::Limit(LimitKind::CpuTime), "{code}");
        session.kernel.restart().unwrap();
    }
}

fn too_much_memory() {
    let limits = Limits { memory: 400 << 20, ..limits() };
    let native = NativeBackend::new(NativeOptions { limits, ..options(Policy::Full) }).unwrap();
    let mut session = Session::new(&native);
    let executed = session.run("x = []\nwhile True: x.append(bytearray(10_000_000))");
    match executed.status {
        CellStatus::Error(error) => assert_eq!(error.name, "MemoryError"),
        CellStatus::KernelDied(reason) => {
            assert_eq!(reason, ExitReason::Limit(LimitKind::Memory));
            session.kernel.restart().unwrap();
        }
        CellStatus::Ok | CellStatus::TimedOut { .. } => panic!("the memory limit was not reached"),
    }
    assert_eq!(session.text("'alive'"), "'alive'");
}

fn started_ahead() {
    let native = NativeBackend::new(NativeOptions { prestart: 2, ..options(strongest()) }).unwrap();
    native.warm_up().unwrap();
    let mut sessions: Vec<Session> = (0..3).map(|_| Session::new(&native)).collect();
    for (number, session) in sessions.iter_mut().enumerate() {
        let first = session.run(&format!("n = {number}\nimport os, numpy\nopen('n', 'w').write('x')\nos.getpid()"));
        assert_eq!(first.execution_count, 1, "the warm-up cell is not counted: {first:?}");
    }
    for (number, session) in sessions.iter_mut().enumerate() {
        assert_eq!(session.text("n"), number.to_string());
        assert_eq!(session.text("os.listdir('.')"), "['n']");
    }
}

fn without_ipykernel() {
    let system = std::path::Path::new("/usr/bin/python3");
    let bare = tempfile::tempdir().unwrap();
    let made = std::process::Command::new(&*PYTHON).args(["-m", "venv", "--without-pip"]).arg(bare.path()).status();
    assert!(made.unwrap().success());
    let native =
        NativeBackend::new(NativeOptions { python: bare.path().join("bin/python"), ..options(strongest()) }).unwrap();
    let KernelError::Start(error) = native.start(None, &NoProgress).err().unwrap() else { panic!("another error") };
    let Some(StartError::Zygote(error)) = error.downcast_ref() else { panic!("{error}") };
    assert!(matches!(&**error, ZygoteError::MissingModule { module, .. } if module == "ipykernel"), "{error}");
    let missing = NativeBackend::new(NativeOptions { python: system.join("missing"), ..options(strongest()) });
    assert!(matches!(missing, Err(StartError::MissingPython(_))));
}

fn nothing_is_left() {
    let marker = format!("belljar-marker-{}", std::process::id());
    {
        let native = NativeBackend::new(options(strongest())).unwrap();
        let mut session = Session::new(&native);
        session.text(&format!("import subprocess\nchild = subprocess.Popen(['sleep', '1000', '--', '{marker}'], stderr=subprocess.DEVNULL)\nchild2 = subprocess.Popen(['python3', '-c', 'import time; time.sleep(1000)', '{marker}'])"));
    }
    let begun = Instant::now();
    while running(&marker) > 0 {
        assert!(begun.elapsed() < 60 * SECOND, "{} processes are left", running(&marker));
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn dropped_early() {
    // Before Python runs, while the zygote imports, and while a kernel is prestarted, depending on the machine.
    for milliseconds in [0, 30, 100, 300, 1000, 2000, 4000] {
        let native = NativeBackend::new(NativeOptions { prestart: 1, ..options(strongest()) }).unwrap();
        let directory = native.temporary_directory().unwrap().to_owned();
        assert!(directory.exists());
        native.warm_up_in_background(drop);
        std::thread::sleep(Duration::from_millis(milliseconds));
        drop(native);
        let begun = Instant::now();
        while directory.exists() {
            assert!(begun.elapsed() < 60 * SECOND, "{milliseconds} ms: {} is left", directory.display());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Returns the number of processes with this text among their arguments.
fn running(marker: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let has = |path: std::path::PathBuf| {
        std::fs::read(path.join("cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).contains(marker))
    };
    processes.filter(|process| has(process.path())).count()
}

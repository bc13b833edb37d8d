//! How cells and kernels end that do not want to, or should not.

use std::time::{Duration, Instant};

use belljar_core::Limits;
use belljar_core::NoProgress;
use belljar_core::kernel::{Backend as _, End, KernelError};
use belljar_jupyter::sandbox::Policy;
use belljar_jupyter::{Native, NativeOptions};
use libtest_mimic::Trial;

use crate::trials::harness::{PYTHON, Session, in_each, limits, options, strongest, text_of};

const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn trials() -> Vec<Trial> {
    let own = |name: &str, test: fn()| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    };
    [
        in_each("a_cell_that_takes_too_long_is_interrupted_and_its_variables_stay", too_long),
        in_each("a_cell_in_a_c_function_is_interrupted", in_a_c_function),
        in_each("a_cell_that_does_not_stop_is_ended", does_not_stop),
        in_each("an_interrupt_from_another_thread_stops_the_cell", interrupt_from_outside),
        in_each("a_stop_from_another_thread_ends_the_interpreter", stop_from_outside),
        in_each("an_interpreter_that_ends_is_noticed_and_restarted", ends_and_restarts),
        in_each("too_much_output_ends_the_cell", too_much_output),
        in_each("what_a_cell_shows_is_bounded", shown_is_bounded),
        in_each("forged_replies_and_hostile_frames_stay_within_the_session", hostile_sockets),
        in_each("a_count_that_the_guest_makes_up_is_not_believed", wild_counts),
        in_each("a_copy_and_a_state_are_refused_with_words", unsupported),
        vec![
            own("processor_time_is_a_cells_and_has_a_name", processor_time),
            own("a_session_that_takes_too_much_memory_says_so", too_much_memory),
            own("kernels_started_ahead_are_given_out_once", started_ahead),
            own("an_environment_without_ipykernel_is_refused_with_words", without_ipykernel),
            own("nothing_is_left_when_a_backend_goes", nothing_is_left),
        ],
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn too_long(session: &mut Session) {
    let executed = session.run_within("x = 1\nprint('begun')\nwhile True: pass", Some(SECOND));
    assert_eq!(text_of(&executed), "begun\n");
    let End::Raised { error, .. } = executed.end else { panic!("{executed:?}") };
    assert_eq!(error, "TimeoutError: the cell ran longer than 1 s and was interrupted");
    assert_eq!(session.text("x"), "1");
}

fn in_a_c_function(session: &mut Session) {
    // The regular expression holds the interpreter's lock: a message would never be read.
    let executed = session.run_within("import re\nre.match('(a+)+$', 'a' * 40 + 'b')", Some(SECOND));
    assert!(matches!(&executed.end, End::Raised { error, .. } if error.starts_with("TimeoutError")), "{executed:?}");
    let executed = session.run_within("import subprocess\nsubprocess.run(['sleep', '50'])", Some(SECOND));
    assert!(matches!(&executed.end, End::Raised { error, .. } if error.starts_with("TimeoutError")), "{executed:?}");
    assert_eq!(session.text("'alive'"), "'alive'");
}

fn does_not_stop(session: &mut Session) {
    let code = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('deaf')\nwhile True: pass";
    let executed = session.run_within(code, Some(SECOND));
    assert_eq!(text_of(&executed), "deaf\n");
    let End::Died(reason) = executed.end else { panic!("{executed:?}") };
    assert!(reason.starts_with("TimeLimit: the cell did not stop when it was interrupted"), "{reason}");
    session.kernel.restart().unwrap();
    assert_eq!(session.text("'new'"), "'new'");
}

fn interrupt_from_outside(session: &mut Session) {
    let interrupt = session.kernel.interrupter();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(SECOND);
        interrupt.interrupt();
    });
    let error = session.error("y = 2\nimport time\ntime.sleep(100)");
    thread.join().unwrap();
    assert!(error.starts_with("KeyboardInterrupt"), "{error}");
    assert_eq!(session.text("y"), "2");
}

fn stop_from_outside(session: &mut Session) {
    let interrupt = session.kernel.interrupter();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(SECOND);
        interrupt.stop();
    });
    let begun = Instant::now();
    let reason = session.death("import time\ntime.sleep(100)", None);
    thread.join().unwrap();
    assert!(reason.starts_with("Stopped"), "{reason}");
    assert!(begun.elapsed() < 60 * SECOND);
}

fn ends_and_restarts(session: &mut Session) {
    for (code, beginning) in [
        (
            "import os\nprint('last words', flush=True)\nos._exit(3)",
            "SystemExit: the cell ended its interpreter with status 3",
        ),
        ("import ctypes\nctypes.string_at(0)", "Crash: the cell broke its interpreter: signal 11"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "Crash: the interpreter was killed"),
    ] {
        session.text("open('kept.txt', 'w').write('kept')\nx = 1");
        let reason = session.death(code, None);
        assert!(reason.starts_with(beginning), "{code}: {reason}");
        session.kernel.restart().unwrap();
        assert_eq!(session.run("1").count, 1);
        assert_eq!(session.text("open('kept.txt').read()"), "'kept'");
        assert!(session.error("x").starts_with("NameError"));
    }
}

fn too_much_output(session: &mut Session) {
    let reason = session.death("while True: print('x' * 10_000)", Some(60 * SECOND));
    // Or more at once than a message has.
    let either = [format!("the cell wrote more than {} bytes", limits().output), "the kernel sent more than".into()];
    assert!(either.iter().any(|words| reason.starts_with(&format!("OutputLimit: {words}"))), "{reason}");
}

fn shown_is_bounded(session: &mut Session) {
    let executed = session.run("from IPython.display import display\nfor n in range(300): display(n)");
    assert_eq!(executed.end, End::Success);
    let text = text_of(&executed);
    assert_eq!(text.matches("[not shown: a cell shows at most 100 things").count(), 1, "{text}");
}

/// The guest takes the place of its kernel's sockets, and speaks to its own key as it likes.
fn hostile_sockets(session: &mut Session) {
    // A reply that says that this very cell is done, and frames that are none, over the kernel's own sockets.
    let code = "import gc, zmq\nfrom ipykernel.kernelapp import IPKernelApp\napp = IPKernelApp.instance()\nkernel = app.kernel\n\
                parent = kernel.get_parent('shell')\nsession = kernel.session\n\
                for kind in ('status', 'stream', 'display_data', 'execute_result', 'error', 'nonsense'):\n\
                \x20   for content in ({}, {'data': 1}, {'name': 'stdout'}, {'text': [1]}, {'execution_state': {}}):\n\
                \x20       session.send(kernel.iopub_socket, kind, content, parent=parent)\n\
                session.send(kernel.iopub_socket, 'stream', {'name': 'stdout', 'text': 'forged'}, parent={'msg_id': 'other'})\n\
                for parts in ([b''], [b'<IDS|MSG>'], [b'x'] * 60, [b'<IDS|MSG>', b'0' * 64, b'{', b'{', b'{', b'{']):\n\
                \x20   kernel.iopub_socket.send_multipart(parts)\nprint('after')";
    assert_eq!(session.text(code), "after\n");
    // More parts than any message has: the connection is of no use any more.
    let code = "kernel.iopub_socket.send_multipart([b'x'] * 1000)\nimport time\ntime.sleep(30)";
    let reason = session.death(code, Some(60 * SECOND));
    assert!(reason.starts_with("Crash: the kernel broke the protocol"), "{reason}");
    session.kernel.restart().unwrap();
    // Sockets that are links and files are in nobody's way when another kernel starts.
    let code = "import json, os\nfrom ipykernel.connect import get_connection_file\n\
                folder = os.path.dirname(get_connection_file())\n\
                for name in os.listdir(folder):\n    os.unlink(f'{folder}/{name}')\n    os.symlink('/etc/passwd', f'{folder}/{name}')\n\
                os.mkdir(f'{folder}/d')\nos.mkfifo(f'{folder}/d/fifo')\nos._exit(0)";
    session.death(code, None);
    session.kernel.restart().unwrap();
    assert_eq!(session.text("'alive'"), "'alive'");
}

/// A number that the guest chooses is not taken for the cell's.
fn wild_counts(session: &mut Session) {
    for wild in ["2**64 - 1", "2**64", "-5", "2**200"] {
        session.run(&format!("get_ipython().execution_count = {wild}"));
        let before = session.run("1").count;
        let begun = Instant::now();
        assert_eq!(session.run("2").count, before + 1, "{wild}");
        assert!(begun.elapsed() < 4 * SECOND, "{wild}: {:?}", begun.elapsed());
    }
}

fn unsupported(session: &mut Session) {
    assert!(matches!(session.kernel.fork(), Err(KernelError::Unsupported(_))));
    assert!(matches!(session.kernel.save(), Err(KernelError::Unsupported(_))));
}

fn processor_time() {
    let limits = Limits { cpu_time: Some(SECOND), ..limits() };
    let native = Native::new(NativeOptions { limits, ..options(strongest()) }).unwrap();
    let mut session = Session::of(&native);
    let burn = "import time\nwhile time.process_time() - begun < 0.6: pass";
    for _ in 0..4 {
        session.text(&format!("import time\nbegun = time.process_time()\n{burn}"));
    }
    for code in ["while True: pass", "!sh -c 'while :; do :; done'"] {
        let reason = session.death(code, Some(120 * SECOND));
        assert!(reason.starts_with("CpuLimit: the cell used more processor time"), "{code}: {reason}");
        session.kernel.restart().unwrap();
    }
}

fn too_much_memory() {
    if strongest() != Policy::Full {
        eprintln!("SKIPPED: nothing bounds memory without a sandbox");
        return;
    }
    let limits = Limits { memory: 400 << 20, ..limits() };
    let native = Native::new(NativeOptions { limits, ..options(Policy::Full) }).unwrap();
    let mut session = Session::of(&native);
    let executed = session.run("x = []\nwhile True: x.append(bytearray(10_000_000))");
    match executed.end {
        End::Raised { error, .. } => assert!(error.starts_with("MemoryError"), "{error}"),
        End::Died(reason) => {
            assert!(reason.starts_with("MemoryLimit: "), "{reason}");
            session.kernel.restart().unwrap();
        }
        End::Success => panic!("it succeeded"),
    }
    assert_eq!(session.text("'alive'"), "'alive'");
}

fn started_ahead() {
    let native = Native::new(NativeOptions { ahead: 2, ..options(strongest()) }).unwrap();
    native.warm_up().unwrap();
    let mut sessions: Vec<Session> = (0..3).map(|_| Session::of(&native)).collect();
    for (number, session) in sessions.iter_mut().enumerate() {
        let first = session.run(&format!("n = {number}\nimport os, numpy\nopen('n', 'w').write('x')\nos.getpid()"));
        assert_eq!(first.count, 1, "what warmed it up has no number: {first:?}");
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
    let native = Native::new(NativeOptions { python: bare.path().join("bin/python"), ..options(strongest()) }).unwrap();
    let refused = native.start(&NoProgress).err().unwrap().to_string();
    assert!(refused.contains("needs ipykernel") && refused.contains("native setup"), "{refused}");
    let nowhere = Native::new(NativeOptions { python: system.join("nowhere"), ..options(strongest()) });
    assert!(nowhere.unwrap_err().to_string().contains("there is no Python at"));
}

fn nothing_is_left() {
    let marker = format!("belljar-marker-{}", std::process::id());
    {
        let native = Native::new(options(strongest())).unwrap();
        let mut session = Session::of(&native);
        session.text(&format!("import subprocess\nchild = subprocess.Popen(['sleep', '1000', '--', '{marker}'], stderr=subprocess.DEVNULL)\nchild2 = subprocess.Popen(['python3', '-c', 'import time; time.sleep(1000)', '{marker}'])"));
    }
    let begun = Instant::now();
    while running(&marker) > 0 {
        assert!(begun.elapsed() < 30 * SECOND, "{} processes are left", running(&marker));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Processes that have this among their arguments.
fn running(marker: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let has = |path: std::path::PathBuf| {
        std::fs::read(path.join("cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).contains(marker))
    };
    processes.filter(|process| has(process.path())).count()
}

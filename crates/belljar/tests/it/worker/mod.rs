//! Worker processes: `--isolation process`, on Linux.
#![cfg(target_os = "linux")]

mod calls;
mod endings;
mod hostile;
mod hostile_recordings;
mod hostile_use;
mod owners;
mod processes;
mod quotas;
mod sessions;

use serde_json::json;

use crate::harness::Belljar;
use crate::wheels::Wheels;
use crate::wire::{Wire, text};
use processes::{Process, busy_worker, templates, wait_for, wait_for_workers, workers};

/// Starts a server whose code runs in worker processes.
fn start(options: &[&str]) -> Wire {
    Wire::start(["--no-install", "--isolation", "process"].into_iter().chain(options.iter().copied()))
}

/// Programs, each with other kinds of results.
const PROGRAMS: [&str; 16] = [
    "6 * 7",
    "print('out')\nimport sys\nprint('error', file=sys.stderr)\n{'a': [1, 2.5, None]}",
    "1 / 0",
    "def f(): return f()\nf()",
    "import sys\nsys.exit(3)",
    "import os\nos._exit(4)",
    "x = bytearray(3_000_000_000)",
    "import ctypes\nctypes.string_at(0xfffffff0)",
    "import ctypes\nctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(lambda x: x + 1)(3)",
    "import sqlite3, lzma, zlib, hashlib\nsqlite3.connect(':memory:').execute('select 1').fetchall()",
    "open('/tmp/f', 'w').write('x' * 100_000)\nopen('/etc/passwd')",
    "import asyncio\nawait asyncio.sleep(0.01)\n'awaited'",
    "import time\ntime.sleep(0.01)\nimport atexit\natexit.register(print, 'end')\n1",
    "raise SystemExit('text')",
    "len([0] * 20_000_000)",
    "import base64, _belljar\nprint('x' * 300_000)",
];

#[test]
fn programs_have_the_same_results_with_and_without_processes() {
    let (mut process, mut thread) = (start(&[]), Wire::start(["--no-install", "--isolation", "thread"]));
    for code in PROGRAMS {
        assert_eq!(process.run(code), thread.run(code), "{code}");
    }
    let arguments = json!({ "python_code": "while True: pass", "timeout": 0.5 });
    assert_eq!(text(&process.call(arguments.clone())), text(&thread.call(arguments)));
    let arguments = json!({ "python_code": "greeting * 2", "global_variables": { "greeting": "hé" } });
    assert_eq!(text(&process.call(arguments.clone())), text(&thread.call(arguments)));
}

#[test]
fn code_runs_in_a_process_that_has_nothing() {
    let mut wire = start(&[]);
    let server = wire.child.id();
    wire.send_call(json!({ "python_code": "while True: pass" }));
    let worker = busy_worker(server);
    let status = |field: &str| worker.status(field).unwrap();
    // Filter mode, for each thread.
    for thread in std::fs::read_dir(worker.path("task")).unwrap() {
        let status = std::fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
        assert!(status.contains("Seccomp:\t2\n") && status.contains("NoNewPrivs:\t1\n"), "{status}");
    }
    assert_eq!(status("CapEff"), "0000000000000000");
    assert_eq!(status("CapBnd"), "0000000000000000");
    assert!(!status("Uid").starts_with("0\t"), "{}", status("Uid"));
    assert_eq!(std::fs::read(worker.path("environ")).unwrap(), b"");
    // Its sockets, and files of the cache that cannot be written to.
    for descriptor in std::fs::read_dir(worker.path("fd")).unwrap() {
        let (path, number) = {
            let entry = descriptor.unwrap();
            (std::fs::read_link(entry.path()).unwrap(), entry.file_name())
        };
        let path = path.to_str().unwrap();
        let information = std::fs::read_to_string(worker.path("fdinfo").join(number)).unwrap();
        let flags = information.lines().find_map(|line| line.strip_prefix("flags:\t")).unwrap();
        let is_read_only = flags.ends_with('0');
        assert!(path.starts_with("socket:") || path == "/dev/null" || is_read_only, "{path} {flags}");
    }
    let limits = std::fs::read_to_string(worker.path("limits")).unwrap();
    for limit in ["Max processes", "Max open files", "Max file size", "Max core file size"] {
        let line = limits.lines().find(|line| line.starts_with(limit)).unwrap();
        assert!(line[limit.len()..].trim().starts_with("0 "), "{line}");
    }
}

#[test]
fn output_arrives_while_code_runs() {
    let mut wire = start(&[]);
    wire.follow_output();
    let id = wire.send_call(json!({ "python_code": "print('begun')\nimport time\ntime.sleep(0.2)\n'ended'" }));
    wire.wait_for_output("begun");
    assert!(text(&wire.answer(id)["result"]).contains("ended"));
}

#[test]
fn images_reach_the_client() {
    let png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";
    let code = format!("from _belljar import host\nhost.call('display', {{'mime': 'image/png', 'data': '{png}'}})");
    let mut results = [start(&[]), Wire::start(["--no-install", "--isolation", "thread"])]
        .map(|mut wire| wire.call(json!({ "python_code": code })));
    let [process, thread] = &mut results;
    assert_eq!(process["content"], thread["content"]);
    assert!(process.to_string().contains(png), "{process}");
}

#[test]
fn code_uses_packages() {
    let wheels = Wheels::with_dependency();
    let mut wire = Wire::start(["--find-links", wheels.path(), "--offline", "--isolation", "process"]);
    for _ in 0..2 {
        let answer = wire.run("import gamma\ngamma.beta.name");
        assert!(answer.contains("<return_value>\nbeta\n"), "{answer}");
    }
    assert!(wire.run("'without packages'").contains("without packages"));
    assert_eq!(templates(wire.child.id()).len(), 2);
}

#[test]
fn unsupported_options_are_refused() {
    let refused: [&[&str]; 2] = [&["stdio", "--sandbox", "native"], &["streamable-http", "--sandbox", "native"]];
    for options in refused {
        let run = Belljar::new().args(options.iter().copied()).args(["--isolation", "process"]).run();
        assert_eq!(run.status, Some(2), "{run:?}");
        assert!(run.stderr.contains("process") && run.stderr.contains("hint: "), "{run:?}");
    }
}

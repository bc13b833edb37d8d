//! Results of cells. Each file of `tests/cells` is one session, with `# %%` lines between its cells; the results are
//! the snapshots in `tests/it/snapshots`.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use belljar_core::kernel::InterruptHandle as _;
use belljar_core::{Execution, ExitReason, Limits, Outcome, RunRequest, SourceMode};
use belljar_emscripten::console::{Capture, Stream};
use belljar_python::{Completeness, Interpreter, Streams, on_guest_thread};
use serde_json::value::RawValue;

use crate::library::python;

/// An interpreter and its output.
struct Session {
    interpreter: Interpreter,
    output: Capture,
}

impl Session {
    fn new() -> Self {
        Self::with(Limits::default(), "")
    }

    fn with(limits: Limits, input: &'static str) -> Self {
        let output = Capture::default();
        let streams = Streams { output: Box::new(output.clone()), input: Box::new(input.as_bytes()) };
        Self { interpreter: python().interpreter(limits, streams).unwrap(), output }
    }

    /// Runs `code` and returns its value as JSON, or "" without a value.
    fn value(&mut self, code: &str) -> String {
        match self.run(code).outcome {
            Outcome::Success(value) => value.map(|value| value.json).unwrap_or_default(),
            other => panic!("{code}: {other:?}"),
        }
    }

    fn run(&mut self, code: &str) -> Execution {
        self.interpreter.run(&RunRequest::for_cell(code))
    }

    /// Returns the error that `code` ends with.
    fn error(&mut self, code: &str) -> belljar_core::PythonError {
        match self.run(code).outcome {
            Outcome::Error(error) => error,
            other => panic!("{code}: {other:?}"),
        }
    }

    fn written(&self) -> String {
        let pieces = self.output.take();
        pieces.iter().map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned()).collect()
    }
}

/// Runs `test` on a thread that interpreters can use.
fn guest(test: impl FnOnce() + Send) {
    python();
    on_guest_thread(test).unwrap();
}

/// Runs the session of a file and returns its cells with their results.
fn transcript(file: &Path) -> String {
    let text = std::fs::read_to_string(file).unwrap();
    let mode = if text.starts_with("# mode: interactive\n") { SourceMode::Interactive } else { SourceMode::Cell };
    let mut session = Session::new();
    let mut transcript = String::new();
    for cell in text.split_inclusive('\n').collect::<Vec<_>>().chunk_by(|_, next| !next.starts_with("# %%")) {
        let code = cell.concat();
        let request = RunRequest { code: code.clone(), mode, ..RunRequest::default() };
        let execution = session.interpreter.run(&request);
        for line in code.lines() {
            writeln!(transcript, ">>> {line}").unwrap();
        }
        for (stream, bytes) in session.output.take() {
            let mark = if stream == Stream::Stderr { "! " } else { "" };
            for line in String::from_utf8_lossy(&bytes).split_inclusive('\n') {
                let end = if line.ends_with('\n') { "" } else { "¶\n" };
                write!(transcript, "{mark}{line}{end}").unwrap();
            }
        }
        match execution.outcome {
            Outcome::Success(None) => {}
            Outcome::Success(Some(value)) => {
                writeln!(transcript, "= {}", value.json).unwrap();
                if let Some(strict) = value.strict_json {
                    writeln!(transcript, "= strictly {strict}").unwrap();
                }
            }
            Outcome::Error(error) => {
                write!(transcript, "{}", error.traceback).unwrap();
                // The last line contains both, unless the exception's own code formats it.
                if !error.traceback.contains(&error.kind) || !error.traceback.contains(&error.message) {
                    writeln!(transcript, "{}: {}", error.kind, error.message).unwrap();
                }
            }
            Outcome::Exited(ExitReason::Exit(status)) => writeln!(transcript, "exit {status}").unwrap(),
            other => writeln!(transcript, "{other:?}").unwrap(),
        }
    }
    transcript
}

#[test]
fn sessions_match_their_snapshots() {
    guest(|| {
        let mut settings = insta::Settings::clone_current();
        settings.set_omit_expression(true);
        settings.add_filter("0x[0-9a-f]+", "0x…");
        settings.add_filter(r"Task-\d+", "Task-N");
        // Frames of the standard library differ between releases.
        settings.add_filter(
            r#"File "/lib/python\d+\.zip/([^"]+)", line \d+, in (\w+)\n(?:[ |]*    .*\n)*"#,
            "File \"…/$1\", in $2\n",
        );
        settings.bind(|| {
            let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cells");
            let mut files: Vec<PathBuf> =
                std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
            files.sort();
            assert!(!files.is_empty());
            for file in files {
                let name = file.file_stem().unwrap().to_str().unwrap();
                insta::assert_snapshot!(name, transcript(&file));
            }
        });
    });
}

#[test]
fn logging_counts_from_the_start_of_each_program() {
    guest(|| {
        let began = || Session::new().value("import logging\nlogging._startTime");
        assert_ne!(began(), began());
    });
}

#[test]
fn values_become_json_as_documented() {
    #[derive(serde::Deserialize)]
    struct Documented {
        values: std::collections::BTreeMap<String, Case>,
    }
    #[derive(serde::Deserialize)]
    struct Case {
        expr: String,
        xml: Option<String>,
        json: Option<String>,
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/return_values.json");
    let documented: Documented = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    guest(|| {
        let mut session = Session::new();
        for (name, case) in documented.values {
            let Outcome::Success(value) = session.run(&case.expr).outcome else { panic!("{name} fails") };
            let (json, text) = value.map(|value| (value.json, value.text)).unzip();
            assert_eq!((json, text), (case.json, case.xml), "{name}: {}", case.expr);
        }
    });
}

#[test]
fn variables_keep_their_types() {
    guest(|| {
        let mut session = Session::new();
        let text = r#"{"i": 1, "f": 1.0, "b": true, "n": null, "big": 12345678901234567890, "l": [1, {"k": "é"}]}"#;
        let globals = Some(RawValue::from_string(text.into()).unwrap());
        let code = "[type(x).__name__ for x in (i, f, b, n, big, l)], big, l[1]['k']".to_owned();
        let execution = session.interpreter.run(&RunRequest { code, globals, ..RunRequest::default() });
        let Outcome::Success(Some(value)) = execution.outcome else { panic!("{:?}", execution.outcome) };
        let value: serde_json::Value = serde_json::from_str(&value.json).unwrap();
        let names = ["int", "float", "bool", "NoneType", "int", "list"];
        assert_eq!(value, serde_json::json!([names, 12345678901234567890u64, "é"]));
        assert_eq!(session.value("f"), "1.0");
    });
}

#[test]
fn arguments_and_environment_come_from_the_request() {
    guest(|| {
        let mut session = Session::new();
        let request = RunRequest {
            code: "import sys, os; [sys.argv, os.environ['COLOUR']]".into(),
            argv: Some(vec!["script.py".into(), "one".into()]),
            env: [("COLOUR".into(), "blue".into())].into(),
            ..RunRequest::default()
        };
        let Outcome::Success(Some(value)) = session.interpreter.run(&request).outcome else { panic!() };
        let value: serde_json::Value = serde_json::from_str(&value.json).unwrap();
        assert_eq!(value, serde_json::json!([["script.py", "one"], "blue"]));
    });
}

#[test]
fn copies_of_an_image_draw_different_random_values() {
    let draws = [
        "import random; random.random()",
        "import os; os.urandom(8).hex()",
        "import uuid; str(uuid.uuid4())",
        "import uuid; str(uuid.uuid1())[-17:]",
        "import secrets; secrets.token_hex()",
        "import tempfile; tempfile.mktemp()",
        "from random import choices; choices(range(1000), k=5)",
    ];
    guest(|| {
        for code in draws {
            let values: Vec<String> = (0..3).map(|_| Session::new().value(code)).collect();
            assert!(values[0] != values[1] && values[1] != values[2] && values[0] != values[2], "{code}: {values:?}");
        }
        // A generator that the program seeds gives the same numbers.
        let mut session = Session::new();
        session.run("import random; random.seed(1)");
        let first = session.value("random.random()");
        session.run("random.seed(1)");
        assert_eq!(session.value("random.random()"), first);
    });
}

#[test]
fn large_values_are_cut_with_a_note() {
    guest(|| {
        let limits = Limits { value: 1000, ..Limits::default() };
        let mut session = Session::with(limits, "");
        for code in ["list(range(100_000))", "'x' * 5000", "__import__('itertools').count()", "['é' * 5000]"] {
            let Outcome::Success(Some(value)) = session.run(code).outcome else { panic!("{code}") };
            let text: String = serde_json::from_str(&value.json).unwrap();
            assert_eq!(text, value.text, "{code}");
            assert!(text.ends_with("\n[cut: the value takes more than 1000 bytes]"), "{code}: {text}");
            assert!((900..1100).contains(&text.len()), "{code}: {}", text.len());
        }
        assert_eq!(session.value("'x' * 900").len(), 902);
    });
}

#[test]
fn long_messages_and_tracebacks_are_cut() {
    guest(|| {
        let mut session = Session::new();
        let error = session.error("raise ValueError('x' * 50_000_000)");
        assert!(error.message.len() < 30_000 && error.message.contains(" characters left out]"));
        assert!(error.traceback.len() < 300_000 && error.traceback.starts_with("Traceback (most recent call last):"));
        let error = session.error("def a(n): return b(n)\ndef b(n): return a(n)\na(0)");
        assert_eq!(error.message, "maximum recursion depth exceeded");
        assert!(error.traceback.contains(" frames left out]"), "{}", error.traceback);
    });
}

/// Runs `code`, and interrupts it as Ctrl-C does shortly after it has written a line.
fn interrupted(session: &mut Session, code: &str) -> Execution {
    let interrupter = session.interpreter.interrupt_handle();
    let output = session.output.clone();
    std::thread::scope(|scope| {
        let (done, wait) = std::sync::mpsc::channel::<()>();
        scope.spawn(move || {
            let mut written: Vec<u8> = Vec::new();
            // The end of the line may be a piece of its own.
            while !written.ends_with(b"\n") {
                written.extend(output.take().into_iter().flat_map(|(_, bytes)| bytes));
                if wait.recv_timeout(Duration::from_millis(1)) != Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                    return;
                }
            }
            std::thread::sleep(Duration::from_millis(20));
            interrupter.interrupt();
        });
        let execution = session.run(code);
        drop(done);
        execution
    })
}

#[test]
fn interrupt_raises_keyboard_interrupt_anywhere_in_code() {
    let codes = [
        "while True: pass",
        "import time; time.sleep(60)",
        "sum(i for i in range(10**12))",
        "import re; re.match('(?:x+x+)+y', 'x' * 40)",
        "10 ** (10 ** 8)",
        "import asyncio; await asyncio.sleep(60)",
        "import asyncio; asyncio.run(asyncio.sleep(60))",
        "import asyncio\nasync def spin():\n    while True: pass\nawait asyncio.gather(spin(), asyncio.sleep(60))",
        "asyncio.run(spin())",
        "import itertools; (i for i in itertools.count())",
        "import select; select.poll().poll(60_000)",
    ];
    guest(|| {
        let limits = Limits { value: u64::MAX, ..Limits::default() };
        let mut session = Session::with(limits, "");
        for code in codes {
            let begun = format!("print('started')\n{code}");
            let Outcome::Error(error) = interrupted(&mut session, &begun).outcome else { panic!("{code}") };
            assert_eq!(error.kind, "KeyboardInterrupt", "{code}");
            assert!(error.traceback.starts_with("Traceback (most recent call last):"), "{code}: {}", error.traceback);
            session.written();
            assert_eq!(session.value("6 * 7"), "42", "{code}");
            assert_eq!(session.value("import asyncio; await asyncio.sleep(0, 1)"), "1", "{code}");
        }
    });
}

#[test]
fn interrupt_before_a_call_or_after_it_leaves_the_interpreter() {
    guest(|| {
        let mut session = Session::new();
        session.run("x = 6");
        let interrupter = session.interpreter.interrupt_handle();
        // CPython looks for signals once in a while, so that each call is interrupted at another place.
        for count in 0..200 {
            interrupter.interrupt();
            match session.run(&format!("for _ in range({count}): pass\nx * 7")).outcome {
                Outcome::Error(error) => assert_eq!(error.kind, "KeyboardInterrupt", "{count}"),
                Outcome::Success(value) => assert_eq!(value.unwrap().json, "42", "{count}"),
                other => panic!("{count}: {other:?}"),
            }
        }
    });
}

#[test]
fn code_may_handle_an_interrupt() {
    guest(|| {
        let mut session = Session::new();
        let code = "import time\ntry: print('started'); time.sleep(60)\n\
                    except KeyboardInterrupt: print('handled')\n'went on'";
        let Outcome::Success(Some(value)) = interrupted(&mut session, code).outcome else { panic!() };
        assert_eq!(value.text, "went on");
        assert_eq!(session.written(), "handled\n");
        let code = "import asyncio\ntry: print('started'); await asyncio.sleep(60)\nfinally: print('cleaned up')";
        assert!(matches!(interrupted(&mut session, code).outcome, Outcome::Error(_)));
        assert_eq!(session.written(), "cleaned up\n");
        let code = "import signal\nhandled = []\nsignal.signal(signal.SIGINT, lambda *_: handled.append(1))\n\
                    print('started')\nwhile not handled: pass\nprint('mine')";
        assert!(matches!(interrupted(&mut session, code).outcome, Outcome::Success(None)));
        assert_eq!(session.written(), "mine\n");
    });
}

#[test]
fn input_is_read_line_by_line_to_its_end() {
    guest(|| {
        let mut session = Session::with(Limits::default(), "Ada\nno newline");
        assert_eq!(session.value("input('name? ')"), "\"Ada\"");
        assert_eq!(session.written(), "name? ");
        assert_eq!(session.value("input()"), "\"no newline\"");
        assert_eq!(session.error("input()").kind, "EOFError");
    });
}

#[test]
fn a_memory_error_is_an_ordinary_exception() {
    guest(|| {
        let limits = Limits { memory: 128 << 20, ..Limits::default() };
        let mut session = Session::with(limits, "");
        for code in [
            "x = b'a' * (200 << 20)",
            "x = []\nwhile True: x.append(bytearray(1 << 20))",
            "x = 'y'\nwhile True: x += x",
            "x = {}\nwhile True: x[len(x)] = [len(x)]",
        ] {
            assert_eq!(session.error(code).kind, "MemoryError", "{code}");
            assert_eq!(session.value("x = None"), "", "{code}");
            assert_eq!(session.value("len(bytearray(1 << 20))"), "1048576", "{code}");
        }
    });
}

#[test]
fn exit_behaves_as_in_cpython() {
    guest(|| {
        let mut session = Session::new();
        session.run(
            "import asyncio, atexit\n\
             class D:\n    def __del__(self): print('destructor')\n\
             def generate():\n    try: yield\n    finally: print('generator')\n\
             async def wait():\n    try: await asyncio.sleep(60)\n    finally: print('task')\n\
             d, g = D(), generate()\n\
             next(g)\n\
             atexit.register(print, 'atexit')\n\
             atexit.register(lambda: 1/0)\n\
             asyncio.ensure_future(wait())\n\
             await asyncio.sleep(0)\n",
        );
        session.written();
        assert!(matches!(session.interpreter.finish().outcome, Outcome::Success(None)));
        let written = session.written();
        let order: Vec<usize> = ["task\n", "ZeroDivisionError", "atexit\n", "destructor\n", "generator\n"]
            .iter()
            .map(|text| written.find(text).unwrap_or_else(|| panic!("{text}: {written}")))
            .collect();
        assert!(order.is_sorted(), "{written}");
    });
}

#[test]
fn prompt_recognizes_complete_input() {
    use Completeness::{Complete, Incomplete, Invalid};
    guest(|| {
        let mut session = Session::new();
        for (code, expected) in [
            ("1", Complete),
            ("", Complete),
            ("# comment", Complete),
            ("await x", Complete),
            ("if x:", Incomplete),
            ("if x:\n  y", Incomplete),
            ("if x:\n  y\n", Complete),
            ("(", Incomplete),
            ("x = '''", Incomplete),
            ("x = 1\\", Incomplete),
            ("@decorator", Incomplete),
            ("a = 1\nb = 2", Complete),
            ("a = 1\nif a:", Incomplete),
            ("a = 1\nif a:\n  b", Incomplete),
            ("def", Invalid),
            ("1 +", Invalid),
            ("x = '", Invalid),
        ] {
            assert_eq!(session.interpreter.completeness(code), expected, "{code:?}");
        }
    });
}

#[test]
fn output_arrives_in_few_pieces() {
    #[derive(Clone, Default)]
    struct Pieces(std::sync::Arc<std::sync::Mutex<Vec<Vec<u8>>>>);
    impl belljar_emscripten::console::OutputSink for Pieces {
        fn write(&mut self, _: Stream, bytes: &[u8]) {
            self.0.lock().unwrap().push(bytes.to_vec());
        }
    }
    guest(|| {
        let pieces = Pieces::default();
        let streams = Streams { output: Box::new(pieces.clone()), input: Box::new(std::io::empty()) };
        let mut interpreter = python().interpreter(Limits::default(), streams).unwrap();
        interpreter.run(&RunRequest::for_cell("print('x' * 100_000)"));
        let written = std::mem::take(&mut *pieces.0.lock().unwrap());
        // The text and its newline arrive as they are written: a buffer would be lost when the code is stopped.
        assert_eq!(written.iter().map(Vec::len).collect::<Vec<_>>(), [100_000, 1]);
    });
}

#[test]
fn new_objects_share_pages() {
    guest(|| {
        let mut session = Session::new();
        let pages =
            session.value("objects = [object() for _ in range(500)]\nlen({id(each) >> 12 for each in objects})");
        // They take two pages if they are contiguous. In the holes between the image's objects, they took 281.
        assert!(pages.parse::<u32>().unwrap() <= 20, "500 objects are on {pages} pages");
    });
}

#[test]
fn code_of_first_cells_shares_pages() {
    guest(|| {
        let mut session = Session::new();
        let span = session.value(
            "import json, linecache\n\
             from _belljar import cell, event_loop, tracebacks\n\
             ran = cell.run, cell.execute, cell.Compiler.parse, event_loop.run, tracebacks.outcome, json.loads\n\
             addresses = [id(function.__code__) for function in (*ran, linecache.getline)]\n\
             max(addresses) - min(addresses)",
        );
        // The functions come from five modules, which lie up to nine megabytes apart in the heap.
        assert!(span.parse::<u32>().unwrap() <= 512 << 10, "the code is spread over {span} bytes");
    });
}

//! What cells do: each file of `tests/cells` is one session, its cells apart by `# %%` lines; what comes of them is
//! held in `tests/snapshots`.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use belljar_core::{Execution, Limits, Mode, NoProgress, Outcome, Request};
use belljar_emscripten::console::{Capture, Stream};
use belljar_python::{Completeness, Interpreter, Options, Python, Streams, on_guest_thread};
use serde_json::value::RawValue;

/// CPython, made ready once for all tests: from the directories that the environment names, like the binary.
fn python() -> &'static Python {
    static PYTHON: OnceLock<Python> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let directory = |variable| std::env::var_os(variable).map(PathBuf::from);
        let release = std::env::var("BELLJAR_PYODIDE").ok();
        let options = Options {
            runtime: directory("BELLJAR_RUNTIME"),
            cache: directory("BELLJAR_CACHE"),
            release,
            offline: false,
        };
        on_guest_thread(|| Python::open(&options, &NoProgress)).unwrap().unwrap()
    })
}

/// An interpreter and what it writes.
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

    /// Runs `code`; answers the value as JSON, or "" for none.
    fn value(&mut self, code: &str) -> String {
        match self.run(code).outcome {
            Outcome::Success(value) => value.map(|value| value.json).unwrap_or_default(),
            other => panic!("{code}: {other:?}"),
        }
    }

    fn run(&mut self, code: &str) -> Execution {
        self.interpreter.run(&Request::cell(code))
    }

    /// The error that `code` ends with.
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

/// Runs `test` where interpreters can run.
fn guest(test: impl FnOnce() + Send) {
    python();
    on_guest_thread(test).unwrap();
}

/// The session of a file, cell by cell, with what came of each.
fn transcript(file: &Path) -> String {
    let text = std::fs::read_to_string(file).unwrap();
    let mode = if text.starts_with("# mode: interactive\n") { Mode::Interactive } else { Mode::Cell };
    let mut session = Session::new();
    let mut transcript = String::new();
    for cell in text.split_inclusive('\n').collect::<Vec<_>>().chunk_by(|_, next| !next.starts_with("# %%")) {
        let code = cell.concat();
        let request = Request { code: code.clone(), mode, ..Request::default() };
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
                if let Some(strict) = value.strict {
                    writeln!(transcript, "= strictly {strict}").unwrap();
                }
            }
            Outcome::Error(error) => {
                write!(transcript, "{}", error.traceback).unwrap();
                // The last line says both, unless the exception's own code has its say in it.
                if !error.traceback.contains(&error.kind) || !error.traceback.contains(&error.message) {
                    writeln!(transcript, "{}: {}", error.kind, error.message).unwrap();
                }
            }
            Outcome::Exit(status) => writeln!(transcript, "exit {status}").unwrap(),
            other => writeln!(transcript, "{other:?}").unwrap(),
        }
    }
    transcript
}

#[test]
fn sessions_go_as_recorded() {
    guest(|| {
        let mut settings = insta::Settings::clone_current();
        settings.set_omit_expression(true);
        settings.add_filter("0x[0-9a-f]+", "0x…");
        settings.add_filter(r"Task-\d+", "Task-N");
        // How the standard library does it is another matter, and differs between releases.
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

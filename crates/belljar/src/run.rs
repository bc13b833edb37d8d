//! `belljar run`.

use std::io::{IsTerminal, Read};
use std::process::ExitCode;
use std::sync::Arc;

use belljar_core::progress::Progress;
use belljar_core::{Execution, Outcome, Request, Statistics};
use belljar_emscripten::console::{Capture, OutputSink};
use belljar_emscripten::fs::HostDirectory;
use belljar_python::install::PrepareError;
use belljar_python::{Image, Interpreter, Python, Streams};

use crate::cli::{Global, RunArguments};
use crate::console::{Terminal, print_line};
use crate::interrupt::Interrupts;
use crate::outcome::{Report, explain, fail, fail_with, status};
use crate::packages::Packages;
use crate::{progress, prompt, run_notebook};

/// A program to run, with the name that tracebacks show and its arguments.
struct Program {
    request: Request,
    /// Whether its text came from standard input, so that nothing is left there for `input()`.
    from_stdin: bool,
}

/// Runs what the arguments name; answers the exit status.
pub(crate) fn run(global: &Global, arguments: &RunArguments, interrupts: &Interrupts) -> ExitCode {
    if let Ok((Some(file), rest)) = arguments.file_and_args()
        && run_notebook::is_notebook(file)
    {
        return run_notebook::run(global, arguments, file, rest, interrupts);
    }
    let program = match program(arguments) {
        Ok(program) => program,
        Err(message) => return fail(&message),
    };
    let progress: Arc<dyn Progress> = Arc::from(progress::reporter(global.quiet));
    let options = match global.options() {
        Ok(options) => options,
        Err(message) => return fail(&message),
    };
    let python = match Python::open(&options, &*progress) {
        Ok(python) => python,
        Err(error) => return fail_with(&error),
    };
    let packages = match Packages::new(&python, &arguments.packages, global.offline(), progress) {
        Ok(packages) => packages,
        Err(message) => return fail(&message),
    };
    let code = program.as_ref().map_or("", |program| program.request.code.as_str());
    let image = match packages.image(code, !arguments.env.is_empty()) {
        Ok(image) => image,
        Err(error) if error.is_about_packages() => return not_installed(&error, arguments),
        Err(error) => return fail_with(&error),
    };
    let start = Start { python: &python, packages: &packages, image: &image, arguments };
    let capture = arguments.json.then(Capture::default);
    let output: Box<dyn OutputSink> = match &capture {
        Some(capture) => Box::new(capture.clone()),
        None => Box::new(Terminal),
    };
    let stdin_taken = arguments.interactive || program.as_ref().is_some_and(|program| program.from_stdin);
    let input: Box<dyn Read + Send> = if stdin_taken { Box::new(std::io::empty()) } else { Box::new(std::io::stdin()) };
    let mut interpreter = match start.interpreter(Streams { output, input }) {
        Ok(interpreter) => interpreter,
        Err(code) => return code,
    };
    let Some(program) = program else {
        return prompt::prompt(&start, interpreter, interrupts);
    };
    let interrupter = interpreter.interrupter();
    let execution = interrupts.during(
        move || interrupter.interrupt(),
        || {
            if arguments.interactive {
                interpreter.run(&program.request)
            } else {
                execute(&mut interpreter, &program.request)
            }
        },
    );
    if arguments.stats {
        report_statistics(&execution);
    }
    if let Some(capture) = capture {
        return print_json(&Report::new(&execution, &capture.take()), &execution.outcome);
    }
    eprint!("{}", explain(&execution.outcome));
    if arguments.interactive {
        return prompt::prompt(&start, interpreter, interrupts);
    }
    if let (true, Outcome::Success(Some(value))) = (arguments.print, &execution.outcome) {
        print_line(&value.text);
    }
    let status = status(&execution.outcome);
    // The process is about to end, and the system takes its memory back faster than we unmap it piece by piece.
    std::mem::forget((interpreter, image, packages, python));
    status
}

/// Runs a whole program: its code, and then what it left to be done at its end.
fn execute(interpreter: &mut Interpreter, request: &Request) -> Execution {
    let mut execution = interpreter.run(request);
    if interpreter.is_dead() {
        return execution;
    }
    let ending = interpreter.finish();
    execution.statistics.run += ending.statistics.run;
    execution.statistics.peak_memory = ending.statistics.peak_memory;
    // Python exits with the program's own status, whatever its atexit functions raise; but not if they never end.
    if matches!(ending.outcome, Outcome::Limit(_) | Outcome::Crash(_)) {
        execution.outcome = ending.outcome;
    }
    execution
}

/// What interpreters are made of.
pub(crate) struct Start<'a> {
    pub(crate) python: &'a Python,
    pub(crate) packages: &'a Packages,
    pub(crate) image: &'a Image,
    pub(crate) arguments: &'a RunArguments,
}

impl Start<'_> {
    /// An interpreter with the limits, mounts and packages that the arguments ask for.
    pub(crate) fn interpreter(&self, streams: Streams) -> Result<Interpreter, ExitCode> {
        let Self { arguments, image, .. } = self;
        let interpreter = self.python.interpreter_with(image, arguments.limits.of_run(), streams);
        let mut interpreter = interpreter.map_err(|error| fail_with(&error))?;
        self.packages.serve(&mut interpreter, image);
        for mount in &arguments.mount {
            let host = mount.host.display();
            let directory = HostDirectory::open(&mount.host, mount.writable)
                .map_err(|error| fail(&format!("cannot mount {host}: {error}")))?;
            interpreter
                .files()
                .mount(&mount.guest, directory)
                .map_err(|error| fail(&format!("cannot mount {host} at {}: {error}", mount.guest)))?;
        }
        Ok(interpreter)
    }
}

/// Reports that the code's packages cannot be had.
fn not_installed(error: &PrepareError, arguments: &RunArguments) -> ExitCode {
    let outcome = Outcome::InstallError(error.to_string());
    let execution = Execution { outcome, statistics: Statistics::default() };
    if arguments.json {
        return print_json(&Report::new(&execution, &[]), &execution.outcome);
    }
    eprint!("{}", explain(&execution.outcome));
    status(&execution.outcome)
}

/// The program that the arguments name; `None` when they ask for a prompt alone.
fn program(arguments: &RunArguments) -> Result<Option<Program>, String> {
    let (file, args) = arguments.file_and_args()?;
    if arguments.output.is_some() {
        return Err("-o is for notebooks (FILE.ipynb)\nhint: `> FILE` keeps what other code prints".into());
    }
    let (code, name, from_stdin) = match (&arguments.code, file) {
        (Some(code), _) => (code.clone(), "-c", false),
        (None, Some("-")) => (read_stdin()?, "-", true),
        (None, Some(file)) => (read_file(file)?, file, false),
        (None, None) if arguments.interactive || std::io::stdin().is_terminal() => return Ok(None),
        (None, None) => (read_stdin()?, "-", true),
    };
    let argv = std::iter::once(name).chain(args.iter().map(String::as_str)).map(str::to_owned).collect();
    let env = arguments.env.iter().cloned().collect();
    let file = file.filter(|file| *file != "-").map(str::to_owned);
    Ok(Some(Program { request: Request { code, argv: Some(argv), file, env, ..Request::default() }, from_stdin }))
}

fn read_file(file: &str) -> Result<String, String> {
    let bytes = std::fs::read(file).map_err(|error| format!("cannot open {file}: {error}"))?;
    decode(bytes, file)
}

fn read_stdin() -> Result<String, String> {
    let mut bytes = Vec::new();
    std::io::stdin().read_to_end(&mut bytes).map_err(|error| format!("cannot read standard input: {error}"))?;
    decode(bytes, "standard input")
}

fn decode(bytes: Vec<u8>, from: &str) -> Result<String, String> {
    let text = String::from_utf8(bytes).map_err(|_| format!("{from} is not UTF-8 text; save it as UTF-8"))?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

fn print_json(report: &Report<'_>, outcome: &Outcome) -> ExitCode {
    match serde_json::to_string(report) {
        Ok(text) => print_line(text),
        Err(error) => return fail(&format!("cannot write the outcome as JSON: {error}")),
    }
    status(outcome)
}

fn report_statistics(execution: &Execution) {
    let milliseconds = |time: std::time::Duration| time.as_secs_f64() * 1e3;
    let statistics = &execution.statistics;
    eprintln!(
        "start {:.2} ms, run {:.2} ms, peak memory {:.1} MB",
        milliseconds(statistics.start),
        milliseconds(statistics.run),
        statistics.peak_memory as f64 / f64::from(1 << 20),
    );
}

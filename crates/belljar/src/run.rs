//! `belljar run`: runs a program.

use std::io::{IsTerminal, Read};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use belljar_core::{Execution, ExitReason, Outcome, Progress, RunRequest, Statistics};
use belljar_emscripten::console::{Capture, OutputSink};
use belljar_packages::shorten_message;
use belljar_python::install::PrepareError;
use belljar_python::{Python, SESSION_DIRECTORY, Streams};
use belljar_tools::ToolRun;

use crate::command_error::CommandError;
use crate::console::{Terminal, print_note};
use crate::exit_code::NOT_STARTED;
use crate::global_options::GlobalOptions;
use crate::interrupt::Interrupts;
use crate::mount::Mount;
use crate::network::{LoggedConnections, NetworkReader};
use crate::outcome::{Report, explain, fail, hint_about, hint_about_files, status};
use crate::packages::Packages;
use crate::program_run::ProgramRun;
use crate::run_arguments::RunArguments;
use crate::run_context::RunContext;
use crate::siblings::Siblings;
use crate::tools::{self, ToolHost};
use crate::{background, lost_files, progress, prompt, run_notebook};

/// A program to run.
struct Program {
    request: RunRequest,
    /// Set if the code was read from standard input, which `input()` can then not use.
    from_stdin: bool,
}

/// Runs `belljar run` and returns the exit status.
pub(crate) fn run(
    global: &GlobalOptions,
    arguments: &RunArguments,
    network: &NetworkReader<'_>,
    interrupts: &Interrupts,
) -> ExitCode {
    if let Ok((Some(file), rest)) = arguments.file_and_args()
        && run_notebook::is_notebook(file)
    {
        return run_notebook::run(global, arguments, network, file, rest, interrupts);
    }
    run_program(global, arguments, network, interrupts).unwrap_or_else(fail)
}

fn run_program(
    global: &GlobalOptions,
    arguments: &RunArguments,
    network: &NetworkReader<'_>,
    interrupts: &Interrupts,
) -> Result<ExitCode, CommandError> {
    let mut program = program(arguments)?;
    if let Some(program) = &mut program {
        program.request.tools = !arguments.tools.servers.is_empty();
    }
    let siblings = match (&program, &arguments.module) {
        (Some(Program { request: RunRequest { file: Some(file), code, .. }, .. }), _) => {
            siblings_of(file, code, arguments)?
        }
        (_, Some(module)) => {
            let imports = format!("import {module}, {module}.__main__");
            Siblings::find(mounted_folder(arguments).unwrap_or(Path::new(".")), [imports.as_str()])?
        }
        _ => Siblings::default(),
    };
    siblings.warn_of_refused();
    let progress: Arc<dyn Progress> = Arc::from(progress::reporter(global.quiet));
    let python = Python::open(&global.options()?, &*progress)?;
    let mut packages =
        Packages::new(&python, &arguments.packages, global.offline(), progress)?.with_siblings(&siblings);
    let mut tool_host = arguments.tools.host()?;
    let tool_run = tool_host.as_ref().map(ToolHost::run);
    if tool_run.is_some() {
        packages = packages.with_tools();
    }
    let code = program.as_ref().map_or("", |program| program.request.code.as_str());
    let terminal = Terminal::new(arguments.raw);
    let network = network.network()?;
    let has_environment =
        !arguments.env.is_empty() || network.as_ref().is_some_and(|network| !network.secrets().is_empty());
    let connections = Arc::new(LoggedConnections::default());
    let (image, installed) = match packages.image(code, has_environment) {
        Ok(image) => image,
        Err(error) if error.is_about_packages() => return Ok(not_installed(error, arguments, &terminal)),
        Err(error) => return Err(error.into()),
    };
    let mut context = RunContext {
        python: &python,
        packages: &packages,
        image,
        arguments,
        siblings: &siblings,
        terminal: terminal.clone(),
        tools: tool_run.clone(),
        network,
        connections: connections.clone(),
        shows_notes: !global.quiet && !arguments.json,
    };
    if !installed.is_empty() && context.shows_notes {
        print_note(&format!("installed {installed}"));
    }
    let capture = arguments.json.then(Capture::default);
    let stdin_taken = arguments.interactive || program.as_ref().is_some_and(|program| program.from_stdin);
    let streams = || -> Streams {
        let output: Box<dyn OutputSink> = match &capture {
            Some(capture) => Box::new(capture.clone()),
            None => Box::new(terminal.clone()),
        };
        let input: Box<dyn Read + Send> =
            if stdin_taken { Box::new(std::io::empty()) } else { Box::new(std::io::stdin()) };
        Streams { output, input }
    };
    let Some(Program { request, .. }) = &program else {
        let running = context.start(arguments.limits.for_run(), streams())?;
        let status = prompt::prompt(&context, running, interrupts);
        tools::close(tool_host, tool_run.as_ref());
        return Ok(status);
    };
    let mut run = ProgramRun::new(&mut context, request, installed, streams, interrupts)?;
    if !arguments.interactive {
        run.finish(interrupts);
    }
    let ProgramRun { mut running, execution, installed, missing } = run;
    if let (false, host) = (arguments.interactive, &mut tool_host) {
        tools::close(host.take(), tool_run.as_ref());
    }
    let calls = tool_run.as_ref().map(ToolRun::log);
    let hint = missing.as_ref().map(hint_about);
    let hint = hint.or_else(|| hint_about_files(&execution.outcome, &arguments.mount));
    terminal.end();
    if arguments.stats {
        report_statistics(&execution);
    }
    if let Some(capture) = capture {
        let report =
            Report::new(&execution, &capture.take()).with_installed(&installed).with_hint(hint).with_calls(calls);
        let report = report.with_connections(connections.take());
        let status = print_json(&report, &execution.outcome, &terminal);
        compile_imported(&context);
        return Ok(status);
    }
    terminal.report(&explain(&execution.outcome));
    if let Some(hint) = hint {
        eprintln!("hint: {hint}");
    }
    if arguments.interactive {
        let status = prompt::prompt(&context, running, interrupts);
        tools::close(tool_host, tool_run.as_ref());
        return Ok(status);
    }
    if let (true, Outcome::Success(Some(value))) = (arguments.print, &execution.outcome) {
        terminal.print_line(&value.text);
    }
    if !global.quiet && !running.interpreter.is_dead() {
        lost_files::report(running.interpreter.files(), &siblings);
    }
    let status = status_after_output(&execution.outcome, &terminal);
    compile_imported(&context);
    // The next run trusts the entries of the cache without reading them.
    python.cache().wait_for_sync();
    background::optimize_libraries(&python, global);
    // The process is about to end, and the kernel frees its memory faster than unmapping it piece by piece would.
    std::mem::forget((running, context));
    std::mem::forget((packages, python));
    Ok(status)
}

/// Returns the exit status of a run whose output was written, after reporting output that was lost: a run that succeeds
/// has then failed.
fn status_after_output(outcome: &Outcome, terminal: &Terminal) -> ExitCode {
    let Some(error) = terminal.take_lost() else { return status(outcome) };
    terminal.report(&format!("belljar: failed to write to standard output: {error}\n"));
    match outcome {
        Outcome::Success(_) | Outcome::Exited(ExitReason::Exit(0)) => ExitCode::from(NOT_STARTED),
        _ => status(outcome),
    }
}

/// Compiles the modules that the program has imported from their sources, so that its next run is faster.
fn compile_imported(context: &RunContext<'_>) {
    let RunContext { python, packages, image, .. } = context;
    if let Err(error) = python.compile_imported(image.packages(), packages.progress()) {
        tracing::debug!(%error, "failed to compile modules that were imported");
    }
}

/// Reports that the installation of the code's packages failed.
fn not_installed(error: PrepareError, arguments: &RunArguments, terminal: &Terminal) -> ExitCode {
    let reason = shorten_message(&CommandError::from(error).to_string());
    let outcome = Outcome::InstallError(reason);
    let execution = Execution { outcome, statistics: Statistics::default() };
    if arguments.json {
        return print_json(&Report::new(&execution, &[]), &execution.outcome, terminal);
    }
    terminal.report(&explain(&execution.outcome));
    status(&execution.outcome)
}

/// Returns the program that the arguments name, or `None` if they only start a prompt.
fn program(arguments: &RunArguments) -> Result<Option<Program>, CommandError> {
    let (file, args) = arguments.file_and_args()?;
    if arguments.output.is_some() {
        return Err(CommandError::new("-o applies to notebooks only (FILE.ipynb)")
            .with_hint("`> FILE` saves the output of other code"));
    }
    let given = match &arguments.module {
        Some(module) => Some((module_program(module), "-m")),
        None => arguments.code.clone().map(|code| (code, "-c")),
    };
    let (code, name, from_stdin) = match (given, file) {
        (Some((code, name)), _) => (code, name, false),
        (None, Some("-")) => (read_stdin()?, "-", true),
        (None, Some(file)) => (read_file(file)?, file, false),
        (None, None) if arguments.interactive || std::io::stdin().is_terminal() => return Ok(None),
        (None, None) => (read_stdin()?, "-", true),
    };
    let argv = std::iter::once(name).chain(args.iter().map(String::as_str)).map(str::to_owned).collect();
    let env = arguments.env.iter().cloned().collect();
    let file = file.filter(|file| *file != "-").map(str::to_owned);
    let mut request = RunRequest { code, argv: Some(argv), file, env, ..RunRequest::default() };
    if let Some(file) = &request.file {
        request.filename.clone_from(file);
    } else if let Some(module) = &arguments.module {
        request.filename = format!("-m {module}");
    }
    Ok(Some(Program { request, from_stdin }))
}

/// Returns the program that runs a module as `python -m` does. It imports nothing but declares, by an import that does
/// not run, the package that is to be installed and preloaded. The module itself must not be loaded before it runs.
fn module_program(module: &str) -> String {
    let package = module.rsplit_once('.').map_or(module, |(package, _)| package);
    // The semicolon omits the value of the last line.
    format!("import runpy\nif False:\n    import {package}\nrunpy._run_module_as_main({module:?});\n")
}

/// Finds the modules that a script imports from its folder. A directory that is mounted over the working directory
/// takes the folder's place.
fn siblings_of(file: &str, code: &str, arguments: &RunArguments) -> Result<Siblings, CommandError> {
    match mounted_folder(arguments) {
        Some(folder) => Siblings::find(folder, [code]),
        None => Siblings::for_script(file.as_ref(), code),
    }
}

/// Returns the directory that is mounted over the working directory.
fn mounted_folder(arguments: &RunArguments) -> Option<&Path> {
    let is_working_directory = |mount: &&Mount| mount.guest.trim_end_matches('/') == SESSION_DIRECTORY;
    arguments.mount.iter().find(is_working_directory).map(|mount| mount.host.as_path())
}

fn read_file(file: &str) -> Result<String, CommandError> {
    let bytes = std::fs::read(file).map_err(|error| format!("failed to open {file}: {error}"))?;
    decode(bytes, file)
}

fn read_stdin() -> Result<String, CommandError> {
    let mut bytes = Vec::new();
    std::io::stdin().read_to_end(&mut bytes).map_err(|error| format!("failed to read standard input: {error}"))?;
    decode(bytes, "standard input")
}

fn decode(bytes: Vec<u8>, from: &str) -> Result<String, CommandError> {
    let text = String::from_utf8(bytes)
        .map_err(|_| CommandError::new(format!("{from} is not UTF-8 text")).with_hint("save it as UTF-8"))?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

fn print_json(report: &Report<'_>, outcome: &Outcome, terminal: &Terminal) -> ExitCode {
    match serde_json::to_string(report) {
        Ok(text) => terminal.print_json(&format!("{text}\n")),
        Err(error) => return fail(format!("failed to write the outcome as JSON: {error}")),
    }
    status(outcome)
}

fn report_statistics(execution: &Execution) {
    let milliseconds = |time: std::time::Duration| time.as_secs_f64() * 1e3;
    let statistics = &execution.statistics;
    eprintln!(
        "start {:.2} ms, run {:.2} ms, peak memory {:.1} MB, on a thread of this process",
        milliseconds(statistics.start),
        milliseconds(statistics.run),
        statistics.peak_memory as f64 / f64::from(1 << 20),
    );
}

//! `belljar run -i`: an interactive prompt with history, completion and multi-line input.

use std::cell::RefCell;
use std::process::ExitCode;

use belljar_core::{ExitReason, Outcome, RunRequest, SourceMode};
use belljar_packages::Dependencies;
use belljar_python::install::{CellPackages, PrepareError};
use belljar_python::{Completeness, Completions, Streams};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::history::DefaultHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{CompletionType, Config, Context, Editor, Helper, Highlighter, Hinter};

use crate::command_error::CommandError;
use crate::console::print_note;
use crate::interrupt::Interrupts;
use crate::outcome::{explain, fail, status};
use crate::run_context::{RunContext, Running};
use crate::untrusted_text::{is_shown, strip_control_chars};

/// One step of indentation, which Tab inserts at the start of a line.
const INDENTATION: &str = "    ";

/// The line editor's access to the interpreter, which knows names and whether input is complete.
#[derive(Helper, Hinter, Highlighter)]
struct InputHelper<'a> {
    running: &'a RefCell<Running>,
}

impl Validator for InputHelper<'_> {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let input = context.input();
        // An empty last line ends a block, as at Python's own prompt.
        let block_ended = input.contains('\n') && input.ends_with('\n');
        let completeness = self.running.borrow_mut().interpreter.completeness(input);
        Ok(match completeness {
            Completeness::Incomplete if !block_ended => ValidationResult::Incomplete,
            _ => ValidationResult::Valid(None),
        })
    }
}

impl Completer for InputHelper<'_> {
    type Candidate = String;

    fn complete(&self, line: &str, position: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        let code = &line[..position];
        if code.lines().next_back().is_none_or(|last| last.trim().is_empty()) || code.ends_with('\n') {
            return Ok((position, vec![INDENTATION.to_owned()]));
        }
        let Completions { start, mut matches } = self.running.borrow_mut().interpreter.complete(code);
        let start = code.char_indices().nth(start).map_or(position, |(index, _)| index);
        // The code may have made the names.
        matches.retain(|name| name.chars().all(is_shown));
        Ok((start, matches))
    }
}

/// Prompts until the end of input or an exit, and returns the exit status.
pub(crate) fn prompt(context: &RunContext<'_>, running: Running, interrupts: &Interrupts) -> ExitCode {
    let running = RefCell::new(running);
    let config = Config::builder().completion_type(CompletionType::List).build();
    let mut editor = match Editor::<InputHelper<'_>, DefaultHistory>::with_config(config) {
        Ok(editor) => editor,
        Err(error) => return fail(format!("failed to start the prompt: {error}")),
    };
    let history = context.python.cache_directory().join("history");
    // The file does not exist before the first prompt has ended.
    let _ = editor.load_history(&history);
    editor.set_helper(Some(InputHelper { running: &running }));
    eprintln!("{}, sealed. Ctrl-D or exit() leaves.", context.python.description());
    let code = loop {
        match editor.readline(">>> ") {
            Ok(line) if line.trim().is_empty() => {}
            // As in CPython's prompt, they need no parentheses.
            Ok(line) if matches!(line.trim(), "exit" | "quit") => break ExitCode::SUCCESS,
            Ok(line) => {
                // The prompt works without history.
                let _ = editor.add_history_entry(&line);
                if let Some(code) = run_line(context, &mut running.borrow_mut(), interrupts, line) {
                    break code;
                }
            }
            Err(ReadlineError::Interrupted) => eprintln!("KeyboardInterrupt"),
            Err(ReadlineError::Eof) => break ExitCode::SUCCESS,
            Err(error) => break fail(format!("failed to read from the terminal: {error}")),
        }
    };
    running.borrow_mut().interpreter.finish();
    context.terminal.end();
    let _ = editor.save_history(&history);
    code
}

/// Runs one input. Returns an exit status if it ended the prompt.
fn run_line(
    context: &RunContext<'_>,
    running: &mut Running,
    interrupts: &Interrupts,
    code: String,
) -> Option<ExitCode> {
    let imported = install_imports(context, running, interrupts, &code);
    let env = context.arguments.env.iter().cloned().collect();
    let request = RunRequest {
        code,
        mode: SourceMode::Interactive,
        filename: "<stdin>".into(),
        env,
        tools: context.tools.is_some(),
        ..RunRequest::default()
    };
    let execution = running.run(&request, interrupts);
    context.terminal.report(&explain(&execution.outcome));
    if matches!(execution.outcome, Outcome::Exited(ExitReason::Exit(_))) {
        return Some(status(&execution.outcome));
    }
    if running.interpreter.is_dead() {
        eprintln!("belljar: the interpreter has ended; a new one was started, and variables are lost");
        let streams = Streams { output: Box::new(context.terminal.clone()), input: Box::new(std::io::empty()) };
        match context.start(context.arguments.limits.for_run(), streams) {
            Ok(fresh) => *running = fresh,
            Err(error) => return Some(fail(error)),
        }
    } else if let Outcome::Error(error) = &execution.outcome
        && let Some(module) = &error.missing_module
    {
        install_missing(context, running, interrupts, module, &imported);
    }
    None
}

/// Installs the packages that the input imports, and returns their names. The input runs even if that fails: it may not
/// reach the import.
fn install_imports(
    context: &RunContext<'_>,
    running: &mut Running,
    interrupts: &Interrupts,
    code: &str,
) -> Vec<String> {
    match context.packages.needs_of_input(code, running) {
        Ok(needs) if needs.is_empty() => Vec::new(),
        Ok(needs) => {
            match install(running, interrupts, &needs) {
                Ok(CellPackages { installed, refused, .. }) => {
                    refused.iter().for_each(|reason| warn(reason));
                    if !installed.is_empty() && context.shows_notes {
                        print_note(&format!("installed {installed}"));
                    }
                }
                Err(error) => warn(&CommandError::from(error).to_string()),
            }
            needs.required().chain(&needs.optional).map(|requirement| requirement.name().to_owned()).collect()
        }
        Err(error) => {
            warn(&CommandError::from(error).to_string());
            Vec::new()
        }
    }
}

/// Installs the package of a module without which the input failed, unless it was among those that the input imports.
fn install_missing(
    context: &RunContext<'_>,
    running: &mut Running,
    interrupts: &Interrupts,
    module: &str,
    imported: &[String],
) {
    let inferred = context.packages.package_of_missing_module(module, running);
    let Some(inferred) = inferred.filter(|inferred| !imported.iter().any(|name| name == inferred.requirement.name()))
    else {
        return;
    };
    let needs = Dependencies { inferred: vec![inferred], ..Dependencies::default() };
    match install(running, interrupts, &needs) {
        Ok(CellPackages { installed, .. }) if !installed.is_empty() => {
            eprintln!("hint: installed {installed}, which provides {module}: run the input again");
        }
        Ok(CellPackages { refused, .. }) => refused.iter().for_each(|reason| warn(reason)),
        Err(error) => warn(&CommandError::from(error).to_string()),
    }
}

/// Installs packages. The first Ctrl-C meanwhile is ignored, since an installation cannot be interrupted.
fn install(running: &mut Running, interrupts: &Interrupts, needs: &Dependencies) -> Result<CellPackages, PrepareError> {
    let Running { interpreter, installer, .. } = running;
    let note = || eprintln!("belljar: packages are being installed; press Ctrl-C again to leave the prompt");
    interrupts.with_handler(note, || interpreter.install(installer, needs))
}

/// Reports that packages were not installed.
fn warn(reason: &str) {
    eprintln!("belljar: not installed: {}", strip_control_chars(reason));
}

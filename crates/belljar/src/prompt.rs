//! `belljar run -i`: an interactive prompt with history and multi-line input.

use std::cell::RefCell;
use std::process::ExitCode;

use belljar_core::kernel::InterruptHandle as _;
use belljar_core::{ExitReason, Outcome, RunRequest, SourceMode};
use belljar_python::{Completeness, Interpreter, Streams};
use rustyline::error::ReadlineError;
use rustyline::history::DefaultHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Completer, Editor, Helper, Highlighter, Hinter};

use crate::console::Terminal;
use crate::interrupt::Interrupts;
use crate::outcome::{explain, fail, status};
use crate::run_context::RunContext;

/// The helper that asks the interpreter whether the input is complete.
#[derive(Helper, Completer, Hinter, Highlighter)]
struct InputValidator<'a> {
    interpreter: &'a RefCell<Interpreter>,
}

impl Validator for InputValidator<'_> {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let input = context.input();
        // An empty last line ends a block, as at Python's own prompt.
        let block_ended = input.contains('\n') && input.ends_with('\n');
        let completeness = self.interpreter.borrow_mut().completeness(input);
        Ok(match completeness {
            Completeness::Incomplete if !block_ended => ValidationResult::Incomplete,
            _ => ValidationResult::Valid(None),
        })
    }
}

/// Prompts until the end of input or an exit, and returns the exit status.
pub(crate) fn prompt(context: &RunContext<'_>, interpreter: Interpreter, interrupts: &Interrupts) -> ExitCode {
    let interpreter = RefCell::new(interpreter);
    let mut editor = match Editor::<InputValidator<'_>, DefaultHistory>::new() {
        Ok(editor) => editor,
        Err(error) => return fail(format!("failed to start the prompt: {error}")),
    };
    let history = context.python.cache_directory().join("history");
    // The file does not exist before the first prompt has ended.
    let _ = editor.load_history(&history);
    editor.set_helper(Some(InputValidator { interpreter: &interpreter }));
    eprintln!("{}, sealed. Ctrl-D or exit() leaves.", context.python.description());
    let code = loop {
        match editor.readline(">>> ") {
            Ok(line) if line.trim().is_empty() => {}
            Ok(line) => {
                // The prompt works without history.
                let _ = editor.add_history_entry(&line);
                if let Some(code) = run_line(context, &interpreter, interrupts, line) {
                    break code;
                }
            }
            Err(ReadlineError::Interrupted) => eprintln!("KeyboardInterrupt"),
            Err(ReadlineError::Eof) => break ExitCode::SUCCESS,
            Err(error) => break fail(format!("failed to read from the terminal: {error}")),
        }
    };
    interpreter.borrow_mut().finish();
    let _ = editor.save_history(&history);
    code
}

/// Runs one input. Returns an exit status if it ended the prompt.
fn run_line(
    context: &RunContext<'_>,
    interpreter: &RefCell<Interpreter>,
    interrupts: &Interrupts,
    code: String,
) -> Option<ExitCode> {
    let env = context.arguments.env.iter().cloned().collect();
    let request =
        RunRequest { code, mode: SourceMode::Interactive, filename: "<stdin>".into(), env, ..RunRequest::default() };
    let mut current = interpreter.borrow_mut();
    let interrupter = current.interrupt_handle();
    let execution = interrupts.with_handler(move || interrupter.interrupt(), || current.run(&request));
    eprint!("{}", explain(&execution.outcome));
    if matches!(execution.outcome, Outcome::Exited(ExitReason::Exit(_))) {
        return Some(status(&execution.outcome));
    }
    if current.is_dead() {
        eprintln!("belljar: the interpreter has ended; a new one was started, and variables are lost");
        let streams = Streams { output: Box::new(Terminal), input: Box::new(std::io::empty()) };
        match context.interpreter(streams) {
            Ok(fresh) => *current = fresh,
            Err(error) => return Some(fail(error)),
        }
    }
    None
}

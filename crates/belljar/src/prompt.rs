//! `belljar run -i`: a prompt with history and multi-line input.

use std::cell::RefCell;
use std::process::ExitCode;

use belljar_core::{Mode, Outcome, Request};
use belljar_python::{Completeness, Interpreter, Streams};
use rustyline::error::ReadlineError;
use rustyline::history::DefaultHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Completer, Editor, Helper, Highlighter, Hinter};

use crate::console::Terminal;
use crate::interrupt::Interrupts;
use crate::outcome::{explain, fail, status};
use crate::run::Start;

/// Asks the interpreter whether what was typed is whole.
#[derive(Helper, Completer, Hinter, Highlighter)]
struct Lines<'a> {
    interpreter: &'a RefCell<Interpreter>,
}

impl Validator for Lines<'_> {
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

/// Prompts until the end of input or an exit; answers the exit status.
pub(crate) fn prompt(start: &Start<'_>, interpreter: Interpreter, interrupts: &Interrupts) -> ExitCode {
    let interpreter = RefCell::new(interpreter);
    let mut editor = match Editor::<Lines<'_>, DefaultHistory>::new() {
        Ok(editor) => editor,
        Err(error) => return fail(&format!("cannot prompt: {error}")),
    };
    let history = start.python.cache_directory().join("history");
    // There is none the first time.
    let _ = editor.load_history(&history);
    editor.set_helper(Some(Lines { interpreter: &interpreter }));
    eprintln!("{}, sealed. Ctrl-D or exit() leaves.", start.python.description());
    let code = loop {
        match editor.readline(">>> ") {
            Ok(line) if line.trim().is_empty() => {}
            Ok(line) => {
                // History that cannot be kept is no reason to stop.
                let _ = editor.add_history_entry(&line);
                if let Some(code) = run_line(start, &interpreter, interrupts, line) {
                    break code;
                }
            }
            Err(ReadlineError::Interrupted) => eprintln!("KeyboardInterrupt"),
            Err(ReadlineError::Eof) => break ExitCode::SUCCESS,
            Err(error) => break fail(&format!("cannot read the terminal: {error}")),
        }
    };
    interpreter.borrow_mut().finish();
    let _ = editor.save_history(&history);
    code
}

/// Runs what was typed; an exit status when it ended the session.
fn run_line(
    start: &Start<'_>,
    interpreter: &RefCell<Interpreter>,
    interrupts: &Interrupts,
    code: String,
) -> Option<ExitCode> {
    let env = start.arguments.env.iter().cloned().collect();
    let request = Request { code, mode: Mode::Interactive, filename: "<stdin>".into(), env, ..Request::default() };
    let mut current = interpreter.borrow_mut();
    let interrupter = current.interrupter();
    let execution = interrupts.during(move || interrupter.interrupt(), || current.run(&request));
    eprint!("{}", explain(&execution.outcome));
    if matches!(execution.outcome, Outcome::Exit(_)) {
        return Some(status(&execution.outcome));
    }
    if current.is_dead() {
        eprintln!("belljar: this interpreter is gone; a new one takes its place, without its variables");
        let streams = Streams { output: Box::new(Terminal), input: Box::new(std::io::empty()) };
        match start.interpreter(streams) {
            Ok(fresh) => *current = fresh,
            Err(code) => return Some(code),
        }
    }
    None
}

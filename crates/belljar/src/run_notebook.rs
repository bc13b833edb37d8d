//! `belljar run NOTEBOOK.ipynb`: runs its cells in a session of their own and writes it with their outputs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use belljar_core::progress::Progress;
use belljar_python::Python;
use belljar_sessions::notebook::Notebook;
use belljar_sessions::{Backend, CellRequest, End, Silent, Wasm, Workplace};

use crate::cli::{Global, RunArguments};
use crate::interrupt::Interrupts;
use crate::outcome::{fail, words};
use crate::packages::Packages;
use crate::{console, progress};

/// Whether a file is a notebook, by its name.
pub(crate) fn is_notebook(file: &str) -> bool {
    Path::new(file).extension().is_some_and(|extension| extension.eq_ignore_ascii_case("ipynb"))
}

/// Runs the notebook `file`, behind which `rest` stands on the command line; answers the exit status.
pub(crate) fn run(
    global: &Global,
    arguments: &RunArguments,
    file: &str,
    rest: &[String],
    interrupts: &Interrupts,
) -> ExitCode {
    let output = match target(arguments, rest) {
        Ok(output) => output,
        Err(message) => return fail(&message),
    };
    match execute(global, arguments, file, interrupts) {
        Ok((notebook, error)) => {
            if let Err(message) = write(&notebook, output.as_deref()) {
                return fail(&message);
            }
            match error {
                None => ExitCode::SUCCESS,
                Some(message) => {
                    eprintln!("{message}");
                    ExitCode::FAILURE
                }
            }
        }
        Err(message) => fail(&message),
    }
}

/// Where the notebook is written to; `None` is standard output.
fn target(arguments: &RunArguments, rest: &[String]) -> Result<Option<PathBuf>, String> {
    if arguments.interactive || arguments.json || arguments.print || arguments.stats {
        return Err(
            "a notebook is run without --interactive, --json, --print and --stats: its outputs are its answer".into()
        );
    }
    if !arguments.mount.is_empty() || !arguments.env.is_empty() {
        return Err("a notebook is run without --mount and --env".into());
    }
    match rest {
        [] => Ok(arguments.output.clone()),
        [option, path] if matches!(option.as_str(), "-o" | "--output") => Ok(Some(path.into())),
        [other, ..] => Err(format!("no such option of a notebook: {other}\nhint: -o FILE says where its outputs go")),
    }
}

/// The notebook with its outputs, and what ended it early.
fn execute(
    global: &Global,
    arguments: &RunArguments,
    file: &str,
    interrupts: &Interrupts,
) -> Result<(Notebook, Option<String>), String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("cannot open {file}: {error}"))?;
    let mut notebook = Notebook::parse(&text).map_err(|reason| format!("{file}: {reason}"))?;
    let progress: Arc<dyn Progress> = Arc::from(progress::reporter(global.quiet));
    let python = Python::open(&global.options()?, &*progress).map_err(|error| words(&error))?;
    let packages = Packages::new(&python, &arguments.packages, global.offline(), progress.clone())?;
    let (given, source) = packages.into_parts();
    let place = Workplace { python, given, source };
    let backend = Wasm::new(arguments.limits.of_run(), true, move |_| Ok(place.clone()));
    let mut kernel = backend.start(&*progress).map_err(|error| error.to_string())?;
    let mut error = None;
    for (place, code) in notebook.code() {
        if error.is_some() {
            notebook.clear(place);
            continue;
        }
        let interrupt = kernel.interrupter();
        let cell = CellRequest { code, ..CellRequest::default() };
        let executed = interrupts.during(move || interrupt.interrupt(), || kernel.execute(&cell, Arc::new(Silent)));
        notebook.set(place, &executed);
        error = match executed.end {
            End::Success => None,
            End::Raised { error, .. } | End::Died(error) => Some(format!("cell {}: {error}", place + 1)),
        };
    }
    Ok((notebook, error))
}

fn write(notebook: &Notebook, output: Option<&Path>) -> Result<(), String> {
    match output {
        Some(path) => {
            std::fs::write(path, notebook.text()).map_err(|error| format!("cannot write {}: {error}", path.display()))
        }
        None => {
            console::print(notebook.text().as_bytes());
            Ok(())
        }
    }
}

//! `belljar run NOTEBOOK.ipynb`: runs the cells of a notebook in a new kernel and writes the notebook with their
//! outputs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use belljar_core::Progress;
use belljar_core::kernel::{Backend, CellObserver, CellRequest, NullObserver};
use belljar_python::{BackendOptions, Python, RuntimeLoader, WasmBackend};
use belljar_sessions::notebook::Notebook;
use belljar_tools::CallLog;
use serde_json::Value;

use crate::command_error::CommandError;
use crate::console::Terminal;
use crate::global_options::GlobalOptions;
use crate::interrupt::Interrupts;
use crate::network::NetworkReader;
use crate::outcome::fail;
use crate::packages::Packages;
use crate::run_arguments::{RunArguments, similar_option};
use crate::siblings::Siblings;
use crate::tools::{self, ToolHost, observer_of};
use crate::{background, progress};

/// Returns whether the file name is that of a notebook.
pub(crate) fn is_notebook(file: &str) -> bool {
    Path::new(file).extension().is_some_and(|extension| extension.eq_ignore_ascii_case("ipynb"))
}

/// Runs the notebook `file`, which `rest` follows on the command line, and returns the exit status.
pub(crate) fn run(
    global: &GlobalOptions,
    arguments: &RunArguments,
    network: &NetworkReader<'_>,
    file: &str,
    rest: &[String],
    interrupts: &Interrupts,
) -> ExitCode {
    let terminal = Terminal::new(arguments.raw);
    let result = target(arguments, rest).and_then(|output| {
        let (notebook, error) = execute(global, arguments, network, file, interrupts)?;
        write(&notebook, output.as_deref(), &terminal)?;
        Ok(error)
    });
    match result {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(message)) => {
            terminal.report(&format!("{message}\n"));
            ExitCode::FAILURE
        }
        Err(error) => fail(error),
    }
}

/// Returns the file to write the notebook to, or `None` for standard output.
fn target(arguments: &RunArguments, rest: &[String]) -> Result<Option<PathBuf>, CommandError> {
    if arguments.interactive || arguments.json || arguments.print || arguments.stats {
        return Err("--interactive, --json, --print and --stats do not apply to notebooks".into());
    }
    if !arguments.mount.is_empty() || !arguments.env.is_empty() {
        return Err("--mount and --env do not apply to notebooks".into());
    }
    if rest.is_empty() {
        return Ok(arguments.output.clone());
    }
    // Options after the notebook were moved in front of it, unless one of them is unknown.
    let similar = rest.iter().find_map(|argument| similar_option(argument));
    let hint = similar.map(|similar| format!("did you mean {similar}?"));
    Err(CommandError::new(format!("unknown options or arguments for a notebook: {}", rest.join(" ")))
        .with_hint(hint.unwrap_or_else(|| "-o FILE writes the executed notebook to FILE".to_owned())))
}

/// Runs the cells. Returns the notebook with its outputs, and the error of the cell that failed, if any.
fn execute(
    global: &GlobalOptions,
    arguments: &RunArguments,
    network: &NetworkReader<'_>,
    file: &str,
    interrupts: &Interrupts,
) -> Result<(Notebook, Option<String>), CommandError> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("failed to open {file}: {error}"))?;
    let mut notebook = Notebook::parse(&text).map_err(|error| CommandError::from(error).context(file))?;
    let code: Vec<String> = notebook.code().into_iter().map(|(_, code)| code).collect();
    // Jupyter runs a notebook in the folder of its path, also if the notebook is a link.
    let folder = Path::new(file).parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let siblings = Siblings::find(folder, code.iter().map(String::as_str))?;
    siblings.warn_of_refused();
    let progress: Arc<dyn Progress> = Arc::from(progress::reporter(global.quiet));
    let python = Python::open(&global.options()?, &*progress)?;
    let packages = Packages::new(&python, &arguments.packages, global.offline(), progress.clone())?;
    let mut packages = packages.with_siblings(&siblings);
    let tool_host = arguments.tools.host()?;
    if tool_host.is_some() {
        packages = packages.with_tools();
    }
    let runtime = RuntimeLoader::from(packages.into_runtime(python.clone()));
    let network = network.network()?;
    let options =
        BackendOptions { limits: arguments.limits.for_run(), color: true, network, ..BackendOptions::default() };
    let backend = WasmBackend::with_options(Arc::new(runtime), options);
    let mut kernel = backend.start(None, &*progress)?;
    for (path, bytes) in siblings.files() {
        kernel.write(path, bytes).map_err(|error| format!("failed to copy {path} into the sandbox: {error}"))?;
    }
    let mut error = None;
    for (index, code) in notebook.code() {
        if error.is_some() {
            notebook.clear_outputs(index);
            continue;
        }
        let interrupt = kernel.interrupt_handle();
        let cell = CellRequest { code, tools: tool_host.is_some(), ..CellRequest::default() };
        let tool_run = tool_host.as_ref().map(ToolHost::run);
        let observer = tool_run.clone().map_or_else(|| Arc::new(NullObserver) as Arc<dyn CellObserver>, observer_of);
        let result = interrupts.with_handler(move || interrupt.interrupt(), || kernel.execute(&cell, observer));
        notebook.set_result(index, &result, backend.limits());
        if let Some(run) = tool_run {
            run.cancel_all();
            note_calls(&mut notebook, index, &run.log());
        }
        error = result.status.error(backend.limits()).map(|error| format!("cell {}: {error}", index + 1));
    }
    tools::close(tool_host, None);
    background::optimize_libraries(&python, global);
    Ok((notebook, error))
}

/// Notes the calls of a cell in its metadata, also those whose errors the code caught.
fn note_calls(notebook: &mut Notebook, index: usize, log: &CallLog) {
    if let Ok(Value::Object(notes)) = serde_json::to_value(log)
        && !(log.calls.is_empty() && log.omitted == 0)
    {
        notebook.set_notes(index, notes);
    }
}

fn write(notebook: &Notebook, output: Option<&Path>, terminal: &Terminal) -> Result<(), CommandError> {
    match output {
        Some(path) => {
            std::fs::write(path, notebook.text())
                .map_err(|error| format!("failed to write {}: {error}", path.display()))?;
        }
        None => terminal.print_json(&notebook.text()),
    }
    Ok(())
}

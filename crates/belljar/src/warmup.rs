//! `belljar warmup`: prepares everything for which the first run would otherwise have to wait.

use std::process::ExitCode;
use std::sync::Arc;

use belljar_core::{Limits, Outcome, Progress, RunRequest};
use belljar_emscripten::console::Capture;
use belljar_python::{Python, Streams};

use crate::command_error::CommandError;
use crate::global_options::GlobalOptions;
use crate::outcome::{explain, fail};
use crate::packages::{PackageOptions, Packages};
use crate::progress;

/// The program that is run at the end as a test.
const PROGRAM: &str = "import sys, json; json.dumps({'python': sys.version.split()[0], 'sum': sum(range(10))})";

/// Fetches and builds missing parts, including the image with the named packages, and runs a test program.
pub(crate) fn warmup(global: &GlobalOptions, options: &PackageOptions) -> ExitCode {
    match prepare(global, options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(error),
    }
}

fn prepare(global: &GlobalOptions, options: &PackageOptions) -> Result<(), CommandError> {
    let progress: Arc<dyn Progress> = Arc::from(progress::reporter(global.quiet));
    let python = Python::open(&global.options()?, &*progress)?;
    let packages = Packages::new(&python, options, global.offline(), progress.clone())?;
    let (image, _) = packages.image("", false)?;
    packages.preload()?;
    python.compile_all(image.packages(), &*progress)?;
    python.recompile_libraries(&*progress).map_err(|error| CommandError::from_error(&error))?;
    let streams = Streams { output: Box::new(Capture::default()), input: Box::new(std::io::empty()) };
    let mut interpreter = python.interpreter(Limits::default(), streams)?;
    let execution = interpreter.run(&RunRequest::for_cell(PROGRAM));
    match &execution.outcome {
        Outcome::Success(Some(value)) if value.text.contains("\"sum\": 45") => {}
        other => return Err(CommandError::new(format!("the test program failed: {}", explain(other)))),
    }
    if !global.quiet {
        eprintln!(
            "ready: {} started in {:.2} ms; files are in {}",
            python.description(),
            execution.statistics.start.as_secs_f64() * 1e3,
            python.cache_directory().display()
        );
    }
    Ok(())
}

//! `belljar warmup`: everything that the first run would otherwise have to wait for.

use std::process::ExitCode;
use std::sync::Arc;

use belljar_core::progress::Progress;
use belljar_core::{Limits, Outcome, Request};
use belljar_emscripten::console::Capture;
use belljar_python::{Python, Streams};

use crate::cli::Global;
use crate::outcome::{explain, fail, fail_with};
use crate::packages::{PackageOptions, Packages};
use crate::progress;

/// Run once everything is in place, to see that it works.
const PROGRAM: &str = "import sys, json; json.dumps({'python': sys.version.split()[0], 'sum': sum(range(10))})";

/// Gets and builds what is missing, the image with the packages that are named too, and runs a small program.
pub(crate) fn warmup(global: &Global, options: &PackageOptions) -> ExitCode {
    let progress: Arc<dyn Progress> = Arc::from(progress::reporter(global.quiet));
    let place = match global.options() {
        Ok(place) => place,
        Err(message) => return fail(&message),
    };
    let python = match Python::open(&place, &*progress) {
        Ok(python) => python,
        Err(error) => return fail_with(&error),
    };
    let packages = match Packages::new(&python, options, global.offline(), progress.clone()) {
        Ok(packages) => packages,
        Err(message) => return fail(&message),
    };
    if let Err(error) = packages.image("", false) {
        return fail_with(&error);
    }
    if let Err(message) = packages.preload() {
        return fail(&message);
    }
    if let Err(error) = python.improve_libraries(&*progress) {
        return fail(&error.to_string());
    }
    let streams = Streams { output: Box::new(Capture::default()), input: Box::new(std::io::empty()) };
    let mut interpreter = match python.interpreter(Limits::default(), streams) {
        Ok(interpreter) => interpreter,
        Err(error) => return fail_with(&error),
    };
    let execution = interpreter.run(&Request::cell(PROGRAM));
    match &execution.outcome {
        Outcome::Success(Some(value)) if value.text.contains("\"sum\": 45") => {
            if !global.quiet {
                eprintln!(
                    "ready: {} started in {:.2} ms; files are in {}",
                    python.description(),
                    execution.statistics.start.as_secs_f64() * 1e3,
                    python.cache_directory().display()
                );
            }
            ExitCode::SUCCESS
        }
        other => fail(&format!("a small program did not run as it should: {}", explain(other))),
    }
}

//! The cost of packages: the first time, from the cache in another process, and from memory in the same process.

mod support;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use belljar_core::progress::{ProgressStep, StepProgress};
use belljar_core::{Limits, NoProgress, Progress, RunRequest};
use belljar_emscripten::console::Capture;
use belljar_packages::{InstallError, Installer, Settings};
use belljar_python::install::{InstallerSource, PrepareOptions};
use belljar_python::{Image, Options, Python, Streams};
use support::{Finding, Sample, Table, milliseconds, timed};

const CODE: &str = "import pydantic";
const IN_PROCESS: usize = 300;
const PROCESSES: usize = 60;
const RESOLUTIONS: usize = 20;

fn main() -> Finding<()> {
    support::main(|| {
        let cache = tempfile::tempdir()?;
        let python = support::python()?;
        support::copy_base(python.cache_directory(), cache.path())?;
        first_ever(cache.path())?;
        from_disk(cache.path())?;
        from_memory(cache.path())?;
        resolving(cache.path())
    })
}

/// Creates an installer with the settings of the command line.
struct Source(Arc<Installer>);

impl Source {
    fn new(python: &Python, offline: bool) -> Finding<Self> {
        let mut settings = Settings::from_environment(python.cache().clone())?;
        settings.offline = offline;
        settings.pyodide = Some(python.pyodide_source(&NoProgress)?);
        Ok(Self(Arc::new(Installer::new(python.platform(), settings))))
    }
}

impl InstallerSource for Source {
    fn installer(&self) -> Result<Arc<Installer>, InstallError> {
        Ok(self.0.clone())
    }
}

fn open(cache: &Path) -> Finding<Python> {
    Ok(Python::open(&Options { cache: Some(cache.into()), ..Options::default() }, &NoProgress)?)
}

fn prepare(python: &Python, source: &Source, progress: &dyn Progress) -> Finding<Image> {
    Ok(python.prepare(CODE, &PrepareOptions::default(), source, progress)?)
}

fn first_ever(cache: &Path) -> Finding<()> {
    let python = open(cache)?;
    let source = Source::new(&python, false)?;
    let steps = Steps::default();
    let (whole, image) = timed(|| prepare(&python, &source, &steps));
    image?;
    let mut table = Table::new(&["first ever `import pydantic`", "ms"]);
    for (name, time) in steps.0.lock().map_err(|_| "a step panicked")?.iter() {
        table.row(&[name.as_str(), &format!("{time:.0}")]);
    }
    table.row(&["**all**", &format!("{whole:.0}")]);
    table.print("The first time (CPython compiled, network and index as they are)");
    Ok(())
}

fn from_disk(cache: &Path) -> Finding<()> {
    let (mut without, mut with) = (Sample::default(), Sample::default());
    for round in 0..PROCESSES + 3 {
        for (code, sample) in [("pass", &mut without), (CODE, &mut with)] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_belljar"));
            command.args(["run", "-c", code]).env("BELLJAR_CACHE", cache).stdin(Stdio::null());
            let (time, output) = timed(|| command.output());
            if !output?.status.success() {
                return Err("belljar failed".into());
            }
            if round >= 3 {
                sample.add(time);
            }
        }
    }
    let mut table = Table::new(&["whole process", "median ms", "min ms", "p90 ms"]);
    row(&mut table, "no packages", &without);
    row(&mut table, "pydantic, its image in the cache", &with);
    table.row(&["more".into(), difference(&with, &without, 0.5), difference(&with, &without, 0.0), String::new()]);
    table.print(&format!("From disk ({PROCESSES} interleaved processes)"));
    Ok(())
}

fn from_memory(cache: &Path) -> Finding<()> {
    let python = open(cache)?;
    let source = Source::new(&python, true)?;
    prepare(&python, &source, &NoProgress)?;
    let image = prepare(&python, &source, &NoProgress)?;
    let (mut without, mut with, mut preparing) = (Sample::default(), Sample::default(), Sample::default());
    for _ in 0..IN_PROCESS {
        for (image, code, sample) in [(python.base(), "pass", &mut without), (&image, CODE, &mut with)] {
            let (time, outcome) = timed(|| call(&python, image, code));
            outcome?;
            sample.add(time);
        }
        preparing.add(timed(|| prepare(&python, &source, &NoProgress)).0);
    }
    let mut table = Table::new(&["a call: restore, run, drop", "median ms", "min ms", "p90 ms"]);
    row(&mut table, "no packages", &without);
    row(&mut table, "pydantic, its image in memory", &with);
    table.row(&["more".into(), difference(&with, &without, 0.5), difference(&with, &without, 0.0), String::new()]);
    row(&mut table, "before that: what the code needs, resolved before", &preparing);
    table.print(&format!("From memory ({IN_PROCESS} interleaved calls)"));
    Ok(())
}

fn call(python: &Python, image: &Image, code: &str) -> Finding<()> {
    let streams = Streams { output: Box::new(Capture::default()), input: Box::new(std::io::empty()) };
    let mut interpreter = python.interpreter_with(image, Limits::default(), streams)?;
    match interpreter.run(&RunRequest::for_cell(code)).outcome {
        belljar_core::Outcome::Success(_) => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}

fn resolving(cache: &Path) -> Finding<()> {
    let python = open(cache)?;
    let (mut afresh, mut remembered) = (Sample::default(), Sample::default());
    for _ in 0..RESOLUTIONS {
        let memo = cache.join("resolutions");
        if memo.exists() {
            std::fs::remove_dir_all(memo)?;
        }
        for sample in [&mut afresh, &mut remembered] {
            let source = Source::new(&python, true)?;
            let (time, resolution) = timed(|| {
                let request =
                    python.request(&[(CODE.into(), PrepareOptions::default())], &PrepareOptions::default(), &source)?;
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>(source.0.resolve(&request, &NoProgress)?)
            });
            resolution?;
            sample.add(time);
        }
    }
    let mut table = Table::new(&["resolving, offline, in a new process", "median ms", "min ms", "p90 ms"]);
    row(&mut table, "by uv from its cache, set-up included", &afresh);
    row(&mut table, "remembered", &remembered);
    table.print(&format!("Resolving ({RESOLUTIONS} times)"));
    Ok(())
}

fn row(table: &mut Table, name: &str, sample: &Sample) {
    let times = [sample.median(), sample.min(), sample.quantile(0.9)].map(|time| format!("{time:.2}"));
    table.row(&[name, &times[0], &times[1], &times[2]]);
}

fn difference(one: &Sample, other: &Sample, part: f64) -> String {
    format!("{:.2}", one.quantile(part) - other.quantile(part))
}

/// A reporter that records the duration of each step.
#[derive(Clone, Default)]
struct Steps(Arc<Mutex<Vec<(String, f64)>>>);

struct Running {
    steps: Steps,
    name: String,
    begin: Instant,
}

impl Progress for Steps {
    fn start(&self, step: ProgressStep) -> Box<dyn StepProgress> {
        Box::new(Running { steps: self.clone(), name: step.name, begin: Instant::now() })
    }
}

impl StepProgress for Running {
    fn advance(&self, _: u64) {}

    fn finish(self: Box<Self>) {
        if let Ok(mut steps) = self.steps.0.lock() {
            steps.push((self.name, milliseconds(self.begin.elapsed())));
        }
    }
}

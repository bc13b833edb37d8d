//! Samples, Markdown tables and interpreters for the benchmarks.
#![expect(dead_code, reason = "each benchmark is a program of its own and uses a part of this")]

pub(crate) mod http;
pub(crate) mod node;
pub(crate) mod server;

use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use belljar_core::{Execution, Limits, NoProgress, Outcome};
use belljar_emscripten::console::Capture;
use belljar_python::{Interpreter, Options, Python, Streams};

/// The result of a benchmark. Any error is shown and makes it fail.
pub(crate) type Finding<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Returns the options of a server with these ones that run its code on threads, unless they say where it runs: what
/// worker processes cost is a benchmark of its own.
pub(crate) fn isolation(options: &[&str]) -> &'static [&'static str] {
    if options.contains(&"--isolation") { &[] } else { &["--isolation", "thread"] }
}

/// Measured values in one unit.
#[derive(Default)]
pub(crate) struct Sample(Vec<f64>);

impl Sample {
    pub(crate) fn add(&mut self, value: f64) {
        let at = self.0.partition_point(|&other| other <= value);
        self.0.insert(at, value);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn min(&self) -> f64 {
        self.quantile(0.0)
    }

    pub(crate) fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    pub(crate) fn max(&self) -> f64 {
        self.quantile(1.0)
    }

    /// Returns the quantile `part` of the values, or NaN without values.
    pub(crate) fn quantile(&self, part: f64) -> f64 {
        let last = self.0.len().saturating_sub(1) as f64;
        self.0.get((last * part).round() as usize).copied().unwrap_or(f64::NAN)
    }
}

pub(crate) fn geometric_mean(values: &[f64]) -> f64 {
    (values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp()
}

pub(crate) fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Runs `work`. Returns its duration in milliseconds and its result.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let begin = Instant::now();
    let result = work();
    (milliseconds(begin.elapsed()), result)
}

/// A Markdown table that is printed when it is complete.
pub(crate) struct Table {
    lines: Vec<String>,
}

impl Table {
    pub(crate) fn new(heads: &[&str]) -> Self {
        let mut table = Self { lines: Vec::new() };
        table.row(heads);
        table.row(&vec!["---"; heads.len()]);
        table
    }

    pub(crate) fn row<S: AsRef<str>>(&mut self, cells: &[S]) {
        let cells: Vec<&str> = cells.iter().map(AsRef::as_ref).collect();
        self.lines.push(format!("| {} |", cells.join(" | ")));
    }

    #[expect(clippy::print_stdout, reason = "a benchmark's table is its answer")]
    pub(crate) fn print(&self, title: &str) {
        println!("\n### {title}\n\n{}\n", self.lines.join("\n"));
    }
}

/// Returns the program to measure: that of `BELLJAR_BENCH_PROGRAM`, such as one of the release profile, or else the one
/// that was built along with the benchmark.
pub(crate) fn program() -> OsString {
    std::env::var_os("BELLJAR_BENCH_PROGRAM").unwrap_or_else(|| env!("CARGO_BIN_EXE_belljar").into())
}

/// Returns the program to compare with, in turns: that of `BELLJAR_BENCH_OTHER`, such as one of an earlier commit.
pub(crate) fn other_program() -> Option<OsString> {
    std::env::var_os("BELLJAR_BENCH_OTHER")
}

/// Opens CPython with the files that `belljar` itself uses (`BELLJAR_RUNTIME`, `BELLJAR_CACHE`).
pub(crate) fn python() -> Finding<Python> {
    let variable = |name| std::env::var_os(name).map(Into::into);
    let options =
        Options { runtime: variable("BELLJAR_RUNTIME"), cache: variable("BELLJAR_CACHE"), ..Options::default() };
    Ok(Python::open(&options, &NoProgress)?)
}

/// Creates an interpreter whose output is discarded.
pub(crate) fn interpreter(python: &Python, limits: Limits) -> Finding<Interpreter> {
    let streams = Streams { output: Box::new(Capture::default()), input: Box::new(std::io::empty()) };
    Ok(python.interpreter(limits, streams)?)
}

/// Returns the value of a cell as JSON, or an error without a value.
pub(crate) fn value(execution: Execution) -> Finding<String> {
    match execution.outcome {
        Outcome::Success(Some(value)) => Ok(value.json),
        other => Err(format!("expected a value, got {other:?}").into()),
    }
}

/// Copies the entries of the compiled CPython, so that it is not compiled again.
pub(crate) fn copy_base(from: &Path, to: &Path) -> Finding<()> {
    for entry in fs::read_dir(from.join("entries"))? {
        let entry = entry?;
        let name = entry.file_name();
        let kind = name.to_string_lossy().split('-').next().map(str::to_owned).unwrap_or_default();
        if ["base", "program", "runtime", "stdlib"].contains(&kind.as_str()) {
            let target = to.join("entries").join(&name);
            fs::create_dir_all(&target)?;
            for file in fs::read_dir(entry.path())? {
                let file = file?;
                fs::copy(file.path(), target.join(file.file_name()))?;
            }
        }
    }
    Ok(())
}

/// Runs a benchmark on a guest thread.
pub(crate) fn main(benchmark: impl FnOnce() -> Finding<()> + Send) -> Finding<()> {
    belljar_python::on_guest_thread(benchmark)?
}

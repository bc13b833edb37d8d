//! `cargo xtask fuzz`: runs the fuzz targets of `fuzz/` on their stored corpora, and beyond.
//!
//! The targets are libFuzzer's (crate `libfuzzer-sys`). They are built here and not by cargo-fuzz, so that nothing has
//! to be installed. Instrumentation for coverage is an option of stable compilers; the address sanitizer is not, and
//! `RUSTC_BOOTSTRAP` allows it.
//!
//! The large targets are not run on each change: tests check their stored corpora without a fuzzer (`fuzz_corpora.rs`
//! of the crate `belljar`), by the same functions (`fuzz/properties`).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::workspace::{as_by_hand, cargo, host, target_directory, workspace};

const USAGE: &str = "\
Usage: cargo xtask fuzz [OPTIONS] [TARGET…]

Builds the fuzz targets and runs each, or those that are named, on its corpus in fuzz/corpus. Inputs that cover more are
written to fuzz/new-corpus in the build folder, and are used by the next run, too. The targets messages, wheels and
worker_frames are built on top of uv, which takes a quarter of an hour: they run with --large, or if they are named.

Options:
  --seconds N  how long each runs [default: 60]
  --hours N    how long each runs
  --large      the targets that take long to build, too
  --store      afterwards, replace fuzz/corpus by a small set of inputs of both that covers most";

/// Instrumentation for coverage, as cargo-fuzz has it.
const COVERAGE: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Zsanitizer=address";
/// The targets with the feature `large` of the crate.
const LARGE: [&str; 3] = ["messages", "wheels", "worker_frames"];
/// The largest input in the stored corpus, in bytes.
const MAX_STORED: u64 = 4096;
/// The most inputs of a target in the stored corpus.
const STORED_INPUTS: usize = 48;

struct Options {
    seconds: u64,
    store: bool,
    large: bool,
    targets: Vec<String>,
}

/// Runs the chore. Returns whether no target has failed.
pub(crate) fn main(arguments: impl Iterator<Item = String>) -> Result<bool, String> {
    let Some(options) = parse(arguments)? else {
        println!("{USAGE}");
        return Ok(true);
    };
    let known = targets()?;
    if let Some(unknown) = options.targets.iter().find(|name| !known.contains(name)) {
        return Err(format!("there is no fuzz target {unknown}; there are: {}", known.join(", ")));
    }
    let is_large = |name: &String| LARGE.contains(&name.as_str());
    let selected: Vec<String> = match options.targets.is_empty() {
        true => known.into_iter().filter(|name| options.large || !is_large(name)).collect(),
        false => options.targets,
    };
    let programs = build(selected.iter().any(is_large))?;
    let mut failed = Vec::new();
    for name in &selected {
        let target = Target::new(&programs, name)?;
        if !target.run(options.seconds)? {
            failed.push(name.as_str());
        } else if options.store {
            target.store()?;
        }
    }
    if !failed.is_empty() {
        println!("failed: {}", failed.join(", "));
    }
    Ok(failed.is_empty())
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Option<Options>, String> {
    let mut options = Options { seconds: 60, store: false, large: false, targets: Vec::new() };
    while let Some(argument) = arguments.next() {
        let mut number = || {
            let text = arguments.next().ok_or(format!("{argument} needs a number\n\n{USAGE}"))?;
            text.parse::<f64>().map_err(|_| format!("{text} is not a number\n\n{USAGE}"))
        };
        match argument.as_str() {
            "--help" | "-h" => return Ok(None),
            "--seconds" => options.seconds = number()?.clamp(1.0, 1e6) as u64,
            "--hours" => options.seconds = (number()? * 3600.0).clamp(1.0, 1e6) as u64,
            "--store" => options.store = true,
            "--large" => options.large = true,
            option if option.starts_with('-') => return Err(format!("unknown option {option}\n\n{USAGE}")),
            _ => options.targets.push(argument),
        }
    }
    Ok(Some(options))
}

/// Returns the names of the targets.
fn targets() -> Result<Vec<String>, String> {
    let folder = workspace()?.join("fuzz/fuzz_targets");
    let entries = fs::read_dir(&folder).map_err(|error| format!("failed to read {}: {error}", folder.display()))?;
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.path().file_stem().map(|name| name.to_string_lossy().into_owned()))
        .collect();
    names.sort();
    Ok(names)
}

/// Builds the targets, those that take long to build if `large` is set. Returns the folder of the programs.
fn build(large: bool) -> Result<PathBuf, String> {
    let host = host()?;
    let folder = target_directory()?.join("fuzz");
    let mut command = Command::new(cargo());
    as_by_hand(&mut command);
    let begin = Instant::now();
    println!("building the fuzz targets, which takes minutes when it is done first");
    let status = command
        // With `--target`, build scripts are not instrumented.
        .args(["build", "--bins", "--locked", "--target", &host, "--manifest-path", "fuzz/Cargo.toml", "--target-dir"])
        .arg(&folder)
        .args(if large { &["--features", "large"][..] } else { &[] })
        .env("RUSTFLAGS", COVERAGE)
        .env("RUSTC_BOOTSTRAP", "1")
        .current_dir(workspace()?)
        .status()
        .map_err(|error| format!("failed to start cargo: {error}"))?;
    if !status.success() {
        return Err("the fuzz targets do not build".into());
    }
    println!("built in {:.0} s", begin.elapsed().as_secs_f64());
    Ok(folder.join(&host).join("debug"))
}

/// A fuzz target that is built.
struct Target {
    name: String,
    program: PathBuf,
    /// The corpus in the repository.
    stored: PathBuf,
    /// Inputs found on this machine.
    new: PathBuf,
    /// The beginning of the paths of inputs that fail.
    artifacts: String,
}

impl Target {
    fn new(programs: &Path, name: &str) -> Result<Self, String> {
        let stored = workspace()?.join("fuzz/corpus").join(name);
        let folder = target_directory()?.join("fuzz");
        let new = folder.join("new-corpus").join(name);
        let artifacts = folder.join("artifacts");
        for folder in [&stored, &new, &artifacts] {
            fs::create_dir_all(folder).map_err(|error| format!("failed to create {}: {error}", folder.display()))?;
        }
        let artifacts = format!("{}/{name}-", artifacts.display());
        Ok(Self { name: name.to_owned(), program: programs.join(name), stored, new, artifacts })
    }

    /// Returns a command that runs the target with these options.
    fn command(&self, options: &[String]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(options).arg(format!("-artifact_prefix={}", self.artifacts));
        // wasmtime handles the signals of its own guests, and reserves more memory than there is.
        command.env("ASAN_OPTIONS", "handle_segv=0:handle_sigill=0:handle_sigfpe=0:detect_leaks=0");
        command
    }

    /// Runs the target for this time. Returns false if an input has failed.
    fn run(&self, seconds: u64) -> Result<bool, String> {
        let options = [
            format!("-max_total_time={seconds}"),
            "-timeout=30".to_owned(),
            "-rss_limit_mb=4096".to_owned(),
            "-print_final_stats=1".to_owned(),
            "-verbosity=1".to_owned(),
        ];
        println!("{}: {seconds} s", self.name);
        let mut command = self.command(&options);
        let output = command.arg(&self.new).arg(&self.stored).output();
        let output = output.map_err(|error| format!("failed to start {}: {error}", self.program.display()))?;
        let text = String::from_utf8_lossy(&output.stderr);
        let value = |name: &str| text.lines().rev().find_map(|line| line.split_once(name)).map(|(_, value)| value);
        let executed = value("stat::number_of_executed_units:").map_or("no", str::trim);
        let covered = value(" cov: ").and_then(|rest| rest.split_whitespace().next()).unwrap_or("no");
        println!("{}: {executed} runs, {covered} edges covered", self.name);
        if !output.status.success() {
            let lines: Vec<&str> = text.lines().collect();
            println!("{}", lines[lines.len().saturating_sub(60)..].join("\n"));
            println!("{}: failed; run it again with\n  {} INPUT", self.name, self.program.display());
        }
        Ok(output.status.success())
    }

    /// Replaces the stored corpus by the largest inputs of a smallest set that covers what all inputs cover: in few
    /// files, large inputs cover most.
    fn store(&self) -> Result<(), String> {
        let merged = self.new.with_extension("merged");
        remove(&merged)?;
        fs::create_dir_all(&merged).map_err(|error| format!("failed to create {}: {error}", merged.display()))?;
        let options = ["-set_cover_merge=1".to_owned(), format!("-max_len={MAX_STORED}")];
        let output = self.command(&options).args([&merged, &self.stored, &self.new]).output();
        let output = output.map_err(|error| format!("failed to start {}: {error}", self.program.display()))?;
        if !output.status.success() {
            return Err(format!("{}: failed to merge\n{}", self.name, String::from_utf8_lossy(&output.stderr)));
        }
        let mut inputs = Vec::new();
        let failed = |error: io::Error| format!("{}: failed to store the corpus: {error}", self.name);
        for entry in fs::read_dir(&merged).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            inputs.push((fs::metadata(&path).map_err(failed)?.len(), path));
        }
        inputs.sort();
        remove(&self.stored)?;
        fs::create_dir_all(&self.stored).map_err(failed)?;
        for (_, path) in inputs.iter().rev().take(STORED_INPUTS) {
            fs::copy(path, self.stored.join(path.file_name().unwrap_or_default())).map_err(failed)?;
        }
        Ok(())
    }
}

fn remove(folder: &Path) -> Result<(), String> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(format!("failed to remove {}: {error}", folder.display()))
        }
        _ => Ok(()),
    }
}

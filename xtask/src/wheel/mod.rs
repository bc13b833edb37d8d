//! `cargo xtask wheel`: builds the Python wheel with maturin, installs it into a new environment without network access
//! and runs its tests.

mod features;
mod notices;
mod sdist;
mod trial;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::workspace::{Profile, as_by_hand, build_belljar, target_directory, workspace};
use trial::{Trial, interpreter};

const USAGE: &str = "\
Usage: cargo xtask wheel [--release] [--no-tests]

Builds the sdist and the wheel in the build folder's `wheels`, installs the wheel and runs the tests in `python/tests`:
all of them with python3, and those that depend on the version of CPython with 3.10, 3.12 and 3.14 where these are
installed.";

const TOOLS: [&str; 3] = ["deflate==0.9.0", "maturin==1.16.0", "uv==0.13.9"];
/// A program of Python that compresses a released wheel again.
const RECOMPRESS: &str = include_str!("recompress.py");
/// The versions of CPython with which the package is tested where they are installed.
const VERSIONS: [&str; 3] = ["3.10", "3.12", "3.14"];
/// The tests that do not depend on the version of CPython, or need the frameworks of the examples.
const ONCE: [&str; 15] = [
    "test_anthropic.py",
    "test_anthropic_dumps.py",
    "test_deepagents.py",
    "test_e2b_signatures.py",
    "test_examples.py",
    "test_fastmcp.py",
    "test_golden.py",
    "test_integrations.py",
    "test_langchain.py",
    "test_leaks.py",
    "test_openai.py",
    "test_openai_agents.py",
    "test_package.py",
    "test_pydantic_ai.py",
    "test_smolagents.py",
];
/// The size that a released wheel should not exceed, in bytes.
const TARGET_SIZE: u64 = 45 << 20;

/// Runs the chore. Returns whether the installed package works.
pub(crate) fn main(arguments: impl Iterator<Item = String>) -> Result<bool, String> {
    let (mut release, mut tests) = (false, true);
    for argument in arguments {
        match argument.as_str() {
            "--release" => release = true,
            "--no-tests" => tests = false,
            "--help" | "-h" => {
                println!("{USAGE}");
                return Ok(true);
            }
            other => return Err(format!("unknown option {other}\n\n{USAGE}")),
        }
    }
    let (target, sources) = (target_directory()?, workspace()?.join("python"));
    let (wheels, tools) = (target.join("wheels"), target.join("wheel-tools"));
    if !release {
        features::check()?;
    }
    remove(&wheels)?;
    let profile = if release { Profile::Release } else { Profile::Dev };
    write_bundle(profile, &target, &sources.join("belljar/_bundle"))?;
    notices::write(&sources)?;
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&tools))?;
    run(Command::new(tools.join("bin/python")).args(["-m", "pip", "install", "--quiet"]).args(TOOLS))?;
    let mut build = Command::new(tools.join("bin/maturin"));
    build.arg("build").args(["--profile", if release { "release" } else { "dev" }]).arg("--out").arg(&wheels);
    build.args(["--locked", "--target-dir"]).arg(&target).current_dir(&sources);
    if release {
        build.args(["--compression-level", "9"]);
    } else {
        build.args(["--features", features::WORKSPACE_TESTS]);
    }
    as_by_hand(&mut build);
    run(&mut build)?;
    let wheel = only_file(&wheels, "whl")?;
    if release {
        run(Command::new(tools.join("bin/python")).args(["-c", RECOMPRESS]).arg(&wheel))?;
    }
    let size = wheel.metadata().map_err(|error| format!("failed to read {}: {error}", wheel.display()))?.len();
    println!("{} ({:.1} MB)", wheel.display(), size as f64 / f64::from(1 << 20));
    if release && size > TARGET_SIZE {
        eprintln!("warning: the wheel is larger than a released one should be, {} MB", TARGET_SIZE >> 20);
    }
    sdist::build(&tools, &target, &sources, &wheels)?;
    let trial = Trial { uv: tools.join("bin/uv"), sources, wheel, target };
    let requirements = ["tests/requirements.txt", "examples/requirements.txt"];
    let python = trial.install("wheel-trial", Path::new("python3"), if tests { &requirements } else { &[] })?;
    if !tests {
        return Ok(true);
    }
    trial.download_sandbox_package(&python)?;
    trial.install_npm_server()?;
    println!("{}", trial.test(&python, &[])?);
    for version in VERSIONS {
        let Some(found) = interpreter(version) else {
            println!("CPython {version} is not installed and was not tested");
            continue;
        };
        let python = trial.install(&format!("wheel-trial-{version}"), &found, &requirements[..1])?;
        println!("CPython {version}: {}", trial.test(&python, &ONCE.map(|file| format!("--ignore={file}")))?);
    }
    Ok(true)
}

/// Writes the files that the wheel contains, with the program of the same profile.
fn write_bundle(profile: Profile, target: &Path, bundle: &Path) -> Result<(), String> {
    let belljar = build_belljar(profile)?;
    remove(bundle)?;
    let cache = target.join("wheel-cache");
    run(Command::new(belljar).arg("--quiet").arg("--cache").arg(cache).arg("bundle").arg(bundle)).map(drop)
}

fn remove(directory: &Path) -> Result<(), String> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("failed to empty {}: {error}", directory.display()))
        }
        _ => Ok(()),
    }
}

/// Returns the file with this extension that maturin has written.
fn only_file(directory: &Path, extension: &str) -> Result<PathBuf, String> {
    let listed = directory.read_dir().map_err(|error| format!("failed to read {}: {error}", directory.display()))?;
    let mut files = listed.filter_map(|entry| Some(entry.ok()?.path()));
    let file = files.find(|path| path.extension().is_some_and(|found| found == extension));
    file.ok_or_else(|| format!("maturin left no file with the extension {extension} in {}", directory.display()))
}

/// Runs a program, which must succeed, and returns its standard output.
fn run(command: &mut Command) -> Result<String, String> {
    let output = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .map_err(|error| format!("failed to start {:?}: {error}", command.get_program()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() { Ok(text) } else { Err(format!("{command:?} failed ({}):\n{text}", output.status)) }
}

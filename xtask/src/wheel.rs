//! `cargo xtask wheel`: builds the Python wheel with maturin, installs it into a new environment without network access
//! and runs its tests.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::workspace::{as_by_hand, build_belljar, target_directory, workspace};

const USAGE: &str = "\
Usage: cargo xtask wheel [--release] [--no-tests]

Builds the sdist and the wheel in the build folder's `wheels`, installs the wheel and runs the tests in `python/tests`.";

const MATURIN: &str = "maturin==1.16.0";
/// The packages that the tests need.
const TEST_PACKAGES: [&str; 6] =
    ["pytest==9.2.0", "mypy==2.4.1", "typing_extensions", "numpy==2.4.6", "pandas==3.1.1", "uvloop==0.23.0"];
/// A package with an extension module for the sandbox, which the tests install from a directory.
const SANDBOX_PACKAGE: &str = "jiter==0.19.0";
/// The options of pip for wheels of the sandbox.
const SANDBOX_PLATFORM: [&str; 7] = [
    "--no-deps",
    "--only-binary=:all:",
    "--implementation=cp",
    "--python-version=3.14",
    "--platform=pyemscripten_2026_0_wasm32",
    "--quiet",
    "--dest",
];
/// The maximum size of a released wheel, in bytes.
const MAX_SIZE: u64 = 45 << 20;

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
    let (wheels, tools, trial) = (target.join("wheels"), target.join("wheel-tools"), target.join("wheel-trial"));
    remove(&wheels)?;
    write_bundle(&target, &sources.join("belljar/_bundle"))?;
    environment(&tools, &[MATURIN])?;
    let mut build = Command::new(tools.join("bin/maturin"));
    build.arg("build").args(["--profile", if release { "release" } else { "dev" }]).arg("--out").arg(&wheels);
    build.args(["--locked", "--target-dir"]).arg(&target).current_dir(&sources);
    as_by_hand(&mut build);
    run(&mut build)?;
    let wheel = only_file(&wheels, "whl")?;
    let size = wheel.metadata().map_err(|error| format!("failed to read {}: {error}", wheel.display()))?.len();
    println!("{} ({:.1} MB)", wheel.display(), size as f64 / f64::from(1 << 20));
    if release && size > MAX_SIZE {
        return Err(format!("the wheel is larger than {} MB", MAX_SIZE >> 20));
    }
    build_sdist(&tools, &target, &sources, &wheels)?;
    environment(&trial, &TEST_PACKAGES)?;
    let python = trial.join("bin/python");
    run(Command::new(&python).args(["-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]).arg(&wheel))?;
    if !tests {
        return Ok(true);
    }
    // Without a cache, and without a network if the machine can create a namespace for that.
    let cache = target.join("wheel-cache-of-tests");
    remove(&cache)?;
    let mut pytest = without_network(&python);
    // Not in the directory of the sources: the tests are those of the installed package.
    pytest.args(["-m", "pytest", "-q", "."]).current_dir(sources.join("tests")).env("BELLJAR_CACHE", &cache);
    pytest.env("PYTHONDONTWRITEBYTECODE", "1").env_remove("PYTHONPATH");
    let packages = target.join("wheel-test-packages");
    run(Command::new(&python)
        .args(["-m", "pip", "download"])
        .args(SANDBOX_PLATFORM)
        .arg(&packages)
        .arg(SANDBOX_PACKAGE))?;
    pytest.env("BELLJAR_TEST_PACKAGES", &packages);
    println!("{}", run(&mut pytest)?);
    Ok(true)
}

/// Builds the sdist, and checks that it contains all of the sources: Cargo finds every crate, as locked.
fn build_sdist(tools: &Path, target: &Path, sources: &Path, wheels: &Path) -> Result<(), String> {
    let mut build = Command::new(tools.join("bin/maturin"));
    build.args(["sdist", "--out"]).arg(wheels).current_dir(sources);
    as_by_hand(&mut build);
    run(&mut build)?;
    let (archive, unpacked) = (only_file(wheels, "gz")?, target.join("wheel-sdist"));
    remove(&unpacked)?;
    std::fs::create_dir_all(&unpacked).map_err(|error| format!("failed to create {}: {error}", unpacked.display()))?;
    run(Command::new("tar").arg("-xzf").arg(&archive).args(["--strip-components", "1", "-C"]).arg(&unpacked))?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut metadata = Command::new(cargo);
    metadata.args(["metadata", "--locked", "--format-version", "1", "--manifest-path"]);
    metadata.arg(unpacked.join("python/Cargo.toml"));
    as_by_hand(&mut metadata);
    run(&mut metadata)?;
    println!("{}", archive.display());
    Ok(())
}

/// Writes the files that the wheel contains. They are built with the program of the tests: the parts are the same.
fn write_bundle(target: &Path, bundle: &Path) -> Result<(), String> {
    let belljar = build_belljar()?;
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

/// Returns a command that starts `program` without a network, if that is possible here.
fn without_network(program: &Path) -> Command {
    let is_possible = Command::new("unshare").args(["-rn", "true"]).output().is_ok_and(|tried| tried.status.success());
    if !is_possible {
        return Command::new(program);
    }
    let mut command = Command::new("unshare");
    command.arg("-rn").arg(program);
    command
}

/// Returns the file with this extension that maturin has written.
fn only_file(directory: &Path, extension: &str) -> Result<PathBuf, String> {
    let listed = directory.read_dir().map_err(|error| format!("failed to read {}: {error}", directory.display()))?;
    let mut files = listed.filter_map(|entry| Some(entry.ok()?.path()));
    let file = files.find(|path| path.extension().is_some_and(|found| found == extension));
    file.ok_or_else(|| format!("maturin left no file with the extension {extension} in {}", directory.display()))
}

/// Creates a virtual environment with these packages.
fn environment(directory: &Path, packages: &[&str]) -> Result<(), String> {
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(directory))?;
    run(Command::new(directory.join("bin/python")).args(["-m", "pip", "install", "--quiet"]).args(packages)).map(drop)
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

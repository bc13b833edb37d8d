//! `cargo xtask wheel`: builds the Python wheel with maturin, installs it into a new environment without network access
//! and runs its tests.

mod features;
mod notices;
mod sdist;
mod trial;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::os::PYTHON;
use crate::reproducible::{EPOCH, epoch, without_paths};
use crate::workspace::{Profile, as_by_hand, build_belljar_with, in_environment, target_directory, workspace};
use trial::{Trial, interpreter};

const USAGE: &str = "\
Usage: cargo xtask wheel [--release] [--no-tests] [--target TRIPLE]

Builds the sdist and the wheel in the build folder's `wheels`, installs the wheel and runs the tests in `python/tests`:
all of them with python3, and those that depend on the version of CPython with 3.10, 3.12 and 3.14 where these are
installed.

With --release, two builds of the same commit give the same bytes, whatever their directories. The times of files are
SOURCE_DATE_EPOCH, by default that of the last commit.

With --target, only the wheel is built, for another platform: aarch64-unknown-linux-gnu or x86_64-unknown-linux-gnu, by
rustc's name. CPython is compiled for it on this machine. rustc needs the platform's standard library, and Cargo its
linker (CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc).";

const TOOLS: [&str; 3] = ["deflate==0.9.0", "maturin==1.16.0", "uv==0.13.9"];
/// A program of Python that leaves the workspace's path out of a released wheel, and compresses it again.
const FINISH: &str = include_str!("finish.py");
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
pub(crate) fn main(mut arguments: impl Iterator<Item = String>) -> Result<bool, String> {
    let (mut release, mut tests, mut platform) = (false, true, None);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--release" => release = true,
            "--no-tests" => tests = false,
            "--target" => platform = Some(arguments.next().ok_or("--target needs the name of a platform")?),
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
    if let Some(platform) = &platform {
        check_standard_library(platform)?;
    }
    let epoch = if release { Some(epoch(&workspace()?)?) } else { None };
    let profile = if release { Profile::Release } else { Profile::Dev };
    step("building the program and its files", || {
        write_bundle(profile, platform.as_deref(), &target, &sources.join("belljar/_bundle"))
    })?;
    notices::write(&sources)?;
    run(Command::new(PYTHON).args(["-m", "venv", "--clear"]).arg(&tools))?;
    run(Command::new(in_environment(&tools, "python")).args(["-m", "pip", "install", "--quiet"]).args(TOOLS))?;
    let mut build = Command::new(in_environment(&tools, "maturin"));
    build.arg("build").args(["--profile", if release { "release" } else { "dev" }]).arg("--out").arg(&wheels);
    build.args(["--locked", "--target-dir"]).arg(&target).current_dir(&sources);
    if release {
        build.args(["--compression-level", "9"]);
    } else {
        build.args(["--features", features::WORKSPACE_TESTS]);
    }
    if let Some(platform) = &platform {
        build.args(["--target", platform]);
    }
    as_by_hand(&mut build);
    if let Some(epoch) = epoch {
        without_paths(&mut build)?;
        build.env(EPOCH, epoch.to_string());
    }
    step("building the wheel", || run(&mut build))?;
    let wheel = only_file(&wheels, "whl")?;
    if release {
        run(Command::new(in_environment(&tools, "python")).args(["-c", FINISH]).arg(&wheel).arg(workspace()?))?;
    }
    let size = wheel.metadata().map_err(|error| format!("failed to read {}: {error}", wheel.display()))?.len();
    println!("{} ({:.1} MB)", wheel.display(), size as f64 / f64::from(1 << 20));
    if release && size > TARGET_SIZE {
        eprintln!("warning: the wheel is larger than a released one should be, {} MB", TARGET_SIZE >> 20);
    }
    if platform.is_some() {
        println!("the wheel is for another platform, and was not installed");
        return Ok(true);
    }
    sdist::build(&tools, &target, &sources, &wheels, epoch)?;
    let trial = Trial { uv: in_environment(&tools, "uv"), sources, wheel, target };
    let requirements = ["tests/requirements.txt", "examples/requirements.txt"];
    let python = step("installing the wheel", || {
        trial.install("wheel-trial", Path::new(PYTHON), if tests { &requirements } else { &[] })
    })?;
    if !tests {
        return Ok(true);
    }
    trial.download_sandbox_package(&python)?;
    trial.install_npm_server()?;
    println!("{}", step("testing the wheel", || trial.test(&python, &[]))?);
    for version in VERSIONS {
        let Some(found) = interpreter(version) else {
            println!("CPython {version} is not installed and was not tested");
            continue;
        };
        let python = step(&format!("installing the wheel for CPython {version}"), || {
            trial.install(&format!("wheel-trial-{version}"), &found, &requirements[..1])
        })?;
        let options = ONCE.map(|file| format!("--ignore={file}"));
        let tested = step(&format!("testing the wheel with CPython {version}"), || trial.test(&python, &options))?;
        println!("CPython {version}: {tested}");
    }
    Ok(true)
}

/// Does one step of the chore, and reports its name on standard error as it begins, and its time if it succeeds.
fn step<T>(name: &str, work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let begin = Instant::now();
    eprintln!("{name}");
    let result = work()?;
    eprintln!("{name}: {:.0} s", begin.elapsed().as_secs_f64());
    Ok(result)
}

/// Checks that rustc can build for a platform, before anything is built.
fn check_standard_library(platform: &str) -> Result<(), String> {
    let directory = run(Command::new("rustc").args(["--print", "target-libdir", "--target", platform]))?;
    if Path::new(directory.trim()).is_dir() {
        return Ok(());
    }
    Err(format!("rustc has no standard library for {platform}: install it with rustup target add {platform}"))
}

/// Writes the files that the wheel for a platform contains, or for that of this machine, with this machine's program of
/// the same profile.
fn write_bundle(profile: Profile, platform: Option<&str>, target: &Path, bundle: &Path) -> Result<(), String> {
    let features: &[&str] = if platform.is_some() { &["belljar/cross-compile"] } else { &[] };
    let belljar = build_belljar_with(profile, features)?;
    remove(bundle)?;
    let mut command = Command::new(belljar);
    command.arg("--quiet").arg("--cache").arg(target.join("wheel-cache")).arg("bundle").arg(bundle);
    if let Some(platform) = platform {
        command.args(["--target", platform]);
    }
    run(&mut command).map(drop)
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

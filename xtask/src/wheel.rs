//! `cargo xtask wheel`: builds the Python wheel with maturin, installs it into a new environment without network access
//! and runs its tests.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::workspace::{Profile, as_by_hand, build_belljar, target_directory, workspace};

const USAGE: &str = "\
Usage: cargo xtask wheel [--release] [--no-tests]

Builds the sdist and the wheel in the build folder's `wheels`, installs the wheel and runs the tests in `python/tests`:
all of them with python3, and those that depend on the version of CPython with 3.10, 3.12 and 3.14 where these are
installed.";

const TOOLS: [&str; 2] = ["maturin==1.16.0", "uv==0.13.9"];
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
/// An MCP server whose tools the tests call from the sandbox.
const NPM_SERVER: &str = "@modelcontextprotocol/server-everything@2026.8.31";
/// The versions of CPython with which the package is tested where they are installed.
const VERSIONS: [&str; 3] = ["3.10", "3.12", "3.14"];
/// The tests that do not depend on the version of CPython.
const ONCE: [&str; 4] = ["test_examples.py", "test_golden.py", "test_leaks.py", "test_package.py"];
/// A program of Python that enables the loopback interface of its network namespace and then becomes another program.
const LOOPBACK: &str = "\
import fcntl, os, socket, struct, sys
UP, SIOCSIFFLAGS = 0x49, 0x8914
with socket.socket() as any_socket:
    fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack('16sh22x', b'lo', UP))
os.execv(sys.argv[1], sys.argv[1:])";
/// A program of Python that has maturin, as a build backend, describe the package, and prints the description.
const BUILD_BACKEND: &str = "\
import maturin, pathlib, sys
directory = pathlib.Path(sys.argv[1])
directory.mkdir(exist_ok=True)
print((directory / maturin.prepare_metadata_for_build_wheel(str(directory)) / 'METADATA').read_text())";
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
    remove(&wheels)?;
    let profile = if release { Profile::Release } else { Profile::Dev };
    write_bundle(profile, &target, &sources.join("belljar/_bundle"))?;
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&tools))?;
    run(Command::new(tools.join("bin/python")).args(["-m", "pip", "install", "--quiet"]).args(TOOLS))?;
    let mut build = Command::new(tools.join("bin/maturin"));
    build.arg("build").args(["--profile", if release { "release" } else { "dev" }]).arg("--out").arg(&wheels);
    build.args(["--locked", "--target-dir"]).arg(&target).current_dir(&sources);
    if release {
        build.args(["--compression-level", "9"]);
    }
    as_by_hand(&mut build);
    run(&mut build)?;
    let wheel = only_file(&wheels, "whl")?;
    let size = wheel.metadata().map_err(|error| format!("failed to read {}: {error}", wheel.display()))?.len();
    println!("{} ({:.1} MB)", wheel.display(), size as f64 / f64::from(1 << 20));
    if release && size > TARGET_SIZE {
        eprintln!("warning: the wheel is larger than a released one should be, {} MB", TARGET_SIZE >> 20);
    }
    build_sdist(&tools, &target, &sources, &wheels)?;
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

/// The installation of a wheel in new environments, and its tests there.
struct Trial {
    uv: PathBuf,
    sources: PathBuf,
    wheel: PathBuf,
    target: PathBuf,
}

impl Trial {
    /// Creates an environment with the packages of these files and the wheel, which is installed without an index.
    fn install(&self, name: &str, python: &Path, requirements: &[&str]) -> Result<PathBuf, String> {
        let directory = self.target.join(name);
        let mut create = Command::new(&self.uv);
        create.args(["venv", "--quiet", "--seed", "--clear", "--no-project", "--python"]).arg(python).arg(&directory);
        run(&mut create)?;
        let python = directory.join("bin/python");
        if !requirements.is_empty() {
            let mut install = Command::new(&self.uv);
            install.args(["pip", "install", "--quiet", "--python"]).arg(&python);
            for file in requirements {
                install.arg("--requirements").arg(self.sources.join(file));
            }
            run(&mut install)?;
        }
        let options = ["-m", "pip", "install", "--quiet", "--no-index", "--no-deps"];
        run(Command::new(&python).args(options).arg(&self.wheel))?;
        Ok(python)
    }

    /// Downloads the package that the tests install into the sandbox.
    fn download_sandbox_package(&self, python: &Path) -> Result<(), String> {
        let mut download = Command::new(python);
        download.args(["-m", "pip", "download"]).args(SANDBOX_PLATFORM).arg(self.sandbox_packages());
        run(download.arg(SANDBOX_PACKAGE)).map(drop)
    }

    /// Installs the MCP server of npm. Without npm, its test is skipped, or fails if `BELLJAR_REQUIRE` names npm.
    fn install_npm_server(&self) -> Result<(), String> {
        if Command::new("npm").arg("--version").output().is_err() {
            return Ok(());
        }
        let mut install = Command::new("npm");
        install.args(["install", "--no-fund", "--no-audit", "--loglevel=error", "--prefix"]).arg(self.npm());
        run(install.arg(NPM_SERVER)).map(drop)
    }

    fn npm(&self) -> PathBuf {
        self.target.join("wheel-test-npm")
    }

    fn sandbox_packages(&self) -> PathBuf {
        self.target.join("wheel-test-packages")
    }

    /// Runs the tests without a cache, and without a network if the machine can create a namespace for that.
    fn test(&self, python: &Path, options: &[String]) -> Result<String, String> {
        let cache = self.target.join("wheel-cache-of-tests");
        remove(&cache)?;
        let mut pytest = without_network(python);
        // Not in the directory of the sources: the tests are those of the installed package.
        pytest.args(["-m", "pytest", "-q", "."]).args(options).current_dir(self.sources.join("tests"));
        // The packages that the tests need are installed, so that none may be skipped for lack of one.
        let required = std::env::var("BELLJAR_REQUIRE").unwrap_or_default();
        pytest.env("BELLJAR_CACHE", &cache).env("BELLJAR_REQUIRE", format!("{required},python-packages"));
        pytest.env("BELLJAR_TEST_PACKAGES", self.sandbox_packages());
        pytest.env("BELLJAR_TEST_NPM", self.npm().join("node_modules"));
        pytest.env("PYTHONDONTWRITEBYTECODE", "1").env_remove("PYTHONPATH");
        run(&mut pytest)
    }
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
    check_included_files(&unpacked)?;
    // The first thing that pip asks of it, before the build that takes an hour.
    let path = std::env::var("PATH").unwrap_or_default();
    let mut backend = Command::new(tools.join("bin/python"));
    backend.args(["-c", BUILD_BACKEND]).arg(target.join("wheel-sdist-metadata")).current_dir(&unpacked);
    backend.env("PATH", format!("{}:{path}", tools.join("bin").display()));
    as_by_hand(&mut backend);
    let described = run(&mut backend)?;
    if !described.lines().any(|line| line == "Name: belljar") {
        return Err(format!("the build backend of the sdist describes another package:\n{described}"));
    }
    println!("{}", archive.display());
    Ok(())
}

/// Checks that the sdist contains the files that sources include when they are compiled.
fn check_included_files(unpacked: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("failed to read {}: {error}", unpacked.display());
    let (mut directories, mut included) = (vec![unpacked.to_owned()], 0);
    while let Some(directory) = directories.pop() {
        for entry in directory.read_dir().map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.is_dir() {
                directories.push(path);
                continue;
            }
            if path.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            let source = std::fs::read_to_string(&path).map_err(failed)?;
            for macro_name in ["include_str!(\"", "include_bytes!(\""] {
                for call in source.split(macro_name).skip(1) {
                    let Some((file, _)) = call.split_once('"') else { continue };
                    if !directory.join(file).is_file() {
                        return Err(format!("the sdist lacks {file}, which {} includes", path.display()));
                    }
                    included += 1;
                }
            }
        }
    }
    if included == 0 {
        return Err("the sources of the sdist include no files: the check does not work".into());
    }
    Ok(())
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

/// Returns a command that starts `python` with no network but the loopback interface, if that is possible here.
fn without_network(python: &Path) -> Command {
    let is_possible = Command::new("unshare").args(["-rn", "true"]).output().is_ok_and(|tried| tried.status.success());
    if !is_possible {
        return Command::new(python);
    }
    let mut command = Command::new("unshare");
    command.arg("-rn").arg(python).args(["-c", LOOPBACK]).arg(python);
    command
}

/// Returns an interpreter of this version of CPython, on the path or among those of pyenv.
fn interpreter(version: &str) -> Option<PathBuf> {
    let name = format!("python{version}");
    let home = |name| std::env::var_os(name).map(PathBuf::from);
    let pyenv = home("PYENV_ROOT").or_else(|| Some(home("HOME")?.join(".pyenv")));
    let installed = pyenv.and_then(|pyenv| pyenv.join("versions").read_dir().ok()).into_iter().flatten();
    let installed = installed.filter_map(|entry| Some(entry.ok()?.path().join("bin").join(&name)));
    // The programs that pyenv has on the path fail for versions that are not selected.
    let starts =
        |program: &PathBuf| Command::new(program).arg("--version").output().is_ok_and(|tried| tried.status.success());
    std::iter::once(PathBuf::from(&name)).chain(installed).find(starts)
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

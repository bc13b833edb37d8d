//! Clients, suites and validators that others wrote: fetched once, by npm and pip, into the build folder.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Versions are pinned: what a program checks is part of what the tests promise.
const CONFORMANCE: &[&str] = &["@modelcontextprotocol/conformance@0.2.0-alpha.12", "node@22.23.3"];
const INSPECTOR: &[&str] = &["@modelcontextprotocol/inspector@2.12.0", "node@22.23.3"];
const SKILLSAW: &[&str] = &["skillsaw==0.22.0"];
const MCPB: &[&str] = &["@anthropic-ai/mcpb@2.1.2"];

/// The folder `node_modules` with the conformance suite and its Node.
pub(super) fn conformance_suite() -> PathBuf {
    install("npm-conformance", CONFORMANCE, npm_install).join("node_modules")
}

/// The folder `node_modules` with the Inspector and its Node.
pub(super) fn inspector() -> PathBuf {
    install("npm-inspector", INSPECTOR, npm_install).join("node_modules")
}

/// The folder `node_modules` with the validator of MCP bundles.
pub(super) fn mcpb() -> PathBuf {
    install("npm-mcpb", MCPB, npm_install).join("node_modules")
}

/// A checker of entries in the MCP registry. It carries the registry's own schemas.
pub(super) fn registry_checker() -> PathBuf {
    install("python-skillsaw", SKILLSAW, pip_install).join("bin/skillsaw")
}

/// A Python that has these packages.
pub(crate) fn python(name: &str, packages: &[&str]) -> PathBuf {
    install(&format!("python-{name}"), packages, pip_install).join("bin/python")
}

/// Installs packages into a directory of this name, unless they are there. A second process waits for the first.
fn install(name: &str, packages: &[&str], how: fn(&Path, &[&str])) -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("clients");
    std::fs::create_dir_all(&root).unwrap();
    let directory = root.join(name);
    let done = directory.join("installed");
    let lock = File::create(root.join(format!("{name}.lock"))).unwrap();
    lock.lock().unwrap();
    if std::fs::read_to_string(&done).is_ok_and(|installed| installed == packages.join("\n")) {
        return directory;
    }
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).unwrap();
    how(&directory, packages);
    std::fs::write(done, packages.join("\n")).unwrap();
    directory
}

fn npm_install(directory: &Path, packages: &[&str]) {
    let options = ["install", "--no-fund", "--no-audit", "--loglevel=error", "--prefix"];
    run(Command::new("npm").args(options).arg(directory).args(packages));
}

fn pip_install(directory: &Path, packages: &[&str]) {
    run(Command::new("python3").args(["-m", "venv"]).arg(directory));
    run(Command::new(directory.join("bin/python")).args(["-m", "pip", "install", "--quiet"]).args(packages));
}

/// Runs a program to its end, which must be good; what it wrote.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{command:?}\n{text}");
    text
}

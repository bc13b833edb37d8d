//! The sdist: the sources from which other machines build the package.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{notices, only_file, remove, run};
use crate::reproducible::EPOCH;
use crate::workspace::{as_by_hand, cargo, in_environment};

/// A program of Python that has maturin, as a build backend, describe the package, and prints the description.
const BUILD_BACKEND: &str = "\
import maturin, pathlib, sys
directory = pathlib.Path(sys.argv[1])
directory.mkdir(exist_ok=True)
print((directory / maturin.prepare_metadata_for_build_wheel(str(directory)) / 'METADATA').read_text())";

/// Builds the sdist, and checks that it contains all of the sources: Cargo finds every crate, as locked.
/// The times of its files are `epoch`, in seconds since 1970, or those of the files on this machine.
pub(super) fn build(
    tools: &Path,
    target: &Path,
    sources: &Path,
    wheels: &Path,
    epoch: Option<u64>,
) -> Result<(), String> {
    let mut build = Command::new(in_environment(tools, "maturin"));
    build.args(["sdist", "--out"]).arg(wheels).current_dir(sources);
    as_by_hand(&mut build);
    if let Some(epoch) = epoch {
        build.env(EPOCH, epoch.to_string());
    }
    run(&mut build)?;
    let (archive, unpacked) = (only_file(wheels, "gz")?, target.join("wheel-sdist"));
    remove(&unpacked)?;
    std::fs::create_dir_all(&unpacked).map_err(|error| format!("failed to create {}: {error}", unpacked.display()))?;
    run(Command::new("tar").arg("-xzf").arg(&archive).args(["--strip-components", "1", "-C"]).arg(&unpacked))?;
    let mut metadata = Command::new(cargo());
    metadata.args(["metadata", "--locked", "--format-version", "1", "--manifest-path"]);
    metadata.arg(unpacked.join("python/Cargo.toml"));
    as_by_hand(&mut metadata);
    let facts: Value = serde_json::from_str(&run(&mut metadata)?)
        .map_err(|error| format!("failed to read Cargo's metadata of the sdist: {error}"))?;
    check_included_files(&unpacked)?;
    // The first thing that pip asks of it, before the build that takes an hour.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let python = in_environment(tools, "python");
    let directories = python.parent().map(Path::to_owned).into_iter().chain(std::env::split_paths(&path));
    let path = std::env::join_paths(directories).map_err(|error| format!("failed to extend PATH: {error}"))?;
    let mut backend = Command::new(&python);
    backend.args(["-c", BUILD_BACKEND]).arg(target.join("wheel-sdist-metadata")).current_dir(&unpacked);
    backend.env("PATH", path);
    as_by_hand(&mut backend);
    let described = run(&mut backend)?;
    if !described.lines().any(|line| line == "Name: belljar") {
        return Err(format!("the build backend of the sdist describes another package:\n{described}"));
    }
    check_requirements(&facts, &described)?;
    if !unpacked.join(notices::FILE).is_file() {
        return Err(format!("the sdist lacks {}", notices::FILE));
    }
    println!("{}", archive.display());
    Ok(())
}

/// Checks that the description names the version of Rust that the sources need: the errors of pip for an sdist that it
/// cannot build do not.
fn check_requirements(facts: &Value, described: &str) -> Result<(), String> {
    let packages = facts["packages"].as_array().into_iter().flatten();
    let package = packages.into_iter().find(|package| package["name"] == "belljar-extension");
    let version = package.and_then(|package| package["rust_version"].as_str());
    let version = version.ok_or("Cargo's metadata of the sdist lacks the version of Rust")?;
    // Without the number of a correction.
    let named = version.splitn(3, '.').take(2).collect::<Vec<_>>().join(".");
    if described.contains(&format!("Rust {named}")) {
        return Ok(());
    }
    Err(format!("the sources need Rust {named}, and python/README.md does not name that version"))
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

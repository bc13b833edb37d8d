//! `cargo xtask features`: checks the MCP client with none of its features and with each of them alone.
//!
//! The tests of the workspace build the client with all features, so that code which needs another feature than it
//! names would go unnoticed. They also build it with the workspace's version of Rust. Clippy finds functions of the
//! standard library that are newer than the client's own, lower version (`incompatible_msrv`). Dependencies that
//! declare a newer one are found here.

use std::collections::{BTreeSet, HashMap};
use std::process::{Command, Output};
use std::time::Instant;

use serde_json::Value;

use crate::workspace::{as_by_hand, cargo, host, workspace};

const USAGE: &str = "\
Usage: cargo xtask features [FEATURE…]

Runs Clippy on the library `belljar-mcp-client` with `none` of its features, with each feature alone, and with the
`default` ones; or with each of those that are named. Warnings are errors. Checks for all features that no dependency
requires a later version of Rust than the client declares.";

const PACKAGE: &str = "belljar-mcp-client";
/// The selection of no feature.
const NONE: &str = "none";
/// Features with a higher lowest version of Rust than the client's own; the guide names them.
const LATER_RUST: &[(&str, &str)] = &[("rig", "1.95")];

/// Runs the chore. Returns whether the client compiles without warnings with each selection of features.
pub(crate) fn main(arguments: impl Iterator<Item = String>) -> Result<bool, String> {
    let mut named: Vec<String> = Vec::new();
    for argument in arguments {
        match argument.as_str() {
            "--help" | "-h" => {
                println!("{USAGE}");
                return Ok(true);
            }
            option if option.starts_with('-') => return Err(format!("unknown option {option}\n\n{USAGE}")),
            _ => named.push(argument),
        }
    }
    let client = client()?;
    let known = selections(&client);
    if let Some(unknown) = named.iter().find(|name| !known.contains(name)) {
        return Err(format!("{PACKAGE} does not have the feature {unknown}; it has: {}", known.join(", ")));
    }
    let too_new = too_new(&client, &known)?;
    for problem in &too_new {
        println!("{problem}");
    }
    let selections = if named.is_empty() { known } else { named };
    let mut failed = Vec::new();
    let started = Instant::now();
    for name in &selections {
        let since = Instant::now();
        if !compiles(if name == NONE { "" } else { name })? {
            failed.push(name.as_str());
        }
        println!("{name}: {:.0} s", since.elapsed().as_secs_f64());
    }
    println!("{} selections in {:.0} s", selections.len(), started.elapsed().as_secs_f64());
    if !failed.is_empty() {
        println!("failed: {}", failed.join(", "));
    }
    Ok(failed.is_empty() && too_new.is_empty())
}

fn quiet_cargo() -> Command {
    let mut command = Command::new(cargo());
    as_by_hand(&mut command);
    command
}

/// Runs Cargo in the workspace and returns its output.
fn output_of(arguments: &[&str]) -> Result<Vec<u8>, String> {
    let Output { status, stdout, stderr } = quiet_cargo()
        .args(arguments)
        .current_dir(workspace()?)
        .output()
        .map_err(|error| format!("failed to start cargo: {error}"))?;
    if status.success() {
        Ok(stdout)
    } else {
        Err(format!("cargo {}: {status}\n{}", arguments.join(" "), String::from_utf8_lossy(&stderr)))
    }
}

/// Returns the descriptions of packages by `cargo metadata`.
fn packages(arguments: &[&str]) -> Result<Vec<Value>, String> {
    let mut all = vec!["metadata", "--format-version=1", "--locked"];
    all.extend_from_slice(arguments);
    let output = output_of(&all)?;
    let mut metadata: Value = serde_json::from_slice(&output).map_err(|error| format!("cargo metadata: {error}"))?;
    match metadata["packages"].take() {
        Value::Array(packages) => Ok(packages),
        _ => Err("cargo metadata does not list packages".to_owned()),
    }
}

/// Returns the description of the client's package.
fn client() -> Result<Value, String> {
    let found = packages(&["--no-deps"])?.into_iter().find(|package| package["name"] == PACKAGE);
    found.ok_or_else(|| format!("the workspace does not have the package {PACKAGE}"))
}

/// Returns the names of the client's features, and that of no feature.
fn selections(client: &Value) -> Vec<String> {
    let features = client["features"].as_object().into_iter().flatten().map(|(name, _)| name.clone());
    [NONE.to_owned()].into_iter().chain(features).collect()
}

/// Returns a line for each dependency that declares a later version of Rust than the client does.
fn too_new(client: &Value, features: &[String]) -> Result<Vec<String>, String> {
    let own = client["rust_version"].as_str().ok_or("the client does not declare a version of Rust")?;
    let declared: HashMap<(String, String), String> = packages(&["--filter-platform", &host()?])?
        .into_iter()
        .filter_map(|package| {
            let text = |key: &str| package[key].as_str().map(str::to_owned);
            Some(((text("name")?, text("version")?), text("rust_version")?))
        })
        .collect();
    let mut problems = Vec::new();
    for feature in features.iter().filter(|feature| *feature != NONE) {
        let lowest = LATER_RUST.iter().find(|(name, _)| name == feature).map_or(own, |(_, version)| *version);
        let tree = output_of(&[
            "tree",
            "--locked",
            "--package",
            PACKAGE,
            "--edges=normal,build",
            "--no-default-features",
            "--features",
            feature,
            "--prefix=none",
            "--format={p}",
        ])?;
        for (name, version) in dependencies(&String::from_utf8_lossy(&tree)) {
            let Some(required) = declared.get(&(name.clone(), version.clone())) else { continue };
            if rust_version(required) > rust_version(lowest) {
                problems.push(format!("{feature}: {name} {version} requires Rust {required}, later than {lowest}"));
            }
        }
    }
    Ok(problems)
}

/// Returns names and versions of the packages in the output of `cargo tree`, such as `uuid v1.29.1 (*)`.
fn dependencies(tree: &str) -> BTreeSet<(String, String)> {
    let packages = tree.lines().filter_map(|line| {
        let (name, rest) = line.split_once(" v")?;
        Some((name.to_owned(), rest.split_whitespace().next()?.to_owned()))
    });
    packages.collect()
}

/// Returns the numbers of a version, which compare in its order: a patch that is left out counts as the first one.
fn rust_version(version: &str) -> (u32, u32, u32) {
    let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    (next(), next(), next())
}

/// Runs Clippy with these features and no others.
fn compiles(features: &str) -> Result<bool, String> {
    let status = quiet_cargo()
        .args(["clippy", "--quiet", "--locked", "--package", PACKAGE, "--lib", "--no-default-features"])
        .args(["--features", features])
        .args(["--", "-D", "warnings"])
        .current_dir(workspace()?)
        .status()
        .map_err(|error| format!("failed to start cargo: {error}"))?;
    Ok(status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_read_once_from_a_tree() {
        let tree = "belljar-mcp-client v0.1.0 (/w/crates/belljar-client)\nserde_derive v1.0.1 (proc-macro)\n\
                    uuid v1.29.1\nuuid v1.29.1 (*)\n\n[build-dependencies]\ncc v1.2.0\n";
        let found: Vec<(String, String)> = dependencies(tree).into_iter().collect();
        let names: Vec<String> = found.iter().map(|(name, version)| format!("{name} {version}")).collect();
        assert_eq!(names, ["belljar-mcp-client 0.1.0", "cc 1.2.0", "serde_derive 1.0.1", "uuid 1.29.1"]);
    }

    #[test]
    fn versions_compare_by_number() {
        assert!(rust_version("1.100") > rust_version("1.89.0"));
        assert_eq!(rust_version("1.89"), rust_version("1.89.0"));
        assert!(rust_version("1.95.0") > rust_version("1.89"));
    }

    #[test]
    fn dependency_that_requires_a_later_rust_is_found() {
        let mut client = client().unwrap();
        let features = ["http".to_owned()];
        assert_eq!(too_new(&client, &features).unwrap(), Vec::<String>::new());
        client["rust_version"] = "1.0".into();
        let problems = too_new(&client, &features).unwrap();
        assert!(problems.iter().any(|problem| problem.starts_with("http: rmcp 3.")), "{problems:?}");
    }
}

//! `cargo xtask features`: checks the MCP client with none of its features and with each of them alone.
//!
//! The tests of the workspace build the client with all features, so that code which needs another feature than it
//! names would go unnoticed.

use std::process::Command;
use std::time::Instant;

use serde_json::Value;

use crate::workspace::{as_by_hand, target_directory, workspace};

const USAGE: &str = "\
Usage: cargo xtask features [FEATURE…]

Runs Clippy on the library `belljar-mcp-client` with `none` of its features, with each feature alone, and with the
`default` ones; or with each of those that are named. Warnings are errors. The build folder is `features` within that of
the workspace.";

const PACKAGE: &str = "belljar-mcp-client";
/// The selection of no feature.
const NONE: &str = "none";

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
    let known = selections()?;
    if let Some(unknown) = named.iter().find(|name| !known.contains(name)) {
        return Err(format!("{PACKAGE} does not have the feature {unknown}; it has: {}", known.join(", ")));
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
    Ok(failed.is_empty())
}

fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    as_by_hand(&mut command);
    command
}

/// Returns the names of the client's features, and that of no feature.
fn selections() -> Result<Vec<String>, String> {
    let output = cargo()
        .args(["metadata", "--no-deps", "--format-version=1", "--locked"])
        .current_dir(workspace()?)
        .output()
        .map_err(|error| format!("failed to start cargo: {error}"))?;
    let metadata: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("cargo metadata: {error}\n{}", String::from_utf8_lossy(&output.stderr)))?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let client = packages.into_iter().find(|package| package["name"] == PACKAGE);
    let features = client.and_then(|client| client["features"].as_object()).ok_or("no package of the client")?;
    Ok([NONE.to_owned()].into_iter().chain(features.keys().cloned()).collect())
}

/// Runs Clippy with these features and no others.
fn compiles(features: &str) -> Result<bool, String> {
    let status = cargo()
        .args(["clippy", "--quiet", "--locked", "--package", PACKAGE, "--lib", "--no-default-features"])
        .args(["--features", features, "--target-dir"])
        .arg(target_directory()?.join("features"))
        .args(["--", "-D", "warnings"])
        .current_dir(workspace()?)
        .status()
        .map_err(|error| format!("failed to start cargo: {error}"))?;
    Ok(status.success())
}

//! What Cargo knows about the packages of the workspace, and those that a package links.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::workspace::{as_by_hand, cargo};

/// Returns the output of `cargo metadata` with these options.
///
/// # Errors
///
/// Fails if Cargo fails, such as for a lock file that is not up to date.
pub(crate) fn cargo_metadata(root: &Path, options: &[&str]) -> Result<Value, String> {
    let mut command = Command::new(cargo());
    as_by_hand(&mut command);
    let output = command
        .args(["metadata", "--locked", "--format-version", "1"])
        .args(options)
        .current_dir(root)
        .output()
        .map_err(|error| format!("failed to start cargo: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata failed:\n{}", String::from_utf8_lossy(&output.stderr)));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("failed to read Cargo's metadata: {error}"))
}

/// The packages that a package consists of.
pub(crate) struct LinkedPackages<'a> {
    /// The ID of the package itself.
    pub(crate) root: &'a str,
    /// The descriptions of all packages of the metadata, by their IDs.
    pub(crate) packages: BTreeMap<&'a str, &'a Value>,
    /// The packages that each package links, the root's included.
    pub(crate) edges: BTreeMap<&'a str, BTreeSet<&'a str>>,
}

impl<'a> LinkedPackages<'a> {
    /// Returns the packages that the package of this name links, directly and indirectly. Packages that only build
    /// scripts use are left out.
    ///
    /// # Errors
    ///
    /// Fails if the metadata lacks the package or a dependency.
    pub(crate) fn of(metadata: &'a Value, name: &str) -> Result<Self, String> {
        let packages = by_id(&metadata["packages"])?;
        let nodes = by_id(&metadata["resolve"]["nodes"])?;
        let root = packages.iter().find(|(_, package)| package["name"] == name).map(|(id, _)| *id);
        let root = root.ok_or_else(|| format!("Cargo's metadata lacks the package {name}"))?;
        let mut edges: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        let mut pending = vec![root];
        while let Some(id) = pending.pop() {
            if edges.contains_key(id) {
                continue;
            }
            let node = nodes.get(id).ok_or_else(|| format!("Cargo's metadata does not resolve {id}"))?;
            let dependencies = linked(node);
            pending.extend(&dependencies);
            edges.insert(id, dependencies);
        }
        Ok(Self { root, packages, edges })
    }

    /// Returns the description of a package.
    ///
    /// # Errors
    ///
    /// Fails if the metadata lacks it.
    pub(crate) fn package(&self, id: &str) -> Result<&'a Value, String> {
        self.packages.get(id).copied().ok_or_else(|| format!("Cargo's metadata does not describe {id}"))
    }
}

/// Returns the elements of a list by their IDs.
fn by_id(list: &Value) -> Result<BTreeMap<&str, &Value>, String> {
    let list = list.as_array().ok_or("Cargo's metadata has another form")?;
    Ok(list.iter().filter_map(|element| Some((element["id"].as_str()?, element))).collect())
}

/// Returns the IDs of the packages that a package links: its normal dependencies, with macros.
fn linked(node: &Value) -> BTreeSet<&str> {
    let dependencies = node["deps"].as_array().into_iter().flatten();
    let linked = dependencies.filter(|dependency| {
        let kinds = dependency["dep_kinds"].as_array().into_iter().flatten();
        kinds.into_iter().any(|kind| kind["kind"].is_null())
    });
    linked.filter_map(|dependency| dependency["pkg"].as_str()).collect()
}

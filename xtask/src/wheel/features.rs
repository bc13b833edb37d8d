//! The features with which the wheel for tests is built.
//!
//! Development dependencies of the workspace enable features of packages that the extension module uses, too. With
//! other features, Cargo would compile these packages, and all that depend on them, a second time for the wheel.
//! Therefore the extension module has a feature that enables the same ones.

use std::collections::BTreeSet;
use std::process::Command;

use super::run;
use crate::workspace::{as_by_hand, cargo, workspace};

/// The feature of the extension module.
pub(super) const WORKSPACE_TESTS: &str = "workspace-tests";
const PACKAGE: &str = "belljar-extension";

/// Checks that the wheel for tests needs no package with other features than the tests of the workspace.
pub(super) fn check() -> Result<(), String> {
    let tests = resolve(&["--workspace", "--edges", "normal,dev,no-proc-macro"])?;
    let wheel = resolve(&["--package", PACKAGE, "--features", WORKSPACE_TESTS, "--edges", "normal,no-proc-macro"])?;
    let further = only_in_wheel(&tests, &wheel)?;
    if further.is_empty() {
        return Ok(());
    }
    Err(format!(
        "the tests of the workspace enable other features of these packages than the wheel for tests, which would be \
         compiled twice; add theirs to `{WORKSPACE_TESTS}` in python/Cargo.toml:\n{}",
        further.join("\n")
    ))
}

/// Returns the packages that a build with these options consists of, each with its features.
fn resolve(options: &[&str]) -> Result<String, String> {
    let mut tree = Command::new(cargo());
    tree.args(["tree", "--locked", "--prefix", "none", "--format", "{p} [{f}]"]).args(options);
    as_by_hand(&mut tree);
    run(tree.current_dir(workspace()?))
}

/// Returns the lines of `wheel`, but that of the extension module, that `tests` does not have.
fn only_in_wheel(tests: &str, wheel: &str) -> Result<Vec<String>, String> {
    // Cargo marks a package that it has listed before.
    let lines = |tree: &str| tree.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect::<BTreeSet<_>>();
    let (tests, wheel) = (lines(tests), lines(wheel));
    let (own, others): (Vec<_>, Vec<_>) = wheel.into_iter().partition(|line| line.starts_with(PACKAGE));
    if own.is_empty() || others.is_empty() {
        return Err(format!("cargo tree does not list {PACKAGE} and its dependencies"));
    }
    Ok(others.into_iter().filter(|line| !tests.contains(line)).collect())
}

#[cfg(test)]
mod tests {
    use super::only_in_wheel;

    const WHEEL: &str =
        "belljar-extension v0.1.0 (/w/python) [workspace-tests]\ntokio v1.54.1 [rt]\nlibc v0.2.1 [std] (*)\n";

    #[test]
    fn packages_with_other_features_are_found() {
        let tests = "belljar-extension v0.1.0 (/w/python) []\ntokio v1.54.1 [rt,test-util]\nlibc v0.2.1 [std]\n";
        assert_eq!(only_in_wheel(tests, WHEEL).unwrap(), ["tokio v1.54.1 [rt]"]);
        assert_eq!(only_in_wheel(&tests.replace(",test-util", ""), WHEEL).unwrap(), [""; 0]);
    }

    #[test]
    fn output_without_the_extension_module_is_an_error() {
        assert!(only_in_wheel(WHEEL, "tokio v1.54.1 [rt]\n").is_err());
        assert!(only_in_wheel(WHEEL, "").is_err());
    }
}

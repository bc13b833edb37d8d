//! The packages of the workspace, by the systems for which they are meant.

/// The packages for Linux only: native kernels, the sandbox and worker processes.
const LINUX_ONLY: [&str; 3] = ["belljar-native", "belljar-sandbox", "belljar-worker"];

/// Returns the arguments by which Cargo selects the packages for all systems.
pub(crate) fn portable() -> impl Iterator<Item = &'static str> {
    std::iter::once("--workspace").chain(LINUX_ONLY.iter().flat_map(|package| ["--exclude", package]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::workspace;

    #[test]
    fn packages_for_linux_only_exist_and_state_it() {
        for package in LINUX_ONLY {
            let root = workspace().unwrap().join("crates").join(package).join("src/lib.rs");
            let text = std::fs::read_to_string(&root).unwrap();
            assert!(text.contains("cfg(target_os = \"linux\")"), "{package}");
        }
    }
}

//! Builds that give the same bytes on another day and in other directories: their time, and no paths of the machine.
//!
//! rustc and C compilers write the paths of source files into messages of panics and assertions. Most are below Cargo's
//! home and, for generated code, below the build folder. Cargo leaves `--remap-path-prefix` out of the hash of its
//! flags (see "Fingerprints and Metadata" in the documentation of its `fingerprint` module), which is part of each
//! symbol's name. Its profile option `trim-paths` would do the same, and is not stable yet.

use std::env::VarError;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::os::C_PREFIX_MAP;
use crate::workspace::{compiler_field, target_directory, workspace};

/// The variable with rustc's flags for Cargo, which separates them by [`SEPARATOR`], so that they can contain spaces.
const RUST_FLAGS: &str = "CARGO_ENCODED_RUSTFLAGS";
const SEPARATOR: &str = "\u{1f}";
/// The variables with the flags of the compilers of C and C++ for the crate `cc`, separated by spaces.
const C_FLAGS: [&str; 2] = ["CFLAGS", "CXXFLAGS"];

/// The beginning of paths and what is written instead.
type Prefix = (PathBuf, String);

/// The variable with the time of archives and of their files, by the specification of reproducible-builds.org.
pub(crate) const EPOCH: &str = "SOURCE_DATE_EPOCH";

/// Returns the time of a release of the workspace in seconds since 1970: the value of [`EPOCH`], or the time of the
/// last commit.
///
/// # Errors
///
/// Fails if the variable is not a number, or the workspace has no commit.
pub(crate) fn epoch(root: &Path) -> Result<u64, String> {
    epoch_or_last_commit(root, variable(EPOCH)?.as_deref())
}

fn epoch_or_last_commit(root: &Path, variable: Option<&str>) -> Result<u64, String> {
    let (text, source) = if let Some(text) = variable {
        (text.to_owned(), EPOCH)
    } else {
        let text = output(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root))
            .map_err(|error| format!("failed to read the time of the last commit; set {EPOCH}: {error}"))?;
        (text, "the time of the last commit")
    };
    text.trim().parse().map_err(|_| format!("{source} is not a number of seconds: {text:?}"))
}

/// Makes a Cargo command, or a program that calls Cargo, build without this machine's paths.
///
/// # Errors
///
/// Fails if a path is not known, or a variable with flags is not valid UTF-8.
pub(crate) fn without_paths(command: &mut Command) -> Result<(), String> {
    let prefixes = prefixes()?;
    let inherited = match (variable(RUST_FLAGS)?, variable("RUSTFLAGS")?) {
        (Some(encoded), _) => Some(encoded),
        (None, plain) => plain.map(|plain| plain.split_whitespace().collect::<Vec<_>>().join(SEPARATOR)),
    };
    command.env(RUST_FLAGS, rust_flags(inherited, &prefixes));
    if let Some(option) = C_PREFIX_MAP {
        for name in C_FLAGS {
            command.env(name, c_flags(variable(name)?, option, &prefixes));
        }
    }
    Ok(())
}

/// Returns the prefixes in the order of rustc and C compilers: of those that match, the last counts.
fn prefixes() -> Result<Vec<Prefix>, String> {
    let commit = compiler_field("commit-hash")?;
    let sysroot = output(Command::new("rustc").args(["--print", "sysroot"]))?;
    // With the component `rust-src`, rustc writes the paths of its files for those of the standard library.
    let library = Path::new(sysroot.trim()).join("lib/rustlib/src/rust");
    Ok(vec![
        (cargo_home()?, "/cargo".into()),
        (library, format!("/rustc/{commit}")),
        (workspace()?, "/belljar".into()),
        (target_directory()?, "/build".into()),
    ])
}

/// Returns the directory in which Cargo keeps the sources of packages.
fn cargo_home() -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os("CARGO_HOME") {
        return Ok(path.into());
    }
    let home = std::env::home_dir()
        .ok_or("the home directory, which contains Cargo's packages, is unknown; set CARGO_HOME")?;
    Ok(home.join(".cargo"))
}

/// Returns flags for rustc, separated for [`RUST_FLAGS`].
fn rust_flags(inherited: Option<String>, prefixes: &[Prefix]) -> String {
    let ours = prefixes.iter().map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display()));
    let inherited = inherited.filter(|flags| !flags.is_empty());
    inherited.into_iter().chain(ours).collect::<Vec<_>>().join(SEPARATOR)
}

/// Returns flags for a compiler of C. Paths with a space would be read as two flags, and are left out.
fn c_flags(inherited: Option<String>, option: &str, prefixes: &[Prefix]) -> String {
    let ours = prefixes.iter().map(|(from, to)| format!("{option}={}={to}", from.display()));
    let ours = ours.filter(|flag| !flag.contains(char::is_whitespace));
    inherited.into_iter().chain(ours).collect::<Vec<_>>().join(" ")
}

fn variable(name: &str) -> Result<Option<String>, String> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value)),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(format!("the variable {name} is not valid UTF-8")),
    }
}

fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("failed to start {:?}: {error}", command.get_program()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn examples() -> [Prefix; 2] {
        [("/home/one/.cargo".into(), "/cargo".into()), ("/home/one/my work".into(), "/build".into())]
    }

    #[test]
    fn time_is_that_of_the_variable_or_of_the_last_commit() {
        let root = workspace().unwrap();
        assert_eq!(epoch_or_last_commit(&root, Some("1700000000")).unwrap(), 1_700_000_000);
        assert!(epoch_or_last_commit(&root, Some("yesterday")).unwrap_err().contains(EPOCH));
        // A directory outside of a checkout has no last commit.
        let elsewhere = tempfile::tempdir().unwrap();
        assert!(epoch_or_last_commit(elsewhere.path(), None).unwrap_err().contains("last commit"));
    }

    #[test]
    fn flags_are_added_to_those_of_the_user() {
        let ours = "--remap-path-prefix=/home/one/.cargo=/cargo\u{1f}--remap-path-prefix=/home/one/my work=/build";
        assert_eq!(rust_flags(None, &examples()), ours);
        let theirs = "-C\u{1f}target-cpu=native".to_owned();
        assert_eq!(rust_flags(Some(theirs.clone()), &examples()), format!("{theirs}\u{1f}{ours}"));
    }

    #[test]
    fn flags_for_c_leave_out_paths_with_spaces() {
        let flags = c_flags(Some("-O1".into()), "-ffile-prefix-map", &examples());
        assert_eq!(flags, "-O1 -ffile-prefix-map=/home/one/.cargo=/cargo");
    }

    #[test]
    fn compiled_program_does_not_have_the_path_of_its_source() {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("main.rs");
        std::fs::write(&source, "fn main() { panic!(\"here\") }").unwrap();
        let flags = rust_flags(None, &[(directory.path().to_owned(), "/elsewhere".into())]);
        let program = directory.path().join("program");
        let mut rustc = Command::new("rustc");
        rustc.args(flags.split(SEPARATOR)).arg("-o").arg(&program).arg(&source).current_dir(directory.path());
        output(&mut rustc).unwrap();
        let bytes = std::fs::read(program).unwrap();
        let contains = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
        assert!(contains("/elsewhere/main.rs"));
        assert!(!contains(directory.path().to_str().unwrap()));
    }
}

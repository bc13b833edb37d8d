//! The `test` package, which Pyodide's standard library omits: Debian's, or a local one.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Debian's packages of the tests: the suite, and the standard library, which holds `test.support`.
const PACKAGES: [&str; 2] = ["libpython3.14-testsuite", "libpython3.14-stdlib"];
/// The release of Debian that has them.
const RELEASE: &str = "unstable";
/// The library's path in the packages.
const LIBRARY: &str = "usr/lib/python3.14";
/// The directory of the suite that has been fetched last, in the cache.
const CURRENT: &str = "current";
/// The file in the suite's directory that contains its description.
const DESCRIPTION: &str = "description";

/// A test suite that can be mounted.
pub(super) struct Suite {
    /// The directory of the package `test`.
    pub(super) directory: PathBuf,
    /// A human-readable description.
    pub(super) description: String,
}

/// Returns a local suite, such as the `Lib` directory of CPython's source.
pub(super) fn given(directory: &Path) -> Result<Suite, String> {
    if !directory.join("test/support").is_dir() {
        return Err(format!("{} does not contain the package test with test.support", directory.display()));
    }
    Ok(Suite { directory: directory.to_owned(), description: directory.display().to_string() })
}

/// Returns Debian's suite of CPython 3.14. It is fetched into `cache` if it is not there yet, or if `update` is set.
///
/// apt verifies the packages against the release's signed index. It runs with its own configuration and state, below
/// `cache`, so that the machine's package lists do not change. The packages are unpacked, not installed, so that no
/// script of theirs runs, and only the package `test` is kept: the rest of the standard library must be the
/// interpreter's own.
pub(super) fn from_debian(cache: &Path, update: bool) -> Result<Suite, String> {
    let current = cache.join(CURRENT);
    if update || !current.is_dir() {
        let partial = cache.join(format!("partial-{}", std::process::id()));
        let fetched = fetch(&partial).and_then(|()| replace(&current, &partial.join("suite")));
        drop(std::fs::remove_dir_all(&partial));
        fetched.map_err(|error| {
            format!(
                "{error}\nhint: elsewhere than on Debian, name a suite with --tests DIR, such as Lib of CPython 3.14"
            )
        })?;
    }
    let description = std::fs::read_to_string(current.join(DESCRIPTION)).map_err(failed("read", &current))?;
    Ok(Suite { description, ..given(&current)? })
}

/// Fetches the packages and leaves the suite in the directory `suite` of `work`.
fn fetch(work: &Path) -> Result<(), String> {
    let apt = Apt::new(work)?;
    apt.output(&["update"], work)?;
    // Lines are `'URI' FILE SIZE HASH`.
    let uris = apt.output(&[&["download", "--print-uris"], &PACKAGES[..]].concat(), work)?;
    let names: Vec<&str> = uris.lines().filter_map(|line| line.split(' ').nth(1)).collect();
    apt.output(&[&["download"], &PACKAGES[..]].concat(), work)?;
    for name in &names {
        output(Command::new("dpkg-deb").arg("--extract").arg(work.join(name)).arg(work))?;
    }
    let suite = work.join("suite");
    create(&suite)?;
    std::fs::rename(work.join(LIBRARY).join("test"), suite.join("test"))
        .map_err(failed("move the suite to", &suite))?;
    let description = names.iter().find(|name| name.starts_with(PACKAGES[0]));
    let description = description.ok_or_else(|| format!("apt-get printed no address of {}", PACKAGES[0]))?;
    let description = description.trim_end_matches("_all.deb").replace('_', " ");
    std::fs::write(suite.join(DESCRIPTION), description).map_err(failed("write to", &suite))
}

/// apt with its own configuration and state.
struct Apt {
    configuration: PathBuf,
}

impl Apt {
    /// Configures apt for [`RELEASE`], from the mirror that the machine uses for Debian.
    fn new(work: &Path) -> Result<Self, String> {
        let format = ["indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian"];
        let mirrors = output(Command::new("apt-get").args(format).arg("Label: Debian"))?;
        let mirror =
            mirrors.lines().next().ok_or("apt has no package list of Debian, or `apt-get update` has not run")?;
        for directory in ["sources", "lists/partial", "cache/archives/partial"] {
            create(&work.join(directory))?;
        }
        let sources = work.join("sources/suite.list");
        std::fs::write(&sources, format!("deb {mirror} {RELEASE} main\n")).map_err(failed("write", &sources))?;
        let configuration = work.join("apt.conf");
        let directory = work.display();
        let settings = format!(
            "Dir::Etc::sourcelist \"/dev/null\";\n\
             Dir::Etc::sourceparts \"{directory}/sources\";\n\
             Dir::State::lists \"{directory}/lists\";\n\
             Dir::Cache \"{directory}/cache\";\n\
             Acquire::Languages \"none\";\n\
             Acquire::IndexTargets::deb::DEP-11::DefaultEnabled \"false\";\n"
        );
        std::fs::write(&configuration, settings).map_err(failed("write", &configuration))?;
        Ok(Self { configuration })
    }

    /// Runs `apt-get` in a directory, and returns its standard output.
    fn output(&self, arguments: &[&str], directory: &Path) -> Result<String, String> {
        let mut command = Command::new("apt-get");
        output(command.args(arguments).env("APT_CONFIG", &self.configuration).current_dir(directory))
    }
}

/// Replaces the directory `target` by another one.
fn replace(target: &Path, by: &Path) -> Result<(), String> {
    if target.exists() {
        std::fs::remove_dir_all(target).map_err(failed("remove", target))?;
    }
    std::fs::rename(by, target).map_err(failed("create", target))
}

fn create(directory: &Path) -> Result<(), String> {
    std::fs::create_dir_all(directory).map_err(failed("create", directory))
}

fn failed(what: &str, path: &Path) -> impl FnOnce(std::io::Error) -> String {
    move |error| format!("failed to {what} {}: {error}", path.display())
}

/// Runs a command, which must succeed, and returns its standard output.
fn output(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("failed to start {name}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{name} failed: {}", String::from_utf8_lossy(&output.stderr).trim_end()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

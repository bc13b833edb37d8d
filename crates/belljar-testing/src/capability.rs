//! Capabilities of the machine, detected by trying.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::process::Command;
use std::sync::{LazyLock, Mutex};

use crate::os::{self, SandboxKind};
use crate::required::REQUIRED;

/// A feature of the machine that a test may need and that not every machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Capability {
    /// The full Linux sandbox: user namespaces and Landlock.
    NativeSandbox,
    /// The weak Linux sandbox: Landlock and seccomp filters.
    WeakSandbox,
    /// A control group hierarchy of version 2, mounted anywhere.
    ControlGroups,
    /// The tests were started by root.
    Root,
    /// A Python interpreter at `/usr/bin/python3`.
    SystemPython,
    /// The tests were not started by root, or there is a folder that all users of the machine can enter.
    SharedFolder,
    /// A processor of the architecture that the sandbox's attacks are written for.
    X86_64,
    /// `unshare` makes a network namespace.
    NetworkNamespace,
    /// `mount` mounts a tmpfs.
    TmpfsMount,
    /// Node.js, at the path in `BELLJAR_NODE` or as `node`.
    Node,
    /// npm.
    Npm,
    /// A browser that kaleido finds.
    Browser,
    /// Pyodide's CDN answers.
    PyodideCdn,
    /// `systemd-analyze`, which checks units.
    SystemdAnalyze,
    /// Docker or Podman, which can fetch images and run containers.
    ContainerBuilder,
    /// The variable `BELLJAR_LARGE_DOWNLOADS` is set: hundreds of megabytes may be downloaded.
    LargeDownloads,
    /// groff with its macros for manual pages.
    Groff,
    /// The server programs of PostgreSQL, `initdb` and `postgres`, and for root the user `postgres`.
    Postgresql,
    /// The server program of MariaDB, and the one that creates its files.
    Mariadb,
    /// The server program of Redis, with TLS.
    Redis,
    /// The server program of etcd.
    Etcd,
    /// HAProxy.
    Haproxy,
}

/// Programs that kaleido finds, in `/usr/bin`.
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// A small file that stays on Pyodide's CDN.
const CDN_FILE: &str = "https://cdn.jsdelivr.net/pyodide/v0.28.0/full/package.json";

/// The variable that permits tests to download hundreds of megabytes.
const LARGE_DOWNLOADS: &str = "BELLJAR_LARGE_DOWNLOADS";

impl Capability {
    /// All capabilities.
    pub const ALL: [Self; 22] = [
        Self::NativeSandbox,
        Self::WeakSandbox,
        Self::ControlGroups,
        Self::Root,
        Self::SystemPython,
        Self::SharedFolder,
        Self::X86_64,
        Self::NetworkNamespace,
        Self::TmpfsMount,
        Self::Node,
        Self::Npm,
        Self::Browser,
        Self::PyodideCdn,
        Self::SystemdAnalyze,
        Self::ContainerBuilder,
        Self::LargeDownloads,
        Self::Groff,
        Self::Postgresql,
        Self::Mariadb,
        Self::Redis,
        Self::Etcd,
        Self::Haproxy,
    ];

    /// Returns the name that `BELLJAR_REQUIRE` uses.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NativeSandbox => "native-sandbox",
            Self::WeakSandbox => "weak-sandbox",
            Self::ControlGroups => "control-groups",
            Self::Root => "root",
            Self::SystemPython => "system-python",
            Self::SharedFolder => "shared-folder",
            Self::X86_64 => "x86-64",
            Self::NetworkNamespace => "network-namespace",
            Self::TmpfsMount => "tmpfs-mount",
            Self::Node => "node",
            Self::Npm => "npm",
            Self::Browser => "browser",
            Self::PyodideCdn => "pyodide-cdn",
            Self::SystemdAnalyze => "systemd-analyze",
            Self::ContainerBuilder => "container-builder",
            Self::LargeDownloads => "large-downloads",
            Self::Groff => "groff",
            Self::Postgresql => "postgresql",
            Self::Mariadb => "mariadb",
            Self::Redis => "redis",
            Self::Etcd => "etcd",
            Self::Haproxy => "haproxy",
        }
    }

    /// Returns the reason if this machine lacks the capability. Each capability is tried once in a process.
    ///
    /// The sandboxes can be tried only by a program that begins with [`main`](crate::main) or [`run`](crate::run), or
    /// that calls `belljar_sandbox::run_fork_server_if_child` first.
    #[must_use]
    pub fn missing(self) -> Option<String> {
        static TRIED: LazyLock<Mutex<BTreeMap<Capability, Option<String>>>> = LazyLock::new(Mutex::default);
        TRIED.lock().unwrap().entry(self).or_insert_with(|| self.attempt().err()).clone()
    }

    /// Returns whether `BELLJAR_REQUIRE` names the capability.
    #[must_use]
    pub fn is_required(self) -> bool {
        REQUIRED.contains(self)
    }

    fn attempt(self) -> Result<(), String> {
        match self {
            // Not `missing`, whose lock is held.
            Self::NativeSandbox => os::try_sandbox(SandboxKind::Full, Self::Root.attempt().is_ok()),
            Self::WeakSandbox => os::try_sandbox(SandboxKind::Weak, Self::Root.attempt().is_ok()),
            Self::ControlGroups => os::try_control_groups(),
            Self::Root => {
                let user = succeeds(Command::new("id").arg("-u"))?;
                condition(user.trim() == "0", "the tests were not started by root")
            }
            Self::SharedFolder if Self::Root.attempt().is_err() => Ok(()),
            Self::SharedFolder => os::shared_folder::shared_folder("belljar-native-tests").map(drop),
            Self::SystemPython => succeeds(Command::new("/usr/bin/python3").arg("--version")).map(drop),
            Self::X86_64 => condition(std::env::consts::ARCH == "x86_64", "the processor is not an x86-64"),
            Self::NetworkNamespace => succeeds(Command::new("unshare").args(["-rn", "true"])).map(drop),
            Self::TmpfsMount => mount_tmpfs(),
            Self::Node => succeeds(Command::new(node()).arg("--version")).map(drop),
            Self::Npm => succeeds(Command::new("npm").arg("--version")).map(drop),
            Self::Browser => {
                let exists = BROWSERS.iter().any(|name| Path::new("/usr/bin").join(name).exists());
                condition(exists, &format!("/usr/bin has none of {}", BROWSERS.join(", ")))
            }
            Self::PyodideCdn => {
                let options = ["--silent", "--show-error", "--fail", "--head", "--max-time", "20"];
                succeeds(Command::new("curl").args(options).arg(CDN_FILE)).map(drop)
            }
            Self::SystemdAnalyze => succeeds(Command::new("systemd-analyze").arg("--version")).map(drop),
            Self::ContainerBuilder => container_program().map(drop),
            Self::LargeDownloads => {
                let is_set = std::env::var_os(LARGE_DOWNLOADS).is_some_and(|value| !value.is_empty());
                condition(is_set, &format!("{LARGE_DOWNLOADS} is not set"))
            }
            Self::Groff => succeeds(Command::new("groff").args(["-man", "-Tutf8", "/dev/null"])).map(drop),
            Self::Postgresql => {
                if Self::Root.attempt().is_ok() {
                    succeeds(Command::new("runuser").args(["-u", "postgres", "--", "postgres", "--version"]))?;
                }
                succeeds(Command::new("initdb").arg("--version")).map(drop)
            }
            Self::Mariadb => {
                succeeds(Command::new("mariadbd").arg("--version"))?;
                let exists = std::env::var_os("PATH").is_some_and(|path| {
                    std::env::split_paths(&path).any(|folder| folder.join("mariadb-install-db").exists())
                });
                condition(exists, "mariadb-install-db is not on the PATH")
            }
            Self::Redis => succeeds(Command::new("redis-server").arg("--version")).map(drop),
            Self::Etcd => succeeds(Command::new("etcd").arg("--version")).map(drop),
            Self::Haproxy => succeeds(Command::new("haproxy").arg("-v")).map(drop),
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// Fails the test if this machine lacks the capability. This is for tests under libtest's harness, which cannot be
/// ignored at run time; other tests are a [`trial`](crate::trial).
///
/// # Panics
///
/// Panics if the capability is missing.
#[track_caller]
pub fn require(capability: Capability) {
    if let Some(reason) = capability.missing() {
        panic!("this test needs {capability}: {reason}");
    }
}

/// Returns the program that [`Capability::Node`] tries: the one that `BELLJAR_NODE` names, or `node`.
#[must_use]
pub fn node() -> String {
    std::env::var("BELLJAR_NODE").unwrap_or_else(|_| "node".to_owned())
}

/// Returns the program that [`Capability::ContainerBuilder`] tries: the first of `docker` and `podman` that can run a
/// container.
///
/// # Errors
/// Returns the reasons why neither can.
pub fn container_program() -> Result<&'static str, String> {
    let mut reasons = Vec::new();
    for program in ["docker", "podman"] {
        match succeeds(Command::new(program).args(["run", "--rm", "debian:bookworm-slim", "true"])) {
            Ok(_) => return Ok(program),
            Err(reason) => reasons.push(reason),
        }
    }
    Err(reasons.join("; "))
}

fn condition(holds: bool, otherwise: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise.to_owned()) }
}

/// Runs a program and returns its standard output.
fn succeeds(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("failed to start {program}: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("{program}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()))
    }
}

fn mount_tmpfs() -> Result<(), String> {
    let directory = tempfile::tempdir().map_err(|error| format!("failed to create a directory: {error}"))?;
    succeeds(Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(directory.path()))?;
    succeeds(Command::new("umount").arg(directory.path())).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_all_is_complete() {
        let mut names: Vec<&str> = Capability::ALL.iter().map(|capability| capability.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Capability::ALL.len());
        // The last variant: `ALL` has as many elements as there are variants.
        assert_eq!(Capability::Haproxy as usize + 1, Capability::ALL.len());
    }

    #[test]
    fn a_program_that_fails_or_is_absent_gives_a_reason() {
        let absent = succeeds(&mut Command::new("/nonexistent/program")).unwrap_err();
        assert!(absent.starts_with("failed to start /nonexistent/program: "), "{absent}");
        let failed = succeeds(Command::new("sh").args(["-c", "echo reason >&2; exit 3"])).unwrap_err();
        assert!(failed.contains("exit status: 3: reason"), "{failed}");
        assert_eq!(succeeds(Command::new("sh").args(["-c", "echo yes"])).unwrap(), "yes\n");
    }
}

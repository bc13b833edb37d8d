//! Runs uv, or the environment's pip, on the host, to install packages for sessions. Only wheels are installed, nothing
//! is built, and no Python process on the host has a session's packages on its path.

use std::error::Error;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use belljar_core::kernel::CellObserver;
use belljar_core::progress::ProgressStep;
use belljar_core::{InstallRecord, InstallStatistics, Progress};

use crate::linux::installer_failure::InstallerFailure;
use crate::linux::pip_requirement::{PipRequirement, RequirementError};
use crate::linux::site_packages::SitePackages;

/// The number of bytes of each of an installer's output streams that are kept.
const MAX_OUTPUT: u64 = 1 << 20;
/// The interval at which the disk space that an installer has taken is measured.
const DISK_CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// The interval at which a running installer is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// The disk space that a running installer may take, as a multiple of the limit of its packages: downloaded archives
/// and their unpacked files exist at the same time.
const STAGING_FACTOR: u64 = 2;
/// Decides whether the package of a normalized name may be installed. The error is the reason why not.
pub type PackagePolicy = dyn Fn(&str) -> Result<(), Box<dyn Error + Send + Sync>> + Send + Sync;

/// The reason why packages were not installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// Sessions may not install packages.
    #[error("packages cannot be installed in this session")]
    Disabled,
    /// The guest's request did not arrive completely and in time.
    #[error("failed to read the request: {0}")]
    ReadRequest(#[source] std::io::Error),
    /// The guest's request is not valid JSON of the expected form.
    #[error("failed to parse the request: {0}")]
    ParseRequest(#[source] serde_json::Error),
    /// A requirement is not accepted.
    #[error(transparent)]
    Requirement(#[from] RequirementError),
    /// The [`PackagePolicy`] refuses a package.
    #[error("{0}")]
    Policy(#[source] Box<dyn Error + Send + Sync>),
    /// The session's packages would exceed their limit of disk space.
    #[error("the session's packages would take more than {limit_bytes} bytes")]
    TooLarge {
        /// The limit, [`NativeOptions::package_bytes`](crate::NativeOptions::package_bytes).
        limit_bytes: u64,
    },
    /// The installation took longer than this, [`NativePackages::timeout`](crate::NativePackages::timeout).
    #[error("the installation took longer than {} s", .0.as_secs_f64())]
    Timeout(Duration),
    /// The installation was cancelled.
    #[error("the installation was cancelled")]
    Cancelled,
    /// The installer could not be run.
    #[error("failed to run {program}: {error}")]
    Run {
        /// The path of uv or Python.
        program: String,
        /// The error of the system.
        error: std::io::Error,
    },
    /// The installer failed.
    #[error(transparent)]
    Installer(#[from] InstallerFailure),
    /// The session's packages could not be written.
    #[error("failed to write the session's packages: {0}")]
    File(#[from] std::io::Error),
}

/// The packages of an installation with their dependencies, pinned to their versions.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct InstalledPackages(Vec<PipRequirement>);

impl InstalledPackages {
    /// Adds the packages of another installation.
    pub(crate) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Returns the versions of the packages that `named` names, and the number of the others; `None` without any:
    /// `humanize 4.9.0 and 2 dependencies`.
    pub(crate) fn summary(&self, named: &[String]) -> Option<String> {
        let (mut asked, mut dependencies) = (Vec::new(), 0);
        for package in &self.0 {
            if named.iter().any(|name| name == package.name()) {
                asked.push(package.text().replacen("==", " ", 1));
            } else {
                dependencies += 1;
            }
        }
        let others = match dependencies {
            0 => None,
            1 => Some("1 dependency".to_owned()),
            count => Some(format!("{count} dependencies")),
        };
        let asked = (!asked.is_empty()).then(|| asked.join(", "));
        let parts: Vec<String> = asked.into_iter().chain(others).collect();
        (!parts.is_empty()).then(|| parts.join(" and "))
    }
}

/// Reports an installation of the packages `asked`, which began at `begin`, to the observer of the code, unless it has
/// changed nothing.
pub(crate) fn report(
    installed: &Result<InstalledPackages, InstallError>,
    asked: &[String],
    begin: Instant,
    observer: &dyn CellObserver,
) {
    match installed {
        Ok(InstalledPackages(packages)) if packages.is_empty() => {}
        Ok(InstalledPackages(packages)) => {
            let packages: Vec<String> = packages.iter().map(|package| package.text().replacen("==", " ", 1)).collect();
            observer.on_install(&InstallRecord::succeeded(packages.join(", "), begin));
        }
        Err(error) => observer.on_install(&InstallRecord::failed(asked.join(", "), error, begin)),
    }
}

impl std::fmt::Display for InstalledPackages {
    /// Writes pip's message.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() {
            return formatter.write_str("Requirement already satisfied");
        }
        let names: Vec<&str> = self.0.iter().map(PipRequirement::text).collect();
        write!(formatter, "Successfully installed {}", names.join(" "))
    }
}

/// An installer of packages for sessions.
#[derive(Clone)]
pub(crate) struct PipInstaller {
    /// The environment's Python.
    pub(crate) python: PathBuf,
    /// The path of uv; `None` for the environment's pip.
    pub(crate) uv: Option<PathBuf>,
    pub(crate) policy: Option<Arc<PackagePolicy>>,
    /// The limit of the size of all packages of one session, in bytes.
    pub(crate) max_bytes: u64,
    /// The time limit of one installation.
    pub(crate) timeout: Duration,
    /// The installations of all sessions.
    pub(crate) statistics: InstallStatistics,
}

impl PipInstaller {
    /// Installs packages and their dependencies, except those that the environment already has. Returns the message
    /// that pip would print. The installation ends when `is_cancelled` returns `true`.
    ///
    /// # Errors
    /// See [`InstallError`].
    pub(crate) fn install(
        &self,
        requirements: &[PipRequirement],
        site: &SitePackages,
        progress: &dyn Progress,
        is_cancelled: &dyn Fn() -> bool,
        deadline: Instant,
    ) -> Result<InstalledPackages, InstallError> {
        let begin = Instant::now();
        let installed = self.install_missing(requirements, site, progress, is_cancelled, deadline);
        let changes_nothing = installed.as_ref().is_ok_and(|packages| packages.0.is_empty());
        if !changes_nothing {
            self.statistics.record(begin, installed.is_ok());
        }
        installed
    }

    fn install_missing(
        &self,
        requirements: &[PipRequirement],
        site: &SitePackages,
        progress: &dyn Progress,
        is_cancelled: &dyn Fn() -> bool,
        deadline: Instant,
    ) -> Result<InstalledPackages, InstallError> {
        let names: Vec<&str> = requirements.iter().map(PipRequirement::text).collect();
        let step = progress.start(ProgressStep::indeterminate(format!("installing {}", names.join(" "))));
        self.check_policy(requirements.iter().map(PipRequirement::name))?;
        site.clean_staging();
        let job = Job { installer: self, site, is_cancelled, deadline };
        let missing = self.resolve(requirements, &job)?;
        if missing.is_empty() {
            step.finish();
            return Ok(InstalledPackages::default());
        }
        self.check_policy(missing.iter().map(PipRequirement::name))?;
        let mut command = match &self.uv {
            Some(uv) => {
                let mut command = Command::new(uv);
                // Copies, since through hard links to uv's cache one session could change the packages of others.
                command.args(["pip", "install", "--no-config", "--link-mode", "copy", "--no-build", "--no-deps"]);
                command.arg("--python").arg(&self.python);
                command
            }
            None => {
                let mut command = self.pip();
                command.args([
                    "install",
                    "--quiet",
                    "--only-binary",
                    ":all:",
                    "--no-deps",
                    "--no-compile",
                    "--upgrade",
                ]);
                command
            }
        };
        command.arg("--target").arg(site.directory()).arg("--").args(missing.iter().map(PipRequirement::text));
        site.transaction(|| {
            job.run(&mut command)?;
            if site.bytes() > self.max_bytes {
                Err(InstallError::TooLarge { limit_bytes: self.max_bytes })
            } else {
                Ok(())
            }
        })?;
        step.finish();
        Ok(InstalledPackages(missing))
    }

    /// Resolves the packages to install, each with its version.
    fn resolve(&self, requirements: &[PipRequirement], job: &Job<'_>) -> Result<Vec<PipRequirement>, InstallError> {
        let texts = requirements.iter().map(PipRequirement::text);
        let output = match &self.uv {
            Some(uv) => {
                let mut command = Command::new(uv);
                command
                    .args(["pip", "install", "--no-config", "--no-build", "--dry-run", "--python"])
                    .arg(&self.python);
                job.run(command.arg("--").args(texts))?
            }
            None => {
                let mut command = self.pip();
                command.args(["install", "--only-binary", ":all:", "--dry-run"]);
                job.run(command.arg("--").args(texts))?
            }
        };
        let pinned: Vec<String> = if self.uv.is_some() {
            output.lines().filter_map(|line| line.trim().strip_prefix("+ ")).map(str::to_owned).collect()
        } else {
            let planned = output.lines().find_map(|line| line.trim().strip_prefix("Would install "));
            planned.unwrap_or_default().split_whitespace().filter_map(pin).collect()
        };
        Ok(pinned.iter().map(|text| PipRequirement::parse(text)).collect::<Result<_, _>>()?)
    }

    fn check_policy<'a>(&self, mut names: impl Iterator<Item = &'a str>) -> Result<(), InstallError> {
        let Some(policy) = &self.policy else { return Ok(()) };
        names.try_for_each(|name| policy(name)).map_err(InstallError::Policy)
    }

    fn pip(&self) -> Command {
        let mut command = Command::new(&self.python);
        // `-I`: neither the working directory nor environment variables add to the module search path.
        command.args(["-I", "-m", "pip", "--disable-pip-version-check", "--no-input", "--no-color"]);
        command
    }
}

/// Returns `name==version` for pip's `name-version`.
fn pin(text: &str) -> Option<String> {
    text.rsplit_once('-').map(|(name, version)| format!("{name}=={version}"))
}

/// One installation and its limits.
struct Job<'a> {
    installer: &'a PipInstaller,
    site: &'a SitePackages,
    is_cancelled: &'a dyn Fn() -> bool,
    deadline: Instant,
}

impl Job<'_> {
    /// Runs an installer until it exits, and kills it when it exceeds a limit or the job is cancelled. Returns its
    /// output.
    fn run(&self, command: &mut Command) -> Result<String, InstallError> {
        use std::os::unix::process::CommandExt as _;
        let program = command.get_program().display().to_string();
        let failed = |error| InstallError::Run { program: program.clone(), error };
        let mut child = command
            .current_dir(self.site.directory())
            .env("TMPDIR", self.site.staging())
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let stdout = spawn_reader(child.stdout.take());
        let stderr = spawn_reader(child.stderr.take());
        let mut checked_at = Instant::now();
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break Ok(status),
                Ok(None) => {}
                Err(error) => break Err(failed(error)),
            }
            if (self.is_cancelled)() {
                break Err(InstallError::Cancelled);
            }
            let PipInstaller { timeout, max_bytes, .. } = *self.installer;
            if Instant::now() > self.deadline {
                break Err(InstallError::Timeout(timeout));
            }
            if checked_at.elapsed() > DISK_CHECK_INTERVAL {
                if self.site.bytes_with_staging() > max_bytes.saturating_mul(STAGING_FACTOR) {
                    break Err(InstallError::TooLarge { limit_bytes: max_bytes });
                }
                checked_at = Instant::now();
            }
            std::thread::sleep(POLL_INTERVAL);
        };
        if status.is_err() {
            if let Some(group) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
                let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            }
            let _ = child.wait();
        }
        let join = |reader: JoinHandle<String>| reader.join().unwrap_or_default();
        let (stdout, stderr) = (join(stdout), join(stderr));
        if status?.success() {
            return Ok(format!("{stdout}\n{stderr}"));
        }
        Err(InstallerFailure::parse(&stdout, &stderr).into())
    }
}

/// Reads the beginning of a stream on a thread of its own, and discards the rest.
fn spawn_reader(stream: Option<impl std::io::Read + Send + 'static>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            let _ = stream.by_ref().take(MAX_OUTPUT).read_to_end(&mut bytes);
            // Without a reader the installer would block.
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_counts_dependencies() {
        let packages =
            |texts: &[&str]| InstalledPackages(texts.iter().map(|text| PipRequirement::parse(text).unwrap()).collect());
        let named = ["rich".to_owned(), "humanize".to_owned()];
        assert_eq!(packages(&[]).summary(&named), None);
        assert_eq!(packages(&["rich==14.0", "humanize==4.9"]).summary(&named).unwrap(), "rich 14.0, humanize 4.9");
        let with_dependencies = packages(&["mdurl==1", "rich==14.0", "pygments==2"]);
        assert_eq!(with_dependencies.summary(&named).unwrap(), "rich 14.0 and 2 dependencies");
        assert_eq!(packages(&["mdurl==1"]).summary(&named).unwrap(), "1 dependency");
    }

    #[test]
    fn output_of_installers_is_parsed() {
        assert_eq!(pin("typing-extensions-4.1.0").unwrap(), "typing-extensions==4.1.0");
    }
}

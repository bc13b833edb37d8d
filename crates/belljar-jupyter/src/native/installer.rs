//! Who installs packages for sessions: uv, or the environment's pip, on the host. Wheels alone are taken, nothing is built,
//! and no Python of ours ever has the session's packages on its path.

use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use belljar_core::progress::{Progress, Step};

use crate::native::requirement::Requirement;
use crate::native::site::Site;

/// Bytes of an installer's words that are read.
const WORDS: u64 = 1 << 20;
/// How often it is looked after what an installer has written.
const LOOK: Duration = Duration::from_millis(250);
/// How much more than its packages an installer may take while it is at work: for archives, and what is unpacked of them.
const AT_WORK: u64 = 2;

/// Says of a package, by its normalised name, why it is not to be installed.
pub type PackagePolicy = dyn Fn(&str) -> Result<(), String> + Send + Sync;

/// Who installs.
#[derive(Clone)]
pub(crate) struct Installer {
    /// The environment's Python.
    pub(crate) python: PathBuf,
    /// uv, where there is one; else the environment's pip does it.
    pub(crate) uv: Option<PathBuf>,
    pub(crate) policy: Option<Arc<PackagePolicy>>,
    /// Bytes of all packages that one session installs.
    pub(crate) most_bytes: u64,
    /// How long an installation may take.
    pub(crate) timeout: Duration,
}

impl Installer {
    /// Installs these and what they need, as far as the environment does not have it; answers what to say.
    ///
    /// # Errors
    /// In words, when they cannot be had, are not allowed or too large, or `given_up` says that nobody waits any more.
    pub(crate) fn install(
        &self,
        requirements: &[Requirement],
        site: &Site,
        progress: &dyn Progress,
        given_up: &dyn Fn() -> bool,
    ) -> Result<String, String> {
        let names: Vec<&str> = requirements.iter().map(Requirement::text).collect();
        let step = progress.start(Step::unmeasured(format!("installing {}", names.join(" "))));
        let until = Instant::now() + self.timeout;
        self.admit(requirements.iter().map(Requirement::name))?;
        site.tidy();
        let job = Job { installer: self, site, given_up, until };
        let missing = self.resolve(requirements, &job)?;
        if missing.is_empty() {
            step.finish();
            return Ok("Requirement already satisfied".into());
        }
        self.admit(missing.iter().map(Requirement::name))?;
        let mut command = match &self.uv {
            Some(uv) => {
                let mut command = Command::new(uv);
                // Links to uv's cache would let one session change what others get.
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
        command.arg("--target").arg(site.folder()).arg("--").args(missing.iter().map(Requirement::text));
        site.change(|| {
            job.run(&mut command)?;
            if site.bytes() > self.most_bytes { Err(too_large(self.most_bytes)) } else { Ok(()) }
        })?;
        step.finish();
        let names: Vec<&str> = missing.iter().map(Requirement::text).collect();
        Ok(format!("Successfully installed {}", names.join(" ")))
    }

    /// What is to be installed, each with its version.
    fn resolve(&self, requirements: &[Requirement], job: &Job<'_>) -> Result<Vec<Requirement>, String> {
        let texts = requirements.iter().map(Requirement::text);
        let said = match &self.uv {
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
        let named: Vec<String> = if self.uv.is_some() {
            said.lines().filter_map(|line| line.trim().strip_prefix("+ ")).map(str::to_owned).collect()
        } else {
            let would = said.lines().find_map(|line| line.trim().strip_prefix("Would install "));
            would.unwrap_or_default().split_whitespace().filter_map(pinned).collect()
        };
        named.iter().map(|text| Requirement::parse(text)).collect()
    }

    fn admit<'a>(&self, mut names: impl Iterator<Item = &'a str>) -> Result<(), String> {
        names.try_for_each(|name| self.policy.as_ref().map_or(Ok(()), |policy| policy(name)))
    }

    fn pip(&self) -> Command {
        let mut command = Command::new(&self.python);
        // `-I`: neither the working directory nor any variable adds to its path.
        command.args(["-I", "-m", "pip", "--disable-pip-version-check", "--no-input", "--no-color"]);
        command
    }
}

/// `name==version` of pip's `name-version`.
fn pinned(text: &str) -> Option<String> {
    text.rsplit_once('-').map(|(name, version)| format!("{name}=={version}"))
}

fn too_large(most_bytes: u64) -> String {
    format!(
        "the session's packages would take more than {most_bytes} bytes: what is large belongs into the environment \
         (`belljar native setup --packages …`)"
    )
}

/// What is done for one request, within its bounds.
struct Job<'a> {
    installer: &'a Installer,
    site: &'a Site,
    given_up: &'a dyn Fn() -> bool,
    until: Instant,
}

impl Job<'_> {
    /// Runs an installer to its end, unless it exceeds a bound or is given up; answers what it said.
    fn run(&self, command: &mut Command) -> Result<String, String> {
        use std::os::unix::process::CommandExt as _;
        let name = command.get_program().display().to_string();
        let mut child = command
            .current_dir(self.site.folder())
            .env("TMPDIR", self.site.incoming())
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{name}: {error}"))?;
        let out = listen(child.stdout.take());
        let err = listen(child.stderr.take());
        let mut looked = Instant::now();
        let ended = loop {
            match child.try_wait() {
                Ok(Some(status)) => break Ok(status),
                Ok(None) => {}
                Err(error) => break Err(error.to_string()),
            }
            if (self.given_up)() {
                break Err("the installation was given up".into());
            }
            let Installer { timeout, most_bytes, .. } = self.installer;
            if Instant::now() > self.until {
                let seconds = timeout.as_secs_f64();
                break Err(format!("the installation took longer than {seconds} s (--install-timeout)"));
            }
            if looked.elapsed() > LOOK {
                if self.site.bytes_at_work() > most_bytes.saturating_mul(AT_WORK) {
                    break Err(too_large(*most_bytes));
                }
                looked = Instant::now();
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        if ended.is_err() {
            if let Some(group) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
                let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            }
            let _ = child.wait();
        }
        let words = |thread: JoinHandle<String>| thread.join().unwrap_or_default();
        let (out, err) = (words(out), words(err));
        if ended?.success() {
            return Ok(format!("{out}\n{err}"));
        }
        Err(reason(&err).unwrap_or_else(|| format!("{name} failed")))
    }
}

/// Reads what is said, beside all else.
fn listen(stream: Option<impl std::io::Read + Send + 'static>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut said = Vec::new();
        if let Some(mut stream) = stream {
            let _ = stream.by_ref().take(WORDS).read_to_end(&mut said);
            // Or it would wait for us.
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        }
        String::from_utf8_lossy(&said).into_owned()
    })
}

/// What an installer says went wrong: its errors without their labels, or its last line.
fn reason(said: &str) -> Option<String> {
    let errors: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("ERROR: ")).collect();
    if !errors.is_empty() {
        return Some(errors.join("\n"));
    }
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let lines = &lines[lines.len().saturating_sub(10)..];
    (!lines.is_empty()).then(|| lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_installers_say_is_read() {
        assert_eq!(pinned("typing-extensions-4.1.0").unwrap(), "typing-extensions==4.1.0");
        assert_eq!(reason("x\nERROR: a\nERROR: b\n").unwrap(), "a\nb");
        assert_eq!(reason("\n  × no solution\n").unwrap(), "× no solution");
        assert_eq!(reason(""), None);
    }
}

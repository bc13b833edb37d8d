//! Packages for a session: its pip asks over a socket, and the host resolves and installs, since the sandbox has no
//! network. What the guest says are names and versions (`requirement`). Nothing that it names is built or run here:
//! wheels alone are taken, and no Python of ours ever has the session's packages on its path.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use belljar_core::kernel::Audience;
use belljar_core::progress::Step;
use serde::Deserialize;
use serde_json::json;

use crate::native::requirement::Requirement;
use crate::native::site::Site;

/// Bytes of a request.
const REQUEST: u64 = 64 << 10;
/// How long a guest may take to put its request, which it writes at once.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long an installation may take.
const LONGEST: Duration = Duration::from_secs(600);
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
}

impl Installer {
    /// Installs these and what they need, as far as the environment does not have it; answers what to say.
    fn install(&self, requirements: &[Requirement], site: &Site, given_up: &AtomicBool) -> Result<String, String> {
        self.admit(requirements.iter().map(Requirement::name))?;
        site.tidy();
        let work = Work { site, given_up, most_bytes: self.most_bytes.saturating_mul(AT_WORK), begun: Instant::now() };
        let missing = self.resolve(requirements, &work)?;
        if missing.is_empty() {
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
            work.run(&mut command)?;
            if site.bytes() > self.most_bytes { Err(too_large(self.most_bytes)) } else { Ok(()) }
        })?;
        let names: Vec<&str> = missing.iter().map(Requirement::text).collect();
        Ok(format!("Successfully installed {}", names.join(" ")))
    }

    /// What is to be installed, each with its version.
    fn resolve(&self, requirements: &[Requirement], work: &Work<'_>) -> Result<Vec<Requirement>, String> {
        let texts = requirements.iter().map(Requirement::text);
        let said = match &self.uv {
            Some(uv) => {
                let mut command = Command::new(uv);
                command
                    .args(["pip", "install", "--no-config", "--no-build", "--dry-run", "--python"])
                    .arg(&self.python);
                work.run(command.arg("--").args(texts))?
            }
            None => {
                let mut command = self.pip();
                command.args(["install", "--only-binary", ":all:", "--dry-run"]);
                work.run(command.arg("--").args(texts))?
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
struct Work<'a> {
    site: &'a Site,
    given_up: &'a AtomicBool,
    /// Bytes that may be taken while it is done.
    most_bytes: u64,
    begun: Instant,
}

impl Work<'_> {
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
            if self.begun.elapsed() > LONGEST || self.given_up.load(Ordering::Acquire) {
                break Err("the installation took too long, or was given up".into());
            }
            if looked.elapsed() > LOOK {
                if self.site.bytes_at_work() > self.most_bytes {
                    break Err(too_large(self.most_bytes / AT_WORK));
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

/// Where a session's pip asks. It is served while a cell runs, and one request at a time.
pub(crate) struct Broker {
    listener: UnixListener,
    site: Site,
    installer: Option<Installer>,
    work: Option<JoinHandle<()>>,
    given_up: Arc<AtomicBool>,
}

impl Broker {
    /// Listens on a new socket in a folder that the guest cannot write to. Without an installer everything is refused.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub(crate) fn new(socket: &Path, site: Site, installer: Option<Installer>) -> std::io::Result<Self> {
        let listener = UnixListener::bind(socket)?;
        listener.set_nonblocking(true)?;
        // The folder decides who comes here, and it is shown to one sandbox.
        std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o666))?;
        Ok(Self { listener, site, installer, work: None, given_up: Arc::default() })
    }

    /// What to wait for until [`serve`](Self::serve) has something to do.
    pub(crate) fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.work.is_none().then(|| self.listener.as_fd())
    }

    /// Whether a request is being served.
    pub(crate) fn is_busy(&self) -> bool {
        self.work.is_some()
    }

    /// Begins to serve a request, if there is one and none is being served.
    pub(crate) fn serve(&mut self, audience: &Arc<dyn Audience>) {
        if let Some(work) = self.work.take_if(|work| work.is_finished())
            && work.join().is_err()
        {
            tracing::error!("an installation failed by a fault of Belljar");
        }
        if self.work.is_some() {
            return;
        }
        let Ok((stream, _)) = self.listener.accept() else { return };
        self.given_up = Arc::default();
        let (site, installer, given_up) = (self.site.clone(), self.installer.clone(), self.given_up.clone());
        let audience = audience.clone();
        let served = std::thread::Builder::new().name("pip".into()).spawn(move || {
            let answer = match serve(&stream, installer.as_ref(), &site, &*audience, &given_up) {
                Ok(said) => json!({ "said": said }),
                Err(reason) => json!({ "error": reason }),
            };
            // Whoever asked may be gone.
            let _ = (&stream).write_all(format!("{answer}\n").as_bytes());
        });
        self.work = served.ok();
    }

    /// Ends what is being done.
    pub(crate) fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.give_up();
        if let Some(work) = self.work.take() {
            // It writes below folders that are about to be deleted.
            let _ = work.join();
        }
    }
}

fn serve(
    stream: &UnixStream,
    installer: Option<&Installer>,
    site: &Site,
    audience: &dyn Audience,
    given_up: &AtomicBool,
) -> Result<String, String> {
    #[derive(Deserialize)]
    struct Request {
        install: Vec<String>,
    }
    let failed = |_| "the request did not come".to_owned();
    stream.set_nonblocking(false).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
    let mut line = Vec::new();
    BufReader::new(stream.take(REQUEST)).read_until(b'\n', &mut line).map_err(failed)?;
    let request: Request = serde_json::from_slice(&line).map_err(|_| "the request cannot be read".to_owned())?;
    let requirements = Requirement::parse_all(&request.install)?;
    let installer = installer.ok_or("packages cannot be installed in this session")?;
    let names: Vec<&str> = requirements.iter().map(Requirement::text).collect();
    let step = audience.start(Step::unmeasured(format!("installing {}", names.join(" "))));
    let said = installer.install(&requirements, site, given_up)?;
    step.finish();
    Ok(said)
}

#[cfg(test)]
mod tests {
    use belljar_core::kernel::Silent;

    use super::*;

    fn ask(request: &[u8], policy: Option<Arc<PackagePolicy>>) -> String {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("pip");
        // Nothing that is asked here comes as far as that.
        let installer = Installer { python: "/nonexistent/python".into(), uv: None, policy, most_bytes: 0 };
        let here = || place.path().to_owned();
        let mut broker = Broker::new(&socket, Site::new(here(), here(), here()), Some(installer)).unwrap();
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.write_all(request).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let audience: Arc<dyn Audience> = Arc::new(Silent);
        broker.serve(&audience);
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn what_is_no_request_for_packages_is_refused() {
        for request in [&b""[..], b"\n", b"not json\n", b"{}\n", b"{\"install\": 1}\n", &[b'x'; 1 << 20]] {
            let request = &request[..request.len().min(60 << 10)];
            assert!(ask(request, None).contains("error"));
        }
        let answer = ask(b"{\"install\": [\"https://example.org/x.whl\"]}\n", None);
        assert!(answer.contains("is no requirement"), "{answer}");
    }

    #[test]
    fn a_policy_has_the_last_word() {
        let policy: Arc<PackagePolicy> =
            Arc::new(|name| if name == "left-pad" { Err(format!("{name} is not allowed")) } else { Ok(()) });
        let answer = ask(b"{\"install\": [\"Left_Pad>=1\"]}\n", Some(policy));
        assert_eq!(answer, "{\"error\":\"left-pad is not allowed\"}\n");
    }

    #[test]
    fn what_installers_say_is_read() {
        assert_eq!(pinned("typing-extensions-4.1.0").unwrap(), "typing-extensions==4.1.0");
        assert_eq!(reason("x\nERROR: a\nERROR: b\n").unwrap(), "a\nb");
        assert_eq!(reason("\n  × no solution\n").unwrap(), "× no solution");
        assert_eq!(reason(""), None);
    }
}

//! Packages for a session: its pip asks over a socket, and the host resolves and installs, since the sandbox has no
//! network. What the guest says are names and versions (`requirement`). Nothing that it names is built or run here:
//! wheels alone are taken, and no Python of ours ever has the session's packages on its path.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use belljar_core::kernel::Audience;
use belljar_core::progress::Progress;
use serde::Deserialize;
use serde_json::json;

use crate::native::installer::Installer;
use crate::native::requirement::Requirement;
use crate::native::site::Site;

/// Bytes of a request.
const REQUEST: usize = 64 << 10;
/// How long a guest may take to put its request, which it writes at once.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where a session's pip asks. It is served while a cell runs, and one request at a time.
pub(crate) struct Broker {
    listener: UnixListener,
    site: Site,
    installer: Option<Installer>,
    work: Option<Work>,
    /// What all work took that is done.
    spent: Duration,
    given_up: Arc<AtomicBool>,
}

/// A request that is being served.
struct Work {
    thread: JoinHandle<()>,
    /// Since when it is known what is asked for.
    since: Arc<OnceLock<Instant>>,
}

impl Work {
    fn spent(&self) -> Duration {
        self.since.get().map_or(Duration::ZERO, Instant::elapsed)
    }
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
        Ok(Self { listener, site, installer, work: None, spent: Duration::ZERO, given_up: Arc::default() })
    }

    /// What to wait for until [`serve`](Self::serve) has something to do.
    pub(crate) fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.work.is_none().then(|| self.listener.as_fd())
    }

    /// Whether a request is being served.
    pub(crate) fn is_busy(&self) -> bool {
        self.work.is_some()
    }

    /// How long requests have been served for, all in all.
    pub(crate) fn spent(&self) -> Duration {
        self.spent + self.work.as_ref().map_or(Duration::ZERO, Work::spent)
    }

    /// How long one installation may take.
    pub(crate) fn timeout(&self) -> Duration {
        self.installer.as_ref().map_or(Duration::ZERO, |installer| installer.timeout)
    }

    /// Begins to serve a request, if there is one and none is being served.
    pub(crate) fn serve(&mut self, audience: &Arc<dyn Audience>) {
        if let Some(work) = self.work.take_if(|work| work.thread.is_finished()) {
            self.spent += work.spent();
            if work.thread.join().is_err() {
                tracing::error!("an installation failed by a fault of Belljar");
            }
        }
        if self.work.is_some() {
            return;
        }
        let Ok((stream, _)) = self.listener.accept() else { return };
        self.given_up = Arc::default();
        let (site, installer, given_up) = (self.site.clone(), self.installer.clone(), self.given_up.clone());
        let audience = audience.clone();
        let since: Arc<OnceLock<Instant>> = Arc::default();
        let begun = since.clone();
        let served = std::thread::Builder::new().name("pip".into()).spawn(move || {
            let answer = match serve(&stream, installer.as_ref(), &site, &*audience, &given_up, &begun) {
                Ok(said) => json!({ "said": said }),
                Err(reason) => json!({ "error": reason }),
            };
            // Whoever asked may be gone.
            let _ = (&stream).write_all(format!("{answer}\n").as_bytes());
        });
        self.work = served.ok().map(|thread| Work { thread, since });
    }

    /// Installs what the host itself wants in this session, unless `given_up` says that nobody does any more.
    ///
    /// # Errors
    /// In words, when it cannot be had or is not allowed.
    pub(crate) fn install(
        &self,
        packages: &[String],
        progress: &dyn Progress,
        given_up: &dyn Fn() -> bool,
    ) -> Result<(), String> {
        let requirements = Requirement::parse_all(packages)?;
        installer(self.installer.as_ref())?.install(&requirements, &self.site, progress, given_up).map(drop)
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
            let _ = work.thread.join();
        }
    }
}

fn serve(
    stream: &UnixStream,
    who: Option<&Installer>,
    site: &Site,
    audience: &dyn Audience,
    given_up: &AtomicBool,
    begun: &OnceLock<Instant>,
) -> Result<String, String> {
    #[derive(Deserialize)]
    struct Request {
        install: Vec<String>,
    }
    let line = read_line(stream).map_err(|_| "the request did not come".to_owned())?;
    let _ = begun.set(Instant::now());
    let request: Request = serde_json::from_slice(&line).map_err(|_| "the request cannot be read".to_owned())?;
    let requirements = Requirement::parse_all(&request.install)?;
    installer(who)?.install(&requirements, site, audience, &|| given_up.load(Ordering::Acquire))
}

/// A line, which must come as a whole before long: the guest's cells wait for no clock meanwhile.
fn read_line(mut stream: &UnixStream) -> std::io::Result<Vec<u8>> {
    let until = Instant::now() + PATIENCE;
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let (mut line, mut bytes) = (Vec::new(), [0; 4096]);
    while line.last() != Some(&b'\n') && line.len() < REQUEST {
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut bytes) {
            Ok(0) => break,
            Ok(read) => line.extend_from_slice(&bytes[..read]),
            // A signal to this process, which says nothing of the guest.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if Instant::now() > until {
            return Err(ErrorKind::TimedOut.into());
        }
    }
    Ok(line)
}

fn installer(installer: Option<&Installer>) -> Result<&Installer, String> {
    installer.ok_or_else(|| "packages cannot be installed in this session".into())
}

#[cfg(test)]
mod tests {
    use belljar_core::kernel::Silent;

    use super::*;
    use crate::native::installer::PackagePolicy;

    fn ask(request: &[u8], policy: Option<Arc<PackagePolicy>>) -> String {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("pip");
        // Nothing that is asked here comes as far as that.
        let (python, timeout) = ("/nonexistent/python".into(), Duration::from_secs(10));
        let installer = Installer { python, uv: None, policy, most_bytes: 0, timeout };
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
    fn a_request_that_comes_byte_by_byte_is_not_waited_for() {
        let (mut theirs, ours) = UnixStream::pair().unwrap();
        let slow = std::thread::spawn(move || {
            // Until nobody reads any more.
            while theirs.write_all(b" ").is_ok() {
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let begun = Instant::now();
        // The system's word for it is the other one.
        let why = read_line(&ours).unwrap_err().kind();
        assert!(matches!(why, ErrorKind::TimedOut | ErrorKind::WouldBlock), "{why}");
        assert!(begun.elapsed() < 5 * PATIENCE, "it took {:?}", begun.elapsed());
        drop(ours);
        slow.join().unwrap();
    }

    #[test]
    fn a_policy_has_the_last_word() {
        let policy: Arc<PackagePolicy> =
            Arc::new(|name| if name == "left-pad" { Err(format!("{name} is not allowed")) } else { Ok(()) });
        let answer = ask(b"{\"install\": [\"Left_Pad>=1\"]}\n", Some(policy));
        assert_eq!(answer, "{\"error\":\"left-pad is not allowed\"}\n");
    }
}

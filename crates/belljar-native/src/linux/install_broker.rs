//! Serves the install requests of a session's pip. The sandbox does not have a network, so the guest sends names and
//! versions (`pip_requirement`) over a unix socket, and the host resolves and installs them (`pip_installer`).

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use belljar_core::Progress;
use belljar_core::kernel::CellObserver;
use serde::Deserialize;
use serde_json::json;

use crate::linux::pip_installer::{self, InstallError, InstalledPackages, PipInstaller};
use crate::linux::pip_requirement::PipRequirement;
use crate::linux::site_packages::SitePackages;

/// The size of a request at most, in bytes.
const MAX_REQUEST: usize = 64 << 10;
/// The time within which a guest must send its request, which pip writes at once.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns the advice that follows an error in the guest's output.
pub type InstallHint = dyn Fn(&InstallError) -> Option<String> + Send + Sync;

/// The server of a session's install requests. It serves them while a cell runs, one at a time.
pub(crate) struct InstallBroker {
    listener: UnixListener,
    site: SitePackages,
    installer: Option<PipInstaller>,
    hint: Option<Arc<InstallHint>>,
    job: Option<InstallJob>,
    /// The time that finished jobs took.
    finished_time: Duration,
    is_cancelled: Arc<AtomicBool>,
}

/// A request that is being served.
struct InstallJob {
    thread: JoinHandle<()>,
    /// The time at which the request was received completely.
    received_at: Arc<OnceLock<Instant>>,
}

impl InstallJob {
    fn elapsed(&self) -> Duration {
        self.received_at.get().map_or(Duration::ZERO, Instant::elapsed)
    }
}

impl InstallBroker {
    /// Listens on a new socket in a directory that the guest cannot write to. Without an installer every request is
    /// refused. `hint` completes the errors that the guest prints.
    ///
    /// # Errors
    /// Returns an error if the socket cannot be created.
    pub(crate) fn new(
        socket: &Path,
        site: SitePackages,
        installer: Option<PipInstaller>,
        hint: Option<Arc<InstallHint>>,
    ) -> std::io::Result<Self> {
        let listener = UnixListener::bind(socket)?;
        listener.set_nonblocking(true)?;
        // Every user may connect: the directory is shown to one sandbox alone.
        std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o666))?;
        Ok(Self {
            listener,
            site,
            installer,
            hint,
            job: None,
            finished_time: Duration::ZERO,
            is_cancelled: Arc::default(),
        })
    }

    /// Returns the descriptor that becomes readable when [`serve`](Self::serve) has a request to accept; `None` while a
    /// request is being served.
    pub(crate) fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.job.is_none().then(|| self.listener.as_fd())
    }

    /// Returns whether a request is being served.
    pub(crate) fn is_busy(&self) -> bool {
        self.job.is_some()
    }

    /// Returns the time that all requests together have taken.
    pub(crate) fn elapsed(&self) -> Duration {
        self.finished_time + self.job.as_ref().map_or(Duration::ZERO, InstallJob::elapsed)
    }

    /// Returns the time limit of one installation.
    pub(crate) fn timeout(&self) -> Duration {
        self.installer.as_ref().map_or(Duration::ZERO, |installer| installer.timeout)
    }

    /// Starts to serve a request on a thread of its own, if one has arrived and no other is being served.
    pub(crate) fn serve(&mut self, audience: &Arc<dyn CellObserver>) {
        if let Some(job) = self.job.take_if(|job| job.thread.is_finished()) {
            self.finished_time += job.elapsed();
            if job.thread.join().is_err() {
                tracing::error!("internal error: an installation panicked");
            }
        }
        if self.job.is_some() {
            return;
        }
        let Ok((stream, _)) = self.listener.accept() else { return };
        self.is_cancelled = Arc::default();
        let (site, installer, hint) = (self.site.clone(), self.installer.clone(), self.hint.clone());
        let is_cancelled = self.is_cancelled.clone();
        let audience = audience.clone();
        let received_at: Arc<OnceLock<Instant>> = Arc::default();
        let job_received_at = received_at.clone();
        let spawned = std::thread::Builder::new().name("pip".into()).spawn(move || {
            let result = serve(&stream, installer.as_ref(), &site, &*audience, &is_cancelled, &job_received_at);
            let reply = match result {
                Ok(message) => json!({ "message": message }),
                Err(error) => {
                    let hint = hint.and_then(|hint| hint(&error));
                    json!({ "error": error.to_string(), "hint": hint })
                }
            };
            // Write errors are ignored: the guest may have closed its end.
            let _ = (&stream).write_all(format!("{reply}\n").as_bytes());
        });
        self.job = spawned.ok().map(|thread| InstallJob { thread, received_at });
    }

    /// Installs packages that the host itself requests for this session, until `is_cancelled` returns `true` or
    /// `deadline`.
    ///
    /// # Errors
    /// See [`InstallError`].
    pub(crate) fn install(
        &self,
        packages: &[String],
        progress: &dyn Progress,
        is_cancelled: &dyn Fn() -> bool,
        deadline: Instant,
    ) -> Result<InstalledPackages, InstallError> {
        let requirements = PipRequirement::parse_all(packages)?;
        let installer = self.installer.as_ref().ok_or(InstallError::Disabled)?;
        installer.install(&requirements, &self.site, progress, is_cancelled, deadline)
    }

    /// Cancels the installation that is being served.
    pub(crate) fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Release);
    }
}

impl Drop for InstallBroker {
    fn drop(&mut self) {
        self.cancel();
        if let Some(job) = self.job.take() {
            // Waits, since the job writes below directories that are about to be deleted.
            let _ = job.thread.join();
        }
    }
}

fn serve(
    stream: &UnixStream,
    installer: Option<&PipInstaller>,
    site: &SitePackages,
    audience: &dyn CellObserver,
    is_cancelled: &AtomicBool,
    received_at: &OnceLock<Instant>,
) -> Result<String, InstallError> {
    #[derive(Deserialize)]
    struct Request {
        install: Vec<String>,
    }
    let line = read_line(stream).map_err(InstallError::ReadRequest)?;
    let _ = received_at.set(Instant::now());
    let request: Request = serde_json::from_slice(&line).map_err(InstallError::ParseRequest)?;
    let begin = Instant::now();
    let install = || {
        let requirements = PipRequirement::parse_all(&request.install)?;
        let installer = installer.ok_or(InstallError::Disabled)?;
        let is_cancelled = || is_cancelled.load(Ordering::Acquire);
        installer.install(&requirements, site, audience, &is_cancelled, begin + installer.timeout)
    };
    let installed = install();
    pip_installer::report(&installed, &request.install, begin, audience);
    Ok(installed?.to_string())
}

/// Reads a line, which must arrive within [`REQUEST_TIMEOUT`]: the time until then counts towards the cell's time
/// limit.
fn read_line(mut stream: &UnixStream) -> std::io::Result<Vec<u8>> {
    let deadline = Instant::now() + REQUEST_TIMEOUT;
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(REQUEST_TIMEOUT))?;
    let (mut line, mut bytes) = (Vec::new(), [0; 4096]);
    while line.last() != Some(&b'\n') && line.len() < MAX_REQUEST {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut bytes) {
            Ok(0) => break,
            Ok(read) => line.extend_from_slice(&bytes[..read]),
            // A signal to this process, which is not the guest's fault.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if Instant::now() > deadline {
            return Err(ErrorKind::TimedOut.into());
        }
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Receiver;

    use belljar_core::kernel::{InputError, InputReply, NullObserver};
    use belljar_core::progress::{NoProgress, ProgressStep, StepProgress};
    use belljar_core::{InstallRecord, InstallStatistics, Stream};
    use parking_lot::Mutex;

    use super::*;
    use crate::linux::pip_installer::PackagePolicy;

    /// Keeps the records of installations.
    #[derive(Default)]
    struct Installs(Mutex<Vec<InstallRecord>>);

    impl Progress for Installs {
        fn start(&self, step: ProgressStep) -> Box<dyn StepProgress> {
            NoProgress.start(step)
        }
    }

    impl CellObserver for Installs {
        fn on_stream(&self, _: Stream, _: &[u8]) {}

        fn on_install(&self, record: &InstallRecord) {
            self.0.lock().push(record.clone());
        }

        fn request_input(&self, _: &str, _: bool) -> Result<Receiver<InputReply>, InputError> {
            Err(InputError::Unavailable)
        }
    }

    /// Returns the broker's reply to a request.
    fn reply_to(request: &[u8], policy: Option<Arc<PackagePolicy>>) -> String {
        observed_reply_to(request, policy, Arc::new(NullObserver))
    }

    /// Does the same for code with this observer.
    fn observed_reply_to(
        request: &[u8],
        policy: Option<Arc<PackagePolicy>>,
        audience: Arc<dyn CellObserver>,
    ) -> String {
        let root = tempfile::tempdir().unwrap();
        let socket = root.path().join("pip");
        // The requests of these tests are refused before Python would be run.
        let (python, timeout) = ("/nonexistent/python".into(), Duration::from_secs(10));
        let installer =
            PipInstaller { python, uv: None, policy, max_bytes: 0, timeout, statistics: InstallStatistics::default() };
        let path = || root.path().to_owned();
        let site = SitePackages::new(path(), path(), path());
        let hint: Arc<InstallHint> =
            Arc::new(|error| matches!(error, InstallError::Policy(_)).then(|| "choose another package".to_owned()));
        let mut broker = InstallBroker::new(&socket, site, Some(installer), Some(hint)).unwrap();
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.write_all(request).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        broker.serve(&audience);
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    }

    #[test]
    fn invalid_requests_are_refused() {
        for request in [&b""[..], b"\n", b"not json\n", b"{}\n", b"{\"install\": 1}\n", &[b'x'; 1 << 20]] {
            let request = &request[..request.len().min(60 << 10)];
            assert!(reply_to(request, None).contains("error"));
        }
        let reply = reply_to(b"{\"install\": [\"https://example.org/x.whl\"]}\n", None);
        assert!(reply.contains("is not a requirement"), "{reply}");
    }

    #[test]
    fn request_sent_byte_by_byte_times_out() {
        let (mut guest, host) = UnixStream::pair().unwrap();
        let slow = std::thread::spawn(move || {
            // Until the host closes its end.
            while guest.write_all(b" ").is_ok() {
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let started = Instant::now();
        // The timeout of the socket is reported as `WouldBlock`.
        let kind = read_line(&host).unwrap_err().kind();
        assert!(matches!(kind, ErrorKind::TimedOut | ErrorKind::WouldBlock), "{kind}");
        assert!(started.elapsed() < 15 * REQUEST_TIMEOUT, "it took {:?}", started.elapsed());
        drop(host);
        slow.join().unwrap();
    }

    #[test]
    fn policy_refuses_with_a_hint() {
        let policy: Arc<PackagePolicy> =
            Arc::new(|name| if name == "left-pad" { Err(format!("{name} is not allowed").into()) } else { Ok(()) });
        let installs: Arc<Installs> = Arc::default();
        let reply = observed_reply_to(b"{\"install\": [\"Left_Pad>=1\"]}\n", Some(policy), installs.clone());
        assert_eq!(reply, "{\"error\":\"left-pad is not allowed\",\"hint\":\"choose another package\"}\n");
        let records = installs.0.lock();
        assert_eq!((records.len(), &*records[0].packages), (1, "Left_Pad>=1"));
        assert_eq!(records[0].error.as_deref(), Some("left-pad is not allowed"));
    }
}

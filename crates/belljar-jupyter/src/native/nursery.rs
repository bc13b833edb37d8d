//! The process that kernels are forked from (`guest/belljar_kernel/nursery.py`), and those kernels' processes.

use std::collections::BTreeMap;
use std::io::{Error, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::poll::PollFlags;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::native::sandbox::{Channel, Ended, Sandbox, zygote_command};
use crate::native::wire::peer::wait_for;

/// How long a kernel that has ended may take to be buried.
const BURIAL: Duration = Duration::from_millis(500);
/// Bytes of what Python says when it does not start.
const COMPLAINT: u64 = 4 << 10;

/// What a kernel is to be: read by `guest/belljar_kernel/kernel.py`. Paths are those inside of its sandbox.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Plan {
    /// All its environment variables.
    pub(crate) environment: BTreeMap<String, String>,
    /// Where it works.
    pub(crate) directory: String,
    /// Where the nursery's own code is.
    pub(crate) code: String,
    /// Where packages are installed for it.
    pub(crate) site: String,
    /// Where it makes its sockets.
    pub(crate) sockets: String,
    /// Where a list of fonts is that matplotlib need not make anew.
    pub(crate) fonts: String,
    /// Whether tracebacks have colours.
    pub(crate) color: bool,
    /// Whether it has a network, of its own.
    pub(crate) network: bool,
    /// What ipykernel calls a connection file.
    pub(crate) connection: Value,
}

/// What a nursery is started with.
pub(crate) struct Cradle {
    /// The environment's Python.
    pub(crate) python: PathBuf,
    /// The guest's code, on the host.
    pub(crate) code: PathBuf,
    /// Modules that are imported beforehand; those that cannot be had are left out.
    pub(crate) modules: Vec<String>,
    /// Where matplotlib keeps its list of fonts.
    pub(crate) fonts: PathBuf,
}

/// The process. It ends with this, and its kernels with it.
pub(crate) struct Nursery {
    control: Channel,
    child: Mutex<Child>,
    /// Signals go there.
    process: OwnedFd,
    python: PathBuf,
    prefixes: Vec<PathBuf>,
    /// Until when its imports are waited for; `None` once they are done.
    importing: Mutex<Option<Instant>>,
}

/// The first that it says.
#[derive(Deserialize)]
struct Begun {
    prefixes: Vec<PathBuf>,
}

/// What it says when its imports are done.
#[derive(Deserialize)]
struct Ready {}

#[derive(Deserialize)]
struct Born {
    process: Option<i32>,
    error: Option<String>,
}

#[derive(Deserialize)]
struct Told {
    ended: i32,
}

impl Nursery {
    /// Starts one. Its imports go on beside: [`Self::ready`] waits for them, until then at most.
    ///
    /// # Errors
    /// In words, when Python does not start.
    pub(crate) fn start(cradle: Cradle, until: Instant) -> Result<Self, String> {
        let failed = |what: &str, error: Error| format!("{what}: {error}");
        let (control, theirs) = Channel::pair().map_err(|error| failed("a socket", error))?;
        let child = zygote_command(&cradle.python)
            .map_err(|error| error.to_string())?
            .arg("-I")
            .arg(cradle.code.join("begin.py"))
            .args(&cradle.modules)
            .env_clear()
            .env("LANG", "C.UTF-8")
            .env("PATH", "/usr/bin:/bin")
            .env("MPLCONFIGDIR", &cradle.fonts)
            .env("MPLBACKEND", "module://matplotlib_inline.backend_inline")
            // More threads than one would not survive the fork.
            .envs(["OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"].map(|name| (name, "1")))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .current_dir("/")
            .stdin(theirs.into_descriptor())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| failed(&cradle.python.display().to_string(), error))?;
        let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
        let process = process.map_err(|error| failed("watching Python", error.into()))?;
        let (child, python) = (Mutex::new(child), cradle.python);
        let mut nursery =
            Self { control, child, process, python, prefixes: Vec::new(), importing: Mutex::new(Some(until)) };
        nursery.prefixes = nursery.hear::<Begun>(until)?.prefixes;
        Ok(nursery)
    }

    /// Waits until it has imported what it is to.
    ///
    /// # Errors
    /// In words, when the environment lacks ipykernel.
    pub(crate) fn ready(&self) -> Result<(), String> {
        let mut importing = lock(&self.importing);
        if let Some(until) = *importing {
            let Ready {} = self.hear(until)?;
            *importing = None;
            // From now on kernels have it, and write where nobody reads.
            drop(lock(&self.child).stderr.take());
        }
        Ok(())
    }

    /// Ends it, while somebody else waits for its imports.
    pub(crate) fn give_up(&self) {
        // Whoever waits buries it.
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
    }

    /// What it says next; it is ended if that is nothing.
    fn hear<T: DeserializeOwned>(&self, until: Instant) -> Result<T, String> {
        let mut child = lock(&self.child);
        match receive::<T>(&self.control, until) {
            Ok(Some((said, _))) => Ok(said),
            Ok(None) => Err(complaint(&mut child, &self.python)),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(format!("{} did not become ready: {error}", self.python.display()))
            }
        }
    }

    /// Folders that Python and its packages are in.
    pub(crate) fn prefixes(&self) -> &[PathBuf] {
        &self.prefixes
    }

    /// Whether it is there.
    pub(crate) fn is_alive(&self) -> bool {
        matches!(lock(&self.child).try_wait(), Ok(None))
    }

    /// Has a kernel forked that nothing holds.
    ///
    /// # Errors
    /// In words, when there is none.
    pub(crate) fn bear(&self, plan: &Plan, until: Instant) -> Result<Process, String> {
        #[derive(Serialize)]
        struct Order<'a> {
            plan: &'a Plan,
        }
        self.ready()?;
        let (teller, theirs) = Channel::pair().map_err(unborn)?;
        self.send(b'b', &Order { plan }, &[theirs.as_fd()]).map_err(unborn)?;
        // When the nursery dies now, this is closed.
        drop(theirs);
        match receive::<Born>(&teller, until).map_err(unborn)? {
            Some((Born { process: Some(number), .. }, mut descriptors)) => {
                let number = Pid::from_raw(number).ok_or("the nursery named no process")?;
                let process = descriptors.pop().ok_or("the nursery passed no process")?;
                Ok(Process::new(process, Some(number), Teller::Nursery(teller)))
            }
            Some((Born { error: Some(reason), .. }, _)) => Err(format!("the kernel did not start: {reason}")),
            _ => Err("the process that kernels are forked from has ended".into()),
        }
    }

    /// Has a kernel forked that enters a sandbox.
    ///
    /// # Errors
    /// In words, when there is none.
    pub(crate) fn enter(&self, plan: &Plan, sandbox: &Sandbox, until: Instant) -> Result<Process, String> {
        #[derive(Serialize)]
        struct Order<'a> {
            plan: &'a Plan,
            entry: &'a RawValue,
        }
        #[derive(Serialize)]
        struct Watch {
            number: i32,
        }
        self.ready()?;
        let (entry, arrival) = sandbox.entry([None, None, None]).map_err(|error| error.to_string())?;
        let steps: &RawValue = serde_json::from_str(&entry.plan).map_err(|error| unborn(error.into()))?;
        let descriptors: Vec<BorrowedFd<'_>> = entry.descriptors.iter().map(AsFd::as_fd).collect();
        self.send(b'e', &Order { plan, entry: steps }, &descriptors).map_err(unborn)?;
        drop(descriptors);
        // When the process ends before it has entered, its end of the socket is the last one.
        drop(entry.descriptors);
        let patience = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let entered = arrival.wait(patience).map_err(|error| error.to_string())?;
        let (teller, theirs) = Channel::pair().map_err(unborn)?;
        self.send(b'w', &Watch { number: entered.process }, &[theirs.as_fd()]).map_err(unborn)?;
        Ok(Process::new(entered.descriptor, None, Teller::Nursery(teller)))
    }

    /// Orders something: `what` is the word for it.
    fn send(&self, what: u8, order: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> std::io::Result<()> {
        let mut text = vec![what];
        serde_json::to_writer(&mut text, order)?;
        self.control.send_text(&text, descriptors)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn unborn(error: Error) -> String {
    format!("the kernel's process cannot be had: {error}")
}

impl Drop for Nursery {
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = rustix::net::shutdown(&self.control, rustix::net::Shutdown::Both);
        // It kills its kernels and ends; on a busy machine, a little later.
        let late = Instant::now() + Duration::from_secs(2);
        while matches!(child.try_wait(), Ok(None)) {
            if Instant::now() > late {
                let _ = child.kill();
                let _ = child.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A kernel's process.
pub(crate) struct Process {
    /// Signals go there: numbers are used again, this is not.
    process: OwnedFd,
    /// The group that it leads, if no sandbox ends what it has started.
    group: Option<Pid>,
    teller: Teller,
}

/// Who knows how a process ended.
pub(crate) enum Teller {
    Nursery(Channel),
    /// The sandbox that was made for it, and that ends with it.
    Sandbox(Box<Mutex<Sandbox>>),
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    /// By itself.
    Exited(i32),
    /// By this signal.
    Signalled(i32),
    /// It took too much memory.
    OverMemory,
    /// Nobody knows.
    Unknown,
}

impl Process {
    pub(crate) fn new(process: OwnedFd, group: Option<Pid>, teller: Teller) -> Self {
        Self { process, group, teller }
    }

    /// Becomes readable when it has ended.
    pub(crate) fn death(&self) -> BorrowedFd<'_> {
        self.process.as_fd()
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.ends_before(Instant::now())
    }

    /// Waits for its end; `false` if that does not come in time.
    pub(crate) fn ends_before(&self, until: Instant) -> bool {
        wait_for(&[(self.death(), PollFlags::POLLIN)], until).is_ok_and(|ready| ready[0])
    }

    /// Sends `SIGINT`, which Python raises as `KeyboardInterrupt` even while a C function runs.
    pub(crate) fn interrupt(&self) {
        let _ = pidfd_send_signal(&self.process, Signal::INT);
    }

    /// Ends it, and what it has started.
    pub(crate) fn kill(&self) {
        if let Some(group) = self.group.filter(|_| !self.has_ended()) {
            // It bears its number as long as it has not been buried.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
    }

    /// How it ended; to be asked when it has.
    pub(crate) fn status(&self) -> Status {
        let teller = match &self.teller {
            Teller::Nursery(teller) => teller,
            Teller::Sandbox(sandbox) => {
                let mut sandbox = sandbox.lock().unwrap_or_else(PoisonError::into_inner);
                return match sandbox.wait() {
                    Ok(Ended::Exited(status)) => Status::Exited(status),
                    Ok(Ended::Signalled(signal)) => Status::Signalled(signal),
                    Ok(Ended::OverMemory) => Status::OverMemory,
                    Ok(Ended::Killed) | Err(_) => Status::Unknown,
                };
            }
        };
        match receive::<Told>(teller, Instant::now() + BURIAL) {
            Ok(Some((Told { ended }, _))) if ended < 0 => Status::Signalled(-ended),
            Ok(Some((Told { ended }, _))) => Status::Exited(ended),
            _ => Status::Unknown,
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What Python said before it ended.
fn complaint(child: &mut Child, python: &Path) -> String {
    let mut said = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        let _ = stderr.take(COMPLAINT).read_to_end(&mut said);
    }
    let _ = child.kill();
    let _ = child.wait();
    let said = String::from_utf8_lossy(&said);
    let last = said.trim().lines().next_back().unwrap_or("it said nothing").to_owned();
    let hint = if said.contains("ModuleNotFoundError") {
        ": the environment needs ipykernel; `belljar native setup` makes one that has it"
    } else {
        ""
    };
    format!("{} cannot be a kernel: {last}{hint}", python.display())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The next message; `None` if the other end is closed.
fn receive<T: DeserializeOwned>(channel: &Channel, until: Instant) -> std::io::Result<Option<(T, Vec<OwnedFd>)>> {
    if !wait_for(&[(channel.as_fd(), PollFlags::POLLIN)], until)?[0] {
        return Err(Error::from(std::io::ErrorKind::TimedOut));
    }
    channel.receive(false)
}

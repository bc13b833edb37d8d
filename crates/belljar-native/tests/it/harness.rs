//! The environment of the tests, with the packages of data analysis, and backends and sessions in it.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use belljar_core::kernel::{Backend as _, CellObserver, CellRequest, InputError, InputReply, Kernel};
use belljar_core::mime::MimeBundle;
use belljar_core::progress::{ProgressStep, StepProgress};
use belljar_core::{
    CellResult, CellStatus, ConnectionRecord, ExitReason, Limits, NoProgress, Output, Progress, Stream,
};
use belljar_native::{NativeBackend, NativeOptions};
use belljar_sandbox::Policy;
use belljar_testing::shared_folder::{SYSTEM_PYTHON, shared_folder};
use belljar_testing::{Capability, Trial, install};

const PACKAGES: &[&str] =
    &["ipykernel", "numpy", "pandas", "matplotlib", "seaborn", "plotly", "kaleido", "sympy", "nbformat"];

/// The variable that names an existing environment, for developers who run the tests often.
const VARIABLE: &str = "BELLJAR_TEST_VENV";

/// The environment's Python.
pub(crate) static PYTHON: LazyLock<PathBuf> = LazyLock::new(|| match std::env::var_os(VARIABLE) {
    Some(given) => Path::new(&given).join("bin/python"),
    None => {
        let (python, folder) = environments();
        install::pip_with(python, &folder, "native", PACKAGES).join("python")
    }
});

/// Returns the Python of another environment, with these packages.
pub(crate) fn python_with(name: &str, packages: &[&str]) -> PathBuf {
    let (python, folder) = environments();
    install::pip_with(python, &folder, name, packages).join("python")
}

/// Returns the Python and the folder of environments. If root runs the tests, weak kernels run as another user, who
/// must reach both.
fn environments() -> (&'static str, PathBuf) {
    if rustix::process::geteuid().is_root()
        && let Ok(folder) = shared_folder("belljar-native-tests")
    {
        return (SYSTEM_PYTHON, folder);
    }
    ("python3", Path::new(env!("CARGO_TARGET_TMPDIR")).join("belljar-native"))
}

/// Returns the limits of the tests' sessions.
pub(crate) fn limits() -> Limits {
    Limits { memory: 1 << 30, output: 1 << 20, disk: 64 << 20, ..Limits::default() }
}

/// Returns options with this policy, and without prestarted kernels.
pub(crate) fn options(policy: Policy) -> NativeOptions {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("belljar-native-cache");
    NativeOptions { limits: limits(), policy, prestart: 0, cache: Some(cache), ..NativeOptions::new(&*PYTHON) }
}

/// The backends that tests share, by policy.
static SHARED: Mutex<Vec<(Policy, NativeBackend)>> = Mutex::new(Vec::new());

/// Returns a backend that all tests with this policy share, with its imports done.
fn shared(policy: Policy) -> NativeBackend {
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, native)) = shared.iter().find(|(other, _)| *other == policy) {
        return native.clone();
    }
    let native = NativeBackend::new(options(policy)).unwrap();
    native.warm_up().unwrap();
    shared.push((policy, native.clone()));
    native
}

/// Drops the shared backends, and with them their processes and folders. Statics are not dropped at exit.
pub(crate) fn end() {
    SHARED.lock().unwrap().clear();
}

/// Returns a test for each policy but the weak one, which refuses connections to the host.
pub(crate) fn in_each_but_weak(name: &'static str, test: fn(&mut Session)) -> Vec<Trial> {
    in_policies(&[Policy::Full, Policy::Unsandboxed], name, &[], test)
}

/// Returns a test for each policy.
pub(crate) fn in_each(name: &'static str, test: fn(&mut Session)) -> Vec<Trial> {
    in_policies(&[Policy::Full, Policy::Weak, Policy::Unsandboxed], name, &[], test)
}

/// Returns a test for each of these policies, which needs the policy's sandbox and these capabilities.
pub(crate) fn in_policies(
    policies: &[Policy],
    name: &'static str,
    needs: &[Capability],
    test: fn(&mut Session),
) -> Vec<Trial> {
    let trial = |&policy: &Policy| {
        let mut needs = needs.to_vec();
        match policy {
            Policy::Full => needs.push(Capability::NativeSandbox),
            Policy::Weak => needs.extend([Capability::WeakSandbox, Capability::SharedFolder]),
            Policy::Unsandboxed => {}
        }
        belljar_testing::trial(format!("{name} ({policy})"), &needs, move || test(&mut Session::new(&shared(policy))))
    };
    policies.iter().map(trial).collect()
}

/// Returns the strongest policy of this machine, for a test of its own options.
pub(crate) fn strongest() -> Policy {
    if Capability::NativeSandbox.missing().is_none() { Policy::Full } else { Policy::Unsandboxed }
}

/// A session's kernel and the observer of its cells.
pub(crate) struct Session {
    pub(crate) kernel: Box<dyn Kernel>,
    pub(crate) listener: Arc<Listener>,
}

impl Session {
    pub(crate) fn new(native: &NativeBackend) -> Self {
        Self { kernel: native.start(None, &NoProgress).unwrap(), listener: Arc::default() }
    }

    /// Calls `action` on another thread once a cell has written something.
    pub(crate) fn after_first_output(&self, action: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
        let listener = self.listener.clone();
        std::thread::spawn(move || {
            let started = Instant::now();
            while listener.written.lock().unwrap().is_empty() && started.elapsed() < Duration::from_secs(60) {
                std::thread::sleep(Duration::from_millis(5));
            }
            action();
        })
    }

    pub(crate) fn run(&mut self, code: &str) -> CellResult {
        self.run_within(code, Some(Duration::from_secs(300)))
    }

    pub(crate) fn run_within(&mut self, code: &str, timeout: Option<Duration>) -> CellResult {
        self.kernel
            .execute(&CellRequest { code: code.into(), timeout, ..CellRequest::default() }, self.listener.clone())
    }

    /// Runs a cell that must succeed. Returns all its text.
    #[track_caller]
    pub(crate) fn text(&mut self, code: &str) -> String {
        let executed = self.run(code);
        assert_eq!(executed.status, CellStatus::Ok, "{code}: {executed:?}");
        text_of(&executed)
    }

    /// Runs a cell that must succeed. Returns the objects that it displays.
    #[track_caller]
    pub(crate) fn shown(&mut self, code: &str) -> Vec<MimeBundle> {
        let executed = self.run(code);
        assert_eq!(executed.status, CellStatus::Ok, "{code}: {executed:?}");
        let shown = |output| match output {
            Output::Display(bundle) | Output::ExecuteResult(bundle) => Some(bundle),
            Output::Text { .. } => None,
        };
        executed.outputs.into_iter().filter_map(shown).collect()
    }

    /// Runs a cell that must raise. Returns the error.
    #[track_caller]
    pub(crate) fn error(&mut self, code: &str) -> String {
        match self.run(code).status {
            CellStatus::Ok | CellStatus::KernelDied(_) => panic!("{code}: it did not raise"),
            status => status.error(&limits()).unwrap().to_string(),
        }
    }

    /// Runs a cell that must end the interpreter. Returns the reason.
    #[track_caller]
    pub(crate) fn exit_reason(&mut self, code: &str, timeout: Option<Duration>) -> ExitReason {
        match self.run_within(code, timeout).status {
            CellStatus::KernelDied(reason) => reason,
            other => panic!("{code}: {other:?}"),
        }
    }
}

pub(crate) fn text_of(executed: &CellResult) -> String {
    let text = |output: &Output| match output {
        Output::Text { text, .. } => Some(text.clone()),
        Output::ExecuteResult(bundle) => bundle.get("text/plain").and_then(|text| text.as_str()).map(str::to_owned),
        Output::Display(_) => None,
    };
    executed.outputs.iter().filter_map(text).collect()
}

/// Records output, and answers input requests with prepared answers.
#[derive(Default)]
pub(crate) struct Listener {
    pub(crate) written: Mutex<Vec<(Stream, String)>>,
    pub(crate) answers: Mutex<Vec<InputReply>>,
    pub(crate) asked: Mutex<Vec<(String, bool)>>,
    pub(crate) connections: Mutex<Vec<ConnectionRecord>>,
}

impl Progress for Listener {
    fn start(&self, step: ProgressStep) -> Box<dyn StepProgress> {
        NoProgress.start(step)
    }
}

impl CellObserver for Listener {
    fn on_stream(&self, stream: Stream, bytes: &[u8]) {
        self.written.lock().unwrap().push((stream, String::from_utf8_lossy(bytes).into_owned()));
    }

    fn on_connection(&self, record: &ConnectionRecord) {
        self.connections.lock().unwrap().push(record.clone());
    }

    fn request_input(&self, prompt: &str, secret: bool) -> Result<Receiver<InputReply>, InputError> {
        self.asked.lock().unwrap().push((prompt.to_owned(), secret));
        let (sender, receiver) = channel();
        let mut answers = self.answers.lock().unwrap();
        if answers.is_empty() {
            return Err(InputError::Unavailable);
        }
        sender.send(answers.remove(0)).unwrap();
        Ok(receiver)
    }
}

//! An environment with what data people use, made once in the build folder, and backends on top of it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use belljar_core::kernel::{
    Answer, Audience, Backend as _, Bundle, CellRequest, End, Executed, Kernel, Output, Stream,
};
use belljar_core::progress::{Progress, Step, StepProgress};
use belljar_core::{Limits, NoProgress};
use belljar_jupyter::sandbox::Policy;
use belljar_jupyter::{Native, NativeOptions};
use libtest_mimic::Trial;

const PACKAGES: &[&str] =
    &["ipykernel", "numpy", "pandas", "matplotlib", "seaborn", "plotly", "kaleido", "sympy", "nbformat"];

/// An environment that is there already, for whoever runs the tests often.
const VARIABLE: &str = "BELLJAR_TEST_VENV";

/// The environment's Python.
pub(crate) static PYTHON: LazyLock<PathBuf> = LazyLock::new(|| {
    if let Some(given) = std::env::var_os(VARIABLE) {
        return Path::new(&given).join("bin/python");
    }
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("belljar-jupyter");
    std::fs::create_dir_all(&root).unwrap();
    let directory = root.join("venv");
    let python = directory.join("bin/python");
    let done = directory.join("installed");
    // A second process waits for the first.
    let lock = File::create(root.join("venv.lock")).unwrap();
    lock.lock().unwrap();
    if std::fs::read_to_string(&done).is_ok_and(|installed| installed == PACKAGES.join("\n")) {
        return python;
    }
    let _ = std::fs::remove_dir_all(&directory);
    run(Command::new("python3").args(["-m", "venv"]).arg(&directory));
    run(Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(PACKAGES));
    std::fs::write(done, PACKAGES.join("\n")).unwrap();
    python
});

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// What sessions of the tests may use.
pub(crate) fn limits() -> Limits {
    Limits { memory: 1 << 30, output: 1 << 20, disk: 64 << 20, ..Limits::default() }
}

/// Options in a shelter, with nothing started ahead.
pub(crate) fn options(policy: Policy) -> NativeOptions {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("belljar-jupyter-cache");
    NativeOptions { limits: limits(), policy, ahead: 0, cache: Some(cache), ..NativeOptions::new(&*PYTHON) }
}

type Made = Vec<(Policy, Result<Native, String>)>;
static MADE: Mutex<Made> = Mutex::new(Vec::new());

/// A backend of which all tests take kernels, with its imports done; an error says what the machine lacks.
fn shared(policy: Policy) -> Result<Native, String> {
    let mut made = MADE.lock().unwrap();
    if let Some((_, native)) = made.iter().find(|(other, _)| *other == policy) {
        return native.clone();
    }
    let native = Native::new(options(policy)).map_err(|error| error.to_string());
    if let Ok(native) = &native {
        native.warm_up().unwrap();
    }
    made.push((policy, native.clone()));
    native
}

/// Drops the backends, as statics are not, and with them their processes and folders.
pub(crate) fn end() {
    MADE.lock().unwrap().clear();
}

/// A test of what needs a connection to the host, which the weak shelter refuses.
pub(crate) fn in_each_but_weak(name: &'static str, test: fn(&mut Session)) -> Vec<Trial> {
    let mut trials = in_each(name, test);
    trials.retain(|trial| !trial.name().contains("weak"));
    trials
}

/// A test in each shelter. Where the machine cannot have the full one, that is said aloud.
pub(crate) fn in_each(name: &'static str, test: fn(&mut Session)) -> Vec<Trial> {
    [Policy::Full, Policy::Weak, Policy::Unsandboxed]
        .into_iter()
        .map(|policy| {
            Trial::test(format!("{name} ({policy})"), move || {
                let session = shared(policy).and_then(|native| Session::try_of(&native));
                match session {
                    Ok(mut session) => test(&mut session),
                    // The weak one has no root of its own: what its user cannot reach on the host it cannot run.
                    Err(reason) if policy != Policy::Unsandboxed && reason.contains("hint: ") => {
                        eprintln!("SKIPPED: {name} ({policy}): {reason}");
                    }
                    Err(reason) => panic!("{reason}"),
                }
                Ok(())
            })
        })
        .collect()
}

/// The strongest shelter of this machine, for a test of its own options.
pub(crate) fn strongest() -> Policy {
    if shared(Policy::Full).is_ok() { Policy::Full } else { Policy::Unsandboxed }
}

/// A session's kernel and whoever waits for it.
pub(crate) struct Session {
    pub(crate) kernel: Box<dyn Kernel>,
    pub(crate) listener: Arc<Listener>,
}

impl Session {
    pub(crate) fn of(native: &Native) -> Self {
        Self::try_of(native).unwrap()
    }

    fn try_of(native: &Native) -> Result<Self, String> {
        let kernel = native.start(&NoProgress).map_err(|error| error.to_string())?;
        Ok(Self { kernel, listener: Arc::default() })
    }

    pub(crate) fn run(&mut self, code: &str) -> Executed {
        self.run_within(code, Some(Duration::from_secs(120)))
    }

    pub(crate) fn run_within(&mut self, code: &str, timeout: Option<Duration>) -> Executed {
        self.kernel
            .execute(&CellRequest { code: code.into(), timeout, ..CellRequest::default() }, self.listener.clone())
    }

    /// All text of a cell, which must succeed.
    #[track_caller]
    pub(crate) fn text(&mut self, code: &str) -> String {
        let executed = self.run(code);
        assert_eq!(executed.end, End::Success, "{code}: {executed:?}");
        text_of(&executed)
    }

    /// What a cell shows, which must succeed.
    #[track_caller]
    pub(crate) fn shown(&mut self, code: &str) -> Vec<Bundle> {
        let executed = self.run(code);
        assert_eq!(executed.end, End::Success, "{code}: {executed:?}");
        let shown = |output| match output {
            Output::Shown(bundle) | Output::Value(bundle) => Some(bundle),
            Output::Text { .. } => None,
        };
        executed.outputs.into_iter().filter_map(shown).collect()
    }

    /// The error of a cell, which must raise.
    #[track_caller]
    pub(crate) fn error(&mut self, code: &str) -> String {
        match self.run(code).end {
            End::Raised { error, .. } => error,
            other => panic!("{code}: {other:?}"),
        }
    }

    /// Why the interpreter was lost in a cell.
    #[track_caller]
    pub(crate) fn death(&mut self, code: &str, timeout: Option<Duration>) -> String {
        match self.run_within(code, timeout).end {
            End::Died(reason) => reason,
            other => panic!("{code}: {other:?}"),
        }
    }
}

pub(crate) fn text_of(executed: &Executed) -> String {
    let text = |output: &Output| match output {
        Output::Text { text, .. } => Some(text.clone()),
        Output::Value(bundle) => bundle.get("text/plain").and_then(|text| text.as_str()).map(str::to_owned),
        Output::Shown(_) => None,
    };
    executed.outputs.iter().filter_map(text).collect()
}

/// Hears what is written, and answers questions with what is said beforehand.
#[derive(Default)]
pub(crate) struct Listener {
    pub(crate) heard: Mutex<Vec<(Stream, String)>>,
    pub(crate) answers: Mutex<Vec<Answer>>,
    pub(crate) asked: Mutex<Vec<(String, bool)>>,
}

impl Progress for Listener {
    fn start(&self, step: Step) -> Box<dyn StepProgress> {
        NoProgress.start(step)
    }
}

impl Audience for Listener {
    fn wrote(&self, stream: Stream, bytes: &[u8]) {
        self.heard.lock().unwrap().push((stream, String::from_utf8_lossy(bytes).into_owned()));
    }

    fn ask(&self, prompt: &str, secret: bool) -> Result<Receiver<Answer>, String> {
        self.asked.lock().unwrap().push((prompt.to_owned(), secret));
        let (sender, receiver) = channel();
        let mut answers = self.answers.lock().unwrap();
        if answers.is_empty() {
            return Err("nobody is there to be asked".into());
        }
        sender.send(answers.remove(0)).unwrap();
        Ok(receiver)
    }
}

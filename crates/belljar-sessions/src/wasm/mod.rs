//! The backend of the sandboxed CPython: IPython's shell in WebAssembly, each session a copy-on-write copy of one image.

mod calls;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use belljar_core::progress::Progress;
use belljar_core::{Collector, LimitKind, Limits, Outcome};
use belljar_emscripten::Difference;
use belljar_emscripten::console::Discard;
use belljar_emscripten::fs::{AT_FDCWD, FileType, Filesystem};
use belljar_python::install::{Given, InstallerSource, LiveInstaller};
use belljar_python::packages::{Member, PackageSet};
use belljar_python::{CellRequest as GuestCell, Image, Interpreter, Interrupter, Python, SESSION_DIRECTORY, Streams};
use serde::{Deserialize, Serialize};

use belljar_core::files::{FileError, FileInfo, MAX_READ, Range};
use belljar_core::kernel::{
    Audience, Backend, CellRequest, End, Executed, Interrupt, Kernel, KernelError, Saved, Stream,
};
use calls::{Input, Nobody, Show, Written};

/// Time between the interrupt of a cell whose time is up, which it can handle and which leaves its variables, and the end
/// of its interpreter.
const GRACE: Duration = Duration::from_secs(3);
/// Files of a session that are looked at.
const MOST_FILES: usize = 20_000;
/// What cells are run with.
#[derive(Clone)]
pub struct Workplace {
    /// A CPython that is ready.
    pub python: Python,
    /// Packages for every session.
    pub given: Given,
    /// Where packages come from.
    pub source: Arc<dyn InstallerSource>,
}

/// Makes the workplace ready; on a guest thread.
type Opener = Box<dyn Fn(&dyn Progress) -> Result<Workplace, String> + Send + Sync>;

/// The backend. Cheap to clone.
#[derive(Clone)]
pub struct Wasm {
    shared: Arc<Shared>,
}

struct Shared {
    open: Opener,
    limits: Limits,
    color: bool,
    ready: Mutex<Option<Ready>>,
}

/// What every kernel of the backend is made of.
#[derive(Clone)]
struct Ready {
    place: Workplace,
    image: Image,
    /// The image's packages, and those that were given.
    set: PackageSet,
}

impl Wasm {
    /// A backend whose sessions have these limits, and tracebacks with colours if `color` says so. `open` is called when
    /// the first session needs it, and again if it failed.
    pub fn new(
        limits: Limits,
        color: bool,
        open: impl Fn(&dyn Progress) -> Result<Workplace, String> + Send + Sync + 'static,
    ) -> Self {
        let limits = Limits { grace: limits.grace.max(GRACE), ..limits };
        Self { shared: Arc::new(Shared { open: Box::new(open), limits, color, ready: Mutex::default() }) }
    }

    /// Makes ready what the first session would have to wait for. Must be called on a guest thread.
    ///
    /// # Errors
    /// When Python or IPython cannot be had.
    pub fn warm_up(&self) -> Result<(), KernelError> {
        self.ready(&belljar_core::NoProgress).map(drop)
    }

    fn ready(&self, progress: &dyn Progress) -> Result<Ready, KernelError> {
        // Held while it is made: who comes meanwhile waits here.
        let mut ready = self.shared.ready.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ready) = &*ready {
            return Ok(ready.clone());
        }
        let place = (self.shared.open)(progress).map_err(KernelError::Start)?;
        let failed = |error: &dyn std::fmt::Display| KernelError::Start(error.to_string());
        let image = place.python.session_image(&*place.source, progress).map_err(|error| failed(&error))?;
        if image.memory_size() > self.shared.limits.memory {
            let needed = image.memory_size().div_ceil(1 << 20);
            return Err(KernelError::Start(format!(
                "a session needs at least {needed} MB of memory (--session-memory)"
            )));
        }
        let mut set = image.packages().clone();
        if !place.given.requirements.is_empty() {
            let silent: Arc<dyn Progress> = Arc::new(belljar_core::NoProgress);
            let installer = LiveInstaller::with_packages(&place.python, set, place.source.clone(), silent);
            let needs = belljar_packages::Needs::default().with(place.given.requirements.clone());
            // Only what is resolved matters; each session gets the layers itself.
            let mut nowhere = Filesystem::new(belljar_emscripten::fs::Quota::default());
            installer.install(&needs, &mut nowhere).map_err(|error| failed(&error))?;
            set = installer.packages();
        }
        let made = Ready { place, image, set };
        *ready = Some(made.clone());
        Ok(made)
    }

    fn kernel(&self, ready: Ready) -> Result<WasmKernel, KernelError> {
        let interpreter = ready.place.python.interpreter_with(&ready.image, self.shared.limits, nowhere());
        let mut interpreter = interpreter.map_err(|error| KernelError::Start(error.to_string()))?;
        let set = ready.set.clone();
        for layer in set.layers_beside(ready.image.packages()) {
            interpreter.files().add_layer(layer.clone());
        }
        Ok(WasmKernel { backend: self.clone(), ready, set, interpreter, count: 0 })
    }

    fn woken(
        &self,
        ready: Ready,
        difference: &Difference,
        set: PackageSet,
        count: u64,
    ) -> Result<WasmKernel, KernelError> {
        let interpreter = ready.place.python.wake(&ready.image, difference, &set, self.shared.limits, nowhere());
        let interpreter = interpreter.map_err(|error| KernelError::Refused(error.to_string()))?;
        Ok(WasmKernel { backend: self.clone(), ready, set, interpreter, count })
    }
}

fn nowhere() -> Streams {
    Streams { output: Box::new(Discard), input: Box::new(std::io::empty()) }
}

/// What is written about a saved state.
#[derive(Serialize, Deserialize)]
struct About {
    backend: String,
    /// [`Image::id`].
    image: String,
    /// What ran, for people.
    python: String,
    members: Vec<Member>,
    count: u64,
}

const NAME: &str = "wasm";

impl Backend for Wasm {
    fn start(&self, progress: &dyn Progress) -> Result<Box<dyn Kernel>, KernelError> {
        Ok(Box::new(self.kernel(self.ready(progress)?)?))
    }

    fn wake(&self, saved: &Saved, progress: &dyn Progress) -> Result<Box<dyn Kernel>, KernelError> {
        let about: About = serde_json::from_value(saved.about.clone())
            .map_err(|_| KernelError::Refused("its description cannot be read".into()))?;
        let ready = self.ready(progress)?;
        if about.backend != NAME || about.image != ready.image.id() {
            return Err(KernelError::Refused(format!(
                "it was saved by another build of Belljar, or before its cache was cleaned ({}, {})",
                about.backend, about.python
            )));
        }
        let difference =
            Difference::from_bytes(&saved.body).map_err(|error| KernelError::Refused(error.to_string()))?;
        let set = ready.place.python.set_of(&about.members, &*ready.place.source, progress);
        let set = set.map_err(|error| KernelError::Refused(format!("its packages cannot be had: {error}")))?;
        Ok(Box::new(self.woken(ready, &difference, set, about.count)?))
    }

    fn files_of(&self, saved: &Saved) -> Vec<(String, Vec<u8>)> {
        let difference = Difference::from_bytes(&saved.body);
        difference.map(|difference| difference.files_under(SESSION_DIRECTORY)).unwrap_or_default()
    }
}

struct WasmKernel {
    backend: Wasm,
    ready: Ready,
    set: PackageSet,
    interpreter: Interpreter,
    /// Cells that were run.
    count: u64,
}

impl WasmKernel {
    /// Installs what the cell is going to import; `false` if nothing was. What cannot be had is told, and the cell runs
    /// all the same: it may not come to that.
    fn install(
        &mut self,
        installer: &LiveInstaller,
        code: &str,
        audience: &Arc<dyn Audience>,
        outputs: &Collector,
    ) -> bool {
        let Workplace { python, source, .. } = &self.ready.place;
        let own = self.interpreter.files().list(SESSION_DIRECTORY, MOST_FILES).map(|listing| listing.files);
        let own = own.unwrap_or_default().into_iter().filter(|file| !file.path.contains('/'));
        let modules: Vec<String> = own.map(|file| file.path.trim_end_matches(".py").to_owned()).collect();
        let done = python.needs_of_cell(code, &self.set, &modules, &**source).and_then(|needs| {
            if needs.is_empty() {
                return Ok(false);
            }
            installer.install(&needs, self.interpreter.files())?;
            Ok(true)
        });
        match done {
            Ok(installed) => installed,
            Err(error) => {
                let text = format!("[not installed: {error}]\n");
                audience.wrote(Stream::Stderr, text.as_bytes());
                outputs.note(&text);
                false
            }
        }
    }

    /// How a cell ended that the shell did not finish.
    fn death(&self, outcome: Outcome) -> String {
        let limits = &self.backend.shared.limits;
        match outcome {
            Outcome::Limit(LimitKind::WallTime) => {
                "TimeLimit: the cell did not stop when it was interrupted, and its interpreter was ended".into()
            }
            Outcome::Limit(LimitKind::CpuTime) => "CpuLimit: the cell used more processor time than it may".into(),
            Outcome::Limit(LimitKind::Output) => {
                format!("OutputLimit: the cell wrote more than {} bytes (--max-output)", limits.output)
            }
            Outcome::Limit(LimitKind::Stack) => "StackLimit: the cell recursed too deeply".into(),
            Outcome::Limit(LimitKind::Stopped) => "Stopped: the cell was ended from outside".into(),
            Outcome::Exit(status) => format!("SystemExit: the cell ended its interpreter with status {status}"),
            Outcome::Error(error) => format!("{}: {} (in the shell itself)", error.kind, error.message),
            Outcome::Crash(reason) => format!("Crash: the cell broke its interpreter: {reason}"),
            Outcome::InstallError(reason) => reason,
            Outcome::Success(_) => "Crash: the interpreter ended".into(),
        }
    }
}

impl Kernel for WasmKernel {
    fn execute(&mut self, cell: &CellRequest, audience: Arc<dyn Audience>) -> Executed {
        let outputs = Collector::new(audience.clone());
        let Workplace { python, source, .. } = &self.ready.place;
        let progress: Arc<dyn Progress> = audience.clone();
        let installer = Arc::new(LiveInstaller::with_packages(python, self.set.clone(), source.clone(), progress));
        let installed = self.install(&installer, &cell.code, &audience, &outputs);
        self.interpreter
            .redirect(Streams { output: Box::new(Written(outputs.clone())), input: Box::new(std::io::empty()) });
        self.interpreter.answer("install", installer.clone());
        self.interpreter.answer("show", Arc::new(Show(outputs.clone())));
        self.interpreter.answer("input", Arc::new(Input(audience)));
        let most = self.backend.shared.limits.wall_time;
        let time = match (cell.timeout, most) {
            (Some(asked), Some(most)) => Some(asked.min(most)),
            (asked, most) => asked.or(most),
        };
        self.interpreter.set_wall_time(time);
        let begin = std::time::Instant::now();
        let request = GuestCell { code: &cell.code, color: self.backend.shared.color, installed };
        let result = self.interpreter.execute(&request);
        let late = time.filter(|time| begin.elapsed() >= *time);
        self.set = installer.packages();
        // They hold the cell's outputs, and whoever waited for it.
        self.interpreter.redirect(nowhere());
        for name in ["install", "show", "input"] {
            self.interpreter.answer(name, Arc::new(Nobody));
        }
        // A cell that the shell did not finish has no number of its own.
        self.count = result.as_ref().map_or(self.count + 1, |cell| cell.count);
        let end = match result {
            Ok(cell) => match (cell.error, late) {
                (None, _) => End::Success,
                (Some(error), Some(time)) if error.starts_with("KeyboardInterrupt") => End::Raised {
                    error: format!(
                        "TimeoutError: the cell ran longer than {} s and was interrupted",
                        time.as_secs_f64()
                    ),
                    traceback: cell.traceback,
                },
                (Some(error), _) => End::Raised { error, traceback: cell.traceback },
            },
            Err(outcome) => End::Died(self.death(outcome)),
        };
        Executed { count: self.count, end, outputs: outputs.take() }
    }

    fn interrupter(&self) -> Arc<dyn Interrupt> {
        Arc::new(Switch(self.interpreter.interrupter()))
    }

    fn restart(&mut self) -> Result<(), KernelError> {
        let files = self.interpreter.files().clone();
        let (python, limits) = (&self.ready.place.python, self.backend.shared.limits);
        let failed = |error: &dyn std::fmt::Display| KernelError::Failed(error.to_string());
        let fresh = python.interpreter_with(&self.ready.image, limits, nowhere());
        let mut fresh = fresh.map_err(|error| failed(&error))?;
        fresh.adopt_files(files).map_err(|error| failed(&error))?;
        self.interpreter = fresh;
        self.count = 0;
        Ok(())
    }

    fn fork(&mut self) -> Result<Box<dyn Kernel>, KernelError> {
        let difference = self.interpreter.difference(&self.ready.image);
        let difference = difference.map_err(|error| KernelError::Failed(error.to_string()))?;
        Ok(Box::new(self.backend.woken(self.ready.clone(), &difference, self.set.clone(), self.count)?))
    }

    fn save(&mut self) -> Result<Saved, KernelError> {
        let failed = |error: &dyn std::fmt::Display| KernelError::Failed(error.to_string());
        let difference = self.interpreter.difference(&self.ready.image).map_err(|error| failed(&error))?;
        let about = About {
            backend: NAME.into(),
            image: self.ready.image.id().to_owned(),
            python: self.ready.place.python.description(),
            members: self.set.members().cloned().collect(),
            count: self.count,
        };
        let about = serde_json::to_value(about).map_err(|error| failed(&error))?;
        let body = difference.to_bytes().map_err(|error| failed(&error))?;
        Ok(Saved { about, body })
    }

    fn files(&mut self) -> Vec<FileInfo> {
        let listing = self.interpreter.files().list(SESSION_DIRECTORY, MOST_FILES);
        let listing = listing.map(|listing| listing.files).unwrap_or_default();
        let shown = listing.into_iter().filter(|file| {
            file.file_type == FileType::Regular && !file.path.split('/').any(|name| name.starts_with('.'))
        });
        let info = |file: belljar_emscripten::fs::Listed| FileInfo {
            path: file.path,
            size: file.size,
            modified: i128::from(file.modified.seconds) * 1_000_000_000 + i128::from(file.modified.nanoseconds),
        };
        shown.map(info).collect()
    }

    fn read(&mut self, path: &str, range: Range) -> Result<Vec<u8>, FileError> {
        let whole = regular(self.interpreter.files(), path)?;
        let left = whole.1.saturating_sub(range.offset);
        let length = range.length.unwrap_or(left).min(left);
        if length > MAX_READ {
            return Err(FileError::TooLong { path: path.into(), size: whole.1 });
        }
        let bytes = self.interpreter.files().read_part(&whole.0, range.offset, length);
        bytes.map_err(|error| FileError::Other { path: path.into(), reason: error.errno.to_string() })
    }

    fn write(&mut self, path: &str, bytes: &[u8]) -> Result<(), FileError> {
        let files = self.interpreter.files();
        match regular(files, path) {
            Ok(_) | Err(FileError::Missing(_)) => {}
            Err(error) => return Err(error),
        }
        files.write_file(&format!("{SESSION_DIRECTORY}/{path}"), bytes).map_err(|error| match error.errno {
            belljar_emscripten::Errno::ENOSPC => FileError::Full(path.into()),
            errno => FileError::Other { path: path.into(), reason: errno.to_string() },
        })
    }
}

/// Where a regular file is in the guest, and its length. No link is followed on the way.
fn regular(files: &mut Filesystem, path: &str) -> Result<(String, u64), FileError> {
    let mut at = SESSION_DIRECTORY.to_owned();
    let mut names = path.split('/').peekable();
    while let Some(name) = names.next() {
        at = format!("{at}/{name}");
        let stat = files.stat_at(AT_FDCWD, &at, false).map_err(|_| FileError::Missing(path.into()))?;
        match (names.peek().is_some(), stat.file_type) {
            (true, FileType::Directory) => {}
            (false, FileType::Regular) => return Ok((at, stat.size)),
            _ => return Err(FileError::Name(path.into())),
        }
    }
    Err(FileError::Name(path.into()))
}

struct Switch(Interrupter);

impl Interrupt for Switch {
    fn interrupt(&self) {
        self.0.interrupt();
    }

    fn stop(&self) {
        self.0.stop();
    }
}

//! Interpreters of sessions: an image in which IPython's shell waits for cells, and the state of a session as a delta.
//!
//! The image is a cache entry that is built once and not evicted, since the saved states of sessions are deltas against
//! it. The entry lists the wheels of the image, so that they never have to be resolved again.

use belljar_cache::{CacheError, Entry, EntryKey, NewEntry};
use belljar_core::kernel::{CellRequest, ShellRequest};
use belljar_core::progress::ProgressStep;
use belljar_core::{Limits, NoProgress, Outcome, Progress};
use belljar_emscripten::fs::Filesystem;
use belljar_emscripten::{InstanceConfig, InstanceError, SnapshotDelta};
use belljar_packages::{AvailableModules, Dependencies, DependencyError, Installer, PackageRequest, Requirement};
use serde_json::Value;

use crate::error::OpenError;
use crate::guest_protocol::{ExecuteArguments, ExecuteResult, ShellArguments, ShellCell, ShellResult};
use crate::image::Image;
use crate::install::{InstallerSource, PrepareError};
use crate::interpreter::{Interpreter, Streams, console, machine_limits};
use crate::packages::{PackageSet, REACHABLE_VERSION as VERSION, WheelId};
use crate::python::Python;

/// The requirement of the shell.
const SHELL: &str = "ipython>=9,<10";
/// The modules that are imported in the image of sessions. The first one has IPython leave out what no cell needs.
///
/// Importing the module of feeds takes longer than a first feed, and the pages of the image are shared.
const MODULES: [&str; 5] =
    ["_belljar.lean_imports", "IPython", "IPython.display", "IPython.core.magics", "_belljar.monty"];
/// The dependencies of IPython that the image of sessions does without. Code that imports them installs them.
const UNUSED_WHEELS: [&str; 2] = ["jedi", "parso"];
/// The code that determines the pages that each copy of the image gets at once: those that every cell writes to. Code
/// that shows a value would add a third, which sessions keep as their private memory.
const FIRST_CELL: &str = "x = 1";
/// The kind of the cache entry. Entries of this kind are not evicted.
const ENTRY_KIND: &str = "session";
const IMAGE_FILE: &str = "session.image";
const WHEELS_FILE: &str = "wheels.json";

/// The initial working directory of cells, whose files belong to the session.
pub const SESSION_DIRECTORY: &str = "/home";

impl Python {
    /// Returns the image in which IPython's shell waits for cells: from the cache, or newly built, which `progress`
    /// reports.
    ///
    /// Must be called on a guest thread. `source` is called only if the image has to be built, or if wheels of the
    /// image were evicted.
    ///
    /// # Errors
    /// Returns an error if IPython cannot be installed or does not work.
    pub fn session_image(&self, source: &dyn InstallerSource, progress: &dyn Progress) -> Result<Image, PrepareError> {
        let entry = self.cache().get_or_create_pinned(&self.session_key(), progress, |new| {
            self.build_session(&*source.installer()?, new, progress)
        })?;
        let set = self.package_set(&session_wheels(&entry)?, source, progress)?;
        Ok(Image::open(&entry.file(IMAGE_FILE)?, self.program(), self.base().base_layers(), set)?)
    }

    /// Returns the same image for a process that will be sealed. Another process has built it with wheels that are
    /// installed.
    ///
    /// Must be called on a guest thread.
    ///
    /// # Errors
    /// Returns an error if the image or a wheel is not in the cache.
    pub(crate) fn existing_session_image(&self) -> Result<Image, OpenError> {
        let missing = |what: &str| OpenError::Instance(InstanceError::Snapshot(format!("{what} is not in the cache")));
        let entry = self.cache().get_pinned(&self.session_key())?.ok_or_else(|| missing("the image of sessions"))?;
        let ids = session_wheels(&entry)?;
        let set = self.packages(&ids, &[], |_| Err("wheels of sessions are not in the cache".into()), &NoProgress)?;
        let image = Image::open(&entry.file(IMAGE_FILE)?, self.program(), self.base().base_layers(), set)?;
        // The states of sessions are differences from it.
        image.snapshot().map_memory()?;
        Ok(image)
    }

    /// Returns the key of the image of sessions in the cache.
    fn session_key(&self) -> EntryKey {
        EntryKey::new(ENTRY_KIND)
            .part("base", self.base_key().to_string())
            .part("shell", SHELL)
            .part("reachable", VERSION.to_le_bytes())
            .part("first cell", FIRST_CELL)
    }

    fn build_session(
        &self,
        installer: &Installer,
        new: &NewEntry,
        progress: &dyn Progress,
    ) -> Result<(), PrepareError> {
        let shell = Requirement::parse(SHELL).map_err(DependencyError::from)?;
        let request = PackageRequest { requirements: vec![shell], ..PackageRequest::default() };
        let (set, _) = self.install(installer, &request, &[], progress)?;
        let step = progress.start(ProgressStep::indeterminate("building the image of sessions"));
        let is_used = |id: &&WheelId| !UNUSED_WHEELS.contains(&id.name.as_str());
        let ids: Vec<WheelId> = set.wheel_ids().filter(is_used).cloned().collect();
        let set = self.packages(&ids, &[], |missing| Err(missing_wheels_message(missing).into()), progress)?;
        let json = serde_json::to_vec(&ids).unwrap_or_default();
        new.write(WHEELS_FILE, &json)?;
        let modules = MODULES.map(String::from);
        self.preloader(progress).build_shell(&set, &modules, FIRST_CELL, &new.path().join(IMAGE_FILE))?;
        step.finish();
        Ok(())
    }

    /// Returns the set of exactly these wheels. Evicted wheels are fetched again.
    ///
    /// Must be called on a guest thread.
    ///
    /// # Errors
    /// Returns an error if a wheel is no longer available.
    pub fn package_set(
        &self,
        ids: &[WheelId],
        source: &dyn InstallerSource,
        progress: &dyn Progress,
    ) -> Result<PackageSet, PrepareError> {
        if !self.has_packages(ids)? {
            let pinned = |id: &WheelId| Requirement::parse(&format!("{}=={}", id.name, id.version));
            let requirements = ids.iter().map(pinned).collect::<Result<_, _>>().map_err(DependencyError::from)?;
            self.install(
                &*source.installer()?,
                &PackageRequest { requirements, ..PackageRequest::default() },
                &[],
                progress,
            )?;
        }
        Ok(self.packages(ids, &[], |missing| Err(missing_wheels_message(missing).into()), progress)?)
    }

    /// Returns the requirements of a cell that neither `set` nor the session's own `modules` meet.
    ///
    /// # Errors
    /// Returns an error if the requirements cannot be read or met.
    pub fn needs_of_cell(
        &self,
        code: &str,
        set: &PackageSet,
        modules: &[String],
        source: &dyn InstallerSource,
    ) -> Result<Dependencies, PrepareError> {
        let wheels = || set.wheels().iter().flat_map(|wheel| wheel.modules.iter().cloned());
        let own = || self.base().extra_stdlib_modules().iter().cloned().chain(modules.iter().cloned());
        let present = || wheels().chain(own()).chain(crate::install::PROVIDED.map(String::from));
        let needs = Dependencies::from_code(code, &AvailableModules::new(&self.platform()).with_modules(present()))?;
        if needs.is_empty() {
            return Ok(needs);
        }
        Ok(Dependencies::from_code(code, &source.installer()?.available_modules()?.with_modules(present()))?)
    }

    /// Restores the interpreter of which `delta` was taken, with its wheels, `set`.
    ///
    /// # Errors
    /// Returns an error if the delta is not based on `image`, or if it exceeds the memory limit.
    pub fn restore_interpreter(
        &self,
        image: &Image,
        delta: &SnapshotDelta,
        set: &PackageSet,
        limits: Limits,
        streams: Streams,
    ) -> Result<Interpreter, OpenError> {
        let machine = machine_limits(&limits);
        let config = InstanceConfig {
            files: Filesystem::new(machine.files),
            console: console(&limits, streams),
            environment: Vec::new(),
            limits: machine,
        };
        let layers: Vec<_> = image.base_layers().iter().chain(set.layers()).cloned().collect();
        let instance = self.program().restore_with_delta(image.snapshot(), delta, &layers, config)?;
        Ok(Interpreter::resumed(instance, image, limits))
    }
}

/// Returns the wheels of the image of sessions in a cache entry.
fn session_wheels(entry: &Entry) -> Result<Vec<WheelId>, OpenError> {
    let path = entry.file(WHEELS_FILE)?;
    let json = std::fs::read(&path).map_err(|error| OpenError::File { path, error })?;
    serde_json::from_slice(&json)
        .map_err(|_| OpenError::Instance(InstanceError::Snapshot("its list of wheels is damaged".into())))
}

fn missing_wheels_message(missing: &[WheelId]) -> String {
    let names: Vec<String> = missing.iter().map(|id| format!("{} {}", id.name, id.version)).collect();
    format!("{} is no longer available with the recorded hash", names.join(", "))
}

impl Interpreter {
    /// Runs a cell in the shell of a session's image. `color` enables colours in tracebacks; only its value for the
    /// first cell has an effect.
    ///
    /// # Errors
    /// Returns the outcome of an interpreter in which the shell did not return: a limit, a crash, an exit.
    pub(crate) fn execute(&mut self, cell: &CellRequest, color: bool) -> Result<ShellCell, Outcome> {
        let (installed, renewal) = (self.take_has_new_packages(), self.take_renewal());
        let max_value_bytes = self.limits().value;
        let environment = self.take_environment();
        let arguments =
            ExecuteArguments { cell, color, max_value_bytes, installed, renewal, stepped: false, environment };
        self.call_with_limits::<ExecuteResult, _>(self.functions().execute, "execute", &arguments)?.into()
    }

    /// Sends a request to the shell of a session's image. Returns the content of the reply, which the guest made.
    ///
    /// # Errors
    /// The outcome that ended the request, or the interpreter ([`Interpreter::is_dead`]).
    pub(crate) fn shell_request(&mut self, request: &ShellRequest) -> Result<Value, Outcome> {
        // The first cell decides about colours: it stays the first.
        let arguments = ShellArguments { request, renewal: self.renewal() };
        self.call_with_limits::<ShellResult, _>(self.functions().ask, "ask", &arguments)?.into()
    }

    /// Replaces the standard streams, and resets the counter of the output limit.
    pub fn redirect(&mut self, streams: Streams) {
        let console = console(self.limits(), streams);
        self.host_mut().console = console;
    }

    /// Replaces the file system by that of another copy of the same image, for a restart that keeps the files.
    ///
    /// # Errors
    /// Returns an error if the file system cannot be reset to the state of a new program.
    pub fn replace_filesystem(&mut self, mut files: Filesystem) -> Result<(), belljar_emscripten::fs::FileError> {
        files.restart(SESSION_DIRECTORY)?;
        *self.files() = files;
        Ok(())
    }

    /// Returns the delta between this interpreter and `image`, of which it is a copy: see
    /// [`Python::restore_interpreter`].
    ///
    /// # Errors
    /// Returns an error if the interpreter has ended.
    pub fn delta(&mut self, image: &Image) -> Result<SnapshotDelta, InstanceError> {
        if self.is_dead() {
            return Err(InstanceError::Dead);
        }
        self.instance_mut().delta(image.snapshot())
    }
}

impl From<CacheError> for PrepareError {
    fn from(error: CacheError) -> Self {
        Self::Open(error.into())
    }
}

//! Images: the memory and files of an interpreter that is ready to run. Interpreters are copies of an image.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use belljar_cache::CacheError;
use belljar_emscripten::fs::Layer;
use belljar_emscripten::{Instance, InstanceError, Program, Readings, Snapshot};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::c_api::{self, CApiError};
use crate::error::OpenError;
use crate::guest_protocol::GuestFunctions;
use crate::heap;
use crate::host_calls::{CallError, HostCall, HostCallContext, HostCallRegistry};
use crate::interpreter::Renewal;
use crate::kept_image::KeptImage;
use crate::packages::{PackageSet, WheelId};

/// The reference count of an immortal object: CPython's `_Py_IMMORTAL_INITIAL_REFCNT` for 32-bit pointers.
const IMMORTAL_REFCOUNT: u32 = 5 << 28;

/// A module that could not be imported into an image. Code that imports it gets the same failure itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreloadFailure {
    /// The module's dotted name.
    pub module: String,
    /// The reason: `it raised ImportError: …`, `it took more than 10 s of processor time`.
    pub reason: String,
}

/// An interpreter that is ready to run, with or without packages, and that interpreters are copied from. Cheap to
/// clone.
#[derive(Clone)]
pub struct Image {
    shared: Arc<Shared>,
    missing_modules: Arc<BTreeMap<String, String>>,
    /// The modules that it was built to import.
    modules: Arc<[String]>,
}

struct Shared {
    snapshot: Snapshot,
    metadata: ImageMetadata,
    base_layers: Vec<Arc<Layer>>,
    packages: PackageSet,
}

/// The parts that an image is made from, by which another process opens it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ImageParts {
    /// The wheels, sorted by name.
    pub wheels: Vec<WheelId>,
    /// The imported modules, sorted.
    pub modules: Vec<String>,
    /// True for an image of sessions, with all wheels of a session: some of them may not be in the image.
    pub is_session: bool,
    /// The image of sessions, if it is not the current one.
    pub kept: Option<KeptImage>,
}

impl ImageParts {
    /// Returns the parts for sessions with these packages, in the current image of sessions or in a kept one.
    pub fn for_sessions(packages: &PackageSet, kept: Option<&KeptImage>) -> Self {
        let wheels = packages.wheel_ids().cloned().collect();
        Self { wheels, modules: Vec::new(), is_session: true, kept: kept.cloned() }
    }
}

/// The part of an image's file that is not machine state.
#[derive(Serialize, Deserialize)]
pub(crate) struct ImageMetadata {
    pub(crate) functions: GuestFunctions,
    #[serde(rename = "left_out")]
    pub(crate) preload_failures: Vec<PreloadFailure>,
    /// Modules of the standard library that the table in `belljar-packages` does not list.
    #[serde(rename = "further_modules")]
    pub(crate) extra_stdlib_modules: Vec<String>,
    /// A digest of the program and of the image's memory, in which deltas against the image are applied. [`write`] sets
    /// it.
    pub(crate) id: String,
}

/// Makes an instance ready for building an image: its clock and random bytes are reproducible, and the guest can ask
/// how often its code has read them. Called before the instance runs any code.
pub(crate) fn observe(instance: &mut Instance) {
    instance.make_reproducible();
    let mut calls = HostCallRegistry::default();
    calls.0.insert("readings".into(), Arc::new(ReadingsCall));
    instance.host_mut().embedder = Some(Arc::new(calls));
}

/// The host call with which the guest finds out which modules read random numbers or the time.
struct ReadingsCall;

impl HostCall for ReadingsCall {
    fn call(&self, _: &RawValue, context: &mut HostCallContext<'_>) -> Result<Box<RawValue>, CallError> {
        let Readings { random, real_time } = context.readings().unwrap_or_default();
        serde_json::value::to_raw_value(&[random, real_time]).map_err(|error| CallError::Refused(error.to_string()))
    }
}

/// The guest's reply to `arrange`.
#[derive(Deserialize)]
struct ArrangeReply {
    /// Addresses of objects that exist as long as the interpreter. Counting references to them would make each copy
    /// write to their pages, and so own private copies of the pages.
    immortals: Vec<u32>,
}

/// The guest's reply to `prepare`.
#[derive(Deserialize)]
struct PrepareReply {
    /// The modules of `sys.stdlib_module_names`.
    standard_library: Vec<String>,
    /// Random numbers and times that are part of the image: see `guest/import_readings.py`.
    readers: Vec<String>,
}

impl Image {
    /// Opens the image in `path`, which was built on `base_layers` and the layers of `packages`.
    ///
    /// # Errors
    /// Returns an error if the file is not an image of these layers.
    pub(crate) fn open(
        path: &Path,
        program: &Program,
        base_layers: &[Arc<Layer>],
        packages: PackageSet,
    ) -> Result<Self, OpenError> {
        let file = File::open(path).map_err(|error| OpenError::File { path: path.into(), error })?;
        Self::from_file(file, program, base_layers.to_vec(), packages)
    }

    /// Opens the image in `file`, which was built on `base_layers` and the layers of `packages`. The file must not
    /// change as long as the image exists.
    ///
    /// # Errors
    /// Returns an error if the file is not an image of these layers.
    pub(crate) fn from_file(
        file: File,
        program: &Program,
        base_layers: Vec<Arc<Layer>>,
        packages: PackageSet,
    ) -> Result<Self, OpenError> {
        let layers: Vec<_> = base_layers.iter().chain(packages.layers()).cloned().collect();
        let snapshot = Snapshot::open(file, program, &layers)?;
        let metadata = serde_json::from_slice(snapshot.extra())
            .map_err(|_| InstanceError::Snapshot("the image was built by another version of Belljar".into()))?;
        Ok(Self {
            shared: Arc::new(Shared { snapshot, metadata, base_layers, packages }),
            missing_modules: Arc::default(),
            modules: Arc::default(),
        })
    }

    /// Returns the layers below those of the packages: the standard library and the guest package.
    pub(crate) fn base_layers(&self) -> &[Arc<Layer>] {
        &self.shared.base_layers
    }

    /// Returns the packages that are installed in the image.
    pub fn packages(&self) -> &PackageSet {
        &self.shared.packages
    }

    /// Returns the same image, which was built to import `modules`.
    pub(crate) fn with_modules(self, modules: &[String]) -> Self {
        Self { modules: modules.into(), ..self }
    }

    /// Returns the parts that the image is made from.
    pub fn parts(&self) -> ImageParts {
        let wheels = self.packages().wheel_ids().cloned().collect();
        ImageParts { wheels, modules: self.modules.to_vec(), ..ImageParts::default() }
    }

    /// Returns the modules that could not be imported ahead of time.
    pub fn preload_failures(&self) -> &[PreloadFailure] {
        &self.shared.metadata.preload_failures
    }

    /// Returns the same image for code that imports modules which no package provides. `missing_modules` maps each
    /// module to the note that its `ModuleNotFoundError` gets.
    pub(crate) fn with_missing_modules(self, missing_modules: BTreeMap<String, String>) -> Self {
        Self { missing_modules: Arc::new(missing_modules), ..self }
    }

    /// The modules that the code imports and that no package provides, with the notes for their errors.
    pub fn missing_modules(&self) -> &Arc<BTreeMap<String, String>> {
        &self.missing_modules
    }

    /// Returns the size of the image's memory in bytes. Interpreters share it until they write to it.
    pub fn memory_size(&self) -> u64 {
        self.shared.snapshot.memory_size()
    }

    /// Returns the image's identifier: a digest of its memory. A delta against an image can be applied to each image
    /// with the same identifier, such as the one that is built from the same parts on another machine.
    pub fn id(&self) -> &str {
        &self.shared.metadata.id
    }

    pub(crate) fn snapshot(&self) -> &Snapshot {
        &self.shared.snapshot
    }

    /// Returns the standard library's modules that the table in `belljar-packages` does not list.
    pub(crate) fn extra_stdlib_modules(&self) -> &[String] {
        &self.shared.metadata.extra_stdlib_modules
    }

    pub(crate) fn functions(&self) -> GuestFunctions {
        self.shared.metadata.functions
    }
}

/// Creates a new, empty file for an image.
pub(crate) fn create(path: &Path) -> Result<File, CacheError> {
    let file = File::options().read(true).write(true).create_new(true).open(path);
    file.map_err(|error| CacheError::writing(path, None, error))
}

/// The environment that cells run in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ImageKind {
    /// Plain Python.
    Script,
    /// IPython's shell.
    Shell,
}

/// Prepares a booted interpreter for being copied: imports modules, moves the code of first cells together, runs
/// warm-up code and makes objects immortal. Returns the names of the standard library's modules.
pub(crate) fn prepare(instance: &mut Instance, kind: ImageKind) -> Result<Vec<String>, CApiError> {
    let request = serde_json::json!({ "shell": kind == ImageKind::Shell }).to_string();
    let prepared: PrepareReply = ask(instance, "prepare", &request)?;
    if !prepared.readers.is_empty() {
        // A release of IPython that this build does not know. Without it, there would be no sessions.
        tracing::warn!(readers = ?prepared.readers, "the image of sessions contains what should differ in each copy");
    }
    // The moved code then lies at the end of the heap, and not in holes between other objects.
    heap::fill_holes(instance)?;
    let arranged: ArrangeReply = ask(instance, "arrange", &request)?;
    for object in arranged.immortals {
        instance.memory().write_u32(object, IMMORTAL_REFCOUNT)?;
    }
    Ok(prepared.standard_library)
}

/// Calls a function of the guest package that returns JSON.
fn ask<T: DeserializeOwned>(instance: &mut Instance, name: &str, request: &str) -> Result<T, CApiError> {
    let function = c_api::import(instance, "_belljar", name)?;
    let answer = c_api::call(instance, function, name, request)?;
    serde_json::from_str(&answer).map_err(|_| CApiError::Exception(format!("{name}: {answer}")))
}

/// Writes an interpreter that [`prepare`] made ready into `file`. A copy of the interpreter runs `code` first, which
/// records the pages that the first cell of a program writes to.
pub(crate) fn write(
    instance: &mut Instance,
    file: &File,
    mut metadata: ImageMetadata,
    code: &str,
    kind: ImageKind,
) -> Result<(), CApiError> {
    let function = match kind {
        ImageKind::Script => metadata.functions.run,
        ImageKind::Shell => metadata.functions.execute,
    };
    let chunks = heap::fill_holes(instance)?;
    instance.clear_unused_stack()?;
    let renewal = Renewal::All;
    let request =
        serde_json::json!({ "code": code, "filename": "main.py", "mode": "cell", "env": {}, "renewal": renewal });
    let working_set = instance.measure_working_set(|copy| {
        c_api::call(copy, function, "the first cell", &request.to_string())?;
        // Most programs end after one cell; sessions go on.
        if kind == ImageKind::Script {
            c_api::call(copy, metadata.functions.finish, "finish", "{}")?;
        }
        Ok::<_, CApiError>(())
    })?;
    tracing::debug!(pages = working_set.pages(), chunks, "working set of the first cell, filled holes of the heap");
    metadata.id = hex::encode(&instance.memory_digest()[..16]);
    Ok(instance.snapshot(file, serde_json::to_vec(&metadata).unwrap_or_default(), working_set)?)
}

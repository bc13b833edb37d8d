//! An image: the memory and files of an interpreter that is ready to run. Interpreters are copies of one.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use belljar_cache::CacheError;
use belljar_emscripten::fs::Layer;
use belljar_emscripten::{Instance, InstanceError, Program, Snapshot};
use serde::{Deserialize, Serialize};

use crate::interop::{self, InteropError};
use crate::interpreter::Functions;
use crate::packages::PackageSet;
use crate::python::OpenError;

/// Reference count of an immortal object: `_Py_IMMORTAL_INITIAL_REFCNT` of CPython where pointers have 32 bits.
const IMMORTAL: u32 = 5 << 28;

/// A module that an image was to have imported, and why it has not. Code that imports it sees for itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Its dotted name.
    pub module: String,
    /// What importing it did: `it raised ImportError: …`, `it took longer than 20 s`.
    pub reason: String,
}

/// An interpreter that is ready to run, with or without packages, to be copied. Cheap to clone.
#[derive(Clone)]
pub struct Image {
    shared: Arc<Shared>,
    absent: Arc<BTreeMap<String, String>>,
}

struct Shared {
    snapshot: Snapshot,
    extra: Extra,
    packages: PackageSet,
}

/// What the image's file says besides the state of the machine.
#[derive(Serialize, Deserialize)]
pub(crate) struct Extra {
    pub(crate) functions: Functions,
    pub(crate) left_out: Vec<LeftOut>,
    /// Modules of the standard library that the table of `belljar-packages` lacks.
    pub(crate) further_modules: Vec<String>,
    /// Drawn when the image was made. Another one of the same parts has other contents: a difference from this one means
    /// nothing to it.
    pub(crate) id: String,
}

/// An [`Image::id`] that no other image has.
pub(crate) fn new_id() -> Result<String, OpenError> {
    let mut bytes = [0; 16];
    let failed = |error: getrandom::Error| OpenError::Build {
        what: "an image",
        reason: error.to_string(),
        output: String::new(),
    };
    getrandom::fill(&mut bytes).map_err(failed)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// What the guest answers when it has made itself ready to be copied.
#[derive(Deserialize)]
struct Prepared {
    /// Addresses of objects that are to live as long as the interpreter. Counting references to them would make
    /// each copy write to, and so own, the pages that they lie on.
    immortals: Vec<u32>,
    /// `sys.stdlib_module_names`.
    standard_library: Vec<String>,
}

impl Image {
    /// Opens the image in `path`, which stands on `layers`: those that it was made on.
    ///
    /// # Errors
    /// When the file is not such an image.
    pub(crate) fn open(
        path: &Path,
        program: &Program,
        layers: &[Arc<Layer>],
        packages: PackageSet,
    ) -> Result<Self, OpenError> {
        let file = File::open(path).map_err(|error| OpenError::File { path: path.into(), error })?;
        let snapshot = Snapshot::open(file, program, layers)?;
        let extra = serde_json::from_slice(snapshot.extra())
            .map_err(|_| InstanceError::Snapshot("it was made by another build of belljar".into()))?;
        Ok(Self { shared: Arc::new(Shared { snapshot, extra, packages }), absent: Arc::default() })
    }

    /// The packages that are installed in it.
    pub fn packages(&self) -> &PackageSet {
        &self.shared.packages
    }

    /// The modules that could not be imported ahead of time.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.shared.extra.left_out
    }

    /// The same image for code that imports modules which no package provides: by module, what is said to code that
    /// fails for want of it.
    pub(crate) fn with_absent(self, absent: BTreeMap<String, String>) -> Self {
        Self { absent: Arc::new(absent), ..self }
    }

    /// Modules that the code imports and that no package provides: by module, what is said to code that fails for
    /// want of it.
    pub fn absent(&self) -> &Arc<BTreeMap<String, String>> {
        &self.absent
    }

    /// Bytes of memory in it; an interpreter shares them with others until it writes to them.
    pub fn memory_size(&self) -> u64 {
        self.shared.snapshot.memory_size()
    }

    /// Tells this image from all others, those made of the same parts among them.
    pub fn id(&self) -> &str {
        &self.shared.extra.id
    }

    pub(crate) fn snapshot(&self) -> &Snapshot {
        &self.shared.snapshot
    }

    /// Modules of this Python's standard library that were new in it.
    pub(crate) fn further_modules(&self) -> &[String] {
        &self.shared.extra.further_modules
    }

    pub(crate) fn functions(&self) -> Functions {
        self.shared.extra.functions
    }
}

/// A new, empty file for an image.
pub(crate) fn create(path: &Path) -> Result<File, CacheError> {
    let file = File::options().read(true).write(true).create_new(true).open(path);
    file.map_err(|error| CacheError::writing(path, None, error))
}

/// What cells are run in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runs {
    /// Nothing but Python.
    Programs,
    /// IPython's shell.
    Sessions,
}

/// Makes a booted interpreter ready to be copied: its own modules imported, everything warmed up, objects immortal.
/// Gives the names of the standard library's modules.
pub(crate) fn prepare(instance: &mut Instance, runs: Runs) -> Result<Vec<String>, InteropError> {
    let prepare = interop::import(instance, "_belljar", "prepare")?;
    let request = serde_json::json!({ "shell": runs == Runs::Sessions }).to_string();
    let answer = interop::call(instance, prepare, "prepare", &request)?;
    let prepared: Prepared =
        serde_json::from_str(&answer).map_err(|_| InteropError::Raised(format!("prepare: {answer}")))?;
    for object in prepared.immortals {
        instance.memory().write_u32(object, IMMORTAL)?;
    }
    Ok(prepared.standard_library)
}

/// Writes an interpreter that [`prepare`] made ready into `file`. A copy of it runs `code` before, so that the image
/// tells which pages the first cell of a program writes to.
pub(crate) fn write(
    instance: &mut Instance,
    file: &File,
    extra: &Extra,
    code: &str,
    runs: Runs,
) -> Result<(), InteropError> {
    let function = match runs {
        Runs::Programs => extra.functions.run_function(),
        Runs::Sessions => extra.functions.execute_function(),
    };
    let request = serde_json::json!({ "code": code, "filename": "main.py", "mode": "cell", "env": {}, "fresh": true });
    let working_set =
        instance.rehearse(|copy| interop::call(copy, function, "the first cell", &request.to_string()).map(drop))?;
    tracing::debug!(pages = working_set.pages(), "the first eval's working set");
    Ok(instance.snapshot(file, serde_json::to_vec(extra).unwrap_or_default(), working_set)?)
}

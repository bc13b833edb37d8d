//! The Python that a backend runs code with, loaded on first use.

use std::sync::Arc;

use belljar_core::Progress;
use belljar_core::kernel::BoxError;

use parking_lot::Mutex;

use crate::install::{InstallerSource, PrepareOptions};
use crate::python::Python;

/// A CPython that is ready, and the packages that all code on it gets.
#[derive(Clone)]
pub struct PythonRuntime {
    /// The CPython.
    pub python: Python,
    /// Packages and imports for all code.
    pub options: PrepareOptions,
    /// The source of packages.
    pub installer: Arc<dyn InstallerSource>,
}

/// Loads the runtime. Called on a guest thread.
type Load = dyn Fn(&dyn Progress) -> Result<PythonRuntime, BoxError> + Send + Sync;

/// A [`PythonRuntime`] that is loaded when it is first needed, and shared by all backends of a process.
pub struct RuntimeLoader {
    load: Box<Load>,
    loaded: Mutex<Option<PythonRuntime>>,
}

impl RuntimeLoader {
    /// Creates a loader that calls `load` when the runtime is first needed, and again if that failed.
    pub fn new(load: impl Fn(&dyn Progress) -> Result<PythonRuntime, BoxError> + Send + Sync + 'static) -> Self {
        Self { load: Box::new(load), loaded: Mutex::default() }
    }

    /// Returns the runtime, loading it if need be. Must be called on a guest thread.
    ///
    /// # Errors
    /// Returns the error of the function that loads the runtime.
    pub fn get(&self, progress: &dyn Progress) -> Result<PythonRuntime, BoxError> {
        // Held while loading: concurrent callers wait for the first.
        let mut loaded = self.loaded.lock();
        if let Some(runtime) = &*loaded {
            return Ok(runtime.clone());
        }
        let runtime = (self.load)(progress)?;
        *loaded = Some(runtime.clone());
        Ok(runtime)
    }

    /// Returns the runtime if it is loaded. Does not wait while it is being loaded.
    pub(crate) fn loaded(&self) -> Option<PythonRuntime> {
        self.loaded.try_lock()?.clone()
    }
}

impl From<PythonRuntime> for RuntimeLoader {
    fn from(runtime: PythonRuntime) -> Self {
        Self::new(move |_| Ok(runtime.clone()))
    }
}

//! Images by set and imports: the base image with a set's layers and with modules of the set imported.
//!
//! Importing runs the package's code in the sandbox, with limits. A module whose import fails, hangs, crashes, writes
//! output, or reads random numbers or the time, is omitted, as if its import had never been tried: the image is built
//! again without it, and code that imports the module gets the failure or the numbers itself.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use belljar_cache::{Cache, EntryKey};
use belljar_core::Progress;
use belljar_core::progress::ProgressStep;
use belljar_emscripten::console::{Capture, Console};
use belljar_emscripten::fs::{Filesystem, Layer, Quota};
use belljar_emscripten::stop::StopReason;
use belljar_emscripten::watchdog::{DeadlineGuard, TimeLimits};
use belljar_emscripten::{Instance, InstanceConfig, Limits, Program};
use serde::Deserialize;

use super::reachable::{self, ModulePaths, Reach, reachable};
use super::{Layers, PackageSet};
use crate::c_api::{self, CApiError};
use crate::error::OpenError;
use crate::guest;
use crate::image::{self, Image, ImageKind, ImageMetadata, PreloadFailure};

const IMAGE: &str = "packages.image";
/// The limit on the processor time of one import. The slowest of the well-known packages takes two seconds. On a busy
/// machine an import takes longer by the clock, and the image must be the same there.
const IMPORT_CPU_LIMIT: Duration = Duration::from_secs(10);
/// The limit on the elapsed time of one import, which ends code that waits.
const IMPORT_TIMEOUT: Duration = Duration::from_secs(40);
/// The maximum number of modules that are imported ahead of time.
const MAX_IMPORTS: usize = 64;
/// The maximum memory size of an image, in bytes.
const MAX_MEMORY: u64 = 1 << 30;
/// The maximum output of an import that is kept, in bytes.
const MAX_OUTPUT: u64 = 1 << 16;

/// The guest's reply to an import.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum GuestReply {
    Value {
        readers: Vec<String>,
        dependencies: Vec<String>,
    },
    Error {
        #[serde(rename = "type")]
        kind: String,
        message: String,
    },
    Exit {},
}

/// Finds and builds images with packages.
pub(crate) struct Preloader<'a> {
    pub(crate) layers: Layers<'a>,
    pub(crate) cache: &'a Cache,
    pub(crate) program: &'a Program,
    pub(crate) base: &'a Image,
    /// The cache key of the base image.
    pub(crate) base_key: &'a EntryKey,
    pub(crate) progress: &'a dyn Progress,
}

/// Returns the modules that an image of `set` imports: those of `imports` that belong to the set, and all of `named`.
/// Sorted and without duplicates.
pub(crate) fn preloadable(set: &PackageSet, imports: &[String], named: &[String]) -> Vec<String> {
    let plain =
        |name: &&String| name.split('.').all(|part| !part.is_empty() && !part.contains(|c: char| c.is_control()));
    let of_set = imports.iter().filter(|name| set.provides(name));
    let mut modules: Vec<String> = of_set.chain(named).filter(plain).cloned().collect();
    modules.sort();
    modules.dedup();
    modules.truncate(MAX_IMPORTS);
    modules
}

impl Preloader<'_> {
    /// Returns the image of `set` with `modules` imported (see [`preloadable`]), and whether it was built by this call.
    ///
    /// Must be called on a guest thread.
    pub(crate) fn image(&self, set: &PackageSet, modules: &[String]) -> Result<(Image, bool), OpenError> {
        let mut made = false;
        let entry = self.cache.get_or_create_pinned(&self.key(set, modules), self.progress, |new| {
            made = true;
            let layers = self.compiled_layers(set, &reachable(set, modules, Reach::Imports, &[]))?;
            let step = self.progress.start(ProgressStep::indeterminate("building the image of these packages"));
            let file = image::create(&new.path().join(IMAGE))?;
            let (mut instance, failures) = self.build(&layers, modules, ImageKind::Script)?;
            let metadata = self.metadata(failures);
            let imported =
                modules.iter().filter(|module| metadata.preload_failures.iter().all(|left| left.module != **module));
            let code: String = imported.map(|module| format!("import {module}\n")).collect();
            image::write(&mut instance, &file, metadata, &format!("{code}1 + 1"), ImageKind::Script).map_err(failed)?;
            step.finish();
            Ok::<_, OpenError>(())
        })?;
        Ok((Image::open(&entry.file(IMAGE)?, self.program, self.base.base_layers(), set.clone())?, made))
    }

    /// Writes the image for sessions, with IPython's shell from the wheels of `set`, to `path`. Running `first_cell`
    /// determines the pages that its copies get at once.
    ///
    /// Must be called on a guest thread.
    pub(crate) fn build_shell(
        &self,
        set: &PackageSet,
        modules: &[String],
        first_cell: &str,
        path: &Path,
    ) -> Result<(), OpenError> {
        let file = image::create(path)?;
        // Cells use many of the shell's modules, each for the first time.
        let imports: Vec<String> = modules.iter().cloned().chain(guest::imports()).collect();
        let layers = self.compiled_layers(set, &reachable(set, &imports, Reach::Functions, &SHELL_LEAVES_OUT))?;
        let (mut instance, failures) = self.build(&layers, modules, ImageKind::Shell)?;
        let metadata = self.metadata(failures);
        image::write(&mut instance, &file, metadata, first_cell, ImageKind::Shell).map_err(failed)
    }

    /// Compiles modules of `set` if necessary. Returns the layers in which only these have bytecode, so that the same
    /// image is built whatever else has been compiled before.
    fn compiled_layers(&self, set: &PackageSet, modules: &ModulePaths) -> Result<Vec<Arc<Layer>>, OpenError> {
        self.layers.compile(set, modules)?;
        let layers = set.layers().zip(modules).map(|(layer, modules)| {
            let kept: HashSet<String> = modules.iter().map(|path| self.layers.bytecode_of(path)).collect();
            layer.with_deferred(|path| kept.contains(path))
        });
        Ok(layers.collect())
    }

    fn metadata(&self, preload_failures: Vec<PreloadFailure>) -> ImageMetadata {
        let extra_stdlib_modules = self.base.extra_stdlib_modules().to_vec();
        ImageMetadata { functions: self.base.functions(), preload_failures, extra_stdlib_modules, id: String::new() }
    }

    fn key(&self, set: &PackageSet, modules: &[String]) -> EntryKey {
        let base = self.base_key.to_string();
        let key = EntryKey::new("image").part("base", base).part("packages", set.key().as_bytes());
        let key = key.part("reachable", reachable::VERSION.to_le_bytes());
        modules.iter().fold(key, |key, module| key.part("import", module))
    }

    /// Returns an interpreter that is ready to be copied, and the modules that could not be imported.
    fn build(
        &self,
        layers: &[Arc<Layer>],
        modules: &[String],
        kind: ImageKind,
    ) -> Result<(Instance, Vec<PreloadFailure>), OpenError> {
        let steps_of = |module: &String| [PreloadStep::Module(module.clone()), PreloadStep::Attributes(module.clone())];
        let mut todo: Vec<PreloadStep> = modules.iter().flat_map(steps_of).collect();
        let mut failures = Vec::new();
        loop {
            let (mut instance, output) = self.start(layers)?;
            let failure =
                todo.iter().enumerate().find_map(|(at, step)| Some((at, step.execute(&mut instance, &output).err()?)));
            let Some((at, StepFailure { reason, dependencies })) = failure else {
                image::prepare(&mut instance, kind).map_err(failed)?;
                return Ok((instance, failures));
            };
            let failed_step = todo.remove(at);
            tracing::debug!(step = ?failed_step, reason, "a preload step failed");
            if let PreloadStep::Module(module) = failed_step {
                todo.retain(|step| *step != PreloadStep::Attributes(module.clone()));
                if !dependencies.is_empty() {
                    todo.insert(at, PreloadStep::Dependencies(dependencies));
                }
                failures.push(PreloadFailure { module, reason });
            }
        }
    }

    /// Creates a copy of the base image with these layers.
    fn start(&self, layers: &[Arc<Layer>]) -> Result<(Instance, Capture), OpenError> {
        let output = Capture::default();
        let quota = Quota::default();
        let setup = InstanceConfig {
            files: Filesystem::new(quota),
            console: Console::new(Box::new(output.clone()), Box::new(std::io::empty()), MAX_OUTPUT),
            environment: Vec::new(),
            limits: Limits { memory: MAX_MEMORY, output: MAX_OUTPUT, files: quota },
        };
        let mut instance = self.program.restore(self.base.snapshot(), setup)?;
        image::observe(&mut instance);
        for layer in layers {
            instance.host_mut().files.add_layer(layer.clone());
        }
        Ok((instance, output))
    }
}

/// Modules that IPython imports and that the image of sessions does without: see `guest/lean_imports.py`.
const SHELL_LEAVES_OUT: [&str; 2] = ["jedi", "IPython.terminal"];

/// A step of building an image.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PreloadStep {
    /// Imports a module.
    Module(String),
    /// Imports modules on which a module depends that is left out.
    Dependencies(Vec<String>),
    /// Looks up the names that a module offers, for modules that import their contents on first use.
    Attributes(String),
}

/// A step that must be omitted.
struct StepFailure {
    reason: String,
    /// The modules that the step imports, and that need not be omitted.
    dependencies: Vec<String>,
}

impl PreloadStep {
    /// Executes the step.
    fn execute(&self, instance: &mut Instance, output: &Capture) -> Result<(), StepFailure> {
        let (function, request) = match self {
            Self::Module(module) => ("preload", serde_json::json!({ "modules": [module] })),
            Self::Dependencies(modules) => ("preload", serde_json::json!({ "modules": modules })),
            Self::Attributes(module) => ("preload_attributes", serde_json::json!({ "module": module })),
        };
        let time = TimeLimits { wall: Some(IMPORT_TIMEOUT), cpu: Some(IMPORT_CPU_LIMIT), ..TimeLimits::default() };
        let watch = DeadlineGuard::start(&instance.stop_handle(), time);
        let answer = c_api::import(instance, "_belljar", function)
            .and_then(|preload| c_api::call(instance, preload, function, &request.to_string()));
        drop(watch);
        let reason = match answer.map(|answer| serde_json::from_str(&answer)) {
            Ok(Ok(GuestReply::Value { .. })) if !output.take().is_empty() => "it wrote something".into(),
            Ok(Ok(GuestReply::Value { readers, .. })) if readers.is_empty() => return Ok(()),
            Ok(Ok(GuestReply::Value { readers, dependencies })) => {
                return Err(StepFailure { reason: reading_reason(&readers), dependencies });
            }
            Ok(Ok(GuestReply::Error { kind, message })) => format!("it raised {kind}: {message}"),
            Ok(Ok(GuestReply::Exit {})) => "it asked to end the program".into(),
            Ok(Err(_)) => "it broke the interpreter".into(),
            Err(error) => match instance.stop_handle().reason() {
                Some(StopReason::CpuTime) => {
                    format!("it took more than {} s of processor time", IMPORT_CPU_LIMIT.as_secs())
                }
                Some(_) => format!("it took longer than {} s", IMPORT_TIMEOUT.as_secs()),
                None => format!("it ended the interpreter: {error}"),
            },
        };
        Err(StepFailure { reason, dependencies: Vec::new() })
    }
}

/// Returns the reason why the image cannot contain `readers` (see `guest/import_readings.py`).
fn reading_reason(readers: &[String]) -> String {
    let described = |reader: &String| match reader.split_once(": ") {
        Some((module, what)) if !module.is_empty() => format!("`{module}` reads {what}"),
        Some((_, what)) => format!("it reads {what}"),
        None => reader.clone(),
    };
    let described: Vec<String> = readers.iter().map(described).collect();
    format!("{}, which would be the same in every run", described.join(", "))
}

fn failed(error: CApiError) -> OpenError {
    OpenError::Build { what: "the image of these packages", reason: error.to_string(), output: String::new() }
}

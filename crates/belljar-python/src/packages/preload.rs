//! Images by set and imports: the base image with a set's layers under it and modules of the set imported.
//!
//! Importing runs code that a package brings, in the sandbox. What it may take is bounded, and a module whose import
//! fails, hangs, crashes or writes something is left out, as if it had never been tried: the image is built once more
//! without it, and code that imports it meets the failure itself.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use belljar_cache::{Cache, EntryKey};
use belljar_core::progress::{Progress, Step};
use belljar_emscripten::console::{Capture, Console};
use belljar_emscripten::fs::{Filesystem, Layer, Quota};
use belljar_emscripten::watchdog::{TimeLimits, Watch};
use belljar_emscripten::{Instance, Limits, Program, Setup};
use serde::Deserialize;

use super::PackageSet;
use crate::image::{self, Extra, Image, LeftOut, Runs};
use crate::interop::{self, InteropError};
use crate::python::OpenError;

const IMAGE: &str = "packages.image";
/// How long one import may take. The longest of well-known packages takes two seconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// Modules that are imported ahead of time, at most.
const MAX_IMPORTS: usize = 64;
/// Bytes of memory that an image may have.
const MAX_MEMORY: u64 = 1 << 30;
/// Bytes of output that are kept of a module that writes when it is imported.
const MAX_OUTPUT: u64 = 1 << 16;

/// What the guest answers when it was asked to import a module.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Answer {
    Value {},
    Error {
        #[serde(rename = "type")]
        kind: String,
        message: String,
    },
    Exit {},
}

/// Finds and builds images with packages.
pub(crate) struct Preloader<'a> {
    pub(crate) cache: &'a Cache,
    pub(crate) program: &'a Program,
    pub(crate) base: &'a Image,
    /// What the base image is known by in the cache.
    pub(crate) base_key: &'a EntryKey,
    pub(crate) base_layers: &'a [Arc<Layer>],
    pub(crate) progress: &'a dyn Progress,
}

/// The modules that an image of `set` would have imported: those among `imports` that are the set's, and those that are
/// `named`. Sorted, each once.
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
    /// The image of `set` with `modules` (see [`preloadable`]) imported, and whether it had to be made.
    ///
    /// Must be called on a guest thread.
    pub(crate) fn image(&self, set: &PackageSet, modules: &[String]) -> Result<(Image, bool), OpenError> {
        let mut made = false;
        let entry = self.cache.hold_or_make(&self.key(set, modules), self.progress, |new| {
            made = true;
            let step = self.progress.start(Step::unmeasured("building the image of these packages"));
            let file = image::create(&new.path().join(IMAGE))?;
            let (mut instance, left_out) = self.build(set, modules, Runs::Programs)?;
            let extra = self.extra(left_out)?;
            let imported = modules.iter().filter(|module| extra.left_out.iter().all(|left| left.module != **module));
            let code: String = imported.map(|module| format!("import {module}\n")).collect();
            image::write(&mut instance, &file, &extra, &format!("{code}1 + 1"), Runs::Programs).map_err(failed)?;
            step.finish();
            Ok::<_, OpenError>(())
        })?;
        let layers: Vec<_> = self.base_layers.iter().chain(set.layers()).cloned().collect();
        Ok((Image::open(&entry.file(IMAGE)?, self.program, &layers, set.clone())?, made))
    }

    /// Writes the image of sessions to `path`: IPython's shell, from the wheels of `set`.
    ///
    /// Must be called on a guest thread.
    pub(crate) fn build_shell(&self, set: &PackageSet, modules: &[String], path: &Path) -> Result<(), OpenError> {
        let file = image::create(path)?;
        let (mut instance, left_out) = self.build(set, modules, Runs::Sessions)?;
        let extra = self.extra(left_out)?;
        image::write(&mut instance, &file, &extra, "x = 1\nprint(x)\nx + 1", Runs::Sessions).map_err(failed)
    }

    fn extra(&self, left_out: Vec<LeftOut>) -> Result<Extra, OpenError> {
        let further_modules = self.base.further_modules().to_vec();
        Ok(Extra { functions: self.base.functions(), left_out, further_modules, id: image::new_id()? })
    }

    fn key(&self, set: &PackageSet, modules: &[String]) -> EntryKey {
        let base = self.base_key.to_string();
        let key = EntryKey::new("image").part("base", base).part("packages", set.key().as_bytes());
        modules.iter().fold(key, |key, module| key.part("import", module))
    }

    /// An interpreter that is ready to be copied, and what could not be imported.
    fn build(&self, set: &PackageSet, modules: &[String], runs: Runs) -> Result<(Instance, Vec<LeftOut>), OpenError> {
        let both = |module: &String| [Preparation::Module(module.clone()), Preparation::Attributes(module.clone())];
        let mut todo: Vec<Preparation> = modules.iter().flat_map(both).collect();
        let mut left_out = Vec::new();
        loop {
            let (mut instance, output) = self.start(set)?;
            let failure = todo.iter().find_map(|step| Some((step.clone(), step.take(&mut instance, &output)?)));
            let Some((failed_step, reason)) = failure else {
                image::prepare(&mut instance, runs).map_err(failed)?;
                return Ok((instance, left_out));
            };
            tracing::debug!(step = ?failed_step, reason, "not done ahead of time");
            todo.retain(|step| *step != failed_step);
            if let Preparation::Module(module) = failed_step {
                todo.retain(|step| *step != Preparation::Attributes(module.clone()));
                left_out.push(LeftOut { module, reason });
            }
        }
    }

    /// A copy of the base image with the set's layers.
    fn start(&self, set: &PackageSet) -> Result<(Instance, Capture), OpenError> {
        let output = Capture::default();
        let quota = Quota::default();
        let setup = Setup {
            files: Filesystem::new(quota),
            console: Console::new(Box::new(output.clone()), Box::new(std::io::empty()), MAX_OUTPUT),
            environment: Vec::new(),
            limits: Limits { memory: MAX_MEMORY, output: MAX_OUTPUT, files: quota },
        };
        let mut instance = self.program.restore(self.base.snapshot(), setup)?;
        for layer in set.layers() {
            instance.host_mut().files.add_layer(layer.clone());
        }
        Ok((instance, output))
    }
}

/// Something to be done while an image is built.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Preparation {
    /// A module is imported.
    Module(String),
    /// The names that a module offers are looked up, where it imports what is behind them when they are first used.
    Attributes(String),
}

impl Preparation {
    /// Takes the step; says why it must not be taken, if so.
    fn take(&self, instance: &mut Instance, output: &Capture) -> Option<String> {
        let (function, module) = match self {
            Self::Module(module) => ("preload", module),
            Self::Attributes(module) => ("preload_attributes", module),
        };
        let time = TimeLimits { wall: Some(PATIENCE), ..TimeLimits::default() };
        let watch = Watch::start(&instance.stop_switch(), time);
        let answer = interop::import(instance, "_belljar", function).and_then(|preload| {
            let request = serde_json::json!({ "module": module }).to_string();
            interop::call(instance, preload, function, &request)
        });
        drop(watch);
        match answer.map(|answer| serde_json::from_str(&answer)) {
            Ok(Ok(Answer::Value {})) if output.take().is_empty() => None,
            Ok(Ok(Answer::Value {})) => Some("it wrote something".into()),
            Ok(Ok(Answer::Error { kind, message })) => Some(format!("it raised {kind}: {message}")),
            Ok(Ok(Answer::Exit {})) => Some("it asked to end the program".into()),
            Ok(Err(_)) => Some("it broke the interpreter".into()),
            Err(InteropError::Instance(_)) if instance.stop_switch().stopped() => {
                Some(format!("it took longer than {} s", PATIENCE.as_secs()))
            }
            Err(error) => Some(format!("it ended the interpreter: {error}")),
        }
    }
}

fn failed(error: InteropError) -> OpenError {
    OpenError::Build { what: "the image of these packages", reason: error.to_string(), output: String::new() }
}

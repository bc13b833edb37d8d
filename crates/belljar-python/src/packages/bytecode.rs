//! Bytecode of the modules of wheels, compiled once on all processors by the same CPython that will run it.
//!
//! The modules of a wheel are split into shares, and a pool of interpreters compiles the shares of all wheels.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use belljar_core::progress::StepProgress;
use belljar_emscripten::console::Console;
use belljar_emscripten::fs::{Filesystem, Layer, Quota};
use belljar_emscripten::watchdog::{DeadlineGuard, TimeLimits};
use belljar_emscripten::{Instance, InstanceConfig, Limits, Program, guest_thread};
use parking_lot::Mutex;
use serde::Deserialize;

use crate::c_api::{self, CApiError};
use crate::image::Image;

/// The source of the guest's part of the compiler. It is part of the cache key: a change may change the bytecode.
pub(crate) const SOURCE: &str = include_str!("../../guest/bytecode.py");

/// The path of the guest's output file.
const TARGET: &str = "/tmp/bytecode";
/// Bytes of source that one interpreter compiles before it is replaced, which bounds its memory. Small enough for the
/// processors to finish at the same time: compiling a share takes half a second.
const SHARE_SIZE: usize = 512 << 10;
/// The maximum size of a share's bytecode, in bytes.
const MAX_BYTECODE: u64 = 256 << 20;
/// The time limit of one share: a hundred times the usual duration.
const SHARE_TIMEOUT: Duration = Duration::from_secs(300);

/// The bytecode of one module.
pub(crate) struct Bytecode {
    /// The path of the bytecode's file, in the form of the wheel's paths.
    pub(crate) path: String,
    pub(crate) bytes: Vec<u8>,
}

/// Returns the path of the bytecode of the module at `path`, by the rules of `importlib.util.cache_from_source`.
pub(crate) fn path_of(path: &str, (major, minor): (u8, u8)) -> String {
    let stem = path.strip_suffix(".py").unwrap_or(path);
    let (directory, name) = stem.rsplit_once('/').unwrap_or(("", stem));
    format!("{directory}/__pycache__/{name}.cpython-{major}{minor}.pyc")
}

/// Returns the path of the module whose bytecode is at `path`.
pub(crate) fn source_of(path: &str) -> Option<String> {
    let (directory, name) = path.rsplit_once("/__pycache__/")?;
    Some(format!("{directory}/{}.py", name.split_once(".cpython-")?.0))
}

/// The guest's reply.
#[derive(Deserialize)]
struct CompileReply {
    /// The path and length of each bytecode file, in their order in the output file.
    compiled: Vec<(String, usize)>,
}

/// A share of a wheel's modules, to be compiled by any interpreter.
struct Share {
    /// The layer with the sources.
    sources: Arc<Layer>,
    /// The paths of the modules in the guest.
    modules: Vec<String>,
    compiled: Sender<Vec<Bytecode>>,
}

/// Interpreters that compile modules, as long as [`with_compiler`] runs.
pub(crate) struct Compiler {
    waiting: Sender<Share>,
}

/// Calls `work` with a compiler that uses all processors and reports each compiled module to `step`.
pub(crate) fn with_compiler<T>(
    program: &Program,
    base: &Image,
    step: &dyn StepProgress,
    work: impl FnOnce(&Compiler) -> T,
) -> T {
    let (sender, receiver) = mpsc::channel::<Share>();
    // Dropped by the last thread, so that no share waits for threads that have ended.
    let waiting = Arc::new(Mutex::new(receiver));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let waiting = waiting.clone();
            scope.spawn(move || {
                let ran = guest_thread::run("bytecode", || compile_shares(program, base, step, &waiting));
                if let Err(error) = ran {
                    tracing::warn!(%error, "failed to start a thread that compiles modules");
                }
            });
        }
        drop(waiting);
        let compiler = Compiler { waiting: sender };
        // The threads end when the compiler is dropped.
        work(&compiler)
    })
}

/// Compiles shares until the compiler is dropped.
fn compile_shares(program: &Program, base: &Image, step: &dyn StepProgress, waiting: &Mutex<Receiver<Share>>) {
    loop {
        let Ok(share) = waiting.lock().recv() else { return };
        match compile_share(program, base, &share.sources, &share.modules) {
            // Ignore send errors: the wheel may not be needed any more.
            Ok(compiled) => drop(share.compiled.send(compiled)),
            Err(error) => {
                tracing::warn!(%error, first = share.modules.first(), "failed to compile modules to bytecode");
            }
        }
        step.advance(share.modules.len() as u64);
    }
}

impl Compiler {
    /// Compiles modules of the layer `sources`, given by their paths. Files that are not valid Python or that the
    /// compiler fails on are omitted: Python then imports the source.
    pub(crate) fn compile(&self, sources: &Arc<Layer>, modules: &[String]) -> Vec<Bytecode> {
        let (compiled, results) = mpsc::channel();
        for modules in shares(sources, modules) {
            let share = Share { sources: sources.clone(), modules, compiled: compiled.clone() };
            // Ignore send errors: without threads the sources are imported.
            let _ = self.waiting.send(share);
        }
        drop(compiled);
        results.into_iter().flatten().collect()
    }
}

/// Splits modules into shares of similar size.
fn shares(sources: &Layer, modules: &[String]) -> Vec<Vec<String>> {
    let mut shares: Vec<Vec<String>> = Vec::new();
    let mut room = 0;
    for path in modules {
        let size = sources.file(path).map_or(0, |bytes| bytes.len());
        if size > room || shares.is_empty() {
            shares.push(Vec::new());
            room = SHARE_SIZE.max(size);
        }
        room -= size;
        if let Some(share) = shares.last_mut() {
            share.push(format!("/{path}"));
        }
    }
    shares
}

fn compile_share(
    program: &Program,
    base: &Image,
    sources: &Arc<Layer>,
    share: &[String],
) -> Result<Vec<Bytecode>, CApiError> {
    let quota = Quota { bytes: MAX_BYTECODE, ..Quota::default() };
    let setup = InstanceConfig {
        files: Filesystem::new(quota),
        console: Console::closed(),
        environment: Vec::new(),
        limits: Limits { files: quota, ..Limits::default() },
    };
    let mut instance: Instance = program.restore(base.snapshot(), setup)?;
    instance.host_mut().files.add_layer(sources.clone());
    let _watch = DeadlineGuard::start(
        &instance.stop_handle(),
        TimeLimits { wall: Some(SHARE_TIMEOUT), ..TimeLimits::default() },
    );
    let compile = c_api::import(&mut instance, "_belljar.bytecode", "compile_files")?;
    let request = serde_json::json!({ "files": share, "target": TARGET }).to_string();
    let answer = c_api::call(&mut instance, compile, "compile_files", &request)?;
    let answer: CompileReply =
        serde_json::from_str(&answer).map_err(|_| CApiError::InvalidReply("not a list of files"))?;
    let packed = instance.host_mut().files.read_file(TARGET, MAX_BYTECODE);
    let packed = packed.map_err(|_| CApiError::InvalidReply("the file of bytecode is missing"))?;
    let mut rest = packed.as_slice();
    let mut compiled = Vec::with_capacity(answer.compiled.len());
    for (path, length) in answer.compiled {
        let (bytes, tail) =
            rest.split_at_checked(length).ok_or(CApiError::InvalidReply("the file of bytecode is too short"))?;
        rest = tail;
        // Paths in layers do not start with a slash. Building the layer validates the rest of the path.
        let path = path.strip_prefix('/').unwrap_or(&path).to_owned();
        compiled.push(Bytecode { path, bytes: bytes.to_vec() });
    }
    Ok(compiled)
}

#[cfg(test)]
mod tests {
    use super::{path_of, source_of};

    #[test]
    fn paths_of_bytecode_lead_back_to_their_sources() {
        assert_eq!(path_of("lib/a/b.py", (3, 14)), "lib/a/__pycache__/b.cpython-314.pyc");
        assert_eq!(source_of("lib/a/__pycache__/b.cpython-314.pyc").as_deref(), Some("lib/a/b.py"));
        assert_eq!(source_of("lib/a/b.pyc"), None);
    }
}

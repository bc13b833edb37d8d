//! Bytecode for a wheel's modules, made once by the very CPython that will run it, on all processors.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use belljar_emscripten::console::Console;
use belljar_emscripten::fs::{Filesystem, Layer, Quota};
use belljar_emscripten::watchdog::{TimeLimits, Watch};
use belljar_emscripten::{Instance, Limits, Program, Setup, thread};
use serde::Deserialize;

use super::WheelFile;
use crate::image::Image;
use crate::interop::{self, InteropError};
use crate::python::OpenError;

/// The part of it that runs inside: other code would make other bytecode.
pub(crate) const SOURCE: &str = include_str!("../../guest/bytecode.py");

/// Where the guest puts what it makes.
const TARGET: &str = "/tmp/bytecode";
/// Bytes of source that one interpreter compiles before the next takes over: what it leaks goes with it.
const SHARE: usize = 4 << 20;
/// Bytes that a share's bytecode may take.
const MAX_BYTECODE: u64 = 256 << 20;
/// How long one share may take. A hundred times what it does.
const PATIENCE: Duration = Duration::from_secs(300);

/// The bytecode of one module.
pub(crate) struct Bytecode {
    /// Where it belongs, as paths of wheels are.
    pub(crate) path: String,
    pub(crate) bytes: Vec<u8>,
}

/// What the guest answers.
#[derive(Deserialize)]
struct Answer {
    /// Path of the bytecode's file, and its length. One after the other in the target file.
    compiled: Vec<(String, usize)>,
}

/// Compiles the modules among `files`, which `sources` holds. What is no Python is left out, as is what the compiler
/// fails at: Python then finds its source.
pub(crate) fn compile(
    program: &Program,
    base: &Image,
    sources: &Arc<Layer>,
    files: &[WheelFile],
) -> Result<Vec<Bytecode>, OpenError> {
    let shares = shares(files);
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(shares.len());
    let waiting = Mutex::new(shares.into_iter());
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        let mut compiled = Vec::new();
        while let Some(share) = next() {
            match compile_share(program, base, sources, &share) {
                Ok(bytecode) => compiled.extend(bytecode),
                Err(error) => tracing::warn!(%error, first = share.first(), "modules stay without bytecode"),
            }
        }
        compiled
    };
    if threads <= 1 {
        return thread::run("bytecode", work).map_err(no_thread);
    }
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(|| thread::run("bytecode", work))).collect();
        let mut compiled = Vec::new();
        for thread in running {
            match thread.join() {
                Ok(bytecode) => compiled.extend(bytecode.map_err(no_thread)?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(compiled)
    })
}

fn no_thread(error: std::io::Error) -> OpenError {
    OpenError::Build { what: "bytecode", reason: error.to_string(), output: String::new() }
}

/// The modules' paths in the guest, in shares of like size.
fn shares(files: &[WheelFile]) -> Vec<Vec<String>> {
    let mut shares: Vec<Vec<String>> = Vec::new();
    let mut room = 0;
    for file in files.iter().filter(|file| file.is_module()) {
        if file.bytes.len() > room {
            shares.push(Vec::new());
            room = SHARE.max(file.bytes.len());
        }
        room -= file.bytes.len();
        if let Some(share) = shares.last_mut() {
            share.push(format!("/{}", file.path));
        }
    }
    shares
}

fn compile_share(
    program: &Program,
    base: &Image,
    sources: &Arc<Layer>,
    share: &[String],
) -> Result<Vec<Bytecode>, InteropError> {
    let quota = Quota { bytes: MAX_BYTECODE, ..Quota::default() };
    let setup = Setup {
        files: Filesystem::new(quota),
        console: Console::closed(),
        environment: Vec::new(),
        limits: Limits { files: quota, ..Limits::default() },
    };
    let mut instance: Instance = program.restore(base.snapshot(), setup)?;
    instance.host_mut().files.add_layer(sources.clone());
    let _watch = Watch::start(&instance.stop_switch(), TimeLimits { wall: Some(PATIENCE), ..TimeLimits::default() });
    let compile = interop::import(&mut instance, "_belljar.bytecode", "compile_files")?;
    let request = serde_json::json!({ "files": share, "target": TARGET }).to_string();
    let answer = interop::call(&mut instance, compile, "compile_files", &request)?;
    let answer: Answer = serde_json::from_str(&answer).map_err(|_| InteropError::Answer("a list of no files"))?;
    let packed = instance.host_mut().files.read_file(TARGET, MAX_BYTECODE);
    let packed = packed.map_err(|_| InteropError::Answer("no file of bytecode"))?;
    let mut rest = packed.as_slice();
    let mut compiled = Vec::with_capacity(answer.compiled.len());
    for (path, length) in answer.compiled {
        let (bytes, tail) = rest.split_at_checked(length).ok_or(InteropError::Answer("a file that is too short"))?;
        rest = tail;
        // Layers know no leading slash; that the path is a plain one is checked when the layer is built.
        let path = path.strip_prefix('/').unwrap_or(&path).to_owned();
        compiled.push(Bytecode { path, bytes: bytes.to_vec() });
    }
    Ok(compiled)
}

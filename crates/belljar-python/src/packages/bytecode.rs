//! Bytecode of a wheel's modules, compiled once on all processors by the same CPython that will run it.

use std::sync::Arc;
use std::time::Duration;

use belljar_emscripten::console::Console;
use belljar_emscripten::fs::{Filesystem, Layer, Quota};
use belljar_emscripten::watchdog::{DeadlineGuard, TimeLimits};
use belljar_emscripten::{Instance, InstanceConfig, Limits, Program, guest_thread};
use parking_lot::Mutex;
use serde::Deserialize;

use super::WheelFile;
use crate::c_api::{self, CApiError};
use crate::error::OpenError;
use crate::image::Image;

/// The source of the guest's part of the compiler. It is part of the cache key: a change may change the bytecode.
pub(crate) const SOURCE: &str = include_str!("../../guest/bytecode.py");

/// The path of the guest's output file.
const TARGET: &str = "/tmp/bytecode";
/// Bytes of source that one interpreter compiles before it is replaced, which bounds the memory that it leaks.
const SHARE_SIZE: usize = 4 << 20;
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

/// The guest's reply.
#[derive(Deserialize)]
struct CompileReply {
    /// The path and length of each bytecode file, in their order in the output file.
    compiled: Vec<(String, usize)>,
}

/// Compiles the modules among `files`, which the layer `sources` contains. Files that are not valid Python or that the
/// compiler fails on are omitted: Python then imports the source.
pub(crate) fn compile(
    program: &Program,
    base: &Image,
    sources: &Arc<Layer>,
    files: &[WheelFile],
) -> Result<Vec<Bytecode>, OpenError> {
    let shares = shares(files);
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(shares.len());
    let waiting = Mutex::new(shares.into_iter());
    let next = || waiting.lock().next();
    let work = || {
        let mut compiled = Vec::new();
        while let Some(share) = next() {
            match compile_share(program, base, sources, &share) {
                Ok(bytecode) => compiled.extend(bytecode),
                Err(error) => tracing::warn!(%error, first = share.first(), "failed to compile modules to bytecode"),
            }
        }
        compiled
    };
    if threads <= 1 {
        return guest_thread::run("bytecode", work).map_err(thread_error);
    }
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(|| guest_thread::run("bytecode", work))).collect();
        let mut compiled = Vec::new();
        for thread in running {
            match thread.join() {
                Ok(bytecode) => compiled.extend(bytecode.map_err(thread_error)?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(compiled)
    })
}

fn thread_error(error: std::io::Error) -> OpenError {
    OpenError::Build { what: "bytecode", reason: error.to_string(), output: String::new() }
}

/// Splits the modules' paths in the guest into shares of similar size.
fn shares(files: &[WheelFile]) -> Vec<Vec<String>> {
    let mut shares: Vec<Vec<String>> = Vec::new();
    let mut room = 0;
    for file in files.iter().filter(|file| file.is_module()) {
        if file.bytes.len() > room {
            shares.push(Vec::new());
            room = SHARE_SIZE.max(file.bytes.len());
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

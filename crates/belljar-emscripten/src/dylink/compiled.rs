//! A library on disk: translated, compiled and written to a directory once, and opened from there by later processes.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use wasmtime::Module;

use super::lazy::LazyFunctions;
use super::library::{Data, Library, LibraryError, LibraryHash};
use crate::engine::{CompileTier, Engine};
use crate::fs::FileBytes;
use crate::translate::lazy::{self, LazyModule};
use crate::translate::{self, Dylink, Options, Symbols};

/// The compiled module.
const CODE: &str = "library.cwasm";
/// The [`Description`] of the library.
const DESCRIPTION: &str = "library.description";
/// The concatenated bytes of its data segments.
const DATA: &str = "library.data";
/// The translated module, if the compiled one is its skeleton.
const FUNCTIONS: &str = "library.functions";

#[derive(Serialize, Deserialize)]
struct Description {
    fingerprint: String,
    hash: LibraryHash,
    symbols: Symbols,
    dylink: Dylink,
    /// The address relative to `__memory_base`, and the length, of each data segment.
    segments: Vec<(u32, u32)>,
}

impl Library {
    /// Translates and compiles the side module `wasm` and writes the result into `directory`, which must exist. The
    /// result is the same library for every tier: snapshots do not distinguish them.
    ///
    /// # Errors
    /// Fails if `wasm` is not a side module, uses a feature that this host does not support, or cannot be written.
    pub fn compile(engine: &Engine, effort: CompileTier, wasm: &[u8], directory: &Path) -> Result<(), LibraryError> {
        let options = Options { safepoints: true, stack_checks: true, ..Options::default() };
        let translated = translate::translate(wasm, &options);
        let translated = translated.map_err(|error| LibraryError::NotASideModule(error.to_string()))?;
        let dylink = translated.dylink.ok_or_else(|| LibraryError::NotASideModule("no `dylink.0` section".into()))?;
        let skeleton = match effort {
            CompileTier::Quick => lazy::write_skeleton(&translated.wasm),
            CompileTier::Optimized => Ok(None),
        };
        let skeleton = skeleton.map_err(|error| LibraryError::Compile(error.to_string()))?;
        if skeleton.is_some() {
            write(directory, FUNCTIONS, &translated.wasm)?;
        }
        let code = engine.compile(effort, skeleton.as_ref().unwrap_or(&translated.wasm));
        let code = code.map_err(|error| LibraryError::Compile(format!("{error:#}")))?;
        let mut data = Vec::new();
        let mut segments = Vec::with_capacity(translated.segments.len());
        for segment in &translated.segments {
            let length = u32::try_from(segment.bytes.len());
            let length = length.map_err(|_| LibraryError::Malformed("a data segment is too long".into()))?;
            segments.push((segment.offset, length));
            data.extend_from_slice(&segment.bytes);
        }
        let description = Description {
            fingerprint: engine.fingerprint(),
            hash: Sha256::digest(wasm).into(),
            symbols: translated.symbols,
            dylink,
            segments,
        };
        let description = postcard::to_stdvec(&description);
        let description = description.map_err(|error| LibraryError::Unavailable(error.to_string()))?;
        write(directory, CODE, &code)?;
        write(directory, DATA, &data)?;
        write(directory, DESCRIPTION, &description)
    }

    /// Opens the files that [`Library::compile`] wrote.
    ///
    /// # Safety
    /// The files in `directory` must be exactly those that [`Library::compile`] wrote: they contain native code.
    ///
    /// # Errors
    /// Fails if a file is missing or was written by another build.
    pub unsafe fn open(engine: &Engine, directory: &Path) -> Result<Self, LibraryError> {
        let path = directory.join(DESCRIPTION);
        let bytes = fs::read(&path).map_err(unavailable(&path))?;
        let description: Option<Description> = postcard::from_bytes(&bytes).ok();
        let description = description.filter(|description| description.fingerprint == engine.fingerprint());
        let description = description.ok_or_else(|| {
            LibraryError::Unavailable(format!("{} was written by another build", directory.display()))
        })?;
        let path = directory.join(DATA);
        let bytes = FileBytes::map(&path).map_err(unavailable(&path))?;
        let mut data = Vec::with_capacity(description.segments.len());
        let mut start = 0usize;
        for (offset, length) in description.segments {
            let end = start.saturating_add(length as usize);
            let piece = bytes.slice(start..end);
            let piece = piece.ok_or_else(|| LibraryError::Unavailable(format!("{} is cut short", path.display())))?;
            data.push(Data { offset, bytes: piece });
            start = end;
        }
        // SAFETY: the caller guarantees that the files are those that `compile` wrote.
        let module = unsafe { Module::deserialize_file(engine.wasmtime(), directory.join(CODE)) };
        let module = module.map_err(|error| LibraryError::Unavailable(format!("{error:#}")))?;
        let library = Self::new(description.hash, module, data, description.symbols, description.dylink)?;
        let path = directory.join(FUNCTIONS);
        if !path.exists() {
            return Ok(library);
        }
        let functions = LazyModule::read(FileBytes::map(&path).map_err(unavailable(&path))?);
        let functions = functions.map_err(|error| LibraryError::Unavailable(error.to_string()))?;
        Ok(library.with_functions(LazyFunctions::new(engine, functions)?))
    }
}

fn write(directory: &Path, name: &str, bytes: &[u8]) -> Result<(), LibraryError> {
    let path = directory.join(name);
    fs::write(&path, bytes).map_err(unavailable(&path))
}

fn unavailable(path: &Path) -> impl FnOnce(std::io::Error) -> LibraryError + use<> {
    let path = PathBuf::from(path);
    move |error| LibraryError::Unavailable(format!("{}: {error}", path.display()))
}

//! Wheels on disk, and reading their untrusted content.
//!
//! Reading produces bytes and paths relative to the interpreter's prefix and never writes files. It refuses all content
//! that a wheel does not need. Each reason for a refusal has a variant of [`WheelError`] and a test.
//! Format: <https://packaging.python.org/specifications/binary-distribution-format/>.

mod archive;
mod dist_info;
mod entry_points;
mod error;
mod layout;
mod paths;
mod record;
mod top_level;

use std::path::PathBuf;

pub use error::WheelError;

use crate::platform::Platform;
use crate::resolution::FileKind;

/// A file in the cache that matches its hash: a wheel, or a zip of shared libraries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wheel {
    /// The package's normalised name.
    pub name: String,
    /// The package's version.
    pub version: String,
    /// The file's name on the index.
    pub filename: String,
    /// The file's SHA-256 in lower-case hexadecimal.
    pub sha256: String,
    /// The kind of the file.
    pub kind: FileKind,
    /// The path of the file, which is never written to.
    pub path: PathBuf,
    /// The platform that the file was chosen for.
    pub platform: Platform,
}

/// The files of a wheel at their installed paths.
#[derive(Debug, Clone, Default)]
pub struct UnpackedWheel {
    /// The files, sorted by path.
    pub files: Vec<UnpackedFile>,
    /// The modules that the wheel provides according to its files, sorted: `google.protobuf`, `pydantic`.
    pub top_level: Vec<String>,
}

/// A file of a wheel.
#[derive(Clone, PartialEq, Eq)]
pub struct UnpackedFile {
    /// The path relative to the interpreter's prefix, with `/`: `lib/python3.14/site-packages/rich/__init__.py`.
    pub path: String,
    /// The content.
    pub bytes: Vec<u8>,
    /// True for a WebAssembly side module (`.so`), which has to be translated and compiled.
    pub is_library: bool,
}

impl Wheel {
    /// Reads and checks the file, and returns its content.
    pub fn unpack(&self) -> Result<UnpackedWheel, WheelError> {
        let bytes =
            std::fs::read(&self.path).map_err(|source| WheelError::Io { file: self.filename.clone(), source })?;
        match self.kind {
            FileKind::Wheel | FileKind::PythonOnly => layout::wheel(self, &bytes),
            FileKind::SharedLibrary => layout::shared_library(self, &bytes),
        }
    }
}

impl UnpackedFile {
    fn new(path: String, bytes: Vec<u8>) -> Self {
        let is_library = is_library_name(&path) && bytes.starts_with(b"\0asm");
        UnpackedFile { path, bytes, is_library }
    }
}

/// Returns whether a path is the name of a shared library: `x.so`, `libx.so.1.2`.
fn is_library_name(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.ends_with(".so")
        || name.split_once(".so.").is_some_and(|(_, version)| version.bytes().all(|b| b.is_ascii_digit() || b == b'.'))
}

impl std::fmt::Debug for UnpackedFile {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "UnpackedFile({:?}, {} bytes)", self.path, self.bytes.len())
    }
}

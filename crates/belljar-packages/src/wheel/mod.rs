//! A wheel on the disk, and reading it: nothing of what is in it is trusted.
//!
//! Reading gives bytes and paths relative to the interpreter's prefix, never writes, and refuses whatever a wheel has
//! no business to hold. What is refused has a line in [`WheelError`] and a test.
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
use crate::resolution::Kind;

/// A file in the cache whose bytes are those of its hash: a wheel, or a zip of shared libraries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wheel {
    /// The package's normalised name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The file's name, as the index has it.
    pub filename: String,
    /// sha256 of the file, in lower-case hexadecimal.
    pub sha256: String,
    /// What the file is.
    pub kind: Kind,
    /// Where the file lies. It is never written to.
    pub path: PathBuf,
    /// The platform it was chosen for.
    pub platform: Platform,
}

/// The files of a wheel, where they go.
#[derive(Debug, Clone, Default)]
pub struct Unpacked {
    /// Sorted by path.
    pub files: Vec<UnpackedFile>,
    /// The modules that it provides, as far as its files tell: `pydantic`, `google.protobuf`. Sorted.
    pub top_level: Vec<String>,
}

/// One file of a wheel.
#[derive(Clone, PartialEq, Eq)]
pub struct UnpackedFile {
    /// Relative to the interpreter's prefix, with `/`: `lib/python3.14/site-packages/rich/__init__.py`.
    pub path: String,
    /// The content.
    pub bytes: Vec<u8>,
    /// A WebAssembly side module (`.so`), to be translated and compiled.
    pub is_library: bool,
}

impl Wheel {
    /// Reads the file and gives what it holds, checked.
    pub fn unpack(&self) -> Result<Unpacked, WheelError> {
        let bytes =
            std::fs::read(&self.path).map_err(|source| WheelError::Io { file: self.filename.clone(), source })?;
        match self.kind {
            Kind::Wheel | Kind::PythonOnly => layout::wheel(self, &bytes),
            Kind::SharedLibrary => layout::shared_library(self, &bytes),
        }
    }
}

impl UnpackedFile {
    fn new(path: String, bytes: Vec<u8>) -> Self {
        let is_library = is_library_name(&path) && bytes.starts_with(b"\0asm");
        UnpackedFile { path, bytes, is_library }
    }
}

/// `x.so`, `libx.so.1.2`.
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

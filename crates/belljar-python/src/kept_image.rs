//! Copies of images outside of the cache, for sessions that outlive the cache's image.
//!
//! | file | contents |
//! | --- | --- |
//! | `about.json` | [`Description`] |
//! | `image.zst` | the image's file |
//! | `layer-N.tar.zst` | the files of the N-th layer below the image |
//!
//! The directory contains no compiled code, and is not trusted: the image's memory must match its identifier, and a
//! damaged layer damages only the session. The program and its libraries are those of the running build.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use belljar_emscripten::os::{open_regular_file, read_at};
use belljar_emscripten::snapshot::anonymous_file;
use serde::{Deserialize, Serialize};

use crate::guest_protocol::GUEST_PROTOCOL;
use crate::image::Image;
use crate::layer_archive;
use crate::packages::{PackageSet, WheelId};
use crate::python::Python;

const ABOUT: &str = "about.json";
const IMAGE: &str = "image.zst";
/// The zstd level: an image is written once, between two calls.
const COMPRESSION_LEVEL: i32 = 1;
/// The maximum size of an image's file, in bytes: memory is at most 4 GiB.
const MAX_IMAGE: u64 = (4 << 30) + (128 << 20);
/// The maximum size of a layer, in bytes: several times that of the standard library.
const MAX_LAYER: u64 = 512 << 20;
const MAX_LAYERS: usize = 16;
const MAX_ABOUT: u64 = 1 << 20;

/// A kept image, by which another process opens it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KeptImage {
    /// Its directory.
    pub directory: PathBuf,
    /// The identifier of the image.
    pub id: String,
}

/// The facts about a kept image.
#[derive(Debug, Serialize, Deserialize)]
struct Description {
    /// [`GUEST_PROTOCOL`] of the guest package in the image.
    protocol: u32,
    /// The identity of the program.
    program: String,
    /// The Python in the image, for messages.
    python: String,
    /// The version of Belljar that built the image, for messages.
    belljar: String,
    /// The identifiers of the layers below the image, in order.
    layers: Vec<String>,
    /// The wheels in the image.
    wheels: Vec<WheelId>,
}

/// An error of writing or opening a kept image.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeptImageError {
    /// A file cannot be read or written.
    #[error("failed to access the kept image in {path}: {error}")]
    Io { path: String, error: io::Error },
    /// The image is damaged, or was changed.
    #[error("its kept image is damaged: {0}")]
    Damaged(String),
    /// Another build is needed.
    #[error(
        "it was saved by Belljar {belljar} with {python}, which this build cannot run. Use that build to continue the \
         session, or to export its cells: belljar sessions export --notebook"
    )]
    OtherBuild { belljar: String, python: String },
    /// The wheels of the image are not available.
    #[error("its packages are not available: {0}")]
    Packages(String),
}

/// Writes a copy of `image` into an empty directory.
pub(crate) fn write(python: &Python, image: &Image, directory: &Path) -> Result<(), KeptImageError> {
    let failed = |error| KeptImageError::Io { path: directory.display().to_string(), error };
    let about = Description {
        protocol: GUEST_PROTOCOL,
        program: python.program().identity().to_owned(),
        python: python.description(),
        belljar: env!("CARGO_PKG_VERSION").to_owned(),
        layers: image.base_layers().iter().map(|layer| layer.id().to_owned()).collect(),
        wheels: image.packages().wheel_ids().cloned().collect(),
    };
    let file = image.snapshot().file();
    let mut reader = FileReader { file, offset: 0 };
    compress(&directory.join(IMAGE), |to| io::copy(&mut reader, to).map(drop)).map_err(failed)?;
    for (number, layer) in image.base_layers().iter().enumerate() {
        compress(&directory.join(layer_file(number)), |to| layer_archive::write(layer, to)).map_err(failed)?;
    }
    let about = serde_json::to_vec(&about).map_err(|error| failed(error.into()))?;
    fs::write(directory.join(ABOUT), about).map_err(failed)
}

/// Opens a kept image. `packages` returns its packages.
///
/// Must be called on a guest thread.
pub(crate) fn open(
    python: &Python,
    KeptImage { directory, id }: &KeptImage,
    packages: impl FnOnce(&[WheelId]) -> Result<PackageSet, String>,
) -> Result<Image, KeptImageError> {
    let failed = |error| KeptImageError::Io { path: directory.display().to_string(), error };
    let damaged = |error: &dyn std::fmt::Display| KeptImageError::Damaged(error.to_string());
    let mut json = Vec::new();
    open_regular_file(&directory.join(ABOUT))
        .and_then(|file| file.take(MAX_ABOUT).read_to_end(&mut json))
        .map_err(failed)?;
    let about: Description = serde_json::from_slice(&json).map_err(|error| damaged(&error))?;
    if about.program != python.program().identity() || about.protocol != GUEST_PROTOCOL {
        return Err(KeptImageError::OtherBuild { belljar: about.belljar, python: about.python });
    }
    if about.layers.len() > MAX_LAYERS {
        return Err(KeptImageError::Damaged("it has too many layers".into()));
    }
    let mut layers = Vec::new();
    for (number, id) in about.layers.iter().enumerate() {
        let reader = decompress(&directory.join(layer_file(number)), MAX_LAYER).map_err(failed)?;
        let layer = layer_archive::read(id, reader).map_err(|error| damaged(&error))?;
        layers.push(layer);
    }
    // A private copy: the directory's file may be changed or truncated while the image is mapped.
    let mut copy = anonymous_file().map_err(failed)?;
    let mut reader = decompress(&directory.join(IMAGE), MAX_IMAGE).map_err(failed)?;
    io::copy(&mut reader, &mut copy).map_err(failed)?;
    let set = packages(&about.wheels).map_err(KeptImageError::Packages)?;
    let image = Image::from_file(copy, python.program(), layers, set).map_err(|error| damaged(&error))?;
    let digest = image.snapshot().memory_digest().map_err(|error| damaged(&error))?;
    if image.id() != id || hex::encode(&digest[..16]) != *id {
        return Err(KeptImageError::Damaged("its memory does not match its identifier".into()));
    }
    Ok(image)
}

fn layer_file(number: usize) -> String {
    format!("layer-{number}.tar.zst")
}

/// Writes a compressed file, and syncs it to the disk.
fn compress(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut encoder = zstd::Encoder::new(BufWriter::new(File::create_new(path)?), COMPRESSION_LEVEL)?;
    write(&mut encoder)?;
    encoder.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?.sync_data()
}

/// Reads at most `limit` bytes of the contents of a compressed file.
fn decompress(path: &Path, limit: u64) -> io::Result<impl Read + use<>> {
    Ok(BufReader::with_capacity(1 << 20, zstd::Decoder::new(open_regular_file(path)?)?.take(limit)))
}

/// Reads a file that others read at the same time through the same descriptor.
struct FileReader<'a> {
    file: &'a File,
    offset: u64,
}

impl Read for FileReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = read_at(self.file, buffer, self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }
}

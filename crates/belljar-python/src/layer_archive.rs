//! The files of a layer as an archive, for another process and for another build.

use std::io::{self, Read, Write};
use std::sync::Arc;

use belljar_emscripten::fs::{Layer, LayerBuilder, LayerContent};

/// Writes the files of a layer.
///
/// # Errors
/// The error of `to`.
pub(crate) fn write(layer: &Layer, to: &mut dyn Write) -> io::Result<()> {
    let mut archive = tar::Builder::new(to);
    for (path, content) in layer.contents() {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        let (kind, bytes, target): (_, &[u8], _) = match content {
            LayerContent::File(bytes) => (tar::EntryType::Regular, &bytes[..], None),
            // The layers below an image have none, and those of packages only bytecode, which is made again.
            LayerContent::Deferred => continue,
            LayerContent::Directory => (tar::EntryType::Directory, &[], None),
            LayerContent::Link(target) => (tar::EntryType::Symlink, &[], Some(target)),
        };
        header.set_entry_type(kind);
        header.set_size(bytes.len() as u64);
        match target {
            Some(target) => archive.append_link(&mut header, path, target)?,
            None => archive.append_data(&mut header, path, bytes)?,
        }
    }
    archive.finish()
}

/// Reads the files of a layer, which gets this identifier.
///
/// # Errors
/// Returns the reason why this is not an archive of a layer.
pub(crate) fn read(id: &str, from: impl Read) -> Result<Arc<Layer>, String> {
    let damaged = |error: &dyn std::fmt::Display| error.to_string();
    let mut builder = LayerBuilder::new();
    let mut archive = tar::Archive::new(from);
    for entry in archive.entries().map_err(|error| damaged(&error))? {
        let mut entry = entry.map_err(|error| damaged(&error))?;
        let path = String::from_utf8(entry.path_bytes().into_owned()).map_err(|error| damaged(&error))?;
        let added = match entry.header().entry_type() {
            tar::EntryType::Regular => {
                let mut bytes = Vec::new();
                entry.read_to_end(&mut bytes).map_err(|error| damaged(&error))?;
                builder.file(&path, bytes)
            }
            tar::EntryType::Directory => builder.directory(&path),
            tar::EntryType::Symlink => {
                let target = entry.link_name_bytes().map(|target| String::from_utf8_lossy(&target).into_owned());
                builder.symlink(&path, &target.unwrap_or_default())
            }
            _ => return Err("a layer has an unknown type of file".into()),
        };
        added.map_err(|error| damaged(&error))?;
    }
    Ok(builder.finish(id))
}

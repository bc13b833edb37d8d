//! Archives whose bytes depend on the names and contents of their files only.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder};
use rawzip::time::UtcDateTime;
use rawzip::{CompressionMethod, ZipArchiveWriter};

/// The permissions of programs and of other files.
const PROGRAM: u32 = 0o755;
const FILE: u32 = 0o644;
/// The type of a regular file in Unix's modes.
const REGULAR: u32 = 0o100_000;

/// A file of an archive.
#[derive(Debug)]
pub(super) struct Entry {
    path: String,
    content: Vec<u8>,
    mode: u32,
}

impl Entry {
    pub(super) fn program(path: impl Into<String>, content: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), content: content.into(), mode: PROGRAM }
    }

    pub(super) fn file(path: impl Into<String>, content: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), content: content.into(), mode: FILE }
    }
}

/// Returns a compressed tar archive of these files. The header of gzip has neither a time nor a name.
pub(super) fn tar_gz(entries: Vec<Entry>, epoch: u64) -> Result<Vec<u8>, String> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::best()));
    for Entry { path, content, mode } in sorted(entries) {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(mode);
        header.set_mtime(epoch);
        header.set_uid(0);
        header.set_gid(0);
        let appended = archive.append_data(&mut header, &path, content.as_slice());
        appended.map_err(|error| format!("failed to archive {path}: {error}"))?;
    }
    let finished = archive.into_inner().and_then(GzEncoder::finish);
    finished.map_err(|error| format!("failed to finish an archive: {error}"))
}

/// Returns a ZIP archive of these files.
pub(super) fn zip(entries: Vec<Entry>, epoch: u64) -> Result<Vec<u8>, String> {
    let modified = UtcDateTime::from_unix(i64::try_from(epoch).unwrap_or(i64::MAX));
    let mut archive = ZipArchiveWriter::new(Vec::new());
    for entry in sorted(entries) {
        let failed = |error: &dyn std::fmt::Display| format!("failed to archive {}: {error}", entry.path);
        let file = archive.new_file(entry.path.as_str()).compression_method(CompressionMethod::DEFLATE);
        let file = file.last_modified(modified).unix_permissions(REGULAR | entry.mode);
        let (mut file, config) = file.start().map_err(|error| failed(&error))?;
        let mut writer = config.wrap(DeflateEncoder::new(&mut file, Compression::best()));
        writer.write_all(&entry.content).map_err(|error| failed(&error))?;
        let (encoder, descriptor) = writer.finish().map_err(|error| failed(&error))?;
        encoder.finish().map_err(|error| failed(&error))?;
        file.finish(descriptor).map_err(|error| failed(&error))?;
    }
    archive.finish().map_err(|error| format!("failed to finish an archive: {error}"))
}

fn sorted(mut entries: Vec<Entry>) -> Vec<Entry> {
    entries.sort_by(|left, right| left.path.cmp(&right.path));
    entries
}

//! Reading of a zip archive into memory, with size limits and without ambiguities.
//!
//! Zip stores the same information in several places, and readers differ in which of them they use. A file that two
//! readers interpret differently can bypass a check by the first one (PEP 715's discussion, uv's advisories of 2025).
//! Ambiguous archives are therefore refused: entries that overlap, names that differ between the directory and the
//! entry, bytes after the end.

use std::collections::BTreeMap;
use std::io::Read;

use rawzip::{CompressionMethod, ZipArchive, ZipSliceArchive};

use super::error::WheelError;
use super::paths::{PathRegistry, path_violation};

/// The maximum number of entries. The largest wheels have about thirty thousand.
const MAX_ENTRIES: u64 = 100_000;
/// The maximum size of all entries together, unpacked.
const MAX_TOTAL: u64 = 1 << 30;
/// The unpacked size up to which the compression ratio is not limited.
const UNLIMITED_RATIO_TOTAL: u64 = 64 << 20;
/// The maximum compression ratio of larger archives. Text shrinks to a tenth at best.
const MAX_RATIO: u64 = 100;

/// The mask of the file type in the upper half of an entry's external attributes (`S_IFMT`), and its values.
const UNIX_TYPE: u32 = 0o170_000;
const UNIX_REGULAR: u32 = 0o100_000;
const UNIX_DIRECTORY: u32 = 0o040_000;

/// Returns the files of an archive by path. `file` is the archive's name in errors.
pub(super) fn read(file: &str, bytes: &[u8]) -> Result<BTreeMap<String, Vec<u8>>, WheelError> {
    let archive = ZipArchive::from_slice(bytes).map_err(|error| damaged(file, error))?;
    if archive.entries_hint() > MAX_ENTRIES {
        return Err(too_large(file, format!("it has more than {MAX_ENTRIES} files")));
    }
    let end = archive.end_offset();
    if end != bytes.len() as u64 {
        return Err(damaged(file, "there are bytes after its end"));
    }
    let mut reader = Reader { file, archive: &archive, paths: PathRegistry::default(), total: 0, ranges: Vec::new() };
    let mut files = BTreeMap::new();
    let mut count = 0;
    let mut entries = archive.entries();
    while let Some(header) = entries.next_entry().map_err(|error| damaged(file, error))? {
        count += 1;
        if count > MAX_ENTRIES {
            return Err(too_large(file, format!("it has more than {MAX_ENTRIES} files")));
        }
        let header = Header {
            name: std::str::from_utf8(header.file_path().as_bytes())
                .map_err(|_| damaged(file, "a file's name is not UTF-8"))?
                .to_owned(),
            wayfinder: header.wayfinder(),
            local_offset: header.local_header_offset(),
            encrypted: header.flags().is_encrypted()
                || header.flags().has_strong_encryption()
                || header.flags().is_masked(),
            method: header.compression_method(),
            unix_type: (header.external_attributes() >> 16) & UNIX_TYPE,
        };
        if let Some(content) = reader.entry(&header)? {
            files.insert(header.name, content);
        }
    }
    if count != archive.entries_hint() {
        return Err(damaged(file, "its directory and its end record disagree on the number of entries"));
    }
    reader.check_overlap()?;
    Ok(files)
}

/// The archive directory's record of an entry.
struct Header {
    name: String,
    wayfinder: rawzip::ZipArchiveEntryWayfinder,
    local_offset: u64,
    encrypted: bool,
    method: CompressionMethod,
    unix_type: u32,
}

struct Reader<'a> {
    file: &'a str,
    archive: &'a ZipSliceArchive<&'a [u8]>,
    paths: PathRegistry,
    /// The unpacked size of the entries so far.
    total: u64,
    /// The range of every entry, from its header to the end of its data.
    ranges: Vec<(u64, u64)>,
}

impl Reader<'_> {
    /// Returns the content of a file, or `None` for a directory.
    fn entry(&mut self, header: &Header) -> Result<Option<Vec<u8>>, WheelError> {
        let name = header.name.as_str();
        if let Some(reason) = path_violation(name) {
            return Err(self.refuse(name, reason));
        }
        if header.encrypted {
            return Err(self.refuse(name, "it is encrypted"));
        }
        let directory = name.strip_suffix('/');
        match (header.unix_type, directory) {
            (0 | UNIX_REGULAR, None) | (0 | UNIX_DIRECTORY, Some(_)) => {}
            (UNIX_REGULAR | UNIX_DIRECTORY, _) => return Err(self.refuse(name, "it is both a file and a directory")),
            _ => return Err(self.refuse(name, "it is neither a file nor a directory, but a link or a device")),
        }
        let added = match directory {
            Some(path) => self.paths.add_directory(path),
            None => self.paths.add_file(name),
        };
        added.map_err(|conflict| self.refuse(name, &conflict.to_string()))?;

        let entry = self.archive.get_entry(header.wayfinder).map_err(|error| damaged(self.file, error))?;
        let local = entry.local_header();
        if local.file_path().as_bytes() != name.as_bytes() || local.compression_method() != header.method {
            return Err(self.refuse(name, "the archive's directory and the entry itself disagree"));
        }
        let (_, end) = entry.compressed_data_range();
        if end > self.archive.directory_offset() {
            return Err(self.refuse(name, "its data overlap the archive's directory"));
        }
        self.ranges.push((header.local_offset, end));

        let claimed = header.wayfinder.uncompressed_size_hint();
        if directory.is_some() {
            return match claimed {
                0 => Ok(None),
                _ => Err(self.refuse(name, "it is a directory with content")),
            };
        }
        self.count(claimed)?;
        let mut content = Vec::with_capacity(usize::try_from(claimed).unwrap_or_default());
        // Reading one byte more than claimed detects content that is larger than claimed.
        let read = match header.method {
            CompressionMethod::STORE => {
                entry.verifying_reader(entry.data().take(claimed + 1)).read_to_end(&mut content)
            }
            CompressionMethod::DEFLATE => {
                let inflated = flate2::bufread::DeflateDecoder::new(entry.data()).take(claimed + 1);
                entry.verifying_reader(inflated).read_to_end(&mut content)
            }
            method => {
                let reason = format!("it is compressed by method {}, which wheels do not use", method.as_u16());
                return Err(self.refuse(name, &reason));
            }
        };
        read.map_err(|error| damaged(self.file, format!("{name}: {error}")))?;
        Ok(Some(content))
    }

    /// Adds bytes that are about to be unpacked to the total, and checks the limits.
    fn count(&mut self, bytes: u64) -> Result<(), WheelError> {
        self.total = self.total.saturating_add(bytes);
        if self.total > MAX_TOTAL {
            return Err(too_large(self.file, format!("more than {} MiB", MAX_TOTAL >> 20)));
        }
        let packed = self.archive.get_ref().len() as u64;
        if self.total > UNLIMITED_RATIO_TOTAL && self.total / MAX_RATIO > packed {
            return Err(too_large(self.file, format!("more than {MAX_RATIO} times its size")));
        }
        Ok(())
    }

    fn check_overlap(&mut self) -> Result<(), WheelError> {
        self.ranges.sort_unstable();
        match self.ranges.windows(2).any(|pair| pair[0].1 > pair[1].0) {
            true => Err(damaged(self.file, "its files overlap")),
            false => Ok(()),
        }
    }

    fn refuse(&self, path: &str, reason: &str) -> WheelError {
        WheelError::Path { file: self.file.to_owned(), path: path.to_owned(), reason: reason.to_owned() }
    }
}

fn damaged(file: &str, reason: impl std::fmt::Display) -> WheelError {
    WheelError::Archive { file: file.to_owned(), reason: reason.to_string() }
}

fn too_large(file: &str, reason: String) -> WheelError {
    WheelError::TooLarge { file: file.to_owned(), reason }
}

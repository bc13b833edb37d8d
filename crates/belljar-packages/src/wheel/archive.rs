//! A zip archive read whole into memory, with bounds, and without any of zip's ambiguities.
//!
//! Zip says the same thing in several places, and readers differ in which they believe; a file that two readers see
//! differently is a way past whoever looked at it first (PEP 715's discussion, uv's advisories of 2025). So what
//! is ambiguous is refused: entries that overlap, names that differ between directory and entry, bytes after the end.

use std::collections::BTreeMap;
use std::io::Read;

use rawzip::{CompressionMethod, ZipArchive, ZipSliceArchive};

use super::error::WheelError;
use super::paths::{Taken, objection};

/// Entries in one archive. The largest wheels known have some thirty thousand.
const MAX_ENTRIES: u64 = 100_000;
/// Bytes of all entries together, unpacked.
const MAX_TOTAL: u64 = 1 << 30;
/// Up to here a wheel may be compressed as well as it likes…
const UNSUSPICIOUS_TOTAL: u64 = 64 << 20;
/// …and beyond by this factor at most. Text shrinks to a tenth at best.
const MAX_RATIO: u64 = 100;

/// The file type in the upper half of an entry's external attributes (`S_IFMT` and its values).
const UNIX_TYPE: u32 = 0o170_000;
const UNIX_REGULAR: u32 = 0o100_000;
const UNIX_DIRECTORY: u32 = 0o040_000;

/// The files of an archive by path. `file` names it in errors.
pub(super) fn read(file: &str, bytes: &[u8]) -> Result<BTreeMap<String, Vec<u8>>, WheelError> {
    let archive = ZipArchive::from_slice(bytes).map_err(|error| damaged(file, error))?;
    if archive.entries_hint() > MAX_ENTRIES {
        return Err(too_large(file, format!("it has more than {MAX_ENTRIES} files")));
    }
    let end = archive.end_offset();
    if end != bytes.len() as u64 {
        return Err(damaged(file, "there are bytes after its end"));
    }
    let mut reader = Reader { file, archive: &archive, taken: Taken::default(), total: 0, ranges: Vec::new() };
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
        return Err(damaged(file, "its directory has another number of entries than its end says"));
    }
    reader.no_overlap()?;
    Ok(files)
}

/// What the archive's directory says of an entry.
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
    taken: Taken,
    total: u64,
    /// Of every entry, from its header to the end of its data.
    ranges: Vec<(u64, u64)>,
}

impl Reader<'_> {
    /// The content of a file; `None` for a directory.
    fn entry(&mut self, header: &Header) -> Result<Option<Vec<u8>>, WheelError> {
        let name = header.name.as_str();
        if let Some(reason) = objection(name) {
            return Err(self.path(name, reason));
        }
        if header.encrypted {
            return Err(self.path(name, "it is encrypted"));
        }
        let directory = name.strip_suffix('/');
        match (header.unix_type, directory) {
            (0 | UNIX_REGULAR, None) | (0 | UNIX_DIRECTORY, Some(_)) => {}
            (UNIX_REGULAR | UNIX_DIRECTORY, _) => return Err(self.path(name, "it is both a file and a directory")),
            _ => return Err(self.path(name, "it is neither a file nor a directory, but a link or a device")),
        }
        let taken = match directory {
            Some(path) => self.taken.directory(path),
            None => self.taken.file(name),
        };
        taken.map_err(|reason| self.path(name, &reason))?;

        let entry = self.archive.get_entry(header.wayfinder).map_err(|error| damaged(self.file, error))?;
        let local = entry.local_header();
        if local.file_path().as_bytes() != name.as_bytes() || local.compression_method() != header.method {
            return Err(self.path(name, "the archive's directory and the entry itself disagree"));
        }
        let (_, end) = entry.compressed_data_range();
        if end > self.archive.directory_offset() {
            return Err(self.path(name, "its data overlap the archive's directory"));
        }
        self.ranges.push((header.local_offset, end));

        let claimed = header.wayfinder.uncompressed_size_hint();
        if directory.is_some() {
            return match claimed {
                0 => Ok(None),
                _ => Err(self.path(name, "it is a directory with content")),
            };
        }
        self.count(claimed)?;
        let mut content = Vec::with_capacity(usize::try_from(claimed).unwrap_or_default());
        // One byte more than claimed is enough to notice that there are more.
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
                return Err(self.path(name, &reason));
            }
        };
        read.map_err(|error| damaged(self.file, format!("{name}: {error}")))?;
        Ok(Some(content))
    }

    /// Counts bytes that are about to be unpacked.
    fn count(&mut self, bytes: u64) -> Result<(), WheelError> {
        self.total = self.total.saturating_add(bytes);
        if self.total > MAX_TOTAL {
            return Err(too_large(self.file, format!("more than {} MiB", MAX_TOTAL >> 20)));
        }
        let packed = self.archive.get_ref().len() as u64;
        if self.total > UNSUSPICIOUS_TOTAL && self.total / MAX_RATIO > packed {
            return Err(too_large(self.file, format!("more than {MAX_RATIO} times its size")));
        }
        Ok(())
    }

    fn no_overlap(&mut self) -> Result<(), WheelError> {
        self.ranges.sort_unstable();
        match self.ranges.windows(2).any(|pair| pair[0].1 > pair[1].0) {
            true => Err(damaged(self.file, "its files overlap")),
            false => Ok(()),
        }
    }

    fn path(&self, path: &str, reason: &str) -> WheelError {
        WheelError::Path { file: self.file.to_owned(), path: path.to_owned(), reason: reason.to_owned() }
    }
}

fn damaged(file: &str, reason: impl std::fmt::Display) -> WheelError {
    WheelError::Archive { file: file.to_owned(), reason: reason.to_string() }
}

fn too_large(file: &str, reason: String) -> WheelError {
    WheelError::TooLarge { file: file.to_owned(), reason }
}

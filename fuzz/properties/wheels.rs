//! Unpacks wheels as an index could serve them. The input is an archive, or the files of one: then the archive, its
//! checksums and its list of files are valid, so that what follows them is reached. A wheel may be refused, but one
//! that is unpacked has files within its prefix alone, each of them once.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use belljar_packages::{FileKind, Platform, Wheel};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

/// Directory of the wheel's metadata. A name that begins with `@` is within it.
const INFO: &str = "x-1.0.dist-info/";
/// The version with which all entries can be read, and that of their writer: Unix.
const VERSION: u16 = 20;
const WRITER: u16 = 3 << 8 | VERSION;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().unwrap());

/// Splits the input into files: the length of a name, the name, the length of the content in two bytes, the content.
fn files(mut bytes: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    fn take<'a>(bytes: &mut &'a [u8], length: usize) -> &'a [u8] {
        let (taken, rest) = bytes.split_at(length.min(bytes.len()));
        *bytes = rest;
        taken
    }
    let mut files = Vec::new();
    while let [length, rest @ ..] = bytes
        && files.len() < 50
    {
        bytes = rest;
        let name = take(&mut bytes, usize::from(*length));
        let name = match name {
            [b'@', name @ ..] => [INFO.as_bytes(), name].concat(),
            name => name.to_vec(),
        };
        let length = take(&mut bytes, 2).iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        files.push((name, take(&mut bytes, length).to_vec()));
    }
    files
}

/// Returns the list of files with their hashes.
fn record(files: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut record: Vec<u8> = Vec::new();
    for (name, content) in files {
        let name = String::from_utf8_lossy(name).replace('"', "\"\"");
        let hash = URL_SAFE_NO_PAD.encode(Sha256::digest(content));
        record.extend(format!("\"{name}\",sha256={hash},{}\n", content.len()).into_bytes());
    }
    record.extend(format!("{INFO}RECORD,,\n").into_bytes());
    record
}

/// Returns an archive of these files, without compression.
fn archive(files: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let (mut archive, mut directory): (Vec<u8>, Vec<u8>) = (Vec::new(), Vec::new());
    for (name, content) in files {
        let (offset, size) = (archive.len() as u32, content.len() as u32);
        // The flags, the method, the time and the date.
        let mut fields: Vec<u8> = [0, 0, 0, 0x21_u16].iter().flat_map(|field| field.to_le_bytes()).collect();
        fields.extend([crc32fast::hash(content), size, size].iter().flat_map(|field| field.to_le_bytes()));
        fields.extend((name.len() as u16).to_le_bytes());
        archive.extend(b"PK\x03\x04");
        archive.extend(VERSION.to_le_bytes());
        archive.extend(&fields);
        archive.extend(0_u16.to_le_bytes());
        archive.extend(name);
        archive.extend(content);
        directory.extend(b"PK\x01\x02");
        directory.extend([WRITER, VERSION].iter().flat_map(|field| field.to_le_bytes()));
        directory.extend(&fields);
        // Lengths of extra fields and a comment, the disk, internal attributes.
        directory.extend([0; 8]);
        // The mode of a file, or of a directory.
        let mode: u32 = if name.ends_with(b"/") { 0o040_755 } else { 0o100_644 };
        directory.extend((mode << 16).to_le_bytes());
        directory.extend(offset.to_le_bytes());
        directory.extend(name);
    }
    let (offset, size, count) = (archive.len() as u32, directory.len() as u32, files.len() as u16);
    archive.extend(&directory);
    archive.extend(b"PK\x05\x06");
    archive.extend([0, 0, count, count].iter().flat_map(|field| field.to_le_bytes()));
    archive.extend([size, offset].iter().flat_map(|field| field.to_le_bytes()));
    archive.extend([0; 2]);
    archive
}

/// Checks an archive, or the files of one.
pub(crate) fn check(bytes: &[u8]) {
    let [choice, bytes @ ..] = bytes else { return };
    let kind = match choice & 3 {
        0 | 1 => FileKind::Wheel,
        2 => FileKind::PythonOnly,
        _ => FileKind::SharedLibrary,
    };
    let content = if choice & 4 == 0 {
        bytes.to_vec()
    } else {
        let mut files = files(bytes);
        if choice & 8 == 0 {
            files.push((
                format!("{INFO}METADATA").into_bytes(),
                b"Metadata-Version: 2.1\nName: x\nVersion: 1.0\n".to_vec(),
            ));
            files.push((format!("{INFO}WHEEL").into_bytes(), b"Wheel-Version: 1.0\n".to_vec()));
        }
        files.push((format!("{INFO}RECORD").into_bytes(), record(&files)));
        archive(&files)
    };
    let path = FOLDER.path().join("wheel");
    std::fs::write(&path, content).unwrap();
    let wheel = Wheel {
        name: "x".into(),
        version: "1.0".into(),
        filename: "x-1.0-py3-none-any.whl".into(),
        sha256: String::new(),
        kind,
        path,
        platform: Platform::cpython_3_14(),
    };
    let Ok(unpacked) = wheel.unpack() else { return };
    let mut paths = BTreeSet::new();
    for file in &unpacked.files {
        let is_within = file.path.split('/').all(|part| !matches!(part, "" | "." | ".."));
        assert!(is_within && !file.path.contains(['\\', '\0']), "{:?}", file.path);
        assert!(paths.insert(&file.path), "{:?} is there twice", file.path);
    }
}

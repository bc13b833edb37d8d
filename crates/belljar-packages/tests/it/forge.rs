//! Generated wheels for tests: valid ones, and ones with exactly one defect.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use belljar_packages::{FileKind, Platform, Wheel};
use flate2::Crc;
use flate2::write::DeflateEncoder;

/// An entry of an archive. Each field can be set to an inconsistent value.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) name: Vec<u8>,
    /// The name in the entry's own header, if it differs.
    pub(crate) local_name: Option<Vec<u8>>,
    pub(crate) data: Vec<u8>,
    pub(crate) deflated: bool,
    /// The size in the directory, if it differs.
    pub(crate) claimed: Option<u32>,
    /// The Unix mode, including the file type.
    pub(crate) mode: u32,
    pub(crate) flags: u16,
    /// The compression method in the headers, if it differs from that of the data.
    pub(crate) method: Option<u16>,
    /// The index of the entry that the directory points to instead.
    pub(crate) at: Option<usize>,
}

impl Entry {
    pub(crate) fn file(name: &str, data: &[u8]) -> Self {
        Entry {
            name: name.as_bytes().to_vec(),
            local_name: None,
            data: data.to_vec(),
            deflated: true,
            claimed: None,
            mode: 0o100_644,
            flags: 0,
            method: None,
            at: None,
        }
    }
}

/// Returns the bytes of a zip archive.
pub(crate) fn zip(entries: &[Entry]) -> Vec<u8> {
    let mut archive = Vec::new();
    let mut directory = Vec::new();
    let mut offsets = Vec::new();
    for entry in entries {
        let mut crc = Crc::new();
        crc.update(&entry.data);
        let packed = match entry.deflated {
            true => {
                let mut encoder = DeflateEncoder::new(Vec::new(), flate2::Compression::default());
                encoder.write_all(&entry.data).unwrap();
                encoder.finish().unwrap()
            }
            false => entry.data.clone(),
        };
        let method = entry.method.unwrap_or(if entry.deflated { 8 } else { 0 });
        let size = entry.claimed.unwrap_or(entry.data.len() as u32);
        offsets.push(archive.len() as u32);
        let common = |name: &[u8]| {
            let mut bytes = Vec::new();
            bytes.extend(20u16.to_le_bytes());
            bytes.extend(entry.flags.to_le_bytes());
            bytes.extend(method.to_le_bytes());
            bytes.extend([0; 4]);
            bytes.extend(crc.sum().to_le_bytes());
            bytes.extend((packed.len() as u32).to_le_bytes());
            bytes.extend(size.to_le_bytes());
            bytes.extend((name.len() as u16).to_le_bytes());
            bytes.extend([0; 2]);
            bytes
        };
        let local_name = entry.local_name.as_ref().unwrap_or(&entry.name);
        archive.extend(0x0403_4b50u32.to_le_bytes());
        archive.extend(common(local_name));
        archive.extend(local_name);
        archive.extend(&packed);
        directory.extend(0x0201_4b50u32.to_le_bytes());
        directory.extend((3u16 << 8 | 20).to_le_bytes());
        directory.extend(common(&entry.name));
        directory.extend([0; 6]);
        directory.extend((entry.mode << 16).to_le_bytes());
        directory.extend(offsets[entry.at.unwrap_or(offsets.len() - 1)].to_le_bytes());
        directory.extend(&entry.name);
    }
    let start = archive.len() as u32;
    archive.extend(&directory);
    archive.extend(0x0605_4b50u32.to_le_bytes());
    archive.extend([0; 4]);
    for _ in 0..2 {
        archive.extend((entries.len() as u16).to_le_bytes());
    }
    archive.extend((directory.len() as u32).to_le_bytes());
    archive.extend(start.to_le_bytes());
    archive.extend([0; 2]);
    archive
}

/// A builder of wheels.
pub(crate) struct Forge {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    pub(crate) tag: &'static str,
    pub(crate) entries: Vec<Entry>,
    pub(crate) metadata: String,
    /// The stem of the `.dist-info` directory: `{name}-{version}`.
    pub(crate) stem: String,
    /// A change of RECORD before it is written.
    pub(crate) change_record: fn(String) -> String,
}

impl Forge {
    /// Creates a builder for a pure wheel with one module.
    pub(crate) fn new(name: &'static str, version: &'static str) -> Self {
        Forge {
            name,
            version,
            tag: "py3-none-any",
            entries: vec![Entry::file(&format!("{name}/__init__.py"), b"answer = 42\n")],
            metadata: format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"),
            stem: format!("{name}-{version}"),
            change_record: |record| record,
        }
    }

    pub(crate) fn tag(mut self, tag: &'static str) -> Self {
        self.tag = tag;
        self
    }

    pub(crate) fn requires(mut self, requirement: &str) -> Self {
        self.metadata.push_str(&format!("Requires-Dist: {requirement}\n"));
        self
    }

    pub(crate) fn file(self, name: &str, data: &[u8]) -> Self {
        self.entry(Entry::file(name, data))
    }

    pub(crate) fn entry(mut self, entry: Entry) -> Self {
        self.entries.push(entry);
        self
    }

    pub(crate) fn info(self, name: &str, data: &[u8]) -> Self {
        let path = format!("{}.dist-info/{name}", self.stem);
        self.file(&path, data)
    }

    pub(crate) fn filename(&self) -> String {
        format!("{}-{}-{}.whl", self.name.replace('-', "_"), self.version, self.tag)
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        zip(&self.all_entries())
    }

    /// Returns the entries, including metadata and RECORD.
    pub(crate) fn all_entries(&self) -> Vec<Entry> {
        let info = format!("{}.dist-info", self.stem);
        let mut entries = self.entries.clone();
        entries.push(Entry::file(&format!("{info}/METADATA"), self.metadata.as_bytes()));
        let wheel = format!("Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\nTag: {}\n", self.tag);
        entries.push(Entry::file(&format!("{info}/WHEEL"), wheel.as_bytes()));
        let mut record = String::new();
        for entry in &entries {
            let name = String::from_utf8_lossy(&entry.name);
            record.push_str(&format!("{name},sha256={},{}\n", record_hash(&entry.data), entry.data.len()));
        }
        record.push_str(&format!("{info}/RECORD,,\n"));
        let record = (self.change_record)(record);
        entries.push(Entry::file(&format!("{info}/RECORD"), record.as_bytes()));
        entries
    }

    /// Writes the wheel and returns it as an installer does.
    pub(crate) fn wheel(&self, directory: &Path) -> Wheel {
        self.wheel_with_bytes(directory, &self.bytes())
    }

    /// Writes other bytes under the wheel's file name and returns the wheel.
    pub(crate) fn wheel_with_bytes(&self, directory: &Path, bytes: &[u8]) -> Wheel {
        let path = self.write(directory, bytes);
        Wheel {
            name: self.name.to_owned(),
            version: self.version.to_owned(),
            filename: self.filename(),
            sha256: sha256(bytes),
            kind: FileKind::Wheel,
            path,
            platform: Platform::cpython_3_14(),
        }
    }

    pub(crate) fn write(&self, directory: &Path, bytes: &[u8]) -> PathBuf {
        let path = directory.join(self.filename());
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

/// Returns the SHA-256 in hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    hex::encode(sha2::Sha256::digest(bytes))
}

fn record_hash(bytes: &[u8]) -> String {
    use base64::Engine as _;
    use sha2::Digest as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(sha2::Sha256::digest(bytes))
}

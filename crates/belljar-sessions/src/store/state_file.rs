//! The format of a session's state: a file with magic, version, header length, header, compressed data and SHA-256.
//!
//! The header names the session, so that the state of one session is refused in the directory of another. It contains
//! a digest of the session's ID and not the ID, which gives access to the session: exported states have the header
//! too. States of version 1 name no session. They are accepted in every directory, and the next write replaces them.

use std::io::{self, Read as _};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::StoreError;
use super::signer::Signer;
use crate::id::SessionId;
use crate::session::milliseconds;
use crate::sessions::Owner;
use belljar_core::kernel::KernelSnapshot;

const MAGIC: [u8; 8] = *b"BELLSESS";
/// The version of the file format.
const VERSION: u32 = 2;
/// The version whose header does not name the session.
const UNBOUND_VERSION: u32 = 1;
/// The length of magic, version and header length, in bytes.
const PREFIX_LENGTH: usize = 16;
/// The maximum size of a header, in bytes. Belljar does not write longer ones.
const MAX_HEADER: usize = 16 << 20;
/// The maximum size of the uncompressed data, in bytes. Memory is at most 4 GiB.
const MAX_DATA: u64 = 6 << 30;
/// The maximum size of the whole file, in bytes: data that does not compress takes slightly more than its size.
pub(super) const MAX_FILE: u64 = MAX_DATA + (MAX_DATA >> 8) + MAX_HEADER as u64;
/// The zstd level. Level 1 is faster than the disk, and compresses memory pages within a few percent of slower levels.
const COMPRESSION_LEVEL: i32 = 1;

/// A snapshot with the time at which its session was last used.
#[derive(Debug)]
pub struct StoredSession {
    /// The snapshot of the kernel.
    pub snapshot: KernelSnapshot,
    /// The time of the last use, since 1970.
    pub last_used: Duration,
}

/// The header of a snapshot, which can be read without its data.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SnapshotHeader {
    /// The metadata of the snapshot, which the backend defines.
    #[serde(rename = "about")]
    pub metadata: serde_json::Value,
    /// The time of the session's last use, in milliseconds since 1970.
    #[serde(rename = "used")]
    last_used: u64,
    /// The length of the uncompressed data, in bytes.
    length: u64,
    /// The only client that may use the session, if it was created with authentication.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    /// The session, by [`fingerprint`]. States of [`UNBOUND_VERSION`] have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    /// True if the session was imported and has not been used since: [`KernelSnapshot::is_copy`].
    #[serde(rename = "copy", default, skip_serializing_if = "std::ops::Not::not")]
    is_copy: bool,
    /// [`KernelSnapshot::base`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    base: Option<String>,
    /// The run of the cell that waits. Only files whose end is a signature and not a digest have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) run: Option<serde_json::Value>,
}

impl SnapshotHeader {
    /// Returns the time of the session's last use, since 1970.
    pub fn last_used(&self) -> Duration {
        Duration::from_millis(self.last_used)
    }

    /// Returns the length of the snapshot's data.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Returns whether another kernel may continue from the same state: [`KernelSnapshot::is_copy`].
    pub(crate) fn is_copy(&self) -> bool {
        self.is_copy
    }

    /// Returns the name of what the snapshot is a difference from.
    pub(crate) fn base(&self) -> Option<&str> {
        self.base.as_deref()
    }

    /// Returns the only client that may use the session, if it was created with authentication.
    pub fn owner(&self) -> Option<Owner> {
        self.owner.as_deref().map(Owner::from)
    }
}

/// Returns the content of a state file.
pub(super) fn encode(
    id: &SessionId,
    owner: Option<&str>,
    snapshot: &KernelSnapshot,
    last_used: Duration,
) -> io::Result<Vec<u8>> {
    let header = header(id, owner, snapshot, last_used);
    assemble(&header, &zstd::bulk::compress(&snapshot.data, COMPRESSION_LEVEL)?)
}

/// Returns the signed content of the file of a session whose cell waits.
pub(super) fn encode_run(
    id: &SessionId,
    owner: Option<&str>,
    snapshot: &KernelSnapshot,
    last_used: Duration,
    run: serde_json::Value,
    signer: &Signer,
) -> io::Result<Vec<u8>> {
    let header = SnapshotHeader { run: Some(run), ..header(id, owner, snapshot, last_used) };
    let mut bytes = content(&header, &zstd::bulk::compress(&snapshot.data, COMPRESSION_LEVEL)?)?;
    let signature = signer.sign(&bytes);
    bytes.extend_from_slice(&signature);
    Ok(bytes)
}

/// Reads the signed content of the file of the session `id`, whose cell waits. Also returns the run.
pub(super) fn decode_run(
    bytes: &[u8],
    id: &SessionId,
    signer: &Signer,
) -> Result<(StoredSession, Option<serde_json::Value>), StoreError> {
    let is_valid = |content: &[u8], signature: &[u8]| signer.is_valid(content, signature);
    let (version, mut header, compressed) = split_checked(bytes, is_valid)?;
    check_session(version, &header, id)?;
    let run = header.run.take();
    Ok((stored(header, compressed)?, run))
}

fn header(id: &SessionId, owner: Option<&str>, snapshot: &KernelSnapshot, last_used: Duration) -> SnapshotHeader {
    SnapshotHeader {
        metadata: snapshot.metadata.clone(),
        last_used: milliseconds(last_used),
        length: snapshot.data.len() as u64,
        owner: owner.map(str::to_owned),
        session: Some(fingerprint(id)),
        is_copy: snapshot.is_copy,
        base: snapshot.base.clone(),
        run: None,
    }
}

fn assemble(header: &SnapshotHeader, compressed: &[u8]) -> io::Result<Vec<u8>> {
    let mut bytes = content(header, compressed)?;
    let digest = Sha256::digest(&bytes);
    bytes.extend_from_slice(&digest);
    Ok(bytes)
}

/// Returns the content of a file without its end.
fn content(header: &SnapshotHeader, compressed: &[u8]) -> io::Result<Vec<u8>> {
    let header = serde_json::to_vec(header)?;
    let mut bytes = Vec::with_capacity(PREFIX_LENGTH + header.len() + compressed.len() + 32);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&u32::try_from(header.len()).map_err(io::Error::other)?.to_le_bytes());
    bytes.extend_from_slice(&header);
    bytes.extend_from_slice(compressed);
    Ok(bytes)
}

/// Returns the content of a state file for the session `id` with a copy of the snapshot of `bytes`, the state of any
/// session.
pub(super) fn rebind(bytes: &[u8], id: &SessionId) -> Result<Vec<u8>, StoreError> {
    let (_, header, compressed) = split(bytes)?;
    decompress(&header, compressed)?;
    let header = SnapshotHeader { session: Some(fingerprint(id)), is_copy: true, ..header };
    assemble(&header, compressed).map_err(|error| StoreError::Io { operation: "write", error })
}

/// Reads the content of the state file of the session `id`.
pub(super) fn decode(bytes: &[u8], id: &SessionId) -> Result<StoredSession, StoreError> {
    let (version, header, compressed) = split(bytes)?;
    check_session(version, &header, id)?;
    stored(header, compressed)
}

fn stored(header: SnapshotHeader, compressed: &[u8]) -> Result<StoredSession, StoreError> {
    let data = decompress(&header, compressed)?;
    let last_used = header.last_used();
    let snapshot = KernelSnapshot { metadata: header.metadata, data, is_copy: header.is_copy, base: header.base };
    Ok(StoredSession { snapshot, last_used })
}

/// Reads the header of the state file of the session `id`.
pub(super) fn read_header(mut file: impl io::Read, id: &SessionId) -> Result<SnapshotHeader, StoreError> {
    let mut prefix = [0; PREFIX_LENGTH];
    file.read_exact(&mut prefix).map_err(|_| StoreError::Damaged("it is too short"))?;
    let (version, length) = parse_prefix(&prefix)?;
    let mut header = vec![0; length];
    file.read_exact(&mut header).map_err(|_| StoreError::Damaged("it is too short"))?;
    let header = parse_header(&header)?;
    check_session(version, &header, id)?;
    Ok(header)
}

/// Checks the digest of a state file. Returns its version, its header and its compressed data.
fn split(bytes: &[u8]) -> Result<(u32, SnapshotHeader, &[u8]), StoreError> {
    split_checked(bytes, |content, digest| Sha256::digest(content).as_slice() == digest)
}

/// Checks the end of a file with `is_valid`, which receives what is before it.
fn split_checked(
    bytes: &[u8],
    is_valid: impl FnOnce(&[u8], &[u8]) -> bool,
) -> Result<(u32, SnapshotHeader, &[u8]), StoreError> {
    let short = StoreError::Damaged("it is too short");
    let Some((content, digest)) = bytes.split_last_chunk::<32>() else { return Err(short) };
    let Some((prefix, rest)) = content.split_first_chunk::<PREFIX_LENGTH>() else { return Err(short) };
    let (version, length) = parse_prefix(prefix)?;
    if !is_valid(content, digest) {
        return Err(StoreError::Damaged("it does not match its checksum"));
    }
    let Some((header, compressed)) = rest.split_at_checked(length) else { return Err(short) };
    Ok((version, parse_header(header)?, compressed))
}

/// Returns the version and the length of the header.
fn parse_prefix(prefix: &[u8; PREFIX_LENGTH]) -> Result<(u32, usize), StoreError> {
    let word = |at: usize| u32::from_le_bytes([prefix[at], prefix[at + 1], prefix[at + 2], prefix[at + 3]]);
    if prefix[..8] != MAGIC {
        return Err(StoreError::Damaged("it is not a saved session"));
    }
    let (version, length) = (word(8), word(12) as usize);
    if ![VERSION, UNBOUND_VERSION].contains(&version) {
        return Err(StoreError::Damaged("its format belongs to another version of Belljar"));
    }
    if length > MAX_HEADER { Err(StoreError::Damaged("its header is too long")) } else { Ok((version, length)) }
}

fn parse_header(header: &[u8]) -> Result<SnapshotHeader, StoreError> {
    serde_json::from_slice(header).map_err(|_| StoreError::Damaged("its header is invalid"))
}

/// Checks that a state belongs to the session `id`.
fn check_session(version: u32, header: &SnapshotHeader, id: &SessionId) -> Result<(), StoreError> {
    match &header.session {
        Some(session) if *session == fingerprint(id) => Ok(()),
        None if version == UNBOUND_VERSION => Ok(()),
        _ => Err(StoreError::OtherSession),
    }
}

/// Returns a digest of a session's ID.
fn fingerprint(id: &SessionId) -> String {
    let digest = Sha256::digest(format!("belljar session {}", id.as_str()));
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn decompress(header: &SnapshotHeader, compressed: &[u8]) -> Result<Vec<u8>, StoreError> {
    if header.length > MAX_DATA {
        return Err(StoreError::Damaged("it is too long"));
    }
    let invalid = || StoreError::Damaged("its compressed data is invalid");
    let mut data = Vec::with_capacity(usize::try_from(header.length.min(64 << 20)).unwrap_or(0));
    let decoder = zstd::stream::read::Decoder::new(compressed).map_err(|_| invalid())?;
    decoder.take(header.length + 1).read_to_end(&mut data).map_err(|_| invalid())?;
    if data.len() as u64 != header.length {
        return Err(StoreError::Damaged("its length does not match its header"));
    }
    Ok(data)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a state as version 1 wrote it: without the session.
    pub(in crate::store) fn unbound(bytes: &[u8]) -> Vec<u8> {
        let (_, header, compressed) = split(bytes).unwrap();
        let mut bytes = assemble(&SnapshotHeader { session: None, ..header }, compressed).unwrap();
        bytes.truncate(bytes.len() - 32);
        bytes[8..12].copy_from_slice(&UNBOUND_VERSION.to_le_bytes());
        let digest = Sha256::digest(&bytes);
        bytes.extend_from_slice(&digest);
        bytes
    }

    /// Files as earlier builds have written them. They stay as they are: another version gets a file of its own.
    #[test]
    fn files_of_both_versions_are_read() {
        let id = SessionId::parse("AbCdEfGhIjKlMnOp").unwrap();
        let first = &include_bytes!("../../tests/stored/state-1")[..];
        let second = &include_bytes!("../../tests/stored/state-2")[..];
        for (file, is_copy, base) in [(first, false, None), (second, true, Some("00ff"))] {
            let StoredSession { snapshot, last_used } = decode(file, &id).unwrap();
            assert_eq!(last_used, Duration::from_millis(1_760_000_000_000));
            assert_eq!(snapshot.metadata, serde_json::json!({ "python": "3.13" }));
            assert_eq!(snapshot.data, b"pages".repeat(100));
            assert_eq!((snapshot.is_copy, snapshot.base.as_deref()), (is_copy, base));
            assert_eq!(read_header(file, &id).unwrap().owner().as_deref(), Some("alice"));
        }
        let other = SessionId::random().unwrap();
        assert!(decode(first, &other).is_ok());
        assert!(matches!(decode(second, &other), Err(StoreError::OtherSession)));
    }

    #[test]
    fn header_of_the_current_version_without_a_session_is_refused() {
        let id = SessionId::random().unwrap();
        let snapshot =
            KernelSnapshot { metadata: serde_json::json!({}), data: b"data".to_vec(), is_copy: false, base: None };
        let bytes = encode(&id, None, &snapshot, Duration::ZERO).unwrap();
        assert!(decode(&bytes, &id).is_ok() && decode(&unbound(&bytes), &id).is_ok());
        let (_, header, compressed) = split(&bytes).unwrap();
        let without = assemble(&SnapshotHeader { session: None, ..header }, compressed).unwrap();
        assert!(matches!(decode(&without, &id), Err(StoreError::OtherSession)));
        assert!(matches!(read_header(&*without, &id), Err(StoreError::OtherSession)));
        assert!(!String::from_utf8_lossy(&bytes).contains(id.as_str()), "the state contains the session's ID");
    }
}

//! Sessions as bytes, which only a holder of the same key can have made.
//!
//! ```text
//! "bj-monty1" │ HMAC-SHA256 of the rest │ length of the header │ header (JSON) │ memory and files (zstd)
//! ```

use std::io::Read as _;

use belljar_core::kernel::KernelSnapshot;
use hmac::{Hmac, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::events::RunTimes;
use crate::questions::Questions;
use crate::session::SessionSettings;

/// The first bytes of a dump, with the version of the format.
const MAGIC: &[u8; 9] = b"bj-monty1";
/// The zstd level of dumps.
const COMPRESSION_LEVEL: i32 = 1;
/// The maximum size of a dump's contents, in bytes: memory is at most 4 GiB.
const MAX_CONTENTS: u64 = (4 << 30) + (128 << 20);
/// The length of a signature, in bytes.
const SIGNATURE_LENGTH: usize = 32;

/// The key that signs dumps. Cheap to clone.
#[derive(Clone)]
pub struct DumpKey([u8; 32]);

impl DumpKey {
    /// Creates a key from 32 secret bytes: dumps survive this process, and other programs cannot make them.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Creates a random key: only this process can restore its dumps.
    ///
    /// # Errors
    /// Fails if the system has no random bytes.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// Returns the key of workers whose parent is trusted with whatever it restores: a signature only detects damage.
    pub fn for_local_workers() -> Self {
        Self(*b"belljar monty: no secret is here")
    }

    /// Returns the key for the dumps of one client, which others cannot restore.
    #[must_use]
    pub fn for_owner(&self, owner: &str) -> Self {
        self.mac(owner.as_bytes()).map_or_else(|| self.clone(), |mac| Self(mac.finalize().into_bytes().into()))
    }

    fn mac(&self, bytes: &[u8]) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).ok()?;
        mac.update(bytes);
        Some(mac)
    }
}

/// A session.
pub(crate) struct Dump {
    pub(crate) state: SavedState,
    /// `None` if no feed has run.
    pub(crate) snapshot: Option<KernelSnapshot>,
}

/// The host's half of a session.
#[derive(Serialize, Deserialize)]
pub(crate) struct SavedState {
    pub(crate) settings: SessionSettings,
    /// The number of feeds that have begun.
    pub(crate) feeds: u32,
    pub(crate) next_call: u32,
    pub(crate) times: RunTimes,
    /// The code of the feed that is suspended.
    pub(crate) code: Option<String>,
    /// Its questions.
    pub(crate) questions: Option<Questions>,
}

/// The description of a dump, before its data.
#[derive(Serialize, Deserialize)]
struct Header<S> {
    state: S,
    snapshot: Option<SnapshotHeader>,
}

#[derive(Serialize, Deserialize)]
struct SnapshotHeader {
    metadata: serde_json::Value,
    base: Option<String>,
}

/// Returns a session as bytes. `state` is a [`SavedState`].
///
/// # Errors
/// Returns the reason why it cannot be encoded.
pub(crate) fn to_bytes(
    key: &DumpKey,
    state: serde_json::Value,
    snapshot: Option<&KernelSnapshot>,
) -> Result<Vec<u8>, String> {
    let described = snapshot
        .map(|KernelSnapshot { metadata, base, .. }| SnapshotHeader { metadata: metadata.clone(), base: base.clone() });
    let header = serde_json::to_vec(&Header { state, snapshot: described }).map_err(|error| error.to_string())?;
    let length = u32::try_from(header.len()).map_err(|error| error.to_string())?;
    let mut bytes = MAGIC.to_vec();
    bytes.extend([0; SIGNATURE_LENGTH]);
    bytes.extend(length.to_le_bytes());
    bytes.extend(header);
    if let Some(snapshot) = snapshot {
        zstd::stream::copy_encode(&snapshot.data[..], &mut bytes, COMPRESSION_LEVEL)
            .map_err(|error| error.to_string())?;
    }
    let start = MAGIC.len() + SIGNATURE_LENGTH;
    let mac = key.mac(&bytes[start..]).ok_or("the key is not valid")?;
    bytes[MAGIC.len()..start].copy_from_slice(&mac.finalize().into_bytes());
    Ok(bytes)
}

/// Reads a dump.
///
/// # Errors
/// Returns the reason why the bytes are not a dump that was made with this key.
pub(crate) fn from_bytes(key: &DumpKey, bytes: &[u8]) -> Result<Dump, String> {
    let damaged = || "the bytes are not a session that this version of Belljar has saved".to_owned();
    let rest = bytes.strip_prefix(MAGIC).ok_or_else(damaged)?;
    let (signature, rest) = rest.split_at_checked(SIGNATURE_LENGTH).ok_or_else(damaged)?;
    let is_valid = key.mac(rest).is_some_and(|mac| mac.verify_slice(signature).is_ok());
    if !is_valid {
        return Err("the bytes were changed, are not complete, or were saved by another server".into());
    }
    let (length, rest) = rest.split_at_checked(4).ok_or_else(damaged)?;
    let length = u32::from_le_bytes(length.try_into().map_err(|_| damaged())?) as usize;
    let (header, compressed) = rest.split_at_checked(length).ok_or_else(damaged)?;
    let Header::<SavedState> { state, snapshot } = serde_json::from_slice(header).map_err(|_| damaged())?;
    let Some(SnapshotHeader { metadata, base }) = snapshot else { return Ok(Dump { state, snapshot: None }) };
    let mut data = Vec::new();
    let decoder = zstd::Decoder::new(compressed).map_err(|_| damaged())?;
    decoder.take(MAX_CONTENTS).read_to_end(&mut data).map_err(|_| damaged())?;
    // Other workers may continue from the same bytes.
    Ok(Dump { state, snapshot: Some(KernelSnapshot { metadata, data, is_copy: true, base }) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_dump_is_refused() {
        let state = SavedState {
            settings: SessionSettings::default(),
            feeds: 2,
            next_call: 3,
            times: RunTimes::default(),
            code: None,
            questions: None,
        };
        let key = DumpKey::random().unwrap();
        let data = vec![7; 1000];
        let snapshot = KernelSnapshot { metadata: serde_json::json!({}), data, is_copy: false, base: None };
        let bytes = to_bytes(&key, serde_json::to_value(state).unwrap(), Some(&snapshot)).unwrap();
        let dump = from_bytes(&key, &bytes).unwrap();
        assert_eq!((dump.state.feeds, dump.snapshot.unwrap().data), (2, snapshot.data));
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(from_bytes(&key, &changed).is_err(), "{at}");
            assert!(from_bytes(&key, &bytes[..at]).is_err(), "{at}");
        }
        assert!(from_bytes(&DumpKey::random().unwrap(), &bytes).is_err());
    }
}

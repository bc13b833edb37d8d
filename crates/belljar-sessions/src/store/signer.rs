//! The key of a data directory, and files of runs that it signs: other programs that can write there cannot make them.

use std::io::{self, Write as _};

use hmac::{Hmac, Mac};
use serde::Serialize;
use sha2::Sha256;

use super::private_directory::PrivateDirectory;
use super::run_commands::ANSWER;
use super::waiting::RUNS;
use super::{Store, StoreError};
use crate::runs::RunId;

const KEY: &str = "key";
const NEW_KEY: &str = "key.new";
/// The length of the key and of a signature, in bytes.
pub(super) const KEY_LENGTH: usize = 32;

/// The key of a store, which signs.
#[derive(Clone)]
pub(super) struct Signer([u8; KEY_LENGTH]);

impl std::fmt::Debug for Signer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Signer(…)")
    }
}

impl Signer {
    pub(super) fn new(key: [u8; KEY_LENGTH]) -> Self {
        Self(key)
    }

    fn mac(&self, bytes: &[u8]) -> Hmac<Sha256> {
        // An HMAC takes keys of any length.
        #[expect(clippy::expect_used, reason = "the length is valid")]
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("a valid length");
        mac.update(bytes);
        mac
    }

    pub(super) fn sign(&self, bytes: &[u8]) -> [u8; KEY_LENGTH] {
        self.mac(bytes).finalize().into_bytes().into()
    }

    /// Returns whether a signature is valid. Takes the same time for every wrong one.
    pub(super) fn is_valid(&self, bytes: &[u8], signature: &[u8]) -> bool {
        self.mac(bytes).verify_slice(signature).is_ok()
    }
}

impl Store {
    /// Returns a key for a purpose other than signing. Each process with this directory gets the same one.
    ///
    /// # Errors
    /// Fails if the key of the directory cannot be read or created.
    pub fn derive_key(&self, purpose: &str) -> Result<[u8; KEY_LENGTH], StoreError> {
        Ok(self.signer()?.sign(format!("key: {purpose}").as_bytes()))
    }

    /// Returns the signer of this store. The first one creates the key.
    pub(super) fn signer(&self) -> Result<Signer, StoreError> {
        if let Some(signer) = self.signer.get() {
            return Ok(signer.clone());
        }
        let failed = StoreError::io("sign");
        let read = || self.root.read(KEY, KEY_LENGTH as u64 + 1);
        let bytes = match read() {
            Err(error) if error.is_missing() => {
                let mut key = [0; KEY_LENGTH];
                getrandom::fill(&mut key).map_err(|error| failed(io::Error::other(error).into()))?;
                let mut file = self.root.create(NEW_KEY).map_err(failed)?;
                file.write_all(&key).and_then(|()| file.sync_data()).map_err(|error| failed(error.into()))?;
                // Another process may create the key at the same time: the first one counts.
                drop(self.root.link(NEW_KEY, KEY));
                self.root.remove(NEW_KEY).map_err(failed)?;
                read().map_err(failed)?
            }
            other => other.map_err(failed)?,
        };
        let key = <[u8; KEY_LENGTH]>::try_from(&*bytes);
        let key = key.map_err(|_| StoreError::Damaged("the key of the data directory has another length"))?;
        Ok(self.signer.get_or_init(|| Signer(key)).clone())
    }

    /// Writes a signed file of a run.
    pub(super) fn write_of_run(
        &self,
        run: &RunId,
        name: &'static str,
        content: &impl Serialize,
    ) -> Result<(), StoreError> {
        let failed = StoreError::io("write");
        let mut bytes = serde_json::to_vec(content).map_err(|error| failed(io::Error::other(error).into()))?;
        let signature = self.signer()?.sign(&bytes);
        bytes.extend_from_slice(&signature);
        let write = || {
            let directory = self.root.subdirectory(RUNS, true)?.subdirectory(run.as_str(), true)?;
            let new = if name == ANSWER { "answer.new" } else { "result.new" };
            directory.create(new)?.write_all(&bytes)?;
            directory.rename(new, name)
        };
        write().map_err(failed)
    }

    /// Reads a signed file. A file with another signature is left alone.
    pub(super) fn read_signed(&self, directory: &PrivateDirectory, name: &'static str, max: u64) -> Option<Vec<u8>> {
        if !directory.contains(name) {
            return None;
        }
        let mut bytes = directory.read(name, max).ok()?;
        let signature = bytes.split_off(bytes.len().checked_sub(KEY_LENGTH)?);
        if self.signer().ok()?.is_valid(&bytes, &signature) {
            return Some(bytes);
        }
        tracing::warn!(name, "a file of a run in the data directory is damaged, or another program wrote it");
        None
    }
}

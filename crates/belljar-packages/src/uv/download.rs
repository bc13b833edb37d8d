//! Downloads of single files, with a size limit and verification of the hash.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use sha2::{Digest, Sha256};
use uv_redacted::DisplaySafeUrl;

use super::engine::{Engine, error_chain};
use crate::error::InstallError;
use crate::resolution::{FileSource, PinnedFile};

/// The maximum number of attempts for a download whose connection breaks. uv's client retries requests, but not
/// interrupted response bodies.
const MAX_ATTEMPTS: u32 = 3;
/// The buffer size for copying local files.
const CHUNK_BYTES: usize = 1 << 16;

impl Engine {
    /// Writes a pinned file to `path` and reports the number of received bytes to `advance`. On success the content
    /// matches the pinned hash; on failure `path` may contain part of the file.
    pub(crate) async fn download(
        &self,
        pinned: &PinnedFile,
        path: &Path,
        advance: &(dyn Fn(u64) + Sync),
    ) -> Result<(), InstallError> {
        let url = DisplaySafeUrl::parse(&pinned.url)
            .map_err(|error| InstallError::Internal { reason: format!("{}: {error}", pinned.url) })?;
        if let Some(size) = pinned.size.filter(|size| *size > self.settings.max_file_bytes) {
            tracing::debug!(file = pinned.filename, size, "too large");
            return Err(self.too_large(pinned));
        }
        if let Ok(source) = url.to_file_path() {
            return self.copy(pinned, &source, path, advance);
        }
        if self.find_in_directories(pinned, path, advance) {
            return Ok(());
        }
        if self.settings.offline {
            return Err(InstallError::Offline { name: pinned.filename.clone() });
        }
        let mut attempt = 1;
        loop {
            match self.stream(pinned, &url, path, advance).await {
                Err(InstallError::Network { cause })
                    if attempt < MAX_ATTEMPTS && pinned.source != FileSource::Pyodide =>
                {
                    tracing::debug!(file = pinned.filename, attempt, cause, "a download was interrupted");
                    attempt += 1;
                }
                outcome => return outcome,
            }
        }
    }

    /// Copies the pinned file from a directory of wheels, whatever its source: bundles contain Pyodide's files too.
    /// Returns whether a directory has the file.
    fn find_in_directories(&self, pinned: &PinnedFile, path: &Path, advance: &(dyn Fn(u64) + Sync)) -> bool {
        self.settings.find_links.iter().any(|directory| {
            let file = Path::new(directory).join(&pinned.filename);
            file.is_file() && self.copy(pinned, &file, path, advance).is_ok()
        })
    }

    async fn stream(
        &self,
        pinned: &PinnedFile,
        url: &DisplaySafeUrl,
        path: &Path,
        advance: &(dyn Fn(u64) + Sync),
    ) -> Result<(), InstallError> {
        let client = if pinned.source == FileSource::Pyodide { &self.pyodide_client } else { &self.client };
        let network = |error: &dyn std::error::Error| InstallError::Network { cause: error_chain(error) };
        // The hash is that of the file itself, so the response must not be encoded.
        let request =
            client.uncached_client(url).get(url::Url::from(url.clone())).header("accept-encoding", "identity");
        let mut response = request.send().await.map_err(|error| network(&error))?;
        if matches!(response.status().as_u16(), 404 | 410) {
            return Err(InstallError::MissingFile { file: pinned.filename.clone(), url: url.to_string() });
        }
        if let Err(error) = response.error_for_status_ref() {
            return Err(network(&error));
        }
        let mut sink = Sink::create(self, pinned, path)?;
        while let Some(chunk) = response.chunk().await.map_err(|error| network(&error))? {
            sink.write(&chunk)?;
            advance(chunk.len() as u64);
        }
        sink.finish()
    }

    fn copy(
        &self,
        pinned: &PinnedFile,
        source: &Path,
        path: &Path,
        advance: &(dyn Fn(u64) + Sync),
    ) -> Result<(), InstallError> {
        let failed = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                InstallError::MissingFile { file: pinned.filename.clone(), url: pinned.url.clone() }
            }
            _ => InstallError::Io { action: "read", path: source.to_path_buf(), source: error },
        };
        let mut file = File::open(source).map_err(failed)?;
        let mut sink = Sink::create(self, pinned, path)?;
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let read = file.read(&mut chunk).map_err(failed)?;
            if read == 0 {
                return sink.finish();
            }
            sink.write(&chunk[..read])?;
            advance(read as u64);
        }
    }

    fn too_large(&self, pinned: &PinnedFile) -> InstallError {
        InstallError::TooLarge { file: pinned.filename.clone(), limit: self.settings.max_file_bytes }
    }
}

/// A file being written, which counts and hashes the written bytes.
struct Sink<'a> {
    engine: &'a Engine,
    pinned: &'a PinnedFile,
    path: &'a Path,
    file: File,
    digest: Sha256,
    bytes: u64,
}

impl<'a> Sink<'a> {
    fn create(engine: &'a Engine, pinned: &'a PinnedFile, path: &'a Path) -> Result<Self, InstallError> {
        let file = File::create(path).map_err(|source| InstallError::Io {
            action: "write",
            path: path.to_path_buf(),
            source,
        })?;
        Ok(Sink { engine, pinned, path, file, digest: Sha256::new(), bytes: 0 })
    }

    fn write(&mut self, chunk: &[u8]) -> Result<(), InstallError> {
        self.bytes += chunk.len() as u64;
        if self.bytes > self.engine.settings.max_file_bytes {
            return Err(self.engine.too_large(self.pinned));
        }
        self.digest.update(chunk);
        self.file
            .write_all(chunk)
            .map_err(|error| belljar_cache::CacheError::writing(self.path, Some(chunk.len() as u64), error).into())
    }

    fn finish(self) -> Result<(), InstallError> {
        let actual = hex::encode(self.digest.finalize());
        if actual != self.pinned.sha256 {
            return Err(InstallError::HashMismatch {
                file: self.pinned.filename.clone(),
                expected: self.pinned.sha256.clone(),
                actual,
            });
        }
        Ok(())
    }
}

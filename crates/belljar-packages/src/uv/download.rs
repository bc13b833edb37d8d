//! One file, from its address to the disk: bounded, and hashed on the way.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use sha2::{Digest, Sha256};
use uv_redacted::DisplaySafeUrl;

use super::engine::{Engine, chain};
use crate::error::InstallError;
use crate::resolution::{Pinned, Source, hexadecimal};

/// How often a download is begun again when it breaks off. uv's client retries requests, not answers.
const ATTEMPTS: u32 = 3;
/// Read at once from local files.
const CHUNK: usize = 1 << 16;

impl Engine {
    /// Writes a pinned file to `path`, telling `advance` how many bytes came. On success the content is the one
    /// pinned; on failure there may be part of a file.
    pub(crate) async fn download(
        &self,
        pinned: &Pinned,
        path: &Path,
        advance: &(dyn Fn(u64) + Sync),
    ) -> Result<(), InstallError> {
        let url = DisplaySafeUrl::parse(&pinned.url)
            .map_err(|error| InstallError::Internal { what: format!("{}: {error}", pinned.url) })?;
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
            return Err(InstallError::Offline { what: pinned.filename.clone() });
        }
        let mut attempt = 1;
        loop {
            match self.stream(pinned, &url, path, advance).await {
                Err(InstallError::Network { cause }) if attempt < ATTEMPTS && pinned.source != Source::Pyodide => {
                    tracing::debug!(file = pinned.filename, attempt, cause, "a download broke off");
                    attempt += 1;
                }
                outcome => return outcome,
            }
        }
    }

    /// Takes the very file that is pinned from a directory of wheels, wherever it would come from otherwise: bundles
    /// hold Pyodide's files too.
    fn find_in_directories(&self, pinned: &Pinned, path: &Path, advance: &(dyn Fn(u64) + Sync)) -> bool {
        self.settings.find_links.iter().any(|place| {
            let file = Path::new(place).join(&pinned.filename);
            file.is_file() && self.copy(pinned, &file, path, advance).is_ok()
        })
    }

    async fn stream(
        &self,
        pinned: &Pinned,
        url: &DisplaySafeUrl,
        path: &Path,
        advance: &(dyn Fn(u64) + Sync),
    ) -> Result<(), InstallError> {
        let client = if pinned.source == Source::Pyodide { &self.impatient_client } else { &self.client };
        let network = |error: &dyn std::error::Error| InstallError::Network { cause: chain(error) };
        // The file's own bytes are hashed: no transfer encoding may stand between.
        let request =
            client.uncached_client(url).get(url::Url::from(url.clone())).header("accept-encoding", "identity");
        let mut response = request.send().await.map_err(|error| network(&error))?;
        if matches!(response.status().as_u16(), 404 | 410) {
            return Err(InstallError::Absent { file: pinned.filename.clone(), url: url.to_string() });
        }
        if let Err(error) = response.error_for_status_ref() {
            return Err(network(&error));
        }
        let mut sink = Sink::create(self, pinned, path)?;
        while let Some(chunk) = response.chunk().await.map_err(|error| network(&error))? {
            sink.take(&chunk)?;
            advance(chunk.len() as u64);
        }
        sink.finish()
    }

    fn copy(
        &self,
        pinned: &Pinned,
        source: &Path,
        path: &Path,
        advance: &(dyn Fn(u64) + Sync),
    ) -> Result<(), InstallError> {
        let failed = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                InstallError::Absent { file: pinned.filename.clone(), url: pinned.url.clone() }
            }
            _ => InstallError::Io { action: "read", path: source.to_path_buf(), source: error },
        };
        let mut file = File::open(source).map_err(failed)?;
        let mut sink = Sink::create(self, pinned, path)?;
        let mut chunk = vec![0; CHUNK];
        loop {
            let read = file.read(&mut chunk).map_err(failed)?;
            if read == 0 {
                return sink.finish();
            }
            sink.take(&chunk[..read])?;
            advance(read as u64);
        }
    }

    fn too_large(&self, pinned: &Pinned) -> InstallError {
        InstallError::TooLarge { file: pinned.filename.clone(), limit: self.settings.max_file_bytes }
    }
}

/// A file being written: counts and hashes what passes.
struct Sink<'a> {
    engine: &'a Engine,
    pinned: &'a Pinned,
    path: &'a Path,
    file: File,
    digest: Sha256,
    bytes: u64,
}

impl<'a> Sink<'a> {
    fn create(engine: &'a Engine, pinned: &'a Pinned, path: &'a Path) -> Result<Self, InstallError> {
        let file = File::create(path).map_err(|source| InstallError::Io {
            action: "write",
            path: path.to_path_buf(),
            source,
        })?;
        Ok(Sink { engine, pinned, path, file, digest: Sha256::new(), bytes: 0 })
    }

    fn take(&mut self, chunk: &[u8]) -> Result<(), InstallError> {
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
        let actual = hexadecimal(&self.digest.finalize());
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

//! Storage of tokens.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use rmcp::transport::auth::{AuthError, CredentialStore, StoredCredentials};

use crate::error::BoxError;

/// Stores the tokens of one server, as one secret text.
///
/// ```
/// use std::sync::Mutex;
/// use async_trait::async_trait;
/// use belljar_client::BoxError;
/// use belljar_client::oauth::TokenStore;
///
/// #[derive(Default)]
/// struct Memory(Mutex<Option<String>>);
///
/// #[async_trait]
/// impl TokenStore for Memory {
///     async fn load(&self) -> Result<Option<String>, BoxError> {
///         Ok(self.0.lock().unwrap().clone())
///     }
///
///     async fn save(&self, tokens: String) -> Result<(), BoxError> {
///         *self.0.lock().unwrap() = Some(tokens);
///         Ok(())
///     }
///
///     async fn clear(&self) -> Result<(), BoxError> {
///         *self.0.lock().unwrap() = None;
///         Ok(())
///     }
/// }
/// ```
#[async_trait]
pub trait TokenStore: Send + Sync + 'static {
    /// Returns the saved tokens, if any.
    ///
    /// # Errors
    ///
    /// A failure to read the store.
    async fn load(&self) -> Result<Option<String>, BoxError>;

    /// Saves the tokens, replacing the previous ones.
    ///
    /// # Errors
    ///
    /// A failure to write to the store.
    async fn save(&self, tokens: String) -> Result<(), BoxError>;

    /// Deletes the tokens.
    ///
    /// # Errors
    ///
    /// A failure to delete them.
    async fn clear(&self) -> Result<(), BoxError>;
}

/// A store in a file that only its owner can read.
///
/// ```
/// let store = belljar_client::oauth::FileTokenStore::new("tokens/example.org.json");
/// ```
#[derive(Debug, Clone)]
pub struct FileTokenStore {
    path: PathBuf,
}

impl FileTokenStore {
    /// Creates a store in this file. The file and its directory need not exist.
    ///
    /// ```
    /// let store = belljar_client::oauth::FileTokenStore::new("tokens/example.org.json");
    /// ```
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    fn failed(&self, operation: &'static str, source: std::io::Error) -> StoreError {
        StoreError { operation, path: self.path.clone(), source }
    }
}

/// The error of a [`FileTokenStore`].
#[derive(Debug, thiserror::Error)]
#[error("failed to {operation} the tokens in {}: {source}", path.display())]
struct StoreError {
    operation: &'static str,
    path: PathBuf,
    source: std::io::Error,
}

#[async_trait]
impl TokenStore for FileTokenStore {
    async fn load(&self) -> Result<Option<String>, BoxError> {
        match tokio::fs::read_to_string(&self.path).await {
            Ok(tokens) => Ok(Some(tokens)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed("read", error).into()),
        }
    }

    async fn save(&self, tokens: String) -> Result<(), BoxError> {
        let path = self.path.clone();
        let written = tokio::task::spawn_blocking(move || write_private_file(&path, &tokens));
        written.await?.map_err(|error| self.failed("write", error).into())
    }

    async fn clear(&self) -> Result<(), BoxError> {
        match tokio::fs::remove_file(&self.path).await {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(self.failed("delete", error).into()),
            _ => Ok(()),
        }
    }
}

/// Replaces a file atomically, so that a concurrent reader sees either the old or the new content.
fn write_private_file(path: &Path, text: &str) -> std::io::Result<()> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(directory)?;
    // On Unix a temporary file has mode 0600.
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

/// An adapter from [`TokenStore`] to the trait of `rmcp`.
pub(super) struct Adapter(pub(super) Arc<dyn TokenStore>);

#[async_trait]
impl CredentialStore for Adapter {
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        let Some(text) = self.0.load().await.map_err(store_error)? else { return Ok(None) };
        // Unreadable tokens are treated as missing.
        Ok(serde_json::from_str(&text).ok())
    }

    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        let text =
            serde_json::to_string(&credentials).map_err(|error| AuthError::CredentialStoreError(error.to_string()))?;
        self.0.save(text).await.map_err(store_error)
    }

    async fn clear(&self) -> Result<(), AuthError> {
        self.0.clear().await.map_err(store_error)
    }
}

fn store_error(error: BoxError) -> AuthError {
    AuthError::CredentialStoreError(error.to_string())
}

//! Where tokens are kept.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use rmcp::transport::auth::{AuthError, CredentialStore, StoredCredentials};

/// Keeps the tokens of one server. What is kept is one text, and secret.
///
/// ```
/// use std::sync::Mutex;
/// use async_trait::async_trait;
/// use belljar_client::oauth::TokenStore;
///
/// #[derive(Default)]
/// struct Memory(Mutex<Option<String>>);
///
/// #[async_trait]
/// impl TokenStore for Memory {
///     async fn load(&self) -> Result<Option<String>, String> {
///         Ok(self.0.lock().unwrap().clone())
///     }
///
///     async fn save(&self, tokens: String) -> Result<(), String> {
///         *self.0.lock().unwrap() = Some(tokens);
///         Ok(())
///     }
///
///     async fn clear(&self) -> Result<(), String> {
///         *self.0.lock().unwrap() = None;
///         Ok(())
///     }
/// }
/// ```
#[async_trait]
pub trait TokenStore: Send + Sync + 'static {
    /// What was saved last, if anything.
    ///
    /// # Errors
    ///
    /// What went wrong.
    async fn load(&self) -> Result<Option<String>, String>;

    /// Keeps this in place of what was there.
    ///
    /// # Errors
    ///
    /// What went wrong.
    async fn save(&self, tokens: String) -> Result<(), String>;

    /// Forgets.
    ///
    /// # Errors
    ///
    /// What went wrong.
    async fn clear(&self) -> Result<(), String>;
}

/// Keeps tokens in a file that only its owner can read.
///
/// ```
/// let store = belljar_client::oauth::FileTokenStore::new("tokens/example.org.json");
/// ```
#[derive(Debug, Clone)]
pub struct FileTokenStore {
    path: PathBuf,
}

impl FileTokenStore {
    /// Keeps them in this file, which need not be there; nor need its directory.
    ///
    /// ```
    /// let store = belljar_client::oauth::FileTokenStore::new("tokens/example.org.json");
    /// ```
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    fn failed(&self, error: &std::io::Error) -> String {
        format!("{}: {error}", self.path.display())
    }
}

#[async_trait]
impl TokenStore for FileTokenStore {
    async fn load(&self) -> Result<Option<String>, String> {
        match tokio::fs::read_to_string(&self.path).await {
            Ok(tokens) => Ok(Some(tokens)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed(&error)),
        }
    }

    async fn save(&self, tokens: String) -> Result<(), String> {
        let path = self.path.clone();
        let written = tokio::task::spawn_blocking(move || write_privately(&path, &tokens));
        written.await.map_err(|error| error.to_string())?.map_err(|error| self.failed(&error))
    }

    async fn clear(&self) -> Result<(), String> {
        match tokio::fs::remove_file(&self.path).await {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(self.failed(&error)),
            _ => Ok(()),
        }
    }
}

/// Writes under another name first, so that a reader finds the old or the new and nothing between.
fn write_privately(path: &std::path::Path, text: &str) -> std::io::Result<()> {
    use std::io::Write;
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        std::fs::create_dir_all(directory)?;
    }
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let temporary = PathBuf::from(name);
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)
}

/// A store as `rmcp` wants it.
pub(super) struct Adapter(pub(super) Arc<dyn TokenStore>);

#[async_trait]
impl CredentialStore for Adapter {
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        let Some(text) = self.0.load().await.map_err(AuthError::CredentialStoreError)? else { return Ok(None) };
        // What cannot be read is as good as lost.
        Ok(serde_json::from_str(&text).ok())
    }

    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        let text =
            serde_json::to_string(&credentials).map_err(|error| AuthError::CredentialStoreError(error.to_string()))?;
        self.0.save(text).await.map_err(AuthError::CredentialStoreError)
    }

    async fn clear(&self) -> Result<(), AuthError> {
        self.0.clear().await.map_err(AuthError::CredentialStoreError)
    }
}

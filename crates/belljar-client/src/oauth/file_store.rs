//! A store of tokens in a file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::Url;

use super::store::TokenStore;
use crate::error::BoxError;
use crate::os::private_files;

/// A store in a file that only its owner can read. It holds the tokens of any number of servers, and several processes
/// can use it at once.
///
/// A file of one server, as this crate wrote it before it stored several, is read if the authorization server is part
/// of that server; for others it does not say which server the tokens may be sent to.
///
/// ```
/// let store = belljar_mcp_client::oauth::FileTokenStore::new("tokens.json");
/// ```
#[derive(Debug, Clone)]
pub struct FileTokenStore {
    path: PathBuf,
}

/// The content of the file.
#[derive(Default, Serialize, Deserialize)]
struct Content {
    servers: BTreeMap<String, String>,
}

impl FileTokenStore {
    /// Creates a store in this file. The file and its directory need not exist.
    ///
    /// ```
    /// let store = belljar_mcp_client::oauth::FileTokenStore::new("tokens.json");
    /// ```
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Applies a change to the content on a thread that may block, while no other process changes it.
    async fn change(&self, change: impl FnOnce(&mut Content) + Send + 'static) -> Result<(), BoxError> {
        let path = self.path.clone();
        let changing = tokio::task::spawn_blocking(move || {
            let failed = |error| StoreError::Io { operation: "write", path: path.clone(), error };
            private_files::create_directory(directory(&path)).map_err(failed)?;
            let _lock = lock(&path).map_err(failed)?;
            let mut content = match read(&path)? {
                Some(text) => parse(&text, &path)?.unwrap_or_default(),
                None => Content::default(),
            };
            change(&mut content);
            if content.servers.is_empty() {
                return match std::fs::remove_file(&path) {
                    Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(error)),
                    _ => Ok(()),
                };
            }
            let text = serde_json::to_string_pretty(&content).map_err(|error| failed(error.into()))?;
            replace(&path, &text).map_err(failed)
        });
        Ok(changing.await??)
    }
}

/// The error of a [`FileTokenStore`].
#[derive(Debug, thiserror::Error)]
enum StoreError {
    #[error("failed to {operation} the tokens in {}: {error}", path.display())]
    Io { operation: &'static str, path: PathBuf, error: std::io::Error },
    // The parser's message may quote a token.
    #[error("{} is not a file of tokens: it is invalid at line {line}, column {column}; delete it to log in again", path.display())]
    Invalid { path: PathBuf, line: usize, column: usize },
}

#[async_trait]
impl TokenStore for FileTokenStore {
    async fn load(&self, server: &str) -> Result<Option<String>, BoxError> {
        let path = self.path.clone();
        let server = server.to_owned();
        let reading = tokio::task::spawn_blocking(move || {
            let Some(text) = read(&path)? else { return Ok(None) };
            Ok::<_, StoreError>(match parse(&text, &path)? {
                Some(mut content) => content.servers.remove(&server),
                None => is_tokens_of(&text, &server).then_some(text),
            })
        });
        Ok(reading.await??)
    }

    async fn save(&self, server: &str, tokens: String) -> Result<(), BoxError> {
        let server = server.to_owned();
        self.change(move |content| {
            content.servers.insert(server, tokens);
        })
        .await
    }

    async fn clear(&self, server: &str) -> Result<(), BoxError> {
        let server = server.to_owned();
        self.change(move |content| {
            content.servers.remove(&server);
        })
        .await
    }
}

fn read(path: &Path) -> Result<Option<String>, StoreError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError::Io { operation: "read", path: path.to_owned(), error }),
    }
}

/// Parses a file. Returns `None` for a file of one server, which contains its credentials alone.
fn parse(text: &str, path: &Path) -> Result<Option<Content>, StoreError> {
    let invalid = |error: serde_json::Error| StoreError::Invalid {
        path: path.to_owned(),
        line: error.line(),
        column: error.column(),
    };
    match serde_json::from_str(text) {
        Ok(content) => Ok(Some(content)),
        Err(error) => match serde_json::from_str::<Value>(text) {
            Ok(value) if value.get("client_id").is_some() => Ok(None),
            _ => Err(invalid(error)),
        },
    }
}

/// Returns whether a file of one server is that of `server`: its authorization server has the same origin.
fn is_tokens_of(text: &str, server: &str) -> bool {
    let origin = |url: &str| Url::parse(url).ok().map(|url| url.origin());
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    let issuer = value.get("issuer").and_then(Value::as_str).and_then(origin);
    issuer.is_some() && issuer == origin(server)
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Locks changes of a file until the result is dropped. The file itself is replaced, so that another one is locked.
fn lock(path: &Path) -> std::io::Result<File> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let file = private_files::restrict(File::options().write(true).create(true).truncate(false)).open(name)?;
    file.lock()?;
    Ok(file)
}

/// Replaces a file atomically, so that a concurrent reader sees either the old or the new content.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    // On Unix a temporary file has mode 0600.
    let mut file = tempfile::NamedTempFile::new_in(directory(path))?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn concurrent_changes_of_one_file_are_all_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.json");
        // Each store opens and locks the file by itself, as another process would.
        let servers: Vec<String> = (0..24).map(|number| format!("https://h{number}.example.org/mcp")).collect();
        let saving = servers.iter().map(|server| {
            let store = FileTokenStore::new(&path);
            async move { store.save(server, format!("tokens of {server}")).await }
        });
        futures::future::try_join_all(saving).await.unwrap();
        let store = FileTokenStore::new(&path);
        for server in &servers {
            assert_eq!(store.load(server).await.unwrap(), Some(format!("tokens of {server}")));
        }
        futures::future::try_join_all(servers.iter().map(|server| store.clear(server))).await.unwrap();
        assert!(!path.exists());
    }
}

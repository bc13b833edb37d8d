//! Storage of tokens: the trait, and the store in memory.

use std::collections::HashMap;

use async_trait::async_trait;
use parking_lot::Mutex;
use url::Url;

use crate::error::BoxError;

/// Stores the tokens of servers, as one secret text per server. It contains the registration of the client as well.
///
/// `server` is the URL of the server without credentials and fragment.
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::Mutex;
/// use belljar_mcp_client::async_trait;
/// use belljar_mcp_client::BoxError;
/// use belljar_mcp_client::oauth::TokenStore;
///
/// #[derive(Default)]
/// struct Memory(Mutex<HashMap<String, String>>);
///
/// #[async_trait]
/// impl TokenStore for Memory {
///     async fn load(&self, server: &str) -> Result<Option<String>, BoxError> {
///         Ok(self.0.lock().unwrap().get(server).cloned())
///     }
///
///     async fn save(&self, server: &str, tokens: String) -> Result<(), BoxError> {
///         self.0.lock().unwrap().insert(server.to_owned(), tokens);
///         Ok(())
///     }
///
///     async fn clear(&self, server: &str) -> Result<(), BoxError> {
///         self.0.lock().unwrap().remove(server);
///         Ok(())
///     }
/// }
/// ```
#[async_trait]
pub trait TokenStore: Send + Sync + 'static {
    /// Returns the saved tokens of a server, if any.
    ///
    /// # Errors
    ///
    /// A failure to read the store.
    async fn load(&self, server: &str) -> Result<Option<String>, BoxError>;

    /// Saves the tokens of a server, replacing its previous ones.
    ///
    /// # Errors
    ///
    /// A failure to write to the store.
    async fn save(&self, server: &str, tokens: String) -> Result<(), BoxError>;

    /// Deletes the tokens of a server.
    ///
    /// # Errors
    ///
    /// A failure to delete them.
    async fn clear(&self, server: &str) -> Result<(), BoxError>;
}

/// Returns the key of a server in stores: its URL without credentials and fragment.
pub(super) fn server_key(url: &Url) -> String {
    let mut key = url.clone();
    // Neither call can fail for a URL with a host.
    let _ = key.set_password(None);
    let _ = key.set_username("");
    key.set_fragment(None);
    key.to_string()
}

/// A store in memory.
#[derive(Default)]
pub(super) struct MemoryTokenStore(Mutex<HashMap<String, String>>);

#[async_trait]
impl TokenStore for MemoryTokenStore {
    async fn load(&self, server: &str) -> Result<Option<String>, BoxError> {
        Ok(self.0.lock().get(server).cloned())
    }

    async fn save(&self, server: &str, tokens: String) -> Result<(), BoxError> {
        self.0.lock().insert(server.to_owned(), tokens);
        Ok(())
    }

    async fn clear(&self, server: &str) -> Result<(), BoxError> {
        self.0.lock().remove(server);
        Ok(())
    }
}

//! OAuth 2.1 for servers over HTTP: discovery, registration, PKCE, refresh, and step-up authorization for more scopes.
//!
//! `rmcp` implements the protocol. This module decides when it runs: a request is sent with the current token; if the
//! server rejects it, the token is refreshed or the user is sent to the authorization server, and the request is sent
//! again. Tokens and the registration of the client are kept in the [`TokenStore`] of the [`OAuth`] value, which all
//! connections and clones share.

mod authorizer;
mod browser;
mod file_store;
mod loopback;
mod record;
mod store;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use parking_lot::Mutex;
#[cfg(feature = "sse")]
pub(crate) use rmcp::transport::auth::AuthError;
use rmcp::transport::auth::AuthorizationRequest;
use url::Url;

pub use browser::{BrowserError, open_browser};
pub use file_store::FileTokenStore;
pub use loopback::LoopbackRedirect;
pub use store::TokenStore;

pub(crate) use authorizer::{Authorizer, RequestTokens};

use crate::error::{BoxError, McpError};
use loopback::ListeningRedirect;
use store::MemoryTokenStore;

/// Sends the user to the consent page and returns the redirect.
///
/// Closures implement it. [`LoopbackRedirect`] is an alternative that listens on a port of the loopback interface.
///
/// ```
/// use belljar_mcp_client::async_trait;
/// use belljar_mcp_client::BoxError;
/// use belljar_mcp_client::oauth::AuthorizationPrompt;
///
/// /// Asks the user to paste the URL of the redirect.
/// struct Paste;
///
/// #[async_trait]
/// impl AuthorizationPrompt for Paste {
///     async fn authorize(&self, url: String) -> Result<String, BoxError> {
///         println!("visit {url}");
///         let mut answer = String::new();
///         std::io::stdin().read_line(&mut answer)?;
///         Ok(answer.trim().to_owned())
///     }
/// }
/// ```
#[async_trait]
pub trait AuthorizationPrompt: Send + Sync + 'static {
    /// Opens the consent page. Returns the complete URL that the authorization server redirected to, including its
    /// query.
    ///
    /// # Errors
    ///
    /// The failure, for example that the user did not respond.
    async fn authorize(&self, url: String) -> Result<String, BoxError>;
}

#[async_trait]
impl<F, Answer> AuthorizationPrompt for F
where
    F: Fn(String) -> Answer + Send + Sync + 'static,
    Answer: Future<Output = Result<String, BoxError>> + Send,
{
    async fn authorize(&self, url: String) -> Result<String, BoxError> {
        self(url).await
    }
}

/// The configuration for obtaining tokens, and the tokens that were obtained.
///
/// A clone shares the tokens, the registrations of the client and the consent that is being asked for. One value can
/// serve any number of servers and connections: the user is asked once per server.
///
/// ```
/// use belljar_mcp_client::McpServerStreamableHttp;
/// use belljar_mcp_client::oauth::{FileTokenStore, LoopbackRedirect, OAuth, open_browser};
///
/// # fn main() -> Result<(), belljar_mcp_client::McpError> {
/// // Shows the consent page, and receives the redirect on a free port of the loopback interface.
/// let redirect = LoopbackRedirect::new(|url| {
///     eprintln!("visit {url}");
///     let _ = open_browser(url);
/// });
/// let oauth = OAuth::loopback(redirect).client_name("my agent").store(FileTokenStore::new("tokens.json"));
/// let server = McpServerStreamableHttp::new("https://example.org/mcp")?.oauth(oauth).build();
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct OAuth {
    config: Arc<Config>,
    shared: Arc<Shared>,
}

#[derive(Clone)]
struct Config {
    grant: Grant,
    store: Arc<dyn TokenStore>,
    allow_private_addresses: bool,
}

/// The state that all clones share.
#[derive(Default)]
struct Shared {
    /// The authorizers of the servers, by the key of the server in the token store.
    authorizers: Mutex<HashMap<String, Arc<Authorizer>>>,
    /// The number of pending user prompts.
    pending_prompts: Arc<AtomicUsize>,
}

#[derive(Clone)]
enum Grant {
    /// The authorization code grant: the user consents in a browser.
    Code { request: AuthorizationRequest, redirect: Redirect },
    /// The client credentials grant: the program itself is registered.
    Client { id: String, secret: String, scopes: Vec<String> },
}

/// The receiver of the redirect.
#[derive(Clone)]
enum Redirect {
    Fixed { uri: String, prompt: Arc<dyn AuthorizationPrompt> },
    Loopback(LoopbackRedirect),
}

/// A receiver of one redirect that is ready.
enum ReadyRedirect {
    Fixed { uri: String, prompt: Arc<dyn AuthorizationPrompt> },
    Loopback(ListeningRedirect),
}

impl Redirect {
    /// Prepares for a redirect, if possible to the URI that the client was registered with.
    async fn prepare(&self, registered: Option<&str>) -> Result<ReadyRedirect, BoxError> {
        Ok(match self {
            Self::Fixed { uri, prompt } => ReadyRedirect::Fixed { uri: uri.clone(), prompt: prompt.clone() },
            Self::Loopback(redirect) => ReadyRedirect::Loopback(redirect.listen(registered).await?),
        })
    }
}

impl ReadyRedirect {
    fn uri(&self) -> String {
        match self {
            Self::Fixed { uri, .. } => uri.clone(),
            Self::Loopback(listening) => listening.uri(),
        }
    }

    async fn authorize(self, url: String) -> Result<String, BoxError> {
        match self {
            Self::Fixed { prompt, .. } => prompt.authorize(url).await,
            Self::Loopback(listening) => Ok(listening.authorize(&url).await?),
        }
    }
}

/// The OAuth client that the entry of a configuration file names.
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct RegisteredClient {
    pub(crate) id: Option<String>,
    pub(crate) secret: Option<String>,
    pub(crate) scopes: Vec<String>,
    /// The port of the redirect that the client was registered with.
    pub(crate) port: Option<u16>,
}

impl OAuth {
    /// Creates a configuration for the authorization code grant with a redirect to the loopback interface.
    ///
    /// The client is registered dynamically unless another registration method is set.
    ///
    /// ```
    /// use belljar_mcp_client::oauth::{LoopbackRedirect, OAuth};
    ///
    /// let oauth = OAuth::loopback(LoopbackRedirect::new(|url| eprintln!("visit {url}")));
    /// ```
    pub fn loopback(redirect: LoopbackRedirect) -> Self {
        // The URI of each redirect replaces this one.
        let request = AuthorizationRequest::new("http://127.0.0.1/callback").with_client_name("belljar");
        Self::with_grant(Grant::Code { request, redirect: Redirect::Loopback(redirect) })
    }

    /// Creates a configuration for the authorization code grant; `redirect_uri` is the URI that the browser is
    /// redirected to.
    ///
    /// The client is registered dynamically unless another registration method is set.
    ///
    /// ```
    /// use belljar_mcp_client::oauth::OAuth;
    ///
    /// let oauth = OAuth::new("https://agent.example.org/callback", async |url: String| {
    ///     println!("visit {url} and paste the URL that you are redirected to:");
    ///     let mut answer = String::new();
    ///     std::io::stdin().read_line(&mut answer)?;
    ///     Ok(answer.trim().to_owned())
    /// });
    /// ```
    pub fn new(redirect_uri: impl Into<String>, prompt: impl AuthorizationPrompt) -> Self {
        let uri = redirect_uri.into();
        let request = AuthorizationRequest::new(uri.clone()).with_client_name("belljar");
        Self::with_grant(Grant::Code { request, redirect: Redirect::Fixed { uri, prompt: Arc::new(prompt) } })
    }

    /// Creates a configuration for the client credentials grant, which does not involve a user.
    ///
    /// ```
    /// let oauth = belljar_mcp_client::oauth::OAuth::client_credentials("id", "secret", ["read"]);
    /// ```
    pub fn client_credentials<S: Into<String>>(
        id: impl Into<String>,
        secret: impl Into<String>,
        scopes: impl IntoIterator<Item = S>,
    ) -> Self {
        let scopes = scopes.into_iter().map(Into::into).collect();
        Self::with_grant(Grant::Client { id: id.into(), secret: secret.into(), scopes })
    }

    fn with_grant(grant: Grant) -> Self {
        let config = Config { grant, store: Arc::new(MemoryTokenStore::default()), allow_private_addresses: false };
        Self { config: Arc::new(config), shared: Arc::default() }
    }

    /// Returns whether a user is being asked for consent.
    pub(crate) fn is_waiting_for_consent(&self) -> bool {
        self.shared.pending_prompts.load(Ordering::Relaxed) > 0
    }

    /// Changes the configuration. A clone that is changed no longer shares the state of the original.
    fn configure(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(Arc::make_mut(&mut self.config));
        self.shared = Arc::default();
        self
    }

    fn request(self, change: impl FnOnce(AuthorizationRequest) -> AuthorizationRequest) -> Self {
        self.configure(|config| {
            if let Grant::Code { request, .. } = &mut config.grant {
                *request = change(request.clone());
            }
        })
    }

    /// Uses this client unless a client was set.
    pub(crate) fn with_default_client(self, client: &RegisteredClient) -> Self {
        let is_set = matches!(&self.config.grant, Grant::Code { request, .. } if request.client_id.is_none());
        if !is_set {
            return self;
        }
        self.configure(|config| {
            let Grant::Code { request, redirect } = &mut config.grant else { return };
            request.client_id.clone_from(&client.id);
            if client.id.is_some() {
                request.client_secret.clone_from(&client.secret);
            }
            if request.scopes.is_empty() {
                request.scopes.clone_from(&client.scopes);
            }
            if let (Redirect::Loopback(loopback), Some(port)) = (redirect, client.port) {
                loopback.set_registered_port(port);
            }
        })
    }

    /// Sets the client name that is shown to the user. Defaults to `belljar`.
    ///
    /// ```
    /// # use belljar_mcp_client::oauth::{LoopbackRedirect, OAuth};
    /// # let redirect = LoopbackRedirect::new(|url| eprintln!("visit {url}"));
    /// let oauth = OAuth::loopback(redirect).client_name("my agent");
    /// ```
    pub fn client_name(self, name: impl Into<String>) -> Self {
        self.request(|request| request.with_client_name(name))
    }

    /// Sets the URL of a document with the client's metadata, which replaces dynamic registration at servers that
    /// support it.
    ///
    /// ```
    /// # use belljar_mcp_client::oauth::{LoopbackRedirect, OAuth};
    /// # let redirect = LoopbackRedirect::new(|url| eprintln!("visit {url}"));
    /// let oauth = OAuth::loopback(redirect).client_metadata_url("https://example.org/agent.json");
    /// ```
    pub fn client_metadata_url(self, url: impl Into<String>) -> Self {
        self.request(|request| request.with_client_metadata_url(url))
    }

    /// Sets the ID, and the secret if any, of a client that was registered in advance. If the authorization server
    /// insists on the port that the client was registered with, set [`LoopbackRedirect::port`].
    ///
    /// ```
    /// # use belljar_mcp_client::oauth::{LoopbackRedirect, OAuth};
    /// # let redirect = LoopbackRedirect::new(|url| eprintln!("visit {url}"));
    /// let oauth = OAuth::loopback(redirect.port(8765)).preregistered_client("id", Some("secret".into()));
    /// ```
    pub fn preregistered_client(self, id: impl Into<String>, secret: Option<String>) -> Self {
        self.request(|request| {
            let request = request.with_preregistered_client(id);
            match secret {
                Some(secret) => request.with_client_secret(secret),
                None => request,
            }
        })
    }

    /// Sets the scopes to request. Defaults to those that the server requires.
    ///
    /// ```
    /// # use belljar_mcp_client::oauth::{LoopbackRedirect, OAuth};
    /// # let redirect = LoopbackRedirect::new(|url| eprintln!("visit {url}"));
    /// let oauth = OAuth::loopback(redirect).scopes(["read", "write"]);
    /// ```
    pub fn scopes<S: Into<String>>(self, scopes: impl IntoIterator<Item = S>) -> Self {
        self.request(|request| request.with_scopes(scopes))
    }

    /// Sets the store of the tokens. Defaults to memory, for the lifetime of this value, its clones and their servers.
    ///
    /// ```
    /// # use belljar_mcp_client::oauth::{FileTokenStore, LoopbackRedirect, OAuth};
    /// # let redirect = LoopbackRedirect::new(|url| eprintln!("visit {url}"));
    /// let oauth = OAuth::loopback(redirect).store(FileTokenStore::new("tokens.json"));
    /// ```
    pub fn store(self, store: impl TokenStore) -> Self {
        self.configure(|config| config.store = Arc::new(store))
    }

    /// Allows a server's metadata to name hosts with private addresses, as within a company network. Loopback addresses
    /// are always allowed if the server itself has one.
    ///
    /// ```
    /// # use belljar_mcp_client::oauth::{LoopbackRedirect, OAuth};
    /// # let redirect = LoopbackRedirect::new(|url| eprintln!("visit {url}"));
    /// let oauth = OAuth::loopback(redirect).allow_private_addresses();
    /// ```
    pub fn allow_private_addresses(self) -> Self {
        self.configure(|config| config.allow_private_addresses = true)
    }

    /// Returns the source of tokens for a server, which all connections to it share.
    pub(crate) async fn authorizer(&self, url: &Url) -> Result<Arc<Authorizer>, McpError> {
        let key = store::server_key(url);
        let authorizer = {
            let mut authorizers = self.shared.authorizers.lock();
            let pending = self.shared.pending_prompts.clone();
            let new = || Arc::new(Authorizer::new(self.config.clone(), url.clone(), &key, pending));
            authorizers.entry(key.clone()).or_insert_with(new).clone()
        };
        authorizer.prepare().await?;
        Ok(authorizer)
    }
}

impl std::fmt::Debug for OAuth {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("OAuth").finish_non_exhaustive()
    }
}

//! OAuth 2.1 for servers over HTTP: discovery, registration, PKCE, refresh, and step-up authorization for more scopes.
//!
//! `rmcp` implements the protocol. This module decides when it runs: a request is sent with the current token; if the
//! server rejects it, the token is refreshed or the user is sent to the authorization server, and the request is sent
//! again.

mod loopback;
mod store;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
pub(crate) use rmcp::transport::auth::AuthError;
use rmcp::transport::auth::{
    AuthorizationManager, AuthorizationRequest, AuthorizationSession, ClientCredentialsConfig,
};
use tokio::sync::Mutex;
use url::Url;

pub use loopback::LoopbackRedirect;
pub use store::{FileTokenStore, TokenStore};

use crate::error::{BoxError, McpError};

/// Sends the user to the consent page and returns the redirect.
///
/// Closures implement it, and so does [`LoopbackRedirect`], which listens on a port of the loopback interface.
///
/// ```
/// use async_trait::async_trait;
/// use belljar_client::BoxError;
/// use belljar_client::oauth::AuthorizationPrompt;
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

/// The configuration for obtaining tokens.
///
/// ```
/// use belljar_client::McpServerStreamableHttp;
/// use belljar_client::oauth::{FileTokenStore, LoopbackRedirect, OAuth};
///
/// # fn main() -> Result<(), belljar_client::McpError> {
/// // Prints the URL of the consent page and listens on a loopback port for the redirect.
/// let redirect = LoopbackRedirect::new(8765, |url| eprintln!("visit {url}"));
/// let oauth = OAuth::new(redirect.redirect_uri(), redirect)
///     .client_name("my agent")
///     .store(FileTokenStore::new("tokens/example.org.json"));
/// let server = McpServerStreamableHttp::new("https://example.org/mcp")?.oauth(oauth).build();
/// # Ok(())
/// # }
/// ```
pub struct OAuth {
    grant: Grant,
    store: Option<Arc<dyn TokenStore>>,
    allow_private_addresses: bool,
    /// The number of pending user prompts.
    pending_prompts: AtomicUsize,
}

enum Grant {
    /// The authorization code grant: the user consents in a browser.
    Code { request: AuthorizationRequest, prompt: Arc<dyn AuthorizationPrompt> },
    /// The client credentials grant: the program itself is registered.
    Client { id: String, secret: String, scopes: Vec<String> },
}

impl OAuth {
    /// Creates a configuration for the authorization code grant; `redirect_uri` is the URI that the browser is
    /// redirected to.
    ///
    /// The client is registered dynamically unless another registration method is set.
    ///
    /// ```
    /// # use belljar_client::oauth::{LoopbackRedirect, OAuth};
    /// # let redirect = LoopbackRedirect::new(8765, |url| eprintln!("visit {url}"));
    /// let oauth = OAuth::new(redirect.redirect_uri(), redirect);
    /// ```
    pub fn new(redirect_uri: impl Into<String>, prompt: impl AuthorizationPrompt) -> Self {
        let request = AuthorizationRequest::new(redirect_uri).with_client_name("belljar");
        Self::with_grant(Grant::Code { request, prompt: Arc::new(prompt) })
    }

    /// Creates a configuration for the client credentials grant, which does not involve a user.
    ///
    /// ```
    /// let oauth = belljar_client::oauth::OAuth::client_credentials("id", "secret", ["read"]);
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
        Self { grant, store: None, allow_private_addresses: false, pending_prompts: AtomicUsize::new(0) }
    }

    /// Returns whether a user is being asked for consent.
    pub(crate) fn is_waiting_for_consent(&self) -> bool {
        self.pending_prompts.load(Ordering::Relaxed) > 0
    }

    fn request(mut self, change: impl FnOnce(AuthorizationRequest) -> AuthorizationRequest) -> Self {
        if let Grant::Code { request, .. } = &mut self.grant {
            *request = change(request.clone());
        }
        self
    }

    /// Sets the client name that is shown to the user. Defaults to `belljar`.
    ///
    /// ```
    /// # use belljar_client::oauth::{LoopbackRedirect, OAuth};
    /// # let redirect = LoopbackRedirect::new(8765, |url| eprintln!("visit {url}"));
    /// let oauth = OAuth::new(redirect.redirect_uri(), redirect).client_name("my agent");
    /// ```
    pub fn client_name(self, name: impl Into<String>) -> Self {
        self.request(|request| request.with_client_name(name))
    }

    /// Sets the URL of the program's client metadata document, which serves as its client ID: an `https` URL with a
    /// path. It is used if the authorization server supports it.
    ///
    /// ```
    /// # use belljar_client::oauth::{LoopbackRedirect, OAuth};
    /// # let redirect = LoopbackRedirect::new(8765, |url| eprintln!("visit {url}"));
    /// let oauth = OAuth::new(redirect.redirect_uri(), redirect).client_metadata_url("https://example.org/agent.json");
    /// ```
    pub fn client_metadata_url(self, url: impl Into<String>) -> Self {
        self.request(|request| request.with_client_metadata_url(url))
    }

    /// Sets the ID, and the secret if any, of a client that was registered in advance.
    ///
    /// ```
    /// # use belljar_client::oauth::{LoopbackRedirect, OAuth};
    /// # let redirect = LoopbackRedirect::new(8765, |url| eprintln!("visit {url}"));
    /// let oauth = OAuth::new(redirect.redirect_uri(), redirect).preregistered_client("id", Some("secret".into()));
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
    /// # use belljar_client::oauth::{LoopbackRedirect, OAuth};
    /// # let redirect = LoopbackRedirect::new(8765, |url| eprintln!("visit {url}"));
    /// let oauth = OAuth::new(redirect.redirect_uri(), redirect).scopes(["read", "write"]);
    /// ```
    pub fn scopes<S: Into<String>>(self, scopes: impl IntoIterator<Item = S>) -> Self {
        self.request(|request| request.with_scopes(scopes))
    }

    /// Sets the store of the tokens. Defaults to memory, for the lifetime of the server.
    ///
    /// ```
    /// # use belljar_client::oauth::{FileTokenStore, LoopbackRedirect, OAuth};
    /// # let redirect = LoopbackRedirect::new(8765, |url| eprintln!("visit {url}"));
    /// let oauth = OAuth::new(redirect.redirect_uri(), redirect).store(FileTokenStore::new("tokens.json"));
    /// ```
    pub fn store(mut self, store: impl TokenStore) -> Self {
        self.store = Some(Arc::new(store));
        self
    }

    /// Allows a server's metadata to name hosts with private addresses, as within a company network. Loopback addresses
    /// are always allowed if the server itself has one.
    ///
    /// ```
    /// # use belljar_client::oauth::{LoopbackRedirect, OAuth};
    /// # let redirect = LoopbackRedirect::new(8765, |url| eprintln!("visit {url}"));
    /// let oauth = OAuth::new(redirect.redirect_uri(), redirect).allow_private_addresses();
    /// ```
    pub fn allow_private_addresses(mut self) -> Self {
        self.allow_private_addresses = true;
        self
    }

    pub(crate) async fn authorizer(self: &Arc<Self>, url: &Url) -> Result<Arc<Authorizer>, McpError> {
        let failed = |error: AuthError| McpError::Unauthorized { server: url.to_string(), reason: error.to_string() };
        let mut manager = if self.allow_private_addresses {
            AuthorizationManager::new_allowing_private_addresses(url.clone()).await
        } else {
            AuthorizationManager::new(url.clone()).await
        }
        .map_err(failed)?;
        if let Some(store) = &self.store {
            manager.set_credential_store(store::Adapter(store.clone()));
            manager.initialize_from_store().await.map_err(failed)?;
        }
        Ok(Arc::new(Authorizer { oauth: self.clone(), url: url.clone(), manager: Mutex::new(Some(manager)) }))
    }
}

impl std::fmt::Debug for OAuth {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("OAuth").finish_non_exhaustive()
    }
}

/// The token of one request, which is renewed if the server rejects it.
pub(crate) struct RequestTokens<'a> {
    authorizer: Option<&'a Authorizer>,
    current: Option<String>,
    left: usize,
}

impl<'a> RequestTokens<'a> {
    /// The maximum number of authorizations per request, so that a server that rejects every token cannot keep asking
    /// the user.
    const MAX_RENEWALS: usize = 3;

    pub(crate) async fn new(authorizer: Option<&'a Authorizer>) -> Result<Self, AuthError> {
        let current = match authorizer {
            Some(authorizer) => authorizer.token().await?,
            None => None,
        };
        Ok(Self { authorizer, current, left: Self::MAX_RENEWALS })
    }

    pub(crate) fn current(&self) -> Option<String> {
        self.current.clone()
    }

    /// Obtains another token that meets a challenge. Returns whether it succeeded, in which case the request may be
    /// sent again.
    pub(crate) async fn renew(&mut self, challenge: &str) -> Result<bool, AuthError> {
        let Some(authorizer) = self.authorizer.filter(|_| self.left > 0) else { return Ok(false) };
        self.left -= 1;
        self.current = Some(authorizer.authorize(challenge, self.current.as_deref()).await?);
        Ok(true)
    }
}

/// Counts a pending user prompt until it is dropped, including when it is cancelled.
struct PendingPrompt<'a>(&'a AtomicUsize);

impl<'a> PendingPrompt<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for PendingPrompt<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The tokens of one connection.
pub(crate) struct Authorizer {
    oauth: Arc<OAuth>,
    url: Url,
    /// `None` only during an authorization, while the lock is held.
    manager: Mutex<Option<AuthorizationManager>>,
}

impl Authorizer {
    /// Returns the current token, refreshed if it has expired.
    async fn token(&self) -> Result<Option<String>, AuthError> {
        let manager = self.manager.lock().await;
        let Some(manager) = manager.as_ref() else { return Ok(None) };
        match manager.get_access_token().await {
            Ok(token) => Ok(Some(token)),
            Err(AuthError::AuthorizationRequired) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Obtains a token that meets a challenge, replacing the rejected one.
    async fn authorize(&self, challenge: &str, refused: Option<&str>) -> Result<String, AuthError> {
        let mut slot = self.manager.lock().await;
        let manager =
            slot.take().ok_or_else(|| AuthError::InternalError("the authorization manager was lost".to_owned()))?;
        let (manager, token) = self.authorize_with(manager, challenge, refused).await;
        *slot = Some(manager);
        token
    }

    async fn authorize_with(
        &self,
        manager: AuthorizationManager,
        challenge: &str,
        refused: Option<&str>,
    ) -> (AuthorizationManager, Result<String, AuthError>) {
        // Another request may have renewed the token already.
        if let Ok(token) = manager.get_access_token().await
            && Some(token.as_str()) != refused
        {
            return (manager, Ok(token));
        }
        // A refreshed token has no additional scopes.
        if refused.is_some() && !challenge.contains("insufficient_scope") && manager.refresh_token().await.is_ok() {
            let token = manager.get_access_token().await;
            return (manager, token);
        }
        match &self.oauth.grant {
            Grant::Code { request, prompt } => self.ask_user(manager, request, &**prompt, challenge).await,
            Grant::Client { id, secret, scopes } => {
                self.present_credentials(manager, id, secret, scopes, challenge).await
            }
        }
    }

    async fn ask_user(
        &self,
        mut manager: AuthorizationManager,
        request: &AuthorizationRequest,
        prompt: &dyn AuthorizationPrompt,
        challenge: &str,
    ) -> (AuthorizationManager, Result<String, AuthError>) {
        match manager.resolve_metadata_from_challenge(Some(challenge)).await {
            Ok(resolution) => manager.set_metadata(resolution.metadata),
            Err(error) => return (manager, Err(error)),
        }
        let mut request = request.clone();
        // The first authorization requests the scopes that the server names; later ones add them to the granted scopes.
        if manager.get_current_scopes().await.is_empty() {
            request = request.with_initial_scope_selection();
        }
        let session = match AuthorizationSession::new(manager, request).await {
            Ok(session) => session,
            Err((manager, error)) => return (manager, Err(error)),
        };
        let agreed = async {
            let url = session.get_authorization_url().to_owned();
            let pending = PendingPrompt::new(&self.oauth.pending_prompts);
            let redirected_to = prompt.authorize(url).await;
            let redirected_to = redirected_to.map_err(|error| AuthError::AuthorizationFailed(error.to_string()))?;
            drop(pending);
            session.handle_callback_url(&redirected_to).await?;
            session.auth_manager.get_access_token().await
        };
        let token = agreed.await;
        (session.auth_manager, token)
    }

    async fn present_credentials(
        &self,
        mut manager: AuthorizationManager,
        id: &str,
        secret: &str,
        scopes: &[String],
        challenge: &str,
    ) -> (AuthorizationManager, Result<String, AuthError>) {
        let config = ClientCredentialsConfig::ClientSecret {
            client_id: id.to_owned(),
            client_secret: secret.to_owned(),
            scopes: scopes.to_vec(),
            resource: Some(self.url.to_string()),
        };
        let granted = async {
            let resolution = manager.resolve_metadata_from_challenge(Some(challenge)).await?;
            manager.set_metadata(resolution.metadata);
            manager.configure_client_credentials(&config)?;
            manager.exchange_client_credentials(&config).await?;
            manager.get_access_token().await
        };
        let token = granted.await;
        (manager, token)
    }
}

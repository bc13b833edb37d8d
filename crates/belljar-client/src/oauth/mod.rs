//! OAuth 2.1 for servers over HTTP: discovery, registration, PKCE, refresh, and more scopes when a server asks for them.
//!
//! The protocol is `rmcp`'s. Here is when it runs: a request goes out with the token that there is; when the server refuses
//! it, the token is refreshed, or the user is sent to the authorization server, and the request goes out again.

mod loopback;
mod store;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationRequest, AuthorizationSession, ClientCredentialsConfig,
};
use tokio::sync::Mutex;
use url::Url;

pub use loopback::Loopback;
pub use store::{FileTokenStore, TokenStore};

use crate::error::McpError;

/// Sends the user to a page, and learns where the page sent the user.
///
/// Closures are such, and [`Loopback`] is one that listens on a port of this machine.
///
/// ```
/// use async_trait::async_trait;
/// use belljar_client::oauth::Visit;
///
/// /// Asks the user to paste where the browser was sent.
/// struct Paste;
///
/// #[async_trait]
/// impl Visit for Paste {
///     async fn visit(&self, url: String) -> Result<String, String> {
///         println!("visit {url}");
///         let mut answer = String::new();
///         std::io::stdin().read_line(&mut answer).map_err(|error| error.to_string())?;
///         Ok(answer.trim().to_owned())
///     }
/// }
/// ```
#[async_trait]
pub trait Visit: Send + Sync + 'static {
    /// Opens the page; the answer is the URL, query and all, that the authorization server then redirected to.
    ///
    /// # Errors
    ///
    /// What went wrong: nobody came back, for one.
    async fn visit(&self, url: String) -> Result<String, String>;
}

#[async_trait]
impl<F, Answer> Visit for F
where
    F: Fn(String) -> Answer + Send + Sync + 'static,
    Answer: Future<Output = Result<String, String>> + Send,
{
    async fn visit(&self, url: String) -> Result<String, String> {
        self(url).await
    }
}

/// How to get tokens.
///
/// ```
/// use belljar_client::McpServerStreamableHttp;
/// use belljar_client::oauth::{FileTokenStore, Loopback, OAuth};
///
/// # fn main() -> Result<(), belljar_client::McpError> {
/// // Prints the page, and waits on a port of this machine for the user to come back.
/// let visit = Loopback::new(8765, |url| eprintln!("visit {url}"));
/// let oauth = OAuth::new(visit.redirect_uri(), visit)
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
    /// Visits of the user that are under way.
    asking: AtomicUsize,
}

enum Grant {
    /// A user agrees in a browser.
    Code { request: AuthorizationRequest, visit: Arc<dyn Visit> },
    /// The program is known to the authorization server.
    Client { id: String, secret: String, scopes: Vec<String> },
}

impl OAuth {
    /// The user agrees in a browser, which is then sent to this URI.
    ///
    /// The program makes itself known by dynamic registration, unless one of the other ways is set.
    ///
    /// ```
    /// # use belljar_client::oauth::{Loopback, OAuth};
    /// # let visit = Loopback::new(8765, |url| eprintln!("visit {url}"));
    /// let oauth = OAuth::new(visit.redirect_uri(), visit);
    /// ```
    pub fn new(redirect_uri: impl Into<String>, visit: impl Visit) -> Self {
        let request = AuthorizationRequest::new(redirect_uri).with_client_name("belljar");
        Self::of(Grant::Code { request, visit: Arc::new(visit) })
    }

    /// No user is asked: the program itself has an account (the client credentials grant).
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
        Self::of(Grant::Client { id: id.into(), secret: secret.into(), scopes })
    }

    fn of(grant: Grant) -> Self {
        Self { grant, store: None, allow_private_addresses: false, asking: AtomicUsize::new(0) }
    }

    /// Whether the user is being asked for consent.
    pub(crate) fn is_asking(&self) -> bool {
        self.asking.load(Ordering::Relaxed) > 0
    }

    fn request(mut self, change: impl FnOnce(AuthorizationRequest) -> AuthorizationRequest) -> Self {
        if let Grant::Code { request, .. } = &mut self.grant {
            *request = change(request.clone());
        }
        self
    }

    /// What the user is told the program is called.
    ///
    /// ```
    /// # use belljar_client::oauth::{Loopback, OAuth};
    /// # let visit = Loopback::new(8765, |url| eprintln!("visit {url}"));
    /// let oauth = OAuth::new(visit.redirect_uri(), visit).client_name("my agent");
    /// ```
    pub fn client_name(self, name: impl Into<String>) -> Self {
        self.request(|request| request.with_client_name(name))
    }

    /// Where the program's metadata document is, whose URL then is its client id: an `https` URL with a path. Used where the
    /// authorization server takes such.
    ///
    /// ```
    /// # use belljar_client::oauth::{Loopback, OAuth};
    /// # let visit = Loopback::new(8765, |url| eprintln!("visit {url}"));
    /// let oauth = OAuth::new(visit.redirect_uri(), visit).client_metadata_url("https://example.org/agent.json");
    /// ```
    pub fn client_metadata_url(self, url: impl Into<String>) -> Self {
        self.request(|request| request.with_client_metadata_url(url))
    }

    /// The id, and the secret if there is one, that the program was registered with by hand.
    ///
    /// ```
    /// # use belljar_client::oauth::{Loopback, OAuth};
    /// # let visit = Loopback::new(8765, |url| eprintln!("visit {url}"));
    /// let oauth = OAuth::new(visit.redirect_uri(), visit).registered("the id", Some("the secret".into()));
    /// ```
    pub fn registered(self, id: impl Into<String>, secret: Option<String>) -> Self {
        self.request(|request| {
            let request = request.with_preregistered_client(id);
            match secret {
                Some(secret) => request.with_client_secret(secret),
                None => request,
            }
        })
    }

    /// What to ask for. Unless told, what the server says it needs.
    ///
    /// ```
    /// # use belljar_client::oauth::{Loopback, OAuth};
    /// # let visit = Loopback::new(8765, |url| eprintln!("visit {url}"));
    /// let oauth = OAuth::new(visit.redirect_uri(), visit).scopes(["read", "write"]);
    /// ```
    pub fn scopes<S: Into<String>>(self, scopes: impl IntoIterator<Item = S>) -> Self {
        self.request(|request| request.with_scopes(scopes))
    }

    /// Where tokens are kept. Unless told, in memory, as long as the server is there.
    ///
    /// ```
    /// # use belljar_client::oauth::{FileTokenStore, Loopback, OAuth};
    /// # let visit = Loopback::new(8765, |url| eprintln!("visit {url}"));
    /// let oauth = OAuth::new(visit.redirect_uri(), visit).store(FileTokenStore::new("tokens.json"));
    /// ```
    pub fn store(mut self, store: impl TokenStore) -> Self {
        self.store = Some(Arc::new(store));
        self
    }

    /// Lets a server's metadata name hosts with private addresses, as within a company. Addresses of this machine are
    /// allowed if the server itself is on it.
    ///
    /// ```
    /// # use belljar_client::oauth::{Loopback, OAuth};
    /// # let visit = Loopback::new(8765, |url| eprintln!("visit {url}"));
    /// let oauth = OAuth::new(visit.redirect_uri(), visit).allow_private_addresses();
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

/// The tokens that one request is sent with: the one that there is and, where the server refuses it, one that it takes.
pub(crate) struct RequestTokens<'a> {
    authorizer: Option<&'a Authorizer>,
    current: Option<String>,
    left: usize,
}

impl<'a> RequestTokens<'a> {
    /// How often one request may lead to an authorization: a server that is never content must not keep the user busy.
    const MOST: usize = 3;

    pub(crate) async fn of(authorizer: Option<&'a Authorizer>) -> Result<Self, AuthError> {
        let current = match authorizer {
            Some(authorizer) => authorizer.token().await?,
            None => None,
        };
        Ok(Self { authorizer, current, left: Self::MOST })
    }

    pub(crate) fn current(&self) -> Option<String> {
        self.current.clone()
    }

    /// Gets another token, which meets a challenge; whether there is one, so that the request may be sent again.
    pub(crate) async fn renew(&mut self, challenge: &str) -> Result<bool, AuthError> {
        let Some(authorizer) = self.authorizer.filter(|_| self.left > 0) else { return Ok(false) };
        self.left -= 1;
        self.current = Some(authorizer.authorize(challenge, self.current.as_deref()).await?);
        Ok(true)
    }
}

/// Counts a visit while it is under way, also one that is given up.
struct Asking<'a>(&'a AtomicUsize);

impl<'a> Asking<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Tokens of one connection.
pub(crate) struct Authorizer {
    oauth: Arc<OAuth>,
    url: Url,
    /// Away only while an authorization is under way, during which the lock is held.
    manager: Mutex<Option<AuthorizationManager>>,
}

impl Authorizer {
    /// The token that there is, refreshed if it is old.
    async fn token(&self) -> Result<Option<String>, AuthError> {
        let manager = self.manager.lock().await;
        let Some(manager) = manager.as_ref() else { return Ok(None) };
        match manager.get_access_token().await {
            Ok(token) => Ok(Some(token)),
            Err(AuthError::AuthorizationRequired) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Gets a token that meets a challenge, in place of the one that did not.
    async fn authorize(&self, challenge: &str, refused: Option<&str>) -> Result<String, AuthError> {
        let mut slot = self.manager.lock().await;
        let manager = slot.take().ok_or_else(|| AuthError::InternalError("no authorization is possible".to_owned()))?;
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
        // Another request may have been faster.
        if let Ok(token) = manager.get_access_token().await
            && Some(token.as_str()) != refused
        {
            return (manager, Ok(token));
        }
        // A refresh gives no more rights than there were.
        if refused.is_some() && !challenge.contains("insufficient_scope") && manager.refresh_token().await.is_ok() {
            let token = manager.get_access_token().await;
            return (manager, token);
        }
        match &self.oauth.grant {
            Grant::Code { request, visit } => self.ask_user(manager, request, &**visit, challenge).await,
            Grant::Client { id, secret, scopes } => {
                self.present_credentials(manager, id, secret, scopes, challenge).await
            }
        }
    }

    async fn ask_user(
        &self,
        mut manager: AuthorizationManager,
        request: &AuthorizationRequest,
        visit: &dyn Visit,
        challenge: &str,
    ) -> (AuthorizationManager, Result<String, AuthError>) {
        match manager.resolve_metadata_from_challenge(Some(challenge)).await {
            Ok(resolution) => manager.set_metadata(resolution.metadata),
            Err(error) => return (manager, Err(error)),
        }
        let mut request = request.clone();
        // The first time what the server names is asked for; later that in addition to what was granted.
        if manager.get_current_scopes().await.is_empty() {
            request = request.with_initial_scope_selection();
        }
        let session = match AuthorizationSession::new(manager, request).await {
            Ok(session) => session,
            Err((manager, error)) => return (manager, Err(error)),
        };
        let agreed = async {
            let url = session.get_authorization_url().to_owned();
            let asking = Asking::new(&self.oauth.asking);
            let came_back = visit.visit(url).await.map_err(AuthError::AuthorizationFailed)?;
            drop(asking);
            session.handle_callback_url(&came_back).await?;
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

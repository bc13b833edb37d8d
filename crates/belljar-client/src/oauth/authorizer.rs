//! The source of tokens for one server: gets, refreshes and renews them for all of its connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationRequest, AuthorizationSession, ClientCredentialsConfig,
    OAuthClientConfig,
};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::record::{Registration, Tokens};
use super::{Config, Grant, ReadyRedirect, Redirect};
use crate::error::McpError;
use crate::transport::{error_chain, redaction};

/// The key of a server's metadata that says that a URL may be the ID of a client.
const SUPPORTS_URL_AS_CLIENT_ID: &str = "client_id_metadata_document_supported";

/// The token of one request, which is renewed if the server rejects it.
pub(crate) struct RequestTokens<'a> {
    authorizer: Option<&'a Authorizer>,
    current: Option<String>,
    /// The number of failed authorizations before the request.
    failures: u64,
    left: usize,
    /// Cancelled when the connection ends.
    closed: &'a CancellationToken,
}

impl<'a> RequestTokens<'a> {
    /// The maximum number of authorizations per request, so that a server that rejects every token cannot keep asking
    /// the user.
    const MAX_RENEWALS: usize = 3;

    pub(crate) async fn new(
        authorizer: Option<&'a Authorizer>,
        closed: &'a CancellationToken,
    ) -> Result<Self, AuthError> {
        let failures = authorizer.map_or(0, Authorizer::failures);
        let current = match authorizer {
            Some(authorizer) => authorizer.token().await?,
            None => None,
        };
        Ok(Self { authorizer, current, failures, left: Self::MAX_RENEWALS, closed })
    }

    pub(crate) fn current(&self) -> Option<String> {
        self.current.clone()
    }

    /// Obtains another token that meets a challenge. Returns whether it succeeded, in which case the request may be
    /// sent again. If the connection ends meanwhile, the user is no longer asked.
    pub(crate) async fn renew(&mut self, challenge: &str) -> Result<bool, AuthError> {
        let Some(authorizer) = self.authorizer.filter(|_| self.left > 0) else { return Ok(false) };
        self.left -= 1;
        let authorizing = authorizer.authorize(challenge, self.current.as_deref(), self.failures);
        let token = tokio::select! {
            biased;
            () = self.closed.cancelled() => {
                return Err(AuthError::AuthorizationFailed("the connection was closed".to_owned()));
            }
            token = authorizing => token?,
        };
        self.current = Some(token);
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

/// The source of tokens for one server.
pub(crate) struct Authorizer {
    config: Arc<Config>,
    url: Url,
    tokens: Tokens,
    pending_prompts: Arc<AtomicUsize>,
    state: Mutex<State>,
    /// The number of failed authorizations.
    failures: AtomicU64,
}

#[derive(Default)]
struct State {
    /// `None` before the first use, during an authorization, and after one that was dropped.
    manager: Option<AuthorizationManager>,
    /// The reason of the last failed authorization.
    last_failure: Option<String>,
}

type Authorized = (AuthorizationManager, Result<String, AuthError>);

impl Authorizer {
    pub(super) fn new(config: Arc<Config>, url: Url, key: &str, pending_prompts: Arc<AtomicUsize>) -> Self {
        let client_id = match &config.grant {
            Grant::Code { request, .. } => request.client_id.clone(),
            Grant::Client { id, .. } => Some(id.clone()),
        };
        let tokens = Tokens::new(config.store.clone(), key.to_owned(), client_id);
        Self { config, url, tokens, pending_prompts, state: Mutex::default(), failures: AtomicU64::new(0) }
    }

    fn failures(&self) -> u64 {
        self.failures.load(Ordering::Acquire)
    }

    /// Loads the tokens, so that a failure to do so is an error of the connection. So is the failure of an
    /// authorization that was in progress.
    pub(super) async fn prepare(&self) -> Result<(), McpError> {
        let failed = |reason: String| McpError::unauthorized(redaction::url(&self.url), reason);
        let failures = self.failures();
        let mut state = self.state.lock().await;
        if let Some(reason) = self.failure_since(&state, failures) {
            return Err(failed(error_chain::text(&reason)));
        }
        self.with_manager(&mut state).await.map(|_| ()).map_err(|error| failed(error_chain::text(&error)))
    }

    /// Returns the error of an authorization that failed since there were this many failures.
    fn failure_since(&self, state: &State, failures: u64) -> Option<AuthError> {
        let reason = state.last_failure.as_ref().filter(|_| self.failures() != failures)?;
        Some(AuthError::AuthorizationFailed(reason.clone()))
    }

    /// Returns the manager, created from the stored tokens by the first call.
    async fn with_manager<'a>(&self, state: &'a mut State) -> Result<&'a mut AuthorizationManager, AuthError> {
        let manager = match state.manager.take() {
            Some(manager) => manager,
            None => self.new_manager().await?,
        };
        Ok(state.manager.insert(manager))
    }

    async fn new_manager(&self) -> Result<AuthorizationManager, AuthError> {
        let mut manager = if self.config.allow_private_addresses {
            AuthorizationManager::new_allowing_private_addresses(self.url.clone()).await?
        } else {
            AuthorizationManager::new(self.url.clone()).await?
        };
        manager.set_credential_store(self.tokens.clone());
        self.load_client(&mut manager).await?;
        Ok(manager)
    }

    /// Configures the client of the stored tokens.
    async fn load_client(&self, manager: &mut AuthorizationManager) -> Result<(), AuthError> {
        if !manager.initialize_from_store().await? {
            return Ok(());
        }
        let (id, _) = manager.get_credentials().await?;
        let secret = match &self.config.grant {
            Grant::Code { request, .. } if request.client_id.as_ref() == Some(&id) => request.client_secret.clone(),
            Grant::Client { secret, .. } => Some(secret.clone()),
            Grant::Code { .. } => {
                self.tokens.registration().await?.filter(|client| client.id == id).and_then(|client| client.secret)
            }
        };
        // The manager has loaded the ID, but it does not store secrets.
        if let Some(secret) = secret {
            manager.configure_client(OAuthClientConfig::new(id, self.url.as_str()).with_client_secret(secret))?;
        }
        Ok(())
    }

    /// Returns the current token, refreshed if it has expired.
    async fn token(&self) -> Result<Option<String>, AuthError> {
        let mut state = self.state.lock().await;
        match self.with_manager(&mut state).await?.get_access_token().await {
            Ok(token) => Ok(Some(token)),
            Err(AuthError::AuthorizationRequired) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Obtains a token that meets a challenge, replacing the rejected one. An authorization that failed after the
    /// request began, which then had `failures` before it, is not repeated.
    async fn authorize(&self, challenge: &str, refused: Option<&str>, failures: u64) -> Result<String, AuthError> {
        let mut state = self.state.lock().await;
        if let Some(error) = self.failure_since(&state, failures) {
            return Err(error);
        }
        self.with_manager(&mut state).await?;
        let Some(manager) = state.manager.take() else { return Err(AuthError::AuthorizationRequired) };
        let (manager, token) = self.authorize_with(manager, challenge, refused).await;
        state.manager = Some(manager);
        if let Err(error) = &token {
            state.last_failure = Some(match error {
                AuthError::AuthorizationFailed(reason) => reason.clone(),
                other => error_chain::text(other),
            });
            self.failures.fetch_add(1, Ordering::Release);
        }
        token
    }

    async fn authorize_with(
        &self,
        mut manager: AuthorizationManager,
        challenge: &str,
        refused: Option<&str>,
    ) -> Authorized {
        // Another request, or another process with the same store, may have renewed the token already.
        if let Ok(token) = manager.get_access_token().await
            && Some(token.as_str()) != refused
        {
            return (manager, Ok(token));
        }
        // A refreshed token has no additional scopes.
        if refused.is_some() && !challenge.contains("insufficient_scope") {
            match self.refresh(&mut manager).await {
                Ok(token) => return (manager, Ok(token)),
                Err(error) => tracing::debug!(error = error_chain::text(&error), "failed to refresh a token"),
            }
        }
        match &self.config.grant {
            Grant::Code { request, redirect } => self.ask_user(manager, request.clone(), redirect, challenge).await,
            Grant::Client { id, secret, scopes } => {
                let token = self.present_credentials(&mut manager, id, secret, scopes, challenge).await;
                (manager, token)
            }
        }
    }

    async fn refresh(&self, manager: &mut AuthorizationManager) -> Result<String, AuthError> {
        self.load_client(manager).await?;
        match manager.refresh_token().await {
            Ok(_) => manager.get_access_token().await,
            Err(error) => {
                // The server no longer knows the client.
                if error.to_string().contains("invalid_client") {
                    self.tokens.forget_registration().await?;
                }
                Err(error)
            }
        }
    }

    async fn ask_user(
        &self,
        mut manager: AuthorizationManager,
        request: AuthorizationRequest,
        redirect: &Redirect,
        challenge: &str,
    ) -> Authorized {
        let prepared = self.prepare_request(&mut manager, request, redirect, challenge).await;
        let (request, redirect, is_known) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return (manager, Err(error)),
        };
        let session = match AuthorizationSession::new(manager, request).await {
            Ok(session) => session,
            Err((manager, error)) => return (manager, Err(error)),
        };
        let agreed = async {
            let url = session.get_authorization_url().to_owned();
            let pending = PendingPrompt::new(&self.pending_prompts);
            let redirected_to = redirect.authorize(url).await;
            let redirected_to = redirected_to.map_err(|error| AuthError::AuthorizationFailed(error.to_string()))?;
            drop(pending);
            if let Some(reason) = refusal(&redirected_to) {
                return Err(AuthError::AuthorizationFailed(reason));
            }
            session.handle_callback_url(&redirected_to).await?;
            session.auth_manager.get_access_token().await
        };
        let token = agreed.await;
        // The server may have forgotten a client that was registered earlier: the next attempt registers it again.
        if token.is_err()
            && is_known
            && let Err(error) = self.tokens.forget_registration().await
        {
            tracing::debug!(error = error_chain::text(&error), "failed to forget a registration");
        }
        (session.auth_manager, token)
    }

    /// Discovers the authorization server, prepares for its redirect, and registers the client unless it is known.
    /// Returns whether an earlier registration is used.
    async fn prepare_request(
        &self,
        manager: &mut AuthorizationManager,
        mut request: AuthorizationRequest,
        redirect: &Redirect,
        challenge: &str,
    ) -> Result<(AuthorizationRequest, ReadyRedirect, bool), AuthError> {
        let metadata = manager.resolve_metadata_from_challenge(Some(challenge)).await?.metadata;
        let issuer = metadata.issuer.clone();
        let supports_url =
            metadata.additional_fields.get(SUPPORTS_URL_AS_CLIENT_ID).and_then(Value::as_bool).unwrap_or(false);
        manager.set_metadata(metadata);
        let known = self.tokens.registration().await?.filter(|client| client.issuer == issuer);
        let redirect = redirect
            .prepare(known.as_ref().map(|client| client.redirect_uri.as_str()))
            .await
            .map_err(|error| AuthError::AuthorizationFailed(error.to_string()))?;
        request.redirect_uri = redirect.uri();
        // The first authorization requests the scopes that the server names; later ones add them to the granted scopes.
        if manager.get_current_scopes().await.is_empty() {
            request = request.with_initial_scope_selection();
        }
        if request.client_id.is_some() || (request.client_metadata_url.is_some() && supports_url) {
            return Ok((request, redirect, false));
        }
        let known = known.filter(|client| client.redirect_uri == request.redirect_uri);
        let is_known = known.is_some();
        let client = match known {
            Some(client) => client,
            None => self.register(manager, &request, issuer).await?,
        };
        request.client_id = Some(client.id);
        request.client_secret = client.secret;
        Ok((request, redirect, is_known))
    }

    /// Registers the client and stores the registration.
    async fn register(
        &self,
        manager: &mut AuthorizationManager,
        request: &AuthorizationRequest,
        issuer: Option<String>,
    ) -> Result<Registration, AuthError> {
        let scopes = match (request.scopes.is_empty(), request.use_initial_scopes) {
            (false, _) => request.scopes.clone(),
            (true, true) => manager.select_initial_scopes(&[]).await,
            (true, false) => manager.select_scopes(None, &[]),
        };
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let name = request.client_name.as_deref().unwrap_or("belljar");
        let client = manager.register_client(name, &request.redirect_uri, &scopes).await?;
        let registration = Registration {
            issuer,
            id: client.client_id,
            secret: client.client_secret,
            redirect_uri: client.redirect_uri,
        };
        self.tokens.save_registration(registration.clone()).await?;
        Ok(registration)
    }

    async fn present_credentials(
        &self,
        manager: &mut AuthorizationManager,
        id: &str,
        secret: &str,
        scopes: &[String],
        challenge: &str,
    ) -> Result<String, AuthError> {
        let config = ClientCredentialsConfig::ClientSecret {
            client_id: id.to_owned(),
            client_secret: secret.to_owned(),
            scopes: scopes.to_vec(),
            resource: Some(self.url.to_string()),
        };
        let resolution = manager.resolve_metadata_from_challenge(Some(challenge)).await?;
        manager.set_metadata(resolution.metadata);
        manager.configure_client_credentials(&config)?;
        manager.exchange_client_credentials(&config).await?;
        manager.get_access_token().await
    }
}

/// Returns the reason for which the authorization server redirected without a code.
fn refusal(redirected_to: &str) -> Option<String> {
    let url = Url::parse(redirected_to).ok()?;
    let value = |name| url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value);
    let error = value("error")?;
    Some(match value("error_description") {
        Some(description) => format!("{error}: {description}"),
        None => error.into_owned(),
    })
}

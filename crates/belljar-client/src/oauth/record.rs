//! The stored record of one server: the registration of the client, and its tokens.

use std::sync::Arc;

use async_trait::async_trait;
use rmcp::transport::auth::{AuthError, CredentialStore, StoredCredentials};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::store::TokenStore;
use crate::error::BoxError;

/// The record of one server.
#[derive(Default, Serialize, Deserialize)]
struct Record {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client: Option<Registration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    credentials: Option<StoredCredentials>,
}

/// A client that was registered dynamically.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Registration {
    /// The authorization server.
    pub(super) issuer: Option<String>,
    pub(super) id: String,
    pub(super) secret: Option<String>,
    pub(super) redirect_uri: String,
}

/// The record of a server in a store, as `rmcp` uses it.
#[derive(Clone)]
pub(super) struct Tokens {
    store: Arc<dyn TokenStore>,
    server: String,
    /// The client of the configuration. Tokens of another client are not used.
    client_id: Option<String>,
}

impl Tokens {
    pub(super) fn new(store: Arc<dyn TokenStore>, server: String, client_id: Option<String>) -> Self {
        Self { store, server, client_id }
    }

    pub(super) async fn registration(&self) -> Result<Option<Registration>, AuthError> {
        Ok(self.record().await?.client)
    }

    pub(super) async fn save_registration(&self, client: Registration) -> Result<(), AuthError> {
        self.update(|record| record.client = Some(client)).await
    }

    pub(super) async fn forget_registration(&self) -> Result<(), AuthError> {
        self.update(|record| record.client = None).await
    }

    async fn record(&self) -> Result<Record, AuthError> {
        let text = self.store.load(&self.server).await.map_err(|error| store_error(&*error))?;
        text.map_or(Ok(Record::default()), |text| {
            // The parser's message may quote a token.
            parse(&text).map_err(|error| {
                AuthError::CredentialStoreError(format!(
                    "the stored tokens of {} are invalid (column {})",
                    self.server,
                    error.column()
                ))
            })
        })
    }

    async fn update(&self, change: impl FnOnce(&mut Record) + Send) -> Result<(), AuthError> {
        let mut record = self.record().await?;
        change(&mut record);
        let text = serde_json::to_string(&record).map_err(|error| store_error(&error))?;
        self.store.save(&self.server, text).await.map_err(|error| store_error(&*error))
    }
}

/// Parses a record. Until the registration was stored, a record was the credentials alone.
fn parse(text: &str) -> serde_json::Result<Record> {
    let value: Value = serde_json::from_str(text)?;
    if value.get("client_id").is_some() {
        return Ok(Record { client: None, credentials: Some(serde_json::from_value(value)?) });
    }
    serde_json::from_value(value)
}

fn store_error(error: &(dyn std::error::Error + 'static)) -> AuthError {
    AuthError::CredentialStoreError(error.to_string())
}

#[async_trait]
impl CredentialStore for Tokens {
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        let credentials = self.record().await?.credentials;
        Ok(credentials.filter(|stored| self.client_id.as_ref().is_none_or(|id| *id == stored.client_id)))
    }

    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        self.update(|record| record.credentials = Some(credentials)).await
    }

    async fn clear(&self) -> Result<(), AuthError> {
        let cleared: Result<(), BoxError> = self.store.clear(&self.server).await;
        cleared.map_err(|error| store_error(&*error))
    }
}

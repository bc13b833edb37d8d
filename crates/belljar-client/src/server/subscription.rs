//! Being told when a resource changes, in both eras.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    ClientRequest, SubscribeRequest, SubscribeRequestParams, SubscriptionFilter, UnsubscribeRequest,
    UnsubscribeRequestParams,
};
use tokio::sync::broadcast;

use super::McpServer;
use super::connection::{Connection, RequestOptions};
use super::session::Session;
use crate::error::McpError;

/// How often to look whether the connection is still there, of which no update tells.
const LOOK: Duration = Duration::from_secs(1);

/// Changes of one resource, from [`McpServer::subscribe_resource`]. It holds the connection open; dropping it ends the
/// subscription.
///
/// ```no_run
/// # async fn run(server: belljar_client::McpServer) -> Result<(), belljar_client::McpError> {
/// let mut updates = server.subscribe_resource("file:///log.txt").await?;
/// updates.changed().await;
/// println!("the log has grown");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ResourceUpdates {
    uri: String,
    updates: broadcast::Receiver<String>,
    /// On the modern era a request that lasts as long as the subscription.
    listening: Option<tokio::task::JoinHandle<()>>,
    held: Option<Held>,
}

/// What keeps the connection open.
struct Held {
    _session: Arc<Session>,
    connection: Arc<Connection>,
}

impl std::fmt::Debug for Held {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Held")
    }
}

impl ResourceUpdates {
    /// Waits for the next change; `None` when the connection is over. Changes that come faster than they are waited for
    /// count as one.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_client::McpServer) -> Result<(), belljar_client::McpError> {
    /// let mut updates = server.subscribe_resource("file:///log.txt").await?;
    /// while updates.changed().await.is_some() {
    ///     println!("the log has grown");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn changed(&mut self) -> Option<()> {
        loop {
            match tokio::time::timeout(LOOK, self.updates.recv()).await {
                Ok(Ok(uri)) if uri == self.uri => return Some(()),
                Ok(Ok(_)) => {}
                // Something was missed: it may have been this resource.
                Ok(Err(broadcast::error::RecvError::Lagged(_))) => return Some(()),
                Ok(Err(broadcast::error::RecvError::Closed)) => return None,
                Err(_) if self.held.as_ref().is_none_or(|held| held.connection.is_closed()) => return None,
                Err(_) => {}
            }
        }
    }
}

impl Drop for ResourceUpdates {
    fn drop(&mut self) {
        if let Some(listening) = self.listening.take() {
            listening.abort();
        }
        let (Some(held), Ok(runtime)) = (self.held.take(), tokio::runtime::Handle::try_current()) else {
            return;
        };
        if held.connection.is_modern() {
            return;
        }
        let params = UnsubscribeRequestParams::new(self.uri.clone());
        runtime.spawn(async move {
            let request = ClientRequest::UnsubscribeRequest(UnsubscribeRequest::new(params));
            let options = RequestOptions { silence: Duration::from_secs(5), ..Default::default() };
            if let Err(error) = held.connection.request(request, options).await {
                tracing::debug!(%error, "a subscription could not be taken back");
            }
        });
    }
}

impl McpServer {
    /// Asks to be told when a resource changes.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_client::McpServer) -> Result<(), belljar_client::McpError> {
    /// let mut updates = server.subscribe_resource("file:///log.txt").await?;
    /// while updates.changed().await.is_some() {
    ///     println!("{}", server.read_resource("file:///log.txt").await?.to_text());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of the connection, and [`McpError::Protocol`] when the server takes no subscriptions.
    pub async fn subscribe_resource(&self, uri: &str) -> Result<ResourceUpdates, McpError> {
        let session = self.session().await?;
        let connection = session.connection().await?;
        let updates = session.updates.subscribe();
        let mut listening = None;
        if connection.is_modern() {
            let mut filter = SubscriptionFilter::default();
            filter.resource_subscriptions = Some(vec![uri.to_owned()]);
            let subscription = connection.peer().listen(filter).await;
            let mut subscription = match subscription {
                Ok(subscription) => subscription,
                Err(rmcp::ServiceError::McpError(data)) => return Err(McpError::protocol(data)),
                Err(error) => {
                    return Err(McpError::BadAnswer { server: self.label(), reason: error.to_string() });
                }
            };
            listening = Some(tokio::spawn(async move { while let Ok(Some(_)) = subscription.next().await {} }));
        } else {
            let request = SubscribeRequest::new(SubscribeRequestParams::new(uri));
            let options = RequestOptions { silence: self.inner.settings.read_timeout, ..Default::default() };
            connection.request(ClientRequest::SubscribeRequest(request), options).await?;
        }
        let held = Some(Held { _session: session, connection });
        Ok(ResourceUpdates { uri: uri.to_owned(), updates, listening, held })
    }
}

//! Subscriptions to resource updates, in both eras.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    ClientRequest, SubscribeRequest, SubscribeRequestParams, SubscriptionFilter, UnsubscribeRequest,
    UnsubscribeRequestParams,
};
use tokio::sync::broadcast;

use super::McpServer;
use super::connection::Connection;
use super::options::RequestOptions;
use super::session::Session;
use crate::error::McpError;

/// The interval of checks whether the connection is still open; closing does not send an update.
const CLOSED_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// A subscription to the updates of one resource, from [`McpServer::subscribe_resource`]. It keeps the connection open;
/// dropping it ends the subscription.
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
    /// On the modern era, the request that lasts as long as the subscription.
    listening: Option<tokio::task::JoinHandle<()>>,
    open: Option<OpenConnection>,
}

/// The handles that keep the connection open.
struct OpenConnection {
    _session: Arc<Session>,
    connection: Arc<Connection>,
}

impl std::fmt::Debug for OpenConnection {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("OpenConnection")
    }
}

impl ResourceUpdates {
    /// Waits for the next update; returns `None` if the connection is closed. Updates that arrive between two calls
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
            match tokio::time::timeout(CLOSED_CHECK_INTERVAL, self.updates.recv()).await {
                Ok(Ok(uri)) if uri == self.uri => return Some(()),
                Ok(Ok(_)) => {}
                // Updates were lost, possibly of this resource.
                Ok(Err(broadcast::error::RecvError::Lagged(_))) => return Some(()),
                Ok(Err(broadcast::error::RecvError::Closed)) => return None,
                Err(_) if self.open.as_ref().is_none_or(|open| open.connection.is_closed()) => return None,
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
        let (Some(open), Ok(runtime)) = (self.open.take(), tokio::runtime::Handle::try_current()) else {
            return;
        };
        if open.connection.is_modern() {
            return;
        }
        let params = UnsubscribeRequestParams::new(self.uri.clone());
        runtime.spawn(async move {
            let request = ClientRequest::UnsubscribeRequest(UnsubscribeRequest::new(params));
            let options = RequestOptions { idle_timeout: Duration::from_secs(5), ..Default::default() };
            if let Err(error) = open.connection.request(request, options).await {
                tracing::debug!(%error, "failed to cancel a subscription");
            }
        });
    }
}

impl McpServer {
    /// Subscribes to the updates of a resource.
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
    /// Errors of the connection, and [`McpError::Protocol`] if the server does not support subscriptions.
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
                    return Err(McpError::InvalidResponse { server: self.label(), reason: error.to_string() });
                }
            };
            listening = Some(tokio::spawn(async move { while let Ok(Some(_)) = subscription.next().await {} }));
        } else {
            let request = SubscribeRequest::new(SubscribeRequestParams::new(uri));
            let options = RequestOptions { idle_timeout: self.inner.settings.read_timeout, ..Default::default() };
            connection.request(ClientRequest::SubscribeRequest(request), options).await?;
        }
        let open = Some(OpenConnection { _session: session, connection });
        Ok(ResourceUpdates { uri: uri.to_owned(), updates, listening, open })
    }
}

//! Subscriptions to resource updates, in both eras.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt};

use rmcp::model::{
    ClientRequest, SubscribeRequest, SubscribeRequestParams, SubscriptionFilter, UnsubscribeRequest,
    UnsubscribeRequestParams,
};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use super::McpServer;
use super::connection::Connection;
use super::options::RequestOptions;
use super::session::Session;
use crate::error::McpError;

/// A subscription to the updates of one resource, from [`McpServer::subscribe_resource`]. It keeps the connection open;
/// dropping it ends the subscription. It is also a [`Stream`], which ends when the connection is closed.
///
/// ```no_run
/// # async fn run(server: belljar_mcp_client::McpServer) -> Result<(), belljar_mcp_client::McpError> {
/// let mut updates = server.subscribe_resource("file:///log.txt").await?;
/// updates.changed().await;
/// println!("the log has grown");
/// # Ok(())
/// # }
/// ```
pub struct ResourceUpdates {
    uri: String,
    updates: BoxStream<'static, ()>,
    /// On the modern era, the request that lasts as long as the subscription.
    listening: Option<tokio::task::JoinHandle<()>>,
    open: Option<OpenConnection>,
}

impl std::fmt::Debug for ResourceUpdates {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ResourceUpdates").field("uri", &self.uri).finish_non_exhaustive()
    }
}

/// Returns the updates of a resource until the connection is closed. Updates that arrive while none is awaited count as
/// one.
fn updates_of(
    uri: String,
    updates: broadcast::Receiver<String>,
    closed: CancellationToken,
) -> impl Stream<Item = ()> + Send {
    futures::stream::unfold((uri, updates, closed), |(uri, mut updates, closed)| async move {
        loop {
            let update = tokio::select! {
                biased;
                update = updates.recv() => update,
                () = closed.cancelled() => return None,
            };
            match update {
                Ok(other) if other != uri => {}
                // After a gap updates were lost, possibly of this resource.
                Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => break,
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
        // An update of another resource may be between those of this one.
        while !matches!(
            updates.try_recv(),
            Err(broadcast::error::TryRecvError::Empty | broadcast::error::TryRecvError::Closed)
        ) {}
        Some(((), (uri, updates, closed)))
    })
}

impl Stream for ResourceUpdates {
    type Item = ();

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<()>> {
        self.updates.poll_next_unpin(context)
    }
}

/// The handles that keep the connection open.
struct OpenConnection {
    _session: Arc<Session>,
    connection: Arc<Connection>,
}

impl ResourceUpdates {
    /// Waits for the next update; returns `None` if the connection is closed. Updates that arrive between two calls
    /// count as one.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_mcp_client::McpServer) -> Result<(), belljar_mcp_client::McpError> {
    /// let mut updates = server.subscribe_resource("file:///log.txt").await?;
    /// while updates.changed().await.is_some() {
    ///     println!("the log has grown");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn changed(&mut self) -> Option<()> {
        self.updates.next().await
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
    /// # async fn run(server: belljar_mcp_client::McpServer) -> Result<(), belljar_mcp_client::McpError> {
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
                Err(rmcp::ServiceError::McpError(data)) => return Err(McpError::protocol(&self.label(), data)),
                Err(error) => {
                    return Err(McpError::InvalidResponse { server: self.label(), reason: error.to_string() });
                }
            };
            listening = Some(tokio::spawn(async move { while let Ok(Some(_)) = subscription.next().await {} }));
        } else {
            let request = SubscribeRequest::new(SubscribeRequestParams::new(uri));
            connection.request(ClientRequest::SubscribeRequest(request), self.plain_options()).await?;
        }
        let updates = updates_of(uri.to_owned(), updates, connection.when_closed()).boxed();
        let open = Some(OpenConnection { _session: session, connection });
        Ok(ResourceUpdates { uri: uri.to_owned(), updates, listening, open })
    }
}

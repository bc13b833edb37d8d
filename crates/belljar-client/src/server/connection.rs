//! One connection: its initialization, its requests and its end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::{FutureExt, TryFutureExt};
use rmcp::RoleClient;
use rmcp::model::{
    ClientNotification, ClientRequest, ErrorCode, GetExtensions, ProtocolVersion, ServerPeerInfo, ServerResult,
    SetLevelRequestParams,
};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt, Peer, PeerRequestOptions, RunningService, ServiceError};
use tokio::sync::broadcast;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span};

use super::options::RequestOptions;
use super::settings::ProtocolEra;
use super::transport_error::{connect_error, diagnostics, transport_error};
use super::{Core, span};
use crate::error::McpError;
use crate::handlers::notifications::{CallWatch, Changes, Router};
use crate::handlers::respond::Responder;
use crate::handlers::{Handlers, LogLevel, ModelSlot};
use crate::transport::headers::RunHeadersExtension;
use crate::transport::network::Network;
use crate::transport::ordered::OrderedTransport;
use crate::transport::{DisconnectReason, IdentityHeaders, OpenTransport, message};

/// The share of the timeout within which a server must start and respond to `server/discover`, before `initialize` is
/// tried.
const DISCOVER_SHARE: f64 = 2.0 / 3.0;

/// An open, initialized connection.
pub(super) struct Connection {
    service: RunningService<RoleClient, Arc<Responder>>,
    responder: Arc<Responder>,
    router: Arc<Router>,
    disconnect_reason: Arc<dyn DisconnectReason>,
    network: Network,
    info: Arc<ServerPeerInfo>,
    log_level: Option<LogLevel>,
    label: String,
}

impl Connection {
    /// Connects and initializes, in the era that is configured. A server of unknown era that turned out to be of the
    /// legacy era is not asked again whether it supports the modern one.
    pub(super) async fn open(
        core: &Core,
        headers: Option<&Arc<IdentityHeaders>>,
        changes: Arc<Changes>,
        updates: broadcast::Sender<String>,
    ) -> Result<Self, McpError> {
        let open = |era| Self::open_in(era, core, headers, changes.clone(), updates.clone());
        if core.settings.era != ProtocolEra::Auto {
            return open(core.settings.era).await;
        }
        if core.is_legacy.load(Ordering::Relaxed) {
            match open(ProtocolEra::Legacy).await {
                // The server may have been replaced by one of the modern era.
                Err(McpError::Protocol { .. }) => core.is_legacy.store(false, Ordering::Relaxed),
                result => return result,
            }
        }
        let result = match open(ProtocolEra::Auto).await {
            // The server supports the modern era after all but was slow to respond, and rejects the legacy one now.
            Err(McpError::Protocol { code, .. }) if code == ErrorCode::UNSUPPORTED_PROTOCOL_VERSION.0 => {
                open(ProtocolEra::Modern).await
            }
            result => result,
        };
        if result.as_ref().is_ok_and(|connection| !connection.is_modern()) {
            core.is_legacy.store(true, Ordering::Relaxed);
        }
        result
    }

    async fn open_in(
        era: ProtocolEra,
        core: &Core,
        headers: Option<&Arc<IdentityHeaders>>,
        changes: Arc<Changes>,
        updates: broadcast::Sender<String>,
    ) -> Result<Self, McpError> {
        let span = span::for_connect();
        // Not within the span: the tasks of the connection, which outlive it, would belong to it.
        let opened = Self::initialize(era, core, headers, changes, updates).await;
        span::record_connected(&span, opened.as_ref());
        drop(span);
        let connection = opened?;
        connection.set_level(core.settings.timeout).await?;
        Ok(connection)
    }

    async fn initialize(
        era: ProtocolEra,
        core: &Core,
        headers: Option<&Arc<IdentityHeaders>>,
        changes: Arc<Changes>,
        updates: broadcast::Sender<String>,
    ) -> Result<Self, McpError> {
        let label = core.label();
        let settings = &core.settings;
        let mut handlers: Handlers = settings.handlers.clone();
        if !settings.allow_sampling {
            handlers.model = ModelSlot::default();
        }
        let router = Arc::new(Router::new(&handlers, changes, updates));
        let responder = Arc::new(Responder::new(handlers, settings.client_info.clone(), label.clone(), router.clone()));
        let deadline = Instant::now() + settings.timeout;
        let slow = |diagnostics: String| McpError::Timeout {
            server: label.clone(),
            method: "initialize".to_owned(),
            seconds: settings.timeout.as_secs_f64(),
            diagnostics,
        };
        let opening = async {
            match headers {
                Some(headers) => core.connector.connect_as(headers).await,
                None => core.connector.connect().await,
            }
        };
        let connecting = with_deadline(deadline, core, opening);
        let OpenTransport { transport, disconnect_reason, network } =
            connecting.await.ok_or_else(|| slow(String::new()))??;
        let probe_timeout = (era == ProtocolEra::Auto).then(|| settings.timeout.mul_f64(DISCOVER_SHARE));
        let transport = OrderedTransport::new(transport, router.clone(), probe_timeout);
        let starting = responder.clone().serve_with_lifecycle(transport, lifecycle_mode(era));
        let service = match with_deadline(deadline, core, starting).await {
            Some(Ok(service)) => service,
            Some(Err(error)) => return Err(connect_error(&label, error, &*disconnect_reason).await),
            None => return Err(slow(diagnostics(disconnect_reason.timeout_diagnostics()))),
        };
        let info = service.peer().peer_info().ok_or_else(|| McpError::InvalidResponse {
            server: label.clone(),
            reason: "it did not describe itself".to_owned(),
        })?;
        let log_level = settings.log_level;
        Ok(Self { service, responder, router, disconnect_reason, network, info, log_level, label })
    }

    /// Sets the log level of a server of the legacy era; on the modern era each request carries the level.
    async fn set_level(&self, timeout: Duration) -> Result<(), McpError> {
        let Some(level) = self.log_level.filter(|_| !self.is_modern() && self.info.capabilities.logging.is_some())
        else {
            return Ok(());
        };
        let request = rmcp::model::SetLevelRequest::new(SetLevelRequestParams::new(level.into()));
        let options = RequestOptions { idle_timeout: timeout, ..Default::default() };
        self.request(ClientRequest::SetLevelRequest(request), options).await.map(drop)
    }

    pub(super) fn info(&self) -> &Arc<ServerPeerInfo> {
        &self.info
    }

    pub(super) fn is_modern(&self) -> bool {
        !self.info.protocol_version.has_initialize()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.service.is_closed() || self.service.peer().is_transport_closed()
    }

    pub(super) fn network(&self) -> &Network {
        &self.network
    }

    /// Returns a token that is cancelled when the connection is closed.
    pub(super) fn when_closed(&self) -> CancellationToken {
        self.router.closed.clone()
    }

    pub(super) fn responder(&self) -> &Arc<Responder> {
        &self.responder
    }

    pub(super) fn peer(&self) -> &Peer<RoleClient> {
        self.service.peer()
    }

    /// Closes the connection and waits until it is closed; a child process has then exited.
    pub(super) async fn close(mut self) {
        if let Err(error) = self.service.close().await {
            tracing::debug!(%error, "closing a connection");
        }
    }

    pub(super) async fn notify(&self, notification: ClientNotification) -> Result<(), McpError> {
        match self.peer().send_notification(notification).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.error(error).await),
        }
    }

    /// Sends a request and waits for its response. Dropping the future cancels the request on the server.
    ///
    /// This function and the two below are not `async`: such a function keeps room for its arguments until it returns,
    /// and for a future that it awaits twice. Callers may wait for thousands of requests.
    pub(super) fn request(
        &self,
        request: ClientRequest,
        options: RequestOptions,
    ) -> impl Future<Output = Result<ServerResult, McpError>> {
        self.watched_request(request, options).map_ok(|(result, _)| result)
    }

    /// Sends a request as [`request`](Self::request) does, and keeps watching its progress until the watch is dropped.
    pub(super) fn watched_request(
        &self,
        request: ClientRequest,
        options: RequestOptions,
    ) -> impl Future<Output = Result<(ServerResult, CallWatch), McpError>> {
        let span = span::for_request(&self.network, self.info.protocol_version.as_str(), &request);
        let answered = span.in_scope(|| self.send_and_wait(request, options, span.clone()));
        answered
            .instrument(span.clone())
            .inspect(move |result| span::record_result(&span, result.as_ref().map(|(result, _)| result)))
    }

    fn send_and_wait(
        &self,
        mut request: ClientRequest,
        options: RequestOptions,
        span: Span,
    ) -> impl Future<Output = Result<(ServerResult, CallWatch), McpError>> {
        let RequestOptions { meta, headers, progress, idle_timeout, deadline: total, run } = options;
        let method = request.method().to_owned();
        let mut meta = meta.unwrap_or_default();
        #[cfg(feature = "opentelemetry")]
        span::inject_context(&mut meta.0.0);
        if self.is_modern()
            && let Some(level) = self.log_level
        {
            meta.set_log_level(level.into());
        }
        if let Some(headers) = headers {
            request.extensions_mut().insert(RunHeadersExtension(Arc::new(headers)));
        }
        // The future contains several copies of the request, which need not be kept until the response.
        let send =
            Box::pin(self.peer().send_request_with_option(request, PeerRequestOptions::no_options().with_meta(meta)));
        async move {
            let mut handle = match send.await {
                Ok(handle) => handle,
                Err(error) => return Err(self.error(error).await),
            };
            span::record_id(&span, &handle.id);
            let watch = self.router.watch(&handle.progress_token, progress, run);
            let cancel = CancelOnDrop { peer: self.peer(), id: Some(handle.id.clone()) };
            let started = Instant::now();
            loop {
                let quiet = started.max(watch.last_activity()) + idle_timeout;
                let deadline = total.map_or(quiet, |total| total.min(quiet));
                match tokio::time::timeout_at(deadline, &mut handle.rx).await {
                    Ok(answer) => {
                        cancel.disarm();
                        return match answer.unwrap_or(Err(ServiceError::TransportClosed)) {
                            Ok(result) => Ok((result, watch)),
                            Err(error) => Err(self.error(error).await),
                        };
                    }
                    Err(_)
                        if total.is_none_or(|total| Instant::now() < total)
                            && started.max(watch.last_activity()) + idle_timeout > deadline => {}
                    Err(_) => {
                        return Err(McpError::Timeout {
                            server: self.label.clone(),
                            method,
                            seconds: started.elapsed().as_secs_f64(),
                            diagnostics: diagnostics(self.disconnect_reason.timeout_diagnostics()),
                        });
                    }
                }
            }
        }
    }

    /// Converts the error of a request, adding the reason if the connection was closed.
    async fn error(&self, error: ServiceError) -> McpError {
        match error {
            ServiceError::McpError(data) if message::is_unparsable(&data) => {
                McpError::InvalidResponse { server: self.label.clone(), reason: data.message.into_owned() }
            }
            ServiceError::McpError(data) => McpError::protocol(&self.label, data),
            ServiceError::TransportSend(error) if !self.is_closed() => transport_error(&self.label, error),
            ServiceError::TransportClosed | ServiceError::TransportSend(_) => self.closed().await,
            ServiceError::Cancelled { reason } => McpError::Closed {
                server: self.label.clone(),
                reason: reason.unwrap_or_else(|| "the request was cancelled".to_owned()),
            },
            other => McpError::InvalidResponse { server: self.label.clone(), reason: other.to_string() },
        }
    }

    /// Returns the error of a closed connection.
    pub(super) async fn closed(&self) -> McpError {
        let reason = self.disconnect_reason.reason().await.unwrap_or_else(|| "the server closed it".to_owned());
        McpError::Closed { server: self.label.clone(), reason }
    }

    /// Converts a JSON-RPC error of this server.
    pub(super) fn protocol_error(&self, error: rmcp::ErrorData) -> McpError {
        McpError::protocol(&self.label, error)
    }

    pub(super) fn unexpected(&self, method: &str) -> McpError {
        self.invalid_response(format!("unexpected result of `{method}`"))
    }

    /// Returns the error of a response that violates the protocol, or a limit of the client.
    pub(super) fn invalid_response(&self, reason: impl Into<String>) -> McpError {
        McpError::invalid_response(&self.label, reason)
    }
}

/// Cancels a request on the server if the caller stops waiting for the response.
struct CancelOnDrop<'a> {
    peer: &'a Peer<RoleClient>,
    id: Option<rmcp::model::RequestId>,
}

impl CancelOnDrop<'_> {
    fn disarm(mut self) {
        self.id = None;
    }
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        let (Some(id), Ok(runtime)) = (self.id.take(), tokio::runtime::Handle::try_current()) else { return };
        let peer = self.peer.clone();
        runtime.spawn(async move {
            let params =
                rmcp::model::CancelledNotificationParam::new(Some(id), Some("the caller stopped waiting".to_owned()));
            if let Err(error) = peer.notify_cancelled(params).await {
                tracing::debug!(%error, "failed to send a cancellation");
            }
        });
    }
}

/// Waits for a step of the initialization until the deadline. The deadline is extended while a user is asked for
/// consent, which has its own time limit.
async fn with_deadline<T>(mut deadline: Instant, core: &Core, step: impl Future<Output = T>) -> Option<T> {
    let mut step = std::pin::pin!(step);
    loop {
        match tokio::time::timeout_at(deadline, &mut step).await {
            Ok(done) => return Some(done),
            Err(_) if core.connector.waits_for_user() => deadline = Instant::now() + core.settings.timeout,
            Err(_) => return None,
        }
    }
}

fn lifecycle_mode(era: ProtocolEra) -> ClientLifecycleMode {
    let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
    match era {
        ProtocolEra::Legacy => ClientLifecycleMode::Initialize,
        ProtocolEra::Modern => ClientLifecycleMode::Discover { preferred_versions },
        ProtocolEra::Auto => ClientLifecycleMode::Auto {
            preferred_versions,
            legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
        },
    }
}

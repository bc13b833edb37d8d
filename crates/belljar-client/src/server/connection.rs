//! One connection: from opening it to the last of its requests.

use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{
    ClientNotification, ClientRequest, ErrorCode, GetExtensions, ProtocolVersion, RequestMetaObject, ServerPeerInfo,
    ServerResult, SetLevelRequestParams,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt, Peer, PeerRequestOptions, RunningService,
    ServiceError,
};
use rmcp::transport::DynamicTransportError;
use rmcp::transport::streamable_http_client::{AuthRequiredError, InsufficientScopeError, StreamableHttpError};
use tokio::sync::broadcast;
use tokio::time::Instant;

use super::Inner;
use super::settings::ProtocolEra;
use crate::error::McpError;
use crate::handlers::notifications::{CallWatch, Changes, Router};
use crate::handlers::respond::Responder;
use crate::handlers::{Handlers, LogLevel, ProgressHandler};
use crate::transport::endpoint::{RunHeaders, SentHeaders};
use crate::transport::message::UNREADABLE;
use crate::transport::observed::Observed;
use crate::transport::{Connected, Diagnosis};

/// How much of the timeout a server has to start and to answer `server/discover`, before it is tried with `initialize`.
const DISCOVER_SHARE: f64 = 2.0 / 3.0;

/// An open, initialized connection.
pub(super) struct Connection {
    service: RunningService<RoleClient, Arc<Responder>>,
    responder: Arc<Responder>,
    router: Arc<Router>,
    diagnosis: Arc<dyn Diagnosis>,
    info: Arc<ServerPeerInfo>,
    log_level: Option<LogLevel>,
    label: String,
}

/// What a request goes out with.
#[derive(Clone, Default)]
pub(super) struct RequestOptions {
    pub(super) meta: Option<RequestMetaObject>,
    pub(super) headers: Option<RunHeaders>,
    pub(super) progress: Option<ProgressHandler>,
    pub(super) silence: Duration,
    pub(super) total: Option<Duration>,
}

impl Connection {
    /// Connects and initializes.
    pub(super) async fn open(
        inner: &Inner,
        changes: Arc<Changes>,
        updates: broadcast::Sender<String>,
    ) -> Result<Self, McpError> {
        let era = inner.settings.era;
        match Self::open_in(era, inner, changes.clone(), updates.clone()).await {
            // It knew the modern era after all, and was only slow to say so: now it speaks no other.
            Err(McpError::Protocol { code, .. })
                if era == ProtocolEra::Auto && code == ErrorCode::UNSUPPORTED_PROTOCOL_VERSION.0 =>
            {
                Self::open_in(ProtocolEra::Modern, inner, changes, updates).await
            }
            result => result,
        }
    }

    async fn open_in(
        era: ProtocolEra,
        inner: &Inner,
        changes: Arc<Changes>,
        updates: broadcast::Sender<String>,
    ) -> Result<Self, McpError> {
        let label = inner.label();
        let settings = &inner.settings;
        let mut handlers: Handlers = settings.handlers.clone();
        if !settings.allow_sampling {
            handlers.model = None;
        }
        let router = Arc::new(Router::new(&handlers, changes, updates));
        let responder = Arc::new(Responder::new(handlers, settings.client_info.clone()));
        let deadline = Instant::now() + settings.timeout;
        let slow = |hint: String| McpError::Timeout {
            server: label.clone(),
            method: "initialize".to_owned(),
            seconds: settings.timeout.as_secs_f64(),
            hint,
        };
        let connecting = within(deadline, inner, inner.connector.connect());
        let Connected { transport, diagnosis } = connecting.await.ok_or_else(|| slow(String::new()))??;
        let patience = (era == ProtocolEra::Auto).then(|| settings.timeout.mul_f64(DISCOVER_SHARE));
        let transport = Observed::new(transport, router.clone(), patience);
        let starting = responder.clone().serve_with_lifecycle(transport, lifecycle(era));
        let service = match within(deadline, inner, starting).await {
            Some(Ok(service)) => service,
            Some(Err(error)) => return Err(connect_error(&label, error, &*diagnosis).await),
            None => return Err(slow(hint(diagnosis.silent()))),
        };
        let info = service.peer().peer_info().ok_or_else(|| McpError::BadAnswer {
            server: label.clone(),
            reason: "it said nothing about itself".to_owned(),
        })?;
        let connection = Self { service, responder, router, diagnosis, info, log_level: settings.log_level, label };
        connection.set_level(settings.timeout).await?;
        Ok(connection)
    }

    /// Tells a server of the legacy era which messages to send; on the modern era each request says it.
    async fn set_level(&self, timeout: Duration) -> Result<(), McpError> {
        let Some(level) = self.log_level.filter(|_| !self.is_modern() && self.info.capabilities.logging.is_some())
        else {
            return Ok(());
        };
        let request = rmcp::model::SetLevelRequest::new(SetLevelRequestParams::new(level.into()));
        let options = RequestOptions { silence: timeout, ..Default::default() };
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

    pub(super) fn responder(&self) -> &Arc<Responder> {
        &self.responder
    }

    pub(super) fn peer(&self) -> &Peer<RoleClient> {
        self.service.peer()
    }

    /// Ends the connection and waits until it is over: for a child, until it is gone.
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

    /// Sends a request and waits for its answer. When the future is dropped, the server is told to stop.
    pub(super) async fn request(
        &self,
        request: ClientRequest,
        options: RequestOptions,
    ) -> Result<ServerResult, McpError> {
        self.watched_request(request, options).await.map(|(result, _)| result)
    }

    /// As [`request`](Self::request), and keeps watching the call's progress until the watch is dropped.
    pub(super) async fn watched_request(
        &self,
        mut request: ClientRequest,
        options: RequestOptions,
    ) -> Result<(ServerResult, CallWatch), McpError> {
        let method = request.method().to_owned();
        let mut meta = options.meta.unwrap_or_default();
        if self.is_modern()
            && let Some(level) = self.log_level
        {
            meta.set_log_level(level.into());
        }
        if let Some(headers) = options.headers {
            request.extensions_mut().insert(SentHeaders(Arc::new(headers)));
        }
        let sent =
            self.peer().send_request_with_option(request, PeerRequestOptions::no_options().with_meta(meta)).await;
        let mut handle = match sent {
            Ok(handle) => handle,
            Err(error) => return Err(self.error(error).await),
        };
        let watch = self.router.watch(&handle.progress_token, options.progress);
        let cancel = CancelOnDrop { peer: self.peer(), id: Some(handle.id.clone()) };
        let started = Instant::now();
        let total = options.total.map(|total| started + total);
        loop {
            let quiet = started.max(watch.last_heard()) + options.silence;
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
                        && started.max(watch.last_heard()) + options.silence > deadline => {}
                Err(_) => {
                    return Err(McpError::Timeout {
                        server: self.label.clone(),
                        method,
                        seconds: started.elapsed().as_secs_f64(),
                        hint: hint(self.diagnosis.silent()),
                    });
                }
            }
        }
    }

    /// Says what became of a request, with what is known about the connection's end.
    async fn error(&self, error: ServiceError) -> McpError {
        match error {
            ServiceError::McpError(data) if data.message.starts_with(UNREADABLE) => {
                McpError::BadAnswer { server: self.label.clone(), reason: data.message.into_owned() }
            }
            ServiceError::McpError(data) => McpError::protocol(data),
            ServiceError::TransportSend(error) if !self.is_closed() => transport_error(&self.label, error),
            ServiceError::TransportClosed | ServiceError::TransportSend(_) => self.closed().await,
            ServiceError::Cancelled { reason } => McpError::Closed {
                server: self.label.clone(),
                reason: reason.unwrap_or_else(|| "the request was cancelled".to_owned()),
            },
            other => McpError::BadAnswer { server: self.label.clone(), reason: other.to_string() },
        }
    }

    /// The error of a connection that is over.
    pub(super) async fn closed(&self) -> McpError {
        let reason = self.diagnosis.closed().await.unwrap_or_else(|| "the server ended it".to_owned());
        McpError::Closed { server: self.label.clone(), reason }
    }

    pub(super) fn unexpected(&self, method: &str) -> McpError {
        McpError::BadAnswer {
            server: self.label.clone(),
            reason: format!("its answer to `{method}` is not what the protocol says"),
        }
    }
}

/// Tells the server about a request whose answer nobody waits for any more.
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
            let params = rmcp::model::CancelledNotificationParam::new(Some(id), Some("no longer wanted".to_owned()));
            if let Err(error) = peer.notify_cancelled(params).await {
                tracing::debug!(%error, "a cancellation could not be sent");
            }
        });
    }
}

/// Waits for a step of the start until the deadline. While a user is asked to agree to something, the clock stands still: that
/// has bounds of its own.
async fn within<T>(mut deadline: Instant, inner: &Inner, step: impl Future<Output = T>) -> Option<T> {
    let mut step = std::pin::pin!(step);
    loop {
        match tokio::time::timeout_at(deadline, &mut step).await {
            Ok(done) => return Some(done),
            Err(_) if inner.connector.waits_for_user() => deadline = Instant::now() + inner.settings.timeout,
            Err(_) => return None,
        }
    }
}

fn lifecycle(era: ProtocolEra) -> ClientLifecycleMode {
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

fn hint(silence: Option<String>) -> String {
    silence.map(|reason| format!(": {reason}")).unwrap_or_default()
}

/// Why a connection was not made.
async fn connect_error(label: &str, error: ClientInitializeError, diagnosis: &dyn Diagnosis) -> McpError {
    let server = label.to_owned();
    match error {
        ClientInitializeError::TransportError { error, .. } => match transport_error(label, error) {
            McpError::Unreachable { reason, .. } => {
                let reason = diagnosis.closed().await.unwrap_or(reason);
                McpError::Connect { server, reason, source: None }
            }
            other => other,
        },
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => {
            Box::pin(connect_error(label, *fallback, diagnosis)).await
        }
        ClientInitializeError::ConnectionClosed(at) => {
            let reason =
                diagnosis.closed().await.unwrap_or_else(|| format!("it closed the connection before the {at}"));
            McpError::Connect { server, reason, source: None }
        }
        ClientInitializeError::JsonRpcError(data) => McpError::protocol(data),
        other => McpError::Connect { server, reason: other.to_string(), source: Some(Box::new(other)) },
    }
}

/// What a transport says, in words; a refusal for want of authorization is an error of its own.
fn transport_error(label: &str, error: DynamicTransportError) -> McpError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&*error.error);
    let mut words: Vec<String> = Vec::new();
    while let Some(current) = cause {
        if let Some(auth) = current.downcast_ref::<AuthRequiredError>() {
            return McpError::Unauthorized { server: label.to_owned(), reason: auth.www_authenticate_header.clone() };
        }
        if let Some(scope) = current.downcast_ref::<InsufficientScopeError>() {
            return McpError::Unauthorized { server: label.to_owned(), reason: scope.www_authenticate_header.clone() };
        }
        if let Some(auth) = current.downcast_ref::<rmcp::transport::AuthError>() {
            return McpError::Unauthorized { server: label.to_owned(), reason: auth.to_string() };
        }
        // It shows its cause without naming it as one, and so hides what is behind that: "connection refused".
        if let Some(StreamableHttpError::Client(hidden)) = current.downcast_ref::<StreamableHttpError<reqwest::Error>>()
        {
            cause = Some(hidden);
            continue;
        }
        // An error that repeats its cause says nothing new.
        let text = current.to_string();
        if words.last().is_none_or(|last| !last.contains(&text)) {
            words.push(text);
        }
        cause = current.source();
    }
    McpError::Unreachable { server: label.to_owned(), reason: words.join(": ") }
}

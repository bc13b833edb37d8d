//! The description of a transport for spans.

use std::sync::Arc;

use parking_lot::Mutex;

/// The network attributes of a connection, in OpenTelemetry's terms. None of them is secret.
#[derive(Clone, Default)]
pub(crate) struct Network {
    /// `network.transport`: `pipe` or `tcp`.
    pub(crate) transport: Option<&'static str>,
    /// `network.protocol.name`.
    pub(crate) protocol: Option<&'static str>,
    /// `server.address` and `server.port`.
    pub(crate) address: Option<String>,
    pub(crate) port: Option<u16>,
    /// `mcp.session.id`, as soon as the server has assigned one.
    pub(crate) session: SessionId,
}

/// The ID of a session, which the transport learns from the server.
#[derive(Clone, Default)]
pub(crate) struct SessionId(Arc<Mutex<Option<Arc<str>>>>);

impl SessionId {
    pub(crate) fn get(&self) -> Option<Arc<str>> {
        self.0.lock().clone()
    }

    /// Records the ID that a request was sent with.
    #[cfg(feature = "http")]
    pub(crate) fn record(&self, id: &Arc<str>) {
        let mut current = self.0.lock();
        if current.as_ref().is_none_or(|current| !Arc::ptr_eq(current, id)) {
            *current = Some(id.clone());
        }
    }
}

impl Network {
    #[cfg(feature = "stdio")]
    pub(crate) fn pipe() -> Self {
        Self { transport: Some("pipe"), ..Self::default() }
    }

    #[cfg(feature = "http")]
    pub(crate) fn http(url: &url::Url) -> Self {
        Self {
            transport: Some("tcp"),
            protocol: Some("http"),
            address: url.host_str().map(str::to_owned),
            port: url.port_or_known_default(),
            session: SessionId::default(),
        }
    }
}

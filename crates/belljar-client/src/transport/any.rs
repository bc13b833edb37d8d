//! A transport whose kind is known only at run time: that of an entry of a configuration file, or of a built server.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

#[cfg(feature = "http")]
use super::endpoint::HttpEndpoint;
#[cfg(feature = "http")]
use super::http::StreamableHttp;
#[cfg(feature = "sse")]
use super::sse::Sse;
#[cfg(feature = "stdio")]
use super::stdio::ChildProcess;
use super::{Connector, IdentityHeaders, OpenTransport};
use crate::error::McpError;

/// Any transport: a child process, streamable HTTP, HTTP with server-sent events, or a custom one.
///
/// ```
/// use belljar_mcp_client::{AnyServerBuilder, ServerBuilder, transport::AnyTransport};
///
/// fn with_timeout(server: AnyServerBuilder) -> ServerBuilder<AnyTransport> {
///     server.timeout(std::time::Duration::from_secs(60))
/// }
/// ```
#[derive(Clone)]
pub struct AnyTransport(Kind);

#[derive(Clone)]
enum Kind {
    #[cfg(feature = "stdio")]
    ChildProcess(Box<ChildProcess>),
    #[cfg(feature = "http")]
    StreamableHttp(Box<StreamableHttp>),
    #[cfg(feature = "sse")]
    Sse(Box<Sse>),
    Custom(CustomTransport),
}

impl AnyTransport {
    /// Returns the endpoint of a transport over HTTP.
    #[cfg(feature = "http")]
    pub(crate) fn endpoint(&self) -> Option<&HttpEndpoint> {
        match &self.0 {
            #[cfg(feature = "http")]
            Kind::StreamableHttp(transport) => Some(&transport.endpoint),
            #[cfg(feature = "sse")]
            Kind::Sse(transport) => Some(&transport.endpoint),
            _ => None,
        }
    }

    #[cfg(feature = "http")]
    pub(crate) fn endpoint_mut(&mut self) -> Option<&mut HttpEndpoint> {
        match &mut self.0 {
            #[cfg(feature = "http")]
            Kind::StreamableHttp(transport) => Some(&mut transport.endpoint),
            #[cfg(feature = "sse")]
            Kind::Sse(transport) => Some(&mut transport.endpoint),
            _ => None,
        }
    }

    #[cfg(feature = "stdio")]
    pub(crate) fn child_process(&self) -> Option<&ChildProcess> {
        match &self.0 {
            Kind::ChildProcess(process) => Some(&**process),
            _ => None,
        }
    }

    #[cfg(feature = "stdio")]
    pub(crate) fn child_process_mut(&mut self) -> Option<&mut ChildProcess> {
        match &mut self.0 {
            Kind::ChildProcess(process) => Some(&mut **process),
            _ => None,
        }
    }

    fn connector(&self) -> &dyn Connector {
        match &self.0 {
            #[cfg(feature = "stdio")]
            Kind::ChildProcess(transport) => &**transport,
            #[cfg(feature = "http")]
            Kind::StreamableHttp(transport) => &**transport,
            #[cfg(feature = "sse")]
            Kind::Sse(transport) => &**transport,
            Kind::Custom(transport) => transport,
        }
    }
}

#[cfg(feature = "stdio")]
impl From<ChildProcess> for AnyTransport {
    fn from(transport: ChildProcess) -> Self {
        Self(Kind::ChildProcess(Box::new(transport)))
    }
}

#[cfg(feature = "http")]
impl From<StreamableHttp> for AnyTransport {
    fn from(transport: StreamableHttp) -> Self {
        Self(Kind::StreamableHttp(Box::new(transport)))
    }
}

#[cfg(feature = "sse")]
impl From<Sse> for AnyTransport {
    fn from(transport: Sse) -> Self {
        Self(Kind::Sse(Box::new(transport)))
    }
}

impl From<CustomTransport> for AnyTransport {
    fn from(transport: CustomTransport) -> Self {
        Self(Kind::Custom(transport))
    }
}

impl fmt::Debug for AnyTransport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.connector().fmt(formatter)
    }
}

/// A custom transport in a builder.
///
/// ```
/// # use belljar_mcp_client::{CustomTransport, ServerBuilder};
/// fn with_timeout(server: ServerBuilder<CustomTransport>) -> ServerBuilder<CustomTransport> {
///     server.timeout(std::time::Duration::from_secs(60))
/// }
/// ```
#[derive(Clone)]
pub struct CustomTransport(Arc<dyn Connector>);

impl CustomTransport {
    pub(crate) fn new(connector: impl Connector) -> Self {
        Self(Arc::new(connector))
    }

    pub(crate) fn shared(connector: Arc<dyn Connector>) -> Self {
        Self(connector)
    }

    fn connector(&self) -> &dyn Connector {
        &*self.0
    }

    fn to_any_transport(&self) -> AnyTransport {
        self.clone().into()
    }
}

impl fmt::Debug for CustomTransport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// Implements [`Connector`] by that of a part.
macro_rules! delegate {
    ($transport:ty, $connector:expr, $to_any:expr) => {
        #[async_trait]
        impl Connector for $transport {
            async fn connect(&self) -> Result<OpenTransport, McpError> {
                $connector(self).connect().await
            }

            async fn connect_as(&self, headers: &Arc<IdentityHeaders>) -> Result<OpenTransport, McpError> {
                $connector(self).connect_as(headers).await
            }

            fn sends_headers(&self) -> bool {
                $connector(self).sends_headers()
            }

            fn identity(&self) -> String {
                $connector(self).identity()
            }

            fn label(&self) -> String {
                $connector(self).label()
            }

            fn waits_for_user(&self) -> bool {
                $connector(self).waits_for_user()
            }

            fn reconnects(&self) -> bool {
                $connector(self).reconnects()
            }

            fn to_any(&self) -> Option<AnyTransport> {
                Some($to_any(self))
            }
        }
    };
}

delegate!(AnyTransport, AnyTransport::connector, AnyTransport::clone);
delegate!(CustomTransport, CustomTransport::connector, CustomTransport::to_any_transport);

//! The transport over standard streams: a client starts the server and exchanges messages with it through pipes.

use std::io;

use rmcp::ServiceExt;
use rmcp::service::{QuitReason, ServerInitializeError};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::arrival::ArrivalOrder;
use crate::handler::Server;
use crate::line_transport::LineTransport;
use crate::metrics::McpTransport;
use crate::task_transport::TaskTransport;

/// Serves one client over standard input and output. At the end of the input, calls in flight have five seconds to
/// end. When `shutdown` completes, serving ends at once.
///
/// # Errors
/// Fails if reading or writing the streams fails.
pub async fn serve_stdio(server: Server, shutdown: impl Future<Output = ()>) -> io::Result<()> {
    let (input, output) = rmcp::transport::stdio_pipes();
    let ending = server.clone();
    let shutdown = async {
        shutdown.await;
        ending.begin_shutdown();
    };
    tokio::select! {
        ended = serve_streams(server, input, output) => ended,
        () = shutdown => {
            ending.shutdown().await;
            Ok(())
        }
    }
}

/// Serves one client over any two streams.
///
/// # Errors
/// Fails if reading or writing the streams fails.
pub async fn serve_streams(
    server: Server,
    input: impl AsyncRead + Send + Unpin + 'static,
    output: impl AsyncWrite + Send + Unpin + 'static,
) -> io::Result<()> {
    server.start();
    let ending = server.clone();
    let transport = TaskTransport(LineTransport::new(input, output, ArrivalOrder::default()));
    let running = match server.serve(transport).await {
        Ok(running) => running,
        // A client that disconnects without a message is not an error.
        Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(io::Error::other(describe_start_error(&error))),
    };
    let session = ending.session_durations().begin(McpTransport::Pipe);
    let end = running.waiting().await;
    drop(session);
    ending.shutdown().await;
    match end {
        Ok(QuitReason::JoinError(error)) | Err(error) => Err(io::Error::other(error)),
        Ok(_) => Ok(()),
    }
}

/// Describes why a session did not start, without the client's message, which may contain code.
pub(crate) fn describe_start_error(error: &ServerInitializeError) -> &'static str {
    match error {
        ServerInitializeError::ExpectedInitializeRequest(_) => "the client's first request is not `initialize`",
        ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled => "the connection was closed",
        ServerInitializeError::TransportError { .. } => "failed to send to the client",
        _ => "the client's `initialize` request failed",
    }
}

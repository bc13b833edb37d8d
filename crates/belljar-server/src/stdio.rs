//! The transport over standard streams: a client starts the server and exchanges messages with it through pipes.

use std::io;

use rmcp::ServiceExt;
use rmcp::service::{QuitReason, ServerInitializeError};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::handler::Server;

/// Serves one client over standard input and output. At the end of the input, calls in flight have five seconds to
/// end. When `shutdown` completes, serving ends at once.
///
/// # Errors
/// When reading or writing the streams fails.
pub async fn serve_stdio(server: Server, shutdown: impl Future<Output = ()>) -> io::Result<()> {
    let (input, output) = rmcp::transport::stdio_pipes();
    let ending = server.clone();
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
/// When reading or writing the streams fails.
pub async fn serve_streams(
    server: Server,
    input: impl AsyncRead + Send + Unpin + 'static,
    output: impl AsyncWrite + Send + Unpin + 'static,
) -> io::Result<()> {
    server.start();
    let ending = server.clone();
    let running = match server.serve((input, output)).await {
        Ok(running) => running,
        // A client that disconnects without a message is not an error.
        Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(io::Error::other(error)),
    };
    let end = running.waiting().await;
    ending.shutdown().await;
    match end {
        Ok(QuitReason::JoinError(error)) | Err(error) => Err(io::Error::other(error)),
        Ok(_) => Ok(()),
    }
}

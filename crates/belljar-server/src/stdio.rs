//! The transport over standard streams: a client starts the server and talks to it through pipes.

use std::io;

use rmcp::ServiceExt;
use rmcp::service::{QuitReason, ServerInitializeError};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::handler::Server;

/// Serves one client over standard input and output until the input ends, when calls in flight get their answers, or five
/// seconds; or until `shutdown` ends, when nobody waits for answers any more.
///
/// # Errors
/// When the streams cannot be read or written.
pub async fn serve_stdio(server: Server, shutdown: impl Future<Output = ()>) -> io::Result<()> {
    let (input, output) = rmcp::transport::stdio_pipes();
    let ending = server.clone();
    tokio::select! {
        ended = serve_streams(server, input, output) => ended,
        () = shutdown => {
            ending.end().await;
            Ok(())
        }
    }
}

/// Serves one client over any two streams.
///
/// # Errors
/// When the streams cannot be read or written.
pub async fn serve_streams(
    server: Server,
    input: impl AsyncRead + Send + Unpin + 'static,
    output: impl AsyncWrite + Send + Unpin + 'static,
) -> io::Result<()> {
    server.begin();
    let ending = server.clone();
    let running = match server.serve((input, output)).await {
        Ok(running) => running,
        // A client that says nothing and leaves has done no wrong.
        Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(io::Error::other(error)),
    };
    let end = running.waiting().await;
    ending.end().await;
    match end {
        Ok(QuitReason::JoinError(error)) | Err(error) => Err(io::Error::other(error)),
        Ok(_) => Ok(()),
    }
}

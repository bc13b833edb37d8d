//! What a transport carries: a handler for each client, of whatever tools.

use rmcp::ServerHandler;

use crate::handler::Server;

/// A server that can be reached over HTTP. The transports know no more of it than this.
pub trait Served: ServerHandler + Clone {
    /// The same for another client: what one sets does not change what another gets.
    #[must_use]
    fn session(&self) -> Self;

    /// Calls that are being answered now, of all clients. A server that is told to end waits for them.
    fn calls_in_flight(&self) -> usize;

    /// The server's numbers, as Prometheus reads them.
    fn metrics(&self) -> String;
}

impl Served for Server {
    fn session(&self) -> Self {
        Self::session(self)
    }

    fn calls_in_flight(&self) -> usize {
        Self::calls_in_flight(self)
    }

    fn metrics(&self) -> String {
        Self::metrics(self)
    }
}

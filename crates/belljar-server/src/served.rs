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

    /// It is about to be served. Called once, on the runtime that serves.
    fn begin(&self) {}

    /// It is not served any more: what is to survive is put where it does.
    fn end(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
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

    fn begin(&self) {
        Self::begin(self);
    }

    async fn end(&self) {
        Self::end(self).await;
    }
}

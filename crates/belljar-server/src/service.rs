//! The interface between the HTTP transports and a server: one handler for each client.

use axum::Router;
use belljar_sessions::{Owner, Sessions};
use rmcp::ServerHandler;
use tokio_util::sync::CancellationToken;

use crate::admin;
use crate::code_execution;
use crate::handler::Server;
use crate::metrics::{McpSessionDurations, Refusals};

/// A server that the HTTP transports can serve. The transports depend on nothing else of it.
pub trait McpService: ServerHandler + Clone {
    /// Returns a server for another client, which shares everything but per-client state such as the log level. With
    /// authentication, `owner` identifies the client.
    #[must_use]
    fn for_client(&self, owner: Option<Owner>) -> Self;

    /// Returns the number of calls in flight, of all clients. A shutdown waits for them.
    fn calls_in_flight(&self) -> usize;

    /// Returns the server's metrics in Prometheus's format. May block for milliseconds.
    fn metrics(&self) -> String;

    /// Returns the numbers of refused requests, which the transport adds to.
    fn refusals(&self) -> Refusals {
        Refusals::default()
    }

    /// Returns the durations of MCP sessions, which the transport adds to.
    fn session_durations(&self) -> McpSessionDurations {
        McpSessionDurations::default()
    }

    /// Returns the routes of the code-execution protocol, if the server has sessions.
    fn code_execution(&self) -> Option<Router> {
        None
    }

    /// Returns the server's sessions, if it has some.
    fn sessions(&self) -> Option<Sessions> {
        None
    }

    /// Returns the routes of the admin API and of the console, if the server has sessions. Streams end with `ending`.
    fn admin(&self, ending: CancellationToken) -> Option<Router> {
        drop(ending);
        None
    }

    /// Starts background work. The transport calls this once before it serves, on its own runtime.
    fn start(&self) {}

    /// Notes that the transport is about to end the calls in flight.
    fn begin_shutdown(&self) {}

    /// Ends background work and saves the state that has to survive. The transport calls this once after it served.
    fn shutdown(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

impl McpService for Server {
    fn for_client(&self, owner: Option<Owner>) -> Self {
        Self::for_client(self, owner)
    }

    fn calls_in_flight(&self) -> usize {
        Self::calls_in_flight(self)
    }

    fn metrics(&self) -> String {
        Self::metrics(self)
    }

    fn refusals(&self) -> Refusals {
        Self::refusals(self)
    }

    fn session_durations(&self) -> McpSessionDurations {
        Self::session_durations(self)
    }

    fn code_execution(&self) -> Option<Router> {
        code_execution::routes(self)
    }

    fn sessions(&self) -> Option<Sessions> {
        self.session_tools.as_ref().map(|tools| tools.sessions.clone())
    }

    fn admin(&self, ending: CancellationToken) -> Option<Router> {
        admin::routes(self, ending)
    }

    fn start(&self) {
        Self::start(self);
    }

    fn begin_shutdown(&self) {
        Self::begin_shutdown(self);
    }

    async fn shutdown(&self) {
        Self::shutdown(self).await;
    }
}

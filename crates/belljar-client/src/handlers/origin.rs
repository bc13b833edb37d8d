//! The origin of a server's request to a handler.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::run_context::RunContext;

/// The origin of a server's request: the server, and the run whose call the request is about, if that is known.
///
/// In the modern era a request is part of a call, so that its run is known. In the legacy era it is known if one call
/// is in progress on the connection. In JSON the run is left out: it has credentials and values of the program.
///
/// ```
/// # fn show(origin: &belljar_mcp_client::RequestOrigin) {
/// let user = origin.run().and_then(|run| run.get_deps::<String>());
/// println!("{} asks {user:?}", origin.server());
/// # }
/// ```
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct RequestOrigin {
    server: String,
    #[serde(skip)]
    run: Option<Arc<RunContext>>,
}

impl RequestOrigin {
    /// Creates an origin without a run, for tests of handlers.
    ///
    /// ```
    /// assert_eq!(belljar_mcp_client::RequestOrigin::new("files").server(), "files");
    /// ```
    pub fn new(server: impl Into<String>) -> Self {
        Self { server: server.into(), run: None }
    }

    pub(crate) fn with_run(mut self, run: Option<Arc<RunContext>>) -> Self {
        self.run = run;
        self
    }

    /// Returns the label of the server.
    ///
    /// ```
    /// assert_eq!(belljar_mcp_client::RequestOrigin::new("files").server(), "files");
    /// ```
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Returns the run, if it is known.
    ///
    /// ```
    /// assert!(belljar_mcp_client::RequestOrigin::new("files").run().is_none());
    /// ```
    pub fn run(&self) -> Option<&RunContext> {
        self.run.as_deref()
    }
}

impl PartialEq for RequestOrigin {
    fn eq(&self, other: &Self) -> bool {
        self.server == other.server
            && match (&self.run, &other.run) {
                (Some(run), Some(other)) => Arc::ptr_eq(run, other),
                (run, other) => run.is_none() && other.is_none(),
            }
    }
}

impl fmt::Debug for RequestOrigin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RequestOrigin")
            .field("server", &self.server)
            .field("has_run", &self.run.is_some())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_of_the_run_are_not_stored() {
        let run = RunContext::new().bearer_token("hunter2").unwrap();
        let origin = RequestOrigin::new("files").with_run(Some(Arc::new(run)));
        let stored = serde_json::to_string(&origin).unwrap();
        assert_eq!(stored, r#"{"server":"files"}"#);
        assert_eq!(serde_json::from_str::<RequestOrigin>(&stored).unwrap(), RequestOrigin::new("files"));
    }
}

//! Servers as toolsets.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Map, Value};

use super::{ConnectionGuard, McpServer};
use crate::error::McpError;
use crate::run_context::RunContext;
use crate::toolset::{CloseGuard, ResourceToolset, ToolList, ToolOutcome, Toolset, ToolsetGuard};

#[async_trait]
impl Toolset for McpServer {
    fn label(&self) -> String {
        Self::label(self)
    }

    fn name_clash_hint(&self) -> String {
        "set `tool_prefix` on one of the servers".to_owned()
    }

    async fn tools(&self, run: &RunContext) -> Result<ToolList, McpError> {
        self.bound_to(run).definitions().await
    }

    async fn call(&self, run: &RunContext, name: &str, arguments: Map<String, Value>) -> Result<ToolOutcome, McpError> {
        self.bound_to(run).call_in_run(run, name, arguments).await
    }

    async fn instructions(&self, run: &RunContext) -> Result<Option<String>, McpError> {
        if !self.inner.settings.include_instructions {
            return Ok(None);
        }
        self.bound_to(run).server_instructions().await
    }

    async fn enter(&self) -> Result<ToolsetGuard, McpError> {
        Ok(ToolsetGuard::new(self.connect().await?))
    }

    async fn for_run(&self, run: &RunContext) -> Result<Option<Arc<dyn Toolset>>, McpError> {
        let bound = self.bound_to(run);
        Ok(matches!(bound, Cow::Owned(_)).then(|| Arc::new(bound.into_owned()) as Arc<dyn Toolset>))
    }
}

impl McpServer {
    /// Returns the resources of the server as tools for models, `list_resources` and `read_resource`, with the prefix
    /// of the server's tools. The connection is shared with the server.
    ///
    /// ```
    /// use belljar_mcp_client::{CombinedToolset, McpServerStdio};
    ///
    /// let server = McpServerStdio::new("server").build();
    /// let all = CombinedToolset::new().with(server.clone()).with(server.resource_tools());
    /// ```
    pub fn resource_tools(&self) -> ResourceToolset {
        ResourceToolset::new(self.clone())
    }
}

impl CloseGuard for ConnectionGuard {
    fn close(self: Box<Self>) -> BoxFuture<'static, Result<(), McpError>> {
        Self::close(*self).boxed()
    }
}

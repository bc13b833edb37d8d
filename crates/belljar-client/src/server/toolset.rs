//! Servers as toolsets.

use async_trait::async_trait;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Map, Value};

use super::{ConnectionGuard, McpServer};
use crate::error::McpError;
use crate::run_context::RunContext;
use crate::toolset::{CloseGuard, ToolList, ToolOutcome, Toolset, ToolsetGuard};

#[async_trait]
impl Toolset for McpServer {
    fn label(&self) -> String {
        Self::label(self)
    }

    fn name_clash_hint(&self) -> String {
        "set `tool_prefix` on one of the servers".to_owned()
    }

    async fn tools(&self, _run: &RunContext) -> Result<ToolList, McpError> {
        self.definitions().await
    }

    async fn call(&self, run: &RunContext, name: &str, arguments: Map<String, Value>) -> Result<ToolOutcome, McpError> {
        self.call_in_run(run, name, arguments).await
    }

    async fn instructions(&self, _run: &RunContext) -> Result<Option<String>, McpError> {
        if self.inner.settings.include_instructions { self.server_instructions().await } else { Ok(None) }
    }

    async fn enter(&self) -> Result<ToolsetGuard, McpError> {
        Ok(ToolsetGuard::new(self.connect().await?))
    }
}

impl CloseGuard for ConnectionGuard {
    fn close(self: Box<Self>) -> BoxFuture<'static, Result<(), McpError>> {
        Self::close(*self).boxed()
    }
}

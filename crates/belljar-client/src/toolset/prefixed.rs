//! Toolsets with prefixed tool names.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Map, Value};

use super::list::DerivedList;
use super::{ToolList, ToolOutcome, Toolset, unknown};
use crate::error::McpError;
use crate::run_context::RunContext;

/// A toolset with prefixed tool names, from [`ToolsetExt::prefixed`](super::ToolsetExt::prefixed).
///
/// ```
/// # use belljar_mcp_client::{McpServer, PrefixedToolset, ToolsetExt};
/// fn git_tools(server: McpServer) -> PrefixedToolset<McpServer> {
///     server.prefixed("git")
/// }
/// ```
#[derive(Debug, Clone)]
pub struct PrefixedToolset<T> {
    inner: T,
    /// The prefix, including the underscore.
    prefix: String,
    list: DerivedList,
}

impl<T> PrefixedToolset<T> {
    pub(super) fn new(inner: T, prefix: String) -> Self {
        Self { inner, prefix: format!("{prefix}_"), list: DerivedList::default() }
    }
}

#[async_trait]
impl<T: Toolset> Toolset for PrefixedToolset<T> {
    fn inner(&self) -> Option<&dyn Toolset> {
        Some(&self.inner)
    }

    fn label(&self) -> String {
        self.inner.label()
    }

    async fn tools(&self, run: &RunContext) -> Result<ToolList, McpError> {
        self.list.of(self.inner.tools(run).await?, |tools| {
            let mut tools = tools.to_definitions();
            tools.iter_mut().for_each(|tool| tool.name.insert_str(0, &self.prefix));
            Ok(tools.into())
        })
    }

    async fn call(&self, run: &RunContext, name: &str, arguments: Map<String, Value>) -> Result<ToolOutcome, McpError> {
        let Some(bare) = name.strip_prefix(&self.prefix) else { return unknown(self, run, name).await };
        let outcome = self.inner.call(run, bare, arguments).await?;
        if outcome.is_unknown_tool() { unknown(self, run, name).await } else { Ok(outcome) }
    }

    async fn for_run(&self, run: &RunContext) -> Result<Option<Arc<dyn Toolset>>, McpError> {
        let inner = self.inner.for_run(run).await?;
        let with = |inner| PrefixedToolset { inner, prefix: self.prefix.clone(), list: DerivedList::default() };
        Ok(inner.map(|inner| Arc::new(with(inner)) as Arc<dyn Toolset>))
    }
}

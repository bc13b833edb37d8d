//! Toolsets without some of their tools.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Map, Value};

use super::list::DerivedList;
use super::{ToolDefinition, ToolList, ToolOutcome, Toolset, unknown};
use crate::error::McpError;
use crate::run_context::RunContext;

/// A toolset without some of its tools, from [`ToolsetExt::filtered`](super::ToolsetExt::filtered).
///
/// ```
/// # use belljar_mcp_client::{McpServer, RunContext, ToolDefinition, Toolset, ToolsetExt};
/// fn safe(server: McpServer) -> impl Toolset {
///     server.filtered(|_run: &RunContext, tool: &ToolDefinition| tool.name != "delete")
/// }
/// ```
#[derive(Debug, Clone)]
pub struct FilteredToolset<T, F> {
    inner: T,
    keep: Arc<F>,
    list: DerivedList,
}

impl<T, F> FilteredToolset<T, F> {
    pub(super) fn new(inner: T, keep: F) -> Self {
        Self { inner, keep: Arc::new(keep), list: DerivedList::default() }
    }
}

#[async_trait]
impl<T: Toolset, F> Toolset for FilteredToolset<T, F>
where
    F: Fn(&RunContext, &ToolDefinition) -> bool + Send + Sync + 'static,
{
    fn inner(&self) -> Option<&dyn Toolset> {
        Some(&self.inner)
    }

    fn label(&self) -> String {
        self.inner.label()
    }

    async fn tools(&self, run: &RunContext) -> Result<ToolList, McpError> {
        let tools = self.inner.tools(run).await?;
        Ok(self.list.reuse(tools.iter().filter(|tool| (self.keep)(run, tool)).cloned().collect()))
    }

    async fn call(&self, run: &RunContext, name: &str, arguments: Map<String, Value>) -> Result<ToolOutcome, McpError> {
        // A model may call a tool that was not shown to it.
        let tools = match self.inner.tools(run).await {
            Ok(tools) => tools,
            Err(error) => return error.into_outcome(),
        };
        let is_kept = tools.get(name).is_some_and(|tool| (self.keep)(run, tool));
        if is_kept { self.inner.call(run, name, arguments).await } else { unknown(self, run, name).await }
    }

    async fn for_run(&self, run: &RunContext) -> Result<Option<Arc<dyn Toolset>>, McpError> {
        let inner = self.inner.for_run(run).await?;
        let with = |inner| FilteredToolset { inner, keep: self.keep.clone(), list: DerivedList::default() };
        Ok(inner.map(|inner| Arc::new(with(inner)) as Arc<dyn Toolset>))
    }
}

/// A toolset without some of its tools, from [`ToolsetExt::filtered_async`](super::ToolsetExt::filtered_async).
///
/// ```
/// # use std::sync::Arc;
/// # use belljar_mcp_client::{McpServer, RunContext, ToolDefinition, Toolset, ToolsetExt};
/// fn safe(server: McpServer) -> impl Toolset {
///     server.filtered_async(|_run: RunContext, tool: Arc<ToolDefinition>| async move { Ok(tool.name != "delete") })
/// }
/// ```
#[derive(Debug, Clone)]
pub struct AsyncFilteredToolset<T, F> {
    inner: T,
    keep: Arc<F>,
    list: DerivedList,
}

impl<T, F> AsyncFilteredToolset<T, F> {
    pub(super) fn new(inner: T, keep: F) -> Self {
        Self { inner, keep: Arc::new(keep), list: DerivedList::default() }
    }
}

#[async_trait]
impl<T: Toolset, F, Decision> Toolset for AsyncFilteredToolset<T, F>
where
    F: Fn(RunContext, Arc<ToolDefinition>) -> Decision + Send + Sync + 'static,
    Decision: Future<Output = Result<bool, McpError>> + Send + 'static,
{
    fn inner(&self) -> Option<&dyn Toolset> {
        Some(&self.inner)
    }

    fn label(&self) -> String {
        self.inner.label()
    }

    async fn tools(&self, run: &RunContext) -> Result<ToolList, McpError> {
        let tools = self.inner.tools(run).await?;
        let kept = tools.iter().map(|tool| (self.keep)(run.clone(), tool.clone()));
        let kept = futures::future::try_join_all(kept).await?;
        let kept = tools.iter().zip(kept).filter(|(_, is_kept)| *is_kept);
        Ok(self.list.reuse(kept.map(|(tool, _)| tool.clone()).collect()))
    }

    async fn call(&self, run: &RunContext, name: &str, arguments: Map<String, Value>) -> Result<ToolOutcome, McpError> {
        let tools = match self.inner.tools(run).await {
            Ok(tools) => tools,
            Err(error) => return error.into_outcome(),
        };
        let is_kept = match tools.get(name) {
            Some(tool) => (self.keep)(run.clone(), tool.clone()).await?,
            None => false,
        };
        if is_kept { self.inner.call(run, name, arguments).await } else { unknown(self, run, name).await }
    }

    async fn for_run(&self, run: &RunContext) -> Result<Option<Arc<dyn Toolset>>, McpError> {
        let inner = self.inner.for_run(run).await?;
        let with = |inner| AsyncFilteredToolset { inner, keep: self.keep.clone(), list: DerivedList::default() };
        Ok(inner.map(|inner| Arc::new(with(inner)) as Arc<dyn Toolset>))
    }
}

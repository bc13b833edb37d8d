//! Toolsets with changed definitions.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Map, Value};

use super::{ToolDefinition, ToolList, ToolOutcome, Toolset};
use crate::error::{ConfigError, McpError};
use crate::run_context::RunContext;

/// A toolset with changed definitions, from [`ToolsetExt::prepared`](super::ToolsetExt::prepared).
///
/// ```
/// # use belljar_mcp_client::{McpServer, RunContext, ToolDefinition, Toolset, ToolsetExt};
/// fn first_ten(server: McpServer) -> impl Toolset {
///     server.prepared(|_run: &RunContext, tools: Vec<ToolDefinition>| tools.into_iter().take(10).collect())
/// }
/// ```
#[derive(Debug, Clone)]
pub struct PreparedToolset<T, F> {
    inner: T,
    prepare: Arc<F>,
}

impl<T, F> PreparedToolset<T, F> {
    pub(super) fn new(inner: T, prepare: F) -> Self {
        Self { inner, prepare: Arc::new(prepare) }
    }
}

/// Returns the prepared tools as a list.
///
/// # Errors
///
/// Returns [`ConfigError::PreparedTool`] for a tool that `before` does not have, or that appears twice.
fn checked(label: String, before: &ToolList, prepared: Vec<ToolDefinition>) -> Result<ToolList, McpError> {
    let mut seen = HashSet::new();
    let invalid = prepared.iter().find(|tool| before.get(&tool.name).is_none() || !seen.insert(tool.name.as_str()));
    match invalid {
        Some(tool) => Err(ConfigError::PreparedTool { toolset: label, name: tool.name.clone() }.into()),
        None => Ok(prepared.into()),
    }
}

#[async_trait]
impl<T: Toolset, F> Toolset for PreparedToolset<T, F>
where
    F: Fn(&RunContext, Vec<ToolDefinition>) -> Vec<ToolDefinition> + Send + Sync + 'static,
{
    fn inner(&self) -> Option<&dyn Toolset> {
        Some(&self.inner)
    }

    fn label(&self) -> String {
        self.inner.label()
    }

    async fn tools(&self, run: &RunContext) -> Result<ToolList, McpError> {
        let tools = self.inner.tools(run).await?;
        checked(self.label(), &tools, (self.prepare)(run, tools.to_definitions()))
    }

    async fn call(&self, run: &RunContext, name: &str, arguments: Map<String, Value>) -> Result<ToolOutcome, McpError> {
        match self.tools(run).await {
            Ok(tools) if tools.get(name).is_some() => self.inner.call(run, name, arguments).await,
            Ok(tools) => Ok(ToolOutcome::unknown_tool(name, tools.names())),
            Err(error) => error.into_outcome(),
        }
    }

    async fn for_run(&self, run: &RunContext) -> Result<Option<Arc<dyn Toolset>>, McpError> {
        let inner = self.inner.for_run(run).await?;
        let with = |inner| PreparedToolset { inner, prepare: self.prepare.clone() };
        Ok(inner.map(|inner| Arc::new(with(inner)) as Arc<dyn Toolset>))
    }
}

/// A toolset with changed definitions, from [`ToolsetExt::prepared_async`](super::ToolsetExt::prepared_async).
///
/// ```
/// # use belljar_mcp_client::{McpServer, RunContext, ToolDefinition, Toolset, ToolsetExt};
/// fn first_ten(server: McpServer) -> impl Toolset {
///     server.prepared_async(|_run: RunContext, tools: Vec<ToolDefinition>| async move {
///         Ok(tools.into_iter().take(10).collect())
///     })
/// }
/// ```
#[derive(Debug, Clone)]
pub struct AsyncPreparedToolset<T, F> {
    inner: T,
    prepare: Arc<F>,
}

impl<T, F> AsyncPreparedToolset<T, F> {
    pub(super) fn new(inner: T, prepare: F) -> Self {
        Self { inner, prepare: Arc::new(prepare) }
    }
}

#[async_trait]
impl<T: Toolset, F, Prepared> Toolset for AsyncPreparedToolset<T, F>
where
    F: Fn(RunContext, Vec<ToolDefinition>) -> Prepared + Send + Sync + 'static,
    Prepared: Future<Output = Result<Vec<ToolDefinition>, McpError>> + Send + 'static,
{
    fn inner(&self) -> Option<&dyn Toolset> {
        Some(&self.inner)
    }

    fn label(&self) -> String {
        self.inner.label()
    }

    async fn tools(&self, run: &RunContext) -> Result<ToolList, McpError> {
        let tools = self.inner.tools(run).await?;
        let prepared = (self.prepare)(run.clone(), tools.to_definitions()).await?;
        checked(self.label(), &tools, prepared)
    }

    async fn call(&self, run: &RunContext, name: &str, arguments: Map<String, Value>) -> Result<ToolOutcome, McpError> {
        match self.tools(run).await {
            Ok(tools) if tools.get(name).is_some() => self.inner.call(run, name, arguments).await,
            Ok(tools) => Ok(ToolOutcome::unknown_tool(name, tools.names())),
            Err(error) => error.into_outcome(),
        }
    }

    async fn for_run(&self, run: &RunContext) -> Result<Option<Arc<dyn Toolset>>, McpError> {
        let inner = self.inner.for_run(run).await?;
        let with = |inner| AsyncPreparedToolset { inner, prepare: self.prepare.clone() };
        Ok(inner.map(|inner| Arc::new(with(inner)) as Arc<dyn Toolset>))
    }
}

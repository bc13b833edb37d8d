//! Toolsets with renamed tools.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Map, Value};

use super::list::DerivedList;
use super::{ToolList, ToolOutcome, Toolset, unknown};
use crate::error::{ConfigError, McpError};
use crate::run_context::RunContext;

/// A toolset with renamed tools, from [`ToolsetExt::renamed`](super::ToolsetExt::renamed).
///
/// ```
/// # use belljar_mcp_client::{McpServer, RenamedToolset, ToolsetExt};
/// fn shorter(server: McpServer) -> RenamedToolset<McpServer> {
///     server.renamed([("read_text_file", "read")])
/// }
/// ```
#[derive(Debug, Clone)]
pub struct RenamedToolset<T> {
    inner: T,
    /// Pairs of the old and the new name.
    names: Arc<[(String, String)]>,
    list: DerivedList,
}

impl<T> RenamedToolset<T> {
    pub(super) fn new(inner: T, names: Vec<(String, String)>) -> Self {
        Self { inner, names: names.into(), list: DerivedList::default() }
    }
}

impl<T: Toolset> RenamedToolset<T> {
    fn rename(&self, tools: &ToolList) -> Result<ToolList, McpError> {
        if let Some((old, new)) = self.names.iter().find(|(old, _)| tools.get(old).is_none()) {
            return Err(ConfigError::RenamedTool {
                toolset: self.label(),
                old: old.clone(),
                new: new.clone(),
                known: tools.names().map(str::to_owned).collect(),
            }
            .into());
        }
        let mut tools = tools.to_definitions();
        for tool in &mut tools {
            if let Some((_, new)) = self.names.iter().find(|(old, _)| *old == tool.name) {
                tool.name.clone_from(new);
            }
        }
        let mut seen = HashSet::new();
        if let Some(twice) = tools.iter().find(|tool| !seen.insert(tool.name.as_str())) {
            let toolset = self.label();
            return Err(ConfigError::RenameClash { toolset, name: twice.name.clone() }.into());
        }
        Ok(tools.into())
    }
}

#[async_trait]
impl<T: Toolset> Toolset for RenamedToolset<T> {
    fn inner(&self) -> Option<&dyn Toolset> {
        Some(&self.inner)
    }

    fn label(&self) -> String {
        self.inner.label()
    }

    async fn tools(&self, run: &RunContext) -> Result<ToolList, McpError> {
        self.list.of(self.inner.tools(run).await?, |tools| self.rename(tools))
    }

    async fn call(&self, run: &RunContext, name: &str, arguments: Map<String, Value>) -> Result<ToolOutcome, McpError> {
        let old = match self.names.iter().find(|(_, new)| new == name) {
            Some((old, _)) => old,
            // The old name is not valid any more.
            None if self.names.iter().any(|(old, _)| old == name) => return unknown(self, run, name).await,
            None => name,
        };
        let outcome = self.inner.call(run, old, arguments).await?;
        if outcome.is_unknown_tool() { unknown(self, run, name).await } else { Ok(outcome) }
    }

    async fn for_run(&self, run: &RunContext) -> Result<Option<Arc<dyn Toolset>>, McpError> {
        let inner = self.inner.for_run(run).await?;
        let with = |inner| RenamedToolset { inner, names: self.names.clone(), list: DerivedList::default() };
        Ok(inner.map(|inner| Arc::new(with(inner)) as Arc<dyn Toolset>))
    }
}

//! Several toolsets as one.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Map, Value};

use super::compose::unknown;
use super::{ToolDefinition, ToolOutcome, Toolset, ToolsetGuard};
use crate::error::McpError;
use crate::run_context::RunContext;

/// Several toolsets as one. Two tools of the same name are an error that names both toolsets.
///
/// ```
/// use belljar_client::{CombinedToolset, McpServerStdio};
///
/// let git = McpServerStdio::new("mcp-server-git").tool_prefix("git").build();
/// let files = McpServerStdio::new("server-filesystem").tool_prefix("files").build();
/// let all = CombinedToolset::new().with(git).with(files);
/// ```
#[derive(Clone, Default)]
pub struct CombinedToolset {
    toolsets: Vec<Arc<dyn Toolset>>,
}

impl CombinedToolset {
    /// Creates an empty toolset.
    ///
    /// ```
    /// # use belljar_client::{CombinedToolset, Toolset};
    /// assert_eq!(CombinedToolset::new().label(), "");
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a toolset.
    ///
    /// ```
    /// # use belljar_client::{CombinedToolset, McpServerStdio, Toolset};
    /// let (git, mail) = (McpServerStdio::new("git").build(), McpServerStdio::new("mail").build());
    /// let all = CombinedToolset::new().with(git).with(mail);
    /// assert_eq!(all.label(), "git + mail");
    /// ```
    pub fn with(mut self, toolset: impl Toolset) -> Self {
        self.toolsets.push(Arc::new(toolset));
        self
    }

    /// Returns every tool with the toolset that it belongs to.
    async fn owned_tools(&self, run: &RunContext) -> Result<Vec<(Arc<dyn Toolset>, ToolDefinition)>, McpError> {
        let lists = futures::future::try_join_all(self.toolsets.iter().map(|toolset| toolset.tools(run))).await?;
        let mut owners: HashMap<String, &Arc<dyn Toolset>> = HashMap::new();
        let mut all = Vec::new();
        for (toolset, tools) in self.toolsets.iter().zip(lists) {
            for tool in tools {
                if let Some(first) = owners.insert(tool.name.clone(), toolset) {
                    return Err(McpError::NameClash {
                        name: tool.name,
                        first: first.label(),
                        second: toolset.label(),
                        hint: toolset.name_clash_hint(),
                    });
                }
                all.push((toolset.clone(), tool));
            }
        }
        Ok(all)
    }
}

impl<T: Toolset> FromIterator<T> for CombinedToolset {
    fn from_iter<I: IntoIterator<Item = T>>(toolsets: I) -> Self {
        toolsets.into_iter().fold(Self::new(), Self::with)
    }
}

impl std::fmt::Debug for CombinedToolset {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(self.toolsets.iter().map(|toolset| toolset.label())).finish()
    }
}

#[async_trait]
impl Toolset for CombinedToolset {
    fn label(&self) -> String {
        self.toolsets.iter().map(|toolset| toolset.label()).collect::<Vec<_>>().join(" + ")
    }

    async fn tools(&self, run: &RunContext) -> Result<Vec<ToolDefinition>, McpError> {
        Ok(self.owned_tools(run).await?.into_iter().map(|(_, tool)| tool).collect())
    }

    async fn call(&self, run: &RunContext, name: &str, arguments: Map<String, Value>) -> Result<ToolOutcome, McpError> {
        let owner = self.owned_tools(run).await?.into_iter().find(|(_, tool)| tool.name == name);
        match owner {
            Some((toolset, _)) => toolset.call(run, name, arguments).await,
            None => Err(unknown(self, run, name).await),
        }
    }

    async fn instructions(&self, run: &RunContext) -> Result<Option<String>, McpError> {
        let each = self.toolsets.iter().map(|toolset| toolset.instructions(run));
        let texts: Vec<String> = futures::future::try_join_all(each).await?.into_iter().flatten().collect();
        Ok((!texts.is_empty()).then(|| texts.join("\n\n")))
    }

    async fn enter(&self) -> Result<ToolsetGuard, McpError> {
        let guards = futures::future::try_join_all(self.toolsets.iter().map(|toolset| toolset.enter())).await?;
        Ok(guards.into_iter().collect())
    }
}

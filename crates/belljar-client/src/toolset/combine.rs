//! Several toolsets as one.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Map, Value};

use super::compose::unknown;
use super::{ToolDefinition, ToolOutcome, Toolset};
use crate::error::McpError;
use crate::run::RunContext;
use crate::server::{McpServer, Running};

/// Several toolsets as one. A name that two of them have is an error that says what to do about it.
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
    /// No tools.
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
    /// let all = CombinedToolset::new().with(McpServerStdio::new("git").build()).with(McpServerStdio::new("mail").build());
    /// assert_eq!(all.label(), "git + mail");
    /// ```
    pub fn with(mut self, toolset: impl Toolset) -> Self {
        self.toolsets.push(Arc::new(toolset));
        self
    }

    /// Every tool, with the toolset that has it.
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

impl FromIterator<McpServer> for CombinedToolset {
    fn from_iter<I: IntoIterator<Item = McpServer>>(servers: I) -> Self {
        servers.into_iter().fold(Self::new(), Self::with)
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

    async fn enter(&self) -> Result<Enter, McpError> {
        let guards = futures::future::try_join_all(self.toolsets.iter().map(|toolset| toolset.enter())).await?;
        Ok(Enter { running: guards.into_iter().flat_map(|guard| guard.running).collect() })
    }
}

/// Keeps a toolset's connections open, as [`Running`] does for one server.
///
/// ```no_run
/// # use belljar_client::{Enter, McpError, RunContext, Toolset};
/// # async fn run(toolset: impl Toolset) -> Result<(), McpError> {
/// let connections: Enter = toolset.enter().await?;
/// let tools = toolset.tools(&RunContext::new()).await?;
/// connections.close().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "connections close when this is dropped"]
pub struct Enter {
    running: Vec<Running>,
}

impl Enter {
    /// For a toolset that needs nothing to be open.
    ///
    /// ```
    /// let guard = belljar_client::Enter::nothing();
    /// ```
    pub fn nothing() -> Self {
        Self { running: Vec::new() }
    }

    pub(super) fn one(running: Running) -> Self {
        Self { running: vec![running] }
    }

    /// Lets go of the connections and waits until those that nobody else holds are over.
    ///
    /// ```no_run
    /// # use belljar_client::{McpError, Toolset};
    /// # async fn run(toolset: impl Toolset) -> Result<(), McpError> {
    /// toolset.enter().await?.close().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Running::close`].
    pub async fn close(self) -> Result<(), McpError> {
        futures::future::try_join_all(self.running.into_iter().map(Running::close)).await.map(drop)
    }
}

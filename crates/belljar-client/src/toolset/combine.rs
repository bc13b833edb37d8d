//! Several toolsets as one.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::{Map, Value};

use super::{ToolList, ToolOutcome, Toolset, ToolsetGuard, unknown};
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
#[derive(Default)]
pub struct CombinedToolset {
    toolsets: Vec<Arc<dyn Toolset>>,
    /// The last list, until a list of one of the toolsets changes.
    listing: Mutex<Option<Arc<Listing>>>,
}

/// A combined list and the lists that it consists of.
struct Listing {
    parts: Vec<ToolList>,
    all: ToolList,
    /// The position of the toolset that has the tool of this name.
    owners: HashMap<String, usize>,
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

    /// Lists every toolset at once.
    async fn list(&self, run: &RunContext) -> Result<Arc<Listing>, McpError> {
        let parts = futures::future::try_join_all(self.toolsets.iter().map(|toolset| toolset.tools(run))).await?;
        if let Some(last) = self.listing.lock().as_ref()
            && last.parts.iter().zip(&parts).all(|(last, part)| last.is_same(part))
        {
            return Ok(last.clone());
        }
        let mut owners = HashMap::new();
        for (position, tools) in parts.iter().enumerate() {
            for tool in tools {
                if let Some(first) = owners.insert(tool.name.clone(), position) {
                    let (first, second): (&Arc<dyn Toolset>, _) = (&self.toolsets[first], &self.toolsets[position]);
                    return Err(McpError::NameClash {
                        name: tool.name.clone(),
                        first: first.label(),
                        second: second.label(),
                        hint: second.name_clash_hint(),
                    });
                }
            }
        }
        let all = parts.iter().flatten().cloned().collect();
        let listing = Arc::new(Listing { parts, all, owners });
        *self.listing.lock() = Some(listing.clone());
        Ok(listing)
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

    async fn tools(&self, run: &RunContext) -> Result<ToolList, McpError> {
        Ok(self.list(run).await?.all.clone())
    }

    async fn call(&self, run: &RunContext, name: &str, arguments: Map<String, Value>) -> Result<ToolOutcome, McpError> {
        let owner = self.list(run).await?.owners.get(name).and_then(|owner| self.toolsets.get(*owner)).cloned();
        match owner {
            Some(toolset) => toolset.call(run, name, arguments).await,
            None => unknown(self, run, name).await,
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

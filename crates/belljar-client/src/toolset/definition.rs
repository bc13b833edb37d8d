//! The definition of a tool, and the part of its metadata that concerns MCP Apps.

use std::sync::Arc;

use rmcp::model::{Icon, Tool, ToolAnnotations};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A tool as presented to a model.
///
/// ```no_run
/// # use belljar_mcp_client::{McpError, RunContext, Toolset};
/// # async fn run(toolset: impl Toolset) -> Result<(), McpError> {
/// for tool in &toolset.tools(&RunContext::new()).await? {
///     println!("{}: takes {}, gives {:?}", tool.name, tool.input_schema, tool.output_schema);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolDefinition {
    /// The name by which models call the tool, including any prefix.
    pub name: String,
    /// A name for display.
    pub title: Option<String>,
    /// The description. It is untrusted text.
    pub description: Option<String>,
    /// The JSON schema of the arguments.
    pub input_schema: Arc<Value>,
    /// The JSON schema of the structured output, if any.
    pub output_schema: Option<Arc<Value>>,
    /// The server's claims about the tool's behaviour (read-only, destructive, …). Advisory, not guaranteed.
    pub annotations: Option<ToolAnnotations>,
    /// The icons.
    #[serde(default)]
    pub icons: Vec<Icon>,
    /// Metadata from the server, for programs.
    #[serde(default)]
    pub metadata: Map<String, Value>,
    /// The number of times that a model may retry the tool; `None` leaves it to the agent, see
    /// [`ToolRunner::max_retries`](crate::ToolRunner::max_retries).
    pub max_retries: Option<u32>,
    /// True to show the output schema to the model, false to hide it; `None` leaves the decision to the agent.
    pub include_return_schema: Option<bool>,
}

impl ToolDefinition {
    /// Creates a tool of the program.
    ///
    /// ```
    /// use belljar_mcp_client::ToolDefinition;
    /// use serde_json::json;
    ///
    /// let tool = ToolDefinition::new("now", json!({"type": "object"}));
    /// assert_eq!(tool.max_retries, None);
    /// ```
    pub fn new(name: impl Into<String>, input_schema: Value) -> Self {
        Self {
            name: name.into(),
            title: None,
            description: None,
            input_schema: Arc::new(input_schema),
            output_schema: None,
            annotations: None,
            icons: Vec::new(),
            metadata: Map::new(),
            max_retries: None,
            include_return_schema: None,
        }
    }

    /// Sets the description.
    ///
    /// ```
    /// # use belljar_mcp_client::ToolDefinition;
    /// # use serde_json::json;
    /// let tool = ToolDefinition::new("now", json!({"type": "object"})).with_description("The time.");
    /// ```
    pub fn with_description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// Returns whether the tool only reads, according to its annotations; false without them, as MCP defines.
    ///
    /// ```
    /// # use belljar_mcp_client::ToolDefinition;
    /// # use serde_json::json;
    /// assert!(!ToolDefinition::new("now", json!({"type": "object"})).is_read_only());
    /// ```
    pub fn is_read_only(&self) -> bool {
        self.annotations.as_ref().and_then(|annotations| annotations.read_only_hint) == Some(true)
    }

    /// Returns whether the tool may delete or overwrite something, according to its annotations; true without them, as
    /// MCP defines.
    ///
    /// ```
    /// # use belljar_mcp_client::ToolDefinition;
    /// # use serde_json::json;
    /// assert!(ToolDefinition::new("now", json!({"type": "object"})).may_destroy());
    /// ```
    pub fn may_destroy(&self) -> bool {
        let hint = self.annotations.as_ref().and_then(|annotations| annotations.destructive_hint);
        !self.is_read_only() && hint != Some(false)
    }

    /// Returns the page of the tool, if it has one ([MCP
    /// Apps](https://modelcontextprotocol.io/extensions/apps/overview)).
    ///
    /// ```
    /// use belljar_mcp_client::ToolDefinition;
    /// use serde_json::json;
    ///
    /// let mut tool = ToolDefinition::new("map", json!({"type": "object"}));
    /// assert_eq!(tool.app_resource(), None);
    /// tool.metadata.insert("ui".into(), json!({"resourceUri": "ui://map.html"}));
    /// assert_eq!(tool.app_resource(), Some("ui://map.html"));
    /// ```
    pub fn app_resource(&self) -> Option<&str> {
        resource_uri(&self.metadata)
    }
}

impl From<&Tool> for ToolDefinition {
    fn from(tool: &Tool) -> Self {
        Self {
            title: tool.title.clone(),
            description: tool.description.as_deref().map(str::to_owned),
            output_schema: tool.output_schema.as_ref().map(|schema| Arc::new(Value::Object((**schema).clone()))),
            annotations: tool.annotations.clone(),
            icons: tool.icons.clone().unwrap_or_default(),
            metadata: tool.meta.as_ref().map(|meta| meta.0.clone()).unwrap_or_default(),
            ..Self::new(&*tool.name, Value::Object((*tool.input_schema).clone()))
        }
    }
}

/// The audience of a tool. A tool that does not specify one is visible to both.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Audience {
    Model,
    App,
}

/// Returns whether a tool is visible to an audience, according to its `_meta.ui.visibility`.
pub(crate) fn is_visible_to(metadata: &Map<String, Value>, audience: Audience) -> bool {
    let name = match audience {
        Audience::Model => "model",
        Audience::App => "app",
    };
    match metadata.get("ui").and_then(|ui| ui.get("visibility")?.as_array()) {
        Some(listed) => listed.iter().any(|one| one == name),
        None => true,
    }
}

/// Returns the page of a tool from its `_meta`; `ui/resourceUri` is the older form.
pub(crate) fn resource_uri(metadata: &Map<String, Value>) -> Option<&str> {
    let nested = metadata.get("ui").and_then(|ui| ui.get("resourceUri"));
    nested.or_else(|| metadata.get("ui/resourceUri"))?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tool_is_visible_to_the_listed_audiences() {
        let seen = |meta: Value| {
            let meta = meta.as_object().unwrap();
            (is_visible_to(meta, Audience::Model), is_visible_to(meta, Audience::App))
        };
        assert_eq!(seen(json!({})), (true, true));
        assert_eq!(seen(json!({"ui": {"visibility": ["app"]}})), (false, true));
        assert_eq!(seen(json!({"ui": {"visibility": ["model"]}})), (true, false));
        assert_eq!(seen(json!({"ui": {"visibility": "app"}})), (true, true));
    }

    #[test]
    fn page_is_read_from_both_metadata_forms() {
        let named = |meta: Value| resource_uri(meta.as_object().unwrap()).map(str::to_owned);
        assert_eq!(named(json!({"ui": {"resourceUri": "ui://a"}})).as_deref(), Some("ui://a"));
        assert_eq!(named(json!({"ui/resourceUri": "ui://b"})).as_deref(), Some("ui://b"));
        assert_eq!(named(json!({"ui": {"resourceUri": 1}})), None);
    }
}

//! Tools that an agent can use, wherever they come from: the trait, what a call comes to, and servers as toolsets.

mod combine;
mod compose;

use std::sync::Arc;

use async_trait::async_trait;
use rmcp::model::{Icon, Tool, ToolAnnotations};
use serde_json::{Map, Value};

pub use combine::{CombinedToolset, Enter};
pub use compose::{
    Approval, ApprovalRequest, Approve, ApprovedToolset, FilteredToolset, PrefixedToolset, PreparedToolset,
    RenamedToolset,
};

use crate::error::McpError;
use crate::output::ToolOutput;
use crate::run::RunContext;
use crate::server::McpServer;

/// A tool, as a model gets to know it.
///
/// ```no_run
/// # use belljar_client::{McpError, RunContext, Toolset};
/// # async fn run(toolset: impl Toolset) -> Result<(), McpError> {
/// for tool in toolset.tools(&RunContext::new()).await? {
///     println!("{}: takes {}, gives {:?}", tool.name, tool.input_schema, tool.output_schema);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ToolDefinition {
    /// The name by which it is called, prefix and all.
    pub name: String,
    /// A name for people.
    pub title: Option<String>,
    /// What it does. It is text from outside.
    pub description: Option<String>,
    /// JSON schema of its arguments.
    pub input_schema: Arc<Value>,
    /// JSON schema of its structured output, if it has one.
    pub output_schema: Option<Arc<Value>>,
    /// What the server says about the tool's ways (read-only, destructive, …). Advice, not a promise.
    pub annotations: Option<ToolAnnotations>,
    /// Pictures of it.
    pub icons: Vec<Icon>,
    /// What the server adds for programs.
    pub metadata: Map<String, Value>,
    /// How often a model may try it again.
    pub max_retries: u32,
    /// Whether the model should be told the output schema; `None` leaves it to the agent.
    pub include_return_schema: Option<bool>,
}

impl ToolDefinition {
    /// A tool of the program's own.
    ///
    /// ```
    /// use belljar_client::ToolDefinition;
    /// use serde_json::json;
    ///
    /// let tool = ToolDefinition::new("now", json!({"type": "object"}));
    /// assert_eq!(tool.max_retries, 1);
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
            max_retries: 1,
            include_return_schema: None,
        }
    }

    /// Sets what it does.
    ///
    /// ```
    /// # use belljar_client::ToolDefinition;
    /// # use serde_json::json;
    /// let tool = ToolDefinition::new("now", json!({"type": "object"})).with_description("The time.");
    /// ```
    pub fn with_description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// The page that the tool comes with, if it is one of
    /// [MCP Apps](https://modelcontextprotocol.io/extensions/apps/overview).
    ///
    /// ```
    /// use belljar_client::ToolDefinition;
    /// use serde_json::json;
    ///
    /// let mut tool = ToolDefinition::new("map", json!({"type": "object"}));
    /// assert_eq!(tool.app_resource(), None);
    /// tool.metadata.insert("ui".into(), json!({"resourceUri": "ui://map.html"}));
    /// assert_eq!(tool.app_resource(), Some("ui://map.html"));
    /// ```
    pub fn app_resource(&self) -> Option<&str> {
        crate::server::resource_uri(&self.metadata)
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

/// What a call came to.
///
/// ```
/// use belljar_client::{ToolOutcome, ToolOutput};
///
/// fn to_model(outcome: ToolOutcome) -> String {
///     match outcome {
///         ToolOutcome::Output(ToolOutput::Json(value)) => value.to_string(),
///         ToolOutcome::Output(output) => output.to_text(),
///         ToolOutcome::Retry(retry) => format!("{}; try again", retry.message),
///         ToolOutcome::Failed(message) => format!("it failed: {message}"),
///         ToolOutcome::Denied(reason) => format!("it is not allowed: {reason}"),
///     }
/// }
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum ToolOutcome {
    /// It gave this.
    Output(ToolOutput),
    /// It failed in a way that the model may mend: hand it the message, and let it try again
    /// [`max_retries`](ToolDefinition::max_retries) times.
    Retry(Retry),
    /// It failed, and so says the server. The model is told, and goes on without it. It is this instead of a retry if the
    /// server is configured with [`ToolErrorBehavior::Failed`](crate::ToolErrorBehavior::Failed).
    Failed(String),
    /// It was not allowed, for this reason. The model may be told; it must not try again.
    Denied(String),
}

impl ToolOutcome {
    /// A retry with this message.
    ///
    /// ```
    /// use belljar_client::ToolOutcome;
    ///
    /// let outcome = ToolOutcome::retry("no such city");
    /// assert_eq!(outcome.to_text(), "no such city");
    /// assert!(outcome.output().is_none());
    /// ```
    pub fn retry(message: impl Into<String>) -> Self {
        Self::Retry(Retry { message: message.into() })
    }

    /// The output, if there is one.
    ///
    /// ```
    /// # use belljar_client::{ToolOutcome, ToolOutput};
    /// assert!(ToolOutcome::Output(ToolOutput::Text("yes".into())).output().is_some());
    /// assert!(ToolOutcome::Denied("no".into()).output().is_none());
    /// ```
    pub fn output(&self) -> Option<&ToolOutput> {
        match self {
            Self::Output(output) => Some(output),
            Self::Retry(_) | Self::Failed(_) | Self::Denied(_) => None,
        }
    }

    /// What to tell a model that reads text.
    ///
    /// ```
    /// # use belljar_client::ToolOutcome;
    /// assert_eq!(ToolOutcome::Denied("not today".into()).to_text(), "not today");
    /// ```
    pub fn to_text(&self) -> String {
        match self {
            Self::Output(output) => output.to_text(),
            Self::Retry(retry) => retry.message.clone(),
            Self::Failed(message) => message.clone(),
            Self::Denied(reason) => reason.clone(),
        }
    }
}

/// Why a model should try again.
///
/// ```
/// # use belljar_client::{Retry, ToolOutcome};
/// let outcome = ToolOutcome::Retry(Retry { message: "no such city".into() });
/// assert_eq!(outcome, ToolOutcome::retry("no such city"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    /// What the server, or a hook, said.
    pub message: String,
}

/// Tools that an agent can use.
///
/// An [`McpServer`] is one. [`ToolsetExt`] makes others of it: prefixed, filtered, renamed, prepared, approved;
/// [`CombinedToolset`] puts several together. A program's own tools are one as well:
///
/// ```
/// use async_trait::async_trait;
/// use belljar_client::{McpError, RunContext, ToolDefinition, ToolOutcome, ToolOutput, Toolset};
/// use serde_json::{Map, Value, json};
///
/// struct Dice;
///
/// #[async_trait]
/// impl Toolset for Dice {
///     fn label(&self) -> String {
///         "dice".into()
///     }
///
///     async fn tools(&self, _run: &RunContext) -> Result<Vec<ToolDefinition>, McpError> {
///         Ok(vec![ToolDefinition::new("roll", json!({"type": "object"}))])
///     }
///
///     async fn call(&self, _run: &RunContext, _name: &str, _args: Map<String, Value>) -> Result<ToolOutcome, McpError> {
///         Ok(ToolOutcome::Output(ToolOutput::Json(json!(4))))
///     }
/// }
/// ```
#[async_trait]
pub trait Toolset: Send + Sync + 'static {
    /// How errors call it.
    fn label(&self) -> String;

    /// What to do when a tool's name is that of another toolset's tool.
    fn name_clash_hint(&self) -> String {
        "give one of them a prefix, with `.prefixed(…)`".to_owned()
    }

    /// The tools, in this run.
    ///
    /// # Errors
    ///
    /// Those of the connection.
    async fn tools(&self, run: &RunContext) -> Result<Vec<ToolDefinition>, McpError>;

    /// Calls a tool by the name that [`tools`](Self::tools) has it by.
    ///
    /// # Errors
    ///
    /// Those of the connection. A failed tool is no error but [`ToolOutcome::Retry`].
    async fn call(&self, run: &RunContext, name: &str, arguments: Map<String, Value>) -> Result<ToolOutcome, McpError>;

    /// What the model should be told about the tools' use, if anything.
    ///
    /// # Errors
    ///
    /// Those of the connection.
    async fn instructions(&self, _run: &RunContext) -> Result<Option<String>, McpError> {
        Ok(None)
    }

    /// Opens what the toolset needs and keeps it open until the guard is dropped. Toolsets work without; an agent does so
    /// for a run, lest each call connects anew.
    ///
    /// # Errors
    ///
    /// Those of the connection.
    async fn enter(&self) -> Result<Enter, McpError> {
        Ok(Enter::nothing())
    }
}

#[async_trait]
impl<T: Toolset + ?Sized> Toolset for Arc<T> {
    fn label(&self) -> String {
        (**self).label()
    }

    fn name_clash_hint(&self) -> String {
        (**self).name_clash_hint()
    }

    async fn tools(&self, run: &RunContext) -> Result<Vec<ToolDefinition>, McpError> {
        (**self).tools(run).await
    }

    async fn call(&self, run: &RunContext, name: &str, arguments: Map<String, Value>) -> Result<ToolOutcome, McpError> {
        (**self).call(run, name, arguments).await
    }

    async fn instructions(&self, run: &RunContext) -> Result<Option<String>, McpError> {
        (**self).instructions(run).await
    }

    async fn enter(&self) -> Result<Enter, McpError> {
        (**self).enter().await
    }
}

#[async_trait]
impl Toolset for McpServer {
    fn label(&self) -> String {
        Self::label(self)
    }

    fn name_clash_hint(&self) -> String {
        "set `tool_prefix` on one of the servers".to_owned()
    }

    async fn tools(&self, _run: &RunContext) -> Result<Vec<ToolDefinition>, McpError> {
        Ok(self.definitions().await?.to_vec())
    }

    async fn call(&self, run: &RunContext, name: &str, arguments: Map<String, Value>) -> Result<ToolOutcome, McpError> {
        self.call_in_run(run, name, arguments).await
    }

    async fn instructions(&self, _run: &RunContext) -> Result<Option<String>, McpError> {
        if self.includes_instructions() { self.server_instructions().await } else { Ok(None) }
    }

    async fn enter(&self) -> Result<Enter, McpError> {
        Ok(Enter::one(self.connect().await?))
    }
}

/// Ways to make one toolset of another.
///
/// ```
/// use belljar_client::{Approval, ApprovalRequest, McpServerStdio, RunContext, ToolsetExt};
///
/// let files = McpServerStdio::new("server-filesystem").arg("/tmp").build();
/// let careful = files
///     .filtered(|_run: &RunContext, tool| tool.name != "delete_file")
///     .renamed([("read_text_file", "read")])
///     .prefixed("files")
///     .approved(async |request: ApprovalRequest| {
///         if request.name.starts_with("files_write") { Approval::Deny("read only".into()) } else { Approval::Allow }
///     });
/// ```
pub trait ToolsetExt: Toolset + Sized {
    /// Names its tools `{prefix}_{name}`.
    fn prefixed(self, prefix: impl Into<String>) -> PrefixedToolset<Self> {
        PrefixedToolset::new(self, prefix.into())
    }

    /// Keeps the tools for which this says yes. The others cannot be called either.
    fn filtered<F>(self, keep: F) -> FilteredToolset<Self, F>
    where
        F: Fn(&RunContext, &ToolDefinition) -> bool + Send + Sync + 'static,
    {
        FilteredToolset::new(self, keep)
    }

    /// Gives tools other names: pairs of the old and the new one.
    fn renamed<O: Into<String>, N: Into<String>>(
        self,
        names: impl IntoIterator<Item = (O, N)>,
    ) -> RenamedToolset<Self> {
        RenamedToolset::new(self, names.into_iter().map(|(old, new)| (old.into(), new.into())).collect())
    }

    /// Changes the tools' definitions before a model sees them, run by run; to hide one leaves it callable.
    ///
    /// ```
    /// use belljar_client::{McpServerStdio, RunContext, ToolDefinition, ToolsetExt};
    ///
    /// let terse = McpServerStdio::new("server").build().prepared(|_run: &RunContext, mut tools: Vec<ToolDefinition>| {
    ///     tools.iter_mut().for_each(|tool| tool.description = None);
    ///     tools
    /// });
    /// ```
    fn prepared<F>(self, prepare: F) -> PreparedToolset<Self, F>
    where
        F: Fn(&RunContext, Vec<ToolDefinition>) -> Vec<ToolDefinition> + Send + Sync + 'static,
    {
        PreparedToolset::new(self, prepare)
    }

    /// Asks before every call. See [`ToolsetExt`] for an example.
    fn approved<A: Approve>(self, approve: A) -> ApprovedToolset<Self, A> {
        ApprovedToolset::new(self, approve)
    }
}

impl<T: Toolset> ToolsetExt for T {}

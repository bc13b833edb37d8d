//! Tools of the program: closures, and tools that the program carries out elsewhere.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{Deferral, DeferralKind, Retry, RetryReason, ToolDefinition, ToolList, ToolOutcome, Toolset};
use crate::error::McpError;
use crate::run_context::RunContext;

/// A closure behind a tool.
type Function =
    Arc<dyn Fn(RunContext, Map<String, Value>) -> BoxFuture<'static, Result<ToolOutcome, McpError>> + Send + Sync>;

/// Closures as tools.
///
/// ```
/// use belljar_mcp_client::{FunctionToolset, RunContext, ToolDefinition, Toolset};
/// use serde::Deserialize;
/// use serde_json::{Map, json};
///
/// #[derive(Deserialize)]
/// struct Add {
///     a: i64,
///     b: i64,
/// }
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let number = json!({"type": "integer"});
/// let schema = json!({"type": "object", "properties": {"a": number, "b": number}, "required": ["a", "b"]});
/// let tools = FunctionToolset::new("calculator")
///     .tool(ToolDefinition::new("add", schema), |_run: RunContext, Add { a, b }| async move { Ok(json!(a + b)) });
/// let arguments = Map::from_iter([("a".to_owned(), json!(2)), ("b".to_owned(), json!(3))]);
/// assert_eq!(tools.call(&RunContext::new(), "add", arguments).await.unwrap().to_text(), "5");
/// # });
/// ```
#[derive(Clone)]
pub struct FunctionToolset {
    label: String,
    instructions: Option<String>,
    tools: ToolList,
    functions: HashMap<String, Function>,
}

impl FunctionToolset {
    /// Creates a toolset without tools. The label appears in error messages.
    ///
    /// ```
    /// # use belljar_mcp_client::{FunctionToolset, Toolset};
    /// assert_eq!(FunctionToolset::new("calculator").label(), "calculator");
    /// ```
    pub fn new(label: impl Into<String>) -> Self {
        Self { label: label.into(), instructions: None, tools: ToolList::new(), functions: HashMap::new() }
    }

    /// Sets instructions for the model on the use of the tools.
    ///
    /// ```
    /// # use belljar_mcp_client::FunctionToolset;
    /// let tools = FunctionToolset::new("calculator").with_instructions("Calculate with the tools, not by yourself.");
    /// ```
    pub fn with_instructions(mut self, instructions: impl Into<String>) -> Self {
        self.instructions = Some(instructions.into());
        self
    }

    /// Adds a tool; it replaces one of the same name. The arguments are deserialised into the closure's second
    /// parameter, which may be a `Map<String, Value>`; arguments that do not fit are a retry. The closure returns
    /// anything that is a [`ToolOutcome`]: text, JSON, a [`ToolOutput`](crate::ToolOutput), or an outcome.
    ///
    /// ```
    /// use belljar_mcp_client::{FunctionToolset, RunContext, ToolDefinition, ToolOutcome};
    /// use serde_json::{Map, Value, json};
    ///
    /// let now = ToolDefinition::new("now", json!({"type": "object"})).with_description("Returns the time.");
    /// let tools = FunctionToolset::new("clock").tool(now, async |run: RunContext, _: Map<String, Value>| {
    ///     if run.retry > 0 { Ok(ToolOutcome::failed("the clock is broken")) } else { Ok("noon".into()) }
    /// });
    /// ```
    pub fn tool<Arguments, Outcome, Called>(
        mut self,
        definition: ToolDefinition,
        function: impl Fn(RunContext, Arguments) -> Called + Send + Sync + 'static,
    ) -> Self
    where
        Arguments: DeserializeOwned,
        Outcome: Into<ToolOutcome>,
        Called: Future<Output = Result<Outcome, McpError>> + Send + 'static,
    {
        let name = definition.name.clone();
        let function: Function =
            Arc::new(move |run, arguments| match serde_json::from_value(Value::Object(arguments)) {
                Ok(arguments) => function(run, arguments).map(|outcome| outcome.map(Into::into)).boxed(),
                Err(error) => {
                    let retry = Retry::new(format!("the arguments are invalid: {error}"));
                    let retry = retry.with_reason(RetryReason::InvalidArguments);
                    std::future::ready(Ok(ToolOutcome::Retry(retry))).boxed()
                }
            });
        let others = self.tools.iter().filter(|tool| tool.name != name).cloned();
        self.tools = others.chain([Arc::new(definition)]).collect();
        self.functions.insert(name, function);
        self
    }
}

#[async_trait]
impl Toolset for FunctionToolset {
    fn label(&self) -> String {
        self.label.clone()
    }

    async fn tools(&self, _run: &RunContext) -> Result<ToolList, McpError> {
        Ok(self.tools.clone())
    }

    async fn call(&self, run: &RunContext, name: &str, arguments: Map<String, Value>) -> Result<ToolOutcome, McpError> {
        match self.functions.get(name) {
            Some(function) => function(run.clone(), arguments).await,
            None => Ok(ToolOutcome::unknown_tool(name, self.tools.names())),
        }
    }

    async fn instructions(&self, _run: &RunContext) -> Result<Option<String>, McpError> {
        Ok(self.instructions.clone())
    }
}

impl std::fmt::Debug for FunctionToolset {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("FunctionToolset").field("label", &self.label).field("tools", &self.tools).finish()
    }
}

/// Tools that the program carries out elsewhere, such as in the browser of a user: each call is
/// [`ToolOutcome::Deferred`], and its result comes with [`DeferredAnswers`](crate::DeferredAnswers).
///
/// ```
/// use belljar_mcp_client::{ExternalToolset, RunContext, ToolDefinition, ToolOutcome, Toolset};
/// use serde_json::{Map, json};
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let browser = ExternalToolset::new("browser", [ToolDefinition::new("location", json!({"type": "object"}))]);
/// let outcome = browser.call(&RunContext::new(), "location", Map::new()).await.unwrap();
/// assert!(matches!(outcome, ToolOutcome::Deferred(_)));
/// # });
/// ```
#[derive(Debug, Clone)]
pub struct ExternalToolset {
    label: String,
    tools: ToolList,
}

impl ExternalToolset {
    /// Creates a toolset with these tools. The label appears in error messages.
    ///
    /// ```
    /// # use belljar_mcp_client::{ExternalToolset, ToolDefinition};
    /// let location = ToolDefinition::new("location", serde_json::json!({"type": "object"}));
    /// let browser = ExternalToolset::new("browser", [location]);
    /// ```
    pub fn new(label: impl Into<String>, tools: impl IntoIterator<Item = ToolDefinition>) -> Self {
        Self { label: label.into(), tools: tools.into_iter().collect() }
    }
}

#[async_trait]
impl Toolset for ExternalToolset {
    fn label(&self) -> String {
        self.label.clone()
    }

    async fn tools(&self, _run: &RunContext) -> Result<ToolList, McpError> {
        Ok(self.tools.clone())
    }

    async fn call(&self, _run: &RunContext, name: &str, _: Map<String, Value>) -> Result<ToolOutcome, McpError> {
        Ok(match self.tools.get(name) {
            Some(_) => ToolOutcome::Deferred(Deferral::new(DeferralKind::External)),
            None => ToolOutcome::unknown_tool(name, self.tools.names()),
        })
    }
}

//! Many tools behind three: search, description and call.

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use super::{Retry, RetryReason, ToolDefinition, ToolList, ToolOutcome, Toolset};
use crate::error::McpError;
use crate::run_context::RunContext;
use crate::search::ToolIndex;

const SEARCH: &str = "search_tools";
const DESCRIBE: &str = "describe_tool";
const CALL: &str = "call_tool";

/// The number of tools that a search returns, by default and at most.
const RESULTS: u64 = 5;
const MAX_RESULTS: u64 = 20;
/// The maximum number of bytes of a description in the results of a search.
const MAX_SUMMARY: usize = 300;

/// A toolset that shows a model only `search_tools`, `describe_tool` and `call_tool`, from
/// [`ToolsetExt::searchable`](super::ToolsetExt::searchable).
///
/// A model with hundreds of tools chooses badly and pays for all definitions at each step. With this toolset it
/// searches for the tools of its task and calls them by name.
///
/// ```
/// use belljar_mcp_client::{CombinedToolset, McpServerStdio, SearchToolset, ToolsetExt};
///
/// let servers = ["git", "mail"].map(|name| McpServerStdio::new(name).tool_prefix(name).build());
/// let tools: SearchToolset = CombinedToolset::from_iter(servers).searchable();
/// ```
#[derive(Clone)]
pub struct SearchToolset {
    inner: Arc<dyn Toolset>,
    is_visible: VisibilityFilter,
    index: Arc<Mutex<Option<Indexed>>>,
}

/// A condition on the tools to show as themselves.
type VisibilityFilter = Arc<dyn Fn(&ToolDefinition) -> bool + Send + Sync>;

/// The index of the last list, and the list that models see.
#[derive(Clone)]
struct Indexed {
    index: Arc<ToolIndex>,
    visible: ToolList,
}

impl SearchToolset {
    pub(super) fn new(inner: Arc<dyn Toolset>) -> Self {
        Self { inner, is_visible: Arc::new(|_| false), index: Arc::default() }
    }

    /// Shows some tools as themselves, in addition to the three.
    ///
    /// ```
    /// use belljar_mcp_client::{McpServerStdio, ToolsetExt};
    ///
    /// let tools = McpServerStdio::new("server").build().searchable().showing(|tool| tool.name == "read_file");
    /// ```
    pub fn showing(mut self, is_visible: impl Fn(&ToolDefinition) -> bool + Send + Sync + 'static) -> Self {
        self.is_visible = Arc::new(is_visible);
        self.index = Arc::default();
        self
    }

    /// Returns the index of the current tools, for use by the program itself.
    ///
    /// ```no_run
    /// use belljar_mcp_client::{McpError, RunContext, SearchToolset};
    ///
    /// # async fn run(tools: SearchToolset) -> Result<(), McpError> {
    /// let index = tools.index(&RunContext::new()).await?;
    /// for found in index.search("read a file", 5) {
    ///     println!("{}", found.tool.name);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the connection; [`McpError::NameClash`] if the toolset has a tool with the name of one of the three.
    pub async fn index(&self, run: &RunContext) -> Result<Arc<ToolIndex>, McpError> {
        Ok(self.indexed(run).await?.index)
    }

    async fn indexed(&self, run: &RunContext) -> Result<Indexed, McpError> {
        let tools = self.inner.tools(run).await?;
        if let Some(indexed) = self.index.lock().as_ref().filter(|indexed| indexed.index.tools().is_same(&tools)) {
            return Ok(indexed.clone());
        }
        if let Some(name) = [SEARCH, DESCRIBE, CALL].into_iter().find(|name| tools.get(name).is_some()) {
            let (first, second) = (self.inner.label(), "the search in tools".to_owned());
            return Err(McpError::NameClash {
                name: name.to_owned(),
                first,
                second,
                hint: self.inner.name_clash_hint(),
            });
        }
        let shown = tools.iter().filter(|tool| (self.is_visible)(tool)).cloned();
        let visible = definitions().into_iter().map(Arc::new).chain(shown).collect();
        let indexed = Indexed { index: Arc::new(ToolIndex::new(&tools)), visible };
        *self.index.lock() = Some(indexed.clone());
        Ok(indexed)
    }
}

/// Returns the definitions of the three tools.
fn definitions() -> [ToolDefinition; 3] {
    let text = |description: &str| json!({"type": "string", "description": description});
    let name = text("The name of the tool, as found by search_tools.");
    let schema = |properties: Value, required: &[&str]| json!({"type": "object", "properties": properties, "required": required});
    let limit = json!({"type": "integer", "minimum": 1, "maximum": MAX_RESULTS, "default": RESULTS});
    let arguments = json!({"type": "object", "description": "The arguments, according to describe_tool."});
    [
        ToolDefinition::new(SEARCH, schema(json!({"query": text("Words of the task."), "limit": limit}), &["query"]))
            .with_description("Finds tools for a task by words. Returns their names and summaries."),
        ToolDefinition::new(DESCRIBE, schema(json!({"name": name}), &["name"]))
            .with_description("Returns the description and the parameters of a tool. Use it before the first call."),
        ToolDefinition::new(CALL, schema(json!({"name": name, "arguments": arguments}), &["name", "arguments"]))
            .with_description("Calls a tool that search_tools found."),
    ]
}

fn invalid(message: String) -> ToolOutcome {
    ToolOutcome::Retry(Retry::new(message).with_reason(RetryReason::InvalidArguments))
}

/// Returns an argument that must be text.
fn text<'a>(arguments: &'a Map<String, Value>, name: &str) -> Result<&'a str, ToolOutcome> {
    let value = arguments.get(name).and_then(Value::as_str);
    value.ok_or_else(|| invalid(format!("the argument `{name}` must be a string")))
}

fn search(index: &ToolIndex, arguments: &Map<String, Value>) -> ToolOutcome {
    let query = match text(arguments, "query") {
        Ok(query) => query,
        Err(retry) => return retry,
    };
    let limit = arguments.get("limit").and_then(Value::as_u64).unwrap_or(RESULTS).clamp(1, MAX_RESULTS);
    let found = index.search(query, usize::try_from(limit).unwrap_or(1));
    if found.is_empty() {
        return ToolOutcome::text(format!(
            "No tool matches. Try other words; there are {} tools.",
            index.tools().len()
        ));
    }
    let summary = |tool: &ToolDefinition| {
        let description = tool.description.as_deref().unwrap_or_default();
        json!({"name": tool.name, "summary": crate::search::prefix(description, MAX_SUMMARY)})
    };
    ToolOutcome::json(found.iter().map(|found| summary(&found.tool)).collect::<Vec<_>>())
}

/// Returns the retry for a name that the model made up, with the names of tools that it may mean.
fn unknown(index: &ToolIndex, name: &str) -> ToolOutcome {
    let similar = index.search(name, 5);
    ToolOutcome::unknown_tool(name, similar.iter().map(|found| &*found.tool.name))
}

#[async_trait]
impl Toolset for SearchToolset {
    fn inner(&self) -> Option<&dyn Toolset> {
        Some(&*self.inner)
    }

    fn label(&self) -> String {
        self.inner.label()
    }

    async fn tools(&self, run: &RunContext) -> Result<ToolList, McpError> {
        Ok(self.indexed(run).await?.visible)
    }

    async fn call(&self, run: &RunContext, name: &str, arguments: Map<String, Value>) -> Result<ToolOutcome, McpError> {
        let Indexed { index, visible } = match self.indexed(run).await {
            Ok(indexed) => indexed,
            Err(error) => return error.into_outcome(),
        };
        match name {
            SEARCH => Ok(search(&index, &arguments)),
            DESCRIBE => Ok(match text(&arguments, "name") {
                Ok(tool) => index.describe(tool).map_or_else(|| unknown(&index, tool), ToolOutcome::json),
                Err(retry) => retry,
            }),
            CALL => {
                let tool = match text(&arguments, "name") {
                    Ok(tool) => tool,
                    Err(retry) => return Ok(retry),
                };
                let inner = match arguments.get("arguments") {
                    Some(Value::Object(inner)) => inner.clone(),
                    None | Some(Value::Null) => Map::new(),
                    Some(_) => return Ok(invalid("`arguments` must be an object".to_owned())),
                };
                if index.tools().get(tool).is_none() {
                    return Ok(unknown(&index, tool));
                }
                self.inner.call(run, tool, inner).await
            }
            shown if visible.get(shown).is_some() => self.inner.call(run, shown, arguments).await,
            // Models call a tool that they found by its own name, too.
            found if index.tools().get(found).is_some() => {
                Ok(ToolOutcome::retry(format!("call `{found}` with `{CALL}`")))
            }
            made_up => Ok(ToolOutcome::unknown_tool(made_up, visible.names())),
        }
    }

    async fn for_run(&self, run: &RunContext) -> Result<Option<Arc<dyn Toolset>>, McpError> {
        let inner = self.inner.for_run(run).await?;
        let with = |inner| Self { inner, is_visible: self.is_visible.clone(), index: Arc::default() };
        Ok(inner.map(|inner| Arc::new(with(inner)) as Arc<dyn Toolset>))
    }
}

impl std::fmt::Debug for SearchToolset {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("SearchToolset").field("inner", &self.inner.label()).finish_non_exhaustive()
    }
}

//! Results of a limited size, whose rest the model can read on.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use super::list::DerivedList;
use super::{Retry, RetryReason, ToolDefinition, ToolList, ToolOutcome, Toolset};
use crate::error::McpError;
use crate::output::ToolOutput;
use crate::run_context::RunContext;
use crate::search::prefix;

/// The tool that reads on.
const READ: &str = "read_result";
/// The maximum number of bytes of results that a run keeps. The oldest are forgotten.
const MAX_KEPT: usize = 64 * 1024 * 1024;

/// A toolset whose results have a limited size, from
/// [`ToolsetExt::with_result_budget`](super::ToolsetExt::with_result_budget).
///
/// ```
/// use belljar_mcp_client::{BudgetToolset, McpServerStdio, ToolsetExt};
///
/// let server = McpServerStdio::new("server").build();
/// let tools: BudgetToolset = server.with_result_budget(20_000);
/// ```
#[derive(Clone)]
pub struct BudgetToolset {
    inner: Arc<dyn Toolset>,
    /// The maximum number of bytes of the text of a result.
    budget: usize,
    stored: Arc<StoredResults>,
    list: DerivedList,
}

/// The results that were too large.
#[derive(Default)]
struct StoredResults(Mutex<VecDeque<(String, Arc<str>)>>);

impl StoredResults {
    /// Keeps a text and returns its ID, which cannot be guessed.
    fn add(&self, text: String) -> String {
        let id = format!("{:016x}", RandomState::new().build_hasher().finish());
        let mut stored = self.0.lock();
        stored.push_back((id.clone(), text.into()));
        let mut size: usize = stored.iter().map(|(_, text)| text.len()).sum();
        while size > MAX_KEPT
            && stored.len() > 1
            && let Some((_, oldest)) = stored.pop_front()
        {
            size -= oldest.len();
        }
        id
    }

    fn get(&self, id: &str) -> Option<Arc<str>> {
        self.0.lock().iter().find(|(stored, _)| stored == id).map(|(_, text)| text.clone())
    }
}

impl BudgetToolset {
    pub(super) fn new(inner: Arc<dyn Toolset>, budget: usize) -> Self {
        Self { inner, budget: budget.max(1), stored: Arc::default(), list: DerivedList::default() }
    }

    /// Returns a part of a text, and a note on how to read on.
    fn part(&self, id: &str, text: &str, offset: usize) -> String {
        let part = prefix(text.get(offset..).unwrap_or_default(), self.budget);
        // At least one character, so that reading on ends.
        let part = if part.is_empty() { first_char(text.get(offset..).unwrap_or_default()) } else { part };
        let end = offset + part.len();
        if end >= text.len() {
            return part.to_owned();
        }
        let rest = text.len() - end;
        format!("{part}\n[{rest} more bytes: call {READ} with {{\"id\": \"{id}\", \"offset\": {end}}}]")
    }

    /// Limits the text of an output. Binary parts stay; text and JSON become one text.
    fn limit(&self, output: ToolOutput) -> ToolOutput {
        let mut binaries = Vec::new();
        let mut texts = Vec::new();
        split(output, &mut texts, &mut binaries);
        let text = texts.join("\n");
        let id = self.stored.add(text.clone());
        let part = ToolOutput::Text(self.part(&id, &text, 0));
        if binaries.is_empty() {
            return part;
        }
        ToolOutput::List([part].into_iter().chain(binaries).collect())
    }

    /// Limits the message of a failure.
    fn shorten(&self, message: &mut String) {
        if message.len() > self.budget {
            let id = self.stored.add(message.clone());
            *message = self.part(&id, message, 0);
        }
    }

    fn read(&self, arguments: &Map<String, Value>) -> ToolOutcome {
        let invalid =
            |message: &str| ToolOutcome::Retry(Retry::new(message).with_reason(RetryReason::InvalidArguments));
        let Some(text) = arguments.get("id").and_then(Value::as_str).and_then(|id| self.stored.get(id)) else {
            return invalid("there is no such result, or it was forgotten: call the tool again");
        };
        let id = arguments.get("id").and_then(Value::as_str).unwrap_or_default();
        let offset = arguments.get("offset").and_then(Value::as_u64).unwrap_or(0);
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        if offset >= text.len() || !text.is_char_boundary(offset) {
            return invalid("the offset is not one that a note named");
        }
        ToolOutcome::text(self.part(id, &text, offset))
    }
}

fn first_char(text: &str) -> &str {
    let end = text.chars().next().map_or(0, char::len_utf8);
    text.get(..end).unwrap_or_default()
}

/// Returns the number of bytes of the text of an output.
fn text_size(output: &ToolOutput) -> usize {
    match output {
        ToolOutput::Text(text) => text.len(),
        ToolOutput::Json(value) => value.to_string().len(),
        ToolOutput::Binary(_) => 0,
        ToolOutput::List(parts) => parts.iter().map(text_size).sum(),
    }
}

/// Separates the text of an output from its binary parts.
fn split(output: ToolOutput, texts: &mut Vec<String>, binaries: &mut Vec<ToolOutput>) {
    match output {
        ToolOutput::Text(text) => texts.push(text),
        ToolOutput::Json(value) => texts.push(value.to_string()),
        binary @ ToolOutput::Binary(_) => binaries.push(binary),
        ToolOutput::List(parts) => parts.into_iter().for_each(|part| split(part, texts, binaries)),
    }
}

fn definition() -> ToolDefinition {
    let id = json!({"type": "string", "description": "The ID from the note at the end of the result."});
    let offset = json!({"type": "integer", "minimum": 0, "description": "The offset from the same note."});
    let schema = json!({"type": "object", "properties": {"id": id, "offset": offset}, "required": ["id", "offset"]});
    ToolDefinition::new(READ, schema).with_description("Reads on in a result that was too large to show at once.")
}

#[async_trait]
impl Toolset for BudgetToolset {
    fn inner(&self) -> Option<&dyn Toolset> {
        Some(&*self.inner)
    }

    fn label(&self) -> String {
        self.inner.label()
    }

    async fn tools(&self, run: &RunContext) -> Result<ToolList, McpError> {
        self.list.of(self.inner.tools(run).await?, |tools| {
            if tools.get(READ).is_some() {
                let (first, second) = (self.inner.label(), "the budget for results".to_owned());
                let hint = self.inner.name_clash_hint();
                return Err(McpError::NameClash { name: READ.to_owned(), first, second, hint });
            }
            Ok(tools.iter().cloned().chain([Arc::new(definition())]).collect())
        })
    }

    async fn call(&self, run: &RunContext, name: &str, arguments: Map<String, Value>) -> Result<ToolOutcome, McpError> {
        if name == READ {
            return Ok(self.read(&arguments));
        }
        let mut outcome = self.inner.call(run, name, arguments).await?;
        match &mut outcome {
            ToolOutcome::Output(result) if text_size(&result.output) > self.budget => {
                let output = std::mem::replace(&mut result.output, ToolOutput::List(Vec::new()));
                result.output = self.limit(output);
            }
            ToolOutcome::Retry(retry) => self.shorten(&mut retry.message),
            ToolOutcome::Failed(failure) => self.shorten(&mut failure.message),
            _ => {}
        }
        Ok(outcome)
    }

    /// Keeps the results of each run apart.
    async fn for_run(&self, run: &RunContext) -> Result<Option<Arc<dyn Toolset>>, McpError> {
        let inner = self.inner.for_run(run).await?.unwrap_or_else(|| self.inner.clone());
        Ok(Some(Arc::new(Self::new(inner, self.budget))))
    }
}

impl std::fmt::Debug for BudgetToolset {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = formatter.debug_struct("BudgetToolset");
        shown.field("inner", &self.inner.label()).field("budget", &self.budget).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toolset::{FunctionToolset, ToolsetExt};

    #[test]
    fn oldest_results_are_forgotten() {
        let stored = StoredResults::default();
        let first = stored.add("x".repeat(MAX_KEPT / 2));
        let second = stored.add("y".repeat(MAX_KEPT / 2));
        assert!(stored.get(&first).is_some() && stored.get(&second).is_some());
        let third = stored.add("z".to_owned());
        assert!(stored.get(&first).is_none() && stored.get(&second).is_some() && stored.get(&third).is_some());
    }

    #[tokio::test]
    async fn large_result_is_read_in_parts_to_its_end() {
        let long = "é".repeat(25);
        let result = ToolOutput::List(vec![ToolOutput::Text(long.clone()), ToolOutput::Json(json!({"a": 1}))]);
        let tools = FunctionToolset::new("t")
            .tool(ToolDefinition::new("long", json!({})), move |_: RunContext, _: Map<String, Value>| {
                std::future::ready(Ok(result.clone()))
            })
            .tool(ToolDefinition::new("fails", json!({})), |_: RunContext, _: Map<String, Value>| {
                std::future::ready(Ok(ToolOutcome::retry("a message of more than nine bytes")))
            });
        let tools = tools.with_result_budget(9);
        let run = RunContext::new();
        assert_eq!(tools.tools(&run).await.unwrap().names().collect::<Vec<_>>(), ["long", "fails", READ]);
        for (tool, expected) in
            [("long", format!("{long}\n{{\"a\":1}}")), ("fails", "a message of more than nine bytes".to_owned())]
        {
            let mut text = tools.call(&run, tool, Map::new()).await.unwrap().to_text();
            let mut whole = String::new();
            while let Some((part, note)) = text.clone().split_once("\n[") {
                whole.push_str(part);
                let arguments = &note[note.find('{').unwrap()..note.rfind('}').unwrap() + 1];
                let arguments = serde_json::from_str(arguments).unwrap();
                text = tools.call(&run, READ, arguments).await.unwrap().to_text();
            }
            assert_eq!(whole + &text, expected);
        }

        // Another run cannot read it.
        let id = tools.stored.0.lock()[0].0.clone();
        let arguments = Map::from_iter([("id".to_owned(), json!(id)), ("offset".to_owned(), json!(0))]);
        assert!(tools.call(&run, READ, arguments.clone()).await.unwrap().output().is_some());
        let other = tools.for_run(&run).await.unwrap().unwrap();
        assert!(other.call(&run, READ, arguments).await.unwrap().output().is_none());
    }
}

//! The resources of a server as tools.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Map, Value, json};

use super::{Retry, RetryReason, ToolDefinition, ToolList, ToolOutcome, Toolset, ToolsetGuard};
use crate::error::McpError;
use crate::run_context::RunContext;
use crate::search::prefix;
use crate::server::{CallOptions, McpServer};

/// The number of resources in one answer.
const PAGE: usize = 100;
/// The maximum number of bytes of a resource's description in the list.
const MAX_DESCRIPTION: usize = 300;

/// The tools `list_resources` and `read_resource` of a server, from
/// [`McpServer::resource_tools`](crate::McpServer::resource_tools). They have the prefix of the server's tools.
///
/// ```
/// use belljar_mcp_client::{CombinedToolset, McpServerStdio, ResourceToolset};
///
/// let server = McpServerStdio::new("server").tool_prefix("docs").build();
/// let resources: ResourceToolset = server.resource_tools();
/// let all = CombinedToolset::new().with(server).with(resources);
/// ```
#[derive(Debug, Clone)]
pub struct ResourceToolset {
    server: McpServer,
    tools: ToolList,
    list: String,
    read: String,
}

impl ResourceToolset {
    pub(crate) fn new(server: McpServer) -> Self {
        let name = |bare: &str| match server.tool_prefix() {
            Some(prefix) => format!("{prefix}_{bare}"),
            None => bare.to_owned(),
        };
        let (list, read) = (name("list_resources"), name("read_resource"));
        let offset = json!({"type": "integer", "minimum": 0, "default": 0});
        let uri = json!({"type": "string", "description": "The URI, from the list or after one of its templates."});
        let tools = [
            ToolDefinition::new(&list, json!({"type": "object", "properties": {"offset": offset}}))
                .with_description(format!("Lists the resources of {}: documents, files and records.", server.label())),
            ToolDefinition::new(&read, json!({"type": "object", "properties": {"uri": uri}, "required": ["uri"]}))
                .with_description(format!("Returns the contents of a resource of {}.", server.label())),
        ];
        let tools = tools.into_iter().map(|mut tool| {
            tool.annotations = Some(rmcp::model::ToolAnnotations::new().read_only(true));
            tool
        });
        Self { tools: tools.collect(), server, list, read }
    }

    async fn resources(&self, run: &RunContext, offset: usize) -> Result<ToolOutcome, McpError> {
        let server = self.server.for_run(run);
        let (resources, templates) =
            futures::future::try_join(server.list_resources(), server.list_resource_templates()).await?;
        let page: Vec<Value> = resources
            .iter()
            .skip(offset)
            .take(PAGE)
            .map(|resource| {
                let description = resource.description.as_deref().map(|text| prefix(text, MAX_DESCRIPTION));
                entry("uri", &resource.uri, &resource.name, description, resource.mime_type.as_deref())
            })
            .collect();
        let templates: Vec<Value> = templates
            .iter()
            .take(PAGE)
            .map(|template| {
                let description = template.description.as_deref().map(|text| prefix(text, MAX_DESCRIPTION));
                entry(
                    "uri_template",
                    &template.uri_template,
                    &template.name,
                    description,
                    template.mime_type.as_deref(),
                )
            })
            .collect();
        let next = offset.saturating_add(page.len());
        let mut answer = json!({"resources": page});
        if !templates.is_empty() {
            answer["templates"] = json!(templates);
        }
        if next < resources.len() {
            answer["next_offset"] = json!(next);
        }
        Ok(ToolOutcome::json(answer))
    }
}

fn entry(key: &str, uri: &str, name: &str, description: Option<&str>, media_type: Option<&str>) -> Value {
    let mut entry = Map::from_iter([(key.to_owned(), json!(uri)), ("name".to_owned(), json!(name))]);
    entry.extend(description.map(|text| ("description".to_owned(), json!(text))));
    entry.extend(media_type.map(|kind| ("media_type".to_owned(), json!(kind))));
    Value::Object(entry)
}

#[async_trait]
impl Toolset for ResourceToolset {
    fn label(&self) -> String {
        format!("the resources of {}", self.server.label())
    }

    fn name_clash_hint(&self) -> String {
        self.server.name_clash_hint()
    }

    async fn tools(&self, _run: &RunContext) -> Result<ToolList, McpError> {
        Ok(self.tools.clone())
    }

    async fn call(&self, run: &RunContext, name: &str, arguments: Map<String, Value>) -> Result<ToolOutcome, McpError> {
        let outcome = if name == self.list {
            let offset = arguments.get("offset").and_then(Value::as_u64).unwrap_or(0);
            self.resources(run, usize::try_from(offset).unwrap_or(usize::MAX)).await
        } else if name == self.read {
            match arguments.get("uri").and_then(Value::as_str) {
                Some(uri) => {
                    let options = CallOptions::from_run(run);
                    self.server.for_run(run).read_resource_with(uri, options).await.map(ToolOutcome::from)
                }
                None => Ok(ToolOutcome::Retry(
                    Retry::new("the argument `uri` must be a string").with_reason(RetryReason::InvalidArguments),
                )),
            }
        } else {
            Ok(ToolOutcome::unknown_tool(name, self.tools.names()))
        };
        outcome.or_else(McpError::into_outcome)
    }

    async fn enter(&self) -> Result<ToolsetGuard, McpError> {
        self.server.enter().await
    }

    async fn for_run(&self, run: &RunContext) -> Result<Option<Arc<dyn Toolset>>, McpError> {
        Ok(Some(Arc::new(Self { server: self.server.for_run(run), ..self.clone() })))
    }
}

//! What a server has: tools, resources, templates, prompts. Every page of it, kept until it changes.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use rmcp::model::{
    ClientRequest, ListPromptsRequest, ListResourceTemplatesRequest, ListResourcesRequest, ListToolsRequest,
    PaginatedRequestParams, Prompt as WirePrompt, Resource, ResourceTemplate, ServerResult, Tool,
};
use tokio::time::Instant;

use super::connection::{Connection, RequestOptions};
use super::session::{Cache, Kind, Session, Shown};
use super::{Audience, McpServer, is_visible_to};
use crate::error::McpError;
use crate::toolset::ToolDefinition;

/// Pages that one list may have, and entries. A server that gives more is broken, or means harm.
const MAX_PAGES: usize = 1_000;
const MAX_ENTRIES: usize = 100_000;

/// One page: its entries, where the next one starts, and for how long it is fresh, in milliseconds.
struct Page<T> {
    entries: Vec<T>,
    next: Option<String>,
    ttl: Option<u64>,
}

/// All pages, and until when they are fresh.
type Pages<T> = (Vec<T>, Option<Instant>);

macro_rules! page {
    ($method:literal, $request:ident, $result:ident, $entries:ident) => {
        |cursor: Option<String>| {
            let params = PaginatedRequestParams::default().with_cursor(cursor);
            let request = ClientRequest::$request($request::with_param(params));
            let read = |result: ServerResult| match result {
                ServerResult::$result(page) => {
                    Some(Page { entries: page.$entries, next: page.next_cursor, ttl: page.ttl_ms })
                }
                _ => None,
            };
            ($method, request, read)
        }
    };
}

/// Asks for every page of a list.
async fn all_pages<T, R>(
    connection: &Connection,
    silence: Duration,
    page: impl Fn(Option<String>) -> (&'static str, ClientRequest, R),
) -> Result<Pages<T>, McpError>
where
    R: FnOnce(ServerResult) -> Option<Page<T>>,
{
    let mut entries = Vec::new();
    let mut cursor = None;
    let mut ttl = None;
    for _ in 0..MAX_PAGES {
        let (method, request, read) = page(cursor.take());
        let options = RequestOptions { silence, ..Default::default() };
        let Some(page) = read(connection.request(request, options).await?) else {
            return Err(connection.unexpected(method));
        };
        entries.extend(page.entries);
        ttl = match (ttl, page.ttl) {
            (Some(shortest), Some(this)) => Some(std::cmp::min(shortest, this)),
            (shortest, this) => shortest.or(this),
        };
        // Some servers end with an empty cursor instead of none.
        cursor = page.next.filter(|next| !next.is_empty());
        if cursor.is_none() {
            let until = ttl.and_then(|ttl| Instant::now().checked_add(Duration::from_millis(ttl)));
            return Ok((entries, until));
        }
        if entries.len() > MAX_ENTRIES {
            break;
        }
    }
    Err(McpError::BadAnswer {
        server: connection.info().server_info.as_ref().map_or("the server", |info| &info.name).to_owned(),
        reason: format!("a list of it has more than {MAX_PAGES} pages or {MAX_ENTRIES} entries"),
    })
}

fn is_for_model(tool: &Tool) -> bool {
    tool.meta.as_ref().is_none_or(|meta| is_visible_to(&meta.0, Audience::Model))
}

impl McpServer {
    /// The server's tools, by their bare names.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_client::McpServer) -> Result<(), belljar_client::McpError> {
    /// for tool in server.list_tools().await? {
    ///     println!("{}: {:?}", tool.name, tool.annotations);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of the connection, and [`McpError::Protocol`].
    pub async fn list_tools(&self) -> Result<Vec<Tool>, McpError> {
        let session = self.session().await?;
        Ok(self.tools_in(&session).await?.to_vec())
    }

    pub(super) async fn tools_in(&self, session: &Session) -> Result<Arc<Vec<Tool>>, McpError> {
        let page = page!("tools/list", ListToolsRequest, ListToolsResult, tools);
        self.list(session, Kind::Tools, &session.caches.tools, page).await
    }

    /// A list: the one that is kept, or every page of a new one; an empty one where the server has no such capability.
    async fn list<T, R>(
        &self,
        session: &Session,
        kind: Kind,
        cache: &Cache<T>,
        page: impl Fn(Option<String>) -> (&'static str, ClientRequest, R),
    ) -> Result<Arc<Vec<T>>, McpError>
    where
        R: FnOnce(ServerResult) -> Option<Page<T>>,
    {
        // Counted before the server is asked: a change meanwhile makes the list an old one.
        let changes = session.changes(kind);
        let settings = &self.inner.settings;
        let is_kept = match kind {
            Kind::Tools => settings.cache_tools,
            Kind::Resources => settings.cache_resources,
            Kind::Prompts => settings.cache_prompts,
        };
        if let Some(list) = cache.get(changes).filter(|_| is_kept) {
            return Ok(list);
        }
        let connection = session.connection().await?;
        let capabilities = &connection.info().capabilities;
        let (is_there, tells) = match kind {
            Kind::Tools => (capabilities.tools.is_some(), capabilities.tools.as_ref().and_then(|it| it.list_changed)),
            Kind::Resources => {
                (capabilities.resources.is_some(), capabilities.resources.as_ref().and_then(|it| it.list_changed))
            }
            Kind::Prompts => {
                (capabilities.prompts.is_some(), capabilities.prompts.as_ref().and_then(|it| it.list_changed))
            }
        };
        if !is_there {
            return Ok(Arc::default());
        }
        let (list, until) = all_pages(&connection, settings.read_timeout, page).await?;
        // A server that tells of changes is believed; another of the modern era says for how long its list is fresh. One of
        // the legacy era says nothing, and its list is kept, as `pydantic_ai` does.
        let until = until.filter(|_| connection.is_modern() && tells != Some(true));
        let list = Arc::new(list);
        cache.set(changes, until, list.clone());
        Ok(list)
    }

    /// The tools as a model gets to know them: by their prefixed names, without those that are not for it.
    pub(crate) async fn definitions(&self) -> Result<Arc<Vec<ToolDefinition>>, McpError> {
        let session = self.session().await?;
        let tools = self.tools_in(&session).await?;
        let shown = || session.caches.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shown) = shown().as_ref().filter(|shown| Arc::ptr_eq(&shown.tools, &tools)) {
            return Ok(shown.definitions.clone());
        }
        let for_model = tools.iter().filter(|tool| self.is_enabled(&tool.name) && is_for_model(tool));
        let definitions: Arc<Vec<ToolDefinition>> = Arc::new(for_model.map(|tool| self.define(tool)).collect());
        *shown() = Some(Shown { tools, definitions: definitions.clone() });
        Ok(definitions)
    }

    /// Whether a model may call a tool of this name, as far as it is known from the list that models were shown.
    pub(super) fn is_callable(&self, session: &Session, name: &str) -> bool {
        let shown = session.caches.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let mut tools = shown.iter().flat_map(|shown| shown.tools.iter());
        self.is_enabled(name) && !tools.any(|tool| tool.name == name && !is_for_model(tool))
    }

    fn is_enabled(&self, name: &str) -> bool {
        let settings = &self.inner.settings;
        settings.enabled_tools.as_ref().is_none_or(|enabled| enabled.iter().any(|one| one == name))
            && !settings.disabled_tools.iter().any(|one| one == name)
    }

    fn define(&self, tool: &Tool) -> ToolDefinition {
        let settings = &self.inner.settings;
        let mut definition = ToolDefinition::from(tool);
        if let Some(prefix) = &settings.tool_prefix {
            definition.name = format!("{prefix}_{}", definition.name);
        }
        definition.max_retries = settings.max_retries;
        definition.include_return_schema = settings.include_return_schema;
        definition
    }

    /// The server's resources; none if it has no such capability.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_client::McpServer) -> Result<(), belljar_client::McpError> {
    /// for resource in server.list_resources().await? {
    ///     println!("{}: {}", resource.uri, resource.name);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of the connection, and [`McpError::Protocol`].
    pub async fn list_resources(&self) -> Result<Vec<Resource>, McpError> {
        let session = self.session().await?;
        let page = page!("resources/list", ListResourcesRequest, ListResourcesResult, resources);
        Ok(self.list(&session, Kind::Resources, &session.caches.resources, page).await?.to_vec())
    }

    /// Patterns of URIs that the server can read; none if it has no such capability.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_client::McpServer) -> Result<(), belljar_client::McpError> {
    /// for template in server.list_resource_templates().await? {
    ///     println!("{}", template.uri_template);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of the connection, and [`McpError::Protocol`].
    pub async fn list_resource_templates(&self) -> Result<Vec<ResourceTemplate>, McpError> {
        let session = self.session().await?;
        let page = page!(
            "resources/templates/list",
            ListResourceTemplatesRequest,
            ListResourceTemplatesResult,
            resource_templates
        );
        Ok(self.list(&session, Kind::Resources, &session.caches.templates, page).await?.to_vec())
    }

    /// The server's prompts; none if it has no such capability.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_client::McpServer) -> Result<(), belljar_client::McpError> {
    /// for prompt in server.list_prompts().await? {
    ///     println!("{}", prompt.name);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of the connection, and [`McpError::Protocol`].
    pub async fn list_prompts(&self) -> Result<Vec<WirePrompt>, McpError> {
        let session = self.session().await?;
        let page = page!("prompts/list", ListPromptsRequest, ListPromptsResult, prompts);
        Ok(self.list(&session, Kind::Prompts, &session.caches.prompts, page).await?.to_vec())
    }
}

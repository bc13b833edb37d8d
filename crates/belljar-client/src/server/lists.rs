//! Lists of a server's tools, resources, templates and prompts: pagination and caching.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    ClientRequest, ListPromptsRequest, ListResourceTemplatesRequest, ListResourcesRequest, ListToolsRequest,
    PaginatedRequestParams, Prompt as WirePrompt, Resource, ResourceTemplate, ServerResult, Tool,
};
use tokio::time::Instant;

use super::McpServer;
use super::cache::{Cache, ListKind, ToolListing};
use super::connection::Connection;
use super::options::RequestOptions;
use super::session::Session;
use super::shared_list::SharedList;
use crate::error::McpError;
use crate::toolset::definition::{Audience, is_visible_to};
use crate::toolset::{ToolDefinition, ToolList};

/// The maximum numbers of pages and entries of a list. A server that exceeds them is broken or malicious.
const MAX_PAGES: usize = 1_000;
const MAX_ENTRIES: usize = 100_000;

/// One page: its entries, the cursor of the next page, and its time to live in milliseconds.
struct Page<T> {
    entries: Vec<T>,
    next: Option<String>,
    ttl: Option<u64>,
}

/// The entries of all pages, and the time at which they expire.
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

/// Requests every page of a list.
async fn all_pages<T, R>(
    connection: &Connection,
    options: &RequestOptions,
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
        let Some(page) = read(connection.request(request, options.clone()).await?) else {
            return Err(connection.unexpected(method));
        };
        entries.extend(page.entries);
        if entries.len() > MAX_ENTRIES {
            break;
        }
        ttl = match (ttl, page.ttl) {
            (Some(shortest), Some(this)) => Some(std::cmp::min(shortest, this)),
            (shortest, this) => shortest.or(this),
        };
        // Some servers end a list with an empty cursor instead of omitting it.
        cursor = page.next.filter(|next| !next.is_empty());
        if cursor.is_none() {
            let until = ttl.and_then(|ttl| Instant::now().checked_add(Duration::from_millis(ttl)));
            return Ok((entries, until));
        }
    }
    Err(connection.invalid_response(format!("a list has more than {MAX_PAGES} pages or {MAX_ENTRIES} entries")))
}

fn is_for_model(tool: &Tool) -> bool {
    tool.meta.as_ref().is_none_or(|meta| is_visible_to(&meta.0, Audience::Model))
}

impl McpServer {
    /// Lists the server's tools by their bare names.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_mcp_client::McpServer) -> Result<(), belljar_mcp_client::McpError> {
    /// for tool in &server.list_tools().await? {
    ///     println!("{}: {:?}", tool.name, tool.annotations);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the connection, and [`McpError::Protocol`].
    pub async fn list_tools(&self) -> Result<SharedList<Tool>, McpError> {
        let session = self.session().await?;
        Ok(self.tools_in(&session).await?.into())
    }

    pub(super) async fn tools_in(&self, session: &Session) -> Result<Arc<Vec<Tool>>, McpError> {
        let page = page!("tools/list", ListToolsRequest, ListToolsResult, tools);
        self.list(session, ListKind::Tools, &session.caches.tools, page).await
    }

    /// Returns a list: from the cache, or every page from the server; empty if the server lacks the capability.
    async fn list<T, R>(
        &self,
        session: &Session,
        kind: ListKind,
        cache: &Cache<T>,
        page: impl Fn(Option<String>) -> (&'static str, ClientRequest, R),
    ) -> Result<Arc<Vec<T>>, McpError>
    where
        R: FnOnce(ServerResult) -> Option<Page<T>>,
    {
        let changes = session.changes(kind);
        let settings = &self.inner.settings;
        let is_cached = match kind {
            ListKind::Tools => settings.cache_tools,
            ListKind::Resources => settings.cache_resources,
            ListKind::Prompts => settings.cache_prompts,
        };
        if let Some(list) = cache.get(changes).filter(|_| is_cached) {
            return Ok(list);
        }
        let mut retries = session.retries();
        loop {
            match self.read_list(session, kind, cache, &page).await {
                Err(error) if retries.wait(&error).await => {}
                result => return result,
            }
        }
    }

    /// Reads every page of a list from the server.
    async fn read_list<T, R>(
        &self,
        session: &Session,
        kind: ListKind,
        cache: &Cache<T>,
        page: impl Fn(Option<String>) -> (&'static str, ClientRequest, R),
    ) -> Result<Arc<Vec<T>>, McpError>
    where
        R: FnOnce(ServerResult) -> Option<Page<T>>,
    {
        // Read before the request, so that a change during the request makes the list stale.
        let changes = session.changes(kind);
        let connection = session.connection().await?;
        let capabilities = &connection.info().capabilities;
        let (is_supported, announces_changes) = match kind {
            ListKind::Tools => (
                capabilities.tools.is_some(),
                capabilities.tools.as_ref().and_then(|capability| capability.list_changed),
            ),
            ListKind::Resources => (
                capabilities.resources.is_some(),
                capabilities.resources.as_ref().and_then(|capability| capability.list_changed),
            ),
            ListKind::Prompts => (
                capabilities.prompts.is_some(),
                capabilities.prompts.as_ref().and_then(|capability| capability.list_changed),
            ),
        };
        if !is_supported {
            return Ok(Arc::default());
        }
        let (list, until) = all_pages(&connection, &self.plain_options(), page).await?;
        // The list of a server that announces changes stays valid until a change. On the modern era other lists expire
        // after their time to live. On the legacy era a list stays valid, as in `pydantic_ai`.
        let until = until.filter(|_| connection.is_modern() && announces_changes != Some(true));
        let list = Arc::new(list);
        cache.set(changes, until, list.clone());
        Ok(list)
    }

    /// Returns the tools as presented to a model: with prefixed names, without those that are hidden from models.
    pub(crate) async fn definitions(&self) -> Result<ToolList, McpError> {
        let session = self.session().await?;
        let tools = self.tools_in(&session).await?;
        let listing = || session.caches.listing.lock();
        if let Some(listing) = listing().as_ref().filter(|listing| Arc::ptr_eq(&listing.tools, &tools)) {
            return Ok(listing.definitions.clone());
        }
        let for_model = tools.iter().filter(|tool| self.is_enabled(&tool.name) && is_for_model(tool));
        let definitions: ToolList = for_model.map(|tool| self.define(tool)).collect();
        *listing() = Some(ToolListing { tools, definitions: definitions.clone() });
        Ok(definitions)
    }

    /// Returns whether a model may call a tool of this name, according to the list that was last shown to models.
    pub(super) fn is_callable(&self, session: &Session, name: &str) -> bool {
        let listing = session.caches.listing.lock();
        let mut tools = listing.iter().flat_map(|listing| listing.tools.iter());
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

    /// Lists the server's resources; empty if the server lacks the capability.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_mcp_client::McpServer) -> Result<(), belljar_mcp_client::McpError> {
    /// for resource in &server.list_resources().await? {
    ///     println!("{}: {}", resource.uri, resource.name);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the connection, and [`McpError::Protocol`].
    pub async fn list_resources(&self) -> Result<SharedList<Resource>, McpError> {
        let session = self.session().await?;
        let page = page!("resources/list", ListResourcesRequest, ListResourcesResult, resources);
        Ok(self.list(&session, ListKind::Resources, &session.caches.resources, page).await?.into())
    }

    /// Lists the URI templates of resources that the server can read; empty if the server lacks the capability.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_mcp_client::McpServer) -> Result<(), belljar_mcp_client::McpError> {
    /// for template in &server.list_resource_templates().await? {
    ///     println!("{}", template.uri_template);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the connection, and [`McpError::Protocol`].
    pub async fn list_resource_templates(&self) -> Result<SharedList<ResourceTemplate>, McpError> {
        let session = self.session().await?;
        let page = page!(
            "resources/templates/list",
            ListResourceTemplatesRequest,
            ListResourceTemplatesResult,
            resource_templates
        );
        Ok(self.list(&session, ListKind::Resources, &session.caches.templates, page).await?.into())
    }

    /// Lists the server's prompts; empty if the server lacks the capability.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_mcp_client::McpServer) -> Result<(), belljar_mcp_client::McpError> {
    /// for prompt in &server.list_prompts().await? {
    ///     println!("{}", prompt.name);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Errors of the connection, and [`McpError::Protocol`].
    pub async fn list_prompts(&self) -> Result<SharedList<WirePrompt>, McpError> {
        let session = self.session().await?;
        let page = page!("prompts/list", ListPromptsRequest, ListPromptsResult, prompts);
        Ok(self.list(&session, ListKind::Prompts, &session.caches.prompts, page).await?.into())
    }
}

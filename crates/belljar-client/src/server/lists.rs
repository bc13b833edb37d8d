//! What a server has: tools, resources, templates, prompts. Every page of it, kept until it changes.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    ClientRequest, ListPromptsRequest, ListResourceTemplatesRequest, ListResourcesRequest, ListToolsRequest,
    PaginatedRequestParams, Prompt as WirePrompt, Resource, ResourceTemplate, ServerResult, Tool,
};
use tokio::time::Instant;

use super::McpServer;
use super::connection::{Connection, RequestOptions};
use super::session::{Kind, Session};
use crate::error::McpError;

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

    pub(super) async fn tools_in(&self, session: &Arc<Session>) -> Result<Arc<Vec<Tool>>, McpError> {
        let changes = session.changes(Kind::Tools);
        let settings = &self.inner.settings;
        if let Some(tools) = session.caches.tools.get(changes).filter(|_| settings.cache_tools) {
            return Ok(tools);
        }
        let connection = session.connection().await?;
        if connection.info().capabilities.tools.is_none() {
            return Ok(Arc::default());
        }
        let page = page!("tools/list", ListToolsRequest, ListToolsResult, tools);
        let (tools, until) = all_pages(&connection, settings.read_timeout, page).await?;
        let tools = Arc::new(tools);
        session.caches.tools.set(changes, self.fresh_until(&connection, Kind::Tools, until), tools.clone());
        Ok(tools)
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
        let changes = session.changes(Kind::Resources);
        let settings = &self.inner.settings;
        if let Some(resources) = session.caches.resources.get(changes).filter(|_| settings.cache_resources) {
            return Ok(resources.to_vec());
        }
        let connection = session.connection().await?;
        if connection.info().capabilities.resources.is_none() {
            return Ok(Vec::new());
        }
        let page = page!("resources/list", ListResourcesRequest, ListResourcesResult, resources);
        let (resources, until) = all_pages(&connection, settings.read_timeout, page).await?;
        let until = self.fresh_until(&connection, Kind::Resources, until);
        session.caches.resources.set(changes, until, Arc::new(resources.clone()));
        Ok(resources)
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
        let changes = session.changes(Kind::Resources);
        let settings = &self.inner.settings;
        if let Some(templates) = session.caches.templates.get(changes).filter(|_| settings.cache_resources) {
            return Ok(templates.to_vec());
        }
        let connection = session.connection().await?;
        if connection.info().capabilities.resources.is_none() {
            return Ok(Vec::new());
        }
        let page = page!(
            "resources/templates/list",
            ListResourceTemplatesRequest,
            ListResourceTemplatesResult,
            resource_templates
        );
        let (templates, until) = all_pages(&connection, settings.read_timeout, page).await?;
        let until = self.fresh_until(&connection, Kind::Resources, until);
        session.caches.templates.set(changes, until, Arc::new(templates.clone()));
        Ok(templates)
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
        let changes = session.changes(Kind::Prompts);
        let settings = &self.inner.settings;
        if let Some(prompts) = session.caches.prompts.get(changes).filter(|_| settings.cache_prompts) {
            return Ok(prompts.to_vec());
        }
        let connection = session.connection().await?;
        if connection.info().capabilities.prompts.is_none() {
            return Ok(Vec::new());
        }
        let page = page!("prompts/list", ListPromptsRequest, ListPromptsResult, prompts);
        let (prompts, until) = all_pages(&connection, settings.read_timeout, page).await?;
        let until = self.fresh_until(&connection, Kind::Prompts, until);
        session.caches.prompts.set(changes, until, Arc::new(prompts.clone()));
        Ok(prompts)
    }

    /// How long a list is kept. A server that tells of changes is believed; another of the modern era says for how long its
    /// list is fresh. One of the legacy era says nothing, and its list is kept, as `pydantic_ai` does.
    fn fresh_until(&self, connection: &Connection, kind: Kind, until: Option<Instant>) -> Option<Instant> {
        let capabilities = &connection.info().capabilities;
        let tells = match kind {
            Kind::Tools => capabilities.tools.as_ref().and_then(|tools| tools.list_changed),
            Kind::Resources => capabilities.resources.as_ref().and_then(|resources| resources.list_changed),
            Kind::Prompts => capabilities.prompts.as_ref().and_then(|prompts| prompts.list_changed),
        };
        until.filter(|_| connection.is_modern() && tells != Some(true))
    }
}

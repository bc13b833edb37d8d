//! Panels for results of code in clients with MCP Apps: the extension `io.modelcontextprotocol/ui`, SEP-1865, in its
//! stable version 2026-01-26 (`specification/2026-01-26/apps.mdx` of the repository `modelcontextprotocol/ext-apps`).
//!
//! ```text
//!  tools/list ─▶ _meta.ui.resourceUri: ui://belljar/cell
//!  resources/read ui://belljar/cell ─▶ document: one page, made of the console's components
//!  tools/call ─▶ result, with the outputs for the panel in its _meta ─▶ client ─postMessage─▶ page
//! ```
//!
//! | file | subject |
//! | --- | --- |
//! | `document` | the page: the modules of the console in one script, and its policy |
//! | `questions` | the questions of a paused run there |
//! | `result` | the outputs of code in the `_meta` of a result |
//!
//! All of this is for clients that declare the extension, in `initialize` or, in the modern era, in each request. For
//! others, nothing changes.
//!
//! A panel shows, reads files, and passes on what the user decides about calls that a paused run waits for: see
//! `session_tools/panel_answers.rs`. It can call no other tool.

mod document;
mod questions;
mod result;

use rmcp::RoleServer;
use rmcp::model::{ClientCapabilities, JsonObject, MetaObject, Resource, ResourceContents, ServerCapabilities, Tool};
use rmcp::service::RequestContext;
use serde_json::{Value, json};

use crate::session_tools::shows_code;

pub(crate) use questions::{PanelQuestion, PanelQuestions};
pub(crate) use result::{Panel, attach, withhold};

/// The extension's identifier.
const EXTENSION: &str = "io.modelcontextprotocol/ui";
/// The MIME type of panels.
const MIME_TYPE: &str = "text/html;profile=mcp-app";
/// The address of the panel.
pub(crate) const URI: &str = "ui://belljar/cell";

/// Returns whether the client of a request shows panels.
pub(crate) fn shows_panels(context: &RequestContext<RoleServer>) -> bool {
    context.client_capabilities().is_some_and(|capabilities| declares(&capabilities))
}

/// Returns the result of a run for the client of a request, which may be another one than the run has begun with.
pub(crate) fn for_client(result: &Value, context: &RequestContext<RoleServer>) -> Value {
    let mut result = result.clone();
    if let Value::Object(fields) = &mut result
        && !shows_panels(context)
    {
        withhold(fields);
    }
    result
}

/// Returns whether a client declares the extension with the MIME type of panels.
pub(crate) fn declares(capabilities: &ClientCapabilities) -> bool {
    let settings = capabilities.extensions.as_ref().and_then(|extensions| extensions.get(EXTENSION));
    let types = settings.and_then(|settings| settings.get("mimeTypes")).and_then(Value::as_array);
    types.is_some_and(|types| types.iter().any(|mime| mime == MIME_TYPE))
}

/// Adds to a server's capabilities what panels take: the extension, and resources, which is where the page is.
pub(crate) fn declare(capabilities: &mut ServerCapabilities) {
    capabilities.extensions.get_or_insert_default().insert(EXTENSION.to_owned(), JsonObject::new());
    capabilities.resources.get_or_insert_default();
}

/// Links the tools whose results are of code to the panel, which can call none of them, and adds the one that it can
/// call.
pub(crate) fn link_tools(tools: &mut Vec<Tool>, panel_tool: Option<Tool>) {
    for tool in tools.iter_mut() {
        let mut settings = json!({ "visibility": ["model"] });
        if shows_code(&tool.name) {
            settings["resourceUri"] = URI.into();
        }
        tool.meta.get_or_insert_default().insert("ui".to_owned(), settings);
    }
    if let Some(mut tool) = panel_tool {
        tool.meta.get_or_insert_default().insert("ui".to_owned(), json!({ "visibility": ["app"] }));
        tools.push(tool);
    }
}

/// Returns the panel as an entry of a list of resources.
pub(crate) fn resource() -> Resource {
    Resource::new(URI, "belljar_cell")
        .with_title("Result of code")
        .with_description("Shows output, figures, tables, files and errors of code.")
        .with_mime_type(MIME_TYPE)
        .with_meta(settings())
}

/// Returns the page.
pub(crate) fn contents() -> ResourceContents {
    ResourceContents::text(document::page(), URI).with_mime_type(MIME_TYPE).with_meta(settings())
}

/// Returns the settings of the page: no origins, no permissions.
fn settings() -> MetaObject {
    let csp = json!({ "connectDomains": [], "resourceDomains": [], "frameDomains": [], "baseUriDomains": [] });
    let settings = json!({ "csp": csp, "permissions": {}, "prefersBorder": true });
    MetaObject(JsonObject::from_iter([("ui".to_owned(), settings)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(settings: &Value) -> ClientCapabilities {
        serde_json::from_value(json!({ "extensions": { EXTENSION: settings } })).unwrap()
    }

    #[test]
    fn clients_declare_the_type_of_panels() {
        assert!(declares(&client(&json!({ "mimeTypes": ["text/plain", MIME_TYPE] }))));
        for other in [json!({}), json!({ "mimeTypes": ["text/html"] }), json!({ "mimeTypes": MIME_TYPE })] {
            assert!(!declares(&client(&other)), "{other}");
        }
        assert!(!declares(&ClientCapabilities::default()));
    }
}

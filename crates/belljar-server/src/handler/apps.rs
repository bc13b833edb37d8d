//! Panels in the answers to clients that show them: see `apps`.

use rmcp::RoleServer;
use rmcp::model::{ErrorData, ListResourcesResult, ReadResourceResult};
use rmcp::service::RequestContext;

use super::Server;
use crate::apps;
use crate::arrival::turn_of;

impl Server {
    /// Returns the resources: files of sessions, and the panel.
    pub(super) async fn listed_resources(
        &self,
        context: &RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        if !apps::shows_panels(context) {
            return Ok(self.sessions()?.list_resources().await);
        }
        let mut listed = match &self.session_tools {
            Some(tools) => tools.list_resources().await,
            None => ListResourcesResult::default(),
        };
        listed.resources.insert(0, apps::resource());
        Ok(listed)
    }

    /// Returns a resource that belongs to no session, or a file.
    pub(super) async fn found_resource(
        &self,
        uri: &str,
        context: &RequestContext<RoleServer>,
    ) -> Result<ReadResourceResult, ErrorData> {
        if uri == apps::URI && apps::shows_panels(context) {
            return Ok(ReadResourceResult::new(vec![apps::contents()]));
        }
        self.sessions()?.read_resource(uri, turn_of(context)).await
    }
}

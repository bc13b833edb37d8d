//! Files as resources: `kernel://{session_id}/{filename}`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_sessions::{FileAddress, is_text, mime_of};
use rmcp::model::{
    ErrorData, ListResourceTemplatesResult, ListResourcesResult, ReadResourceResult, Resource, ResourceContents,
    ResourceTemplate,
};

use super::SessionTools;
use crate::arrival::{SessionTurn, in_turn};

/// The maximum number of resources in a list.
const MAX_LISTED: usize = 5000;

impl SessionTools {
    /// Returns the files of the sessions that this client uses.
    pub(crate) async fn list_resources(&self) -> ListResourcesResult {
        let sessions: Vec<_> = self.visible_sessions.lock().iter().cloned().collect();
        let mut resources = Vec::new();
        for id in sessions {
            match self.sessions.list(&id).await {
                Ok(files) => resources.extend(files.into_iter().map(|file| {
                    let resource = Resource::new(FileAddress::format(&id, &file.path), file.path.clone());
                    resource.with_mime_type(mime_of(&file.path)).with_size(file.size)
                })),
                // The session has expired, or another process uses it.
                Err(_) => {
                    self.visible_sessions.lock().remove(&id);
                }
            }
        }
        resources.truncate(MAX_LISTED);
        ListResourcesResult::with_all_items(resources)
    }

    pub(crate) fn list_templates(&self) -> ListResourceTemplatesResult {
        let file = ResourceTemplate::new("kernel://{session_id}/{+filename}", "session-file")
            .with_title("A file of a session")
            .with_description("A file that code wrote or that was uploaded. The name includes folders.");
        let part = ResourceTemplate::new("kernel://{session_id}/{+filename}{?offset,length}", "session-file-part")
            .with_title("Part of a file of a session")
            .with_description("`length` bytes from `offset`, for files that are too long to be read at once.");
        ListResourceTemplatesResult::with_all_items(vec![file, part])
    }

    pub(crate) async fn read_resource(
        &self,
        uri: &str,
        turn: Option<SessionTurn>,
    ) -> Result<ReadResourceResult, ErrorData> {
        let missing = |error: &dyn std::fmt::Display| ErrorData::resource_not_found(error.to_string(), None);
        let address = FileAddress::parse(uri).map_err(|error| missing(&error))?;
        let mime = mime_of(&address.path);
        let read = in_turn(turn, || self.sessions.read(address)).await;
        let bytes = read.await.map_err(|error| missing(&error))?;
        let contents = match String::from_utf8(bytes) {
            Ok(text) if is_text(&mime, text.as_bytes()) => ResourceContents::text(text, uri),
            Ok(text) => ResourceContents::blob(STANDARD.encode(text), uri),
            Err(error) => ResourceContents::blob(STANDARD.encode(error.as_bytes()), uri),
        };
        Ok(ReadResourceResult::new(vec![contents.with_mime_type(mime)]))
    }
}

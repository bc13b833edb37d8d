//! The parts of a server's result by their audience.

use rmcp::model::{Annotations, ContentBlock, Role as WireRole};
use serde_json::{Map, Value};

use super::ToolResult;
use crate::handlers::Role;
use crate::output::{self, ToolOutput};

impl ToolResult {
    /// Returns the parts of the server's result for an audience: those that are annotated with it, and those without an
    /// audience. Empty if the result is not a server's.
    ///
    /// ```
    /// use belljar_mcp_client::protocol::ContentBlock;
    /// use belljar_mcp_client::{Role, ToolResult};
    ///
    /// fn show(result: &ToolResult) {
    ///     for part in result.content_for(Role::User) {
    ///         match part {
    ///             ContentBlock::Image(image) => println!("an image of the type {}", image.mime_type),
    ///             other => println!("{other:?}"),
    ///         }
    ///     }
    /// }
    /// ```
    pub fn content_for(&self, audience: Role) -> impl Iterator<Item = &ContentBlock> {
        let parts = self.raw.iter().flat_map(|raw| &raw.content);
        parts.filter(move |part| is_for(part, audience))
    }

    /// Returns the output for an audience. It is [`output`](Self::output) unless the server has annotated a part with
    /// another audience; then it consists of the parts for this one, with links as URIs.
    ///
    /// The output for a model contains all parts, as in pydantic-ai: a program that honours audiences sends
    /// `output_for(Role::Assistant)` to the model and shows `output_for(Role::User)` to the user.
    ///
    /// ```
    /// use belljar_mcp_client::{Role, ToolOutcome};
    ///
    /// let ToolOutcome::Output(result) = ToolOutcome::text("done") else { unreachable!() };
    /// assert_eq!(result.output_for(Role::User), result.output);
    /// ```
    pub fn output_for(&self, audience: Role) -> ToolOutput {
        let parts = self.raw.iter().flat_map(|raw| &raw.content);
        if parts.clone().all(|part| is_for(part, audience)) {
            return self.output.clone();
        }
        let parts = parts.filter(|part| is_for(part, audience));
        output::unwrap_single(parts.filter_map(|part| output::from_content(part).ok()).collect())
    }

    /// Returns the structured content of the server's result, also if the output consists of its parts.
    ///
    /// ```
    /// # use belljar_mcp_client::ToolOutcome;
    /// # let ToolOutcome::Output(result) = ToolOutcome::text("done") else { unreachable!() };
    /// assert_eq!(result.structured_content(), None); // no server sent this
    /// ```
    pub fn structured_content(&self) -> Option<&Value> {
        self.raw.as_ref()?.structured_content.as_ref()
    }

    /// Returns the `_meta` of the server's result.
    ///
    /// ```
    /// # use belljar_mcp_client::ToolOutcome;
    /// # let ToolOutcome::Output(result) = ToolOutcome::text("done") else { unreachable!() };
    /// assert_eq!(result.metadata(), None); // no server sent this
    /// ```
    pub fn metadata(&self) -> Option<&Map<String, Value>> {
        self.raw.as_ref()?.meta.as_ref().map(|meta| &meta.0)
    }
}

fn annotations(part: &ContentBlock) -> Option<&Annotations> {
    match part {
        ContentBlock::Text(text) => text.annotations.as_ref(),
        ContentBlock::Image(image) => image.annotations.as_ref(),
        ContentBlock::Audio(audio) => audio.annotations.as_ref(),
        ContentBlock::Resource(embedded) => embedded.annotations.as_ref(),
        ContentBlock::ResourceLink(link) => link.annotations.as_ref(),
        _ => None,
    }
}

fn is_for(part: &ContentBlock, audience: Role) -> bool {
    let audience = match audience {
        Role::User => WireRole::User,
        Role::Assistant => WireRole::Assistant,
    };
    match annotations(part).and_then(|annotations| annotations.audience.as_ref()) {
        Some(audiences) => audiences.contains(&audience),
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Arc;

    fn result(content: Value) -> ToolResult {
        let raw = serde_json::from_value(json!({"content": content, "structuredContent": {"a": 1}})).unwrap();
        ToolResult { output: ToolOutput::Json(json!({"a": 1})), raw: Some(Arc::new(raw)) }
    }

    #[test]
    fn parts_are_selected_by_their_audience() {
        let result = result(json!([
            {"type": "text", "text": "[1]", "annotations": {"audience": ["assistant"]}},
            {"type": "text", "text": "shown", "annotations": {"audience": ["user", "assistant"]}},
            {"type": "resource_link", "uri": "mem://x", "name": "x", "annotations": {"audience": ["user"]}},
            {"type": "text", "text": "for all", "annotations": {"priority": 1.0}},
        ]));
        let text = |text: &str| ToolOutput::Text(text.to_owned());
        let for_model = vec![ToolOutput::Json(json!([1])), text("shown"), text("for all")];
        assert_eq!(result.output_for(Role::Assistant), ToolOutput::List(for_model));
        let for_user = vec![text("shown"), text("mem://x"), text("for all")];
        assert_eq!(result.output_for(Role::User), ToolOutput::List(for_user));
        assert_eq!(result.content_for(Role::User).count(), 3);
        assert_eq!(result.structured_content(), Some(&json!({"a": 1})));
    }

    #[test]
    fn output_without_other_audiences_is_unchanged() {
        let result = result(json!([{"type": "text", "text": "x", "annotations": {"audience": ["user"]}}]));
        assert_eq!(result.output_for(Role::User), result.output);
        assert_eq!(result.output_for(Role::Assistant), ToolOutput::List(Vec::new()));
    }
}

//! Lists and their caches, prompts and resources, with a server in this process that counts the requests for lists.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use belljar_mcp_client::protocol::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, GetPromptRequestParams, GetPromptResponse,
    GetPromptResult, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, Prompt, PromptMessage, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult,
    Resource, ResourceContents, ResourceTemplate, Role as WireRole, ServerCapabilities, ServerConfig, Tool,
};
use belljar_mcp_client::{
    CustomTransport, LogLevel, McpServer, PromptContent, ProtocolEra, Role, RunContext, ServerBuilder, SharedList,
    ToolOutcome, ToolOutput, Toolset,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use serde_json::{Map, json};

use crate::harness::{START_TIMEOUT, output};

/// A server that counts the requests for its lists.
#[derive(Clone, Default)]
struct Counting {
    lists: Arc<Mutex<BTreeMap<&'static str, usize>>>,
    /// True to declare no capability.
    is_silent: bool,
    /// The milliseconds for which the list of tools is valid, of a server that announces no changes.
    ttl: Option<u64>,
}

impl Counting {
    fn count(&self, list: &'static str) -> usize {
        let mut lists = self.lists.lock().unwrap();
        let count = lists.entry(list).or_default();
        *count += 1;
        *count
    }

    fn counts(&self) -> Vec<usize> {
        let lists = self.lists.lock().unwrap();
        ["tools", "resources", "templates", "prompts"].map(|list| lists.get(list).copied().unwrap_or(0)).into()
    }

    fn server(&self) -> ServerBuilder<CustomTransport> {
        let own = self.clone();
        McpServer::in_process("counting", move |stream| {
            let own = own.clone();
            async move {
                if let Ok(running) = own.serve(stream).await {
                    let _ = running.waiting().await;
                }
            }
        })
    }
}

impl ServerHandler for Counting {
    fn get_info(&self) -> ServerConfig {
        if self.is_silent {
            return ServerConfig::new(ServerCapabilities::default());
        }
        if self.ttl.is_some() {
            return ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
        }
        let all = ServerCapabilities::builder().enable_tools().enable_resources().enable_prompts();
        let all = all.enable_tool_list_changed().enable_resources_list_changed().enable_prompts_list_changed();
        ServerConfig::new(all.build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        self.count("tools");
        let schema = json!({"type": "object"}).as_object().unwrap().clone();
        let tools = vec![Tool::new("change", "Announces changes of all lists.", schema)];
        let list = ListToolsResult::with_all_items(tools);
        Ok(match self.ttl {
            Some(ttl) => list.with_ttl_ms(ttl),
            None => list,
        })
    }

    async fn call_tool(
        &self,
        _: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if !self.is_silent {
            context.peer.notify_tool_list_changed().await.unwrap();
            context.peer.notify_resource_list_changed().await.unwrap();
            context.peer.notify_prompt_list_changed().await.unwrap();
        }
        Ok(CallToolResult::success(vec![ContentBlock::text("changed")]).into())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let number = self.count("resources");
        Ok(ListResourcesResult::with_all_items(vec![Resource::new(format!("mem://{number}"), "a number")]))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        self.count("templates");
        Ok(ListResourceTemplatesResult::with_all_items(vec![ResourceTemplate::new("mem://{number}", "a number")]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let text = ResourceContents::text("one", request.uri.as_str());
        let blob = ResourceContents::blob("AQID", request.uri.as_str());
        Ok(ReadResourceResult::new(vec![text, blob]).into())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let number = self.count("prompts");
        Ok(ListPromptsResult::with_all_items(vec![Prompt::new(format!("prompt{number}"), None::<String>, None)]))
    }

    async fn get_prompt(
        &self,
        _: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let link = Resource::new("https://example.org/x", "a page");
        Ok(GetPromptResult::new(vec![
            PromptMessage::new(WireRole::User, ContentBlock::image("AQID", "image/png")),
            PromptMessage::new_resource_link(WireRole::Assistant, link),
        ])
        .into())
    }
}

async fn list_all(server: &McpServer) {
    server.list_tools().await.unwrap();
    server.list_resources().await.unwrap();
    server.list_resource_templates().await.unwrap();
    server.list_prompts().await.unwrap();
}

/// Lists what the server has listed once.
async fn list_those_read_once(server: &McpServer, counting: &Counting) {
    let counts = counting.counts();
    if counts[0] == 1 {
        server.list_tools().await.unwrap();
    }
    if counts[1] == 1 {
        server.list_resources().await.unwrap();
    }
    if counts[2] == 1 {
        server.list_resource_templates().await.unwrap();
    }
    if counts[3] == 1 {
        server.list_prompts().await.unwrap();
    }
}

#[tokio::test]
async fn each_list_is_read_once_until_the_server_announces_a_change() {
    for era in [ProtocolEra::Legacy, ProtocolEra::Modern] {
        let counting = Counting::default();
        let server = counting.server().era(era).build();
        let running = server.connect().await.unwrap();
        list_all(&server).await;
        list_all(&server).await;
        assert_eq!(counting.counts(), [1, 1, 1, 1], "{era:?}");
        assert!(server.list_tools().await.unwrap().is_same(&server.list_tools().await.unwrap()));
        assert_eq!(server.list_resources().await.unwrap()[0].uri, "mem://1");
        // The subscription of the modern era may be established only after the first announcement, and those of the
        // lists arrive one after the other.
        let started = std::time::Instant::now();
        while counting.counts() != [2, 2, 2, 2] {
            assert!(started.elapsed() < START_TIMEOUT, "{era:?}: {:?}", counting.counts());
            server.direct_call_tool("change", json!({})).await.unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            list_those_read_once(&server, &counting).await;
        }
        // Each list is the second one, unless a late announcement has it read once more.
        assert_ne!(server.list_prompts().await.unwrap()[0].name, "prompt1", "{era:?}");
        running.close().await.unwrap();
    }
}

#[tokio::test]
async fn list_expires_after_its_time_only_in_the_modern_era_and_without_announcements() {
    const HOUR: u64 = 3_600_000;
    for (era, ttl, requests) in
        [(ProtocolEra::Modern, 0, 2), (ProtocolEra::Modern, HOUR, 1), (ProtocolEra::Legacy, 0, 1)]
    {
        let counting = Counting { ttl: Some(ttl), ..Counting::default() };
        let server = counting.server().era(era).build();
        let running = server.connect().await.unwrap();
        for _ in 0..2 {
            assert_eq!(server.list_tools().await.unwrap().len(), 1);
        }
        assert_eq!(counting.counts()[0], requests, "{era:?}, {ttl} ms");
        running.close().await.unwrap();
    }
}

#[tokio::test]
async fn caches_can_be_switched_off_one_by_one() {
    let counting = Counting::default();
    let counts = async |server: McpServer| {
        counting.lists.lock().unwrap().clear();
        let running = server.connect().await.unwrap();
        list_all(&server).await;
        list_all(&server).await;
        running.close().await.unwrap();
        counting.counts()
    };
    assert_eq!(counts(counting.server().cache_tools(false).build()).await, [2, 1, 1, 1]);
    assert_eq!(counts(counting.server().cache_resources(false).build()).await, [1, 2, 2, 1]);
    assert_eq!(counts(counting.server().cache_prompts(false).build()).await, [1, 1, 1, 2]);
}

#[tokio::test]
async fn lists_of_a_server_that_declares_none_are_empty_but_its_tools_can_be_called() {
    let counting = Counting { is_silent: true, ..Counting::default() };
    // It does not declare logging either: the level is not sent.
    let server = counting.server().era(ProtocolEra::Legacy).log_level(LogLevel::Debug).build();
    let running = server.connect().await.unwrap();
    list_all(&server).await;
    assert_eq!(counting.counts(), [0, 0, 0, 0]);
    assert!(server.list_tools().await.unwrap().is_empty());
    let outcome = server.direct_call_tool("change", json!({})).await.unwrap();
    assert_eq!(output(outcome).as_text(), Some("changed"));
    // A model is not offered the tool, but the server decides on the call.
    let outcome = server.call(&RunContext::new(), "change", Map::new()).await.unwrap();
    assert!(matches!(outcome, ToolOutcome::Output(_)), "{outcome:?}");
    running.close().await.unwrap();
}

#[tokio::test]
async fn prompts_contain_images_and_links_and_resources_several_contents() {
    let server = Counting::default().server().build();
    let running = server.connect().await.unwrap();
    let prompt = server.get_prompt("any", [("a", "b")]).await.unwrap();
    let [image, link] = &prompt.messages[..] else { panic!("{prompt:?}") };
    assert_eq!((image.role, link.role), (Role::User, Role::Assistant));
    assert!(matches!(&image.content, PromptContent::Binary(binary) if binary.data[..] == [1, 2, 3]), "{image:?}");
    assert!(matches!(&link.content, PromptContent::Link(link) if link.uri == "https://example.org/x"), "{link:?}");
    let stored = serde_json::to_string(&prompt).unwrap();
    assert_eq!(serde_json::from_str::<belljar_mcp_client::PromptResult>(&stored).unwrap(), prompt);

    let raw = server.read_resource_raw("mem://1").await.unwrap();
    assert_eq!(raw.len(), 2);
    let both = server.read_resource("mem://1").await.unwrap();
    assert!(matches!(&both, ToolOutput::List(parts) if parts.len() == 2), "{both:?}");
    let resources: SharedList<Resource> = server.list_resources().await.unwrap();
    let stored = serde_json::to_string(&resources).unwrap();
    assert_eq!(serde_json::from_str::<SharedList<Resource>>(&stored).unwrap(), resources);
    running.close().await.unwrap();
}

//! Responses to a server's requests, in both eras: as requests of their own, and as rounds of required input.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use rmcp::model::{
    ClientCapabilities, ClientConfig, CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams,
    ElicitResult, ElicitationAction, ElicitationCapability, ErrorCode, ErrorData, FormElicitationCapability,
    Implementation, InputRequest, ListRootsResult, RootsCapabilities, SamplingCapability, TASKS_EXTENSION_ID,
    UrlElicitationCapability,
};
use rmcp::service::RequestContext;
use rmcp::{ClientHandler, RoleClient};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::notifications::Router;
use super::{Elicitation, ElicitationResponse, Handlers, RequestOrigin, elicitation, sampling};
use crate::run_context::RunContext;
use crate::schema::Validator;

/// The maximum number of URLs that one error may ask the user to visit.
const MAX_URLS: usize = 8;

/// The extension ID of MCP Apps, and the media type of their pages.
const APPS_EXTENSION_ID: &str = "io.modelcontextprotocol/ui";
const APP_PAGE: &str = "text/html;profile=mcp-app";

/// Responds to a server's requests with the program's handlers.
#[derive(Clone)]
pub(crate) struct Responder {
    handlers: Handlers,
    config: ClientConfig,
    /// The label of the server.
    server: String,
    router: Arc<Router>,
}

impl Responder {
    pub(crate) fn new(handlers: Handlers, client_info: Implementation, server: String, router: Arc<Router>) -> Self {
        let config = ClientConfig::new(capabilities(&handlers), client_info)
            .with_protocol_version(rmcp::model::ProtocolVersion::LATEST_WITH_INITIALIZE);
        Self { handlers, config, server, router }
    }

    /// Returns the origin of a request that is part of a call of this run.
    fn origin(&self, run: Option<Arc<RunContext>>) -> RequestOrigin {
        RequestOrigin::new(self.server.clone()).with_run(run)
    }

    /// Returns the origin of a request of the legacy era, which does not name the call that it belongs to.
    fn likely_origin(&self) -> RequestOrigin {
        self.origin(self.router.only_run())
    }

    async fn sample(
        &self,
        params: CreateMessageRequestParams,
        origin: RequestOrigin,
    ) -> Result<CreateMessageResult, ErrorData> {
        let model = self.handlers.model.get().ok_or_else(|| unsupported("sampling"))?;
        let request =
            sampling::request(params, origin).map_err(|error| ErrorData::invalid_params(error.to_string(), None))?;
        if !request.tools.is_empty() && !model.supports_tools() {
            return Err(ErrorData::invalid_params("the model does not support tools", None));
        }
        let response = guarded("model", model.complete(request)).await?;
        Ok(sampling::response(response, model.name()))
    }

    async fn elicit(&self, params: ElicitRequestParams, origin: RequestOrigin) -> Result<ElicitResult, ErrorData> {
        let handler = self.handlers.elicitation.as_ref().ok_or_else(|| unsupported("elicitation"))?;
        let (question, schema) = match params {
            ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } => {
                let schema = serde_json::to_value(requested_schema)
                    .map_err(|error| ErrorData::invalid_params(error.to_string(), None))?;
                (Elicitation::Form { message, schema: schema.clone(), origin }, Some(schema))
            }
            ElicitRequestParams::UrlElicitationParams { message, url, elicitation_id, .. } => {
                (Elicitation::Url { message, url, id: elicitation_id, origin }, None)
            }
            _ => return Err(unsupported("this kind of elicitation")),
        };
        let response = guarded("elicitation", handler.elicit(question)).await?;
        Ok(match (response, schema) {
            (ElicitationResponse::Accept(values), Some(schema)) => {
                let values = elicitation::with_defaults(values.unwrap_or_default(), &schema);
                let values = Value::Object(values);
                Validator::new(&schema).validate(&values).map_err(|problems| {
                    ErrorData::internal_error(
                        format!("the user's response does not match the schema: {problems}"),
                        None,
                    )
                })?;
                ElicitResult::new(ElicitationAction::Accept).with_content(values)
            }
            (ElicitationResponse::Accept(_), None) => ElicitResult::new(ElicitationAction::Accept),
            (ElicitationResponse::Decline, _) => ElicitResult::new(ElicitationAction::Decline),
            (ElicitationResponse::Cancel, _) => ElicitResult::new(ElicitationAction::Cancel),
        })
    }

    /// Presents the URL elicitations of an error to the user. Returns whether the user accepted all of them.
    pub(crate) async fn elicit_urls(&self, error_data: &Value, run: Option<Arc<RunContext>>) -> bool {
        let pages = error_data.get("elicitations").and_then(Value::as_array);
        let Some(pages) = pages.filter(|pages| (1..=MAX_URLS).contains(&pages.len())) else { return false };
        for page in pages {
            let Ok(page @ ElicitRequestParams::UrlElicitationParams { .. }) = ElicitRequestParams::deserialize(page)
            else {
                return false;
            };
            if !matches!(self.elicit(page, self.origin(run.clone())).await, Ok(result) if result.action == ElicitationAction::Accept)
            {
                return false;
            }
        }
        true
    }

    async fn roots(&self, origin: &RequestOrigin) -> Result<ListRootsResult, ErrorData> {
        let handler = self.handlers.roots.as_ref().ok_or_else(|| unsupported("roots"))?;
        let roots = guarded("roots", handler.roots_for(origin)).await?;
        let roots = roots.into_iter().map(|root| {
            let wire = rmcp::model::Root::new(root.uri);
            match root.name {
                Some(name) => wire.with_name(name),
                None => wire,
            }
        });
        Ok(ListRootsResult::new(roots.collect()))
    }

    /// Responds to one input request of a round.
    async fn answer(&self, request: InputRequest, origin: RequestOrigin) -> Result<Value, ErrorData> {
        let answer = match request {
            InputRequest::CreateMessage(request) => serde_json::to_value(self.sample(request.params, origin).await?),
            InputRequest::Elicitation(request) => serde_json::to_value(self.elicit(request.params, origin).await?),
            InputRequest::ListRoots(_) => serde_json::to_value(self.roots(&origin).await?),
            _ => return Err(unsupported("this kind of input")),
        };
        answer.map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }
}

fn unsupported(what: &str) -> ErrorData {
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, format!("this client does not support {what}"), None)
}

/// Returns the client's capabilities, derived from the handlers that are set.
fn capabilities(handlers: &Handlers) -> ClientCapabilities {
    let mut capabilities = ClientCapabilities::default();
    if let Some(model) = handlers.model.get() {
        let mut sampling = SamplingCapability::default();
        sampling.tools = model.supports_tools().then(Map::new);
        capabilities.sampling = Some(sampling);
    }
    if handlers.elicitation.is_some() {
        capabilities.elicitation = Some(
            ElicitationCapability::new()
                .with_form(FormElicitationCapability::new())
                .with_url(UrlElicitationCapability::new()),
        );
    }
    if handlers.roots.is_some() {
        let mut roots = RootsCapabilities::default();
        roots.list_changed = Some(true);
        capabilities.roots = Some(roots);
    }
    let extensions = capabilities.extensions.get_or_insert_default();
    extensions.insert(TASKS_EXTENSION_ID.to_owned(), Map::new());
    if handlers.supports_apps {
        let settings = Map::from_iter([("mimeTypes".to_owned(), json!([APP_PAGE]))]);
        extensions.insert(APPS_EXTENSION_ID.to_owned(), settings);
    }
    capabilities
}

impl ClientHandler for Responder {
    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        until_cancelled(&context, self.sample(params, self.likely_origin())).await
    }

    async fn create_elicitation(
        &self,
        params: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        until_cancelled(&context, self.elicit(params, self.likely_origin())).await
    }

    async fn list_roots(&self, context: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        until_cancelled(&context, self.roots(&self.likely_origin())).await
    }

    fn get_info(&self) -> ClientConfig {
        self.config.clone()
    }
}

/// Runs a handler until the server cancels its request.
async fn until_cancelled<T>(
    context: &RequestContext<RoleClient>,
    work: impl Future<Output = Result<T, ErrorData>>,
) -> Result<T, ErrorData> {
    tokio::select! {
        result = work => result,
        () = context.ct.cancelled() => Err(ErrorData::internal_error("cancelled", None)),
    }
}

/// Runs a handler of the program. A failure, or a panic, becomes the response to the server's request.
async fn guarded<T, E: std::fmt::Display>(
    handler: &'static str,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, ErrorData> {
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(result) => result.map_err(|error| ErrorData::internal_error(error.to_string(), None)),
        Err(_) => {
            tracing::error!(handler, "a handler of a server's requests panicked");
            Err(ErrorData::internal_error(format!("the client's {handler} handler panicked"), None))
        }
    }
}

/// Runs the handlers of all input requests of a round of a call concurrently.
pub(crate) async fn answer_all(
    responder: &Arc<Responder>,
    requests: rmcp::model::InputRequests,
    run: Option<&Arc<RunContext>>,
) -> Result<rmcp::model::InputResponses, ErrorData> {
    let answers = requests.into_iter().map(|(key, request)| async move {
        Ok((key, responder.answer(request, responder.origin(run.cloned())).await?))
    });
    futures::future::try_join_all(answers).await.map(|answers| answers.into_iter().collect())
}

//! Questions to a client: elicitations of one line.

use belljar_core::kernel::{InputError, InputReply};
use rmcp::model::{
    ClientResult, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema, MetaObject,
    PrimitiveSchemaDefinition, RequestParamsMeta as _, ServerRequest, StringSchema,
};
use rmcp::service::{PeerRequestOptions, RequestContext, RequestHandle, ServiceError};
use rmcp::{Peer, RoleServer};

/// The name of the only field of an elicitation.
const FIELD: &str = "value";

/// Returns whether the client of a request can be asked.
pub(crate) fn can_ask(context: &RequestContext<RoleServer>) -> bool {
    let elicitation = context.client_capabilities().and_then(|capabilities| capabilities.elicitation);
    elicitation.is_some_and(|modes| modes.form.is_some() || modes.url.is_none())
}

/// Asks a client for a line during a call.
pub(crate) async fn elicit(peer: &Peer<RoleServer>, message: String) -> InputReply {
    elicit_by(peer, elicit_line(message)).await
}

/// Asks a client for a line during a call, with this `_meta`.
pub(crate) async fn elicit_with(peer: &Peer<RoleServer>, message: String, meta: MetaObject) -> InputReply {
    let mut params = elicit_line(message);
    *params.meta_mut() = Some(meta.into());
    elicit_by(peer, params).await
}

/// Asks a client. Only the sending has copies of the question, of 3 KB: an answer may take days, and the future that
/// waits for it has none.
fn elicit_by(peer: &Peer<RoleServer>, params: ElicitRequestParams) -> impl Future<Output = InputReply> {
    let question = ServerRequest::ElicitRequest(ElicitRequest::new(params));
    let sending = Box::pin(peer.send_request_with_option(question, PeerRequestOptions::no_options()));
    let no_answer = |error: ServiceError| InputError::NoAnswer(error.to_string());
    async move {
        let RequestHandle { rx: response, .. } = sending.await.map_err(no_answer)?;
        match response.await.unwrap_or(Err(ServiceError::TransportClosed)).map_err(no_answer)? {
            ClientResult::ElicitResult(result) => parse_elicit_result(result),
            _ => Err(no_answer(ServiceError::UnexpectedResponse)),
        }
    }
}

/// Returns an elicitation of one line.
pub(crate) fn elicit_line(message: String) -> ElicitRequestParams {
    let field = PrimitiveSchemaDefinition::String(StringSchema::new());
    let mut requested_schema = ElicitationSchema::new([(FIELD.to_owned(), field)].into());
    requested_schema.required = Some(vec![FIELD.into()]);
    ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema }
}

/// Returns the line from a client's response.
pub(crate) fn parse_elicit_result(result: ElicitResult) -> InputReply {
    match result.action {
        ElicitationAction::Accept => {
            let content = result.content.unwrap_or_default();
            match content.get(FIELD) {
                Some(serde_json::Value::String(line)) => Ok(line.clone()),
                Some(other) if !other.is_null() => Ok(other.to_string()),
                _ => Err(InputError::NoAnswer("it accepted the question without a value".into())),
            }
        }
        _ => Err(InputError::Declined),
    }
}

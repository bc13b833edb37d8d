//! Rounds of input that a server of the modern era requires before it responds to a request.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{InputRequests, InputRequiredResult, InputResponses};

use super::connection::Connection;
use crate::error::McpError;
use crate::handlers::respond;
use crate::run_context::RunContext;

/// The maximum number of rounds per request, and of questions of a task, so that a server that is never satisfied
/// cannot keep asking the user.
pub(super) const MAX_ROUNDS: usize = 32;

/// The maximum number of inputs that one round requires.
const MAX_INPUTS: usize = 32;

/// Answers the requests of a round with the program's handlers.
pub(super) async fn answer(
    connection: &Connection,
    requests: InputRequests,
    method: &str,
    run: Option<&Arc<RunContext>>,
) -> Result<InputResponses, McpError> {
    if requests.len() > MAX_INPUTS {
        return Err(connection.invalid_response(format!("`{method}` requires more than {MAX_INPUTS} inputs at once")));
    }
    let answers = respond::answer_all(connection.responder(), requests, run).await;
    answers.map_err(|error| connection.protocol_error(error))
}

/// Returns the error of a request whose rounds exceed the maximum.
pub(super) fn too_many(connection: &Connection, method: &str) -> McpError {
    connection.invalid_response(format!("`{method}` requires more than {MAX_ROUNDS} rounds of input"))
}

/// The rounds of one request.
#[derive(Default)]
pub(super) struct Rounds {
    done: usize,
    empty: u32,
}

impl Rounds {
    /// Answers a round. Returns the input responses and the state to send with the next request.
    pub(super) async fn answer(
        &mut self,
        connection: &Connection,
        required: InputRequiredResult,
        method: &str,
        run: Option<&Arc<RunContext>>,
    ) -> Result<(Option<InputResponses>, Option<String>), McpError> {
        self.done += 1;
        let requests = required.input_requests.unwrap_or_default();
        if self.done > MAX_ROUNDS {
            return Err(too_many(connection, method));
        }
        if requests.is_empty() && required.request_state.is_none() {
            return Err(connection.unexpected(method));
        }
        if requests.is_empty() {
            // The server only requests a retry, which happens after a delay.
            let wait = Duration::from_millis(50) * 2u32.saturating_pow(self.empty.min(3));
            self.empty += 1;
            tokio::time::sleep(wait).await;
            return Ok((None, required.request_state));
        }
        let responses = answer(connection, requests, method, run).await?;
        Ok((Some(responses), required.request_state))
    }
}

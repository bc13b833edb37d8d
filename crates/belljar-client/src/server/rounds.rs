//! Rounds in which a server of the modern era asks for input before it answers a request.

use std::time::Duration;

use rmcp::model::{InputRequiredResult, InputResponses};

use super::connection::Connection;
use crate::error::McpError;
use crate::handlers::respond;

/// Rounds of input that one request may want.
const MAX_ROUNDS: usize = 32;

/// The rounds of one request.
#[derive(Default)]
pub(super) struct Rounds {
    done: usize,
    empty: u32,
}

impl Rounds {
    /// Answers a round: what to send with the request next.
    pub(super) async fn answer(
        &mut self,
        connection: &Connection,
        wanted: InputRequiredResult,
        method: &str,
    ) -> Result<(Option<InputResponses>, Option<String>), McpError> {
        self.done += 1;
        let requests = wanted.input_requests.unwrap_or_default();
        if self.done > MAX_ROUNDS || (requests.is_empty() && wanted.request_state.is_none()) {
            return Err(connection.unexpected(method));
        }
        if requests.is_empty() {
            // The server only wants to be asked again: not at once.
            let wait = Duration::from_millis(50) * 2u32.saturating_pow(self.empty.min(3));
            self.empty += 1;
            tokio::time::sleep(wait).await;
            return Ok((None, wanted.request_state));
        }
        let responses = respond::answer_all(connection.responder(), requests).await.map_err(McpError::protocol)?;
        Ok((Some(responses), wanted.request_state))
    }
}

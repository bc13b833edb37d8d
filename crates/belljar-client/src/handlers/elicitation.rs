//! Elicitation: a server asks the user for the values of a form, or to visit a page.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::RequestOrigin;
use crate::error::BoxError;

/// A server's request to the user.
///
/// ```
/// use belljar_mcp_client::{Elicitation, ElicitationResponse};
///
/// fn ask(question: &Elicitation) -> ElicitationResponse {
///     match question {
///         Elicitation::Form { message, schema, .. } => println!("{message} {}", schema["properties"]),
///         Elicitation::Url { message, url, .. } => println!("{message} {url}"),
///         _ => {}
///     }
///     ElicitationResponse::Cancel
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Elicitation {
    /// A request for the values of a form.
    #[non_exhaustive]
    Form {
        /// The message to show to the user.
        message: String,
        /// The JSON schema of a flat object: strings, numbers, booleans, choices.
        schema: Value,
        /// The server, and the run if it is known.
        origin: RequestOrigin,
    },
    /// A request to visit a page, where the server collects the information itself.
    #[non_exhaustive]
    Url {
        /// The message to show to the user.
        message: String,
        /// The page. Show the complete URL and ask the user before opening it. Some servers reject a call until the
        /// user has visited the page: accepting repeats the call, so accept when the user is back.
        url: String,
        /// The server's ID of this elicitation; empty if the server sent none.
        id: String,
        /// The server, and the run if it is known.
        origin: RequestOrigin,
    },
}

impl Elicitation {
    /// Creates a request for the values of a form, for tests of handlers.
    ///
    /// ```
    /// use belljar_mcp_client::{Elicitation, RequestOrigin};
    /// use serde_json::json;
    ///
    /// let question = Elicitation::form("Who?", json!({"type": "object"}), RequestOrigin::new("files"));
    /// assert_eq!(question.message(), "Who?");
    /// ```
    pub fn form(message: impl Into<String>, schema: Value, origin: RequestOrigin) -> Self {
        Self::Form { message: message.into(), schema, origin }
    }

    /// Creates a request to visit a page, for tests of handlers.
    ///
    /// ```
    /// use belljar_mcp_client::{Elicitation, RequestOrigin};
    ///
    /// let question = Elicitation::url("Log in.", "https://example.org/login", "e1", RequestOrigin::new("files"));
    /// assert_eq!(question.message(), "Log in.");
    /// ```
    pub fn url(
        message: impl Into<String>,
        url: impl Into<String>,
        id: impl Into<String>,
        origin: RequestOrigin,
    ) -> Self {
        Self::Url { message: message.into(), url: url.into(), id: id.into(), origin }
    }

    /// Returns the message to show to the user.
    ///
    /// ```
    /// # fn show(question: belljar_mcp_client::Elicitation) {
    /// println!("The server asks: {}", question.message());
    /// # }
    /// ```
    pub fn message(&self) -> &str {
        match self {
            Self::Form { message, .. } | Self::Url { message, .. } => message,
        }
    }

    /// Returns the server that asks, and the run whose call it is about, if that is known.
    ///
    /// ```
    /// # fn show(question: belljar_mcp_client::Elicitation) {
    /// println!("{} asks: {}", question.origin().server(), question.message());
    /// # }
    /// ```
    pub fn origin(&self) -> &RequestOrigin {
        match self {
            Self::Form { origin, .. } | Self::Url { origin, .. } => origin,
        }
    }
}

/// The user's response.
///
/// ```
/// # use belljar_mcp_client::ElicitationResponse;
/// # use serde_json::{Map, json};
/// let filled_in = ElicitationResponse::Accept(Some(Map::from_iter([("name".into(), json!("Ada"))])));
/// let agreed_to_visit = ElicitationResponse::Accept(None);
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ElicitationResponse {
    /// The user filled in the form (its values, by name), or agreed to visit the page (`None`).
    Accept(Option<Map<String, Value>>),
    /// The user declined.
    Decline,
    /// The user dismissed the request without deciding.
    Cancel,
}

/// Presents a server's elicitation to the user.
///
/// Values that the user left out get the default of the schema, if it has one, and the values are validated against the
/// schema before they are sent.
///
/// Closures are handlers as well:
///
/// ```
/// use belljar_mcp_client::{Elicitation, ElicitationResponse, McpServerStdio};
///
/// let server = McpServerStdio::new("server").elicitation_handler(async |question: Elicitation| {
///     eprintln!("{}", question.message());
///     Ok(ElicitationResponse::Decline)
/// });
/// ```
#[async_trait]
pub trait ElicitationHandler: Send + Sync + 'static {
    /// Asks the user.
    ///
    /// # Errors
    ///
    /// An error that prevented asking the user. Its message is sent to the server.
    async fn elicit(&self, question: Elicitation) -> Result<ElicitationResponse, BoxError>;
}

#[async_trait]
impl<F, Answer> ElicitationHandler for F
where
    F: Fn(Elicitation) -> Answer + Send + Sync + 'static,
    Answer: Future<Output = Result<ElicitationResponse, BoxError>> + Send,
{
    async fn elicit(&self, question: Elicitation) -> Result<ElicitationResponse, BoxError> {
        self(question).await
    }
}

/// Adds the defaults of a form's schema to the given values.
pub(crate) fn with_defaults(mut values: Map<String, Value>, schema: &Value) -> Map<String, Value> {
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, property) in properties.into_iter().flatten() {
        if let Some(default) = property.get("default")
            && !values.contains_key(name)
        {
            values.insert(name.clone(), default.clone());
        }
    }
    values
}

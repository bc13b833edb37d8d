//! A server asks the user: for values of a form, or to visit a page.

use async_trait::async_trait;
use serde_json::{Map, Value};

/// What a server wants of the user.
///
/// ```
/// use belljar_client::{Elicitation, ElicitationResponse};
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
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Elicitation {
    /// Values for a form.
    Form {
        /// What to tell the user.
        message: String,
        /// JSON schema of a flat object: strings, numbers, booleans, choices.
        schema: Value,
    },
    /// A visit to a page, where the server learns by itself what it needs.
    Url {
        /// What to tell the user.
        message: String,
        /// The page. Show it whole and ask before it is opened. Some servers refuse a call until the user was there: to
        /// accept makes the call again, so accept when the user is back.
        url: String,
        /// The server's name for this visit; empty where it gave none.
        id: String,
    },
}

impl Elicitation {
    /// What to tell the user.
    ///
    /// ```
    /// # fn show(question: belljar_client::Elicitation) {
    /// println!("The server asks: {}", question.message());
    /// # }
    /// ```
    pub fn message(&self) -> &str {
        match self {
            Self::Form { message, .. } | Self::Url { message, .. } => message,
        }
    }
}

/// What the user did.
///
/// ```
/// # use belljar_client::ElicitationResponse;
/// # use serde_json::{Map, json};
/// let filled_in = ElicitationResponse::Accept(Some(Map::from_iter([("name".into(), json!("Ada"))])));
/// let agreed_to_visit = ElicitationResponse::Accept(None);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum ElicitationResponse {
    /// Filled in the form (the values, by name), or agreed to visit the page (`None`).
    Accept(Option<Map<String, Value>>),
    /// Said no.
    Decline,
    /// Went away without a decision.
    Cancel,
}

/// Puts a server's question to the user.
///
/// Values that the user left out and for which the schema has a default are added, and the answer is checked against the
/// schema before it is sent.
///
/// Closures are handlers, too:
///
/// ```
/// use belljar_client::{Elicitation, ElicitationResponse, McpServerStdio};
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
    /// A message for the server: the question could not be put.
    async fn elicit(&self, question: Elicitation) -> Result<ElicitationResponse, String>;
}

#[async_trait]
impl<F, Answer> ElicitationHandler for F
where
    F: Fn(Elicitation) -> Answer + Send + Sync + 'static,
    Answer: Future<Output = Result<ElicitationResponse, String>> + Send,
{
    async fn elicit(&self, question: Elicitation) -> Result<ElicitationResponse, String> {
        self(question).await
    }
}

/// Adds the defaults of a form's schema to the values that were given.
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

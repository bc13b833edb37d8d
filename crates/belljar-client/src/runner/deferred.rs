//! Calls that wait for an answer while the run is over: serialisable, and resumed with the answers.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{ToolCall, ToolReturn};
use crate::error::{ConfigError, McpError};
use crate::toolset::{Approval, Deferral, ToolOutcome};

/// A call that waits for an answer.
///
/// ```
/// use belljar_mcp_client::DeferredCall;
///
/// fn ask(waiting: &DeferredCall) {
///     println!("{} with {}: {:?}?", waiting.call.name, waiting.call.arguments, waiting.deferral.kind);
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DeferredCall {
    /// The call.
    pub call: ToolCall,
    /// The input that it waits for, with metadata of the toolset.
    pub deferral: Deferral,
}

/// The calls of a turn that wait for answers. A run that ends with them is resumed with
/// [`Step::resume`](crate::Step::resume), also by another process.
///
/// ```
/// use belljar_mcp_client::{Deferral, DeferralKind, DeferredCalls, ToolCall, ToolOutcome, ToolReturn};
/// use serde_json::json;
///
/// let call = ToolCall::new("call_1", "delete", json!({"path": "/tmp/x"}));
/// let results = [ToolReturn::new(&call, ToolOutcome::Deferred(Deferral::new(DeferralKind::Approval)))];
/// let deferred = DeferredCalls::of(&[call], &results);
/// let stored = serde_json::to_string(&deferred).unwrap();
/// assert_eq!(serde_json::from_str::<DeferredCalls>(&stored).unwrap(), deferred);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DeferredCalls {
    /// The calls, in the order in which the model made them.
    pub calls: Vec<DeferredCall>,
}

impl DeferredCalls {
    /// Returns those of the calls whose results are deferred; the results of the others go to the model's history.
    ///
    /// ```no_run
    /// # use belljar_mcp_client::{DeferredCalls, McpError, Step, ToolCall};
    /// # async fn run(step: Step, calls: Vec<ToolCall>) -> Result<(), Box<dyn std::error::Error>> {
    /// let results = step.call_all(calls.clone()).await?;
    /// let deferred = DeferredCalls::of(&calls, &results);
    /// if !deferred.is_empty() {
    ///     std::fs::write("deferred.json", serde_json::to_vec(&deferred)?)?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn of(calls: &[ToolCall], results: &[ToolReturn]) -> Self {
        let calls = results.iter().filter_map(|result| match &result.outcome {
            ToolOutcome::Deferred(deferral) => {
                let call = calls.iter().find(|call| call.id == result.id)?.clone();
                Some(DeferredCall { call, deferral: deferral.clone() })
            }
            _ => None,
        });
        Self { calls: calls.collect() }
    }

    /// Returns whether no call waits.
    ///
    /// ```
    /// assert!(belljar_mcp_client::DeferredCalls::default().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }
}

/// The answer to a deferred call.
///
/// ```
/// # use belljar_mcp_client::{Approval, DeferredAnswer};
/// let answer = DeferredAnswer::Approval(Approval::Allow);
/// assert_eq!(serde_json::to_value(answer).unwrap(), serde_json::json!({"approval": "allow"}));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DeferredAnswer {
    /// The decision on the call. [`Approval::Defer`] leaves it deferred.
    Approval(Approval),
    /// The result of a call that was carried out elsewhere: text, or other JSON.
    Result(Value),
    /// The call was carried out elsewhere and failed; the model may try again.
    Retry(String),
    /// The call was carried out elsewhere and failed for good.
    Failed(String),
}

/// The answers to deferred calls, by the ID of the call.
///
/// ```
/// use belljar_mcp_client::{DeferredAnswer, DeferredAnswers};
///
/// let answers = DeferredAnswers::new()
///     .approve("call_1")
///     .deny("call_2", "too expensive")
///     .answer("call_3", DeferredAnswer::Result("42".into()));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DeferredAnswers(HashMap<String, DeferredAnswer>);

impl DeferredAnswers {
    /// Creates an empty set of answers.
    ///
    /// ```
    /// # use belljar_mcp_client::DeferredAnswers;
    /// assert_eq!(DeferredAnswers::new(), DeferredAnswers::default());
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the answer to a call.
    ///
    /// ```
    /// # use belljar_mcp_client::{DeferredAnswer, DeferredAnswers};
    /// let answers = DeferredAnswers::new().answer("call_1", DeferredAnswer::Failed("nobody knows".into()));
    /// ```
    pub fn answer(mut self, id: impl Into<String>, answer: DeferredAnswer) -> Self {
        self.0.insert(id.into(), answer);
        self
    }

    /// Approves a call.
    ///
    /// ```
    /// # use belljar_mcp_client::DeferredAnswers;
    /// let answers = DeferredAnswers::new().approve("call_1");
    /// ```
    pub fn approve(self, id: impl Into<String>) -> Self {
        self.answer(id, DeferredAnswer::Approval(Approval::Allow))
    }

    /// Approves a call with other arguments.
    ///
    /// ```
    /// # use belljar_mcp_client::DeferredAnswers;
    /// # use serde_json::{Map, json};
    /// let dry_run = Map::from_iter([("dry_run".to_owned(), json!(true))]);
    /// let answers = DeferredAnswers::new().approve_with("call_1", dry_run);
    /// ```
    pub fn approve_with(self, id: impl Into<String>, arguments: Map<String, Value>) -> Self {
        self.answer(id, DeferredAnswer::Approval(Approval::AllowWith(arguments)))
    }

    /// Denies a call; the model sees the reason.
    ///
    /// ```
    /// # use belljar_mcp_client::DeferredAnswers;
    /// let answers = DeferredAnswers::new().deny("call_1", "too expensive");
    /// ```
    pub fn deny(self, id: impl Into<String>, reason: impl Into<String>) -> Self {
        self.answer(id, DeferredAnswer::Approval(Approval::Deny(reason.into())))
    }

    /// Returns for each deferred call the approved call, or its result.
    pub(super) fn apply(
        mut self,
        deferred: &DeferredCalls,
    ) -> Result<Vec<Result<ToolCall, Box<ToolReturn>>>, McpError> {
        let applied = deferred.calls.iter().map(|DeferredCall { call, deferral }| {
            let outcome = match self.0.remove(&call.id) {
                Some(DeferredAnswer::Approval(Approval::Allow)) => return Ok(call.clone()),
                Some(DeferredAnswer::Approval(Approval::AllowWith(arguments))) => {
                    return Ok(ToolCall { arguments: Value::Object(arguments), ..call.clone() });
                }
                Some(DeferredAnswer::Approval(Approval::Deny(reason))) => ToolOutcome::Denied(reason),
                Some(DeferredAnswer::Result(Value::String(text))) => ToolOutcome::text(text),
                Some(DeferredAnswer::Result(value)) => ToolOutcome::json(value),
                Some(DeferredAnswer::Retry(message)) => ToolOutcome::retry(message),
                Some(DeferredAnswer::Failed(message)) => ToolOutcome::failed(message),
                Some(DeferredAnswer::Approval(Approval::Defer(_))) | None => ToolOutcome::Deferred(deferral.clone()),
            };
            Err(Box::new(ToolReturn::new(call, outcome)))
        });
        let applied = applied.collect();
        match self.0.into_keys().min() {
            Some(id) => Err(ConfigError::UnknownCall { id }.into()),
            None => Ok(applied),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toolset::DeferralKind;
    use serde_json::json;

    #[test]
    fn answers_are_applied_in_the_order_of_the_calls() {
        let deferral = Deferral::new(DeferralKind::Approval).with_metadata("risk", json!("high"));
        let waiting =
            |id: &str| DeferredCall { call: ToolCall::new(id, "t", json!({"n": 1})), deferral: deferral.clone() };
        let deferred = DeferredCalls { calls: ["a", "b", "c", "d"].map(waiting).into() };
        let stored = serde_json::to_string(&deferred).unwrap();
        let deferred: DeferredCalls = serde_json::from_str(&stored).unwrap();
        let answers = DeferredAnswers::new()
            .deny("b", "no")
            .approve_with("a", Map::from_iter([("n".to_owned(), json!(2))]))
            .answer("d", DeferredAnswer::Result(json!([1])));
        let applied = answers.apply(&deferred).unwrap();
        assert_eq!(applied[0], Ok(ToolCall::new("a", "t", json!({"n": 2}))));
        let outcome = |position: usize| applied[position].as_ref().unwrap_err().outcome.clone();
        assert_eq!(outcome(1), ToolOutcome::Denied("no".to_owned()));
        assert_eq!(outcome(2), ToolOutcome::Deferred(deferral.clone()));
        assert_eq!(outcome(3), ToolOutcome::json(json!([1])));
        let error = DeferredAnswers::new().approve("z").apply(&deferred).unwrap_err();
        assert!(matches!(error, McpError::Config(ConfigError::UnknownCall { .. })), "{error:?}");
    }
}

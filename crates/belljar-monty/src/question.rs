//! Questions to the parent, and the requests that answer them.

use serde::{Deserialize, Serialize};

use crate::arena;
use crate::proto::{
    Arena, CallResult, ExtFunctionResult, FunctionCall, FutureResult, NameLookup, NameResult, OsCall, RaisedException,
    Request, ResumeCall, ResumeFutures, ResumeNameLookup,
};

/// The maximum number of values in the answers of one request. Answers share none.
const MAX_COPIED: usize = 4_000_000;

/// A question of the code, as the guest writes it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Question {
    /// The result of a call.
    Function(FunctionCall),
    /// The value of a name, or of an attribute of an object of the parent.
    Name(NameLookup),
    /// The effect of an operation of the system.
    Os(OsCall),
    /// The result of a call that was answered with a future.
    Future(u32),
}

/// The answer, as the guest reads it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// A value.
    Value(AnswerValue),
    /// An exception.
    Error(RaisedException),
    /// A future with this number.
    Future(u32),
    /// The parent has no function with this name.
    NotFound(String),
    /// The parent does not handle the operation.
    NotHandled(()),
    /// The name is not defined.
    Undefined(()),
    /// The feed ends with this exception.
    Abort(RaisedException),
}

/// A value in an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct AnswerValue {
    index: u32,
    values: Arena,
}

/// A question that the parent has to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Pending {
    /// A call with this number, whose result may come at once if it was asynchronous and `eager` is set.
    Call { id: u32, eager: bool },
    /// An operation of the system with this number, for which `eager` has the same meaning.
    Os { id: u32, eager: bool },
    /// A name.
    Name,
}

/// Returns the answer to a question about a call or a name that a request contains.
///
/// # Errors
/// Returns the reason why the request does not answer it.
pub(crate) fn answer(pending: Pending, request: Request) -> Result<Answer, String> {
    match (pending, request) {
        (_, Request::AbortFeed(abort)) => {
            abort.exception.map(Answer::Abort).ok_or_else(|| "AbortFeed has no exception".into())
        }
        (Pending::Call { id, .. } | Pending::Os { id, .. }, Request::ResumeCall(resume)) => {
            let ResumeCall { call_id, result, values } = resume;
            check_id(id, call_id)?;
            let answer = call_result(id, result, values)?;
            match (&answer, pending) {
                (Answer::NotHandled(()), Pending::Call { .. }) => {
                    Err("NotHandled is only valid for an operation of the system".into())
                }
                _ => Ok(answer),
            }
        }
        (Pending::Call { id, eager: true } | Pending::Os { id, eager: true }, Request::ResumeFutures(resume)) => {
            let ResumeFutures { mut results, values } = resume;
            match (results.pop(), results.is_empty()) {
                (Some(result), true) => {
                    check_id(id, result.call_id)?;
                    settled(id, result.result, values)
                }
                _ => Err("an eager answer has exactly one result".into()),
            }
        }
        (Pending::Name, Request::ResumeNameLookup(ResumeNameLookup { values, kind })) => match kind {
            Some(NameResult::Value(index)) => value(index, values),
            Some(NameResult::Undefined(_)) => Ok(Answer::Undefined(())),
            Some(NameResult::Error(exception)) => Ok(Answer::Error(exception)),
            None => Err("ResumeNameLookup has no result".into()),
        },
        (Pending::Name, _) => Err("the feed waits for the value of a name".into()),
        _ => Err("the feed waits for the result of a call".into()),
    }
}

/// Returns the results of futures that a request contains.
///
/// # Errors
/// Returns the reason why the request is refused.
pub(crate) fn future_results(request: ResumeFutures, pending: &[u32]) -> Result<Vec<(u32, Answer)>, String> {
    let ResumeFutures { results, values } = request;
    if results.len() > pending.len() {
        return Err("there are more results than futures".into());
    }
    arena::check(values.as_ref(), [])?;
    let mut answers = Vec::with_capacity(results.len());
    let mut left = MAX_COPIED;
    for FutureResult { call_id, result } in results {
        if !pending.contains(&call_id) || answers.iter().any(|(id, _)| *id == call_id) {
            return Err(format!("no future with the number {call_id} is pending"));
        }
        // Each answer has only its own values.
        let (result, values) = match (result.and_then(|result| result.kind), &values) {
            (Some(CallResult::ReturnValue(root)), Some(values)) => {
                let (root, own) = arena::extract(values, root, &mut left)?;
                (Some(CallResult::ReturnValue(root)), Some(own))
            }
            (result, _) => (result, None),
        };
        let result = result.map(|kind| ExtFunctionResult { kind: Some(kind) });
        answers.push((call_id, settled(call_id, result, values)?));
    }
    Ok(answers)
}

fn check_id(expected: u32, given: u32) -> Result<(), String> {
    if expected == given { Ok(()) } else { Err(format!("the feed waits for call {expected}, not for call {given}")) }
}

fn settled(id: u32, result: Option<ExtFunctionResult>, values: Option<Arena>) -> Result<Answer, String> {
    match call_result(id, result, values)? {
        Answer::Future(_) => Err("the result of a future cannot be a future".into()),
        Answer::NotHandled(()) => Err("NotHandled is only valid for an operation of the system".into()),
        answer => Ok(answer),
    }
}

fn call_result(id: u32, result: Option<ExtFunctionResult>, values: Option<Arena>) -> Result<Answer, String> {
    match result.and_then(|result| result.kind) {
        Some(CallResult::ReturnValue(index)) => value(index, values),
        Some(CallResult::Error(exception)) => Ok(Answer::Error(exception)),
        Some(CallResult::Future(number)) => check_id(id, number).map(|()| Answer::Future(id)),
        Some(CallResult::NotFound(name)) => Ok(Answer::NotFound(name)),
        Some(CallResult::NotHandled(_)) => Ok(Answer::NotHandled(())),
        None => Err("the result of a call is missing".into()),
    }
}

fn value(index: u32, values: Option<Arena>) -> Result<Answer, String> {
    arena::check(values.as_ref(), [index])?;
    Ok(Answer::Value(AnswerValue { index, values: values.unwrap_or_default() }))
}

//! The interface by which an operator follows the calls of tools of a cell while it runs.

use std::pin::Pin;

/// A call of a tool that begins or has ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ToolCallEvent<'a> {
    /// The number of the call in its run, in the order in which the calls began.
    pub number: u64,
    /// The server's name.
    pub server: &'a str,
    /// The tool's name, as the code wrote it.
    pub tool: &'a str,
    /// The arguments as JSON, shortened.
    pub arguments: &'a str,
    /// `running`, or how the call ended: `ok`, `error`, `denied`, `timeout`, `unavailable`, `limit`, `cancelled`.
    pub status: &'static str,
    /// The time from the call to its result, in milliseconds.
    pub duration_ms: f64,
    /// The size of the result, in bytes.
    pub result_bytes: u64,
    /// The error that the code received, shortened.
    pub error: Option<&'a str>,
}

/// The answer of an operator to a question of code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperatorAnswer {
    /// A line of text.
    Line(String),
    /// The operator refused to answer.
    Declined,
    /// No operator has answered, and none can any more: the cell has ended.
    Withdrawn,
}

/// A watcher of a cell: see [`CellObserver::watch`](crate::kernel::CellObserver::watch).
pub trait CellWatcher: Send + Sync {
    /// Receives a call of a tool that begins, or has ended.
    fn on_call(&self, event: &ToolCallEvent<'_>);

    /// Puts a question to the operators, and returns the answer of the first. Dropping the future withdraws the
    /// question.
    fn ask(&self, question: String) -> Pin<Box<dyn Future<Output = OperatorAnswer> + Send + '_>>;
}

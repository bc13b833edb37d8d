//! The requests to backends and kernels: code that is run once, cells, and requests to the shell that are not cells.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::activity::Scope;
use crate::exchange::Exchange;

/// Code that is run once, in an interpreter of its own.
#[derive(Debug, Clone, Default)]
pub struct OneShotRequest {
    /// Python source text.
    pub code: String,
    /// Variables to set before the code runs: a JSON object. Text, so that numbers keep their digits.
    pub globals: Option<Box<RawValue>>,
    /// Packages to install in addition to those that the code asks for, as PEP 508 requirements without addresses.
    pub dependencies: Vec<String>,
    /// The most elapsed time; the backend's own limit holds as well.
    pub timeout: Option<Duration>,
    /// Variables and functions of the caller. If set, the value is returned encoded.
    pub exchange: Option<Exchange>,
    /// True if the code can import the module `tools`:
    /// [`CellObserver::call_function`](crate::kernel::CellObserver::call_function) receives its calls. Only for
    /// backends with [`Backend::supports_tools`](crate::kernel::Backend::supports_tools).
    pub tools: bool,
    /// A network policy as JSON: code may use what it allows of what the backend does.
    pub network: Option<Value>,
    /// The owner of the call, who may be a client or a connection. Code of different owners never runs in the same
    /// process of a backend with processes for it, and code without an owner has a process of its own.
    pub owner: Option<Arc<str>>,
    /// The context of the call, for the audit log and for traces.
    pub scope: Scope,
}

/// A cell to run.
#[derive(Debug, Clone, Serialize)]
pub struct CellRequest {
    /// The source, in IPython's Python.
    pub code: String,
    /// The elapsed time after which the cell is interrupted; the backend's own limit holds as well.
    #[serde(skip)]
    pub timeout: Option<Duration>,
    /// Runs the cell without showing its value, and without a number and a history entry of its own.
    pub silent: bool,
    /// Gives the cell a number and a history entry.
    pub store_history: bool,
    /// Keeps payloads (text for a frontend's pager, its next cell) for [`ShellRequest::UserExpressions`] instead of
    /// displaying them.
    pub collect_payloads: bool,
    /// Variables and functions of the caller. If set, the observer receives the cell's value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exchange: Option<Exchange>,
    /// The same as [`OneShotRequest::tools`].
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub tools: bool,
    /// The same as [`OneShotRequest::network`], for the whole session. Only its first cell can set it.
    #[serde(skip)]
    pub network: Option<Value>,
    /// The context of the call, for the audit log and for traces.
    #[serde(skip)]
    pub scope: Scope,
    /// Has the guest run the cell as a feed of a session of Monty's worker protocol instead of in IPython's shell: the
    /// settings of session and feed, a JSON object. All cells of such a session have it. Only for backends with
    /// [`Backend::supports_feeds`](crate::kernel::Backend::supports_feeds).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub monty: Option<Box<RawValue>>,
}

impl Default for CellRequest {
    fn default() -> Self {
        Self {
            code: String::new(),
            timeout: None,
            silent: false,
            store_history: true,
            collect_payloads: false,
            exchange: None,
            tools: false,
            network: None,
            scope: Scope::default(),
            monty: None,
        }
    }
}

/// A request of Jupyter's shell channel that is not a cell. Positions count Unicode code points.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum ShellRequest {
    /// Asks for completions at the cursor: `complete_request`.
    Complete {
        /// The cell's source.
        code: String,
        /// The cursor's position.
        cursor: usize,
    },
    /// Asks what the name at the cursor is: `inspect_request`.
    Inspect {
        /// The cell's source.
        code: String,
        /// The cursor's position.
        cursor: usize,
        /// 0, or 1 to include source code.
        detail: u8,
    },
    /// Asks whether the code can be run or needs more lines: `is_complete_request`.
    IsComplete {
        /// The code typed so far.
        code: String,
    },
    /// Asks, after a cell, for the `payload` and `user_expressions` of its `execute_reply`.
    UserExpressions {
        /// The expressions to evaluate, by the names that the reply gives them.
        expressions: BTreeMap<String, String>,
    },
}

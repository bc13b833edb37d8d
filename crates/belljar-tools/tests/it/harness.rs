//! Runs of tools without an interpreter: operations as the guest sends them.

use std::path::Path;
use std::sync::mpsc;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use belljar_core::{EncodedValue, FunctionCall, FunctionError, FunctionReply, ReplySender};
use belljar_mcp_client::{McpServer, McpServerStdio};
use belljar_tools::{
    Approval, ApprovalMode, ApprovalRequest, Approver, NoToolEvents, SessionGrants, ToolLimits, ToolPolicy, ToolRun,
    ToolRunContext, Tools,
};
use parking_lot::Mutex;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap());

/// Returns the runtime of all tests.
pub(crate) fn runtime() -> &'static Runtime {
    &RUNTIME
}

/// The time that a server has to start, on a busy machine.
pub(crate) const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the test server with the tools of `mode`.
pub(crate) fn server(name: &str, mode: &str) -> McpServer {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/python/tool_server.py");
    let server = McpServerStdio::new("python3").args(["-u", &script.display().to_string(), mode]);
    server.id(name).timeout(START_TIMEOUT).build()
}

/// An approver that gives fixed answers and keeps the questions.
#[derive(Default)]
pub(crate) struct Answers {
    answers: Mutex<Vec<Approval>>,
    pub(crate) questions: Mutex<Vec<ApprovalRequest>>,
}

impl Answers {
    /// Creates an approver with these answers, the last first.
    pub(crate) fn new(answers: &[Approval]) -> Arc<Self> {
        Arc::new(Self { answers: Mutex::new(answers.to_vec()), questions: Mutex::default() })
    }
}

#[async_trait]
impl Approver for Answers {
    async fn approve(&self, request: ApprovalRequest) -> Result<Approval, String> {
        self.questions.lock().push(request);
        self.answers.lock().pop().ok_or_else(|| "there is no answer".into())
    }
}

/// The tools of a test, and its session.
pub(crate) struct Session {
    pub(crate) tools: Arc<Tools>,
    pub(crate) approver: Arc<Answers>,
    pub(crate) grants: Arc<SessionGrants>,
}

impl Session {
    pub(crate) fn new(servers: &[McpServer], policy: ToolPolicy, limits: ToolLimits) -> Self {
        let tools = Arc::new(Tools::new(servers, policy, limits));
        Self { tools, approver: Answers::new(&[]), grants: Arc::default() }
    }

    /// Creates a session with the plain server `t`, whose calls need no approval.
    pub(crate) fn plain() -> Self {
        Self::with_mode("plain")
    }

    /// Creates a session with the server `t` of this mode, whose calls need no approval.
    pub(crate) fn with_mode(mode: &str) -> Self {
        let policy = ToolPolicy::new(&[], &[], ApprovalMode::None).unwrap();
        Self::new(&[server("t", mode)], policy, ToolLimits::default())
    }

    /// Starts a run.
    pub(crate) fn run(&self) -> TestRun {
        let context = ToolRunContext {
            scope: belljar_core::Scope::default(),
            runtime: runtime().handle().clone(),
            approver: self.approver.clone(),
            grants: self.grants.clone(),
            events: Arc::new(NoToolEvents),
        };
        self.run_in(context)
    }

    /// Starts a run in this context.
    pub(crate) fn run_in(&self, context: ToolRunContext) -> TestRun {
        let (sender, replies) = mpsc::channel();
        TestRun { run: ToolRun::new(self.tools.clone(), context), sender: sender.into(), replies }
    }
}

/// A run, with the channel of its replies.
pub(crate) struct TestRun {
    pub(crate) run: ToolRun,
    sender: ReplySender,
    pub(crate) replies: mpsc::Receiver<FunctionReply>,
}

impl TestRun {
    /// Starts an operation.
    pub(crate) fn start(&self, id: u64, name: &str, arguments: Value) {
        let json = to_raw_value(&json!([arguments, {}])).unwrap();
        let arguments = EncodedValue { json, buffers: Vec::new() };
        self.run.start(FunctionCall { id, name: format!("tools:{name}"), arguments }, &self.sender);
    }

    /// Runs an operation, and returns its reply.
    pub(crate) fn operate(&self, name: &str, arguments: Value) -> Result<Value, FunctionError> {
        self.start(0, name, arguments);
        let reply = self.replies.recv().unwrap();
        reply.result.map(|value| serde_json::from_str(value.json.get()).unwrap())
    }

    /// Starts a call of a tool of the server `t` by its name in Python.
    pub(crate) fn start_call(&self, id: u64, tool: &str, arguments: Value) {
        self.start(id, "call", json!(["t", tool, arguments.to_string(), "main.py:1: line", false]));
    }

    /// Calls a tool of the server `t` by its name in Python.
    pub(crate) fn call(&self, tool: &str, arguments: Value) -> Result<Value, FunctionError> {
        self.operate("call", json!(["t", tool, arguments.to_string(), "main.py:1: line", false]))
    }

    /// Returns the statuses in the call log.
    pub(crate) fn statuses(&self) -> Vec<Value> {
        self.run.log().calls.iter().map(|call| serde_json::to_value(call.status).unwrap()).collect()
    }
}

/// Returns the value of a reply with one part.
pub(crate) fn one(reply: Result<Value, FunctionError>) -> Value {
    reply.unwrap()["one"]["value"].take()
}

/// Returns the class and the text of an error.
pub(crate) fn error(reply: Result<Value, FunctionError>) -> (String, String) {
    let error = reply.unwrap_err();
    (error.name, error.message)
}

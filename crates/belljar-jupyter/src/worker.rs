//! The worker, which answers the requests of the shell channel in order.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use belljar_core::kernel::{
    Backend, CellError, CellObserver, CellRequest, Kernel, KernelError, ShellError, ShellRequest,
};
use belljar_core::{CellStatus, Progress};
use jupyter_protocol::messaging::{
    CommOpen, CompleteReply, CompleteRequest, ExecuteRequest, InspectRequest, IsCompleteReply, IsCompleteRequest,
    Status,
};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};

use crate::RunningCell;
use crate::cell::CellPublisher;
use crate::history::{History, HistoryRequest};
use crate::message::Request;
use crate::sockets::{WorkerChannels, shutdown_reply};

/// Answers the requests of frontends. [`Self::run`] must be called on a thread that suits the backend.
pub struct Worker {
    channels: WorkerChannels,
    runtime: Handle,
    running: RunningCell,
    closing: watch::Sender<bool>,
    history: History,
    /// The execution count of the next cell.
    next_count: u64,
    /// Returns the observer of a cell that can call tools, if cells can.
    tools: Option<Arc<CellTools>>,
    /// Requests that were received before a cell failed, and are not answered yet.
    deferred: VecDeque<Request>,
    /// Dropped with the worker, which notifies the server that the worker has ended.
    _alive: mpsc::Sender<()>,
}

/// Returns the observer of a cell that can call tools.
type CellTools = dyn Fn(Arc<dyn CellObserver>) -> Arc<dyn CellObserver> + Send + Sync;

/// The kernel, or the reason why it could not be started.
struct KernelSlot<'a> {
    backend: &'a dyn Backend,
    progress: &'a dyn Progress,
    kernel: Result<Box<dyn Kernel>, KernelError>,
}

impl KernelSlot<'_> {
    /// Returns the kernel. Starts it if the last start failed.
    fn kernel(&mut self) -> Result<&mut Box<dyn Kernel>, &KernelError> {
        if self.kernel.is_err() {
            self.kernel = self.backend.start(None, self.progress);
        }
        self.kernel.as_mut().map_err(|error| &*error)
    }
}

/// Creates an error of Belljar's own.
fn own_error(name: &str, message: impl ToString) -> CellError {
    CellError { name: name.into(), message: message.to_string(), traceback: Vec::new() }
}

/// Returns the content of an `error` message.
fn error_content(error: &CellError) -> Value {
    let traceback = if error.traceback.is_empty() { vec![error.to_string()] } else { error.traceback.clone() };
    json!({ "ename": error.name, "evalue": error.message, "traceback": traceback })
}

/// Returns the content of a reply of status `error`.
fn error_reply(error: &CellError) -> Value {
    let mut content = error_content(error);
    content["status"] = "error".into();
    content
}

impl Worker {
    pub(crate) fn new(
        channels: WorkerChannels,
        runtime: Handle,
        running: RunningCell,
        closing: watch::Sender<bool>,
        alive: mpsc::Sender<()>,
    ) -> Self {
        Self {
            channels,
            runtime,
            running,
            closing,
            history: History::default(),
            next_count: 1,
            tools: None,
            deferred: VecDeque::new(),
            _alive: alive,
        }
    }

    /// Lets cells call tools. `observer` returns an observer that handles the calls of one cell, until it is dropped,
    /// and passes all else to the given one.
    #[must_use]
    pub fn with_tools(
        self,
        observer: impl Fn(Arc<dyn CellObserver>) -> Arc<dyn CellObserver> + Send + Sync + 'static,
    ) -> Self {
        Self { tools: Some(Arc::new(observer)), ..self }
    }

    /// Answers requests until the kernel is shut down. If the backend fails to start a kernel, each cell tries again,
    /// and fails with the reason.
    pub fn run(mut self, backend: &dyn Backend, progress: &dyn Progress) {
        let kernel = backend.start(None, progress);
        if let Err(error) = &kernel {
            tracing::error!(%error, "failed to start a kernel");
        }
        let mut slot = KernelSlot { backend, progress, kernel };
        self.channels.started.store(true, Ordering::Release);
        while let Some(request) = self.next_request() {
            self.channels.iopub.publish("status", &request.header, &Status::busy());
            let goes_on = self.answer(&mut slot, &request);
            self.channels.iopub.publish("status", &request.header, &Status::idle());
            if !goes_on {
                return;
            }
        }
    }

    /// Waits for the next request; returns `None` when the kernel is shut down.
    fn next_request(&mut self) -> Option<Request> {
        if *self.closing.borrow() {
            return None;
        }
        if let Some(request) = self.deferred.pop_front() {
            return Some(request);
        }
        let mut closing = self.closing.subscribe();
        let requests = &mut self.channels.requests;
        self.runtime.block_on(async {
            tokio::select! {
                _ = closing.wait_for(|closing| *closing) => None,
                request = requests.recv() => request,
            }
        })
    }

    /// Answers a request. Returns `false` if it was the last one.
    fn answer(&mut self, slot: &mut KernelSlot<'_>, request: &Request) -> bool {
        let (kind, reply) = match request.header.msg_type.as_str() {
            "execute_request" => {
                self.execute(slot, request);
                return true;
            }
            "shutdown_request" => {
                self.reply(request, "shutdown_reply", &shutdown_reply(request));
                self.closing.send_replace(true);
                return false;
            }
            "kernel_info_request" => {
                self.reply(request, "kernel_info_reply", &self.channels.kernel_info.reply());
                return true;
            }
            "complete_request" => ("complete_reply", self.complete(slot, request)),
            "inspect_request" => ("inspect_reply", self.inspect(slot, request)),
            "is_complete_request" => ("is_complete_reply", self.is_complete(slot, request)),
            "history_request" => {
                ("history_reply", read::<HistoryRequest>(request).map(|content| self.history.reply(&content)))
            }
            "comm_info_request" => ("comm_info_reply", Ok(json!({ "status": "ok", "comms": {} }))),
            "comm_open" => {
                // The specification requires this message after a `comm_open` with an unknown target.
                if let Ok(open) = read::<CommOpen>(request) {
                    self.channels.iopub.publish(
                        "comm_close",
                        &request.header,
                        &json!({ "comm_id": open.comm_id, "data": {} }),
                    );
                }
                return true;
            }
            other => {
                tracing::debug!(kind = other, "unsupported request");
                return true;
            }
        };
        self.reply(request, kind, &reply.unwrap_or_else(|error| error_reply(&error)));
        true
    }

    fn reply(&self, request: &Request, kind: &str, content: &impl serde::Serialize) {
        self.channels.replies.reply(request, kind, content);
    }

    fn execute(&mut self, slot: &mut KernelSlot<'_>, request: &Request) {
        let execute: ExecuteRequest = match read(request) {
            Ok(execute) => execute,
            Err(error) => {
                let mut content = error_reply(&error);
                content["execution_count"] = self.next_count.into();
                return self.reply(request, "execute_reply", &content);
            }
        };
        let header = &request.header;
        let count = self.next_count;
        if !execute.silent {
            let input = json!({ "code": execute.code, "execution_count": count });
            self.channels.iopub.publish("execute_input", header, &input);
        }
        let started = slot.kernel().map(|_| ()).map_err(|error| own_error("KernelError", error));
        let (result, reply_fields) = match started {
            Err(error) => (Err(error), json!({})),
            Ok(()) => self.run_cell(slot, request, &execute, count),
        };
        if let Err(error) = &result {
            self.channels.iopub.publish("error", header, &error_content(error));
        }
        let mut content = match &result {
            Ok(()) => json!({ "status": "ok" }),
            Err(error) => error_reply(error),
        };
        let expressions = if result.is_ok() { reply_fields["user_expressions"].as_object() } else { None };
        content["user_expressions"] = expressions.map_or_else(|| json!({}), |them| Value::Object(them.clone()));
        content["payload"] = payloads(&reply_fields);
        content["execution_count"] = count.into();
        // Cells that arrive after the reply are not aborted: their sender knows of the failure.
        let aborted = if result.is_err() && execute.stop_on_error { self.queued_cells() } else { VecDeque::new() };
        self.reply(request, "execute_reply", &content);
        self.abort(aborted);
    }

    /// Runs a cell in the kernel. Returns its result, and the user expressions and payloads for the frontend.
    fn run_cell(
        &mut self,
        slot: &mut KernelSlot<'_>,
        request: &Request,
        execute: &ExecuteRequest,
        count: u64,
    ) -> (Result<(), CellError>, Value) {
        let Ok(kernel) = &mut slot.kernel else { return (Ok(()), json!({})) };
        let observer = Arc::new(CellPublisher {
            request: request.clone(),
            count,
            allow_stdin: execute.allow_stdin,
            iopub: self.channels.iopub.clone(),
            input_requests: self.channels.input_requests.clone(),
            value: Mutex::new(None),
        });
        let recorded = execute.store_history && !execute.silent;
        let cell = CellRequest {
            code: execute.code.clone(),
            silent: execute.silent,
            store_history: recorded,
            collect_payloads: true,
            tools: self.tools.is_some(),
            ..CellRequest::default()
        };
        let watching: Arc<dyn CellObserver> = match &self.tools {
            Some(tools) => tools(observer.clone()),
            None => observer.clone(),
        };
        self.running.set(Some(kernel.interrupt_handle()));
        // A shutdown request before this line found no cell to stop.
        if *self.closing.borrow() {
            return (Err(own_error("Stopped", "the kernel is shut down")), json!({}));
        }
        let cell_result = kernel.execute(&cell, watching);
        let died = matches!(cell_result.status, CellStatus::KernelDied(_));
        let mut reply_fields = json!({});
        if !died {
            let expressions: BTreeMap<String, String> =
                execute.user_expressions.clone().unwrap_or_default().into_iter().collect();
            reply_fields = kernel.shell_request(&ShellRequest::UserExpressions { expressions }).unwrap_or_default();
        }
        self.running.set(None);
        if recorded {
            let value = observer.value.lock().take();
            self.history.add(count, &execute.code, value);
        }
        self.next_count = cell_result.execution_count.saturating_add(1);
        let result = match cell_result.status.error(slot.backend.limits()) {
            None => Ok(()),
            Some(error) if died => Err(self.restart_kernel(slot, error)),
            Some(error) => Err(error),
        };
        (result, reply_fields)
    }

    /// Restarts a kernel that has died. Returns the error for the frontend.
    fn restart_kernel(&mut self, slot: &mut KernelSlot<'_>, error: CellError) -> CellError {
        self.next_count = 1;
        let restarted = match &mut slot.kernel {
            Ok(_) if *self.closing.borrow() => return error,
            Ok(kernel) => kernel.restart(),
            Err(_) => Ok(()),
        };
        let files = match restarted {
            Ok(()) => "its files are kept",
            Err(error) => {
                slot.kernel = Err(error);
                "so are its files"
            }
        };
        let message =
            format!("{}. The kernel's variables are lost, {files}, and it accepts further cells", error.message);
        CellError { message, ..error }
    }

    /// Removes the cells from the queue of requests, and returns them.
    fn queued_cells(&mut self) -> VecDeque<Request> {
        while let Ok(request) = self.channels.requests.try_recv() {
            self.deferred.push_back(request);
        }
        let (cells, others) = self.deferred.drain(..).partition(|request| request.header.msg_type == "execute_request");
        self.deferred = others;
        cells
    }

    /// Aborts cells that were sent after one that failed, as frontends expect that send several cells at once.
    fn abort(&self, cells: VecDeque<Request>) {
        for request in cells {
            self.channels.iopub.publish("status", &request.header, &Status::busy());
            self.reply(&request, "execute_reply", &json!({ "status": "aborted" }));
            self.channels.iopub.publish("status", &request.header, &Status::idle());
        }
    }

    fn shell_request(&mut self, slot: &mut KernelSlot<'_>, request: &ShellRequest) -> Result<Value, CellError> {
        let limits = slot.backend.limits();
        let kernel = slot.kernel().map_err(|error| own_error("KernelError", error))?;
        self.running.set(Some(kernel.interrupt_handle()));
        let answer = kernel.shell_request(request);
        self.running.set(None);
        answer.map_err(|error| match error {
            KernelError::Shell(ShellError::Exception(error)) => error,
            KernelError::Shell(ShellError::Interrupted) => own_error("KeyboardInterrupt", ""),
            KernelError::Shell(ShellError::TimedOut) => own_error("TimeoutError", "the kernel did not reply in time"),
            KernelError::Shell(ShellError::Exited(reason)) => reason.to_cell_error(limits),
            other => own_error("KernelError", other),
        })
    }

    fn complete(&mut self, slot: &mut KernelSlot<'_>, request: &Request) -> Result<Value, CellError> {
        let CompleteRequest { code, cursor_pos: cursor } = read(request)?;
        let answer = self.shell_request(slot, &ShellRequest::Complete { code, cursor })?;
        validate::<CompleteReply>(answer)
    }

    fn inspect(&mut self, slot: &mut KernelSlot<'_>, request: &Request) -> Result<Value, CellError> {
        let InspectRequest { code, cursor_pos: cursor, detail_level } = read(request)?;
        let detail = u8::from(detail_level.unwrap_or(0) > 0);
        let answer = self.shell_request(slot, &ShellRequest::Inspect { code, cursor, detail })?;
        let data = answer["data"].as_object().cloned().unwrap_or_default();
        Ok(json!({ "status": "ok", "found": answer["found"] == true, "data": data, "metadata": {} }))
    }

    fn is_complete(&mut self, slot: &mut KernelSlot<'_>, request: &Request) -> Result<Value, CellError> {
        let IsCompleteRequest { code } = read(request)?;
        let answer = self.shell_request(slot, &ShellRequest::IsComplete { code });
        // A frontend decides by itself if the status is unknown.
        Ok(answer.and_then(validate::<IsCompleteReply>).unwrap_or_else(|_| json!({ "status": "unknown" })))
    }
}

/// Decodes the content of a request.
fn read<T: DeserializeOwned>(request: &Request) -> Result<T, CellError> {
    serde_json::from_value(request.content.clone())
        .map_err(|error| own_error("ValueError", format!("failed to read the {}: {error}", request.header.msg_type)))
}

/// Checks that a reply of the guest has the form of `T`.
fn validate<T: DeserializeOwned + serde::Serialize>(answer: Value) -> Result<Value, CellError> {
    let wrong = |_| own_error("KernelError", "the interpreter sent an invalid reply");
    serde_json::to_value(serde_json::from_value::<T>(answer).map_err(wrong)?).map_err(wrong)
}

/// Returns the payloads that a cell left for its frontend, without malformed ones.
fn payloads(reply_fields: &Value) -> Value {
    let all = reply_fields["payload"].as_array().map_or(&[][..], Vec::as_slice);
    all.iter().filter(|payload| payload["source"].is_string()).cloned().collect()
}

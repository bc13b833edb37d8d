//! Requests of the shell channel, answered one after the other.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use belljar_core::kernel::{Backend, CellRequest, End, Kernel, KernelError, Question};
use belljar_core::progress::Progress;
use jupyter_protocol::messaging::{
    CommOpen, CompleteReply, CompleteRequest, ExecuteRequest, InspectRequest, IsCompleteReply, IsCompleteRequest,
    Status,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};

use super::Running;
use super::cell::Cell;
use super::history::{History, HistoryRequest};
use super::message::Request;
use super::sockets::{Parts, shutdown_reply};

/// Runs what frontends send. To be run on a thread that suits the backend.
pub struct Worker {
    parts: Parts,
    runtime: Handle,
    running: Running,
    closing: watch::Sender<bool>,
    history: History,
    /// The number that the next cell gets.
    next: u64,
    /// Requests that came behind a cell that failed, and are to be answered yet.
    waiting: VecDeque<Request>,
    /// Tells by its end that this has ended.
    _alive: mpsc::Sender<()>,
}

/// The interpreter, or why there is none.
struct Interpreter<'a> {
    backend: &'a dyn Backend,
    progress: &'a dyn Progress,
    kernel: Result<Box<dyn Kernel>, String>,
}

impl Interpreter<'_> {
    /// The kernel; made anew if it could not be made before.
    fn kernel(&mut self) -> Result<&mut Box<dyn Kernel>, String> {
        if self.kernel.is_err() {
            self.kernel = self.backend.start(self.progress).map_err(|error| error.to_string());
        }
        self.kernel.as_mut().map_err(|reason| reason.clone())
    }
}

/// How a cell failed.
struct Failure {
    name: String,
    message: String,
    traceback: Vec<String>,
}

impl Failure {
    /// `ZeroDivisionError: division by zero`, and what is printed of it.
    fn new(error: &str, traceback: Vec<String>) -> Self {
        let (name, message) = error.split_once(": ").unwrap_or((error, ""));
        let traceback = if traceback.is_empty() { vec![error.to_owned()] } else { traceback };
        Self { name: name.into(), message: message.into(), traceback }
    }

    fn content(&self) -> Value {
        json!({ "ename": self.name, "evalue": self.message, "traceback": self.traceback })
    }

    fn reply(&self) -> Value {
        let mut content = self.content();
        content["status"] = "error".into();
        content
    }
}

impl Worker {
    pub(crate) fn new(
        parts: Parts,
        runtime: Handle,
        running: Running,
        closing: watch::Sender<bool>,
        alive: mpsc::Sender<()>,
    ) -> Self {
        Self {
            parts,
            runtime,
            running,
            closing,
            history: History::default(),
            next: 1,
            waiting: VecDeque::new(),
            _alive: alive,
        }
    }

    /// Answers requests until the kernel is shut down. If no interpreter can be made, each cell tries again, and says why.
    pub fn run(mut self, backend: &dyn Backend, progress: &dyn Progress) {
        let kernel = backend.start(progress).map_err(|error| error.to_string());
        if let Err(reason) = &kernel {
            tracing::error!(%reason, "there is no Python yet");
        }
        let mut interpreter = Interpreter { backend, progress, kernel };
        self.parts.started.store(true, Ordering::Release);
        while let Some(request) = self.request() {
            self.parts.iopub.tell("status", &request.header, &Status::busy());
            let goes_on = self.answer(&mut interpreter, &request);
            self.parts.iopub.tell("status", &request.header, &Status::idle());
            if !goes_on {
                return;
            }
        }
    }

    /// The next one; `None` when the kernel is shut down.
    fn request(&mut self) -> Option<Request> {
        if *self.closing.borrow() {
            return None;
        }
        if let Some(request) = self.waiting.pop_front() {
            return Some(request);
        }
        let mut closing = self.closing.subscribe();
        let requests = &mut self.parts.requests;
        self.runtime.block_on(async {
            tokio::select! {
                _ = closing.wait_for(|closing| *closing) => None,
                request = requests.recv() => request,
            }
        })
    }

    /// Answers one; `false` when it was the last.
    fn answer(&mut self, interpreter: &mut Interpreter<'_>, request: &Request) -> bool {
        let (kind, reply) = match request.header.msg_type.as_str() {
            "execute_request" => {
                self.execute(interpreter, request);
                return true;
            }
            "shutdown_request" => {
                self.reply(request, "shutdown_reply", &shutdown_reply(request));
                self.closing.send_replace(true);
                return false;
            }
            "kernel_info_request" => {
                self.reply(request, "kernel_info_reply", &self.parts.about.reply());
                return true;
            }
            "complete_request" => ("complete_reply", self.complete(interpreter, request)),
            "inspect_request" => ("inspect_reply", self.inspect(interpreter, request)),
            "is_complete_request" => ("is_complete_reply", self.is_complete(interpreter, request)),
            "history_request" => {
                ("history_reply", read::<HistoryRequest>(request).map(|asked| self.history.reply(&asked)))
            }
            "comm_info_request" => ("comm_info_reply", Ok(json!({ "status": "ok", "comms": {} }))),
            "comm_open" => {
                // As the specification says of a comm that nobody here knows.
                if let Ok(open) = read::<CommOpen>(request) {
                    self.parts.iopub.tell(
                        "comm_close",
                        &request.header,
                        &json!({ "comm_id": open.comm_id, "data": {} }),
                    );
                }
                return true;
            }
            other => {
                tracing::debug!(kind = other, "not answered");
                return true;
            }
        };
        self.reply(request, kind, &reply.unwrap_or_else(|error| Failure::new(&error, Vec::new()).reply()));
        true
    }

    fn reply(&self, request: &Request, kind: &str, content: &impl serde::Serialize) {
        self.parts.replies.reply(request, kind, content);
    }

    fn execute(&mut self, interpreter: &mut Interpreter<'_>, request: &Request) {
        let asked: ExecuteRequest = match read(request) {
            Ok(asked) => asked,
            Err(error) => {
                let mut content = Failure::new(&error, Vec::new()).reply();
                content["execution_count"] = self.next.into();
                return self.reply(request, "execute_reply", &content);
            }
        };
        let header = &request.header;
        let count = self.next;
        if !asked.silent {
            let input = json!({ "code": asked.code, "execution_count": count });
            self.parts.iopub.tell("execute_input", header, &input);
        }
        let (result, aftermath) = match interpreter.kernel().map(|_| ()) {
            Err(reason) => (Err(Failure::new(&format!("KernelError: {reason}"), Vec::new())), json!({})),
            Ok(()) => self.run_cell(interpreter, request, &asked, count),
        };
        if let Err(failure) = &result {
            self.parts.iopub.tell("error", header, &failure.content());
        }
        let mut content = match &result {
            Ok(()) => json!({ "status": "ok" }),
            Err(failure) => failure.reply(),
        };
        let expressions = if result.is_ok() { aftermath["user_expressions"].as_object() } else { None };
        content["user_expressions"] = expressions.map_or_else(|| json!({}), |them| Value::Object(them.clone()));
        content["payload"] = payloads(&aftermath);
        content["execution_count"] = count.into();
        // What comes after the reply was sent by somebody who knows.
        let behind = if result.is_err() && asked.stop_on_error { self.cells_that_wait() } else { VecDeque::new() };
        self.reply(request, "execute_reply", &content);
        self.abort(behind);
    }

    /// Runs a cell in the kernel, which is there; what it left for the frontend stands beside its end.
    fn run_cell(
        &mut self,
        interpreter: &mut Interpreter<'_>,
        request: &Request,
        asked: &ExecuteRequest,
        count: u64,
    ) -> (Result<(), Failure>, Value) {
        let Ok(kernel) = &mut interpreter.kernel else { return (Ok(()), json!({})) };
        let audience = Arc::new(Cell {
            request: request.clone(),
            count,
            allow_stdin: asked.allow_stdin,
            iopub: self.parts.iopub.clone(),
            questions: self.parts.questions.clone(),
            value: Mutex::new(None),
        });
        let recorded = asked.store_history && !asked.silent;
        let cell = CellRequest {
            code: asked.code.clone(),
            silent: asked.silent,
            off_record: !recorded,
            payloads: true,
            ..CellRequest::default()
        };
        self.running.set(Some(kernel.interrupter()));
        // What was shut down meanwhile found nothing to stop.
        if *self.closing.borrow() {
            return (Err(Failure::new("Stopped: the kernel is shut down", Vec::new())), json!({}));
        }
        let executed = kernel.execute(&cell, audience.clone());
        let died = matches!(executed.end, End::Died(_));
        let mut aftermath = json!({});
        if !died {
            let expressions: BTreeMap<String, String> =
                asked.user_expressions.clone().unwrap_or_default().into_iter().collect();
            aftermath = kernel.ask(&Question::Aftermath { expressions }).unwrap_or_default();
        }
        self.running.set(None);
        if recorded {
            let value = audience.value.lock().unwrap_or_else(PoisonError::into_inner).take();
            self.history.add(count, &asked.code, value);
        }
        self.next = executed.count.saturating_add(1);
        let result = match executed.end {
            End::Success => Ok(()),
            End::Raised { error, traceback } => Err(Failure::new(&error, traceback)),
            End::Died(reason) => Err(self.revive(interpreter, &reason)),
        };
        (result, aftermath)
    }

    /// Puts a fresh interpreter in the place of one that has ended.
    fn revive(&mut self, interpreter: &mut Interpreter<'_>, reason: &str) -> Failure {
        self.next = 1;
        let restarted = match &mut interpreter.kernel {
            Ok(_) if *self.closing.borrow() => return Failure::new(reason, Vec::new()),
            Ok(kernel) => kernel.restart(),
            Err(_) => Ok(()),
        };
        let kept = match restarted {
            Ok(()) => "its files are kept",
            Err(error) => {
                interpreter.kernel = Err(error.to_string());
                "so are its files"
            }
        };
        Failure::new(&format!("{reason}. The kernel's variables are lost, {kept}, and it can be used on"), Vec::new())
    }

    /// Takes the cells out of what waits.
    fn cells_that_wait(&mut self) -> VecDeque<Request> {
        while let Ok(request) = self.parts.requests.try_recv() {
            self.waiting.push_back(request);
        }
        let (cells, others) = self.waiting.drain(..).partition(|request| request.header.msg_type == "execute_request");
        self.waiting = others;
        cells
    }

    /// Refuses cells that came behind one that failed, as frontends want it that send many at once.
    fn abort(&self, cells: VecDeque<Request>) {
        for request in cells {
            self.parts.iopub.tell("status", &request.header, &Status::busy());
            self.reply(&request, "execute_reply", &json!({ "status": "aborted" }));
            self.parts.iopub.tell("status", &request.header, &Status::idle());
        }
    }

    fn ask(&mut self, interpreter: &mut Interpreter<'_>, question: &Question) -> Result<Value, String> {
        let kernel = interpreter.kernel()?;
        self.running.set(Some(kernel.interrupter()));
        let answer = kernel.ask(question);
        self.running.set(None);
        answer.map_err(|error| match error {
            KernelError::Failed(reason) => reason,
            other => format!("KernelError: {other}"),
        })
    }

    fn complete(&mut self, interpreter: &mut Interpreter<'_>, request: &Request) -> Result<Value, String> {
        let CompleteRequest { code, cursor_pos: cursor } = read(request)?;
        let answer = self.ask(interpreter, &Question::Complete { code, cursor })?;
        checked::<CompleteReply>(answer)
    }

    fn inspect(&mut self, interpreter: &mut Interpreter<'_>, request: &Request) -> Result<Value, String> {
        let InspectRequest { code, cursor_pos: cursor, detail_level } = read(request)?;
        let detail = u8::from(detail_level.unwrap_or(0) > 0);
        let answer = self.ask(interpreter, &Question::Inspect { code, cursor, detail })?;
        let data = answer["data"].as_object().cloned().unwrap_or_default();
        Ok(json!({ "status": "ok", "found": answer["found"] == true, "data": data, "metadata": {} }))
    }

    fn is_complete(&mut self, interpreter: &mut Interpreter<'_>, request: &Request) -> Result<Value, String> {
        let IsCompleteRequest { code } = read(request)?;
        let answer = self.ask(interpreter, &Question::IsComplete { code });
        // A frontend that is told nothing decides by itself.
        Ok(answer.and_then(checked::<IsCompleteReply>).unwrap_or_else(|_| json!({ "status": "unknown" })))
    }
}

/// A request's content.
fn read<T: DeserializeOwned>(request: &Request) -> Result<T, String> {
    serde_json::from_value(request.content.clone())
        .map_err(|error| format!("ValueError: this {} cannot be read: {error}", request.header.msg_type))
}

/// What the guest answered, if it is such a reply.
fn checked<T: DeserializeOwned + serde::Serialize>(answer: Value) -> Result<Value, String> {
    let wrong = |_| "KernelError: the interpreter gave an answer that is none".to_owned();
    serde_json::to_value(serde_json::from_value::<T>(answer).map_err(wrong)?).map_err(wrong)
}

/// What a cell left for its frontend, as far as that has the form of payloads.
fn payloads(aftermath: &Value) -> Value {
    let all = aftermath["payload"].as_array().map_or(&[][..], Vec::as_slice);
    all.iter().filter(|payload| payload["source"].is_string()).cloned().collect()
}

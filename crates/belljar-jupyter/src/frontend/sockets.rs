//! The five sockets of a kernel, and who reads them.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jupyter_protocol::messaging::{InterruptReply, ReplyStatus, ShutdownReply, ShutdownRequest, Status};
use serde::Serialize;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use zeromq::{RepSocket, RouterRecvHalf, RouterSendHalf, RouterSocket, Socket, SocketRecv, SocketSend, XPubSocket};

use super::connection::Connection;
use super::info::About;
use super::iopub::Broadcast;
use super::message::{Request, Signer};
use super::questions::Questions;
use super::{Control, FrontendError};

/// Requests that wait for the worker; those after them wait at their senders.
const WAITING: usize = 4096;
/// Pause after a frontend's connection broke.
const BROKEN: Duration = Duration::from_millis(10);

/// Sends on a channel to the one who asked. Clones send on the same.
#[derive(Clone)]
pub(crate) struct Replies {
    socket: RouterSendHalf,
    signer: Arc<Signer>,
    runtime: Handle,
}

impl Replies {
    /// Replies to a request, from a thread that is none of the runtime's.
    pub(crate) fn reply(&self, request: &Request, kind: &str, content: &impl Serialize) {
        self.runtime.block_on(self.reply_from_task(request, kind, content));
    }

    /// The same, on a runtime.
    pub(crate) async fn reply_from_task(&self, request: &Request, kind: &str, content: &impl Serialize) {
        let message = self.signer.seal(&request.identities, kind, Some(&request.header), content);
        if let Err(error) = self.socket.clone().send(message).await {
            tracing::debug!(%error, kind, "a frontend is gone");
        }
    }
}

/// Sockets that are bound; nobody reads them yet.
pub(crate) struct Sockets {
    shell: RouterSocket,
    control: RouterSocket,
    stdin: RouterSocket,
    iopub: XPubSocket,
    heartbeat: RepSocket,
    signer: Arc<Signer>,
}

/// What the worker has of the sockets.
pub(crate) struct Parts {
    /// Requests of the shell channel.
    pub(crate) requests: mpsc::Receiver<Request>,
    pub(crate) replies: Replies,
    pub(crate) iopub: Broadcast,
    pub(crate) questions: Questions,
    pub(crate) about: Arc<About>,
    /// Set by the worker when it can answer what the kernel is: until then that is answered at once, since frontends give
    /// a kernel up that does not.
    pub(crate) started: Arc<AtomicBool>,
}

impl Sockets {
    /// Binds them all.
    pub(crate) async fn bind(connection: &Connection, signer: Arc<Signer>) -> Result<Self, FrontendError> {
        for path in connection.socket_paths() {
            // A kernel that was killed leaves its sockets, and its successor gets the same file.
            if is_socket(&path) {
                let _ = std::fs::remove_file(&path);
            }
        }
        Ok(Self {
            shell: bind(connection.shell_url()).await?,
            control: bind(connection.control_url()).await?,
            stdin: bind(connection.stdin_url()).await?,
            iopub: bind(connection.iopub_url()).await?,
            heartbeat: bind(connection.heartbeat_url()).await?,
            signer,
        })
    }

    /// Starts to read them.
    pub(crate) async fn serve(self, about: Arc<About>, control: Control) -> Parts {
        let Self { shell, control: control_socket, stdin, iopub, heartbeat, signer } = self;
        let runtime = Handle::current();
        let split = |socket: RouterSocket| {
            let (send, receive) = socket.split();
            let replies = Replies { socket: send, signer: signer.clone(), runtime: runtime.clone() };
            (replies, Incoming { socket: receive, signer: signer.clone() })
        };
        let iopub = Broadcast::start(iopub, signer.clone());
        iopub.tell_from_task("status", None, &Status::starting()).await;
        let started = Arc::<AtomicBool>::default();
        let (sender, requests) = mpsc::channel(WAITING);
        let (replies, incoming) = split(shell);
        let shell =
            Shell { replies: replies.clone(), iopub: iopub.clone(), about: about.clone(), started: started.clone() };
        tokio::spawn(shell.read(incoming, sender));
        let (control_replies, incoming) = split(control_socket);
        let channel = ControlChannel { replies: control_replies, iopub: iopub.clone(), about: about.clone(), control };
        tokio::spawn(channel.read(incoming));
        let (stdin_replies, mut incoming) = split(stdin);
        let questions = Questions::new(stdin_replies);
        let answered = questions.clone();
        tokio::spawn(async move {
            loop {
                answered.answered(&incoming.next().await);
            }
        });
        tokio::spawn(beat(heartbeat));
        Parts { requests, replies, iopub, questions, about, started }
    }
}

#[cfg(unix)]
fn is_socket(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket())
}

#[cfg(not(unix))]
fn is_socket(_: &Path) -> bool {
    false
}

async fn bind<S: Socket>(url: String) -> Result<S, FrontendError> {
    let mut socket = S::new();
    match socket.bind(&url).await {
        Ok(_) => Ok(socket),
        Err(error) => Err(FrontendError::Listen { url, reason: error.to_string() }),
    }
}

/// Messages of one channel whose signatures are good.
struct Incoming {
    socket: RouterRecvHalf,
    signer: Arc<Signer>,
}

impl Incoming {
    async fn next(&mut self) -> Request {
        loop {
            match self.socket.recv().await {
                Ok(message) => match self.signer.open(message) {
                    Ok(request) => return request,
                    Err(reason) => tracing::warn!(%reason, "a message is dropped"),
                },
                Err(error) => {
                    tracing::debug!(%error, "a frontend's connection broke");
                    tokio::time::sleep(BROKEN).await;
                }
            }
        }
    }
}

struct Shell {
    replies: Replies,
    iopub: Broadcast,
    about: Arc<About>,
    started: Arc<AtomicBool>,
}

impl Shell {
    async fn read(self, mut incoming: Incoming, requests: mpsc::Sender<Request>) {
        loop {
            let request = incoming.next().await;
            if request.header.msg_type == "kernel_info_request" && !self.started.load(Ordering::Acquire) {
                let about = self.about.reply();
                let reply = self.replies.reply_from_task(&request, "kernel_info_reply", &about);
                self.iopub.busy_in_task(&request.header, reply).await;
            } else if requests.send(request).await.is_err() {
                return;
            }
        }
    }
}

struct ControlChannel {
    replies: Replies,
    iopub: Broadcast,
    about: Arc<About>,
    control: Control,
}

impl ControlChannel {
    async fn read(self, mut incoming: Incoming) {
        loop {
            let request = incoming.next().await;
            self.iopub.busy_in_task(&request.header, self.answer(&request)).await;
            if request.header.msg_type == "shutdown_request" {
                self.control.shut_down();
            }
        }
    }

    async fn answer(&self, request: &Request) {
        match request.header.msg_type.as_str() {
            "interrupt_request" => {
                self.control.interrupt();
                self.replies.reply_from_task(request, "interrupt_reply", &InterruptReply::new()).await;
            }
            "shutdown_request" => {
                let reply = shutdown_reply(request);
                self.replies.reply_from_task(request, "shutdown_reply", &reply).await;
                self.iopub.tell_from_task("shutdown_reply", Some(&request.header), &reply).await;
            }
            "kernel_info_request" => {
                self.replies.reply_from_task(request, "kernel_info_reply", &self.about.reply()).await;
            }
            kind => tracing::debug!(kind, "not answered on the control channel"),
        }
    }
}

/// What is said to `shutdown_request`, whether or not it can be read.
pub(crate) fn shutdown_reply(request: &Request) -> ShutdownReply {
    let asked: ShutdownRequest = serde_json::from_value(request.content.clone()).unwrap_or_default();
    ShutdownReply { restart: asked.restart, status: ReplyStatus::Ok, error: None }
}

/// Gives back what comes, so that frontends see the process alive.
async fn beat(mut socket: RepSocket) {
    loop {
        match socket.recv().await {
            Ok(message) => {
                if let Err(error) = socket.send(message).await {
                    tracing::debug!(%error, "a frontend is gone");
                }
            }
            Err(_) => tokio::time::sleep(BROKEN).await,
        }
    }
}

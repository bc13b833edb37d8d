//! The five sockets of a kernel, and the tasks that read them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jupyter_protocol::messaging::{InterruptReply, ReplyStatus, ShutdownReply, ShutdownRequest, Status};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use zeromq::{RepSocket, RouterRecvHalf, RouterSocket, Socket, SocketRecv, SocketSend, XPubSocket};

use crate::connection::Connection;
use crate::iopub::IopubPublisher;
use crate::kernel_info::KernelInfo;
use crate::message::{Request, Signer};
use crate::os::is_socket;
use crate::reply_sender::ReplySender;
use crate::stdin::InputRequests;
use crate::{Control, KernelServerError};

/// The capacity of the worker's queue of requests. Further requests stay in the sockets.
const QUEUE_CAPACITY: usize = 4096;
/// The pause after an error of a socket.
const ERROR_RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// The sockets of a kernel, bound and not read yet.
pub(crate) struct Sockets {
    shell: RouterSocket,
    control: RouterSocket,
    stdin: RouterSocket,
    iopub: XPubSocket,
    heartbeat: RepSocket,
    signer: Arc<Signer>,
}

/// The worker's ends of the channels.
pub(crate) struct WorkerChannels {
    /// The requests of the shell channel.
    pub(crate) requests: mpsc::Receiver<Request>,
    pub(crate) replies: ReplySender,
    pub(crate) iopub: IopubPublisher,
    pub(crate) input_requests: InputRequests,
    pub(crate) kernel_info: Arc<KernelInfo>,
    /// Set by the worker when it starts to answer requests. Until then `kernel_info_request` is answered at once, since
    /// frontends give up on a kernel that does not answer it.
    pub(crate) started: Arc<AtomicBool>,
}

impl Sockets {
    /// Binds all sockets.
    pub(crate) async fn bind(connection: &Connection, signer: Arc<Signer>) -> Result<Self, KernelServerError> {
        for path in connection.socket_paths() {
            // A kernel that was killed leaves its socket files, and its successor gets the same connection file.
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

    /// Starts the tasks that read the sockets.
    pub(crate) async fn serve(self, kernel_info: Arc<KernelInfo>, control: Control) -> WorkerChannels {
        let Self { shell, control: control_socket, stdin, iopub, heartbeat, signer } = self;
        let runtime = Handle::current();
        let split = |socket: RouterSocket| {
            let (send, receive) = socket.split();
            let replies = ReplySender::new(send, signer.clone(), runtime.clone());
            (replies, MessageReceiver { socket: receive, signer: signer.clone() })
        };
        let iopub = IopubPublisher::start(iopub, signer.clone());
        iopub.publish_async("status", None, &Status::starting()).await;
        let started = Arc::<AtomicBool>::default();
        let (sender, requests) = mpsc::channel(QUEUE_CAPACITY);
        let (replies, incoming) = split(shell);
        let shell = ShellChannel {
            replies: replies.clone(),
            iopub: iopub.clone(),
            kernel_info: kernel_info.clone(),
            started: started.clone(),
        };
        tokio::spawn(shell.read(incoming, sender));
        let (control_replies, incoming) = split(control_socket);
        let channel = ControlChannel {
            replies: control_replies,
            iopub: iopub.clone(),
            kernel_info: kernel_info.clone(),
            control,
        };
        tokio::spawn(channel.read(incoming));
        let (stdin_replies, mut incoming) = split(stdin);
        let input_requests = InputRequests::new(stdin_replies);
        let receiver = input_requests.clone();
        tokio::spawn(async move {
            loop {
                receiver.on_message(&incoming.next().await);
            }
        });
        tokio::spawn(run_heartbeat(heartbeat));
        WorkerChannels { requests, replies, iopub, input_requests, kernel_info, started }
    }
}

async fn bind<S: Socket>(url: String) -> Result<S, KernelServerError> {
    let mut socket = S::new();
    match socket.bind(&url).await {
        Ok(_) => Ok(socket),
        Err(source) => Err(KernelServerError::Listen { url, source: Box::new(source) }),
    }
}

/// Receives the messages of one channel, and drops those that are invalid.
struct MessageReceiver {
    socket: RouterRecvHalf,
    signer: Arc<Signer>,
}

impl MessageReceiver {
    async fn next(&mut self) -> Request {
        loop {
            match self.socket.recv().await {
                Ok(message) => match self.signer.verify(message) {
                    Ok(request) => return request,
                    Err(reason) => tracing::warn!(%reason, "dropped a message"),
                },
                Err(error) => {
                    tracing::debug!(%error, "failed to receive from a frontend");
                    tokio::time::sleep(ERROR_RETRY_INTERVAL).await;
                }
            }
        }
    }
}

/// The task that reads the shell channel.
struct ShellChannel {
    replies: ReplySender,
    iopub: IopubPublisher,
    kernel_info: Arc<KernelInfo>,
    started: Arc<AtomicBool>,
}

impl ShellChannel {
    async fn read(self, mut incoming: MessageReceiver, requests: mpsc::Sender<Request>) {
        loop {
            let request = incoming.next().await;
            if request.header.msg_type == "kernel_info_request" && !self.started.load(Ordering::Acquire) {
                let content = self.kernel_info.reply();
                let reply = self.replies.reply_async(&request, "kernel_info_reply", &content);
                self.iopub.with_busy_status(&request.header, reply).await;
            } else if requests.send(request).await.is_err() {
                return;
            }
        }
    }
}

/// The task that reads the control channel.
struct ControlChannel {
    replies: ReplySender,
    iopub: IopubPublisher,
    kernel_info: Arc<KernelInfo>,
    control: Control,
}

impl ControlChannel {
    async fn read(self, mut incoming: MessageReceiver) {
        loop {
            let request = incoming.next().await;
            self.iopub.with_busy_status(&request.header, self.answer(&request)).await;
            if request.header.msg_type == "shutdown_request" {
                self.control.shut_down();
            }
        }
    }

    async fn answer(&self, request: &Request) {
        match request.header.msg_type.as_str() {
            "interrupt_request" => {
                self.control.interrupt();
                self.replies.reply_async(request, "interrupt_reply", &InterruptReply::new()).await;
            }
            "shutdown_request" => {
                let reply = shutdown_reply(request);
                self.replies.reply_async(request, "shutdown_reply", &reply).await;
                self.iopub.publish_async("shutdown_reply", Some(&request.header), &reply).await;
            }
            "kernel_info_request" => {
                self.replies.reply_async(request, "kernel_info_reply", &self.kernel_info.reply()).await;
            }
            kind => tracing::debug!(kind, "unsupported request on the control channel"),
        }
    }
}

/// Returns the reply to a `shutdown_request`, even if its content is invalid.
pub(crate) fn shutdown_reply(request: &Request) -> ShutdownReply {
    let content: ShutdownRequest = serde_json::from_value(request.content.clone()).unwrap_or_default();
    ShutdownReply { restart: content.restart, status: ReplyStatus::Ok, error: None }
}

/// Echoes each message, by which frontends check that the process is alive.
async fn run_heartbeat(mut socket: RepSocket) {
    loop {
        match socket.recv().await {
            Ok(message) => {
                if let Err(error) = socket.send(message).await {
                    tracing::debug!(%error, "failed to send to a frontend");
                }
            }
            Err(_) => tokio::time::sleep(ERROR_RETRY_INTERVAL).await,
        }
    }
}

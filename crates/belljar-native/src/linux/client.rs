//! The four ZMTP connections to one kernel.

use std::io::ErrorKind;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use belljar_core::kernel::{CellRequest, ShellRequest};
use belljar_network::Scrubber;
use jupyter_protocol::{
    CompleteRequest, ExecuteRequest, InputReply, InspectRequest, InterruptRequest, IsCompleteRequest,
    JupyterMessageContent, KernelInfoRequest,
};
use nix::poll::PollFlags;
use serde_json::{Value, json};

use crate::linux::kernel_process::KernelProcess;
use crate::linux::zmtp::ZmtpError;
use crate::linux::zmtp::message::{ReceivedMessage, SigningKey};
use crate::linux::zmtp::path::connect_in;
use crate::linux::zmtp::peer::{Peer, Role, wait_for};

/// The time within which a kernel must read a message.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);
/// The interval at which `kernel_info_request` is repeated: a kernel drops iopub messages of before the subscription.
const KERNEL_INFO_RETRY: Duration = Duration::from_millis(200);
/// The number of invalid messages that one call of [`Client::receive`] drops at most.
const MAX_SKIPPED_MESSAGES: usize = 100;

/// A channel that the client is connected to. Its number is ipykernel's port, which is the suffix of the socket's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Channel {
    Shell = 1,
    Iopub = 2,
    Stdin = 3,
    Control = 4,
}

/// Returns the content of ipykernel's connection file, for sockets in a directory inside the sandbox.
pub(crate) fn connection_info(directory: &str, key: &SigningKey) -> Value {
    json!({
        "transport": "ipc",
        "ip": format!("{directory}/k"),
        "shell_port": Channel::Shell as u8,
        "iopub_port": Channel::Iopub as u8,
        "stdin_port": Channel::Stdin as u8,
        "control_port": Channel::Control as u8,
        "hb_port": 5,
        "signature_scheme": "hmac-sha256",
        "key": key.text(),
    })
}

/// The client of a kernel that is ready.
pub(crate) struct Client {
    key: SigningKey,
    session: String,
    shell: Peer,
    iopub: Peer,
    stdin: Peer,
    control: Peer,
    /// Removes secrets from what the kernel sends, but for streams.
    scrubber: Scrubber,
}

impl Client {
    /// Connects to a kernel that is starting, and waits until it is ready.
    ///
    /// # Errors
    /// Returns an error if the kernel exits, or is not ready before `deadline`.
    pub(crate) fn connect(
        directory: BorrowedFd<'_>,
        key: SigningKey,
        process: &KernelProcess,
        deadline: Instant,
    ) -> Result<Self, ZmtpError> {
        let session = uuid::Uuid::new_v4().simple().to_string();
        let peer = |channel: Channel| -> Result<Peer, ZmtpError> {
            let name = format!("k-{}", channel as u8);
            let role = if channel == Channel::Iopub { Role::Subscriber } else { Role::Dealer };
            loop {
                match connect_in(directory, &name) {
                    Ok(stream) => return Peer::handshake(stream, role, &session, deadline),
                    Err(error)
                        if matches!(
                            error.kind(),
                            ErrorKind::NotFound | ErrorKind::ConnectionRefused | ErrorKind::WouldBlock
                        ) => {}
                    Err(error) => return Err(error.into()),
                }
                if process.wait_until(Instant::now() + Duration::from_millis(1)) {
                    return Err(ZmtpError::Closed);
                }
                if Instant::now() > deadline {
                    return Err(ZmtpError::Timeout("create its sockets"));
                }
            }
        };
        let (shell, iopub) = (peer(Channel::Shell)?, peer(Channel::Iopub)?);
        let (stdin, control) = (peer(Channel::Stdin)?, peer(Channel::Control)?);
        let scrubber = Scrubber::default();
        let mut client = Self { key, session, shell, iopub, stdin, control, scrubber };
        client.wait_until_ready(process, deadline)?;
        Ok(client)
    }

    /// Removes secrets from all messages that are received from now on, but for those of streams.
    pub(crate) fn scrub(&mut self, scrubber: Scrubber) {
        self.scrubber = scrubber;
    }

    /// Returns the scrubber of secrets.
    pub(crate) fn scrubber(&self) -> &Scrubber {
        &self.scrubber
    }

    /// Sends `kernel_info_request` until the kernel has replied on the shell and has published anything on iopub.
    fn wait_until_ready(&mut self, process: &KernelProcess, deadline: Instant) -> Result<(), ZmtpError> {
        let (mut has_replied, mut has_published) = (false, false);
        while !(has_replied && has_published) {
            self.send(Channel::Shell, KernelInfoRequest {}.into())?;
            let retry_at = Instant::now() + KERNEL_INFO_RETRY;
            while !(has_replied && has_published) && Instant::now() < retry_at {
                let ready = self.wait(&[process.exit_fd()], retry_at.min(deadline))?;
                has_replied |= self.receive(Channel::Shell)?.is_some_and(|message| message.kind == "kernel_info_reply");
                has_published |= self.receive(Channel::Iopub)?.is_some();
                if ready[0] {
                    return Err(ZmtpError::Closed);
                }
                if Instant::now() > deadline {
                    return Err(ZmtpError::Timeout("answer"));
                }
            }
        }
        Ok(())
    }

    /// Waits until a message may have arrived, or one of these descriptors is ready. Returns for each of them whether
    /// it is ready.
    ///
    /// # Errors
    /// Returns an error if `poll` fails.
    pub(crate) fn wait(&self, others: &[BorrowedFd<'_>], deadline: Instant) -> Result<Vec<bool>, ZmtpError> {
        let own = [&self.shell, &self.iopub, &self.stdin, &self.control].map(Peer::poll_fd);
        let all: Vec<_> = others.iter().copied().chain(own).map(|one| (one, PollFlags::POLLIN)).collect();
        let mut ready = wait_for(&all, deadline)?;
        ready.truncate(others.len());
        Ok(ready)
    }

    /// Returns the next message of a channel if one has arrived. Messages that are not of this session are dropped.
    ///
    /// # Errors
    /// Returns an error if the connection has ended, or the kernel exceeds a bound.
    pub(crate) fn receive(&mut self, channel: Channel) -> Result<Option<ReceivedMessage>, ZmtpError> {
        // Bounded, so that a flood of invalid messages does not keep the other channels from being served.
        for _ in 0..MAX_SKIPPED_MESSAGES {
            let Some(parts) = self.peer(channel).receive()? else { return Ok(None) };
            match self.key.verify(parts) {
                Ok(mut message) => {
                    // In streams, secrets may arrive in parts: see `CellOutput`.
                    if message.kind != "stream" {
                        message.scrub(&self.scrubber);
                    }
                    return Ok(Some(message));
                }
                Err(reason) => tracing::debug!(?reason, ?channel, "dropped a kernel's message"),
            }
        }
        Ok(None)
    }

    /// Returns the number of bytes that have arrived on iopub.
    pub(crate) fn received_bytes(&self) -> u64 {
        self.iopub.received_bytes()
    }

    /// Sends a cell to be run; a silent one does not get a number. Returns the request's id.
    ///
    /// # Errors
    /// Returns an error if the kernel does not read the request.
    pub(crate) fn execute(&mut self, cell: &CellRequest, silent: bool) -> Result<String, ZmtpError> {
        let mut request = ExecuteRequest::new(cell.code.clone());
        request.allow_stdin = true;
        request.silent = silent || cell.silent;
        request.store_history = !request.silent && cell.store_history;
        self.send(Channel::Shell, request.into())
    }

    /// Sends a request to the shell. Returns the request's id, and the type of the message that is its reply.
    ///
    /// # Errors
    /// Returns an error if the kernel does not read the request.
    pub(crate) fn send_shell_request(&mut self, question: &ShellRequest) -> Result<(String, &'static str), ZmtpError> {
        // ipykernel does not reply to a position behind the end of the code.
        let within = |code: &str, cursor: usize| cursor.min(code.chars().count());
        let (request, reply_kind): (JupyterMessageContent, _) = match question.clone() {
            ShellRequest::Complete { code, cursor } => {
                (CompleteRequest { cursor_pos: within(&code, cursor), code }.into(), "complete_reply")
            }
            ShellRequest::Inspect { code, cursor, detail } => {
                let (cursor_pos, detail_level) = (within(&code, cursor), Some(detail.into()));
                (InspectRequest { code, cursor_pos, detail_level }.into(), "inspect_reply")
            }
            ShellRequest::IsComplete { code } => (IsCompleteRequest { code }.into(), "is_complete_reply"),
            ShellRequest::UserExpressions { expressions } => {
                // Expressions are evaluated by an empty cell, which is not recorded.
                let mut request = ExecuteRequest::new(String::new());
                request.silent = true;
                request.store_history = false;
                request.allow_stdin = false;
                request.stop_on_error = false;
                request.user_expressions = Some(expressions.into_iter().collect());
                (request.into(), "execute_reply")
            }
        };
        Ok((self.send(Channel::Shell, request)?, reply_kind))
    }

    /// Replies to an input request of a cell.
    ///
    /// # Errors
    /// Returns an error if the kernel does not read the reply.
    pub(crate) fn send_input_reply(&mut self, value: String) -> Result<(), ZmtpError> {
        self.send(Channel::Stdin, InputReply { value, ..InputReply::default() }.into()).map(drop)
    }

    /// Asks the kernel to interrupt itself and its child processes.
    ///
    /// # Errors
    /// Returns an error if the kernel does not read the request.
    pub(crate) fn send_interrupt_request(&mut self) -> Result<(), ZmtpError> {
        self.send(Channel::Control, InterruptRequest {}.into()).map(drop)
    }

    fn send(&mut self, channel: Channel, content: JupyterMessageContent) -> Result<String, ZmtpError> {
        let (id, parts) = self.key.sign(&self.session, content);
        self.peer(channel).send(&parts, Instant::now() + SEND_TIMEOUT)?;
        Ok(id)
    }

    fn peer(&mut self, channel: Channel) -> &mut Peer {
        match channel {
            Channel::Shell => &mut self.shell,
            Channel::Iopub => &mut self.iopub,
            Channel::Stdin => &mut self.stdin,
            Channel::Control => &mut self.control,
        }
    }
}

/// A fake kernel at the other end of real sockets, whose replies a test chooses.
#[cfg(test)]
pub(crate) mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsFd as _;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::sync::Arc;

    use super::*;
    use crate::linux::kernel_process::ExitSource;
    use crate::linux::zmtp::frame::{self, Decoder, GREETING_LEN, Incoming};
    use crate::linux::zmtp::message::tests::signed;
    use crate::linux::zmtp::path::open_directory;
    use belljar_sandbox::Channel;

    /// A function from the id of a shell request to the messages that follow it: kind, parent and content of each. A
    /// `stream` goes to iopub, and a kind that begins with a NUL is a frame that breaks the protocol.
    pub(crate) type Reply = Box<dyn Fn(&str) -> Vec<(&'static str, String, String)> + Send>;

    pub(crate) struct Kernel {
        pub(crate) client: Client,
        pub(crate) process: Arc<KernelProcess>,
        _directory: tempfile::TempDir,
    }

    impl Kernel {
        /// Starts a kernel. Its process sleeps and ignores `SIGINT`.
        pub(crate) fn start(reply: Reply) -> Self {
            let root = tempfile::tempdir().unwrap();
            let listeners = [1, 2, 3, 4].map(|port| UnixListener::bind(root.path().join(format!("k-{port}"))).unwrap());
            let key = SigningKey::random();
            let kernel_key = key.clone();
            std::thread::spawn(move || serve(&listeners, &kernel_key, &reply));
            let ignoring_interrupts = ["-c", "trap '' INT; exec sleep 300"];
            let mut child = std::process::Command::new("sh").args(ignoring_interrupts).spawn().unwrap();
            let pid = rustix::process::Pid::from_child(&child);
            let descriptor = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
            std::thread::spawn(move || child.wait());
            let (exit_channel, _) = Channel::pair().unwrap();
            let process = Arc::new(KernelProcess::new(descriptor, None, ExitSource::Zygote(exit_channel)));
            let directory = open_directory(root.path()).unwrap();
            let deadline = Instant::now() + Duration::from_secs(60);
            let client = Client::connect(directory.as_fd(), key, &process, deadline).unwrap();
            Self { client, process, _directory: root }
        }
    }

    impl Drop for Kernel {
        fn drop(&mut self) {
            self.process.kill();
        }
    }

    /// Performs the handshake on all four sockets, and replies on the shell until the client disconnects.
    fn serve(listeners: &[UnixListener; 4], key: &SigningKey, reply: &Reply) {
        let mut streams: Vec<UnixStream> = listeners.iter().map(accept).collect();
        let (shell, others) = streams.split_first_mut().unwrap();
        let iopub = &mut others[0];
        let mut decoder = Decoder::default();
        let mut bytes = [0; 4096];
        loop {
            match shell.read(&mut bytes) {
                Ok(read) if read > 0 => decoder.feed(&bytes[..read]),
                _ => return,
            }
            while let Some(Incoming::Message(parts)) = decoder.next().unwrap() {
                let header: Value = serde_json::from_slice(&parts[2]).unwrap();
                let id = header["msg_id"].as_str().unwrap();
                let mut messages = vec![("status", id.to_owned(), r#"{"execution_state": "busy"}"#.to_owned())];
                if header["msg_type"] == "kernel_info_request" {
                    messages.push(("kernel_info_reply", id.to_owned(), "{}".to_owned()));
                } else {
                    messages.extend(reply(id));
                }
                for (kind, parent, content) in messages {
                    let stream = if matches!(kind, "status" | "stream") { &mut *iopub } else { &mut *shell };
                    let frames = if kind.starts_with('\0') {
                        [2].into_iter().chain([0xff; 8]).collect()
                    } else {
                        frame::encode(&signed(key, kind, &parent, content.as_bytes()))
                    };
                    // The client disconnects when its test has ended.
                    if stream.write_all(&frames).is_err() {
                        return;
                    }
                }
            }
        }
    }

    fn accept(listener: &UnixListener) -> UnixStream {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&frame::greeting()).unwrap();
        stream.write_all(&frame::ready("ROUTER", "")).unwrap();
        let mut greeting = [0; GREETING_LEN];
        stream.read_exact(&mut greeting).unwrap();
        // READY: a command of less than 256 bytes.
        let mut head = [0; 2];
        stream.read_exact(&mut head).unwrap();
        stream.read_exact(&mut vec![0; usize::from(head[1])]).unwrap();
        stream
    }
}

//! The four connections to one kernel.

use std::io::ErrorKind;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use belljar_core::kernel::{CellRequest, Question};
use jupyter_protocol::{
    CompleteRequest, ExecuteRequest, InputReply, InspectRequest, InterruptRequest, IsCompleteRequest,
    JupyterMessageContent, KernelInfoRequest,
};
use nix::poll::PollFlags;
use serde_json::{Value, json};

use crate::native::nursery::Process;
use crate::native::wire::WireError;
use crate::native::wire::message::{Key, Received};
use crate::native::wire::path::connect_in;
use crate::native::wire::peer::{Peer, Role, wait_for};

/// How long a kernel may take to take a message.
const PATIENCE: Duration = Duration::from_secs(5);
/// After so long without an answer a question is put again: what iopub says before it knows of us is lost.
const AGAIN: Duration = Duration::from_millis(200);
/// Messages that are left aside at once.
const MOST_UNUSABLE: usize = 100;

/// The connections that are listened to. Their numbers are ipykernel's ports, which are endings of sockets' names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Channel {
    Shell = 1,
    Iopub = 2,
    Stdin = 3,
    Control = 4,
}

/// What ipykernel takes for a connection file, with sockets of these names in a folder inside of the sandbox.
pub(crate) fn connection(folder: &str, key: &Key) -> Value {
    json!({
        "transport": "ipc",
        "ip": format!("{folder}/k"),
        "shell_port": Channel::Shell as u8,
        "iopub_port": Channel::Iopub as u8,
        "stdin_port": Channel::Stdin as u8,
        "control_port": Channel::Control as u8,
        "hb_port": 5,
        "signature_scheme": "hmac-sha256",
        "key": key.text(),
    })
}

/// A kernel that answers.
pub(crate) struct Client {
    key: Key,
    session: String,
    shell: Peer,
    iopub: Peer,
    stdin: Peer,
    control: Peer,
}

impl Client {
    /// Connects to a kernel that is starting, and waits until it answers.
    ///
    /// # Errors
    /// When it ends before, or is not there in time.
    pub(crate) fn connect(
        folder: BorrowedFd<'_>,
        key: Key,
        process: &Process,
        until: Instant,
    ) -> Result<Self, WireError> {
        let session = uuid::Uuid::new_v4().simple().to_string();
        let peer = |channel: Channel| -> Result<Peer, WireError> {
            let name = format!("k-{}", channel as u8);
            let role = if channel == Channel::Iopub { Role::Subscriber } else { Role::Dealer };
            loop {
                match connect_in(folder, &name) {
                    Ok(stream) => return Peer::greet(stream, role, &session, until),
                    Err(error)
                        if matches!(
                            error.kind(),
                            ErrorKind::NotFound | ErrorKind::ConnectionRefused | ErrorKind::WouldBlock
                        ) => {}
                    Err(error) => return Err(error.into()),
                }
                if process.ends_before(Instant::now() + Duration::from_millis(1)) {
                    return Err(WireError::Closed);
                }
                if Instant::now() > until {
                    return Err(WireError::Late("become ready"));
                }
            }
        };
        let (shell, iopub) = (peer(Channel::Shell)?, peer(Channel::Iopub)?);
        let (stdin, control) = (peer(Channel::Stdin)?, peer(Channel::Control)?);
        let mut client = Self { key, session, shell, iopub, stdin, control };
        client.greet(process, until)?;
        Ok(client)
    }

    /// Asks who it is, until it has answered on the shell, and said anything at all on iopub.
    fn greet(&mut self, process: &Process, until: Instant) -> Result<(), WireError> {
        let (mut answered, mut heard) = (false, false);
        while !(answered && heard) {
            self.send(Channel::Shell, KernelInfoRequest {}.into())?;
            let again = Instant::now() + AGAIN;
            while !(answered && heard) && Instant::now() < again {
                let ready = self.wait(&[process.death()], again.min(until))?;
                answered |= self.next(Channel::Shell)?.is_some_and(|message| message.kind == "kernel_info_reply");
                heard |= self.next(Channel::Iopub)?.is_some();
                if ready[0] {
                    return Err(WireError::Closed);
                }
                if Instant::now() > until {
                    return Err(WireError::Late("answer"));
                }
            }
        }
        Ok(())
    }

    /// Waits until a message may have come, or one of these is ready; answers which of these are.
    ///
    /// # Errors
    /// When the system cannot wait.
    pub(crate) fn wait(&self, others: &[BorrowedFd<'_>], until: Instant) -> Result<Vec<bool>, WireError> {
        let own = [&self.shell, &self.iopub, &self.stdin, &self.control].map(Peer::readiness);
        let all: Vec<_> = others.iter().copied().chain(own).map(|one| (one, PollFlags::POLLIN)).collect();
        let mut ready = wait_for(&all, until)?;
        ready.truncate(others.len());
        Ok(ready)
    }

    /// The next message on a channel, if one has come. What is no message of this session's is left out.
    ///
    /// # Errors
    /// When the connection has ended, or the kernel exceeds a bound.
    pub(crate) fn next(&mut self, channel: Channel) -> Result<Option<Received>, WireError> {
        // Others get their turn however many of them come.
        for _ in 0..MOST_UNUSABLE {
            let Some(parts) = self.peer(channel).receive()? else { return Ok(None) };
            match self.key.open(parts) {
                Ok(message) => return Ok(Some(message)),
                Err(reason) => tracing::debug!(?reason, ?channel, "a kernel's message is left aside"),
            }
        }
        Ok(None)
    }

    /// Bytes that came on iopub so far.
    pub(crate) fn received(&self) -> u64 {
        self.iopub.received()
    }

    /// Has a cell run, perhaps one that has no number; answers the request's id.
    ///
    /// # Errors
    /// When the kernel does not take it.
    pub(crate) fn execute(&mut self, cell: &CellRequest, silent: bool) -> Result<String, WireError> {
        let mut request = ExecuteRequest::new(cell.code.clone());
        request.allow_stdin = true;
        request.silent = silent || cell.silent;
        request.store_history = !(request.silent || cell.off_record);
        self.send(Channel::Shell, request.into())
    }

    /// Asks the shell something; answers the request's id, and what kind of message its answer is.
    ///
    /// # Errors
    /// When the kernel does not take it.
    pub(crate) fn put(&mut self, question: &Question) -> Result<(String, &'static str), WireError> {
        // ipykernel gives no answer for a place that is not there.
        let within = |code: &str, cursor: usize| cursor.min(code.chars().count());
        let (request, answer): (JupyterMessageContent, _) = match question.clone() {
            Question::Complete { code, cursor } => {
                (CompleteRequest { cursor_pos: within(&code, cursor), code }.into(), "complete_reply")
            }
            Question::Inspect { code, cursor, detail } => {
                let (cursor_pos, detail_level) = (within(&code, cursor), Some(detail.into()));
                (InspectRequest { code, cursor_pos, detail_level }.into(), "inspect_reply")
            }
            Question::IsComplete { code } => (IsCompleteRequest { code }.into(), "is_complete_reply"),
            Question::Aftermath { expressions } => {
                // A cell of nothing, which leaves no trace.
                let mut request = ExecuteRequest::new(String::new());
                request.silent = true;
                request.store_history = false;
                request.allow_stdin = false;
                request.stop_on_error = false;
                request.user_expressions = Some(expressions.into_iter().collect());
                (request.into(), "execute_reply")
            }
        };
        Ok((self.send(Channel::Shell, request)?, answer))
    }

    /// Answers a question of a cell.
    ///
    /// # Errors
    /// When the kernel does not take it.
    pub(crate) fn answer(&mut self, value: String) -> Result<(), WireError> {
        self.send(Channel::Stdin, InputReply { value, ..InputReply::default() }.into()).map(drop)
    }

    /// Asks the kernel to interrupt itself, and what it has started.
    ///
    /// # Errors
    /// When the kernel does not take it.
    pub(crate) fn ask_to_interrupt(&mut self) -> Result<(), WireError> {
        self.send(Channel::Control, InterruptRequest {}.into()).map(drop)
    }

    fn send(&mut self, channel: Channel, content: JupyterMessageContent) -> Result<String, WireError> {
        let (id, parts) = self.key.seal(&self.session, content);
        self.peer(channel).send(&parts, Instant::now() + PATIENCE)?;
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

/// A kernel at the other end of real sockets, which says what a test wants.
#[cfg(test)]
pub(crate) mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsFd as _;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::sync::Arc;

    use super::*;
    use crate::native::nursery::Teller;
    use crate::native::sandbox::Channel;
    use crate::native::wire::frame::{self, Decoder, GREETING, Incoming};
    use crate::native::wire::message::tests::signed;
    use crate::native::wire::path::open_folder;

    /// What is said on the shell to a question with this id: kind, parent and content. A `stream` goes to iopub, and a
    /// kind that begins with a NUL is a frame that breaks the protocol.
    pub(crate) type Reply = Box<dyn Fn(&str) -> Vec<(&'static str, String, String)> + Send>;

    pub(crate) struct Kernel {
        pub(crate) client: Client,
        pub(crate) process: Arc<Process>,
        _folder: tempfile::TempDir,
    }

    impl Kernel {
        /// Starts one. Its process is one that does nothing, not even for an interrupt.
        pub(crate) fn start(reply: Reply) -> Self {
            let place = tempfile::tempdir().unwrap();
            let listeners =
                [1, 2, 3, 4].map(|port| UnixListener::bind(place.path().join(format!("k-{port}"))).unwrap());
            let key = Key::random();
            let theirs = key.clone();
            std::thread::spawn(move || serve(&listeners, &theirs, &reply));
            let deaf = ["-c", "trap '' INT; exec sleep 300"];
            let mut child = std::process::Command::new("sh").args(deaf).spawn().unwrap();
            let number = rustix::process::Pid::from_child(&child);
            let descriptor = rustix::process::pidfd_open(number, rustix::process::PidfdFlags::empty()).unwrap();
            std::thread::spawn(move || child.wait());
            let (teller, _) = Channel::pair().unwrap();
            let process = Arc::new(Process::new(descriptor, None, Teller::Nursery(teller)));
            let folder = open_folder(place.path()).unwrap();
            let until = Instant::now() + Duration::from_secs(20);
            let client = Client::connect(folder.as_fd(), key, &process, until).unwrap();
            Self { client, process, _folder: place }
        }
    }

    impl Drop for Kernel {
        fn drop(&mut self) {
            self.process.kill();
        }
    }

    /// Shakes hands on all four, and answers on the shell until the client is gone.
    fn serve(listeners: &[UnixListener; 4], key: &Key, reply: &Reply) {
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
                let mut said = vec![("status", id.to_owned(), r#"{"execution_state": "busy"}"#.to_owned())];
                if header["msg_type"] == "kernel_info_request" {
                    said.push(("kernel_info_reply", id.to_owned(), "{}".to_owned()));
                } else {
                    said.extend(reply(id));
                }
                for (kind, parent, content) in said {
                    let stream = if matches!(kind, "status" | "stream") { &mut *iopub } else { &mut *shell };
                    let frames = if kind.starts_with('\0') {
                        [2].into_iter().chain([0xff; 8]).collect()
                    } else {
                        frame::encode(&signed(key, kind, &parent, content.as_bytes()))
                    };
                    // The client is gone when it has heard enough.
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
        let mut greeting = [0; GREETING];
        stream.read_exact(&mut greeting).unwrap();
        // READY: a command of less than 256 bytes.
        let mut head = [0; 2];
        stream.read_exact(&mut head).unwrap();
        stream.read_exact(&mut vec![0; usize::from(head[1])]).unwrap();
        stream
    }
}

//! The kernel of a session: a process in its home, and the connections to it.

use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_core::files::{FileError, FileInfo, Range};
use belljar_core::kernel::{
    Audience, CellRequest, End, Executed, Interrupt, Kernel, KernelError, Output, Question, Saved, Silent,
};
use belljar_core::progress::Progress;
use serde_json::{Value, json};

use crate::native::backend::Shared;
use crate::native::cell::{self, Bounds, Loss, Stage};
use crate::native::client::Client;
use crate::native::home::{Ground, Home, START};
use crate::native::nursery::{Nursery, Process, Status};
use crate::native::question::{self, Unanswered};
use crate::native::switch::{Switch, Wish};
use crate::native::wire::message::Key;

/// How long a killed process may take to end.
const END: Duration = Duration::from_secs(5);
/// `SIGKILL`.
const KILLED: i32 = 9;

/// A process and what leads to it.
pub(crate) struct Life {
    process: Arc<Process>,
    client: Client,
    switch: Arc<Switch>,
    /// It buries the process.
    _nursery: Option<Arc<Nursery>>,
}

impl Life {
    /// Starts a kernel in a home that has none, and waits until it answers.
    ///
    /// # Errors
    /// In words.
    pub(crate) fn begin(ground: &Ground, home: &mut Home, nursery: Option<Arc<Nursery>>) -> Result<Self, String> {
        let until = Instant::now() + START;
        let key = Key::random();
        let process = Arc::new(home.start(ground, nursery.as_deref(), &key, until)?);
        let client = Client::connect(home.sockets().as_fd(), key, &process, until).map_err(|error| {
            let ended = process.ends_before(Instant::now() + Duration::from_millis(100));
            if ended {
                format!("the kernel ended while it started ({:?})", process.status())
            } else {
                error.to_string()
            }
        })?;
        let switch = Switch::new(process.clone()).map_err(|error| error.to_string())?;
        Ok(Self { process, client, switch: Arc::new(switch), _nursery: nursery })
    }

    /// Whether the process is there.
    pub(crate) fn is_alive(&self) -> bool {
        !self.process.has_ended()
    }

    /// Runs what first cells run, so that they find it done.
    pub(crate) fn warm_up(&mut self, home: &mut Home) -> Result<(), String> {
        let cell = CellRequest { code: "1\nNone".into(), ..CellRequest::default() };
        let stage =
            Stage { client: &mut self.client, process: &self.process, switch: &self.switch, broker: home.broker() };
        let bounds =
            Bounds { time: Some(START), processor: None, grace: Duration::ZERO, output: 1 << 20, silent: true };
        let silent: Arc<dyn Audience> = Arc::new(Silent);
        cell::run(stage, &cell, &silent, bounds, 0).map(drop).map_err(|_| "the kernel does not run cells".to_owned())
    }
}

/// A session's kernel.
pub(crate) struct NativeKernel {
    shared: Arc<Shared>,
    // Before the home: the process goes first.
    life: Life,
    home: Home,
    count: u64,
    /// What the last cell has left for a frontend.
    payloads: Vec<Value>,
}

impl NativeKernel {
    pub(crate) fn new(shared: Arc<Shared>, life: Life, home: Home) -> Self {
        Self { shared, life, home, count: 0, payloads: Vec::new() }
    }

    /// Why an interpreter is gone that ended by itself.
    fn death(&mut self) -> String {
        self.life.process.ends_before(Instant::now() + END);
        let memory = self.shared.ground.limits.memory;
        let over_memory =
            || format!("MemoryLimit: the session took more than {memory} bytes of memory (--session-memory)");
        match self.life.process.status() {
            Status::OverMemory => over_memory(),
            Status::Signalled(_) | Status::Unknown if self.home.exceeded_memory() => over_memory(),
            Status::Exited(status) => format!("SystemExit: the cell ended its interpreter with status {status}"),
            Status::Signalled(KILLED) => {
                "Crash: the interpreter was killed (signal 9), by its own code or because the machine has no memory left".into()
            }
            Status::Signalled(signal) => format!("Crash: the cell broke its interpreter: signal {signal}{}", name(signal)),
            Status::Unknown => "Crash: the interpreter ended".into(),
        }
    }
}

/// What a signal that ends programs is called.
fn name(signal: i32) -> &'static str {
    match signal {
        libc::SIGSEGV => " (SIGSEGV, a wild pointer)",
        libc::SIGABRT => " (SIGABRT, it gave itself up)",
        libc::SIGBUS => " (SIGBUS)",
        libc::SIGFPE => " (SIGFPE)",
        libc::SIGILL => " (SIGILL)",
        libc::SIGSYS => " (SIGSYS, a system call that is not allowed)",
        libc::SIGXFSZ => " (SIGXFSZ, a file became too long)",
        _ => "",
    }
}

impl Kernel for NativeKernel {
    fn execute(&mut self, cell: &CellRequest, audience: Arc<dyn Audience>) -> Executed {
        let limits = &self.shared.ground.limits;
        let time = match (cell.timeout, limits.wall_time) {
            (Some(asked), Some(most)) => Some(asked.min(most)),
            (asked, most) => asked.or(most),
        };
        let (processor, grace) = (limits.cpu_time, self.shared.grace);
        let bounds = Bounds { time, processor, grace, output: limits.output, silent: false };
        let Life { process, client, switch, .. } = &mut self.life;
        let stage = Stage { client, process, switch, broker: self.home.broker() };
        self.payloads.clear();
        match cell::run(stage, cell, &audience, bounds, self.count) {
            Ok((executed, payloads)) => {
                self.count = executed.count;
                self.payloads = payloads;
                executed
            }
            Err((loss, outputs)) => {
                let reason = match loss {
                    Loss::Because(reason) => reason,
                    Loss::Ended => self.death(),
                };
                self.count = self.count.saturating_add(1);
                Executed { count: self.count, end: End::Died(reason), outputs: outputs as Vec<Output> }
            }
        }
    }

    fn ask(&mut self, question: &Question) -> Result<Value, KernelError> {
        let payloads = match question {
            Question::Aftermath { expressions } => {
                let payloads = std::mem::take(&mut self.payloads);
                if expressions.is_empty() {
                    return Ok(json!({ "payload": payloads, "user_expressions": {} }));
                }
                Some(payloads)
            }
            _ => None,
        };
        let Life { process, client, switch, .. } = &mut self.life;
        let answer = question::ask(client, process, switch, question, question::PATIENCE);
        let mut answer = answer.map_err(|unanswered| {
            KernelError::Failed(match unanswered {
                Unanswered::Because(reason) => reason,
                Unanswered::Ended => self.death(),
            })
        })?;
        Ok(match payloads {
            Some(payloads) => json!({ "payload": payloads, "user_expressions": answer["user_expressions"].take() }),
            None => answer,
        })
    }

    fn install(&mut self, packages: &[String], progress: &dyn Progress) -> Result<(), KernelError> {
        let switch = &self.life.switch;
        let given_up = || switch.take() != Wish::Nothing;
        self.home.broker().install(packages, progress, &given_up).map_err(KernelError::Refused)
    }

    fn interrupter(&self) -> Arc<dyn Interrupt> {
        self.life.switch.clone()
    }

    fn restart(&mut self) -> Result<(), KernelError> {
        self.life.process.kill();
        self.life.process.ends_before(Instant::now() + END);
        self.home.vacate().map_err(KernelError::Failed)?;
        self.life = self.shared.life(&mut self.home).map_err(KernelError::Failed)?;
        self.count = 0;
        self.payloads.clear();
        Ok(())
    }

    fn fork(&mut self) -> Result<Box<dyn Kernel>, KernelError> {
        Err(KernelError::Unsupported(
            "a native kernel cannot be copied: make a new session and run the cells again, or serve with the WebAssembly \
             sandbox"
                .into(),
        ))
    }

    fn save(&mut self) -> Result<Saved, KernelError> {
        Err(KernelError::Unsupported("a native kernel's state cannot be saved: it lives as long as the server".into()))
    }

    fn files(&mut self) -> Vec<FileInfo> {
        self.home.folder().list()
    }

    fn read(&mut self, path: &str, range: Range) -> Result<Vec<u8>, FileError> {
        self.home.folder().read(path, range)
    }

    fn write(&mut self, path: &str, bytes: &[u8]) -> Result<(), FileError> {
        self.home.folder().write(path, bytes)
    }
}

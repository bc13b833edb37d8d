//! A sandbox that stands, as its owner sees it.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use serde::{Deserialize, Serialize};

use super::calls;
use super::channel::{Channel, MESSAGE_DESCRIPTORS, Order, Report, Task};
use super::control_group::ControlGroup;
use super::fork_server::{self, Launched};
use super::launcher::ORPHANS;
use super::{Error, Policy, Source, Spec};

/// How long setting up may take on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long the launcher has to bury the sandbox before it is killed, too.
const BURIAL: Duration = Duration::from_millis(200);

/// What the program's standard streams are. `None`: `/dev/null`.
#[derive(Debug, Default)]
pub struct Streams {
    /// Standard input.
    pub input: Option<OwnedFd>,
    /// Standard output. It should be a pipe: what else it is, the code can do to it what its descriptor allows.
    pub output: Option<OwnedFd>,
    /// Standard error, likewise.
    pub errors: Option<OwnedFd>,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ended {
    /// By itself, with this status.
    Exited(i32),
    /// By this signal.
    Signalled(i32),
    /// Killed with everything around it, because that took more memory than [allowed](super::Limits::memory_bytes).
    OverMemory,
    /// The sandbox was killed from outside.
    Killed,
}

impl Ended {
    /// From what `wait(2)` tells.
    pub(super) fn of(status: libc::c_int) -> Self {
        if libc::WIFEXITED(status) {
            Self::Exited(libc::WEXITSTATUS(status))
        } else {
            Self::Signalled(libc::WTERMSIG(status))
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => write!(formatter, "exited with status {status}"),
            Self::Signalled(signal) => write!(formatter, "was ended by signal {signal}"),
            Self::OverMemory => formatter.write_str("was killed: its processes took more memory than allowed"),
            Self::Killed => formatter.write_str("was killed with its sandbox"),
        }
    }
}

/// A sandbox that stands. Dropping it kills everything inside, and waits for that: with namespaces a fifth of a second at
/// most, without them some seconds if the code defends itself by forking.
#[derive(Debug)]
pub struct Sandbox {
    launcher: Launched,
    channel: Channel,
    /// The first process of the namespaces, if there are any.
    pub(super) first: Option<OwnedFd>,
    pub(super) rules: Option<OwnedFd>,
    program: Option<OwnedFd>,
    folders: HashMap<PathBuf, OwnedFd>,
    ended: Option<Ended>,
    over_memory: bool,
    pub(super) spec: Spec,
    /// Dropped after [`Self::kill`], when it is empty.
    pub(super) group: Option<ControlGroup>,
}

/// Makes a sandbox and, unless it [waits](Spec::waiting), starts its program. Returns when the program runs.
///
/// Blocks for a few milliseconds. The first call also starts the fork server. May be called from any thread; that
/// thread may end before the sandbox does.
///
/// # Errors
///
/// [`Error::Specification`] for a description that makes no sense; [`Error::Step`] with the step that failed and what
/// to do about it.
pub fn spawn(spec: &Spec, policy: Policy, streams: Streams) -> Result<Sandbox, Error> {
    spec.check()?;
    if policy != Policy::Full && spec.arguments.is_empty() {
        return Err(Error::Specification("a sandbox that waits has namespaces; this one was to have none".to_owned()));
    }
    let (channel, theirs) = Channel::pair().map_err(Error::doing("making a socket"))?;
    let nothing = File::options().write(true).open("/dev/null").map_err(Error::doing("opening /dev/null"))?;
    let output = streams.output.as_ref().map_or(nothing.as_fd(), AsFd::as_fd);
    let errors = streams.errors.as_ref().map_or(nothing.as_fd(), AsFd::as_fd);
    let launcher = fork_server::launch(theirs.as_fd(), output, errors)?;
    // The launcher's are the only ones now: when it ends, the other ends of all three are told.
    drop((theirs, streams.output, streams.errors));
    // From here on dropping it kills the launcher.
    let mut sandbox = Sandbox {
        launcher,
        channel,
        first: None,
        rules: None,
        program: None,
        folders: HashMap::new(),
        ended: None,
        over_memory: false,
        spec: spec.clone(),
        group: None,
    };
    if let Some(groups) = &spec.control_groups {
        // It waits for its task, and has started nothing yet.
        sandbox.group = Some(ControlGroup::make(groups, spec, sandbox.launcher.number)?);
    }
    sandbox.begin(policy, streams.input)?;
    Ok(sandbox)
}

impl Sandbox {
    fn begin(&mut self, policy: Policy, input: Option<OwnedFd>) -> Result<(), Error> {
        let telling = Error::doing("telling the launcher what to run");
        let task = Task { spec: self.spec.clone(), policy };
        let input: Vec<BorrowedFd<'_>> = input.iter().map(AsFd::as_fd).collect();
        match self.channel.send(&task, &input) {
            Ok(()) => {}
            // Why it ended is worth more than that it does not listen.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                return Err(Error::Specification(error.to_string()));
            }
            Err(error) => return Err(telling(error)),
        }
        self.set_patience(Some(PATIENCE))?;
        loop {
            match self.receive()? {
                Some((Report::Failed(failure), _)) => return Err(Error::Step(failure)),
                Some((Report::Begun, descriptors)) => self.first = descriptors.into_iter().next(),
                Some((Report::Standing { folders, program }, descriptors)) => {
                    let mut descriptors = descriptors.into_iter();
                    if policy == Policy::Full {
                        self.rules = descriptors.next();
                    }
                    if program {
                        self.program = descriptors.next();
                    }
                    self.folders = folders.into_iter().zip(descriptors).collect();
                    return self.set_patience(None);
                }
                Some((_, _)) => {}
                None => return Err(Error::Launcher("it did not say why".to_owned())),
            }
        }
    }

    fn set_patience(&self, patience: Option<Duration>) -> Result<(), Error> {
        set_socket_timeout(&self.channel, Timeout::Recv, patience)
            .map_err(|error| Error::System { doing: "setting a time-out", source: error.into() })
    }

    fn receive(&self) -> Result<Option<(Report, Vec<OwnedFd>)>, Error> {
        self.channel.receive(true).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => Error::Slow(PATIENCE),
            _ => Error::System { doing: "hearing from the launcher", source: error },
        })
    }

    /// The launcher's process number.
    #[must_use]
    pub fn launcher(&self) -> u32 {
        self.launcher.number
    }

    /// A descriptor that becomes readable when all is over, for `poll` and its like.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.launcher.descriptor.as_fd()
    }

    /// The program's process, as a descriptor (`pidfd_open(2)`). None if the sandbox waits.
    #[must_use]
    pub fn program(&self) -> Option<BorrowedFd<'_>> {
        self.program.as_ref().map(AsFd::as_fd)
    }

    /// The host's descriptor of a folder in [memory](Source::Memory), by its path inside. It outlives the sandbox.
    ///
    /// What is in there is the code's: links lead where it likes, and a pipe never ends. Open below it with
    /// `openat2(2)`, `RESOLVE_BENEATH`, `RESOLVE_NO_SYMLINKS` and `O_NONBLOCK`, and read regular files alone.
    #[must_use]
    pub fn folder(&self, inside: &Path) -> Option<BorrowedFd<'_>> {
        self.folders.get(inside).map(AsFd::as_fd)
    }

    /// Sends a signal to the program.
    ///
    /// # Errors
    ///
    /// If there is no program, or none any more.
    pub fn signal(&self, signal: i32) -> Result<(), Error> {
        let program = self.program.as_ref().ok_or_else(|| Error::Specification("nothing was started".to_owned()))?;
        calls::signal(program.as_fd(), signal).map_err(Error::doing("sending a signal"))
    }

    /// Kills all that runs inside, and keeps the sandbox with what is in its folders.
    ///
    /// # Errors
    ///
    /// If the sandbox is gone.
    pub fn empty(&mut self) -> Result<(), Error> {
        self.channel.send(&Order::Empty, &[]).map_err(Error::doing("telling the sandbox to empty itself"))?;
        self.set_patience(Some(PATIENCE))?;
        loop {
            match self.receive()? {
                Some((Report::Done, _)) => return self.set_patience(None),
                Some((report, _)) => self.note(&report),
                None => return Err(Error::Launcher("it ended before".to_owned())),
            }
        }
    }

    /// Whether all that ran was killed for taking too much memory, since this was last asked.
    #[must_use]
    pub fn exceeded_memory(&mut self) -> bool {
        while let Ok(Some((report, _))) = self.channel.receive::<Report>(false) {
            self.note(&report);
        }
        std::mem::take(&mut self.over_memory)
    }

    fn note(&mut self, report: &Report) {
        match report {
            Report::Ended(ended) => self.ended = Some(*ended),
            Report::OverMemory => self.over_memory = true,
            _ => {}
        }
    }

    /// Waits until all is over.
    ///
    /// # Errors
    ///
    /// If the system does not tell.
    pub fn wait(&mut self) -> Result<Ended, Error> {
        while let Some((report, _)) = self.receive()? {
            self.note(&report);
        }
        // A signal of ours may end the wait early.
        let ended = || calls::poll([(self.descriptor(), libc::POLLIN)], -1);
        while ended().map_err(Error::doing("waiting for the launcher"))? == [0] {}
        Ok(self.ended.unwrap_or(Ended::Killed))
    }

    /// Kills everything inside, and the sandbox.
    pub fn kill(&mut self) {
        let burial = |time: Duration| time.as_millis().try_into().unwrap_or(i32::MAX);
        if let Some(first) = &self.first {
            // The launcher then buries it and ends. All that can go wrong is that it is gone.
            let _ = calls::signal(first.as_fd(), libc::SIGKILL);
            let _ = calls::poll([(self.descriptor(), libc::POLLIN)], burial(BURIAL));
        } else if rustix::net::shutdown(&self.channel, rustix::net::Shutdown::Both).is_ok() {
            // No namespace ends with the launcher: it has to end what it has started, before it does.
            let _ = calls::poll([(self.descriptor(), libc::POLLIN)], burial(2 * ORPHANS));
        }
        // It may be gone by now. Killed, it is within moments.
        let _ = calls::signal(self.descriptor(), libc::SIGKILL);
        let _ = calls::poll([(self.descriptor(), libc::POLLIN)], burial(PATIENCE));
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.kill();
    }
}

/// How many folders in memory one sandbox has at most: their descriptors go in one message, with two others.
pub(super) const MOST_FOLDERS: usize = MESSAGE_DESCRIPTORS - 2;

/// Whether `source` is a folder whose descriptor comes to the host.
pub(super) fn is_in_memory(source: &Source) -> bool {
    matches!(source, Source::Memory { .. })
}

//! The fork server: this program, executed once more, from which all launchers are forked.
//!
//! A multi-threaded server cannot fork safely. Executing the program for each sandbox would take as long as all other
//! steps together; the fork server pays that cost once. It has one thread, no environment and none of the host's
//! memory, and it keeps no descriptor of a sandbox, so that a launcher never holds a descriptor of another launcher's
//! sandbox. It exits when the host does; launchers end independently of it (see [`crate::launcher`]).

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use serde::{Deserialize, Serialize};

use crate::channel::Channel;
use crate::error::Error;
use crate::launcher;
use crate::policy::IsolationLevel;
use crate::seccomp::Filters;
use crate::syscalls::{self, Fork};

/// The first argument of a process that is to become the fork server.
const ARGUMENT: &str = "__belljar-sandbox";

/// The executable of this process, even after its file was replaced by a newer one.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// The longest wait for a fork; a busy machine needs seconds.
const FORK_TIMEOUT: Duration = Duration::from_secs(60);

/// The exit status of a fork server that could not set up its own descriptors.
const SETUP_FAILED: i32 = 125;

/// A request to fork a launcher. The descriptors: its channel to the host, its standard output and standard error.
#[derive(Serialize, Deserialize)]
struct LaunchRequest {}

#[derive(Serialize, Deserialize)]
enum LaunchReply {
    /// The process ID of the launcher. Its pidfd goes with the message.
    Started(i32),
    /// The system's error.
    Failed(String),
}

/// The process of a launcher.
#[derive(Debug)]
pub(crate) struct LauncherProcess {
    pub(crate) pid: u32,
    pub(crate) pidfd: OwnedFd,
}

/// The host's handle of the fork server.
struct ForkServer {
    channel: Channel,
    process: Child,
}

/// The fork server of this process, which is started when the first sandbox is created.
static FORK_SERVER: Mutex<Option<ForkServer>> = Mutex::new(None);

/// The command that starts the fork server, if it is not this process's own program.
static COMMAND: OnceLock<Vec<OsString>> = OnceLock::new();

/// Sets the command that starts the fork server, for a process whose program is not built from this crate, such as a
/// Python interpreter. The command must call [`run_fork_server`] before it opens a file or starts a thread. The first
/// setting is kept.
pub fn set_fork_server_command(command: Vec<OsString>) {
    COMMAND.get_or_init(|| command);
}

/// Becomes the fork server and never returns: see [`set_fork_server_command`].
pub fn run_fork_server() {
    serve()
}

/// Becomes the fork server and never returns, if this process was started as one. A program that
/// [spawns](crate::spawn) sandboxes calls it first in `main`: before any file is opened or thread started.
pub fn run_fork_server_if_child() {
    if std::env::args_os().nth(1).is_some_and(|argument| argument == ARGUMENT) {
        serve()
    }
}

/// Forks a launcher whose end of the channel is `channel`.
pub(crate) fn launch(
    channel: BorrowedFd<'_>,
    output: BorrowedFd<'_>,
    errors: BorrowedFd<'_>,
) -> Result<LauncherProcess, Error> {
    let mut server = FORK_SERVER.lock();
    let descriptors = [channel, output, errors];
    let was_running = server.is_some();
    match launch_with(&mut server, &descriptors) {
        // It was killed since its last use: start another one.
        Err(Error::LauncherExited(_)) if was_running => launch_with(&mut server, &descriptors),
        result => result,
    }
}

/// Forks a launcher by `slot`'s server, or a new one. A server that fails is dropped: a late reply of it would be taken
/// for the reply to the next request.
fn launch_with(slot: &mut Option<ForkServer>, descriptors: &[BorrowedFd<'_>]) -> Result<LauncherProcess, Error> {
    let mut server = match slot.take() {
        Some(server) => server,
        None => ForkServer::start()?,
    };
    let launcher = server.launch(descriptors)?;
    *slot = Some(server);
    Ok(launcher)
}

impl Drop for ForkServer {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl ForkServer {
    fn start() -> Result<Self, Error> {
        let (channel, server_end) = Channel::pair().map_err(Error::failed_to("create a socket"))?;
        set_socket_timeout(&channel, Timeout::Recv, Some(FORK_TIMEOUT))
            .map_err(|error| Error::failed_to("set a socket timeout")(error.into()))?;
        let mut command = match COMMAND.get().and_then(|command| command.split_first()) {
            Some((program, arguments)) => {
                let mut command = Command::new(program);
                command.args(arguments);
                command
            }
            None => {
                let mut command = Command::new(OWN_PROGRAM);
                command.arg0("belljar-sandbox").arg(ARGUMENT);
                command
            }
        };
        let process = command
            .env_clear()
            // A Ctrl-C in the terminal is handled by the host alone.
            .process_group(0)
            .stdin(server_end.into_descriptor())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(Error::failed_to("start the fork server"))?;
        Ok(Self { channel, process })
    }

    fn launch(&mut self, descriptors: &[BorrowedFd<'_>]) -> Result<LauncherProcess, Error> {
        match self.channel.send(&LaunchRequest {}, descriptors) {
            Err(error) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
                return Err(self.exit_error());
            }
            sent => sent.map_err(Error::failed_to("send a request to the fork server"))?,
        }
        let reply = self.channel.receive::<LaunchReply>(true).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => Error::Timeout(FORK_TIMEOUT),
            _ => Error::failed_to("receive a reply from the fork server")(error),
        })?;
        match reply {
            Some((LaunchReply::Started(pid), descriptors)) => {
                let pidfd = descriptors.into_iter().next();
                let missing = || Error::LauncherExited("the fork server sent no pidfd".to_owned());
                Ok(LauncherProcess { pid: pid.unsigned_abs(), pidfd: pidfd.ok_or_else(missing)? })
            }
            Some((LaunchReply::Failed(reason), _)) => {
                Err(Error::failed_to("fork a launcher")(io::Error::other(reason)))
            }
            None => Err(self.exit_error()),
        }
    }

    fn exit_error(&mut self) -> Error {
        let status = self.process.wait();
        Error::LauncherExited(status.map_or_else(|error| error.to_string(), |status| format!("fork server: {status}")))
    }
}

fn serve() -> ! {
    let channel = match own_channel() {
        Ok(channel) => channel,
        Err(_) => syscalls::exit(SETUP_FAILED),
    };
    // The host watches launchers by their pidfds; this process never waits for them.
    syscalls::set_auto_reap_children(true);
    // Launchers inherit the filters. An error is ignored here: a launcher that needs them reports it.
    let _ = Filters::get(IsolationLevel::Full, false);
    // Ends with the host, or at a message that cannot be decoded.
    while let Ok(Some((LaunchRequest {}, descriptors))) = channel.receive(true) {
        let Ok([launcher_end, output, errors]) = <[OwnedFd; 3]>::try_from(descriptors) else { break };
        let launched = match syscalls::fork() {
            Ok(Fork::Child) => {
                drop(channel);
                syscalls::set_auto_reap_children(false);
                let ready = syscalls::make_standard(output.as_fd(), 1)
                    .and_then(|()| syscalls::make_standard(errors.as_fd(), 2))
                    .and_then(|()| syscalls::lead_process_group());
                drop((output, errors));
                launcher::run(&Channel::from_descriptor(launcher_end), ready)
            }
            Ok(Fork::Parent(pid)) => syscalls::pidfd_open(pid).map(|pidfd| (pid, pidfd)),
            Err(error) => Err(error),
        };
        let sent = match &launched {
            Ok((pid, pidfd)) => channel.send(&LaunchReply::Started(*pid), &[pidfd.as_fd()]),
            Err(error) => channel.send(&LaunchReply::Failed(error.to_string()), &[]),
        };
        if sent.is_err() {
            break;
        }
    }
    syscalls::exit(0)
}

/// Takes the channel from standard input. It is duplicated, so that it is closed on exec, and replaced by `/dev/null`.
pub(crate) fn own_channel() -> io::Result<Channel> {
    let channel = Channel::from_descriptor(io::stdin().as_fd().try_clone_to_owned()?);
    syscalls::make_standard(File::open("/dev/null")?.as_fd(), 0)?;
    Ok(channel)
}

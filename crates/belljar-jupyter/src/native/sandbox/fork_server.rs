//! The fork server: this very program, executed anew, once, by which every launcher is forked.
//!
//! A server cannot fork, having threads. To execute the program for each sandbox would take as long as all other steps
//! of making one: the fork server has that behind it. It has one thread, no environment and nothing of the host's
//! memory, and it keeps no descriptor of a sandbox, so that its copies have none of another one. It ends when the host
//! does; its copies end by themselves (see [`super::launcher`]).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use serde::{Deserialize, Serialize};

use super::calls::{self, Fork};
use super::channel::Channel;
use super::seccomp::Filters;
use super::{Error, Strength, launcher};

/// The first argument of a process that is to be the fork server.
const ARGUMENT: &str = "__belljar-sandbox";

/// This program, also after its file was replaced by a newer one.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// How long a fork may take on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the server ends with when its own descriptors cannot be had.
const FAILED: i32 = 125;

/// "Fork a launcher." The descriptors: its channel to the host, its standard output and error.
#[derive(Serialize, Deserialize)]
struct Launch {}

#[derive(Serialize, Deserialize)]
enum Answer {
    /// Its number; with its descriptor.
    Launched(i32),
    /// What the system said.
    Failed(String),
}

/// A launcher's process.
#[derive(Debug)]
pub(super) struct Launched {
    pub(super) number: u32,
    pub(super) descriptor: OwnedFd,
}

/// The host's end.
struct ForkServer {
    channel: Channel,
    process: Child,
}

/// The one of this process: started when it is first needed.
static RUNNING: Mutex<Option<ForkServer>> = Mutex::new(None);

/// Becomes the fork server and never returns, if this process was started as one. The first thing in `main` of every
/// program that [spawns](super::spawn) sandboxes: nothing may have been opened, and no thread started.
pub fn launch_if_asked() {
    if std::env::args_os().nth(1).is_some_and(|argument| argument == ARGUMENT) {
        serve()
    }
}

/// Has a launcher forked, whose end of the channel is `channel`.
pub(super) fn launch(
    channel: BorrowedFd<'_>,
    output: BorrowedFd<'_>,
    errors: BorrowedFd<'_>,
) -> Result<Launched, Error> {
    let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    let descriptors = [channel, output, errors];
    let was_running = running.is_some();
    match launch_by(&mut running, &descriptors) {
        // Somebody has killed it since it was last needed: another one does as well.
        Err(Error::Launcher(_)) if was_running => launch_by(&mut running, &descriptors),
        done => done,
    }
}

/// A server that fails is not asked again: what it answers late would be taken for the next answer.
fn launch_by(running: &mut Option<ForkServer>, descriptors: &[BorrowedFd<'_>]) -> Result<Launched, Error> {
    let mut server = match running.take() {
        Some(server) => server,
        None => ForkServer::start()?,
    };
    let launched = server.launch(descriptors)?;
    *running = Some(server);
    Ok(launched)
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
        let (channel, theirs) = Channel::pair().map_err(Error::doing("making a socket"))?;
        set_socket_timeout(&channel, Timeout::Recv, Some(PATIENCE))
            .map_err(|error| Error::System { doing: "setting a time-out", source: error.into() })?;
        let process = Command::new(OWN_PROGRAM)
            .arg0("belljar-sandbox")
            .arg(ARGUMENT)
            .env_clear()
            // Ctrl-C in the server's terminal is the server's.
            .process_group(0)
            .stdin(theirs.into_descriptor())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(Error::doing("starting the fork server"))?;
        Ok(Self { channel, process })
    }

    fn launch(&mut self, descriptors: &[BorrowedFd<'_>]) -> Result<Launched, Error> {
        match self.channel.send(&Launch {}, descriptors) {
            Err(error) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
                return Err(self.ended());
            }
            sent => sent.map_err(Error::doing("asking for a launcher"))?,
        }
        let answer = self.channel.receive::<Answer>(true).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => Error::Slow(PATIENCE),
            _ => Error::System { doing: "hearing from the fork server", source: error },
        })?;
        match answer {
            Some((Answer::Launched(number), descriptors)) => {
                let descriptor = descriptors.into_iter().next();
                let missing = || Error::Launcher("it has no descriptor".to_owned());
                Ok(Launched { number: number.unsigned_abs(), descriptor: descriptor.ok_or_else(missing)? })
            }
            Some((Answer::Failed(reason), _)) => {
                Err(Error::System { doing: "forking a launcher", source: io::Error::other(reason) })
            }
            None => Err(self.ended()),
        }
    }

    fn ended(&mut self) -> Error {
        let status = self.process.wait();
        Error::Launcher(status.map_or_else(|error| error.to_string(), |status| status.to_string()))
    }
}

fn serve() -> ! {
    let channel = match own_channel() {
        Ok(channel) => channel,
        Err(_) => calls::exit(FAILED),
    };
    // The host watches launchers by their descriptors; here nobody waits for them.
    calls::forget_children(true);
    // Whatever fails here fails again where it is said.
    let _ = Filters::of(Strength::Full, false);
    // Ends with the host, or with a host that is not understood.
    while let Ok(Some((Launch {}, descriptors))) = channel.receive(true) {
        let Ok([theirs, output, errors]) = <[OwnedFd; 3]>::try_from(descriptors) else { break };
        let launched = match calls::fork() {
            Ok(Fork::Child) => {
                drop(channel);
                calls::forget_children(false);
                let ready = calls::make_standard(output.as_fd(), 1)
                    .and_then(|()| calls::make_standard(errors.as_fd(), 2))
                    .and_then(|()| calls::lead_group());
                drop((output, errors));
                launcher::run(&Channel::from_descriptor(theirs), ready)
            }
            Ok(Fork::Parent(process)) => calls::process_descriptor(process).map(|descriptor| (process, descriptor)),
            Err(error) => Err(error),
        };
        let told = match &launched {
            Ok((process, descriptor)) => channel.send(&Answer::Launched(*process), &[descriptor.as_fd()]),
            Err(error) => channel.send(&Answer::Failed(error.to_string()), &[]),
        };
        if told.is_err() {
            break;
        }
    }
    calls::exit(0)
}

/// Standard input is the channel. It is duplicated, so that it closes itself at exec, and nothing takes its place.
fn own_channel() -> io::Result<Channel> {
    let channel = Channel::from_descriptor(io::stdin().as_fd().try_clone_to_owned()?);
    calls::make_standard(File::open("/dev/null")?.as_fd(), 0)?;
    Ok(channel)
}

//! The host's user that creates sandboxes: root, or an ordinary user. A test runs its task in a process of that user.

use std::fmt;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use belljar_sandbox as sandbox;
use belljar_testing::{Capability, Failed};

use crate::trials::{TASK_ARGUMENT, attack_trials, scenarios};

/// The ID of the ordinary user; any that no account has.
const ORDINARY_USER: u32 = 54_321;

/// The longest run of one task; a busy machine may need most of it.
const TASK_TIMEOUT: Duration = Duration::from_secs(900);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HostUser {
    /// Root, with a user for each session.
    Root,
    /// A user without privileges.
    Ordinary,
}

impl fmt::Display for HostUser {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Root => "root",
            Self::Ordinary => "user",
        })
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

impl HostUser {
    pub(crate) const ALL: [Self; 2] = [Self::Root, Self::Ordinary];

    /// Returns the capabilities that tests of this user need.
    pub(crate) fn needs(self) -> &'static [Capability] {
        match self {
            Self::Root => &[Capability::SystemPython, Capability::Root],
            Self::Ordinary => &[Capability::SystemPython],
        }
    }

    /// Returns the session's user: as root one of the session users, otherwise `None` for this user itself.
    pub(crate) fn session_user(number: u32) -> Option<u32> {
        is_root().then_some(sandbox::SESSION_USERS.start + number)
    }

    /// Runs a task in a process of this user; returns its output.
    pub(crate) fn run_task(self, task: &str, arguments: &[&str]) -> Result<String, Failed> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("sandbox-test").arg(TASK_ARGUMENT).arg(task).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env("BELLJAR_TEST_MARKER", MARKER);
        if self == Self::Ordinary && is_root() {
            command.uid(ORDINARY_USER).gid(ORDINARY_USER);
        }
        let mut child = command.spawn().map_err(|error| format!("failed to start this program: {error}"))?;
        let output = child.stdout.take().map(read_in_background);
        let errors = child.stderr.take().map(read_in_background);
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if begin.elapsed() > TASK_TIMEOUT {
                let _ = child.kill();
                break child.wait()?;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let text =
            |reading: Option<JoinHandle<String>>| reading.and_then(|thread| thread.join().ok()).unwrap_or_default();
        let (output, errors) = (text(output), text(errors));
        if status.success() { Ok(output) } else { Err(format!("{status}\n{output}\n{errors}").into()) }
    }
}

/// Reads a stream to its end on a thread of its own, so that its writer never blocks.
fn read_in_background(mut stream: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = Vec::new();
        // The bytes before an error are returned.
        let _ = stream.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    })
}

/// A text of the host that must not be readable inside.
pub(crate) const MARKER: &str = "cherry-blossom-7321";

/// Returns the Python that runs the attacks.
pub(crate) fn python() -> PathBuf {
    PathBuf::from("/usr/bin/python3")
}

/// Performs the task called `name`, in the process that [`HostUser::run_task`] started.
pub(crate) fn run_task(name: &str, arguments: &[String]) -> ExitCode {
    let outcome = match name {
        "attacks" => attack_trials::run_attacks(arguments),
        name => scenarios::run_scenario(name),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// The result of a task.
pub(crate) type TestResult = Result<(), Box<dyn std::error::Error>>;

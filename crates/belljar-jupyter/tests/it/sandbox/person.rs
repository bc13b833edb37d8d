//! Who makes the sandboxes: root, or somebody without privileges. A part is played in a process of that person's.

use std::fmt;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use belljar_jupyter::sandbox;
use libtest_mimic::Failed;

use crate::trials::{PART, attacked, scenarios};

/// An ordinary user's number; any will do that nobody has.
const ORDINARY: u32 = 54_321;

/// How long one part may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Person {
    /// With a user of its own for each session.
    Root,
    /// Somebody who may do nothing special.
    User,
}

impl fmt::Display for Person {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Root => "root",
            Self::User => "user",
        })
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

impl Person {
    pub(crate) const ALL: [Self; 2] = [Self::Root, Self::User];

    /// What this machine lacks for the tests of this person.
    pub(crate) fn missing(self) -> Option<String> {
        if !python().exists() {
            return Some(format!("there is no {}", python().display()));
        }
        if self == Self::Root && !is_root() {
            return Some("the tests were not started by root".to_owned());
        }
        None
    }

    /// The session's user: as root one of ours, else whoever this is.
    pub(crate) fn session_user(number: u32) -> Option<u32> {
        is_root().then_some(sandbox::SESSION_USERS.start + number)
    }

    /// Plays a part in a process of this person's; gives what it wrote.
    pub(crate) fn play(self, part: &str, arguments: &[&str]) -> Result<String, Failed> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("sandbox-test").arg(PART).arg(part).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env("BELLJAR_TEST_MARKER", MARKER);
        if self == Self::User && is_root() {
            command.uid(ORDINARY).gid(ORDINARY);
        }
        let mut child = command.spawn().map_err(|error| format!("this test cannot start itself: {error}"))?;
        let output = child.stdout.take().map(read_aside);
        let errors = child.stderr.take().map(read_aside);
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if begin.elapsed() > PATIENCE {
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

/// Reads a stream to its end on a thread of its own, so that whoever writes there is never kept waiting.
fn read_aside(mut stream: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = Vec::new();
        // What came before an error is worth reading.
        let _ = stream.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    })
}

/// Something that must be seen nowhere inside.
pub(crate) const MARKER: &str = "cherry-blossom-7321";

/// The Python that attacks.
pub(crate) fn python() -> PathBuf {
    PathBuf::from("/usr/bin/python3")
}

/// In the process of a person: does the part called `name`.
pub(crate) fn play(name: &str, arguments: &[String]) -> ExitCode {
    let outcome = match name {
        "attacked" => attacked::play(arguments),
        name => scenarios::play(name),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// Why a part went wrong.
pub(crate) type Outcome = Result<(), Box<dyn std::error::Error>>;

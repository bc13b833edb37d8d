//! How a process that was forked elsewhere enters a sandbox that waits: the plan of its steps, and news of its arrival.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use libc::c_long;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use seccompiler::BpfProgram;
use serde::{Deserialize, Serialize};

use super::calls;
use super::channel::Channel;
use super::namespaces;
use super::program;
use super::seccomp::Filters;
use super::{Error, Failure, Sandbox, Step, Strength};

/// The Python module by which a forked process enters: write it where the zygote imports it from, or `exec` it.
pub const ENTER_PYTHON: &str = include_str!("enter.py");

/// Where in [`Entry::descriptors`] each one stands.
const REPORT: usize = 0;
const FIRST_PROCESS: usize = 1;
const RULES: usize = 2;
const STREAMS: usize = 3;

/// `LANDLOCK_…` and `SECCOMP_…` take no flags here.
const NO_FLAGS: Argument = Argument::Number(0);

/// The steps of entering, computed for one process.
#[derive(Debug)]
pub struct Entry {
    /// JSON, for `enter(json.loads(plan), descriptors)`.
    pub plan: String,
    /// Descriptors that go with it, in this order, by `SCM_RIGHTS`.
    pub descriptors: Vec<OwnedFd>,
}

/// What the host hears of a process that enters.
#[derive(Debug)]
pub struct Arrival {
    channel: Channel,
}

/// A process that has entered.
#[derive(Debug)]
pub struct Entered {
    /// Its number, as the zygote sees it.
    pub process: i32,
    /// Its descriptor, for signals, and to see it end.
    pub descriptor: OwnedFd,
}

/// Standard streams of a process that enters. `None`: `/dev/null`.
pub type EntryStreams = [Option<OwnedFd>; 3];

#[derive(Serialize)]
struct Plan {
    /// In the process that was forked.
    before: Vec<Call>,
    /// In the one that it forks, which is inside.
    after: Vec<Call>,
    /// At last, when all descriptors but the report's are closed.
    seal: Vec<Call>,
    /// The number of `close_range(2)`.
    close_range: c_long,
    /// Of standard input, output and error: which descriptor.
    streams: [Option<usize>; 3],
    environment: BTreeMap<String, String>,
    /// See [`super::launcher`]: killed before the server is, when the machine is out of memory.
    oom_score_adj: u32,
}

/// One system call.
#[derive(Serialize)]
struct Call {
    name: &'static str,
    number: c_long,
    arguments: Vec<Argument>,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Argument {
    Number(i64),
    /// A descriptor, by its place.
    Descriptor(usize),
    /// Text that ends with a NUL.
    Text(PathBuf),
    /// A pointer to bytes, in hexadecimal.
    Bytes(String),
    /// A pointer to a `struct sock_fprog` with these instructions, in hexadecimal.
    Filter(String),
}

/// What the Python side says.
#[derive(Deserialize)]
enum Word {
    /// The process inside was forked; with its descriptor.
    Forked(i32),
    /// A step failed.
    Failed { step: String, errno: Option<i32> },
    /// All steps are done.
    Entered,
}

impl Sandbox {
    /// The plan by which one process enters this sandbox, which must [wait](super::Spec::waiting). Directory,
    /// environment, limits and user are those of its [`Spec`](super::Spec).
    ///
    /// # Errors
    ///
    /// If the sandbox has no namespaces, or a socket cannot be made.
    pub fn entry(&self, streams: EntryStreams) -> Result<(Entry, Arrival), Error> {
        let missing = || Error::Specification("only a sandbox that waits can be entered".to_owned());
        let copy = |descriptor: &Option<OwnedFd>| {
            let descriptor = descriptor.as_ref().ok_or_else(missing)?;
            descriptor.try_clone().map_err(Error::doing("duplicating a descriptor"))
        };
        let (channel, theirs) = Channel::pair().map_err(Error::doing("making a socket"))?;
        let mut descriptors = vec![theirs.into_descriptor(), copy(&self.first)?, copy(&self.rules)?];
        debug_assert_eq!(descriptors.len(), STREAMS, "the report, the first process, the rules");
        let streams = streams.map(|stream| {
            stream.map(|stream| {
                descriptors.push(stream);
                descriptors.len() - 1
            })
        });
        let group = match &self.group {
            Some(group) => {
                descriptors.push(group.entrance().map_err(Error::doing("opening the control group"))?.into());
                Some(descriptors.len() - 1)
            }
            None => None,
        };
        let plan = self.plan(streams, group).map_err(Error::Step)?;
        let plan = serde_json::to_string(&plan).map_err(|error| Error::Specification(error.to_string()))?;
        debug_assert_eq!(REPORT, 0, "enter.py takes the first descriptor for the report");
        Ok((Entry { plan, descriptors }, Arrival { channel }))
    }

    fn plan(&self, streams: [Option<usize>; 3], group: Option<usize>) -> Result<Plan, Failure> {
        use Argument::{Bytes, Descriptor, Filter, Number, Text};
        let call = |name, number, arguments| Call { name, number, arguments };
        let control = |name, operation: i32, argument: i64| {
            call(name, libc::SYS_prctl, vec![Number(operation.into()), Number(argument), NO_FLAGS, NO_FLAGS, NO_FLAGS])
        };

        let mut before = Vec::new();
        if let Some(group) = group {
            // `0` is whoever writes it.
            let oneself = vec![Descriptor(group), Bytes(hexadecimal(b"0".iter().copied())), Number(1)];
            before.push(call("joining the control group", libc::SYS_write, oneself));
        }
        if let Some(user) = self.spec.user.filter(|_| calls::user() == 0).map(i64::from) {
            let three = || vec![Number(user), Number(user), Number(user)];
            before.push(call("setgroups", libc::SYS_setgroups, vec![Number(0), Number(0)]));
            before.push(call("setresgid", libc::SYS_setresgid, three()));
            before.push(call("setresuid", libc::SYS_setresuid, three()));
            before.push(control("prctl(PR_SET_DUMPABLE)", libc::PR_SET_DUMPABLE, 1));
        }
        // Whoever owns a user namespace has all capabilities in it, and so may enter the others.
        let namespaces = Number((namespaces::ALL | libc::CLONE_NEWUSER).into());
        before.push(call("setns", libc::SYS_setns, vec![Descriptor(FIRST_PROCESS), namespaces]));

        let mut after = vec![
            call("setsid", libc::SYS_setsid, Vec::new()),
            call("chdir", libc::SYS_chdir, vec![Text(self.spec.directory.clone())]),
        ];
        for (resource, most) in program::limits(&self.spec.limits) {
            let both = Bytes(hexadecimal([most, most].into_iter().flat_map(u64::to_ne_bytes)));
            after.push(call(
                "prlimit64",
                libc::SYS_prlimit64,
                vec![Number(0), Number(resource.into()), both, Number(0)],
            ));
        }
        after.push(control("prctl(PR_SET_NO_NEW_PRIVS)", libc::PR_SET_NO_NEW_PRIVS, 1));
        after.push(call("landlock_restrict_self", libc::SYS_landlock_restrict_self, vec![Descriptor(RULES), NO_FLAGS]));
        for capability in 0..=calls::highest_capability() {
            after.push(control("prctl(PR_CAPBSET_DROP)", libc::PR_CAPBSET_DROP, capability.cast_signed()));
        }
        after.push(control("prctl(PR_CAP_AMBIENT)", libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL.into()));
        let header = hexadecimal([calls::CAPABILITY_VERSION, 0].into_iter().flat_map(u32::to_ne_bytes));
        after.push(call("capset", libc::SYS_capset, vec![Bytes(header), Bytes("00".repeat(24))]));

        let mut seal = Vec::new();
        for instructions in filters()? {
            let arguments = vec![
                Number(libc::PR_SET_SECCOMP.into()),
                Number(libc::SECCOMP_MODE_FILTER.into()),
                Filter(instructions.clone()),
                NO_FLAGS,
                NO_FLAGS,
            ];
            seal.push(call("prctl(PR_SET_SECCOMP)", libc::SYS_prctl, arguments));
        }
        Ok(Plan {
            before,
            after,
            seal,
            close_range: libc::SYS_close_range,
            streams,
            environment: self.spec.environment.clone(),
            oom_score_adj: super::launcher::KILL_FIRST,
        })
    }
}

/// The filters as the plan has them: the same for all, and made once.
fn filters() -> Result<&'static [String], Failure> {
    static MADE: OnceLock<Vec<String>> = OnceLock::new();
    if let Some(made) = MADE.get() {
        return Ok(made);
    }
    let programs = &Filters::of(Strength::Full, false)?.programs;
    let text = |program: &BpfProgram| {
        hexadecimal(program.iter().flat_map(|one| {
            // `struct sock_filter`: code, jump if true, jump if false, a number.
            let [low, high] = one.code.to_ne_bytes();
            let [a, b, c, d] = one.k.to_ne_bytes();
            [low, high, one.jt, one.jf, a, b, c, d]
        }))
    };
    Ok(MADE.get_or_init(|| programs.iter().map(text).collect()))
}

fn hexadecimal(bytes: impl Iterator<Item = u8>) -> String {
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

impl Arrival {
    /// Waits until the process has entered, which takes a few milliseconds.
    ///
    /// # Errors
    ///
    /// [`Error::Step`] with the step that failed; [`Error::Slow`] after `patience`; [`Error::Launcher`] if the process
    /// ended before.
    pub fn wait(self, patience: Duration) -> Result<Entered, Error> {
        set_socket_timeout(&self.channel, Timeout::Recv, Some(patience))
            .map_err(|error| Error::System { doing: "setting a time-out", source: error.into() })?;
        // The process that forked says who is inside, and that one says that it is done; either may be first.
        let (mut inside, mut done) = (None, false);
        loop {
            let heard = self.channel.receive::<Word>(true).map_err(|error| match error.kind() {
                io::ErrorKind::WouldBlock => Error::Slow(patience),
                _ => Error::System { doing: "hearing from the process that enters", source: error },
            })?;
            match heard {
                Some((Word::Forked(process), descriptors)) => {
                    inside = descriptors.into_iter().next().map(|descriptor| Entered { process, descriptor });
                }
                Some((Word::Failed { step, errno }, _)) => {
                    return Err(Error::Step(Failure { step: Step::Entry, tried: step, errno }));
                }
                Some((Word::Entered, _)) => done = true,
                None => return Err(Error::Launcher("the process that was to enter ended".to_owned())),
            }
            if done && let Some(inside) = inside.take() {
                return Ok(inside);
            }
        }
    }
}

/// A command that runs `python` so that what forks from it may enter sandboxes.
///
/// A process can follow `/proc/self/exe` to the file that it was started from, out of every mount namespace; and if
/// that file is its user's, change its mode. So the file that the process is started from is the dynamic loader, which
/// is root's, and the interpreter is what that loads.
///
/// # Errors
///
/// If `python` is not a dynamically linked ELF program, or its loader can be changed by this user: then only sandboxes
/// of programs are safe.
pub fn zygote_command(python: &Path) -> Result<Command, Error> {
    let user = calls::user();
    let reading = Error::doing("reading the interpreter");
    let file = File::open(python).map_err(reading)?;
    // As root, the code is another user, to whom the file does not belong.
    if user == 0 || file.metadata().map_err(Error::doing("reading the interpreter"))?.uid() != user {
        return Ok(Command::new(python));
    }
    let unsafe_here = |why: &str| {
        let why = format!("{} cannot be a zygote: {why}; start each kernel as a program instead", python.display());
        Error::Specification(why)
    };
    let loader = loader(file).map_err(|error| unsafe_here(&error.to_string()))?;
    let owner = loader.metadata().map_err(|error| unsafe_here(&error.to_string()))?.uid();
    if owner == user {
        return Err(unsafe_here("its loader belongs to the user that the code runs as"));
    }
    let mut command = Command::new(&loader);
    command.arg0("ld.so").arg("--argv0").arg(python).arg(python);
    Ok(command)
}

/// The dynamic loader that an ELF program of 64 bits names: its segment `PT_INTERP`.
fn loader(mut file: File) -> io::Result<PathBuf> {
    const PT_INTERP: u32 = 3;
    const MOST_SEGMENTS: u16 = 128;
    const MOST_PATH: u64 = 4096;
    let unfit = || io::Error::new(io::ErrorKind::InvalidData, "it is not a dynamically linked ELF program");
    let mut header = [0; 64];
    file.read_exact(&mut header).map_err(|_| unfit())?;
    // The magic, 64 bits, little-endian: both architectures that this is for.
    if header[..6] != *b"\x7fELF\x02\x01" {
        return Err(unfit());
    }
    let long =
        |bytes: &[u8], at: usize| -> Option<u64> { Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?)) };
    let short =
        |bytes: &[u8], at: usize| -> Option<u16> { Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?)) };
    let (Some(table), Some(count)) = (long(&header, 32), short(&header, 56)) else { return Err(unfit()) };
    file.seek(SeekFrom::Start(table))?;
    for _ in 0..count.min(MOST_SEGMENTS) {
        let mut segment = [0; 56];
        file.read_exact(&mut segment).map_err(|_| unfit())?;
        if segment[..4] != PT_INTERP.to_le_bytes() {
            continue;
        }
        let (Some(at), Some(length)) = (long(&segment, 8), long(&segment, 32)) else { return Err(unfit()) };
        file.seek(SeekFrom::Start(at))?;
        let mut path = Vec::new();
        file.take(length.min(MOST_PATH)).read_to_end(&mut path)?;
        let path = String::from_utf8(path).map_err(|_| unfit())?;
        return Ok(PathBuf::from(path.trim_end_matches('\0')));
    }
    Err(unfit())
}

impl AsFd for Entered {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loader_of_a_program_is_found() {
        let loader = loader(File::open("/bin/sh").unwrap()).unwrap();
        assert!(loader.is_absolute() && loader.exists(), "{}", loader.display());
    }

    #[test]
    fn a_script_is_no_zygote() {
        let script = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&script, "#!/bin/sh\n").unwrap();
        assert!(loader(script.reopen().unwrap()).is_err());
    }
}

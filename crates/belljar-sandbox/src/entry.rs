//! The entry of a process that was forked elsewhere into an idle sandbox: the plan of its steps, and the wait for it.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use libc::c_long;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use seccompiler::BpfProgram;
use serde::{Deserialize, Serialize};

use crate::channel::Channel;
use crate::error::{Error, SpecError, Step, StepFailure};
use crate::launcher;
use crate::namespaces;
use crate::policy::IsolationLevel;
use crate::program;
use crate::sandbox_handle::Sandbox;
use crate::seccomp::Filters;
use crate::syscalls;

/// Indices in [`Entry::descriptors`].
const REPORT: usize = 0;
const FIRST_PROCESS: usize = 1;
const RULESET: usize = 2;
const STREAMS: usize = 3;

/// The `flags` argument of system calls that are called without flags.
const NO_FLAGS: Argument = Argument::Number(0);

/// The steps by which one forked process enters a sandbox, for an interpreter of them in any language.
///
/// The zygote receives both parts, forks, and the fork *A* performs the steps:
///
/// 1. write `oom_score_adj` to `/proc/self/oom_score_adj`;
/// 2. make the system calls of `before`: join the control group, change to the session's user, `setns(2)`;
/// 3. `fork(2)`. The parent *A* sends `{"Forked": PID}` with a pidfd of the child *B*, and exits. *B* is inside the
///    sandbox's process namespace, and goes on;
/// 4. make the system calls of `after`: `setsid(2)`, working directory, limits, no new privileges, Landlock,
///    capabilities;
/// 5. duplicate the descriptors of `streams` onto 0, 1 and 2, with `/dev/null` for a `null`;
/// 6. replace the environment by `environment`;
/// 7. close all descriptors above 2 but the report's, with the system call number `close_range`;
/// 8. make the system calls of `seal`, which install the seccomp filters;
/// 9. send `"Entered"`, close the report's descriptor, and run the code.
///
/// A process in which a step fails sends `{"Failed": {"step": NAME, "errno": NUMBER or null}}` and exits. Reports are
/// JSON messages on the `SOCK_SEQPACKET` socket `descriptors[0]`.
///
/// # The plan
///
/// | field | type |
/// | --- | --- |
/// | `oom_score_adj` | number |
/// | `before`, `after`, `seal` | list of system calls |
/// | `close_range` | number: the system call `close_range(2)` |
/// | `streams` | list of three: an index into the descriptors, or `null` |
/// | `environment` | object of strings |
///
/// A system call is `{"name": text for reports, "number": number, "arguments": list of at most 6}`, an argument one of:
///
/// | argument | value to pass |
/// | --- | --- |
/// | `{"number": N}` | `N`, as a `long` |
/// | `{"descriptor": I}` | the descriptor with index `I` |
/// | `{"text": T}` | a pointer to `T`, NUL-terminated |
/// | `{"bytes": HEX}` | a pointer to these bytes |
/// | `{"filter": HEX}` | a pointer to a `struct sock_fprog` with these instructions, 8 bytes each |
#[derive(Debug)]
pub struct Entry {
    /// The plan, as JSON.
    pub plan: String,
    /// The descriptors of the plan, to be passed in this order by `SCM_RIGHTS`.
    pub descriptors: Vec<OwnedFd>,
}

/// The host's handle of a process that is entering a sandbox.
#[derive(Debug)]
pub struct EntryHandle {
    channel: Channel,
}

/// A process that has entered a sandbox.
#[derive(Debug)]
pub struct EnteredProcess {
    /// The process ID in the zygote's process namespace.
    pub pid: i32,
    /// The pidfd, to send signals and to wait for the end of the process.
    pub pidfd: OwnedFd,
}

impl AsFd for EnteredProcess {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

/// The standard streams of a process that enters. `None` is `/dev/null`.
pub type EntryStreams = [Option<OwnedFd>; 3];

/// The plan of an [`Entry`].
#[derive(Serialize)]
struct Plan {
    /// The calls of the process that was forked outside.
    before: Vec<SystemCall>,
    /// The calls of its child, which is inside.
    after: Vec<SystemCall>,
    /// The last calls, after all descriptors but the report's were closed.
    seal: Vec<SystemCall>,
    /// The number of `close_range(2)`.
    close_range: c_long,
    /// The indices of the descriptors of standard input, output and error.
    streams: [Option<usize>; 3],
    environment: BTreeMap<String, String>,
    /// [`launcher::OOM_SCORE_ADJ`].
    oom_score_adj: u32,
}

#[derive(Serialize)]
struct SystemCall {
    name: &'static str,
    number: c_long,
    arguments: Vec<Argument>,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Argument {
    Number(i64),
    /// The descriptor with this index.
    Descriptor(usize),
    /// A pointer to a path that ends with a NUL.
    Text(PathBuf),
    /// A pointer to bytes, in hexadecimal.
    Bytes(String),
    /// A pointer to a `struct sock_fprog` with these instructions, in hexadecimal.
    Filter(String),
}

/// A message from a process that enters.
#[derive(Deserialize)]
enum EntryMessage {
    /// The process inside was forked. Its pidfd goes with the message.
    Forked(i32),
    /// A step failed.
    Failed { step: String, errno: Option<i32> },
    /// All steps are done.
    #[serde(rename = "Entered")]
    Done,
}

impl Sandbox {
    /// Creates the plan by which one process enters this sandbox, which must be [idle](crate::Spec::idle). Working
    /// directory, environment, limits and user are those of its [`Spec`](crate::Spec).
    ///
    /// # Errors
    ///
    /// Fails if the sandbox has no namespaces, or a system call fails.
    pub fn entry(&self, streams: EntryStreams) -> Result<(Entry, EntryHandle), Error> {
        let duplicate = |descriptor: &Option<OwnedFd>| {
            let descriptor = descriptor.as_ref().ok_or(SpecError::NotIdle)?;
            descriptor.try_clone().map_err(Error::failed_to("duplicate a descriptor"))
        };
        let (channel, process_end) = Channel::pair().map_err(Error::failed_to("create a socket"))?;
        let mut descriptors = vec![process_end.into_descriptor(), duplicate(&self.first)?, duplicate(&self.ruleset)?];
        debug_assert_eq!(descriptors.len(), STREAMS, "the report, the first process, the ruleset");
        debug_assert_eq!(REPORT, 0, "entry.py takes the first descriptor for the report");
        let streams = streams.map(|stream| {
            stream.map(|stream| {
                descriptors.push(stream);
                descriptors.len() - 1
            })
        });
        let group = match &self.group {
            Some(group) => {
                descriptors.push(group.open_procs().map_err(Error::failed_to("open the control group"))?.into());
                Some(descriptors.len() - 1)
            }
            None => None,
        };
        let plan = self.plan(streams, group).map_err(Error::Setup)?;
        let plan = serde_json::to_string(&plan).map_err(|error| Error::failed_to("encode a plan")(error.into()))?;
        Ok((Entry { plan, descriptors }, EntryHandle { channel }))
    }

    fn plan(&self, streams: [Option<usize>; 3], group: Option<usize>) -> Result<Plan, StepFailure> {
        use Argument::{Bytes, Descriptor, Filter, Number, Text};
        let call = |name, number, arguments| SystemCall { name, number, arguments };
        let prctl = |name, operation: i32, argument: i64| {
            call(name, libc::SYS_prctl, vec![Number(operation.into()), Number(argument), NO_FLAGS, NO_FLAGS, NO_FLAGS])
        };

        let mut before = Vec::new();
        if let Some(group) = group {
            // `0` means the process that writes it.
            let arguments = vec![Descriptor(group), Bytes(hex::encode(b"0")), Number(1)];
            before.push(call("joining the control group", libc::SYS_write, arguments));
        }
        if let Some(user) = self.spec.user.filter(|_| syscalls::user() == 0).map(i64::from) {
            let three = || vec![Number(user), Number(user), Number(user)];
            before.push(call("setgroups", libc::SYS_setgroups, vec![Number(0), Number(0)]));
            before.push(call("setresgid", libc::SYS_setresgid, three()));
            before.push(call("setresuid", libc::SYS_setresuid, three()));
            before.push(prctl("prctl(PR_SET_DUMPABLE)", libc::PR_SET_DUMPABLE, 1));
        }
        // The owner of a user namespace has all capabilities in it, and so may enter the other namespaces.
        let namespaces = Number((namespaces::ALL | libc::CLONE_NEWUSER).into());
        before.push(call("setns", libc::SYS_setns, vec![Descriptor(FIRST_PROCESS), namespaces]));

        let mut after = vec![
            call("setsid", libc::SYS_setsid, Vec::new()),
            call("chdir", libc::SYS_chdir, vec![Text(self.spec.directory.clone())]),
        ];
        for (resource, limit) in program::rlimits(&self.spec.limits) {
            // `struct rlimit`: the soft and the hard limit.
            let soft_and_hard = [limit.to_ne_bytes(), limit.to_ne_bytes()].concat();
            after.push(call(
                "prlimit64",
                libc::SYS_prlimit64,
                vec![Number(0), Number(resource.into()), Bytes(hex::encode(soft_and_hard)), Number(0)],
            ));
        }
        after.push(prctl("prctl(PR_SET_NO_NEW_PRIVS)", libc::PR_SET_NO_NEW_PRIVS, 1));
        after.push(call(
            "landlock_restrict_self",
            libc::SYS_landlock_restrict_self,
            vec![Descriptor(RULESET), NO_FLAGS],
        ));
        for capability in 0..=syscalls::highest_capability() {
            after.push(prctl("prctl(PR_CAPBSET_DROP)", libc::PR_CAPBSET_DROP, capability.cast_signed()));
        }
        after.push(prctl("prctl(PR_CAP_AMBIENT)", libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL.into()));
        let header = [syscalls::CAPABILITY_VERSION.to_ne_bytes(), [0; 4]].concat();
        after.push(call("capset", libc::SYS_capset, vec![Bytes(hex::encode(header)), Bytes(hex::encode([0_u8; 24]))]));

        let mut seal = Vec::new();
        for instructions in encoded_filters()? {
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
            oom_score_adj: launcher::OOM_SCORE_ADJ,
        })
    }
}

/// Returns the filters as plans contain them. They are the same for all plans, and encoded once.
fn encoded_filters() -> Result<&'static [String], StepFailure> {
    static ENCODED: OnceLock<Vec<String>> = OnceLock::new();
    if let Some(encoded) = ENCODED.get() {
        return Ok(encoded);
    }
    let programs = &Filters::get(IsolationLevel::Full, false)?.programs;
    let encode = |program: &BpfProgram| {
        let instructions = program.iter().flat_map(|instruction| {
            // `struct sock_filter`: code, jump if true, jump if false, operand.
            let [low, high] = instruction.code.to_ne_bytes();
            let [a, b, c, d] = instruction.k.to_ne_bytes();
            [low, high, instruction.jt, instruction.jf, a, b, c, d]
        });
        hex::encode(instructions.collect::<Vec<u8>>())
    };
    Ok(ENCODED.get_or_init(|| programs.iter().map(encode).collect()))
}

impl EntryHandle {
    /// Waits until the process has entered, which takes a few milliseconds.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Setup`] with the step that failed; [`Error::Timeout`] after `timeout`;
    /// [`Error::LauncherExited`] if the process ended before.
    pub fn wait(self, timeout: Duration) -> Result<EnteredProcess, Error> {
        set_socket_timeout(&self.channel, Timeout::Recv, Some(timeout))
            .map_err(|error| Error::failed_to("set a socket timeout")(error.into()))?;
        // The parent sends the pidfd of the process inside, and that process sends the completion, in either order.
        let (mut process, mut done) = (None, false);
        loop {
            let message = self.channel.receive::<EntryMessage>(true).map_err(|error| match error.kind() {
                io::ErrorKind::WouldBlock => Error::Timeout(timeout),
                _ => Error::failed_to("receive a message from the process that enters")(error),
            })?;
            match message {
                Some((EntryMessage::Forked(pid), descriptors)) => {
                    process = descriptors.into_iter().next().map(|pidfd| EnteredProcess { pid, pidfd });
                }
                Some((EntryMessage::Failed { step, errno }, _)) => {
                    return Err(Error::Setup(StepFailure { step: Step::Entry, operation: step, errno }));
                }
                Some((EntryMessage::Done, _)) => done = true,
                None => return Err(Error::LauncherExited("the process that was to enter ended".to_owned())),
            }
            if done && let Some(process) = process.take() {
                return Ok(process);
            }
        }
    }
}

//! Tests of the sandbox from outside: ends, remains and errors.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use belljar_sandbox::{
    self as sandbox, Error, ExitStatus, FolderSource, IsolationLevel, Policy, ResourceLimits, Sandbox, Spec, Step,
    Streams,
};
use belljar_testing::{Capability, Trial};

use crate::trials::attack_trials::session;
use crate::trials::host_user::{HostUser, TestResult, python};
use crate::trials::zygote::Zygote;
use crate::trials::{devices, endings, floods, weak};

const MEBIBYTE: u64 = 1 << 20;

/// A scenario: its name, whether only root can run it, and its function.
type Scenario = (&'static str, bool, fn() -> TestResult);

const SCENARIOS: &[Scenario] = &[
    ("probe_finds_the_full_sandbox", false, probe_finds_the_full_sandbox),
    ("exit_status_is_reported", false, exit_status_is_reported),
    ("ending_signal_is_reported", false, ending_signal_is_reported),
    ("signal_reaches_the_program", false, signal_reaches_the_program),
    ("program_reads_the_given_standard_input", false, program_reads_the_given_standard_input),
    ("processes_left_behind_die_with_the_program", false, endings::processes_left_behind_die_with_the_program),
    ("dropping_the_sandbox_kills_all_processes", false, endings::dropping_the_sandbox_kills_all_processes),
    ("killed_fork_server_is_replaced", false, endings::killed_fork_server_is_replaced),
    ("killing_the_launcher_kills_all_processes", false, endings::killing_the_launcher_kills_all_processes),
    ("death_of_the_host_kills_all_processes", false, endings::death_of_the_host_kills_all_processes),
    ("many_threads_create_sandboxes_at_once", false, many_threads_create_sandboxes_at_once),
    ("sandbox_outlives_the_thread_that_created_it", false, sandbox_outlives_the_thread_that_created_it),
    ("killing_all_processes_spares_the_host", false, killing_all_processes_spares_the_host),
    ("fork_bomb_is_bounded", false, floods::fork_bomb_is_bounded),
    ("number_of_threads_is_bounded", false, floods::number_of_threads_is_bounded),
    ("one_process_cannot_use_all_memory", false, floods::one_process_cannot_use_all_memory),
    ("many_processes_cannot_use_all_memory", false, floods::many_processes_cannot_use_all_memory),
    ("shared_pages_count_towards_the_memory_limit", false, floods::shared_pages_count_towards_the_memory_limit),
    (
        "unread_data_of_unix_sockets_counts_towards_the_memory_limit",
        false,
        floods::unread_data_of_unix_sockets_counts_towards_the_memory_limit,
    ),
    (
        "unread_data_of_closed_sockets_counts_towards_the_memory_limit",
        false,
        floods::unread_data_of_closed_sockets_counts_towards_the_memory_limit,
    ),
    (
        "sockets_on_their_way_count_towards_the_memory_limit",
        false,
        floods::sockets_on_their_way_count_towards_the_memory_limit,
    ),
    ("unread_data_of_tcp_is_limited", false, floods::unread_data_of_tcp_is_limited),
    ("unread_data_of_udp_is_limited", false, floods::unread_data_of_udp_is_limited),
    ("pipes_count_towards_the_memory_limit", false, floods::pipes_count_towards_the_memory_limit),
    ("page_tables_count_towards_the_memory_limit", false, floods::page_tables_count_towards_the_memory_limit),
    ("many_sockets_without_data_are_no_excess", false, floods::many_sockets_without_data_are_no_excess),
    ("connections_to_the_listener_reach_the_host", false, connections_to_the_listener_reach_the_host),
    ("flood_of_output_waits_for_its_reader", false, floods::flood_of_output_waits_for_its_reader),
    ("cpu_time_is_bounded", false, floods::cpu_time_is_bounded),
    ("host_reads_a_folder_in_memory", false, host_reads_a_folder_in_memory),
    ("error_names_a_missing_program", false, error_names_a_missing_program),
    ("error_names_a_missing_path", false, error_names_a_missing_path),
    ("too_large_specification_is_refused", false, too_large_specification_is_refused),
    ("invalid_user_is_refused", false, invalid_user_is_refused),
    ("path_that_only_root_can_reach_is_visible", true, path_that_only_root_can_reach_is_visible),
    ("kill_all_keeps_the_files", false, kill_all_keeps_the_files),
    ("error_names_the_failed_step_of_entering", false, error_names_the_failed_step_of_entering),
    ("memory_of_entered_processes_is_limited", false, memory_of_entered_processes_is_limited),
    (
        "signals_of_entered_processes_do_not_reach_the_zygote",
        false,
        signals_of_entered_processes_do_not_reach_the_zygote,
    ),
    ("only_the_given_device_is_usable", true, devices::only_the_given_device_is_usable),
    ("device_without_permission_is_refused", true, devices::device_without_permission_is_refused),
    (CONTROL_GROUP_SCENARIO, true, all_processes_are_in_the_control_group),
    ("weak_sandbox_refuses_access_to_the_host", false, weak::weak_sandbox_refuses_access_to_the_host),
    ("weak_sandbox_kills_processes_left_behind", false, weak::weak_sandbox_kills_processes_left_behind),
    ("missing_namespaces_give_a_hint", false, weak::missing_namespaces_give_a_hint),
    ("unsandboxed_program_reads_host_files", false, weak::unsandboxed_program_reads_host_files),
];

pub(crate) fn trials(user: HostUser) -> Vec<Trial> {
    let can_run = |only_root: bool| !only_root || user == HostUser::Root;
    let all = SCENARIOS.iter().filter(|(_, only_root, _)| can_run(*only_root));
    let trial = |&(name, ..): &Scenario| {
        let mut needs = user.needs().to_vec();
        if name == CONTROL_GROUP_SCENARIO {
            needs.push(Capability::ControlGroups);
        }
        let test = move || user.run_task(name, &[]).map(drop);
        belljar_testing::trial_result(format!("scenarios::{user}::{name}"), &needs, test)
    };
    all.map(trial).collect()
}

const CONTROL_GROUP_SCENARIO: &str = "all_processes_are_in_the_control_group";

/// Runs a scenario, in a process of the [`HostUser`].
pub(crate) fn run_scenario(name: &str) -> TestResult {
    if name == endings::OWNER {
        return endings::own_until_killed();
    }
    if name == weak::PROBE {
        return weak::probe_without_namespaces();
    }
    let (.., scenario) = SCENARIOS.iter().find(|(known, ..)| *known == name).ok_or("unknown scenario")?;
    scenario()
}

/// A sandbox of Python code, and its output, which ends when the last process that can write has ended.
pub(crate) struct Running {
    pub(crate) sandbox: Sandbox,
    pub(crate) output: File,
}

/// Runs Python code with `limits`.
pub(crate) fn run(code: &str, limits: ResourceLimits) -> Result<Running, Box<dyn std::error::Error>> {
    run_in(Spec { limits, ..python_spec(code) })
}

pub(crate) fn python_spec(code: &str) -> Spec {
    let user = HostUser::session_user(1);
    Spec { user, ..Spec::new([python().display().to_string(), "-B".into(), "-c".into(), code.into()]) }
}

fn run_in(spec: Spec) -> Result<Running, Box<dyn std::error::Error>> {
    run_under(&spec, Policy::Full)
}

pub(crate) fn run_under(spec: &Spec, policy: Policy) -> Result<Running, Box<dyn std::error::Error>> {
    let (reader, output) = std::io::pipe()?;
    let output = OwnedFd::from(output);
    let streams = Streams { input: None, errors: output.try_clone()?.into(), output: output.into() };
    let sandbox = sandbox::spawn(spec, policy, streams)?;
    Ok(Running { sandbox, output: File::from(OwnedFd::from(reader)) })
}

impl Running {
    /// Reads the next line.
    pub(crate) fn line(&mut self) -> Result<String, Box<dyn std::error::Error>> {
        let mut line = Vec::new();
        let mut byte = [0];
        while self.output.read(&mut byte)? == 1 && byte != *b"\n" {
            line.extend(byte);
        }
        Ok(String::from_utf8(line)?)
    }

    /// Reads the remaining output, up to a bound. Returns when all processes inside have ended.
    pub(crate) fn rest(&mut self) -> Result<String, Box<dyn std::error::Error>> {
        let mut text = String::new();
        (&mut self.output).take(MEBIBYTE).read_to_string(&mut text)?;
        Ok(text)
    }
}

/// Returns an error with both values unless they are equal.
macro_rules! equal {
    ($left:expr, $right:expr) => {{
        let (left, right) = ($left, $right);
        if left != right {
            return Err(format!("{left:?} should be {right:?} (line {})", line!()).into());
        }
    }};
}
pub(crate) use equal;

fn connections_to_the_listener_reach_the_host() -> TestResult {
    let code = "import pathlib, socket\n\
                descriptors = [path for path in pathlib.Path('/proc/self/fd').iterdir() if path.exists()]\n\
                sockets = [path for path in descriptors if path.is_socket()]\n\
                stream = socket.create_connection(('127.0.0.1', 3128))\n\
                stream.sendall(b'from inside')\n\
                print(sockets, stream.recv(100).decode())\n";
    let mut running = run_in(Spec { listener: Some(3128), ..python_spec(code) })?;
    let listener = TcpListener::from(running.sandbox.take_listener().ok_or("there is no listener")?);
    equal!(running.sandbox.take_listener().is_none(), true);
    equal!(listener.local_addr()?.to_string(), "127.0.0.1:3128".to_owned());
    // The address is one of the sandbox's network, not of the host's.
    let port = TcpListener::bind("127.0.0.1:3128").map(drop);
    equal!(port.map_err(|error| error.to_string()), Ok(()));
    let (mut stream, peer) = listener.accept()?;
    equal!(peer.ip().is_loopback(), true);
    let mut text = [0; 11];
    stream.read_exact(&mut text)?;
    equal!(&text, b"from inside");
    stream.write_all(b"from the host")?;
    equal!(running.rest()?, "[] from the host\n".to_owned());
    let weak = sandbox::spawn(&Spec { listener: Some(3128), ..python_spec("") }, Policy::Weak, Streams::default());
    equal!(weak.err().map(|error| error.to_string().contains("needs namespaces")), Some(true));
    Ok(())
}

fn probe_finds_the_full_sandbox() -> TestResult {
    let probe = sandbox::probe(HostUser::session_user(1))?;
    equal!(probe.level, Some(IsolationLevel::Full));
    Ok(probe.check(Policy::Full)?)
}

fn exit_status_is_reported() -> TestResult {
    let mut running = run("raise SystemExit(7)", ResourceLimits::default())?;
    equal!(running.sandbox.wait()?, ExitStatus::Exited(7));
    Ok(())
}

fn ending_signal_is_reported() -> TestResult {
    let mut running = run("import os; os.kill(os.getpid(), 11)", ResourceLimits::default())?;
    equal!(running.sandbox.wait()?, ExitStatus::Signalled(11));
    Ok(())
}

fn signal_reaches_the_program() -> TestResult {
    let code = "import time\ntry:\n print('ready', flush=True)\n time.sleep(100)\nexcept KeyboardInterrupt:\n raise SystemExit(42)";
    let mut running = run(code, ResourceLimits::default())?;
    equal!(running.line()?, "ready");
    running.sandbox.signal(2)?;
    equal!(running.sandbox.wait()?, ExitStatus::Exited(42));
    Ok(())
}

fn program_reads_the_given_standard_input() -> TestResult {
    let (input, mut writer) = std::io::pipe()?;
    let (mut reader, output) = std::io::pipe()?;
    let spec = python_spec("print(input()[::-1])");
    let streams = Streams { input: Some(input.into()), output: Some(output.into()), errors: None };
    let mut running = sandbox::spawn(&spec, Policy::Full, streams)?;
    writer.write_all(b"abc\n")?;
    let mut text = String::new();
    reader.read_to_string(&mut text)?;
    equal!(text, "cba\n");
    equal!(running.wait()?, ExitStatus::Exited(0));
    Ok(())
}

fn many_threads_create_sandboxes_at_once() -> TestResult {
    let output = |number: usize| run(&format!("print({number})"), ResourceLimits::default())?.rest();
    let make = |number| std::thread::spawn(move || output(number).map_err(|error| error.to_string()));
    let threads: Vec<_> = (0..16).map(make).collect();
    for (number, thread) in threads.into_iter().enumerate() {
        equal!(thread.join().map_err(|_| "a thread panicked")??, format!("{number}\n"));
    }
    Ok(())
}

fn sandbox_outlives_the_thread_that_created_it() -> TestResult {
    let made = std::thread::spawn(|| {
        run("input()\nprint('alive')", ResourceLimits::default()).map_err(|error| error.to_string())
    });
    let mut running = made.join().map_err(|_| "the thread panicked")??;
    // `input` fails at once, since standard input is empty. The program must not be killed with the thread.
    if !running.rest()?.contains("EOFError") {
        return Err("the program was killed with the thread".into());
    }
    equal!(running.sandbox.wait()?, ExitStatus::Exited(1));
    Ok(())
}

fn killing_all_processes_spares_the_host() -> TestResult {
    let mut victim = Command::new("/bin/sleep").arg("1000").spawn()?;
    let code = "import os, signal\nif os.fork() == 0:\n signal.pause()\nos.kill(-1, 9)\nprint('survived')";
    let mut running = run(code, ResourceLimits::default())?;
    let (text, alive) = (running.rest()?, victim.try_wait()?.is_none());
    victim.kill()?;
    victim.wait()?;
    equal!((text.as_str(), alive), ("survived\n", true));
    equal!(running.sandbox.wait()?, ExitStatus::Exited(0));
    Ok(())
}

fn host_reads_a_folder_in_memory() -> TestResult {
    let folder = tempfile::tempdir()?;
    let code = "open('/home/user/result', 'w').write('from inside')\nprint('ready', flush=True)\nimport time; time.sleep(1000)";
    let mut running = run_in(session(python_spec(code), folder.path())?)?;
    equal!(running.line()?, "ready");
    let home = running.sandbox.folder(Path::new("/home/user")).ok_or("no folder")?;
    let text = fs::read_to_string(format!("/proc/self/fd/{}/result", home.as_raw_fd()))?;
    equal!(text, "from inside");
    Ok(())
}

fn failed_step(outcome: Result<Sandbox, Error>) -> Result<(Step, Option<i32>, String), Box<dyn std::error::Error>> {
    match outcome {
        Ok(_) => Err("the sandbox was created".into()),
        Err(Error::Setup(failure)) => Ok((failure.step, failure.errno, failure.to_string())),
        Err(other) => Err(format!("another error: {other}").into()),
    }
}

fn error_names_a_missing_program() -> TestResult {
    let spec = Spec { user: HostUser::session_user(1), ..Spec::new(["/usr/bin/no-such-program"]) };
    let (step, errno, text) = failed_step(sandbox::spawn(&spec, Policy::Full, Streams::default()))?;
    equal!((step, errno), (Step::Program, Some(libc::ENOENT)));
    equal!(text.contains("/usr/bin/no-such-program"), true);
    Ok(())
}

fn error_names_a_missing_path() -> TestResult {
    let mut spec = python_spec("pass");
    spec.readable.push("/no/such/path".into());
    let (step, errno, text) = failed_step(sandbox::spawn(&spec, Policy::Full, Streams::default()))?;
    equal!((step, errno), (Step::Path, Some(libc::ENOENT)));
    equal!(text.contains("/no/such/path"), true);
    Ok(())
}

fn too_large_specification_is_refused() -> TestResult {
    let mut spec = python_spec("pass");
    spec.environment.insert("LARGE".to_owned(), "x".repeat(1 << 20));
    match sandbox::spawn(&spec, Policy::Full, Streams::default()) {
        Err(Error::InvalidSpec(_)) => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}

fn invalid_user_is_refused() -> TestResult {
    let wrong = if HostUser::session_user(1).is_some() { Some(0) } else { Some(sandbox::SESSION_USERS.start) };
    let spec = Spec { user: wrong, ..python_spec("pass") };
    let (step, ..) = failed_step(sandbox::spawn(&spec, Policy::Full, Streams::default()))?;
    equal!(step, Step::Identity);
    Ok(())
}

fn path_that_only_root_can_reach_is_visible() -> TestResult {
    let private = tempfile::tempdir()?;
    fs::set_permissions(private.path(), fs::Permissions::from_mode(0o700))?;
    let (shown, hidden): (PathBuf, PathBuf) = (private.path().join("shown"), private.path().join("hidden"));
    for folder in [&shown, &hidden] {
        fs::create_dir(folder)?;
        fs::write(folder.join("text"), "seen")?;
    }
    let code = format!(
        "print(open('{}/text').read())\ntry: open('{}/text')\nexcept FileNotFoundError: print('hidden')\ntry: open('{}/text', 'w')\nexcept OSError: print('sealed')",
        shown.display(),
        hidden.display(),
        shown.display()
    );
    let mut spec = python_spec(&code);
    spec.readable.push(shown);
    let mut running = run_in(spec)?;
    equal!(running.rest()?, "seen\nhidden\nsealed\n");
    Ok(())
}

/// Creates a zygote, an idle sandbox, and the folder with their files.
fn idle_sandbox(
    limits: Option<ResourceLimits>,
) -> Result<(tempfile::TempDir, Zygote, Sandbox), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let shared = folder.path().join("shared");
    fs::create_dir(&shared)?;
    let zygote = Zygote::start(&python(), folder.path())?;
    let mut spec = session(Spec::idle(), &shared)?;
    if let Some(limits) = limits {
        spec.limits = limits;
    }
    equal!(spec.folders.iter().any(|folder| matches!(folder.source, FolderSource::Memory { .. })), true);
    let sandbox = sandbox::spawn(&spec, Policy::Full, Streams::default())?;
    Ok((folder, zygote, sandbox))
}

fn kill_all_keeps_the_files() -> TestResult {
    let (_folder, mut zygote, mut sandbox) = idle_sandbox(None)?;
    let (mut reader, output) = std::io::pipe()?;
    let code = "open('kept', 'w').write('still here')\nprint('ready', flush=True)\nimport time; time.sleep(1000)";
    zygote.run(&sandbox, code, output.into())?;
    let mut line = [0; 6];
    reader.read_exact(&mut line)?;
    sandbox.kill_all()?;
    equal!(reader.read_to_end(&mut Vec::new())?, 0);
    let (mut reader, output) = std::io::pipe()?;
    zygote.run(&sandbox, "print(open('kept').read())", output.into())?;
    let mut text = String::new();
    reader.read_to_string(&mut text)?;
    equal!(text, "still here\n");
    Ok(())
}

fn error_names_the_failed_step_of_entering() -> TestResult {
    let (_folder, mut zygote, sandbox) = idle_sandbox(None)?;
    let (mut entry, handle) = sandbox.entry([None, None, None])?;
    // In place of the sandbox's first process.
    entry.descriptors[1] = File::open("/dev/null")?.into();
    let refused = zygote.send(entry, handle, "pass").err().ok_or("the process entered")?;
    equal!(refused.to_string().contains("setns"), true);
    Ok(())
}

fn memory_of_entered_processes_is_limited() -> TestResult {
    let limits = ResourceLimits { memory_bytes: Some(200 * MEBIBYTE), ..ResourceLimits::default() };
    let (_folder, mut zygote, mut sandbox) = idle_sandbox(Some(limits))?;
    let (mut reader, output) = std::io::pipe()?;
    let code = "import os, time\nfor _ in range(3): os.fork()\nkept = b'x' * (60 << 20)\ntime.sleep(1000)";
    zygote.run(&sandbox, code, output.into())?;
    // The killed processes print nothing; what they print otherwise is the reason for a failure.
    let mut text = String::new();
    reader.read_to_string(&mut text)?;
    equal!(text.as_str(), "");
    let begin = Instant::now();
    while !sandbox.exceeded_memory() {
        if begin.elapsed() > Duration::from_secs(60) {
            return Err("the limit was not reported".into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn signals_of_entered_processes_do_not_reach_the_zygote() -> TestResult {
    let (_folder, mut zygote, sandbox) = idle_sandbox(None)?;
    // All processes that the code can name: the zygote by its ID on the host, the parent, the first process, those of
    // the process group and the session, which a process keeps when it enters namespaces, and all.
    let code = format!(
        "import os, signal
zygote = {}
deadly = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGQUIT, signal.SIGALRM]
stopping = [signal.SIGSTOP, signal.SIGKILL]
for number in deadly: signal.signal(number, signal.SIG_IGN)
own = {{os.getpid(), -os.getpid()}}
groups = {{0, -1, -os.getpgrp(), -os.getsid(0)}}
for target in {{zygote, -zygote, os.getppid(), -os.getppid(), 1}} | groups:
    for number in deadly + (stopping if target not in own | groups else []):
        try: os.kill(target, number)
        except OSError: pass
for number in deadly + stopping:
    try: signal.pidfd_send_signal(os.pidfd_open(zygote), number)
    except OSError: pass
print('sent', flush=True)
os.kill(0, signal.SIGKILL)",
        zygote.id()
    );
    let (mut reader, output) = std::io::pipe()?;
    zygote.run(&sandbox, &code, output.into())?;
    let mut text = String::new();
    reader.read_to_string(&mut text)?;
    equal!(text.as_str(), "sent\n");
    equal!(zygote.is_running()?, true);
    let (_other, _zygote, idle) = idle_sandbox(None)?;
    let (mut reader, output) = std::io::pipe()?;
    zygote.run(&idle, "print('alive')", output.into())?;
    text.clear();
    reader.read_to_string(&mut text)?;
    equal!(text.as_str(), "alive\n");
    Ok(())
}

/// Needs no particular controller: the unit tests of `control_group.rs` cover the limits.
fn all_processes_are_in_the_control_group() -> TestResult {
    let mounted = sandbox::cgroup2_mount_point().ok_or("cgroup v2 is not mounted")?;
    let groups = mounted.join(format!("belljar-test-{}", std::process::id()));
    fs::create_dir(&groups)?;
    let outcome = in_a_control_group(&groups);
    fs::remove_dir(&groups)?;
    outcome
}

fn in_a_control_group(groups: &Path) -> TestResult {
    let folder = tempfile::tempdir()?;
    let mut zygote = Zygote::start(&python(), folder.path())?;
    let spec = Spec { control_groups: Some(groups.to_owned()), user: HostUser::session_user(1), ..Spec::idle() };
    let sandbox = sandbox::spawn(&spec, Policy::Full, Streams::default())?;
    let processes = groups.join(format!("belljar-{}/cgroup.procs", sandbox.launcher_pid()));
    equal!(fs::read_to_string(&processes)?.lines().count(), 2);
    let (mut reader, output) = std::io::pipe()?;
    zygote.run(&sandbox, "print('ready', flush=True)\nimport time; time.sleep(1000)", output.into())?;
    reader.read_exact(&mut [0; 6])?;
    // The parent of the process that entered may not have exited yet.
    let begin = Instant::now();
    while fs::read_to_string(&processes)?.lines().count() != 3 {
        if begin.elapsed() > Duration::from_secs(60) {
            return Err(format!("there are other processes: {}", fs::read_to_string(&processes)?).into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(sandbox);
    equal!(processes.exists(), false);
    Ok(())
}

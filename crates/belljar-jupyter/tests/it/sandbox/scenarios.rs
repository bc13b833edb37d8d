//! What is seen from outside: how things end, what is left, and what errors say.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use belljar_jupyter::sandbox::{self, Ended, Error, Limits, Policy, Sandbox, Source, Spec, Step, Streams, Strength};
use libtest_mimic::Trial;

use crate::trials::attacked::session;
use crate::trials::person::{Outcome, Person, python};
use crate::trials::zygote::Zygote;
use crate::trials::{devices, endings, floods, weak};

const MEBIBYTE: u64 = 1 << 20;

/// Its name, whether only root can play it, and what it does.
type Scenario = (&'static str, bool, fn() -> Outcome);

const SCENARIOS: &[Scenario] = &[
    ("this_machine_is_found_to_be_strong", false, this_machine_is_found_to_be_strong),
    ("a_status_is_reported", false, a_status_is_reported),
    ("a_signal_that_ended_the_program_is_reported", false, a_signal_that_ended_the_program_is_reported),
    ("a_signal_reaches_the_program", false, a_signal_reaches_the_program),
    ("standard_input_is_what_was_given", false, standard_input_is_what_was_given),
    ("what_a_program_leaves_behind_dies_with_it", false, endings::what_a_program_leaves_behind_dies_with_it),
    ("dropping_the_sandbox_kills_all", false, endings::dropping_the_sandbox_kills_all),
    ("the_end_of_the_fork_server_harms_nobody", false, endings::the_end_of_the_fork_server_harms_nobody),
    ("killing_the_launcher_kills_all", false, endings::killing_the_launcher_kills_all),
    ("the_death_of_the_owner_kills_all", false, endings::the_death_of_the_owner_kills_all),
    ("many_threads_make_sandboxes_at_once", false, many_threads_make_sandboxes_at_once),
    ("the_thread_that_made_it_may_end", false, the_thread_that_made_it_may_end),
    ("killing_everybody_kills_nobody_outside", false, killing_everybody_kills_nobody_outside),
    ("a_fork_bomb_is_bounded", false, floods::a_fork_bomb_is_bounded),
    ("threads_are_bounded", false, floods::threads_are_bounded),
    ("one_process_cannot_take_all_memory", false, floods::one_process_cannot_take_all_memory),
    ("many_processes_cannot_take_all_memory", false, floods::many_processes_cannot_take_all_memory),
    ("shared_pages_count", false, floods::shared_pages_count),
    ("a_flood_of_output_waits_for_its_reader", false, floods::a_flood_of_output_waits_for_its_reader),
    ("processor_time_is_bounded", false, floods::processor_time_is_bounded),
    ("a_folder_in_memory_is_seen_from_outside", false, a_folder_in_memory_is_seen_from_outside),
    ("a_missing_program_is_named", false, a_missing_program_is_named),
    ("a_missing_path_is_named", false, a_missing_path_is_named),
    ("a_description_that_is_too_large_is_refused", false, a_description_that_is_too_large_is_refused),
    ("a_user_that_cannot_be_had_is_refused", false, a_user_that_cannot_be_had_is_refused),
    ("what_only_root_reaches_is_shown_to_the_session", true, what_only_root_reaches_is_shown_to_the_session),
    ("an_emptied_sandbox_keeps_its_files", false, an_emptied_sandbox_keeps_its_files),
    ("a_step_of_entering_that_fails_is_named", false, a_step_of_entering_that_fails_is_named),
    ("memory_is_counted_for_processes_that_entered", false, memory_is_counted_for_processes_that_entered),
    (
        "a_device_that_is_handed_in_answers_and_no_other_is_there",
        true,
        devices::a_device_that_is_handed_in_answers_and_no_other_is_there,
    ),
    (
        "a_device_that_the_sessions_user_cannot_open_is_refused_beforehand",
        true,
        devices::a_device_that_the_sessions_user_cannot_open_is_refused_beforehand,
    ),
    (IN_A_GROUP, true, all_that_runs_is_in_a_control_group),
    ("the_weak_sandbox_holds_what_it_can", false, weak::the_weak_sandbox_holds_what_it_can),
    (
        "what_a_program_without_namespaces_leaves_behind_dies_with_it",
        false,
        weak::what_a_program_without_namespaces_leaves_behind_dies_with_it,
    ),
    ("a_machine_without_namespaces_is_told_what_to_do", false, weak::a_machine_without_namespaces_is_told_what_to_do),
    ("nothing_holds_what_is_unsandboxed_by_name", false, weak::nothing_holds_what_is_unsandboxed_by_name),
];

pub(crate) fn trials(person: Person) -> Vec<Trial> {
    let played = |only_root: bool| !only_root || person == Person::Root;
    let all = SCENARIOS.iter().filter(|(_, only_root, _)| played(*only_root));
    let no_groups = sandbox::control_groups_mounted_at().is_none();
    if no_groups {
        eprintln!("SKIPPED: {IN_A_GROUP} as {person}: no control groups of version 2 are mounted");
    }
    all.map(|&(name, ..)| {
        Trial::test(format!("scenarios::{person}::{name}"), move || person.play(name, &[]).map(drop))
            .with_ignored_flag(no_groups && name == IN_A_GROUP)
    })
    .collect()
}

const IN_A_GROUP: &str = "all_that_runs_is_in_a_control_group";

/// In a process of the person's.
pub(crate) fn play(name: &str) -> Outcome {
    if name == endings::OWNER {
        return endings::own_until_killed();
    }
    if name == weak::ASKER {
        return weak::ask();
    }
    let (.., scenario) = SCENARIOS.iter().find(|(known, ..)| *known == name).ok_or("there is no such part")?;
    scenario()
}

/// A sandbox of Python code, and what it writes: until the last process that could write has ended.
pub(crate) struct Running {
    pub(crate) sandbox: Sandbox,
    pub(crate) output: File,
}

/// Runs Python code with `limits`.
pub(crate) fn run(code: &str, limits: Limits) -> Result<Running, Box<dyn std::error::Error>> {
    run_in(Spec { limits, ..python_spec(code) })
}

pub(crate) fn python_spec(code: &str) -> Spec {
    let user = Person::session_user(1);
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
    /// The next line that is written.
    pub(crate) fn line(&mut self) -> Result<String, Box<dyn std::error::Error>> {
        let mut line = Vec::new();
        let mut byte = [0];
        while self.output.read(&mut byte)? == 1 && byte != *b"\n" {
            line.extend(byte);
        }
        Ok(String::from_utf8(line)?)
    }

    /// All that is written from here on, up to a bound. Ends when every process inside has.
    pub(crate) fn rest(&mut self) -> Result<String, Box<dyn std::error::Error>> {
        let mut text = String::new();
        (&mut self.output).take(MEBIBYTE).read_to_string(&mut text)?;
        Ok(text)
    }
}

/// Fails with both sides of what should be equal.
macro_rules! equal {
    ($left:expr, $right:expr) => {{
        let (left, right) = ($left, $right);
        if left != right {
            return Err(format!("{left:?} should be {right:?} (line {})", line!()).into());
        }
    }};
}
pub(crate) use equal;

fn this_machine_is_found_to_be_strong() -> Outcome {
    let findings = sandbox::probe(Person::session_user(1))?;
    equal!(findings.strength, Some(Strength::Full));
    Ok(findings.admit(Policy::Full)?)
}

fn a_status_is_reported() -> Outcome {
    let mut running = run("raise SystemExit(7)", Limits::default())?;
    equal!(running.sandbox.wait()?, Ended::Exited(7));
    Ok(())
}

fn a_signal_that_ended_the_program_is_reported() -> Outcome {
    let mut running = run("import os; os.kill(os.getpid(), 11)", Limits::default())?;
    equal!(running.sandbox.wait()?, Ended::Signalled(11));
    Ok(())
}

fn a_signal_reaches_the_program() -> Outcome {
    let code = "import time\ntry:\n print('ready', flush=True)\n time.sleep(100)\nexcept KeyboardInterrupt:\n raise SystemExit(42)";
    let mut running = run(code, Limits::default())?;
    equal!(running.line()?, "ready");
    running.sandbox.signal(2)?;
    equal!(running.sandbox.wait()?, Ended::Exited(42));
    Ok(())
}

fn standard_input_is_what_was_given() -> Outcome {
    let (input, mut writer) = std::io::pipe()?;
    let (mut reader, output) = std::io::pipe()?;
    let spec = python_spec("print(input()[::-1])");
    let streams = Streams { input: Some(input.into()), output: Some(output.into()), errors: None };
    let mut running = sandbox::spawn(&spec, Policy::Full, streams)?;
    writer.write_all(b"abc\n")?;
    let mut text = String::new();
    reader.read_to_string(&mut text)?;
    equal!(text, "cba\n");
    equal!(running.wait()?, Ended::Exited(0));
    Ok(())
}

fn many_threads_make_sandboxes_at_once() -> Outcome {
    let said = |number: usize| run(&format!("print({number})"), Limits::default())?.rest();
    let make = |number| std::thread::spawn(move || said(number).map_err(|error| error.to_string()));
    let threads: Vec<_> = (0..16).map(make).collect();
    for (number, thread) in threads.into_iter().enumerate() {
        equal!(thread.join().map_err(|_| "a thread panicked")??, format!("{number}\n"));
    }
    Ok(())
}

fn the_thread_that_made_it_may_end() -> Outcome {
    let made =
        std::thread::spawn(|| run("input()\nprint('alive')", Limits::default()).map_err(|error| error.to_string()));
    let mut running = made.join().map_err(|_| "the thread panicked")??;
    // `input` fails at once, since there is none; what matters is that the program was not killed.
    if !running.rest()?.contains("EOFError") {
        return Err("the program was killed with the thread".into());
    }
    equal!(running.sandbox.wait()?, Ended::Exited(1));
    Ok(())
}

fn killing_everybody_kills_nobody_outside() -> Outcome {
    let mut victim = Command::new("/bin/sleep").arg("1000").spawn()?;
    let code = "import os, signal\nif os.fork() == 0:\n signal.pause()\nos.kill(-1, 9)\nprint('survived')";
    let mut running = run(code, Limits::default())?;
    let (text, alive) = (running.rest()?, victim.try_wait()?.is_none());
    victim.kill()?;
    victim.wait()?;
    equal!((text.as_str(), alive), ("survived\n", true));
    equal!(running.sandbox.wait()?, Ended::Exited(0));
    Ok(())
}

fn a_folder_in_memory_is_seen_from_outside() -> Outcome {
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
        Ok(_) => Err("a sandbox stood".into()),
        Err(Error::Step(failure)) => Ok((failure.step, failure.errno, failure.to_string())),
        Err(other) => Err(format!("another error: {other}").into()),
    }
}

fn a_missing_program_is_named() -> Outcome {
    let spec = Spec { user: Person::session_user(1), ..Spec::new(["/usr/bin/no-such-program"]) };
    let (step, errno, text) = failed_step(sandbox::spawn(&spec, Policy::Full, Streams::default()))?;
    equal!((step, errno), (Step::Program, Some(libc::ENOENT)));
    equal!(text.contains("/usr/bin/no-such-program"), true);
    Ok(())
}

fn a_missing_path_is_named() -> Outcome {
    let mut spec = python_spec("pass");
    spec.readable.push("/no/such/path".into());
    let (step, errno, text) = failed_step(sandbox::spawn(&spec, Policy::Full, Streams::default()))?;
    equal!((step, errno), (Step::Path, Some(libc::ENOENT)));
    equal!(text.contains("/no/such/path"), true);
    Ok(())
}

fn a_description_that_is_too_large_is_refused() -> Outcome {
    let mut spec = python_spec("pass");
    spec.environment.insert("LARGE".to_owned(), "x".repeat(1 << 20));
    match sandbox::spawn(&spec, Policy::Full, Streams::default()) {
        Err(Error::Specification(_)) => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}

fn a_user_that_cannot_be_had_is_refused() -> Outcome {
    let wrong = if Person::session_user(1).is_some() { Some(0) } else { Some(sandbox::SESSION_USERS.start) };
    let spec = Spec { user: wrong, ..python_spec("pass") };
    let (step, ..) = failed_step(sandbox::spawn(&spec, Policy::Full, Streams::default()))?;
    equal!(step, Step::Identity);
    Ok(())
}

fn what_only_root_reaches_is_shown_to_the_session() -> Outcome {
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

/// A zygote, a sandbox that waits, and the folder that holds what they need.
fn waiting(limits: Option<Limits>) -> Result<(tempfile::TempDir, Zygote, Sandbox), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let shared = folder.path().join("shared");
    fs::create_dir(&shared)?;
    let zygote = Zygote::start(&python(), folder.path())?;
    let mut spec = session(Spec::waiting(), &shared)?;
    if let Some(limits) = limits {
        spec.limits = limits;
    }
    equal!(spec.folders.iter().any(|folder| matches!(folder.source, Source::Memory { .. })), true);
    let sandbox = sandbox::spawn(&spec, Policy::Full, Streams::default())?;
    Ok((folder, zygote, sandbox))
}

fn an_emptied_sandbox_keeps_its_files() -> Outcome {
    let (_folder, mut zygote, mut sandbox) = waiting(None)?;
    let (mut reader, output) = std::io::pipe()?;
    let code = "open('kept', 'w').write('still here')\nprint('ready', flush=True)\nimport time; time.sleep(1000)";
    zygote.run(&sandbox, code, output.into())?;
    let mut line = [0; 6];
    reader.read_exact(&mut line)?;
    sandbox.empty()?;
    equal!(reader.read_to_end(&mut Vec::new())?, 0);
    let (mut reader, output) = std::io::pipe()?;
    zygote.run(&sandbox, "print(open('kept').read())", output.into())?;
    let mut text = String::new();
    reader.read_to_string(&mut text)?;
    equal!(text, "still here\n");
    Ok(())
}

fn a_step_of_entering_that_fails_is_named() -> Outcome {
    let (_folder, mut zygote, sandbox) = waiting(None)?;
    let (mut entry, arrival) = sandbox.entry([None, None, None])?;
    // In place of the sandbox's first process.
    entry.descriptors[1] = File::open("/dev/null")?.into();
    let refused = zygote.send(entry, arrival, "pass").err().ok_or("it entered")?;
    equal!(refused.to_string().contains("setns"), true);
    Ok(())
}

fn memory_is_counted_for_processes_that_entered() -> Outcome {
    let limits = Limits { memory_bytes: Some(200 * MEBIBYTE), ..Limits::default() };
    let (_folder, mut zygote, mut sandbox) = waiting(Some(limits))?;
    let (mut reader, output) = std::io::pipe()?;
    let code = "import os, time\nfor _ in range(3): os.fork()\nkept = b'x' * (60 << 20)\ntime.sleep(1000)";
    zygote.run(&sandbox, code, output.into())?;
    equal!(reader.read_to_end(&mut Vec::new())?, 0);
    let begin = Instant::now();
    while !sandbox.exceeded_memory() {
        if begin.elapsed() > Duration::from_secs(10) {
            return Err("nobody was told".into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Whatever controllers there are: that limits are written to those is tested with `control_group.rs`.
fn all_that_runs_is_in_a_control_group() -> Outcome {
    let mounted = sandbox::control_groups_mounted_at().ok_or("no control groups")?;
    let groups = mounted.join(format!("belljar-test-{}", std::process::id()));
    fs::create_dir(&groups)?;
    let outcome = in_a_control_group(&groups);
    fs::remove_dir(&groups)?;
    outcome
}

fn in_a_control_group(groups: &Path) -> Outcome {
    let folder = tempfile::tempdir()?;
    let mut zygote = Zygote::start(&python(), folder.path())?;
    let spec = Spec { control_groups: Some(groups.to_owned()), user: Person::session_user(1), ..Spec::waiting() };
    let sandbox = sandbox::spawn(&spec, Policy::Full, Streams::default())?;
    let processes = groups.join(format!("belljar-{}/cgroup.procs", sandbox.launcher()));
    equal!(fs::read_to_string(&processes)?.lines().count(), 2);
    let (mut reader, output) = std::io::pipe()?;
    zygote.run(&sandbox, "print('ready', flush=True)\nimport time; time.sleep(1000)", output.into())?;
    reader.read_exact(&mut [0; 6])?;
    // The process that it was forked from in there is on its way out.
    let begin = Instant::now();
    while fs::read_to_string(&processes)?.lines().count() != 3 {
        if begin.elapsed() > Duration::from_secs(10) {
            return Err(format!("there are others: {}", fs::read_to_string(&processes)?).into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(sandbox);
    equal!(processes.exists(), false);
    Ok(())
}

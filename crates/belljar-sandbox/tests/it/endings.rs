//! The end of the sandbox's processes.

use std::fs;
use std::io::Read;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};

use belljar_sandbox::{self as sandbox, ExitStatus, Policy, ResourceLimits, Streams};

use crate::trials::TASK_ARGUMENT;
use crate::trials::host_user::TestResult;
use crate::trials::scenarios::{Running, equal, python_spec, run};

/// Code that leaves a process in a session of its own which ignores all signals that can be ignored.
const DAEMON: &str = "import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    for number in range(1, 32):
        if number not in (9, 19): signal.signal(number, signal.SIG_IGN)
    if os.fork() == 0: time.sleep(1000)
    os._exit(0)
os.wait()
print('ready', flush=True)
";

pub(crate) fn processes_left_behind_die_with_the_program() -> TestResult {
    let mut running = run(&format!("{DAEMON}raise SystemExit(3)"), ResourceLimits::default())?;
    equal!(running.rest()?, "ready\n");
    equal!(running.sandbox.wait()?, ExitStatus::Exited(3));
    Ok(())
}

pub(crate) fn dropping_the_sandbox_kills_all_processes() -> TestResult {
    let mut running = run(&format!("{DAEMON}time.sleep(1000)"), ResourceLimits::default())?;
    equal!(running.line()?, "ready");
    let Running { sandbox, mut output } = running;
    drop(sandbox);
    equal!(output.read_to_end(&mut Vec::new())?, 0);
    Ok(())
}

pub(crate) fn killing_the_launcher_kills_all_processes() -> TestResult {
    let mut running = run(&format!("{DAEMON}time.sleep(1000)"), ResourceLimits::default())?;
    equal!(running.line()?, "ready");
    Command::new("/bin/kill").args(["-9", &running.sandbox.launcher_pid().to_string()]).status()?;
    equal!(running.rest()?, "");
    equal!(running.sandbox.wait()?, ExitStatus::Killed);
    Ok(())
}

/// Existing sandboxes do not depend on the fork server, and the next sandbox starts another one.
pub(crate) fn killed_fork_server_is_replaced() -> TestResult {
    let mut running = run("import time\nprint('ready', flush=True)\ntime.sleep(1000)", ResourceLimits::default())?;
    equal!(running.line()?, "ready");
    let status = fs::read_to_string(format!("/proc/{}/status", running.sandbox.launcher_pid()))?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).ok_or("the launcher has no parent")?.trim();
    equal!(fs::read_to_string(format!("/proc/{parent}/cmdline"))?, "belljar-sandbox\0__belljar-sandbox\0");
    Command::new("/bin/kill").args(["-9", parent]).status()?;
    equal!(run("print(1)", ResourceLimits::default())?.rest()?, "1\n");
    running.sandbox.signal(9)?;
    equal!(running.sandbox.wait()?, ExitStatus::Signalled(9));
    Ok(())
}

/// The task of a process that owns a sandbox and is killed.
pub(crate) const OWNER: &str = "owner";

pub(crate) fn own_until_killed() -> TestResult {
    let spec = python_spec(&format!("{DAEMON}time.sleep(1000)"));
    let output = std::io::stdout().as_fd().try_clone_to_owned()?;
    let streams = Streams { output: Some(output), ..Streams::default() };
    let mut sandbox = sandbox::spawn(&spec, Policy::Full, streams)?;
    sandbox.wait()?;
    Ok(())
}

pub(crate) fn death_of_the_host_kills_all_processes() -> TestResult {
    let mut owner = Command::new("/proc/self/exe").args([TASK_ARGUMENT, OWNER]).stdout(Stdio::piped()).spawn()?;
    let mut output = owner.stdout.take().ok_or("no output")?;
    let mut line = [0; 6];
    output.read_exact(&mut line)?;
    equal!(&line, b"ready\n");
    owner.kill()?;
    owner.wait()?;
    equal!(output.read_to_end(&mut Vec::new())?, 0);
    Ok(())
}

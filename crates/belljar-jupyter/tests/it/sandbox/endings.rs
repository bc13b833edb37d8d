//! Who dies when.

use std::fs;
use std::io::Read;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};

use belljar_jupyter::sandbox::{self, Ended, Limits, Policy, Streams};

use crate::trials::PART;
use crate::trials::person::Outcome;
use crate::trials::scenarios::{Running, equal, python_spec, run};

/// Leaves a process that no signal but one ends, in a session of its own.
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

pub(super) fn what_a_program_leaves_behind_dies_with_it() -> Outcome {
    let mut running = run(&format!("{DAEMON}raise SystemExit(3)"), Limits::default())?;
    equal!(running.rest()?, "ready\n");
    equal!(running.sandbox.wait()?, Ended::Exited(3));
    Ok(())
}

pub(super) fn dropping_the_sandbox_kills_all() -> Outcome {
    let mut running = run(&format!("{DAEMON}time.sleep(1000)"), Limits::default())?;
    equal!(running.line()?, "ready");
    let Running { sandbox, mut output } = running;
    drop(sandbox);
    equal!(output.read_to_end(&mut Vec::new())?, 0);
    Ok(())
}

pub(super) fn killing_the_launcher_kills_all() -> Outcome {
    let mut running = run(&format!("{DAEMON}time.sleep(1000)"), Limits::default())?;
    equal!(running.line()?, "ready");
    Command::new("/bin/kill").args(["-9", &running.sandbox.launcher().to_string()]).status()?;
    equal!(running.rest()?, "");
    equal!(running.sandbox.wait()?, Ended::Killed);
    Ok(())
}

/// Sandboxes stand on their launchers alone; and the next one gets another server.
pub(super) fn the_end_of_the_fork_server_harms_nobody() -> Outcome {
    let mut standing = run("import time\nprint('ready', flush=True)\ntime.sleep(1000)", Limits::default())?;
    equal!(standing.line()?, "ready");
    let status = fs::read_to_string(format!("/proc/{}/status", standing.sandbox.launcher()))?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).ok_or("no parent")?.trim();
    equal!(fs::read_to_string(format!("/proc/{parent}/cmdline"))?, "belljar-sandbox\0__belljar-sandbox\0");
    Command::new("/bin/kill").args(["-9", parent]).status()?;
    equal!(run("print(1)", Limits::default())?.rest()?, "1\n");
    standing.sandbox.signal(9)?;
    equal!(standing.sandbox.wait()?, Ended::Signalled(9));
    Ok(())
}

/// The part of somebody who owns a sandbox and is killed.
pub(super) const OWNER: &str = "owner";

pub(super) fn own_until_killed() -> Outcome {
    let spec = python_spec(&format!("{DAEMON}time.sleep(1000)"));
    let output = std::io::stdout().as_fd().try_clone_to_owned()?;
    let streams = Streams { output: Some(output), ..Streams::default() };
    let mut sandbox = sandbox::spawn(&spec, Policy::Full, streams)?;
    sandbox.wait()?;
    Ok(())
}

pub(super) fn the_death_of_the_owner_kills_all() -> Outcome {
    let mut owner = Command::new("/proc/self/exe").args([PART, OWNER]).stdout(Stdio::piped()).spawn()?;
    let mut output = owner.stdout.take().ok_or("no output")?;
    let mut line = [0; 6];
    output.read_exact(&mut line)?;
    equal!(&line, b"ready\n");
    owner.kill()?;
    owner.wait()?;
    equal!(output.read_to_end(&mut Vec::new())?, 0);
    Ok(())
}

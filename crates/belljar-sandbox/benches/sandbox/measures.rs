//! The cost of the sandbox: the time from the call to the first output and to the end of a program that prints one
//! word, with and without a sandbox; and the time until an idle sandbox is ready.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use belljar_sandbox::{self as sandbox, Policy, Spec, Streams};

const ROUNDS: usize = 200;
const WORD: [&str; 2] = ["/bin/echo", "x"];

type BenchResult<T> = Result<T, Box<dyn std::error::Error>>;

/// The times from the call to the first byte, and to the end.
#[derive(Default)]
struct Times {
    word: Vec<Duration>,
    end: Vec<Duration>,
}

impl Times {
    /// Measures one run: `start` starts the program with the given output, and returns a function that waits for its
    /// end.
    fn add<W: FnOnce() -> BenchResult<()>>(
        &mut self,
        start: impl FnOnce(OwnedFd) -> BenchResult<W>,
    ) -> BenchResult<()> {
        let (reader, output) = std::io::pipe()?;
        let begin = Instant::now();
        let wait = start(output.into())?;
        File::from(OwnedFd::from(reader)).read_exact(&mut [0])?;
        self.word.push(begin.elapsed());
        wait()?;
        self.end.push(begin.elapsed());
        Ok(())
    }
}

pub(crate) fn main() -> BenchResult<()> {
    sandbox::run_fork_server_if_child();
    let user = rustix::process::geteuid().is_root().then_some(sandbox::SESSION_USERS.start);
    let spec = Spec { user, directory: "/".into(), ..Spec::new(WORD) };
    let idle = Spec { user, directory: "/".into(), ..Spec::idle() };
    let (mut bare, mut weak, mut full, mut ready) = (Times::default(), Times::default(), Times::default(), Vec::new());
    let sandboxed = |policy: Policy| {
        let spec = &spec;
        move |output: OwnedFd| -> BenchResult<_> {
            let streams = Streams { output: output.into(), ..Streams::default() };
            let mut running = sandbox::spawn(spec, policy, streams)?;
            Ok(move || Ok(running.wait().map(drop)?))
        }
    };
    // The variants take turns, so that a busy moment of the machine affects all of them.
    for _ in 0..ROUNDS {
        bare.add(|output| {
            let mut child = Command::new(WORD[0]).arg(WORD[1]).stdin(Stdio::null()).stdout(output).spawn()?;
            Ok(move || Ok(child.wait().map(drop)?))
        })?;
        weak.add(sandboxed(Policy::Weak))?;
        full.add(sandboxed(Policy::Full))?;
        let begin = Instant::now();
        let sandbox = sandbox::spawn(&idle, Policy::Full, Streams::default())?;
        ready.push(begin.elapsed());
        drop(sandbox);
    }
    let mut out = std::io::stdout();
    writeln!(out, "| {ROUNDS} rounds | p50 ms | p95 ms |\n| --- | ---: | ---: |")?;
    for (what, times) in [
        ("bare process, to its first word", &mut bare.word),
        ("weak sandbox, to its first word", &mut weak.word),
        ("sandbox, to its first word", &mut full.word),
        ("bare process, to its end", &mut bare.end),
        ("weak sandbox, to its end", &mut weak.end),
        ("sandbox, to its end", &mut full.end),
        ("idle sandbox, ready", &mut ready),
    ] {
        times.sort_unstable();
        let at = |share: usize| times.get(times.len() * share / 100).map_or(0.0, |time| time.as_secs_f64() * 1000.0);
        writeln!(out, "| {what} | {:.2} | {:.2} |", at(50), at(95))?;
    }
    Ok(())
}

//! What the sandbox itself costs: a program that says one word, bare and sealed, from the call to the word and to its
//! end; and what it takes to have a sandbox ready for a process that enters.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use belljar_jupyter::sandbox::{self, Policy, Spec, Streams};

const ROUNDS: usize = 200;
const WORD: [&str; 2] = ["/bin/echo", "x"];

type Finding<T> = Result<T, Box<dyn std::error::Error>>;

/// From the call to the first byte, and to the end.
#[derive(Default)]
struct Times {
    word: Vec<Duration>,
    end: Vec<Duration>,
}

impl Times {
    /// `start` starts the program with its output going where it is told, and gives what waits for its end.
    fn add<W: FnOnce() -> Finding<()>>(&mut self, start: impl FnOnce(OwnedFd) -> Finding<W>) -> Finding<()> {
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

pub(crate) fn main() -> Finding<()> {
    sandbox::launch_if_asked();
    let user = rustix::process::geteuid().is_root().then_some(sandbox::SESSION_USERS.start);
    let spec = Spec { user, directory: "/".into(), ..Spec::new(WORD) };
    let waiting = Spec { user, directory: "/".into(), ..Spec::waiting() };
    let (mut bare, mut weak, mut full, mut ready) = (Times::default(), Times::default(), Times::default(), Vec::new());
    let sealed = |policy: Policy| {
        let spec = &spec;
        move |output: OwnedFd| -> Finding<_> {
            let streams = Streams { output: output.into(), ..Streams::default() };
            let mut running = sandbox::spawn(spec, policy, streams)?;
            Ok(move || Ok(running.wait().map(drop)?))
        }
    };
    // In turns, so that a busy moment of the machine is in all of them.
    for _ in 0..ROUNDS {
        bare.add(|output| {
            let mut child = Command::new(WORD[0]).arg(WORD[1]).stdin(Stdio::null()).stdout(output).spawn()?;
            Ok(move || Ok(child.wait().map(drop)?))
        })?;
        weak.add(sealed(Policy::Weak))?;
        full.add(sealed(Policy::Full))?;
        let begin = Instant::now();
        let sandbox = sandbox::spawn(&waiting, Policy::Full, Streams::default())?;
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
        ("sandbox that waits, ready", &mut ready),
    ] {
        times.sort_unstable();
        let at = |share: usize| times.get(times.len() * share / 100).map_or(0.0, |time| time.as_secs_f64() * 1000.0);
        writeln!(out, "| {what} | {:.2} | {:.2} |", at(50), at(95))?;
    }
    Ok(())
}

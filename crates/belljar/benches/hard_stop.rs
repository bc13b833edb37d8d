//! Time from the deadline to the outcome, for fourteen kinds of programs. Each of them must be stopped.

mod support;

use std::time::{Duration, Instant};

use belljar_core::{ExitReason, LimitKind, Limits, Outcome, RunRequest};
use belljar_python::Python;
use support::{Finding, Sample, Table, milliseconds};

const STOPS_EACH: u32 = 36;
/// The line that imports all modules at the start, so that the stop interrupts the actual work of a program.
const IMPORTS: &str = "import hashlib, os, random, re, select, time";

const PROGRAMS: [(&str, &str); 14] = [
    ("empty loop", "while True: pass"),
    ("one long operation in C", "10 ** (10 ** 8)"),
    ("regex", "re.match('(?:x+x+)+y', 'x' * 40)"),
    ("hashing", "b = b'x' * 8_000_000\nwhile True: hashlib.sha256(b).digest()"),
    ("sleeping", "time.sleep(30)"),
    ("polling", "select.poll().poll(30_000)"),
    (
        "recursion that catches its RecursionError",
        "def f():\n  while True:\n    try: f()\n    except Exception: pass\nf()",
    ),
    ("copying", "b = bytearray(100 << 20)\nwhile True: b[: 50 << 20] = b[50 << 20 :]"),
    ("system calls", "while True: os.stat('/')"),
    ("allocating", "while True: l = [[] for _ in range(100_000)]"),
    ("randomness", "while True: os.urandom(65536)"),
    ("exceptions", "while True:\n  try: int('x')\n  except ValueError: pass"),
    ("sorting", "while True: sorted(random.random() for _ in range(100_000))"),
    ("growing and shrinking", "l = []\nwhile True: l.append(bytearray(1 << 16)); l = l[-100:]"),
];

fn main() -> Finding<()> {
    support::main(|| {
        let python = support::python()?;
        let mut all = Sample::default();
        let mut table = Table::new(&["program", "stops", "median ms", "p90 ms", "max ms"]);
        for (name, code) in PROGRAMS {
            let mut sample = Sample::default();
            for number in 0..STOPS_EACH {
                let late = stop(&python, code, number)?;
                sample.add(late);
                all.add(late);
            }
            table.row(&row(name, &sample));
        }
        table.row(&row("**all**", &all));
        table.print("Hard stop: from the deadline to the outcome");
        Ok(())
    })
}

/// Runs `code` until its deadline. Returns the delay of the outcome in milliseconds.
fn stop(python: &Python, code: &str, number: u32) -> Finding<f64> {
    // Deadlines vary, so that stops occur at different points of the program.
    let allowed = Duration::from_millis(60 + u64::from(number * 7 % 23));
    let mut interpreter = support::interpreter(python, Limits { wall_time: Some(allowed), ..Limits::default() })?;
    let request = RunRequest::for_cell(format!("{IMPORTS}\n{code}"));
    let begin = Instant::now();
    let execution = interpreter.run(&request);
    let late = begin.elapsed().saturating_sub(allowed);
    match execution.outcome {
        Outcome::Exited(ExitReason::Limit(LimitKind::WallTime)) => Ok(milliseconds(late)),
        other => Err(format!("`{code}` was not stopped: {other:?}").into()),
    }
}

fn row(name: &str, sample: &Sample) -> [String; 5] {
    let [median, p90, max] = [0.5, 0.9, 1.0].map(|part| format!("{:.2}", sample.quantile(part)));
    [name.into(), sample.len().to_string(), median, p90, max]
}

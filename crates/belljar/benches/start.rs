//! The time of a process from `exec` to exit: `belljar run -c 'print(1)'` and the machine's own Python.

mod support;

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use support::{Finding, Sample, Table, timed};

const ROUNDS: usize = 200;
const NATIVE: &str = "/usr/bin/python3";

fn main() -> Finding<()> {
    let belljar = support::program();
    let mut contestants = [
        (
            "`belljar run -c 'print(1)'`",
            vec![belljar.as_os_str(), "run".as_ref(), "-c".as_ref(), "print(1)".as_ref()],
            Sample::default(),
        ),
        (
            "`/usr/bin/python3 -I -c 'print(1)'`",
            vec![NATIVE.as_ref(), "-I".as_ref(), "-c".as_ref(), "print(1)".as_ref()],
            Sample::default(),
        ),
    ];
    // The first runs may compile, and fill the file cache.
    for round in 0..ROUNDS + 5 {
        for (_, command, sample) in &mut contestants {
            let time = run(command)?;
            if round >= 5 {
                sample.add(time);
            }
        }
    }
    let native = contestants[1].2.median();
    let mut table = Table::new(&["whole process", "median ms", "min ms", "p90 ms", "against native"]);
    for (name, _, sample) in &contestants {
        let median = sample.median();
        let times = [median, sample.min(), sample.quantile(0.9)].map(|time| format!("{time:.2}"));
        table.row(&[*name, &times[0], &times[1], &times[2], &format!("{:.2}", median / native)]);
    }
    table.print(&format!("Start ({ROUNDS} interleaved runs)"));
    Ok(())
}

/// Runs a command that must print `1`. Returns its wall time in milliseconds.
fn run(command: &[&OsStr]) -> Finding<f64> {
    let mut process = Command::new(command[0]);
    process.args(&command[1..]).stdin(Stdio::null());
    let (time, output) = timed(|| process.output());
    let output = output?;
    if output.status.success() && output.stdout == b"1\n" { Ok(time) } else { Err(format!("{output:?}").into()) }
}

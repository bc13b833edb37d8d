//! Copies of the base image in one process: their creation time, memory and maximum number.

mod support;

use belljar_core::{Limits, RunRequest};
use belljar_python::{Interpreter, Python};
use support::{Finding, Sample, Table, timed};

const ROUNDS: usize = 500;
const WEIGHED: usize = 200;
const ALIVE: usize = 5000;

fn main() -> Finding<()> {
    support::main(|| {
        let python = support::python()?;
        time(&python)?;
        weigh(&python)?;
        crowd(&python)
    })
}

fn time(python: &Python) -> Finding<()> {
    let (mut restore, mut first, mut second, mut drop_time) =
        (Sample::default(), Sample::default(), Sample::default(), Sample::default());
    for _ in 0..ROUNDS {
        let (time, interpreter) = timed(|| fresh(python));
        restore.add(time);
        let mut interpreter = interpreter?;
        for sample in [&mut first, &mut second] {
            let (time, execution) = timed(|| interpreter.run(&RunRequest::for_cell("1 + 1")));
            sample.add(time);
            assert_eq!(support::value(execution)?, "2");
        }
        drop_time.add(timed(|| drop(interpreter)).0);
    }
    let mut table = Table::new(&["in process", "median ms", "min ms", "p90 ms"]);
    let rows = [
        ("restore", restore),
        ("first eval (`1 + 1`)", first),
        ("second eval", second),
        ("drop, after two evals", drop_time),
    ];
    for (name, sample) in rows {
        let times = [sample.median(), sample.min(), sample.quantile(0.9)].map(|time| format!("{time:.3}"));
        table.row(&[name, &times[0], &times[1], &times[2]]);
    }
    table.print(&format!("Restore and first eval ({ROUNDS} times)"));
    Ok(())
}

fn weigh(python: &Python) -> Finding<()> {
    // Memory that the first copies leave in the allocator must not be counted.
    drop((0..WEIGHED).map(|_| fresh(python)).collect::<Finding<Vec<_>>>()?);
    let (before, mappings) = (private_kilobytes()?, mappings()?);
    let mut interpreters = (0..WEIGHED).map(|_| fresh(python)).collect::<Finding<Vec<_>>>()?;
    let each = |total: u64| (total.saturating_sub(before) as f64) / WEIGHED as f64;
    let idle = each(private_kilobytes()?);
    let idle_mappings = (self::mappings()? - mappings) as f64 / WEIGHED as f64;
    for interpreter in &mut interpreters {
        support::value(interpreter.run(&RunRequest::for_cell("1 + 1")))?;
    }
    let used = each(private_kilobytes()?);
    let mut table = Table::new(&["a live instance", "private KiB", "mappings"]);
    table.row(&["idle", &format!("{idle:.0}"), &format!("{idle_mappings:.1}")]);
    let used_mappings = (self::mappings()? - mappings) as f64 / WEIGHED as f64;
    table.row(&["after `1 + 1`", &format!("{used:.0}"), &format!("{used_mappings:.1}")]);
    table.print(&format!("Memory (mean of {WEIGHED} instances)"));
    Ok(())
}

/// Gives each instance a number, and checks the numbers after all instances have been created.
fn crowd(python: &Python) -> Finding<()> {
    let (time, interpreters) = timed(|| -> Finding<Vec<Interpreter>> {
        (0..ALIVE)
            .map(|number| {
                let mut interpreter = fresh(python)?;
                support::value(interpreter.run(&RunRequest::for_cell(format!("x = {number}\nx"))))?;
                Ok(interpreter)
            })
            .collect()
    });
    let mut interpreters = interpreters?;
    for (number, interpreter) in interpreters.iter_mut().enumerate() {
        assert_eq!(support::value(interpreter.run(&RunRequest::for_cell("x")))?, number.to_string());
    }
    let mut table = Table::new(&[
        "simultaneous instances",
        "created and run in s",
        "private MiB in all",
        "mappings of the process",
    ]);
    let private = (private_kilobytes()? / 1024).to_string();
    table.row(&[&ALIVE.to_string(), &format!("{:.1}", time / 1e3), &private, &mappings()?.to_string()]);
    table.print("Simultaneous instances, each with its own state");
    Ok(())
}

fn fresh(python: &Python) -> Finding<Interpreter> {
    support::interpreter(python, Limits::default())
}

/// Returns the private memory of this process.
fn private_kilobytes() -> Finding<u64> {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup")?;
    let private = rollup.lines().filter(|line| line.starts_with("Private_"));
    Ok(private.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum())
}

fn mappings() -> Finding<usize> {
    Ok(std::fs::read_to_string("/proc/self/maps")?.lines().count())
}

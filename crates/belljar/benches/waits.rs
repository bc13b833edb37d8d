//! Code that waits without a thread: the cost of one wait, and of many calls that wait at the same time.
//!
//! A number after `--` is the number of simultaneous calls.

mod support;

use std::time::{Duration, Instant};

use serde_json::json;
use support::server::Server;
use support::{Finding, Sample, Table};

const ROUNDS: usize = 5;
const WAITS: usize = 1000;
/// The time of a wait: long enough that the loop does not find the timer due when it looks for work.
const WAIT: Duration = Duration::from_micros(500);
const CALLS: usize = 10_000;
const SECONDS: u64 = 60;

fn main() -> Finding<()> {
    let calls = std::env::args().find_map(|argument| argument.parse().ok());
    support::main(move || {
        if calls.is_none() {
            one_wait()?;
        }
        let calls = calls.unwrap_or(CALLS);
        let mut table = Table::new(&["", "cells of sessions", "calls of `run_python_code`"]);
        let (cells, runs) = (many(calls, "execute_code", "code")?, many(calls, "run_python_code", "python_code")?);
        for ((name, cell), (_, run)) in cells.into_iter().zip(runs) {
            table.row(&[name, &cell, &run]);
        }
        table.print(&format!("{calls} calls of `await asyncio.sleep({SECONDS})`, with two threads"));
        Ok(())
    })
}

/// Measures what a wait takes beyond its time, with and without its thread.
fn one_wait() -> Finding<()> {
    let mut server = Server::start("all", &[])?;
    let session = server.session()?;
    server.run(
        &session,
        &format!(
            "import asyncio, time\nasync def wait():\n    start = time.perf_counter()\n    for _ in range({WAITS}):\n\
             \x20       await asyncio.sleep({})\n    return (time.perf_counter() - start) / {WAITS} * 1e6",
            WAIT.as_secs_f64()
        ),
    )?;
    let mut samples = [Sample::default(), Sample::default()];
    for _ in 0..ROUNDS {
        for (sample, code) in samples.iter_mut().zip(["await wait()", "asyncio.run(wait())"]) {
            let answer = server.run(&session, code)?;
            let each: f64 = answer["result"].as_str().ok_or("no value")?.parse()?;
            sample.add(each - WAIT.as_secs_f64() * 1e6);
        }
    }
    server.end()?;
    let mut table = Table::new(&["µs beyond the time of the timer", "median", "min"]);
    for (name, sample) in ["without its thread", "with its thread"].into_iter().zip(samples) {
        table.row(&[name, &format!("{:.1}", sample.median()), &format!("{:.1}", sample.min())]);
    }
    table.print(&format!("A wait of {} µs ({ROUNDS} times {WAITS})", WAIT.as_micros()));
    Ok(())
}

/// Lets calls of a tool wait at the same time. Returns measurements with their names.
fn many(calls: usize, tool: &str, argument: &str) -> Finding<Vec<(&'static str, String)>> {
    let maximum = (calls + 100).to_string();
    let limits = ["--max-concurrency", "2", "--max-sessions", &maximum, "--max-queue", &maximum];
    let mut server = Server::start("all", &[&limits[..], &["--session-timeout", "100000"]].concat())?;
    server.call(tool, json!({ argument: "import asyncio\nawait asyncio.sleep(0.01)" }))?;
    let memory = server.private_megabytes()?;
    let (_, before) = server.threads_and_processor_time()?;
    let start = Instant::now();
    for _ in 0..calls {
        server.send(tool, json!({ argument: format!("import asyncio\nawait asyncio.sleep({SECONDS})\n42") }))?;
    }
    let sent = start.elapsed();
    // The first call has not ended, and the last one waits, too.
    let middle = Duration::from_secs(SECONDS).saturating_sub(Duration::from_secs(5));
    std::thread::sleep(middle.saturating_sub(start.elapsed()));
    let each = (server.private_megabytes()? - memory) / calls as f64;
    let (threads, _) = server.threads_and_processor_time()?;
    for _ in 0..calls {
        let answer = server.next_answer()?;
        let value = if tool == "execute_code" { &answer["result"] } else { &answer["return_value"] };
        if *value != "42" && *value != 42 {
            return Err(format!("a call failed: {answer}").into());
        }
    }
    let elapsed = start.elapsed();
    let (_, after) = server.threads_and_processor_time()?;
    server.end()?;
    let milliseconds = (after - before) * 1e3 / calls as f64;
    Ok(vec![
        ("s until all were sent", format!("{:.1}", sent.as_secs_f64())),
        ("s until all had ended", format!("{:.1}", elapsed.as_secs_f64())),
        ("threads of the server while they waited", threads.to_string()),
        ("MB of private memory each", format!("{each:.2}")),
        ("ms of processor time each", format!("{milliseconds:.2}")),
    ])
}

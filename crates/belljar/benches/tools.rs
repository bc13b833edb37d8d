//! Calls of tools by code, against the same calls by the client library alone, and the cost of servers that no code
//! calls. The server of the tools is that of the tests, in Python.

mod support;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use belljar_mcp_client::{CallOptions, McpServer, McpServerStdio};
use serde_json::{Value, json};
use support::{Finding, Sample, Table, program};

/// The number of calls one after another, and of calls at once.
const CALLS: usize = 1_000;
/// The number of times that calls at once are measured by one process, after a time that is not counted: a client and
/// an interpreter that make a thousand calls for the first time take memory from the system.
const ROUNDS: usize = 7;
/// The number of processes of each side, which take turns.
const TURNS: usize = 3;
/// The numbers of runs without calls, and of servers.
const RUNS: usize = 400;
const SERVERS: usize = 10;

const SERIES: &str = "
from tools import t
from time import perf_counter as now
await t.add(a=1)
times = []
for _ in range(1000):
    start = now()
    await t.add(a=1)
    times.append((now() - start) * 1e3)
times";

const GATHER: &str = "
import asyncio
from tools import t
from time import perf_counter as now
await t.add(a=1)
async def all_at_once():
    start = now()
    await asyncio.gather(*(t.add(a=1) for _ in range(1000)))
    return (now() - start) * 1e3
[await all_at_once() for _ in range(8)][1:]";

fn main() -> Finding<()> {
    support::main(|| {
        drop(support::python()?);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(async {
            calls().await?;
            idle_servers().await
        })
    })
}

fn script() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../belljar-tools/tests/it/python/tool_server.py").display().to_string()
}

async fn add(server: &McpServer) -> Finding<()> {
    server.call_tool_raw("add", json!({"a": 1}), CallOptions::new()).await?;
    Ok(())
}

async fn calls() -> Finding<()> {
    let (mut one, mut by_code, mut at_once, mut gathered) =
        (Sample::default(), Sample::default(), Sample::default(), Sample::default());
    let server = McpServerStdio::new("python3").args(["-u", &script(), "plain"]).id("t").build();
    let running = server.connect().await?;
    add(&server).await?;
    for _ in 0..CALLS {
        let begin = std::time::Instant::now();
        add(&server).await?;
        one.add(support::milliseconds(begin.elapsed()));
    }
    for time in run_code(SERIES)?.as_array().into_iter().flatten() {
        by_code.add(time.as_f64().unwrap_or(f64::NAN));
    }
    running.close().await?;
    for _ in 0..TURNS {
        for time in all_at_once().await? {
            at_once.add(time);
        }
        for time in run_code(GATHER)?.as_array().into_iter().flatten() {
            gathered.add(time.as_f64().unwrap_or(f64::NAN));
        }
    }
    let mut table = Table::new(&["", "client alone", "code", "difference or ratio"]);
    let (alone, code) = (one.median(), by_code.median());
    table.row(&["one call, p50 ms", &format!("{alone:.3}"), &format!("{code:.3}"), &format!("{:+.3}", code - alone)]);
    for (name, part) in [("median", 0.5), ("min", 0.0)] {
        let (alone, code) = (at_once.quantile(part), gathered.quantile(part));
        let name = format!("{CALLS} calls at once, {name} ms");
        table.row(&[name, format!("{alone:.0}"), format!("{code:.0}"), format!("{:.2}", code / alone)]);
    }
    table.print("Calls of tools");
    Ok(())
}

/// Starts the server, calls it a thousand times at once in each round, and returns the milliseconds of the rounds.
async fn all_at_once() -> Finding<Vec<f64>> {
    let server = McpServerStdio::new("python3").args(["-u", &script(), "plain"]).id("t").build();
    let running = server.connect().await?;
    let mut times = Vec::new();
    for round in 0..=ROUNDS {
        let begin = std::time::Instant::now();
        let calls: Vec<_> = (0..CALLS)
            .map(|_| {
                let server = server.clone();
                tokio::spawn(async move { add(&server).await })
            })
            .collect();
        for call in calls {
            call.await??;
        }
        if round > 0 {
            times.push(support::milliseconds(begin.elapsed()));
        }
    }
    running.close().await?;
    Ok(times)
}

/// Runs code that can call the tools of the server, and returns its value.
fn run_code(code: &str) -> Finding<Value> {
    let server = format!("--server=t=python3 -u '{}' plain", script());
    let limits = ["--approve", "none", "--max-tool-calls", "1000000", "--tool-concurrency", "1000"];
    let output = Command::new(program()).args(["run", "--json", &server]).args(limits).args(["-c", code]).output()?;
    let outcome: Value = serde_json::from_slice(&output.stdout)?;
    match outcome.get("value") {
        Some(value) => Ok(value.clone()),
        None => Err(format!("{outcome} {}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}

/// Measures `run_python_code` without calls, with servers and without, alternately.
async fn idle_servers() -> Finding<()> {
    let names = |at: usize| format!("--server=s{at}=python3 -u '{}' twenty", script());
    let options: Vec<String> = (0..SERVERS).map(names).collect();
    let belljar = |options: &[String]| {
        let program = program();
        McpServerStdio::new(program)
            .args(["stdio", "--isolation", "thread"])
            .args(options)
            .timeout(Duration::from_secs(120))
            .build()
    };
    let (with, without) = (belljar(&options), belljar(&[]));
    let (mut times_with, mut times_without) = (Sample::default(), Sample::default());
    let running = (with.connect().await?, without.connect().await?);
    // A client lists the tools first, which connects to the servers.
    with.list_tools().await?;
    without.list_tools().await?;
    for round in 0..RUNS + 20 {
        for (server, times) in [(&with, &mut times_with), (&without, &mut times_without)] {
            let (time, answer) = {
                let begin = std::time::Instant::now();
                let answer = server.call_tool_raw("run_python_code", json!({"python_code": "1"}), CallOptions::new());
                let answer = answer.await;
                (support::milliseconds(begin.elapsed()), answer)
            };
            answer?;
            if round >= 20 {
                times.add(time);
            }
        }
    }
    running.0.close().await?;
    running.1.close().await?;
    let mut table = Table::new(&["`run_python_code` without calls", "p50 ms", "min ms"]);
    for (name, times) in [("10 servers with 200 tools", &times_with), ("no servers", &times_without)] {
        table.row(&[name, &format!("{:.2}", times.median()), &format!("{:.2}", times.min())]);
    }
    table.row(&[
        "difference".to_owned(),
        format!("{:+.2}", times_with.median() - times_without.median()),
        String::new(),
    ]);
    table.print("Servers that no code calls");
    Ok(())
}

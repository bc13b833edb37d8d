//! Code that waits without a thread: the cost of one wait, of a step that finds nothing to do, and of many calls that
//! wait at the same time; runs that do not wait; and cells that wait for an approval, awake and asleep.
//!
//! A number after `--` is the number of simultaneous calls, `approvals` measures only cells that wait for one, and
//! `runs` only runs that do not wait.

#[path = "waits/approvals.rs"]
mod approvals;
#[path = "waits/runs.rs"]
mod runs;
mod support;

use std::sync::{Arc, OnceLock, mpsc};
use std::time::{Duration, Instant};

use belljar_core::kernel::{Backend as _, CellObserver, CellRequest, InputError, InputReply};
use belljar_core::progress::{ProgressStep, StepProgress};
use belljar_core::{
    CellStep, Exchange, FunctionCall, HostFunction, Limits, NoProgress, Progress, ReplySender, Stream, Waker,
};
use belljar_packages::{InstallError, Installer, Settings};
use belljar_python::install::{InstallerSource, PrepareOptions};
use belljar_python::{Python, PythonRuntime, RuntimeLoader, WasmBackend};
use serde_json::json;
use support::server::Server;
use support::{Finding, Sample, Table};

const ROUNDS: usize = 5;
const WAITS: usize = 1000;
/// The number of times that a waiting cell is continued too early.
const STEPS: usize = 1000;
/// The time of a wait: long enough that the loop does not find the timer due when it looks for work.
const WAIT: Duration = Duration::from_micros(500);
const CALLS: usize = 10_000;
/// The number of simultaneous cells that are awake and wait for an approval: they take 9 GB.
const APPROVALS: usize = 5_000;
const SECONDS: u64 = 60;

fn main() -> Finding<()> {
    let calls: Option<usize> = std::env::args().find_map(|argument| argument.parse().ok());
    let is_for = |what: &str| std::env::args().any(|argument| argument == what);
    let (is_for_approvals, is_for_runs) = (is_for("approvals"), is_for("runs"));
    support::main(move || {
        if is_for_approvals {
            approvals::latency()?;
            return approvals::many(calls.unwrap_or(APPROVALS));
        }
        if is_for_runs {
            return runs::without_waits();
        }
        if calls.is_none() {
            runs::without_waits()?;
            one_step()?;
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

/// An observer whose functions never reply.
struct Unresponsive;

impl Progress for Unresponsive {
    fn start(&self, step: ProgressStep) -> Box<dyn StepProgress> {
        NoProgress.start(step)
    }
}

impl CellObserver for Unresponsive {
    fn on_stream(&self, _: Stream, _: &[u8]) {}

    fn request_input(&self, _: &str, _: bool) -> Result<mpsc::Receiver<InputReply>, InputError> {
        Err(InputError::Unavailable)
    }

    fn call_function(&self, _: FunctionCall, _: &ReplySender) {}
}

/// Installs packages as `belljar` does without options: IPython is Pyodide's.
struct Source(Python, OnceLock<Arc<Installer>>);

impl InstallerSource for Source {
    fn installer(&self) -> Result<Arc<Installer>, InstallError> {
        let mut settings = Settings::from_environment(self.0.cache().clone())?;
        settings.pyodide = self.0.pyodide_source(&NoProgress).ok();
        Ok(self.1.get_or_init(|| Arc::new(Installer::new(self.0.platform(), settings))).clone())
    }
}

/// Measures a step that finds nothing to do: the host continues a cell that waits, and the cell waits again.
fn one_step() -> Finding<()> {
    let python = support::python()?;
    let installer = Arc::new(Source(python.clone(), OnceLock::new()));
    let runtime = PythonRuntime { python, options: PrepareOptions::default(), installer };
    let backend = WasmBackend::new(Arc::new(RuntimeLoader::from(runtime)), Limits::default(), false);
    let mut kernel = backend.start(None, &NoProgress)?;
    let setup = "import asyncio\nasync def sleeper(): await asyncio.sleep(1000)";
    kernel.execute(&CellRequest { code: setup.into(), ..CellRequest::default() }, Arc::new(Unresponsive));
    let function =
        HostFunction { name: "never".into(), blocking: false, doc: None, parameters: Vec::new(), returns: None };
    let exchange = Exchange { functions: vec![function], ..Exchange::default() };
    let mut table = Table::new(&["µs of a step that finds nothing to do", "median", "p95", "min"]);
    for (name, code, exchange) in [
        ("a timer", "await asyncio.sleep(1000)", None),
        ("100 tasks with timers", "await asyncio.gather(*(sleeper() for _ in range(100)))", None),
        ("a function of the host", "await never()", Some(exchange)),
    ] {
        let mut kernel = kernel.fork(None)?;
        let cell = CellRequest { code: code.into(), exchange, ..CellRequest::default() };
        wait_again(kernel.begin(&cell, Arc::new(Unresponsive), Waker::new(|| ())))?;
        let mut sample = Sample::default();
        for _ in 0..STEPS {
            let (milliseconds, step) = support::timed(|| kernel.resume());
            wait_again(step)?;
            sample.add(milliseconds * 1e3);
        }
        let values = [sample.median(), sample.quantile(0.95), sample.min()].map(|value| format!("{value:.1}"));
        table.row(&[name, &values[0], &values[1], &values[2]]);
    }
    table.print(&format!("A cell that waits is continued too early ({STEPS} times)"));
    Ok(())
}

fn wait_again(step: CellStep) -> Finding<()> {
    match step {
        CellStep::Waiting(_) => Ok(()),
        step => Err(format!("the cell has ended: {step:?}").into()),
    }
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

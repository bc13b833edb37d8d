//! The MCP server from the view of a client: start, warm calls, concurrent calls, memory. Raw JSON-RPC over pipes.

mod support;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{Finding, Sample, Table, timed};

const STARTS: usize = 30;
const CALLS: usize = 1000;
const IN_FLIGHT: usize = 8;

fn main() -> Finding<()> {
    support::main(|| {
        // The cache is filled before the measurements.
        drop(support::python()?);
        start()?;
        calls()
    })
}

fn start() -> Finding<()> {
    let mut first = Sample::default();
    for _ in 0..STARTS {
        let (time, server) = timed(|| -> Finding<Server> {
            let mut server = Server::start()?;
            server.call("print('hi')")?;
            Ok(server)
        });
        server?;
        first.add(time);
    }
    let mut table = Table::new(&["stdio", "median ms", "min ms", "p90 ms"]);
    let times = [first.median(), first.min(), first.quantile(0.9)].map(|time| format!("{time:.1}"));
    table.row(&["process start to the first answer", &times[0], &times[1], &times[2]]);
    table.print(&format!("Start ({STARTS} times)"));
    Ok(())
}

fn calls() -> Finding<()> {
    let mut server = Server::start()?;
    for _ in 0..50 {
        server.call("print('hi')")?;
    }
    let mut each = Sample::default();
    for _ in 0..CALLS {
        let (time, answer) = timed(|| server.call("print('hi')"));
        answer?;
        each.add(time);
    }
    let mut table = Table::new(&["one call after another", "p50 ms", "p95 ms", "min ms"]);
    let times = [each.median(), each.quantile(0.95), each.min()].map(|time| format!("{time:.2}"));
    table.row(&["`print('hi')`, a fresh interpreter each", &times[0], &times[1], &times[2]]);
    table.print(&format!("Warm calls ({CALLS})"));
    let idle = server.resident_megabytes()?;
    let begin = Instant::now();
    for _ in 0..IN_FLIGHT {
        server.send("print('hi')")?;
    }
    for number in 0..CALLS {
        server.answer()?;
        if number + IN_FLIGHT < CALLS {
            server.send("print('hi')")?;
        }
    }
    let rate = CALLS as f64 / begin.elapsed().as_secs_f64();
    let mut table = Table::new(&["", ""]);
    table.row(&["calls/s, 8 in flight", &format!("{rate:.0}")]);
    table.row(&["MB resident, after warm calls", &format!("{idle:.1}")]);
    std::thread::sleep(Duration::from_millis(500));
    table.row(&["MB resident, after 8 in flight", &format!("{:.1}", server.resident_megabytes()?)]);
    table.print("Many calls, and memory");
    Ok(())
}

/// A server process with its pipes.
struct Server {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    next: u64,
}

impl Server {
    fn start() -> Finding<Self> {
        let mut command = Command::new(support::program());
        let mut child = command.arg("stdio").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take().ok_or("no pipe")?;
        let output = BufReader::new(child.stdout.take().ok_or("no pipe")?);
        let mut server = Self { child, input, output, next: 0 };
        let client = json!({ "name": "bench", "version": "1" });
        server.write(&json!({
            "jsonrpc": "2.0", "id": 0, "method": "initialize",
            "params": { "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client },
        }))?;
        server.read()?;
        server.write(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))?;
        Ok(server)
    }

    fn write(&mut self, message: &Value) -> Finding<()> {
        self.input.write_all(format!("{message}\n").as_bytes())?;
        Ok(())
    }

    fn read(&mut self) -> Finding<Value> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }

    fn send(&mut self, code: &str) -> Finding<()> {
        self.next += 1;
        self.write(&json!({
            "jsonrpc": "2.0", "id": self.next, "method": "tools/call",
            "params": { "name": "run_python_code", "arguments": { "python_code": code } },
        }))
    }

    fn answer(&mut self) -> Finding<()> {
        let answer = self.read()?;
        match answer["result"]["structuredContent"]["output"][0].as_str() {
            Some("hi") => Ok(()),
            _ => Err(format!("not the answer: {answer}").into()),
        }
    }

    fn call(&mut self, code: &str) -> Finding<()> {
        self.send(code)?;
        self.answer()
    }

    fn resident_megabytes(&self) -> Finding<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

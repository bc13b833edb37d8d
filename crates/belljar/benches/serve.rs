//! The MCP server from the view of a client: start, warm calls, concurrent calls, memory. Raw JSON-RPC over pipes.

mod support;

use std::time::{Duration, Instant};

use serde_json::json;
use support::server::Server;
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
            let mut server = Server::start("python", &[])?;
            call(&mut server, "print('hi')")?;
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
    let mut server = Server::start("python", &[])?;
    for _ in 0..50 {
        call(&mut server, "print('hi')")?;
    }
    let mut each = Sample::default();
    for _ in 0..CALLS {
        let (time, answer) = timed(|| call(&mut server, "print('hi')"));
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
        send(&mut server, "print('hi')")?;
    }
    for number in 0..CALLS {
        answer(&mut server)?;
        if number + IN_FLIGHT < CALLS {
            send(&mut server, "print('hi')")?;
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

fn send(server: &mut Server, code: &str) -> Finding<()> {
    server.send("run_python_code", json!({ "python_code": code })).map(drop)
}

fn answer(server: &mut Server) -> Finding<()> {
    let answer = server.next_answer()?;
    match answer["output"][0].as_str() {
        Some("hi") => Ok(()),
        _ => Err(format!("not the answer: {answer}").into()),
    }
}

fn call(server: &mut Server, code: &str) -> Finding<()> {
    send(server, code)?;
    answer(server)
}

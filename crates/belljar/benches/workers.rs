//! `run_python_code` on threads and in worker processes, in turns: start, warm calls, and concurrent calls. Linux only.

mod support;

use std::time::Instant;

use serde_json::json;
use support::server::Server;
use support::{Finding, Sample, Table, timed};

const ROUNDS: usize = 3;
const STARTS: usize = 20;
const CALLS: usize = 1000;
const IN_FLIGHT: usize = 8;
const ISOLATIONS: [&str; 2] = ["thread", "process"];

/// The measurements of one isolation, over all rounds.
#[derive(Default)]
struct Measured {
    starts: Sample,
    calls: Sample,
    rates: Sample,
}

fn main() -> Finding<()> {
    support::main(|| {
        // The cache is filled before the measurements.
        drop(support::python()?);
        let mut measured: [Measured; 2] = Default::default();
        for _ in 0..ROUNDS {
            for (isolation, measured) in ISOLATIONS.iter().zip(&mut measured) {
                measure(&["--isolation", isolation], measured)?;
            }
        }
        let mut table =
            Table::new(&["isolation", "start to first answer, ms", "warm call p50, ms", "p95, ms", "calls/s"]);
        for (isolation, Measured { starts, calls, rates }) in ISOLATIONS.iter().zip(measured) {
            let cells = [
                (*isolation).to_owned(),
                format!("{:.1}", starts.median()),
                format!("{:.3}", calls.median()),
                format!("{:.3}", calls.quantile(0.95)),
                format!("{:.0}", rates.median()),
            ];
            table.row(&cells);
        }
        table.print(&format!("Isolation ({ROUNDS} rounds of {STARTS} starts, {CALLS} calls; {IN_FLIGHT} in flight)"));
        Ok(())
    })
}

fn measure(options: &[&str], measured: &mut Measured) -> Finding<()> {
    for _ in 0..STARTS {
        let (time, server) = timed(|| -> Finding<Server> {
            let mut server = Server::start("python", options)?;
            call(&mut server)?;
            Ok(server)
        });
        server?.end()?;
        measured.starts.add(time);
    }
    Server::start("python", options)?.ended(|server| {
        for _ in 0..50 {
            call(server)?;
        }
        for _ in 0..CALLS {
            let (time, answer) = timed(|| call(server));
            answer?;
            measured.calls.add(time);
        }
        let begin = Instant::now();
        for _ in 0..IN_FLIGHT {
            send(server)?;
        }
        for number in 0..CALLS {
            answer(server)?;
            if number + IN_FLIGHT < CALLS {
                send(server)?;
            }
        }
        measured.rates.add(CALLS as f64 / begin.elapsed().as_secs_f64());
        Ok(())
    })
}

fn send(server: &mut Server) -> Finding<()> {
    server.send("run_python_code", json!({ "python_code": "print('hi')" })).map(drop)
}

fn answer(server: &mut Server) -> Finding<()> {
    let answer = server.next_answer()?;
    match answer["output"][0].as_str() {
        Some("hi") => Ok(()),
        _ => Err(format!("not the answer: {answer}").into()),
    }
}

fn call(server: &mut Server) -> Finding<()> {
    send(server)?;
    answer(server)
}

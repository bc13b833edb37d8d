//! Runs that do not wait, in turns with those of another program, if `BELLJAR_BENCH_OTHER` names one.

use serde_json::json;

use crate::support::server::Server;
use crate::support::{self, Finding, Sample, Table, timed};

const RUNS: usize = 2000;
const WARM_UP: usize = 200;
/// The programs, each of which has the value 2. Only code with `await` or `async` can wait, and is a run that could be
/// saved on a server with `--data-dir`.
const PROGRAMS: [(&str, &str); 2] =
    [("`1 + 1`", "1 + 1"), ("`await main()`", "async def main():\n    return 1 + 1\nawait main()")];

/// Measures calls of `run_python_code` whose code does not wait.
pub(crate) fn without_waits() -> Finding<()> {
    let other = support::other_program().map(|program| ("other", program));
    let programs: Vec<_> = [("this", support::program())].into_iter().chain(other).collect();
    let mut table = Table::new(&["call of `run_python_code`", "program", "p50 ms", "p95 ms", "min ms", "p50 to other"]);
    for (place, is_durable) in [("", false), (", `--data-dir`", true)] {
        let data = tempfile::tempdir()?;
        let mut servers = Vec::new();
        for (name, program) in &programs {
            let directory = data.path().join(name);
            let directory = directory.to_str().ok_or("not UTF-8")?;
            let options = if is_durable { vec!["--data-dir", directory] } else { Vec::new() };
            servers.push(Server::start_program(program, &[], "all", &options, &json!({}))?);
        }
        for (label, code) in PROGRAMS {
            let samples = in_turns(&mut servers, code)?;
            let other = samples.get(1).map(Sample::median);
            for ((name, _), sample) in programs.iter().zip(&samples) {
                let call = format!("{label}{place}");
                let ratio = other.map_or_else(String::new, |other| format!("{:.3}", sample.median() / other));
                let times = [sample.median(), sample.quantile(0.95), sample.min()].map(|time| format!("{time:.3}"));
                table.row(&[call.as_str(), *name, &times[0], &times[1], &times[2], &ratio]);
            }
        }
        servers.iter_mut().try_for_each(Server::end)?;
    }
    table.print(&format!("Runs that do not wait ({RUNS} times, in turns)"));
    Ok(())
}

/// Runs code on each server in turns. Returns the times of each, in milliseconds.
fn in_turns(servers: &mut [Server], code: &str) -> Finding<Vec<Sample>> {
    let mut samples: Vec<Sample> = servers.iter().map(|_| Sample::default()).collect();
    for number in 0..WARM_UP + RUNS {
        for (server, sample) in servers.iter_mut().zip(&mut samples) {
            let (time, answer) = timed(|| server.call("run_python_code", json!({ "python_code": code })));
            let answer = answer?;
            if answer["return_value"] != 2 {
                return Err(format!("a run failed: {answer}").into());
            }
            if number >= WARM_UP {
                sample.add(time);
            }
        }
    }
    Ok(samples)
}

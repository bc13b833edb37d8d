//! The cost of the audit log and of the console: warm calls over HTTP to servers with and without them, in turns.
//!
//! Two servers have neither: the difference between them is that of chance. Servers with the same options differ by up
//! to 3 % for as long as they live, so that each round starts new ones. Each turn is a block of calls to one server,
//! which then has the processor's caches to itself, as a server on a machine of its own. With `single` after `--`, a
//! turn is one call: each call then finds the caches as four other servers have left them.

mod support;

use std::path::Path;

use serde_json::json;
use support::http::{Client, HttpServer};
use support::{Finding, Sample, Table, timed};

const ROUNDS: usize = 8;
/// The calls of a round to each server.
const CALLS: usize = 600;
/// The calls of a turn, and those before them that are not measured.
const BLOCK: usize = 100;
const UNMEASURED: usize = 10;
/// More than the calls and cells that the console keeps: from then on, each record takes the place of another.
const WARM_UP: usize = 600;
const SERVERS: [&str; 5] = ["neither", "neither, again", "`--audit FILE`", "`--console`", "`--audit FILE --console`"];

/// The times of one server's calls of `run_python_code` and of its cells.
#[derive(Default)]
struct Times {
    calls: Sample,
    cells: Sample,
}

/// Starts a server of each kind, with logs in `directory`.
fn start(directory: &Path) -> Finding<Vec<HttpServer>> {
    let file = |name: &str| directory.join(name).to_str().map(str::to_owned).ok_or("not UTF-8");
    let (log, both) = (file("audit.log")?, file("both.log")?);
    let settings: [&[&str]; 5] = [&[], &[], &["--audit", &log], &["--console"], &["--audit", &both, "--console"]];
    let usual: &[&str] = &["--toolset", "all", "--no-install"];
    settings.iter().map(|options| HttpServer::start(&[usual, options].concat())).collect()
}

/// Calls new servers in turns.
fn round(times: &mut [Times], block: usize, unmeasured: usize) -> Finding<()> {
    let directory = tempfile::tempdir()?;
    let servers = start(directory.path())?;
    let mut clients: Vec<(Client, String)> = Vec::new();
    for server in &servers {
        let mut client = server.client(None)?;
        let opened = client.call("execute_code", &json!({ "code": "x = 1" }))?;
        clients.push((client, opened["session_info"]["session_id"].as_str().ok_or("no session")?.to_owned()));
    }
    for turn in 0..(WARM_UP + CALLS) / block {
        // Each server is called equally often after each other one, since the caches depend on that: the number of
        // servers is prime, so that each stride reaches all of them.
        let count = clients.len();
        let stride = 1 + turn / count % (count - 1);
        for place in 0..count {
            let at = (turn + place * stride) % count;
            let (client, session) = &mut clients[at];
            for number in 0..unmeasured + block {
                let (call, answer) = timed(|| client.run("1 + 1"));
                answer?;
                let cell = json!({ "code": "x += 1", "session_id": session });
                let (cell, answer) = timed(|| client.call("execute_code", &cell));
                answer?;
                if number >= unmeasured && turn >= WARM_UP / block {
                    times[at].calls.add(call);
                    times[at].cells.add(cell);
                }
            }
        }
    }
    Ok(())
}

fn main() -> Finding<()> {
    // Sessions need IPython, which the servers of the rounds do not install.
    HttpServer::start(&["--toolset", "all"])?.client(None)?.call("execute_code", &json!({ "code": "x = 1" }))?;
    let is_single = std::env::args().any(|argument| argument == "single");
    let (block, unmeasured) = if is_single { (1, 0) } else { (BLOCK, UNMEASURED) };
    let mut times: Vec<Times> = SERVERS.iter().map(|_| Times::default()).collect();
    for number in 1..=ROUNDS {
        round(&mut times, block, unmeasured)?;
        eprintln!("round {number} of {ROUNDS}");
    }
    let mut table = Table::new(&["server", "`1 + 1`, p50 ms", "p95 ms", "`x += 1`, p50 ms", "p95 ms"]);
    for (name, Times { calls, cells }) in SERVERS.iter().zip(&times) {
        let times = [calls.median(), calls.quantile(0.95), cells.median(), cells.quantile(0.95)];
        let times = times.map(|time| format!("{time:.3}"));
        table.row(&[*name, &times[0], &times[1], &times[2], &times[3]]);
    }
    table.print(&format!("Warm calls over HTTP, in turns of {block} ({ROUNDS} rounds of {CALLS})"));
    Ok(())
}

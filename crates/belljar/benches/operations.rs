//! The cost of the audit log and of the console: warm calls over HTTP to servers with and without them, in turns.
//!
//! Two servers have neither: the difference between them is that of chance. Each turn is a block of calls to one
//! server, which then has the processor's caches to itself, as a server on a machine of its own. With `single` after
//! `--`, a turn is one call: each call then finds the caches as four other servers have left them.

mod support;

use serde_json::json;
use support::http::HttpServer;
use support::{Finding, Sample, Table, timed};

const CALLS: usize = 3000;
/// The calls of a turn, and those before them that are not measured.
const BLOCK: usize = 100;
const UNMEASURED: usize = 10;
/// More than the calls and cells that the console keeps: from then on, each record takes the place of another.
const WARM_UP: usize = 1500;

fn main() -> Finding<()> {
    let directory = tempfile::tempdir()?;
    let file = |name: &str| directory.path().join(name).to_str().map(str::to_owned).ok_or("not UTF-8");
    let (log, both) = (file("audit.log")?, file("both.log")?);
    let usual = ["--toolset", "all", "--no-install"];
    let settings: [(&str, Vec<&str>); 5] = [
        ("neither", Vec::new()),
        ("neither, again", Vec::new()),
        ("`--audit FILE`", vec!["--audit", &log]),
        ("`--console`", vec!["--console"]),
        ("`--audit FILE --console`", vec!["--audit", &both, "--console"]),
    ];
    // Sessions need IPython, which the servers below do not install.
    HttpServer::start(&["--toolset", "all"])?.client(None)?.call("execute_code", &json!({ "code": "x = 1" }))?;
    let servers = settings.each_ref().map(|(_, options)| HttpServer::start(&[&usual[..], options].concat()));
    let mut clients = Vec::new();
    for server in &servers {
        let server = server.as_ref().map_err(|error| error.to_string())?;
        let mut client = server.client(None)?;
        let opened = client.call("execute_code", &json!({ "code": "x = 1" }))?;
        let session = opened["session_info"]["session_id"].as_str().ok_or("no session")?.to_owned();
        clients.push((client, session, Sample::default(), Sample::default()));
    }
    let is_single = std::env::args().any(|argument| argument == "single");
    let (block, unmeasured) = if is_single { (1, 0) } else { (BLOCK, UNMEASURED) };
    for turn in 0..(WARM_UP + CALLS) / block {
        // Each server is called equally often after each other one, since the caches depend on that: the number of
        // servers is prime, so that each stride reaches all of them.
        let count = clients.len();
        let stride = 1 + turn / count % (count - 1);
        for place in 0..count {
            let (client, session, calls, cells) = &mut clients[(turn + place * stride) % count];
            for number in 0..unmeasured + block {
                let (call, answer) = timed(|| client.run("1 + 1"));
                answer?;
                let cell = json!({ "code": "x += 1", "session_id": session });
                let (cell, answer) = timed(|| client.call("execute_code", &cell));
                answer?;
                if number >= unmeasured && turn >= WARM_UP / block {
                    calls.add(call);
                    cells.add(cell);
                }
            }
        }
    }
    let mut table = Table::new(&["server", "`1 + 1`, p50 ms", "p95 ms", "`x += 1`, p50 ms", "p95 ms"]);
    for ((name, _), (_, _, calls, cells)) in settings.iter().zip(&clients) {
        let times = [calls.median(), calls.quantile(0.95), cells.median(), cells.quantile(0.95)];
        let times = times.map(|time| format!("{time:.3}"));
        table.row(&[*name, &times[0], &times[1], &times[2], &times[3]]);
    }
    table.print(&format!("Warm calls over HTTP, in turns of {block} ({CALLS})"));
    Ok(())
}

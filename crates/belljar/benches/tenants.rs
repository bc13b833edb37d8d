//! Fair shares: the calls of one owner while another floods the server, and alone.
//!
//! Both have a token and use HTTP. The flooding owner keeps many calls in flight, which compute or sleep; the other one
//! sends one call after the other. A third table has the warm calls of a server with one owner, for comparison with
//! another program (`BELLJAR_BENCH_PROGRAM`).

mod support;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::json;
use support::http::Client;
use support::server::Server;
use support::{Finding, Sample, Table, timed};

const WARM_CALLS: usize = 2000;
/// The calls that the flooding owner has in flight.
const FLOOD: usize = 64;

/// The calls of the flooding owner: a name and code.
const FLOODS: [(&str, &str); 2] = [
    ("computes for 50 ms", "import time\nend = time.process_time() + 0.05\nwhile time.process_time() < end: pass"),
    ("sleeps for 50 ms", "import time\ntime.sleep(0.05)"),
];
/// The calls of the other owner: a name, code and their number.
const VICTIMS: [(&str, &str, usize); 2] = [
    ("`print('hi')`", "print('hi')", 3000),
    ("computes for 20 ms", "import time\nend = time.process_time() + 0.02\nwhile time.process_time() < end: pass", 300),
];

fn main() -> Finding<()> {
    support::main(|| {
        // The cache is filled before the measurements.
        drop(support::python()?);
        if std::env::var_os("BELLJAR_BENCH_PROGRAM").is_none() {
            for isolation in ["thread", "process"] {
                floods(isolation)?;
            }
        }
        warm_calls()
    })
}

fn floods(isolation: &str) -> Finding<()> {
    let mut table = Table::new(&["other owner", "call", "p50 ms", "p95 ms", "p95 to alone", "flood calls/s"]);
    let server = HttpServer::start(isolation)?;
    for (name, code, calls) in VICTIMS {
        let alone = server.measure(code, calls)?;
        table.row(&["none", name, &format!("{:.2}", alone.median()), &p95(&alone), "1", ""]);
        for (flood_name, flood) in FLOODS {
            let (during, rate) = server.during(flood, || server.measure(code, calls))?;
            let ratio = during.quantile(0.95) / alone.quantile(0.95);
            let median = format!("{:.2}", during.median());
            table.row(&[flood_name, name, &median, &p95(&during), &format!("{ratio:.2}"), &format!("{rate:.0}")]);
        }
    }
    table.print(&format!(
        "One owner with {FLOOD} calls in flight, and another with one call after the other, --isolation {isolation}"
    ));
    Ok(())
}

fn p95(sample: &Sample) -> String {
    format!("{:.2}", sample.quantile(0.95))
}

/// A server with two owners.
struct HttpServer(support::http::HttpServer);

impl HttpServer {
    fn start(isolation: &str) -> Finding<Self> {
        let directory = tempfile::tempdir()?;
        let tokens = directory.path().join("tokens");
        std::fs::write(&tokens, "flood\nvictim\n")?;
        let tokens = tokens.to_str().ok_or("not UTF-8")?;
        let server = Self(support::http::HttpServer::start(&[
            "--no-install",
            "--auth-token-file",
            tokens,
            "--isolation",
            isolation,
        ])?);
        for _ in 0..20 {
            server.client("victim")?.run("1")?;
            server.client("flood")?.run("1")?;
        }
        Ok(server)
    }

    fn client(&self, token: &'static str) -> Finding<Client> {
        self.0.client(Some(token))
    }

    fn measure(&self, code: &str, calls: usize) -> Finding<Sample> {
        let mut client = self.client("victim")?;
        let mut sample = Sample::default();
        for _ in 0..calls {
            let (time, answer) = timed(|| client.run(code));
            answer?;
            sample.add(time);
        }
        Ok(sample)
    }

    /// Does `work` while the flooding owner's calls run. Returns their number per second.
    fn during<T>(&self, flood: &str, work: impl FnOnce() -> Finding<T>) -> Finding<(T, f64)> {
        let (ending, calls) = (AtomicBool::new(false), AtomicUsize::new(0));
        thread::scope(|scope| {
            let mut threads = Vec::new();
            for _ in 0..FLOOD {
                let mut client = self.client("flood")?;
                let (ending, calls) = (&ending, &calls);
                threads.push(scope.spawn(move || -> Finding<()> {
                    while !ending.load(Ordering::Relaxed) {
                        client.run(flood)?;
                        calls.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(())
                }));
            }
            // Until all threads of the server work for the flooding owner.
            thread::sleep(Duration::from_secs(1));
            let before = calls.load(Ordering::Relaxed);
            let (time, result) = timed(work);
            let rate = (calls.load(Ordering::Relaxed) - before) as f64 / (time / 1e3);
            ending.store(true, Ordering::Relaxed);
            for thread in threads {
                thread.join().map_err(|_| "a client panicked")??;
            }
            Ok((result?, rate))
        })
    }
}

fn warm_calls() -> Finding<()> {
    let mut server = Server::start("all", &[])?;
    let id = server.session()?;
    let mut table = Table::new(&["one owner, one call after another", "p50 ms", "p95 ms", "min ms"]);
    let mut measure = |name: &str, call: &mut dyn FnMut(&mut Server) -> Finding<()>| -> Finding<()> {
        (0..100).try_for_each(|_| call(&mut server))?;
        let mut sample = Sample::default();
        for _ in 0..WARM_CALLS {
            let (time, answer) = timed(|| call(&mut server));
            answer?;
            sample.add(time);
        }
        let times = [sample.median(), sample.quantile(0.95), sample.min()].map(|time| format!("{time:.3}"));
        table.row(&[name, &times[0], &times[1], &times[2]]);
        Ok(())
    };
    measure("`print('hi')`, a fresh interpreter each", &mut |server| {
        server.call("run_python_code", json!({ "python_code": "print('hi')" })).map(drop)
    })?;
    measure("`x` in a session", &mut |server| server.run(&id, "x").map(drop))?;
    table.print(&format!("Warm calls ({WARM_CALLS})"));
    Ok(())
}

//! Replicas that share sessions, with an S3 server in this process as their store: cells, wakes, take-overs, and the
//! end of a replica.
//!
//! Names after `--` select measurements: `cells`, `wakes`, `images`, `takeovers`, `drain`, and `idle`, which takes more
//! than an hour and runs only if it is named.

#[path = "../../belljar-store/tests/support/s3_server.rs"]
#[expect(dead_code, clippy::unwrap_used, reason = "it is a part of the tests of belljar-store")]
mod s3_server;
mod support;

use std::fs;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use s3_server::S3Server;
use serde_json::json;
use support::server::Server;
use support::{Finding, Sample, Table, timed};

const CELLS: usize = 300;
const WAKES: usize = 40;
const IMAGES: usize = 3;
const TAKEOVERS: usize = 5;
const DRAINED: usize = 1000;
const SLEEPING: usize = 10_000;
const IDLE_REPLICAS: usize = 4;
const IDLE_TIME: Duration = Duration::from_secs(3600);
/// The time that replicas have to start before their requests are counted.
const SETTLING_TIME: Duration = Duration::from_secs(60);

fn main() -> Finding<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let names: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let is_named = |name: &str| names.iter().any(|given| given == name);
    let is_wanted = |name: &str| (names.is_empty() && name != "idle") || is_named(name);
    let store = runtime.block_on(S3Server::start());
    let store = Store { variables: store.pairs(), server: store };
    support::main(move || {
        let measurements: [(&str, Measurement); 6] = [
            ("cells", cells),
            ("wakes", wakes),
            ("images", images),
            ("takeovers", takeovers),
            ("drain", drain),
            ("idle", idle),
        ];
        for (name, measure) in measurements {
            if is_wanted(name) {
                measure(&store)?;
            }
        }
        Ok(())
    })
}

type Measurement = fn(&Store) -> Finding<()>;

struct Store {
    variables: Vec<(String, String)>,
    server: S3Server,
}

impl Store {
    fn replica(&self, options: &[&str]) -> Finding<Server> {
        self.replica_with(&[], options)
    }

    fn replica_with(&self, variables: &[(String, String)], options: &[&str]) -> Finding<Server> {
        let options = [&["--store", "s3://bucket/bench"], options].concat();
        Server::start_in(&[&self.variables, variables].concat(), "interpreter", &options, &json!({}))
    }
}

fn row(table: &mut Table, what: &str, sample: &Sample) {
    let times = [sample.median(), sample.quantile(0.95), sample.max()].map(|time| format!("{time:.2}"));
    table.row(&[what, &times[0], &times[1], &times[2]]);
}

fn table() -> Table {
    Table::new(&["over stdio", "p50 ms", "p95 ms", "max ms"])
}

fn cells(store: &Store) -> Finding<()> {
    let data = tempfile::tempdir()?;
    let data = data.path().to_str().ok_or("not UTF-8")?;
    let servers = [Server::start("interpreter", &["--data-dir", data])?, store.replica(&[])?];
    let mut samples = [Sample::default(), Sample::default()];
    let mut servers = servers.map(|mut server| server.session().map(|session| (server, session)));
    for _ in 0..CELLS {
        for (server, sample) in servers.iter_mut().zip(&mut samples) {
            let (server, session) = server.as_mut().map_err(|error| error.to_string())?;
            let (time, answer) = timed(|| server.run(session, "x += 1"));
            answer?;
            sample.add(time);
        }
    }
    let mut table = table();
    row(&mut table, "`x += 1` with `--data-dir`", &samples[0]);
    row(&mut table, "`x += 1` with `--store`", &samples[1]);
    table.print(&format!("Cells in turns ({CELLS} times)"));
    Ok(())
}

fn wakes(store: &Store) -> Finding<()> {
    let mut waking = store.replica(&[])?;
    waking.session()?;
    let mut sample = Sample::default();
    let mut other = store.replica(&[])?;
    let sessions = (0..WAKES).map(|_| other.session()).collect::<Finding<Vec<_>>>()?;
    other.end()?;
    for session in &sessions {
        let (time, answer) = timed(|| waking.run(session, "x"));
        answer?;
        sample.add(time);
    }
    let mut table = table();
    row(&mut table, "wake of a session of another replica, and `x`", &sample);
    table.print(&format!("Wakes ({WAKES} times)"));
    Ok(())
}

fn images(store: &Store) -> Finding<()> {
    let python = support::python()?;
    let mut sample = Sample::default();
    for number in 0..IMAGES {
        let cache = tempfile::tempdir()?;
        support::copy_base(python.cache_directory(), cache.path())?;
        let constraints = cache.path().join("constraints.txt");
        fs::write(&constraints, format!("ipython==9.{}.0\n", number + 1))?;
        let variables = [("BELLJAR_CACHE", cache.path()), ("UV_CONSTRAINT", &constraints)];
        let variables = variables.map(|(name, path)| (name.to_owned(), path.display().to_string()));
        let mut other = store.replica_with(&variables, &[])?;
        let session = other.session()?;
        other.end()?;
        let mut waking = store.replica(&[])?;
        waking.session()?;
        let (time, answer) = timed(|| waking.run(&session, "x"));
        answer?;
        sample.add(time);
    }
    let mut table = table();
    row(&mut table, "wake of a session whose image the replica lacks, and `x`", &sample);
    table.print(&format!("Images ({IMAGES} times)"));
    Ok(())
}

fn takeovers(store: &Store) -> Finding<()> {
    let mut waking = store.replica(&[])?;
    waking.session()?;
    let mut sample = Sample::default();
    for _ in 0..TAKEOVERS {
        let mut other = store.replica(&[])?;
        let session = other.session()?;
        other.kill()?;
        let (time, answer) = timed(|| waking.run(&session, "x"));
        answer?;
        sample.add(time);
    }
    let mut table = table();
    row(&mut table, "cell in a session whose replica was killed", &sample);
    table.print(&format!("Take-overs ({TAKEOVERS} times)"));
    Ok(())
}

fn drain(store: &Store) -> Finding<()> {
    let maximum = (DRAINED + 100).to_string();
    let mut server = store.replica(&["--max-sessions", &maximum, "--sleep-after", "100000"])?;
    for _ in 0..DRAINED {
        server.session()?;
    }
    let (time, ended) = timed(|| server.end());
    ended?;
    let mut table = Table::new(&["", ""]);
    table.row(&["sessions awake", &DRAINED.to_string()]);
    table.row(&["s until all are given up and the replica has ended", &format!("{:.1}", time / 1e3)]);
    table.print("Drain");
    Ok(())
}

fn idle(store: &Store) -> Finding<()> {
    let maximum = (SLEEPING + 100).to_string();
    // By default they would expire within the hour.
    let options = ["--max-sessions", &maximum, "--session-timeout", "86400"];
    for created in (0..SLEEPING).step_by(DRAINED) {
        let mut server = store.replica(&options)?;
        for _ in 0..DRAINED {
            server.session()?;
        }
        server.end()?;
        eprintln!("{} of {SLEEPING} sessions sleep", created + DRAINED);
    }
    let replicas = (0..IDLE_REPLICAS).map(|_| store.replica(&options)).collect::<Finding<Vec<_>>>()?;
    thread::sleep(SETTLING_TIME);
    let requests = || store.server.faults.requests.load(Ordering::Relaxed);
    let (before, start) = (requests(), Instant::now());
    while start.elapsed() < IDLE_TIME {
        thread::sleep(SETTLING_TIME.min(IDLE_TIME.saturating_sub(start.elapsed())));
        let rate = (requests() - before) as f64 / start.elapsed().as_secs_f64();
        eprintln!("{:.0} s: {rate:.3} requests a second", start.elapsed().as_secs_f64());
    }
    let (count, seconds) = (requests() - before, start.elapsed().as_secs_f64());
    for mut replica in replicas {
        replica.end()?;
    }
    let mut table = Table::new(&["", ""]);
    table.row(&["sleeping sessions", &SLEEPING.to_string()]);
    table.row(&["idle replicas", &IDLE_REPLICAS.to_string()]);
    table.row(&["s", &format!("{seconds:.0}")]);
    table.row(&["requests to the store", &count.to_string()]);
    table.row(&["requests to the store a second", &format!("{:.2}", count as f64 / seconds)]);
    table.print("Idle replicas");
    Ok(())
}

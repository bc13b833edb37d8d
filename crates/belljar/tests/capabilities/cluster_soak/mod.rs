//! Four replicas behind HAProxy, with sessions that count, while replicas are killed, stopped, ended and cut off.
//!
//! `BELLJAR_SOAK_SECONDS` is the time for which failures go on, 20 seconds by default, and `BELLJAR_SOAK_SESSIONS` the
//! number of sessions, 40 by default. `BELLJAR_SOAK_OTHER` is the path of a Belljar of another version, with which
//! every other start of a replica takes place. `BELLJAR_SOAK_LOGS` is a folder for the logs of the replicas, whose
//! contents `BELLJAR_LOG` selects.

mod counter;
#[path = "../../../../belljar-store/tests/conformance/etcd_cluster.rs"]
#[allow(dead_code, reason = "the tests of belljar-store use the rest")]
mod etcd_cluster;
mod gate;
#[path = "../../../../belljar-store/tests/support/s3_server.rs"]
#[allow(dead_code, reason = "the tests of belljar-store use the rest")]
mod s3_server;

use std::ffi::OsStr;
use std::fs::File;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use belljar_testing::free_ports;
use tokio::runtime::Runtime;

use crate::harness::Belljar;
use counter::{Counter, Tally};
use etcd_cluster::EtcdCluster;
use gate::Gate;
use s3_server::S3Server;

belljar_testing::trials! {
    sessions_survive_failures_with_the_store: [Haproxy],
    sessions_survive_failures_with_etcd: [Haproxy, Etcd],
}

const REPLICAS: usize = 4;
/// The time for which a replica is stopped, or cut off: longer than a lease.
const OUTAGE: Duration = Duration::from_secs(14);
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// A process that is killed when dropped.
struct Process(Child);

impl Process {
    fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.0.id().to_string()]).status().unwrap();
        assert!(status.success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails if the process has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A replica, which always listens on the same port.
struct Replica {
    port: u16,
    gate: Gate,
    cluster: String,
    variables: Vec<(String, String)>,
    /// The number of starts so far.
    starts: usize,
    process: Option<Process>,
}

impl Replica {
    /// Creates the replica with this number, which is not running.
    fn new(number: usize, port: u16, store: &S3Server, cluster: &str) -> Self {
        let variables = store.pairs();
        let endpoint = variables.iter().find(|(name, _)| name == "AWS_ENDPOINT_URL").unwrap();
        let gate = Gate::to(endpoint.1.strip_prefix("http://").unwrap().parse().unwrap());
        let variables = s3_server::pairs(&format!("http://127.0.0.1:{}", gate.port));
        Self { port, gate, cluster: cluster.to_owned(), variables, starts: number, process: None }
    }

    fn start(&mut self) {
        let port = self.port.to_string();
        let options = ["--port", &port, "--toolset", "interpreter", "--store", "s3://bucket/soak"];
        let belljar = Belljar::new().arg("streamable-http-stateless").args(options);
        let belljar = belljar.args(["--cluster", &self.cluster, "--sleep-after", "5", "--drain", "10"]);
        let belljar = match std::env::var_os("BELLJAR_LOG") {
            Some(contents) => belljar.env("BELLJAR_LOG", contents),
            None => belljar,
        };
        let belljar = self.variables.iter().fold(belljar, |belljar, (name, value)| belljar.env(name, value));
        let mut command = belljar.into_command();
        if let Some(other) = std::env::var_os("BELLJAR_SOAK_OTHER").filter(|_| self.starts % 2 == 1) {
            command = of_program(&other, &command);
        }
        self.starts += 1;
        let log = std::env::var_os("BELLJAR_SOAK_LOGS").map(|folder| {
            let name = format!("{}-{}.log", self.port, self.starts);
            Stdio::from(File::create(Path::new(&folder).join(name)).unwrap())
        });
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.unwrap_or_else(Stdio::null));
        self.process = Some(Process(command.spawn().unwrap()));
    }

    fn wait_until_ready(&self) {
        let begin = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(begin.elapsed() < START_TIMEOUT, "a replica does not start");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn restart(&mut self) {
        self.process = None;
        self.start();
        self.wait_until_ready();
    }

    /// Has the replica fail in the way with this number, and starts it again.
    fn fail(&mut self, way: u64) {
        let process = self.process.as_ref().unwrap();
        match way % 4 {
            0 => process.signal("KILL"),
            1 => {
                process.signal("STOP");
                std::thread::sleep(OUTAGE);
                process.signal("CONT");
                std::thread::sleep(Duration::from_secs(2));
            }
            2 => {
                process.signal("TERM");
                let begin = Instant::now();
                while self.process.as_mut().unwrap().0.try_wait().unwrap().is_none() {
                    assert!(begin.elapsed() < Duration::from_secs(90), "a replica does not end");
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
            _ => {
                self.gate.open(false);
                std::thread::sleep(OUTAGE);
                self.gate.open(true);
                std::thread::sleep(Duration::from_secs(2));
            }
        }
        self.restart();
    }
}

/// Returns a command of another program with the arguments and variables of this one.
fn of_program(program: &OsStr, command: &Command) -> Command {
    let mut other = Command::new(program);
    other.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => other.env(name, value),
            None => other.env_remove(name),
        };
    }
    other
}

/// Starts HAProxy in front of the replicas, with the balancing of `deploy/compose/haproxy.cfg`.
fn balancer(directory: &Path, port: u16, replicas: &[Replica]) -> Process {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/compose/haproxy.cfg");
    let example = std::fs::read_to_string(example).unwrap();
    let (general, _) = example.split_once("    server one").unwrap();
    let mut text = general.replace("bind :3001", &format!("bind 127.0.0.1:{port}"));
    for (number, replica) in replicas.iter().enumerate() {
        text.push_str(&format!("    server r{number} 127.0.0.1:{}\n", replica.port));
    }
    let file = directory.join("haproxy.cfg");
    std::fs::write(&file, text).unwrap();
    let checked = Command::new("haproxy").args(["-c", "-f"]).arg(&file).output().unwrap();
    assert!(checked.status.success(), "{checked:?}");
    let mut command = Command::new("haproxy");
    command.arg("-f").arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Process(command.spawn().unwrap())
}

/// Returns the number that a variable has.
fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().unwrap())
}

fn soak(cluster: &str, prefix: &str, store: &S3Server) {
    let (seconds, sessions) = (setting("BELLJAR_SOAK_SECONDS", 20), setting("BELLJAR_SOAK_SESSIONS", 40));
    let directory = tempfile::tempdir().unwrap();
    let ports = free_ports(REPLICAS + 1);
    let mut replicas: Vec<Replica> =
        ports[1..].iter().enumerate().map(|(number, &port)| Replica::new(number, port, store, cluster)).collect();
    replicas.iter_mut().for_each(Replica::start);
    replicas.iter().for_each(Replica::wait_until_ready);
    let _balancer = balancer(directory.path(), ports[0], &replicas);
    let address = format!("127.0.0.1:{}", ports[0]);
    let (tally, ended) = (Tally::default(), AtomicBool::new(false));
    let mut failures = 0;
    std::thread::scope(|scope| {
        // A client that fails ends the test, and not only its thread.
        let clients: Vec<_> = (0..sessions)
            .map(|_| {
                let (address, tally, ended) = (&address, &tally, &ended);
                scope.spawn(move || {
                    let mut counter = Counter::open(address, tally);
                    counter.count_until(ended);
                    counter
                })
            })
            .collect();
        let begin = Instant::now();
        // On a busy machine, it takes longer until all sessions exist and have counted.
        let goes_on = || match begin.elapsed() {
            time if time < Duration::from_secs(seconds) => true,
            time => time < Duration::from_secs(seconds) + START_TIMEOUT && !has_counted(&tally, sessions),
        };
        while goes_on() && !clients.iter().any(|client| client.is_finished()) {
            std::thread::sleep(Duration::from_secs(3));
            // Each replica fails in each way in turn.
            let replica = usize::try_from(failures).unwrap() % REPLICAS;
            replicas[replica].fail(failures + failures / REPLICAS as u64);
            failures += 1;
        }
        ended.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().unwrap().finish();
        }
    });
    eprintln!(
        "{prefix}: {} counts, {} errors, {failures} failures of replicas, longest answer {} ms",
        tally.answers.load(Ordering::Relaxed),
        tally.errors.load(Ordering::Relaxed),
        tally.longest.load(Ordering::Relaxed),
    );
    assert!(has_counted(&tally, sessions), "{tally:?}");
}

/// Returns whether there are more answers than sessions.
fn has_counted(tally: &Tally, sessions: u64) -> bool {
    tally.answers.load(Ordering::Relaxed) > sessions
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn sessions_survive_failures_with_the_store() {
    let runtime = runtime();
    let store = runtime.block_on(S3Server::start());
    soak("store", "store", &store);
}

fn sessions_survive_failures_with_etcd() {
    let runtime = runtime();
    let store = runtime.block_on(S3Server::start());
    let etcd = runtime.block_on(EtcdCluster::start());
    soak(&etcd.address("soak"), "etcd", &store);
}

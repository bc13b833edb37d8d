//! Network access of code to real databases: each program of `tests/network/databases` asserts what it expects.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use belljar_testing::{Capability, free_ports};

use crate::certificates;
use crate::harness::Belljar;

belljar_testing::trials! {
    pg8000_queries_postgresql: [Postgresql],
    pymysql_queries_mariadb: [Mariadb],
    redis_commands_are_answered: [Redis],
}

/// A time after which a server counts as hung.
const START_TIMEOUT: Duration = Duration::from_secs(180);

fn is_root() -> bool {
    Capability::Root.missing().is_none()
}

/// The files of a server, with certificates of the tests, and its ports.
struct Place {
    folder: tempfile::TempDir,
    ports: Vec<u16>,
}

impl Place {
    fn new(ports: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        certificates::write(folder.path()).unwrap();
        Self { folder, ports: free_ports(ports) }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.file(name).display().to_string()
    }
}

/// A server, which ends when dropped.
struct Database {
    server: Child,
    place: Place,
    /// Stops the server, if it is not the child itself.
    stop: Option<Command>,
}

impl Drop for Database {
    fn drop(&mut self) {
        let _ = match &mut self.stop {
            Some(stop) => stop.output().map(drop),
            None => self.server.kill(),
        };
        let _ = self.server.wait();
    }
}

impl Database {
    fn start(mut command: Command, place: Place, stop: Option<Command>) -> Self {
        let log = std::fs::File::create(place.file("log")).unwrap();
        let server = command.stdout(log.try_clone().unwrap()).stderr(log).stdin(Stdio::null()).spawn().unwrap();
        let database = Self { server, place, stop };
        let begin = Instant::now();
        for port in &database.place.ports {
            while TcpStream::connect(("127.0.0.1", *port)).is_err() {
                let log = || std::fs::read_to_string(database.place.file("log")).unwrap();
                assert!(begin.elapsed() < START_TIMEOUT, "the server does not start: {}", log());
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        database
    }

    /// Runs a program in the sandbox, which reaches this server as `db.example.com` and nothing else.
    fn run(&self, name: &str) {
        let ports: Vec<String> = self.place.ports.iter().map(ToString::to_string).collect();
        let allowed: Vec<String> = ports.iter().map(|port| format!("\"db.example.com:{port}\"")).collect();
        let policy = self.place.file("policy.toml");
        let text = format!("allow = [{}]\nresolve = {{ \"db.example.com\" = \"127.0.0.1\" }}\n", allowed.join(", "));
        std::fs::write(&policy, text).unwrap();
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/network/databases").join(name);
        let run = Belljar::new()
            .arg("run")
            .args(["--net-policy".as_ref(), policy.as_os_str()])
            .args(["--net-ca".as_ref(), self.place.file("ca.crt").as_os_str()])
            .arg(program)
            .args(&ports)
            .run();
        assert_eq!((run.status, run.stdout.as_str()), (Some(0), ""), "{}", run.stderr);
    }
}

fn succeed(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Returns a command of the user who may run PostgreSQL, which root may not.
fn as_postgres(program: &str) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("runuser");
    command.args(["-u", "postgres", "--", program]);
    command
}

fn pg8000_queries_postgresql() {
    let place = Place::new(1);
    std::fs::write(place.file("password"), "the password\n").unwrap();
    if is_root() {
        succeed(Command::new("chown").args(["-R", "postgres"]).arg(place.folder.path()));
    }
    let [data, key, password] = ["data", "good.pem", "password"].map(|name| place.text(name));
    succeed(Command::new("chmod").args(["600", &key]));
    let options = ["-D", &data, "-U", "tester", "--auth=scram-sha-256", "-N", "--pwfile", &password];
    succeed(as_postgres("initdb").args(options));
    let mut server = as_postgres("postgres");
    server.args(["-D", &data, "-p", &place.ports[0].to_string(), "-k", &place.text(""), "-c", "ssl=on"]);
    server.args(["-c", &format!("ssl_cert_file={key}"), "-c", &format!("ssl_key_file={key}")]);
    server.args(["-c", "fsync=off", "-c", "listen_addresses=127.0.0.1"]);
    // `runuser` passes no signal on.
    let mut stop = as_postgres("pg_ctl");
    stop.args(["stop", "--mode=immediate", "--pgdata", &data]);
    Database::start(server, place, Some(stop)).run("postgresql.py");
}

fn pymysql_queries_mariadb() {
    let place = Place::new(1);
    let [data, key, socket, ca, start] =
        ["data", "good.pem", "socket", "ca.crt", "start.sql"].map(|name| place.text(name));
    // Of each line one statement is read.
    let users = "create database work;\ncreate user tester@'%' identified by 'the password';\n\
                 grant all on work.* to tester@'%';\n";
    std::fs::write(&start, users).unwrap();
    let user: &[&str] = if is_root() { &["--user=root"] } else { &[] };
    let data = format!("--datadir={data}");
    let options = ["--no-defaults", &data, "--auth-root-authentication-method=normal", "--skip-test-db"];
    succeed(Command::new("mariadb-install-db").args(options).args(user));
    let mut server = Command::new("mariadbd");
    server.args(["--no-defaults", &data, "--bind-address=127.0.0.1", "--skip-name-resolve"]).args(user);
    server.args([format!("--port={}", place.ports[0]), format!("--socket={socket}"), format!("--init-file={start}")]);
    server.args([format!("--ssl-cert={key}"), format!("--ssl-key={key}"), format!("--ssl-ca={ca}")]);
    Database::start(server, place, None).run("mariadb.py");
}

fn redis_commands_are_answered() {
    let place = Place::new(2);
    let [folder, key, ca] = ["", "good.pem", "ca.crt"].map(|name| place.text(name));
    let mut server = Command::new("redis-server");
    server.args(["--bind", "127.0.0.1", "--save", "", "--dir", &folder, "--port", &place.ports[0].to_string()]);
    server.args(["--tls-port", &place.ports[1].to_string(), "--tls-cert-file", &key, "--tls-key-file", &key]);
    server.args(["--tls-ca-cert-file", &ca, "--tls-auth-clients", "no"]);
    Database::start(server, place, None).run("redis_server.py");
}

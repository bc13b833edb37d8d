//! Network access of code to a real PostgreSQL, and by packages that only Pyodide's distribution has.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use belljar_testing::Capability;

use crate::certificates;
use crate::harness::Belljar;
use crate::network_servers::site;

belljar_testing::trials! {
    pandas_reads_a_table_from_a_server: [PyodideCdn],
    pg8000_queries_postgresql_over_tls: [Postgresql],
}

/// A time after which a server counts as hung.
const START_TIMEOUT: Duration = Duration::from_secs(60);

fn pandas_reads_a_table_from_a_server() {
    let code = "import pandas as pd\nfor base in ('https://api.example.com:PORT_https', 'http://api.example.com:PORT_http'):\n    \
                print(pd.read_csv(base + '/csv').value.sum())";
    let run = site().run(code);
    assert_eq!(run.stdout, "3\n3\n", "{}", run.stderr);
}

/// A database server, which ends when dropped.
struct Database {
    server: Child,
    port: u16,
    folder: tempfile::TempDir,
}

impl Drop for Database {
    fn drop(&mut self) {
        // `runuser` passes no signal on.
        let _ = command("pg_ctl").args(["stop", "--mode=immediate", "--pgdata"]).arg(self.file("data")).output();
        let _ = self.server.wait();
    }
}

/// Returns a command of the user who may run a database server, which root may not.
fn command(program: &str) -> Command {
    if Capability::Root.missing().is_some() {
        return Command::new(program);
    }
    let mut command = Command::new("runuser");
    command.args(["-u", "postgres", "--", program]);
    command
}

impl Database {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        certificates::write(folder.path()).unwrap();
        std::fs::write(folder.path().join("password"), "the password\n").unwrap();
        if Capability::Root.missing().is_none() {
            let owned = Command::new("chown").args(["-R", "postgres"]).arg(folder.path()).status().unwrap();
            assert!(owned.success());
        }
        let file = |name: &str| folder.path().join(name).display().to_string();
        let private = Command::new("chmod").arg("600").arg(file("good.pem")).status().unwrap();
        assert!(private.success());
        let mut setup = command("initdb");
        setup.args(["-D", &file("data"), "-U", "tester", "--auth=scram-sha-256", "-N", "--pwfile", &file("password")]);
        let output = setup.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut server = command("postgres");
        server.args(["-D", &file("data"), "-p", &port.to_string(), "-k", &file(""), "-c", "ssl=on"]);
        server.args(["-c", &format!("ssl_cert_file={}", file("good.pem")), "-c", "fsync=off"]);
        server.args(["-c", &format!("ssl_key_file={}", file("good.pem")), "-c", "listen_addresses=127.0.0.1"]);
        let server = server.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let database = Self { server, port, folder };
        let begin = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(begin.elapsed() < START_TIMEOUT, "PostgreSQL does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        database
    }

    fn file(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }
}

fn pg8000_queries_postgresql_over_tls() {
    let database = Database::start();
    let port = database.port;
    let policy = tempfile::tempdir().unwrap();
    let policy_file = policy.path().join("policy.toml");
    let text = format!("allow = [\"db.example.com:{port}\"]\nresolve = {{ \"db.example.com\" = \"127.0.0.1\" }}\n");
    std::fs::write(&policy_file, text).unwrap();
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/network/postgresql.py");
    let run = Belljar::new()
        .arg("run")
        .args(["--net-policy".as_ref(), policy_file.as_os_str()])
        .args(["--net-ca".as_ref(), database.file("ca.crt").as_os_str()])
        .arg(program)
        .arg(port.to_string())
        .run();
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), ""), "{}", run.stderr);
}

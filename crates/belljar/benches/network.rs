//! Network access of code, in turns with the machine's CPython on the same servers: kept connections, many requests at
//! once, a large download, runs that do not use the network, and the memory of idle connections.
//!
//! The programs are in `benches/network`; the servers are those of the tests. A name after `--` selects one part:
//! `requests`, `unused` or `memory`.

#[path = "../tests/support/certificates.rs"]
mod certificates;
mod support;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::json;
use support::server::Server;
use support::{Finding, Sample, Table, timed};

/// The rounds of each program.
const ROUNDS: usize = 5;
/// The requests of one round over a kept connection.
const REQUESTS: usize = 300;
/// The requests at once.
const AT_ONCE: usize = 200;
/// The bytes of the download.
const DOWNLOAD: usize = 200_000_000;
/// The runs that do not use the network.
const RUNS: usize = 400;
/// The sessions with an idle connection each.
const SESSIONS: usize = 1_000;

fn main() -> Finding<()> {
    let selected = |part: &str| {
        let mut parts = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).peekable();
        parts.peek().is_none() || parts.any(|argument| argument == part)
    };
    let [requests, unused, memory] = ["requests", "unused", "memory"].map(selected);
    support::main(move || {
        let site = Site::start()?;
        if requests {
            measure_requests(&site)?;
        }
        if unused {
            measure_unused(&site)?;
        }
        if memory {
            measure_memory(&site)?;
        }
        Ok(())
    })
}

/// The servers, and the options to reach them.
struct Site {
    folder: tempfile::TempDir,
    ports: BTreeMap<String, u16>,
    servers: Child,
}

impl Drop for Site {
    fn drop(&mut self) {
        // Fails if the process has ended.
        let _ = self.servers.kill();
        let _ = self.servers.wait();
    }
}

impl Site {
    fn start() -> Finding<Self> {
        let folder = tempfile::tempdir()?;
        certificates::write(folder.path())?;
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/network/servers.py");
        let mut command = Command::new("python3");
        command.arg("-B").arg(program).arg(folder.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut servers = command.spawn()?;
        let mut line = String::new();
        BufReader::new(servers.stdout.take().ok_or("no pipe")?).read_line(&mut line)?;
        let site = Self { folder, ports: serde_json::from_str(&line)?, servers };
        let [https, silent] = ["https", "silent"].map(|name| site.ports[name]);
        let policy = format!(
            "allow = [\"localhost:{https}\", \"localhost:{silent}\"]\nresolve = {{ localhost = \"127.0.0.1\" }}\n"
        );
        std::fs::write(site.folder.path().join("policy.toml"), policy)?;
        Ok(site)
    }

    fn options(&self) -> Vec<String> {
        let file = |name: &str| self.folder.path().join(name).display().to_string();
        vec!["--net-policy".into(), file("policy.toml"), "--net-ca".into(), file("ca.crt")]
    }

    /// Returns the options as a server's benchmark takes them.
    fn server(&self, toolset: &str, options: &[&str]) -> Finding<Server> {
        let network = self.options();
        let all: Vec<&str> = network.iter().map(String::as_str).chain(options.iter().copied()).collect();
        Server::start(toolset, &all)
    }
}

/// Runs a program and returns the numbers that it prints.
fn numbers(command: &mut Command) -> Finding<Vec<f64>> {
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("a program failed: {}", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn measure_requests(site: &Site) -> Finding<()> {
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/network");
    let environment = Path::new(env!("CARGO_TARGET_TMPDIR")).join("clients");
    let native: PathBuf =
        belljar_testing::install::pip(&environment, "network-bench", &["requests", "aiohttp"]).join("python");
    let url = format!("https://localhost:{}", site.ports["https"]);
    let authority = site.folder.path().join("ca.crt");
    let mut table = Table::new(&["", "Belljar", "CPython natively", "ratio", "of each: min, p95"]);
    for (title, program, arguments, unit) in [
        ("`requests.get` of 1 KB, connection kept: p50 in ms", "keep_alive.py", vec![REQUESTS], 1e3),
        ("200 requests at once by `aiohttp`: median in ms", "at_once.py", vec![AT_ONCE, 3], 1e3),
        ("download of 200 MB: median in s", "download.py", vec![DOWNLOAD], 1.0),
    ] {
        let (mut sandboxed, mut natively) = (Sample::default(), Sample::default());
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        for _ in 0..ROUNDS {
            let mut command = Command::new(support::program());
            command.arg("run").args(site.options()).arg(programs.join(program)).arg(&url).args(&arguments);
            numbers(&mut command)?.into_iter().for_each(|value| sandboxed.add(value * unit));
            let mut command = Command::new(&native);
            command.arg(programs.join(program)).arg(&url).args(&arguments);
            command.env("SSL_CERT_FILE", &authority).env("REQUESTS_CA_BUNDLE", &authority);
            numbers(&mut command)?.into_iter().for_each(|value| natively.add(value * unit));
        }
        let (own, other) = (sandboxed.median(), natively.median());
        let spread = [&sandboxed, &natively].map(|each| format!("{:.2}, {:.2}", each.min(), each.quantile(0.95)));
        table.row(&[
            title.to_owned(),
            format!("{own:.2}"),
            format!("{other:.2}"),
            format!("{:.2}", own / other),
            spread.join("; "),
        ]);
    }
    table.print("Requests over TLS on loopback");
    Ok(())
}

fn measure_unused(site: &Site) -> Finding<()> {
    let (mut with_option, mut with_files, mut without) = (Sample::default(), Sample::default(), Sample::default());
    let (option, files) = (["--allow-net".to_owned(), "example.org".to_owned()], site.options());
    for _ in 0..RUNS {
        let samples = [(&mut with_option, &option[..]), (&mut with_files, &files[..]), (&mut without, &[])];
        for (sample, options) in samples {
            let mut command = Command::new(support::program());
            command.arg("run").args(options).args(["-c", "import json; json.dumps([1])"]);
            let (time, status) = timed(|| command.status());
            if !status?.success() {
                return Err("a run failed".into());
            }
            sample.add(time);
        }
    }
    let mut servers = [site.server("python", &["--no-install"])?, Server::start("python", &["--no-install"])?];
    let mut calls = [Sample::default(), Sample::default()];
    for _ in 0..RUNS {
        for (server, sample) in servers.iter_mut().zip(&mut calls) {
            let call = json!({ "python_code": "import json; json.dumps([1])" });
            let (time, answer) = timed(|| server.call("run_python_code", call));
            answer?;
            sample.add(time);
        }
    }
    let mut table = Table::new(&["ms", "with a policy: median", "min", "without: median", "min"]);
    for (title, with, without) in [
        ("`belljar run --allow-net`", &with_option, &without),
        ("`belljar run --net-policy --net-ca`", &with_files, &without),
        ("`run_python_code`", &calls[0], &calls[1]),
    ] {
        let values = [with.median(), with.min(), without.median(), without.min()].map(|value| format!("{value:.2}"));
        table.row(&[title, &values[0], &values[1], &values[2], &values[3]]);
    }
    table.print("Runs that do not use the network");
    Ok(())
}

/// Measures the memory of a server whose sessions each hold an idle connection, against one whose sessions have closed
/// theirs: a first connection also writes to pages of the interpreter that the image had before.
fn measure_memory(site: &Site) -> Finding<()> {
    let port = site.ports["silent"];
    let connect =
        format!("import socket\nplain = socket.create_connection(('localhost', {port}))\nsent = plain.send(b'x')");
    let mut table = Table::new(&["each session", "KB in all", "KB of each session"]);
    let mut totals = Vec::new();
    let count = SESSIONS.to_string();
    for (title, code) in [
        ("has no connection", "import socket"),
        ("has closed a connection", &format!("{connect}\nplain.close()")),
        ("has an idle connection", &connect),
        ("has three idle connections", &format!("{connect}\nfirst = plain\n{connect}\nsecond = plain\n{connect}")),
    ] {
        let mut server = site.server("interpreter", &["--max-sessions", &count])?;
        let before = server.private_megabytes()? * 1024.0;
        for _ in 0..SESSIONS {
            let session = server.session()?;
            server.run(&session, code)?;
        }
        let used = server.private_megabytes()? * 1024.0 - before;
        table.row(&[title.to_owned(), format!("{used:.0}"), format!("{:.1}", used / SESSIONS as f64)]);
        totals.push(used);
    }
    if let [_, closed, one, three] = totals.as_slice() {
        for (title, difference) in [("the first connection", one - closed), ("a further one", (three - one) / 2.0)] {
            table.row(&[title.to_owned(), String::new(), format!("{:.1}", difference / SESSIONS as f64)]);
        }
    }
    table.print(&format!("Memory of a server with {SESSIONS} sessions (private memory)"));
    Ok(())
}

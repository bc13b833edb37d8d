//! Monty's worker protocol, with pydantic-monty's client and pydantic-ai-harness's CodeMode.

use std::path::Path;
use std::process::Command;

use belljar_testing::install::run;
use tempfile::TempDir;

use crate::harness::Belljar;
use crate::monty_worker::{WorkerProgram, script, script_with};
use crate::serve::http::Listening;

/// The newest client that speaks version 5 of the protocol.
const VERSION_5: &[&str] = &["pydantic-monty==1.1.0"];

/// Returns a script of `tests/monty` with the client of version 5.
fn script_of_version_5(name: &str) -> Command {
    script_with("monty-5", VERSION_5, name)
}

/// A server with a token.
struct RemoteWorkers {
    server: Listening,
    _directory: TempDir,
}

impl RemoteWorkers {
    const TOKEN: &str = "a-token-of-this-test";

    fn start() -> Self {
        Self::start_with(&[])
    }

    fn start_with(options: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let tokens = directory.path().join("tokens");
        std::fs::write(&tokens, Self::TOKEN).unwrap();
        let usual = ["--monty", "--auth-token-file", tokens.to_str().unwrap()];
        let server = Listening::start("streamable-http", usual.iter().chain(options).copied());
        Self { server, _directory: directory }
    }

    fn url(&self) -> String {
        self.server.url.replacen("http", "ws", 1).replace("/mcp", "/monty")
    }
}

#[test]
fn synchronous_client_runs_feeds() {
    run(script("sync_client.py").arg(WorkerProgram::new().path()));
}

#[test]
fn asynchronous_client_runs_feeds_and_continues_dumps() {
    run(script("async_client.py").arg(WorkerProgram::new().path()));
}

#[test]
fn remote_worker_runs_feeds_and_continues_dumps() {
    let workers = RemoteWorkers::start();
    run(script("async_client.py").arg(workers.url()).arg(RemoteWorkers::TOKEN));
}

#[test]
fn local_worker_applies_policies_and_limits() {
    run(script("policies.py").arg(WorkerProgram::new().path()));
}

in_both_isolations! { remote_worker_applies_policies_and_limits }

fn remote_worker_applies_policies_and_limits(isolation: &str) {
    let workers = RemoteWorkers::start_with(&["--isolation", isolation]);
    run(script("policies.py").arg(workers.url()).arg(RemoteWorkers::TOKEN));
}

#[test]
fn code_of_a_cancelled_feed_ends() {
    run(script("cancelled.py").arg(WorkerProgram::new().path()));
    let workers = RemoteWorkers::start_with(&["--max-concurrency", "1"]);
    run(script("cancelled.py").arg(workers.url()).arg(RemoteWorkers::TOKEN));
}

#[test]
fn feed_goes_on_from_its_dump_after_its_server_was_killed() {
    let (data, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let options = ["--data-dir", data.path().to_str().unwrap()];
    let client = |workers: &RemoteWorkers| {
        let mut command = script("killed_server.py");
        command.arg(workers.url()).arg(RemoteWorkers::TOKEN).arg(directory.path().join("dump"));
        command
    };
    let mut first = RemoteWorkers::start_with(&options);
    let server = first.server.child.id().to_string();
    run(client(&first).arg(server));
    assert!(!first.server.child.wait().unwrap().success());
    let second = RemoteWorkers::start_with(&options);
    run(&mut client(&second));
}

#[test]
fn clients_of_version_5_run_feeds_and_continue_dumps() {
    run(script_of_version_5("sync_client.py").arg(WorkerProgram::new().path()).arg("5"));
    run(script_of_version_5("async_client.py").arg(WorkerProgram::new().path()));
    run(script_of_version_5("policies.py").arg(WorkerProgram::new().path()));
}

#[test]
fn remote_worker_serves_clients_of_version_5() {
    let workers = RemoteWorkers::start();
    run(script_of_version_5("async_client.py").arg(workers.url()).arg(RemoteWorkers::TOKEN));
}

#[test]
fn feeds_of_a_remote_worker_are_in_the_audit_log() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("audit.log");
    let workers = RemoteWorkers::start_with(&["--audit", log.to_str().unwrap()]);
    run(script("async_client.py").arg(workers.url()).arg(RemoteWorkers::TOKEN));
    workers.server.end();
    let verified = Belljar::without_cache().args(["audit", "verify"]).arg(&log).run();
    assert_eq!(verified.status, Some(0), "{verified:?}");
    let text = std::fs::read_to_string(&log).unwrap();
    let records: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |event: &str| records.iter().filter(|record| record["event"] == event).collect::<Vec<_>>();
    let (starts, ends) = (of("cell.start"), of("cell.end"));
    // Feeds that continue from a dump have only an end.
    let began: Vec<_> = starts.iter().map(|start| &start["run"]).collect();
    let continued: Vec<_> = ends.iter().filter(|end| !began.contains(&&end["run"])).collect();
    let mut codes: Vec<_> = continued.iter().map(|end| end["code_sha256"].as_str().unwrap().to_owned()).collect();
    codes.sort();
    let during = "value = await approve('now')\n[before, value, seen is not None]";
    let both = "import asyncio\nawait asyncio.gather(approve(1), approve(2))";
    let mut expected = [during, during, both].map(belljar_audit::sha256);
    expected.sort();
    assert_eq!(codes, expected, "{text}");
    assert!(continued.iter().all(|end| end["outcome"] == "success" && end["session"].is_string()), "{text}");
    assert_eq!(ends.len(), starts.len() + continued.len(), "{text}");
    let owner = format!("token:{}", &belljar_audit::sha256(RemoteWorkers::TOKEN)[..16]);
    for end in &ends {
        assert_eq!(
            (&end["protocol"], &end["owner"]),
            (&"monty".into(), &serde_json::Value::from(owner.as_str())),
            "{end}"
        );
    }
    assert!(ends.iter().any(|end| end["outcome"] == "success"), "{text}");
    let failed = ends.iter().find(|end| end["code_sha256"] == belljar_audit::sha256("await fail(2)")).unwrap();
    assert_eq!((&failed["outcome"], &failed["error"]), (&"error".into(), &"ValueError".into()), "{failed}");
    assert!(!text.contains(RemoteWorkers::TOKEN), "{text}");
}

#[test]
fn code_mode_runs_on_a_local_worker() {
    run(script("code_mode.py").arg("local").env("MONTY_BIN", WorkerProgram::new().path()));
}

#[test]
fn code_mode_runs_on_a_remote_worker() {
    let workers = RemoteWorkers::start();
    run(script("code_mode.py").arg(workers.url()).arg(RemoteWorkers::TOKEN));
}

#[test]
fn objects_of_packages_are_values_of_python() {
    let guest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../belljar-python/guest");
    run(script_with("monty-packages", &["numpy==2.4.6", "pandas==3.1.1"], "package_nodes.py").arg(guest));
}

#[test]
fn requests_that_no_client_sends_are_refused() {
    run(script("attacks.py").arg(WorkerProgram::new().path()));
}

#[test]
fn connection_needs_the_token_and_the_option() {
    let upgrade = [
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    let workers = RemoteWorkers::start();
    assert_eq!(workers.server.send("GET", "/monty", &upgrade, "").0, 401);
    let wrong = [&upgrade[..], &[("Authorization", "Bearer another-token")]];
    assert_eq!(workers.server.send("GET", "/monty", &wrong.concat(), "").0, 401);
    let foreign =
        [&upgrade[..], &[("Origin", "https://evil.example"), ("Authorization", "Bearer a-token-of-this-test")]];
    assert_eq!(workers.server.send("GET", "/monty", &foreign.concat(), "").0, 403);
    let server = Listening::start("streamable-http", ["--no-install"]);
    assert_eq!(server.send("GET", "/monty", &upgrade, "").0, 404);
}

#[test]
fn shutdown_returns_the_session_to_its_client() {
    let mut server = Listening::start("streamable-http", ["--monty"]);
    let url = server.url.replacen("http", "ws", 1).replace("/mcp", "/monty");
    run(script("draining.py").arg(url).arg(server.child.id().to_string()));
    assert!(server.child.wait().unwrap().success());
}

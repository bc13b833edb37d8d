//! Cells that wait for an approval: the time until they go on, and what they take meanwhile, awake and asleep on disk.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::server::Server;
use crate::support::{Finding, Sample, Table, milliseconds};

/// The number of approvals whose time is measured: the maximum number of calls of a cell.
const APPROVALS: usize = 100;
/// The same for cells that are asleep, each of which takes [`FALLING_ASLEEP`].
const APPROVALS_ASLEEP: usize = 30;
/// The time between a question and its answer: more than the disk needs to sync what was saved with the question.
const THINKING: Duration = Duration::from_millis(50);
/// The time after which a cell with `--sleep-after 0.1` is asleep: cells are put to sleep once a second.
const FALLING_ASLEEP: Duration = Duration::from_millis(1500);
/// The time for which the memory of a server must not have changed by more than a tenth of a percent to be measured.
const SETTLED: Duration = Duration::from_secs(5);
/// The number of simultaneous cells that are asleep. Those that are awake would need more memory.
const ASLEEP: usize = 10_000;

/// A server with a data directory, whose code has a tool that needs approval.
struct Approving {
    server: Server,
    data: tempfile::TempDir,
}

impl Approving {
    fn start(options: &[&str]) -> Finding<Self> {
        let data = tempfile::tempdir()?;
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../belljar-tools/tests/it/python/tool_server.py");
        let tools = format!("--server=t=python3 -u '{}' plain", script.display());
        let directory = data.path().to_str().ok_or("not UTF-8")?;
        let own = ["--approve", "all", "--data-dir", directory, &tools, "--max-concurrency", "2"];
        let server = Server::start_with("interpreter", &[&own[..], options].concat(), &json!({ "elicitation": {} }))?;
        Ok(Self { server, data })
    }

    /// Returns the next question.
    fn question(&mut self) -> Finding<Value> {
        let question = self.server.read(|message| message["method"] == "elicitation/create" || is_answer(message))?;
        if is_answer(&question) { Err(format!("a cell has ended: {question}").into()) } else { Ok(question) }
    }

    fn approve(&mut self, question: &Value) -> Finding<()> {
        let result = json!({ "action": "accept", "content": { "value": "yes" } });
        self.server.write(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": result }))
    }
}

fn is_answer(message: &Value) -> bool {
    message.get("id").is_some() && message.get("method").is_none()
}

/// Measures the time from an approval to the next statement.
pub(crate) fn latency() -> Finding<()> {
    let awake = approvals(APPROVALS, &["--sleep-after", "100000"], THINKING)?;
    let asleep = approvals(APPROVALS_ASLEEP, &["--sleep-after", "0.1"], FALLING_ASLEEP)?;
    let mut table = Table::new(&["ms from an approval to the next statement", "p50", "p95", "min", "times"]);
    for (name, sample) in [("awake", awake), ("asleep on disk", asleep)] {
        let values = [sample.median(), sample.quantile(0.95), sample.min()].map(|value| format!("{value:.2}"));
        table.row(&[name, &values[0], &values[1], &values[2], &sample.len().to_string()]);
    }
    table.print("Approvals, with the call of a tool");
    Ok(())
}

/// Approves calls, each of them `pause` after it was asked for.
fn approvals(count: usize, options: &[&str], pause: Duration) -> Finding<Sample> {
    let mut approving = Approving::start(options)?;
    approving.server.request("logging/setLevel", &json!({ "level": "info" }))?;
    let session = approving.server.session()?;
    let code =
        format!("from tools import t\nfor n in range({count}):\n    await t.echo(value=n)\n    print('next', n)");
    approving.server.send("execute_code", json!({ "code": code, "session_id": session }))?;
    let mut sample = Sample::default();
    for number in 0..count {
        let question = approving.question()?;
        std::thread::sleep(pause);
        let line = format!("next {number}");
        let start = Instant::now();
        approving.approve(&question)?;
        approving.server.read(|message| message["params"]["data"] == *line)?;
        sample.add(milliseconds(start.elapsed()));
    }
    Ok(sample)
}

/// Measures cells that wait for approvals at the same time, each in a session of its own.
pub(crate) fn many(awake: usize) -> Finding<()> {
    let mut table = Table::new(&["", "awake", "asleep"]);
    let (awake, asleep) = (waiting(awake, "100000")?, waiting(ASLEEP, "0.1")?);
    for ((name, awake), (_, asleep)) in awake.into_iter().zip(asleep) {
        table.row(&[name, &awake, &asleep]);
    }
    table.print("Cells that wait for an approval");
    Ok(())
}

fn waiting(count: usize, sleep_after: &str) -> Finding<Vec<(&'static str, String)>> {
    let maximum = (count + 100).to_string();
    let limits = ["--max-sessions", &maximum, "--max-queue", &maximum, "--session-timeout", "100000"];
    let mut approving = Approving::start(&[&limits[..], &["--sleep-after", sleep_after]].concat())?;
    let call = |approving: &mut Approving, number: usize| {
        let code = format!("from tools import t\nawait t.echo(value={number})");
        approving.server.send("execute_code", json!({ "code": code }))
    };
    // The image is mapped, the tools are listed, and the pool has its threads.
    call(&mut approving, 0)?;
    approving.question()?;
    let memory = settled_megabytes(&approving.server)?;
    let (threads, _) = approving.server.threads_and_processor_time()?;
    let start = Instant::now();
    for number in 0..count {
        call(&mut approving, number)?;
        // Answers are read meanwhile, so that no pipe is full.
        approving.question()?;
    }
    let elapsed = start.elapsed();
    let each = (settled_megabytes(&approving.server)? - memory) / count as f64;
    let (threads_now, _) = approving.server.threads_and_processor_time()?;
    let bytes = size_of(approving.data.path())? as f64 / (count + 1) as f64;
    Ok(vec![
        ("simultaneous cells", count.to_string()),
        ("ms until each had begun and was saved", format!("{:.1}", milliseconds(elapsed) / count as f64)),
        ("KB of private memory each", format!("{:.0}", each * 1024.0)),
        ("KB on disk each", format!("{:.0}", bytes / 1024.0)),
        ("threads more than with one cell", threads_now.saturating_sub(threads).to_string()),
    ])
}

/// Returns the private memory of a server once it does not change any more.
fn settled_megabytes(server: &Server) -> Finding<f64> {
    let mut last = server.private_megabytes()?;
    loop {
        std::thread::sleep(SETTLED);
        let now = server.private_megabytes()?;
        if (now - last).abs() <= last / 1000.0 {
            return Ok(now);
        }
        last = now;
    }
}

/// Returns the size of the files of waiting cells.
fn size_of(data: &Path) -> Finding<u64> {
    let mut bytes = 0;
    for session in std::fs::read_dir(data)? {
        let waiting = session?.path().join("waiting");
        bytes += std::fs::metadata(waiting).map_or(0, |metadata| metadata.len());
    }
    Ok(bytes)
}

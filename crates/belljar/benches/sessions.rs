//! Sessions from the view of a client: cells, forks and wakes over standard streams, and the memory of awake and
//! sleeping sessions.
//!
//! A number after `--` measures only so many simultaneous sessions awake.

mod support;

use std::path::Path;

use serde_json::json;
use support::server::Server;
use support::{Finding, Sample, Table, timed};

const TIMES: usize = 200;
const AWAKE: usize = 2000;
const ASLEEP: usize = 10_000;

fn main() -> Finding<()> {
    let awake_only = std::env::args().find_map(|argument| argument.parse().ok());
    support::main(move || {
        if let Some(count) = awake_only {
            return awake(count);
        }
        cells()?;
        awake(AWAKE)?;
        asleep()
    })
}

fn row(table: &mut Table, what: &str, sample: &Sample) {
    let times = [sample.median(), sample.quantile(0.95), sample.min()].map(|time| format!("{time:.2}"));
    table.row(&[what, &times[0], &times[1], &times[2]]);
}

fn cells() -> Finding<()> {
    let mut server = Server::start("interpreter", &["--max-sessions", "5000"])?;
    let warm = server.session()?;
    let (mut new, mut next, mut fork) = (Sample::default(), Sample::default(), Sample::default());
    for _ in 0..TIMES {
        let (time, session) = timed(|| server.session());
        let session = session?;
        new.add(time);
        server.run(&session, "x += 1")?;
        server.call("clear_session", json!({ "session_id": session }))?;
    }
    server.run(&warm, "x = 0")?;
    for _ in 0..TIMES {
        let (time, answer) = timed(|| server.run(&warm, "x += 1"));
        answer?;
        next.add(time);
    }
    for _ in 0..TIMES {
        let (time, forked) = timed(|| -> Finding<String> {
            let forked = server.call("fork_session", json!({ "session_id": warm }))?;
            let forked = forked["session_id"].as_str().ok_or("no fork")?.to_owned();
            server.run(&forked, "x += 1")?;
            Ok(forked)
        });
        fork.add(time);
        server.call("clear_session", json!({ "session_id": forked? }))?;
    }
    let mut wake = Sample::default();
    let directory = tempfile::tempdir()?;
    let data = directory.path().to_str().ok_or("not UTF-8")?;
    let session = Server::start("interpreter", &["--data-dir", data])?.ended(|server| server.session())?;
    for _ in 0..TIMES / 4 {
        let mut server = Server::start("interpreter", &["--data-dir", data])?;
        // The image is mapped and the server has warmed up; the session is asleep.
        server.session().and_then(|other| server.call("clear_session", json!({ "session_id": other })))?;
        let (time, answer) = timed(|| server.run(&session, "x"));
        answer?;
        wake.add(time);
        server.end()?;
    }
    let mut table = Table::new(&["over stdio", "p50 ms", "p95 ms", "min ms"]);
    row(&mut table, "`x = 1` in a new session", &new);
    row(&mut table, "`x += 1` in the same session", &next);
    row(&mut table, "fork, and `x += 1` there", &fork);
    row(&mut table, "wake from disk, and `x`, with `--data-dir`", &wake);
    table.print(&format!("Cells ({TIMES} times)"));
    let state = std::fs::metadata(directory.path().join(&session).join("state"))?.len();
    let mut table = Table::new(&["", ""]);
    table.row(&["KB on disk, asleep, after `x = 1`", &format!("{:.0}", state as f64 / 1024.0)]);
    table.print("State");
    Ok(())
}

fn awake(count: usize) -> Finding<()> {
    let maximum = (count + 100).to_string();
    let mut server = Server::start("interpreter", &["--max-sessions", &maximum, "--sleep-after", "100000"])?;
    server.session()?;
    let before = server.private_megabytes()?;
    let mut sessions = Vec::with_capacity(count);
    for _ in 0..count {
        sessions.push(server.session()?);
    }
    let each = (server.private_megabytes()? - before) / count as f64;
    let mut next = Sample::default();
    // Each session once, so that none has just been used.
    for session in sessions.iter().step_by((count / TIMES).max(1)) {
        let (time, answer) = timed(|| server.run(session, "x += 1"));
        answer?;
        next.add(time);
    }
    let mut table = Table::new(&["", ""]);
    table.row(&["simultaneous sessions awake", &count.to_string()]);
    table.row(&["MB of private memory each", &format!("{each:.2}")]);
    table.row(&["ms of the next cell, p50", &format!("{:.2}", next.median())]);
    table.row(&["ms of the next cell, p95", &format!("{:.2}", next.quantile(0.95))]);
    table.print("Awake");
    Ok(())
}

fn asleep() -> Finding<()> {
    let (empty, full) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let path = |directory: &Path| directory.to_str().map(str::to_owned).ok_or("not UTF-8");
    let data = path(full.path())?;
    let session = Server::start("interpreter", &["--data-dir", &data])?.ended(|server| server.session())?;
    let state = full.path().join(&session).join("state");
    for number in 0..ASLEEP - 1 {
        let copy = full.path().join(format!("{number:016}"));
        std::fs::create_dir(&copy)?;
        // The ten thousand sessions of the server share one file on disk.
        std::fs::hard_link(&state, copy.join("state"))?;
    }
    let memory = |data: &str| -> Finding<f64> {
        let mut server = Server::start("interpreter", &["--data-dir", data, "--max-sessions", "20000"])?;
        let session = server.session()?;
        let memory = server.private_megabytes()?;
        server.call("clear_session", json!({ "session_id": session }))?;
        Ok(memory)
    };
    let difference = memory(&data)? - memory(&path(empty.path())?)?;
    let mut table = Table::new(&["", ""]);
    table.row(&["sessions asleep", &ASLEEP.to_string()]);
    table.row(&["MB of the server over none", &format!("{difference:.1}")]);
    table.print("Asleep");
    Ok(())
}

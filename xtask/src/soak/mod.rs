//! `cargo xtask soak`: an MCP server of a fixed small size under mixed load with faults, for a while.
//!
//! Some clients are correct. Others disconnect, stop in the middle of a message, send invalid messages, abandon
//! sessions, or run code that never ends or floods its output. The correct clients must get correct answers throughout
//! (or a reply that the server is busy). At the end no code may run, and the server must have released its memory.

mod clients;
mod server;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clients::{Action, Tally};
use server::Server;

use crate::workspace::{Profile, build_belljar};

const USAGE: &str = "\
Usage: cargo xtask soak [OPTIONS]

Options:
  --minutes N     how long [default: 30]
  --clients N     clients at once [default: 8]
  --belljar PATH  the program to test [default: built by cargo]";

/// The server's most memory in megabytes after all clients have disconnected: its memory before, and memory that the
/// allocator keeps.
const AT_REST: u64 = 160;
/// The longest time until the server is idle at the end.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

struct Options {
    minutes: f64,
    clients: u64,
    belljar: Option<PathBuf>,
}

/// Runs the chore. Returns whether all clients and the server behaved as expected.
pub(crate) fn main(arguments: impl Iterator<Item = String>) -> Result<bool, String> {
    let Some(options) = parse(arguments)? else {
        println!("{USAGE}");
        return Ok(true);
    };
    let belljar = match options.belljar {
        Some(path) => path,
        None => build_belljar(Profile::Dev)?,
    };
    let server = Server::start(&belljar)?;
    println!("{} for {} minutes, {} clients", server.address, options.minutes, options.clients);
    let end = Instant::now() + Duration::from_secs_f64(options.minutes * 60.0);
    let stop = AtomicBool::new(false);
    let tally = Tally::default();
    let mut most = 0;
    let watched = std::thread::scope(|scope| {
        for number in 0..options.clients {
            let (server, stop, tally) = (&server, &stop, &tally);
            scope.spawn(move || clients::live(server, number, stop, tally));
        }
        let mut watch = || -> Result<(), String> {
            let mut reported = Instant::now();
            while Instant::now() < end {
                std::thread::sleep(Duration::from_secs(1));
                server.healthy()?;
                let memory = server.resident_megabytes()?;
                most = memory.max(most);
                if reported.elapsed() >= Duration::from_secs(60) {
                    reported = Instant::now();
                    println!("{memory} MB; {tally}");
                }
            }
            Ok(())
        };
        let watched = watch();
        stop.store(true, Ordering::Relaxed);
        watched
    });
    watched?;
    let memory = rest(&server)?;
    println!("{tally}\nat most {most} MB, {memory} MB at rest");
    for action in Action::ALL {
        if tally.done(action) == 0 {
            return Err(format!("no client performed {action:?}; run for longer"));
        }
    }
    if memory > AT_REST {
        println!("wrong: at rest it should hold {AT_REST} MB at most");
        return Ok(false);
    }
    Ok(tally.is_clean())
}

/// Waits until no code runs, and returns the server's memory in megabytes.
fn rest(server: &Server) -> Result<u64, String> {
    let begin = Instant::now();
    while server.metric("belljar_live_interpreters")? > 0.0 {
        if begin.elapsed() > IDLE_TIMEOUT {
            return Err(format!("code still runs {} s after the last client disconnected", IDLE_TIMEOUT.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    server.resident_megabytes()
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Option<Options>, String> {
    let mut options = Options { minutes: 30.0, clients: 8, belljar: None };
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value\n\n{USAGE}"));
        let number = |text: String| text.parse::<f64>().map_err(|_| format!("{text} is not a number\n\n{USAGE}"));
        match argument.as_str() {
            "--help" | "-h" => return Ok(None),
            "--minutes" => options.minutes = number(value()?)?.clamp(0.1, 1e4),
            "--clients" => options.clients = number(value()?)?.clamp(1.0, 64.0) as u64,
            "--belljar" => options.belljar = Some(value()?.into()),
            other => return Err(format!("unknown option {other}\n\n{USAGE}")),
        }
    }
    Ok(Some(options))
}

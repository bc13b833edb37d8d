//! `cargo xtask soak`: an MCP server of a fixed small size under mixed load with faults, for a while.
//!
//! Some clients do what they should, others do not: they hang up, stop in the middle of a message, send nonsense, leave
//! sessions behind, run code that never ends or floods its output. The good ones must get the right answers throughout
//! (or be told that the server is busy); in the end nothing may still run, and memory must have been given back.

mod clients;
mod server;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clients::{Deed, Tally};
use server::Server;

use crate::workspace::build_belljar;

const USAGE: &str = "\
Usage: cargo xtask soak [OPTIONS]

Options:
  --minutes N     how long [default: 30]
  --clients N     clients at once [default: 8]
  --belljar PATH  the program to test [default: built by cargo]";

/// What the server may hold in memory when all clients are gone, in megabytes: what it held before, and what the allocator
/// keeps for the next ones.
const AT_REST: u64 = 160;
/// How long the server may take to come to rest in the end.
const REST: Duration = Duration::from_secs(30);

struct Options {
    minutes: f64,
    clients: u64,
    belljar: Option<PathBuf>,
}

/// Runs the chore; answers whether all went well.
pub(crate) fn main(arguments: impl Iterator<Item = String>) -> Result<bool, String> {
    let Some(options) = parse(arguments)? else {
        println!("{USAGE}");
        return Ok(true);
    };
    let belljar = match options.belljar {
        Some(path) => path,
        None => build_belljar()?,
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
            let mut told = Instant::now();
            while Instant::now() < end {
                std::thread::sleep(Duration::from_secs(1));
                server.healthy()?;
                let memory = server.resident_megabytes()?;
                most = memory.max(most);
                if told.elapsed() >= Duration::from_secs(60) {
                    told = Instant::now();
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
    for deed in Deed::ALL {
        if tally.done(deed) == 0 {
            return Err(format!("nobody ever did this: {deed:?}; soak for longer"));
        }
    }
    if memory > AT_REST {
        println!("wrong: at rest it should hold {AT_REST} MB at most");
        return Ok(false);
    }
    Ok(tally.is_clean())
}

/// Waits until nothing runs any more; the memory then, in megabytes.
fn rest(server: &Server) -> Result<u64, String> {
    let begin = Instant::now();
    while server.metric("belljar_live_interpreters")? > 0.0 {
        if begin.elapsed() > REST {
            return Err(format!("something still runs {} s after the last client has gone", REST.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    server.resident_megabytes()
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Option<Options>, String> {
    let mut options = Options { minutes: 30.0, clients: 8, belljar: None };
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value\n\n{USAGE}"));
        let number = |text: String| text.parse::<f64>().map_err(|_| format!("{text} is no number\n\n{USAGE}"));
        match argument.as_str() {
            "--help" | "-h" => return Ok(None),
            "--minutes" => options.minutes = number(value()?)?.clamp(0.1, 1e4),
            "--clients" => options.clients = number(value()?)?.clamp(1.0, 64.0) as u64,
            "--belljar" => options.belljar = Some(value()?.into()),
            other => return Err(format!("there is no option {other}\n\n{USAGE}")),
        }
    }
    Ok(Some(options))
}

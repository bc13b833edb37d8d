//! How long it takes to know which files a request means, when everything was there before and nothing is asked of a
//! network: with a resolution that is remembered, and with uv's resolver and its cached pages.
//!
//! Run by `cargo bench -p belljar-packages --bench resolve`. The first part needs the index.

use std::time::{Duration, Instant};

use belljar_cache::Cache;
use belljar_core::progress::NoProgress;
use belljar_packages::{InstallError, Installer, Platform, Request, Requirement, Settings};

const WANTED: [&str; 4] = ["pydantic>=2", "rich<13", "email-validator", "msgpack"];
const ROUNDS: usize = 20;

fn main() -> Result<(), InstallError> {
    let directory = tempfile::tempdir().map_err(|source| InstallError::Io {
        action: "make",
        path: std::env::temp_dir(),
        source,
    })?;
    let cache = Cache::open(Some(directory.path().to_path_buf()))?;
    let requirements = WANTED.iter().map(|text| Requirement::parse(text)).collect::<Result<_, _>>()?;
    let request = Request { requirements, ..Request::default() };
    let settings = |offline: bool| -> Result<Settings, InstallError> {
        Ok(Settings { offline, ..Settings::from_environment(cache.clone())? })
    };

    let started = Instant::now();
    let installer = Installer::new(Platform::cpython_3_14(), settings(false)?);
    let resolution = installer.resolve(&request, &NoProgress)?;
    report("cold, online: resolve", &mut [started.elapsed()]);
    let started = Instant::now();
    installer.fetch(&resolution, &NoProgress)?;
    report("cold, online: fetch", &mut [started.elapsed()]);

    let mut remembered = Vec::new();
    let mut fetched = Vec::new();
    let mut resolved = Vec::new();
    let mut again = Vec::new();
    for _ in 0..ROUNDS {
        let started = Instant::now();
        let installer = Installer::new(Platform::cpython_3_14(), settings(true)?);
        let resolution = installer.resolve(&request, &NoProgress)?;
        remembered.push(started.elapsed());
        let started = Instant::now();
        installer.fetch(&resolution, &NoProgress)?;
        fetched.push(started.elapsed());

        forget(directory.path());
        let started = Instant::now();
        let installer = Installer::new(Platform::cpython_3_14(), settings(true)?);
        installer.resolve(&request, &NoProgress)?;
        resolved.push(started.elapsed());
        forget(directory.path());
        let started = Instant::now();
        installer.resolve(&request, &NoProgress)?;
        again.push(started.elapsed());
    }
    report("warm, offline: a remembered resolution, new installer", &mut remembered);
    report("warm, offline: its files from the cache", &mut fetched);
    report("warm, offline: uv's resolver, new installer", &mut resolved);
    report("warm, offline: uv's resolver, same installer", &mut again);
    Ok(())
}

/// Deletes the remembered resolutions.
fn forget(cache: &std::path::Path) {
    let _ = std::fs::remove_dir_all(cache.join("resolutions"));
}

#[expect(clippy::print_stdout, reason = "the numbers are the program's output")]
fn report(what: &str, times: &mut [Duration]) {
    times.sort();
    let at = |share: usize| times[(times.len() - 1) * share / 100].as_secs_f64() * 1000.0;
    println!("{what:55} median {:9.2} ms  95 % {:9.2} ms", at(50), at(95));
}

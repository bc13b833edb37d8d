//! Benchmark of resolving a request without network access: with a cached resolution, and with uv's resolver on cached
//! index pages.
//!
//! Run it with `cargo bench -p belljar-packages --bench resolve`. The first part needs the index.

use std::time::{Duration, Instant};

use belljar_cache::Cache;
use belljar_core::NoProgress;
use belljar_packages::{InstallError, Installer, PackageRequest, Platform, Requirement, Settings};

const REQUIREMENTS: [&str; 4] = ["pydantic>=2", "rich<13", "email-validator", "msgpack"];
const ROUNDS: usize = 20;

fn main() -> Result<(), InstallError> {
    let directory = tempfile::tempdir().map_err(|source| InstallError::Io {
        action: "create",
        path: std::env::temp_dir(),
        source,
    })?;
    let cache = Cache::open(Some(directory.path().to_path_buf()))?;
    let requirements = REQUIREMENTS.iter().map(|text| Requirement::parse(text)).collect::<Result<_, _>>()?;
    let request = PackageRequest { requirements, ..PackageRequest::default() };
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

    let mut cached = Vec::new();
    let mut fetched = Vec::new();
    let mut resolved = Vec::new();
    let mut again = Vec::new();
    for _ in 0..ROUNDS {
        let started = Instant::now();
        let installer = Installer::new(Platform::cpython_3_14(), settings(true)?);
        let resolution = installer.resolve(&request, &NoProgress)?;
        cached.push(started.elapsed());
        let started = Instant::now();
        installer.fetch(&resolution, &NoProgress)?;
        fetched.push(started.elapsed());

        delete_resolutions(directory.path());
        let started = Instant::now();
        let installer = Installer::new(Platform::cpython_3_14(), settings(true)?);
        installer.resolve(&request, &NoProgress)?;
        resolved.push(started.elapsed());
        delete_resolutions(directory.path());
        let started = Instant::now();
        installer.resolve(&request, &NoProgress)?;
        again.push(started.elapsed());
    }
    report("warm, offline: cached resolution, new installer", &mut cached);
    report("warm, offline: files from the cache", &mut fetched);
    report("warm, offline: uv's resolver, new installer", &mut resolved);
    report("warm, offline: uv's resolver, same installer", &mut again);
    Ok(())
}

/// Deletes the cached resolutions.
fn delete_resolutions(cache: &std::path::Path) {
    let _ = std::fs::remove_dir_all(cache.join("resolutions"));
}

#[expect(clippy::print_stdout, reason = "the numbers are the program's output")]
fn report(label: &str, times: &mut [Duration]) {
    times.sort();
    let at = |share: usize| times[(times.len() - 1) * share / 100].as_secs_f64() * 1000.0;
    println!("{label:55} median {:9.2} ms  95 % {:9.2} ms", at(50), at(95));
}

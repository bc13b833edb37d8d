//! `belljar packages list` and `clean`: what the cache holds of packages.

use std::process::ExitCode;
use std::time::Duration;

use belljar_cache::Cache;
use belljar_packages::{cached_wheels, clean_wheels};
use belljar_python::PACKAGE_ENTRIES;
use indicatif::HumanBytes;

use crate::cli::Global;
use crate::console::print_line;
use crate::outcome::fail_with;

pub(super) fn list(global: &Global) -> Result<ExitCode, ExitCode> {
    let cache = open(global)?;
    for wheel in cached_wheels(&cache).map_err(|error| fail_with(&error))? {
        print_line(wheel.filename);
    }
    let entries = cache.usage().map_err(|error| fail_with(&error))?;
    for (kind, what) in [
        ("wheel", "wheels"),
        ("layer", "unpacked wheels with bytecode"),
        ("library", "compiled extension modules"),
        ("image", "images"),
    ] {
        let sizes: Vec<u64> = entries.iter().filter(|entry| entry.kind() == kind).map(|entry| entry.bytes).collect();
        print_line(format_args!("{:>6} {what}, {}", sizes.len(), HumanBytes(sizes.iter().sum())));
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn clean(global: &Global, keep: u64) -> Result<ExitCode, ExitCode> {
    let cache = open(global)?;
    let evicted = cache.evict(PACKAGE_ENTRIES, keep).map_err(|error| fail_with(&error))?;
    if keep == 0 {
        // What the indexes said goes with what came from them.
        clean_wheels(&cache, Duration::ZERO).map_err(|error| fail_with(&error))?;
    }
    if !global.quiet {
        eprintln!("{} entries deleted, {}", evicted.entries, HumanBytes(evicted.bytes));
    }
    Ok(ExitCode::SUCCESS)
}

fn open(global: &Global) -> Result<Cache, ExitCode> {
    Cache::open(global.cache()).map_err(|error| fail_with(&error))
}

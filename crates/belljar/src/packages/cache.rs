//! `belljar packages list` and `clean`: the packages in the cache.

use std::time::Duration;

use belljar_cache::Cache;
use belljar_packages::{cached_wheels, clean_wheels};
use belljar_python::PACKAGE_ENTRIES;
use indicatif::HumanBytes;

use crate::command_error::CommandError;
use crate::console::print_line;
use crate::global_options::GlobalOptions;

pub(super) fn list(global: &GlobalOptions) -> Result<(), CommandError> {
    let cache = open(global)?;
    for wheel in cached_wheels(&cache)? {
        print_line(wheel.filename);
    }
    let entries = cache.usage()?;
    for (kind, what) in [
        ("wheel", "wheels"),
        ("layer", "unpacked wheels with bytecode"),
        ("library", "compiled extension modules"),
        ("image", "images"),
    ] {
        let sizes: Vec<u64> = entries.iter().filter(|entry| entry.kind() == kind).map(|entry| entry.bytes).collect();
        print_line(format_args!("{:>6} {what}, {}", sizes.len(), HumanBytes(sizes.iter().sum())));
    }
    Ok(())
}

pub(super) fn clean(global: &GlobalOptions, keep: u64) -> Result<(), CommandError> {
    let cache = open(global)?;
    let evicted = cache.evict(PACKAGE_ENTRIES, keep)?;
    if keep == 0 {
        // The cached index pages are deleted together with the wheels.
        clean_wheels(&cache, Duration::ZERO)?;
    }
    if !global.quiet {
        eprintln!("{} entries deleted, {}", evicted.entries, HumanBytes(evicted.bytes));
    }
    Ok(())
}

fn open(global: &GlobalOptions) -> Result<Cache, CommandError> {
    Ok(Cache::open(global.cache())?)
}

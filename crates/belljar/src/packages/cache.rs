//! `belljar packages list`: the packages in the cache.

use belljar_cache::Cache;
use belljar_packages::cached_wheels;
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
        ("layer", "unpacked wheels"),
        ("bytecode", "parts of their bytecode"),
        ("library", "compiled extension modules"),
        ("image", "images"),
    ] {
        let sizes: Vec<u64> = entries.iter().filter(|entry| entry.kind() == kind).map(|entry| entry.bytes).collect();
        print_line(format_args!("{:>6} {what}, {}", sizes.len(), HumanBytes(sizes.iter().sum())));
    }
    Ok(())
}

fn open(global: &GlobalOptions) -> Result<Cache, CommandError> {
    Ok(Cache::open(global.cache())?)
}

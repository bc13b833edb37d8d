//! `belljar packages list` and `clean`: what the cache holds of packages.

use std::io::ErrorKind;
use std::process::ExitCode;

use belljar_cache::{Cache, EntryUsage};
use belljar_python::PACKAGE_ENTRIES;
use indicatif::HumanBytes;

use crate::cli::Global;
use crate::outcome::{fail, fail_with};

/// Directories beside the entries: a page of Pyodide's wheels, resolutions that were made before, and uv's own cache.
const DIRECTORIES: [&str; 3] = ["pyodide", "resolutions", "uv"];

#[expect(clippy::print_stdout, reason = "the list is the command's answer")]
pub(super) fn list(global: &Global) -> Result<ExitCode, ExitCode> {
    let cache = open(global)?;
    let entries = entries(&cache)?;
    let archives = entries.iter().filter(|entry| entry.kind() == "wheel");
    let mut names: Vec<&str> = archives.flat_map(|entry| entry.files.iter().map(String::as_str)).collect();
    names.sort_unstable();
    for name in names {
        println!("{name}");
    }
    for (kind, what) in [
        ("wheel", "wheels"),
        ("layer", "unpacked wheels with bytecode"),
        ("library", "compiled extension modules"),
        ("image", "images"),
    ] {
        let of_kind: Vec<_> = entries.iter().filter(|entry| entry.kind() == kind).collect();
        let bytes = of_kind.iter().map(|entry| entry.bytes).sum();
        println!("{:>6} {what}, {}", of_kind.len(), HumanBytes(bytes));
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn clean(global: &Global, keep: u64) -> Result<ExitCode, ExitCode> {
    let cache = open(global)?;
    let evicted = cache.evict(PACKAGE_ENTRIES, keep).map_err(|error| fail_with(&error))?;
    if keep == 0 {
        for name in DIRECTORIES {
            let path = cache.root().join(name);
            match std::fs::remove_dir_all(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(fail(&format!("cannot delete {}: {error}", path.display())));
                }
                _ => {}
            }
        }
    }
    if !global.quiet {
        eprintln!("{} entries deleted, {}", evicted.entries, HumanBytes(evicted.bytes));
    }
    Ok(ExitCode::SUCCESS)
}

fn open(global: &Global) -> Result<Cache, ExitCode> {
    Cache::open(global.options().cache).map_err(|error| fail_with(&error))
}

fn entries(cache: &Cache) -> Result<Vec<EntryUsage>, ExitCode> {
    let mut entries = cache.usage().map_err(|error| fail_with(&error))?;
    entries.retain(|entry| PACKAGE_ENTRIES.contains(&entry.kind()));
    Ok(entries)
}

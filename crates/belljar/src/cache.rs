//! `belljar cache`: the size of the cache and its parts, their bound, and their deletion.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use belljar_cache::{Cache, EntryUsage};
use belljar_core::parse_size;
use belljar_core::progress::ProgressStep;
use belljar_packages::clean_wheels;
use belljar_python::{PACKAGE_ENTRIES, optimize_libraries, optimize_libraries_in_background};
use clap::{Args, Subcommand};
use indicatif::{HumanBytes, HumanDuration};
use serde::Serialize;

use crate::command_error::CommandError;
use crate::console::print_line;
use crate::global_options::GlobalOptions;
use crate::outcome::fail;
use crate::progress;

/// The kinds of entries, with their contents. Those of [`PACKAGE_ENTRIES`] are bounded.
const KINDS: [(&str, &str); 10] = [
    ("runtime", "Pyodide's files"),
    ("program", "native code of CPython"),
    ("stdlib", "the standard library"),
    ("base", "the image of a started Python"),
    ("session", "the image of sessions"),
    ("wheel", "packages as fetched"),
    ("layer", "unpacked packages"),
    ("bytecode", "bytecode of packages"),
    ("library", "native code of packages"),
    ("image", "images with imported packages"),
];

/// The options of `belljar cache`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct CacheArguments {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    command: Option<CacheCommand>,
}

/// A subcommand of `belljar cache`.
#[derive(Debug, Subcommand)]
enum CacheCommand {
    /// Compile packages with full optimization that were compiled quickly for their first use.
    ///
    /// Commands that use such packages leave a process with the lowest priority that does so after they have ended,
    /// unless --no-background is given.
    Optimize {
        /// Use one processor, with the lowest priority, and end at once if another process is optimizing the cache.
        #[arg(long)]
        background: bool,
    },
    /// Delete packages, their images, and what is known about package indexes. They are fetched again when needed.
    Clean {
        /// Keep the most recently used packages and images, up to this size.
        #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "0")]
        keep: u64,
        /// Delete Python, too. Saved sessions cannot be restored afterwards; the next command builds the rest again.
        #[arg(long, conflicts_with = "keep")]
        all: bool,
    },
}

/// Runs `belljar cache`.
pub(crate) fn cache(global: &GlobalOptions, arguments: &CacheArguments) -> ExitCode {
    let result = match &arguments.command {
        None => show(global, arguments.json),
        Some(CacheCommand::Optimize { background }) => optimize(global, *background),
        Some(CacheCommand::Clean { keep, all }) => clean(global, *keep, *all),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(error),
    }
}

/// The cache, as printed by `--json`. Sizes are in bytes.
#[derive(Serialize)]
struct Report {
    directory: String,
    size: u64,
    /// The size of the kinds that are bounded together, and the bound.
    packages: u64,
    max_packages: u64,
    kinds: Vec<Kind>,
    /// The size of all other files: what is known about package indexes, resolutions, the history of the prompt.
    other: u64,
}

/// The entries of a kind.
#[derive(Serialize)]
struct Kind {
    name: &'static str,
    contents: &'static str,
    entries: usize,
    size: u64,
    /// The time of the last use, in seconds since 1970, to within ten minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_used: Option<u64>,
    is_bounded: bool,
}

impl Kind {
    fn new(name: &'static str, contents: &'static str, entries: &[EntryUsage]) -> Self {
        let of_kind = || entries.iter().filter(|entry| entry.kind() == name);
        let last_used = of_kind().map(|entry| entry.last_used).max();
        Self {
            name,
            contents,
            entries: of_kind().count(),
            size: of_kind().map(|entry| entry.bytes).sum(),
            last_used: last_used.and_then(|time| Some(time.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs())),
            is_bounded: PACKAGE_ENTRIES.contains(&name),
        }
    }
}

fn show(global: &GlobalOptions, json: bool) -> Result<(), CommandError> {
    let progress = progress::reporter(global.quiet);
    let cache = Cache::open(global.cache())?;
    let step = progress.start(ProgressStep::indeterminate("measuring the cache"));
    let (entries, size) = (cache.usage()?, size_of(cache.root()));
    step.finish();
    let kinds = KINDS.map(|(name, contents)| Kind::new(name, contents, &entries));
    let in_entries: u64 = entries.iter().map(|entry| entry.bytes).sum();
    let report = Report {
        directory: cache.root().display().to_string(),
        size,
        packages: kinds.iter().filter(|kind| kind.is_bounded).map(|kind| kind.size).sum(),
        max_packages: global.cache_limits().cache_bytes,
        kinds: kinds.into_iter().filter(|kind| kind.entries > 0).collect(),
        other: size.saturating_sub(in_entries),
    };
    if json {
        let text = serde_json::to_string(&report).map_err(|error| format!("failed to write JSON: {error}"))?;
        print_line(text);
        return Ok(());
    }
    print_line(format_args!("{}  {}", report.directory, HumanBytes(report.size)));
    if report.size == 0 {
        return Ok(());
    }
    print_line("");
    print_line(format_args!("{:<9}{:>11}{:>9}  {:<16}CONTENTS", "KIND", "SIZE", "ENTRIES", "LAST USED"));
    for kind in &report.kinds {
        let Kind { name, contents, entries, size, last_used, .. } = kind;
        let (size, age) = (HumanBytes(*size).to_string(), last_used.map_or_else(String::new, age));
        print_line(format_args!("{name:<9}{size:>11}{entries:>9}  {age:<16}{contents}"));
    }
    let other = HumanBytes(report.other).to_string();
    print_line(format_args!("{:<9}{other:>11}{:>9}  {:<16}package indexes, resolutions, history", "other", "", ""));
    print_line(format_args!(
        "\n{} are packages and their images ({}), of at most {}.\nBeyond that, the least recently used are deleted: \
         --cache-size, BELLJAR_CACHE_SIZE. `belljar cache clean` deletes them now.",
        HumanBytes(report.packages),
        PACKAGE_ENTRIES.join(", "),
        HumanBytes(report.max_packages),
    ));
    Ok(())
}

/// Returns the time since a moment, given in seconds since 1970: `2 hours ago`. Last uses are known to ten minutes.
fn age(seconds: u64) -> String {
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    match then.elapsed() {
        Ok(age) if age >= Duration::from_secs(600) => format!("{} ago", HumanDuration(age)),
        _ => "just now".to_owned(),
    }
}

/// Returns the size of the files below a directory. Files that cannot be read have no size.
fn size_of(directory: &Path) -> u64 {
    let Ok(listing) = directory.read_dir() else { return 0 };
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => size_of(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    };
    listing.flatten().map(size).sum()
}

/// Compiles the libraries of packages that were compiled quickly with full optimization.
fn optimize(global: &GlobalOptions, background: bool) -> Result<(), CommandError> {
    let progress = progress::reporter(global.quiet);
    let cache = Cache::open(global.cache())?;
    let compile = if background { optimize_libraries_in_background } else { optimize_libraries };
    let count = compile(&cache, &*progress).map_err(|error| CommandError::from_error(&error))?;
    if !global.quiet && !background {
        eprintln!("extension modules compiled: {count}");
    }
    Ok(())
}

/// Deletes packages and images until the remaining ones have at most `keep` bytes, or with `all` everything.
pub(crate) fn clean(global: &GlobalOptions, keep: u64, all: bool) -> Result<(), CommandError> {
    let progress = progress::reporter(global.quiet);
    let cache = Cache::open(global.cache())?;
    let step = progress.start(ProgressStep::indeterminate("deleting from the cache"));
    let before = size_of(cache.root());
    let kinds = if all { KINDS.map(|(kind, _)| kind).to_vec() } else { PACKAGE_ENTRIES.to_vec() };
    let evicted = cache.evict(&kinds, keep)?;
    if keep == 0 {
        // The cached index pages and resolutions are deleted together with the wheels.
        clean_wheels(&cache, Duration::ZERO)?;
    }
    let freed = before.saturating_sub(size_of(cache.root()));
    step.finish();
    if !global.quiet {
        eprintln!("{} entries deleted, {}", evicted.entries, HumanBytes(freed));
    }
    Ok(())
}

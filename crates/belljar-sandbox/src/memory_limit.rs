//! The memory of all processes of a sandbox together.
//!
//! A resource limit of the kernel applies to one process, and a limit on a control group needs a delegated group. So
//! the sandbox's first process measures the memory: first the sum of each process's private and shared pages, which is
//! cheap and counts shared pages several times; only if that exceeds the limit, the exact sum of proportional shares
//! (`Pss_Anon`, `Pss_Shmem`).

use std::fs;
use std::path::Path;

/// The summed fields of `/proc/PID/status`.
const STATUS_FIELDS: [&str; 2] = ["RssAnon:", "RssShmem:"];

/// The summed fields of `/proc/PID/smaps_rollup`.
const SMAPS_FIELDS: [&str; 2] = ["Pss_Anon:", "Pss_Shmem:"];

/// Returns whether the processes in `proc`, a mount of procfs, use more than `limit` bytes.
pub(crate) fn is_exceeded(proc: &Path, limit: u64) -> bool {
    let Ok(entries) = fs::read_dir(proc) else { return false };
    let processes: Vec<_> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.file_name().is_some_and(|name| name.as_encoded_bytes().iter().all(u8::is_ascii_digit)))
        .collect();
    let resident = |process: &Path| sum_fields(&process.join("status"), STATUS_FIELDS).unwrap_or(0);
    let proportional =
        |process: &Path| sum_fields(&process.join("smaps_rollup"), SMAPS_FIELDS).unwrap_or_else(|| resident(process));
    processes.iter().map(|process| resident(process)).sum::<u64>() > limit
        && processes.iter().map(|process| proportional(process)).sum::<u64>() > limit
}

/// Returns the sum, in bytes, of the `fields` of a file with lines of the form `Name:  123 kB`; `None` if the file
/// cannot be read.
fn sum_fields(file: &Path, fields: [&str; 2]) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let kibibytes = |line: &str| line.split_whitespace().next()?.parse::<u64>().ok();
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).and_then(kibibytes).unwrap_or(0);
    Some(fields.into_iter().map(field).sum::<u64>() << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_pages_of_two_processes_count_once() {
        let folder = tempfile::tempdir().unwrap();
        for process in ["7", "8"] {
            let path = folder.path().join(process);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("status"), "Name:\tx\nRssAnon:\t  600 kB\nRssFile:\t 900 kB\nRssShmem:\t 0 kB\n")
                .unwrap();
            fs::write(path.join("smaps_rollup"), "Rss: 1500 kB\nPss_Anon:  300 kB\nPss_Shmem:  0 kB\n").unwrap();
        }
        fs::create_dir(folder.path().join("self")).unwrap();
        assert!(!is_exceeded(folder.path(), 1000 << 10));
        assert!(is_exceeded(folder.path(), 500 << 10));
    }

    #[test]
    fn unreadable_smaps_counts_all_resident_pages() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("7")).unwrap();
        fs::write(folder.path().join("7/status"), "RssAnon:\t  600 kB\nRssShmem:\t 600 kB\n").unwrap();
        assert!(is_exceeded(folder.path(), 1000 << 10));
    }
}

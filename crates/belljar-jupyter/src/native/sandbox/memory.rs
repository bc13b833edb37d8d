//! How much memory all processes of a sandbox take together.
//!
//! A limit of the kernel's counts one process, or needs a control group that somebody delegated. So the sandbox's first
//! process counts. First roughly, which is cheap: each process's pages of its own and shared ones, so that what two
//! processes share counts twice. Only when that is too much, exactly, by shares (`Pss_Anon`, `Pss_Shmem`).

use std::fs;
use std::path::Path;

/// Of `/proc/PID/status`, and of `/proc/PID/smaps_rollup`.
const LINES: [&str; 2] = ["RssAnon:", "RssShmem:"];
const SHARES: [&str; 2] = ["Pss_Anon:", "Pss_Shmem:"];

/// Whether the processes below `proc` take more than `most` bytes.
pub(super) fn exceeds(proc: &Path, most: u64) -> bool {
    let Ok(entries) = fs::read_dir(proc) else { return false };
    let processes: Vec<_> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.file_name().is_some_and(|name| name.as_encoded_bytes().iter().all(u8::is_ascii_digit)))
        .collect();
    let roughly = |process: &Path| sum(&process.join("status"), LINES).unwrap_or(0);
    let exactly = |process: &Path| sum(&process.join("smaps_rollup"), SHARES).unwrap_or_else(|| roughly(process));
    processes.iter().map(|process| roughly(process)).sum::<u64>() > most
        && processes.iter().map(|process| exactly(process)).sum::<u64>() > most
}

/// The sum, in bytes, of the `lines` of a file of the form `Name:  123 kB`; `None` if it cannot be read.
fn sum(file: &Path, lines: [&str; 2]) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let kibibytes = |line: &str| line.split_whitespace().next()?.parse::<u64>().ok();
    let of = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).and_then(kibibytes).unwrap_or(0);
    Some(lines.into_iter().map(of).sum::<u64>() << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_processes_share_counts_once_in_the_end() {
        let folder = tempfile::tempdir().unwrap();
        for process in ["7", "8"] {
            let path = folder.path().join(process);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("status"), "Name:\tx\nRssAnon:\t  600 kB\nRssFile:\t 900 kB\nRssShmem:\t 0 kB\n")
                .unwrap();
            fs::write(path.join("smaps_rollup"), "Rss: 1500 kB\nPss_Anon:  300 kB\nPss_Shmem:  0 kB\n").unwrap();
        }
        fs::create_dir(folder.path().join("self")).unwrap();
        assert!(!exceeds(folder.path(), 1000 << 10));
        assert!(exceeds(folder.path(), 500 << 10));
    }

    #[test]
    fn a_process_that_hides_its_shares_counts_whole() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("7")).unwrap();
        fs::write(folder.path().join("7/status"), "RssAnon:\t  600 kB\nRssShmem:\t 600 kB\n").unwrap();
        assert!(exceeds(folder.path(), 1000 << 10));
    }
}

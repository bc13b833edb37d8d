//! The memory of all processes of a sandbox together, and that of one process.
//!
//! A resource limit of the kernel applies to one process, and a limit on a control group needs a delegated group. So
//! the sandbox's first process measures the memory: first an upper bound, which is cheap and counts shared pages
//! several times and pipes and sockets as full; only if that exceeds the limit, the sum of what they hold. Counted are
//!
//! - the private and shared pages of processes, and their page tables (`/proc/PID/status`, `smaps_rollup`);
//! - pipes, each as full: their contents belong to no process;
//! - the buffers of sockets ([`crate::socket_memory`]).

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::socket_memory::SocketMeter;

/// The summed fields of `/proc/PID/status` that are resident pages.
const PAGE_FIELDS: [&str; 2] = ["RssAnon:", "RssShmem:"];
/// The field of `/proc/PID/status` with the size of the page tables. Mapping pages takes memory even if all of them are
/// the page of zeros.
const TABLES_FIELD: [&str; 1] = ["VmPTE:"];
/// The field of `/proc/PID/status` with the size of the pages that were swapped out.
const SWAPPED_FIELD: [&str; 1] = ["VmSwap:"];
/// The summed fields of `/proc/PID/smaps_rollup`.
const SHARE_FIELDS: [&str; 2] = ["Pss_Anon:", "Pss_Shmem:"];
/// The number of pages of a pipe at most, since the code cannot enlarge pipes (`seccomp.rs`).
const PIPE_PAGES: u64 = 16;

/// Returns whether the processes in `proc`, a mount of procfs, use more than `limit` bytes.
pub(crate) fn is_exceeded(proc: &Path, sockets: &SocketMeter, limit: u64) -> bool {
    let Ok(entries) = fs::read_dir(proc) else { return false };
    let processes: Vec<_> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.file_name().is_some_and(|name| name.as_encoded_bytes().iter().all(u8::is_ascii_digit)))
        .filter_map(ProcessMemory::read)
        .collect();
    let upper_bound = processes.iter().map(ProcessMemory::max_bytes).sum::<u64>();
    if upper_bound.saturating_add(sockets.max_bytes(proc)) <= limit {
        return false;
    }
    let mut pipes = HashSet::new();
    let of_processes = processes.iter().map(|process| process.bytes(&mut pipes)).sum::<u64>();
    of_processes.saturating_add(pipes.len() as u64 * pipe_bytes()).saturating_add(sockets.bytes(proc)) > limit
}

/// Returns the memory of one process, in bytes: its pages that belong to no file, resident or swapped out, and its page
/// tables. `folder` is that of the process in procfs. Returns `None` if the process has ended, or is hidden.
pub(crate) fn process_bytes(folder: &Path) -> Option<u64> {
    let status = fs::read_to_string(folder.join("status")).ok()?;
    Some(sum_fields(&status, &PAGE_FIELDS) + sum_fields(&status, &TABLES_FIELD) + sum_fields(&status, &SWAPPED_FIELD))
}

fn pipe_bytes() -> u64 {
    PIPE_PAGES * procfs::page_size()
}

/// The memory of a process, in bytes, according to its `status`.
struct ProcessMemory {
    /// Its folder in procfs.
    folder: PathBuf,
    resident: u64,
    tables: u64,
    /// The number of descriptors at most.
    descriptors: u64,
}

impl ProcessMemory {
    /// Reads the status of a process. Returns `None` if the process has ended.
    fn read(folder: PathBuf) -> Option<Self> {
        let status = fs::read_to_string(folder.join("status")).ok()?;
        let descriptors = field(&status, "FDSize:");
        let (resident, tables) = (sum_fields(&status, &PAGE_FIELDS), sum_fields(&status, &TABLES_FIELD));
        Some(Self { folder, resident, tables, descriptors })
    }

    /// Returns the memory of the process if it shares nothing and all its descriptors are full pipes.
    fn max_bytes(&self) -> u64 {
        self.resident + self.tables + self.descriptors * pipe_bytes()
    }

    /// Returns the memory of the process by its share of shared pages, and adds its pipes to `pipes`. If the process
    /// hides its pages or descriptors, they count as in [`Self::max_bytes`].
    fn bytes(&self, pipes: &mut HashSet<(u64, u64)>) -> u64 {
        let shares = fs::read_to_string(self.folder.join("smaps_rollup"));
        let pages = shares.map_or(self.resident, |shares| sum_fields(&shares, &SHARE_FIELDS));
        let Ok(descriptors) = fs::read_dir(self.folder.join("fd")) else {
            return pages + self.tables + self.descriptors * pipe_bytes();
        };
        // Follows the link, without opening the pipe.
        let files = descriptors.flatten().filter_map(|descriptor| fs::metadata(descriptor.path()).ok());
        let fifos = files.filter(|file| file.file_type().is_fifo());
        pipes.extend(fifos.map(|pipe| (pipe.dev(), pipe.ino())));
        pages + self.tables
    }
}

/// Returns the sum, in bytes, of fields of the form `Name:  123 kB`.
fn sum_fields(text: &str, fields: &[&str]) -> u64 {
    fields.iter().map(|name| field(text, name)).sum::<u64>() << 10
}

/// Returns the number in the line that begins with `name`; 0 without such a line.
fn field(text: &str, name: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    value.and_then(|value| value.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a folder like procfs, without sockets.
    fn proc(processes: &[(&str, &str, Option<&str>)]) -> tempfile::TempDir {
        let proc = tempfile::tempdir().unwrap();
        for (process, status, smaps) in processes {
            let path = proc.path().join(process);
            fs::create_dir_all(path.join("fd")).unwrap();
            fs::write(path.join("status"), status).unwrap();
            if let Some(smaps) = smaps {
                fs::write(path.join("smaps_rollup"), smaps).unwrap();
            }
        }
        fs::create_dir(proc.path().join("self")).unwrap();
        proc
    }

    fn exceeds(proc: &Path, kibibytes: u64) -> bool {
        let sockets = SocketMeter::new().unwrap();
        // The sockets of this process.
        is_exceeded(proc, &sockets, (kibibytes << 10) + sockets.bytes(proc))
    }

    #[test]
    fn shared_pages_of_two_processes_count_once() {
        let status = "Name:\tx\nRssAnon:\t  60000 kB\nRssFile:\t 900 kB\nRssShmem:\t 0 kB\n";
        let smaps = Some("Rss: 1500 kB\nPss_Anon:  30000 kB\nPss_Shmem:  0 kB\n");
        let proc = proc(&[("7", status, smaps), ("8", status, smaps)]);
        assert!(!exceeds(proc.path(), 100_000));
        assert!(exceeds(proc.path(), 50_000));
    }

    #[test]
    fn unreadable_smaps_counts_all_resident_pages() {
        let proc = proc(&[("7", "RssAnon:\t  60000 kB\nRssShmem:\t 60000 kB\n", None)]);
        assert!(exceeds(proc.path(), 100_000));
    }

    #[test]
    fn page_tables_count() {
        let proc = proc(&[("7", "RssAnon:\t  60000 kB\nVmPTE:\t  60000 kB\n", Some("Pss_Anon: 60000 kB\n"))]);
        assert!(exceeds(proc.path(), 100_000));
        assert!(!exceeds(proc.path(), 130_000));
    }

    #[test]
    fn memory_of_one_process_includes_what_was_swapped_out() {
        let status = "RssAnon:\t 1 kB\nRssFile:\t 1000 kB\nRssShmem:\t 10 kB\nVmPTE:\t 100 kB\nVmSwap:\t 5000 kB\n";
        let proc = proc(&[("7", status, None)]);
        assert_eq!(process_bytes(&proc.path().join("7")), Some(5111 << 10));
        assert_eq!(process_bytes(&proc.path().join("8")), None);
    }

    #[test]
    fn pipes_count_once_and_as_full() {
        let status = "FDSize:\t 1024\nRssAnon:\t 5000 kB\n";
        let smaps = Some("Pss_Anon: 5000 kB\n");
        let proc = proc(&[("7", status, smaps), ("8", status, smaps)]);
        let kept: Vec<_> = (0..200).map(|_| std::io::pipe().unwrap()).collect();
        for process in ["7", "8"] {
            for (number, (reader, _)) in kept.iter().enumerate() {
                let descriptor = std::os::fd::AsRawFd::as_raw_fd(reader);
                let link = proc.path().join(process).join("fd").join(number.to_string());
                std::os::unix::fs::symlink(format!("/proc/self/fd/{descriptor}"), link).unwrap();
            }
        }
        let pipes = (200 * pipe_bytes()) >> 10;
        assert!(exceeds(proc.path(), 5_000 + pipes));
        assert!(!exceeds(proc.path(), 15_000 + pipes));
    }
}

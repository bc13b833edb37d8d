//! The kernel's files about memory: pressure stall information (Documentation/accounting/psi.rst), and the control
//! group of the process (Documentation/admin-guide/cgroup-v2.rst).

use std::fs;
use std::path::{Path, PathBuf};

use super::pressure::MemoryReading;

/// The root of control groups, version 2.
const CGROUPS: &str = "/sys/fs/cgroup";
/// The maximum number of control groups above that of the process which are read.
const MAX_ANCESTORS: usize = 32;

/// The files that are read.
#[derive(Debug)]
pub(super) struct MemoryFiles {
    /// The control group of the process and those above it.
    groups: Vec<PathBuf>,
    /// True if the files about the whole machine are read, too.
    machine: bool,
}

impl MemoryFiles {
    /// Returns the files of this process: those of its control groups and of the machine.
    pub(super) fn for_process() -> Self {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let path = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
        let group = Path::new(CGROUPS).join(path);
        let groups = group.ancestors().take_while(|group| group.starts_with(CGROUPS)).take(MAX_ANCESTORS);
        Self { groups: groups.map(Path::to_owned).collect(), machine: true }
    }

    /// Returns the files of one control group.
    pub(super) fn in_directory(directory: PathBuf) -> Self {
        Self { groups: vec![directory], machine: false }
    }

    /// Reads the files. The highest of several values counts.
    pub(super) fn read(&self) -> MemoryReading {
        let (mut stalls, mut uses) = (Vec::new(), Vec::new());
        for group in &self.groups {
            let text = |name: &str| fs::read_to_string(group.join(name)).ok();
            stalls.extend(text("memory.pressure").as_deref().and_then(parse_stall));
            uses.extend(text("memory.max").and_then(|max| {
                let stat = text("memory.stat").unwrap_or_default();
                used_of_group(&text("memory.current")?, &max, &stat)
            }));
        }
        if self.machine {
            stalls.extend(fs::read_to_string("/proc/pressure/memory").ok().as_deref().and_then(parse_stall));
            uses.extend(fs::read_to_string("/proc/meminfo").ok().as_deref().and_then(used_of_machine));
        }
        let highest = |values: Vec<f64>| values.into_iter().reduce(f64::max);
        MemoryReading { stall: highest(stalls), used: highest(uses) }
    }
}

/// Returns the percentage of the last ten seconds in which all tasks waited.
fn parse_stall(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("full "))?;
    let value = line.split(' ').find_map(|field| field.strip_prefix("avg10="))?;
    value.parse().ok().filter(|value: &f64| value.is_finite())
}

/// Returns the percentage of a control group's memory in use, if it has a limit. Inactive files are not in use: the
/// kernel drops them when memory is needed.
fn used_of_group(current: &str, max: &str, stat: &str) -> Option<f64> {
    let max: u64 = max.trim().parse().ok().filter(|max| *max > 0)?;
    let current: u64 = current.trim().parse().ok()?;
    let inactive = stat.lines().find_map(|line| line.strip_prefix("inactive_file ")?.trim().parse::<u64>().ok());
    Some(current.saturating_sub(inactive.unwrap_or(0)) as f64 * 100.0 / max as f64)
}

/// Returns the percentage of the machine's memory that is not available.
fn used_of_machine(text: &str) -> Option<f64> {
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    };
    let (total, available) = (field("MemTotal:")?, field("MemAvailable:")?);
    (total > 0).then(|| total.saturating_sub(available) as f64 * 100.0 / total as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_the_kernels_files_are_read() {
        let pressure =
            "some avg10=3.10 avg60=1.00 avg300=0.20 total=51\nfull avg10=12.50 avg60=0.9 avg300=0 total=40\n";
        assert_eq!(parse_stall(pressure), Some(12.5));
        assert_eq!(parse_stall("some avg10=3.10"), None);
        assert_eq!(used_of_group("800\n", "1000\n", "anon 300\ninactive_file 300\n"), Some(50.0));
        assert_eq!(used_of_group("800\n", "max\n", ""), None);
        assert_eq!(used_of_group("", "0\n", ""), None);
        let machine = "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    250 kB\n";
        assert_eq!(used_of_machine(machine), Some(75.0));
        assert_eq!(used_of_machine("MemTotal: x"), None);
    }

    #[test]
    fn highest_value_of_a_directory_counts() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        write("memory.pressure", "some avg10=9.00 total=1\nfull avg10=4.00 total=1\n");
        write("memory.max", "1000");
        write("memory.current", "900");
        let reading = MemoryFiles::in_directory(directory.path().to_owned()).read();
        assert_eq!(reading, MemoryReading { stall: Some(4.0), used: Some(90.0) });
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn memory_of_this_machine_is_read() {
        let used = MemoryFiles::for_process().read().used.unwrap();
        assert!((0.0..=100.0).contains(&used), "{used}");
    }
}

//! A control group (version 2) around one sandbox, where somebody delegated a folder of them: memory, processes and
//! processors counted by the kernel, exactly and together.
//!
//! The host makes the group and puts the launcher into it before that is told what to do, so that all that it starts is
//! in there. A process that enters puts itself in, by a descriptor that the host opened.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::spec::{Limits, Source};
use super::{Error, Spec};

/// How often, and how long apart, a group is removed in which the last process may not have been buried yet.
const REMOVALS: u32 = 20;
const BETWEEN_REMOVALS: Duration = Duration::from_millis(5);

/// Processes of ours in every sandbox: the launcher, the first process, and one that enters.
const OWN_PROCESSES: u64 = 3;

/// Microseconds over which processor time is shared out.
const PERIOD: u64 = 100_000;

/// Controllers that are asked for.
const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];

/// The folder of control groups that was delegated to this process, if any: the one above its own, as systemd has it
/// with `Delegate=yes` and `DelegateSubgroup=`. It must be writable and offer memory or processes.
#[must_use]
pub fn delegated_control_groups() -> Option<PathBuf> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    // Who is in the root of all groups was given none.
    let above = Path::new(own).parent()?;
    let folder = mounted_at()?.join(above);
    let offered = fs::read_to_string(folder.join("cgroup.controllers")).ok()?;
    let useful = offered.split_whitespace().any(|name| CONTROLLERS[..2].contains(&name));
    let writable = OpenOptions::new().write(true).open(folder.join("cgroup.subtree_control")).is_ok()
        && OpenOptions::new().write(true).open(folder.join("cgroup.procs")).is_ok();
    (useful && writable).then_some(folder)
}

/// Where control groups of version 2 are mounted.
#[must_use]
pub fn mounted_at() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let of_version_2 = |line: &&str| line.split_once(" - ").is_some_and(|(_, kind)| kind.starts_with("cgroup2 "));
    mounts.lines().find(of_version_2)?.split_whitespace().nth(4).map(PathBuf::from)
}

/// The group of one sandbox. It is removed when this is dropped, by when its processes must be dead.
#[derive(Debug)]
pub(super) struct ControlGroup {
    folder: PathBuf,
}

impl ControlGroup {
    /// Makes a group for `spec` below `parent`, and puts `process` into it.
    ///
    /// Limits whose controller `parent` does not offer are not set: whoever delegates chooses.
    pub(super) fn make(parent: &Path, spec: &Spec, process: u32) -> Result<Self, Error> {
        for controller in CONTROLLERS {
            // Refused if it is not offered, and needless if it is there already.
            let _ = write(&parent.join("cgroup.subtree_control"), &format!("+{controller}"));
        }
        let folder = parent.join(format!("belljar-{process}"));
        fs::create_dir(&folder).map_err(Error::doing("making a control group"))?;
        let group = Self { folder };
        for (name, value) in settings(spec) {
            let path = group.folder.join(name);
            if path.exists() {
                write(&path, &value).map_err(Error::doing("limiting a control group"))?;
            }
        }
        let joined = write(&group.folder.join("cgroup.procs"), &process.to_string());
        joined.map_err(Error::doing("putting the launcher into its control group"))?;
        Ok(group)
    }

    /// A descriptor to which a process writes `0` to be in this group.
    pub(super) fn entrance(&self) -> io::Result<File> {
        OpenOptions::new().write(true).open(self.folder.join("cgroup.procs"))
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // Whatever is left in there, in spite of all.
        let _ = write(&self.folder.join("cgroup.kill"), "1");
        for _ in 0..REMOVALS {
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(BETWEEN_REMOVALS);
        }
        tracing::warn!(folder = %self.folder.display(), "a control group could not be removed");
    }
}

fn write(path: &Path, value: &str) -> io::Result<()> {
    io::Write::write_all(&mut OpenOptions::new().write(true).open(path)?, value.as_bytes())
}

/// Files of a group, and what is written to them.
fn settings(spec: &Spec) -> Vec<(&'static str, String)> {
    let Limits { memory_bytes, processes, processors, tmp_bytes, shared_bytes, .. } = spec.limits;
    let folders = spec.folders.iter().map(|folder| match folder.source {
        Source::Memory { bytes, .. } => bytes,
        Source::Host(_) => 0,
    });
    let in_files = folders.fold(tmp_bytes.saturating_add(shared_bytes), u64::saturating_add);
    let mut all = vec![
        ("pids.max", (processes.saturating_add(OWN_PROCESSES)).to_string()),
        // What is killed is killed together.
        ("memory.oom.group", "1".to_owned()),
        ("memory.swap.max", "0".to_owned()),
    ];
    // Files in memory have bounds of their own, and count here too.
    all.extend(memory_bytes.map(|bytes| ("memory.max", bytes.saturating_add(in_files).to_string())));
    all.extend(processors.map(|count| ("cpu.max", format!("{} {PERIOD}", u64::from(count).saturating_mul(PERIOD)))));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::sandbox::Folder;

    #[test]
    fn files_in_memory_have_room_beside_the_processes() {
        let mut spec = Spec::waiting();
        spec.limits = Limits { memory_bytes: Some(100), tmp_bytes: 20, shared_bytes: 3, ..Limits::default() };
        spec.folders.push(Folder { inside: "/home".into(), source: Source::Memory { bytes: 4000, files: 1 } });
        assert!(settings(&spec).contains(&("memory.max", "4123".to_owned())));
    }

    #[test]
    fn processors_are_shared_out_by_time() {
        let mut spec = Spec::waiting();
        spec.limits.processors = Some(2);
        assert!(settings(&spec).contains(&("cpu.max", "200000 100000".to_owned())));
    }
}

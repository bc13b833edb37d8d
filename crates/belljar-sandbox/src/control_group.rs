//! The control group (cgroup v2) of a sandbox, on a machine where a cgroup directory was delegated to this process: the
//! kernel limits the memory, the processes and the CPU time of the whole sandbox exactly.
//!
//! The host creates the group and moves the launcher into it before it sends the launcher its task, so that all
//! processes of the sandbox start in the group. A process that enters joins the group by a descriptor that the host
//! opened.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use procfs::process::Process;

use crate::error::Error;
use crate::spec::{FolderSource, ResourceLimits, Spec};

/// The number of attempts to remove a group whose last process may not have been reaped yet.
const MAX_REMOVAL_ATTEMPTS: u32 = 20;

/// The time between two attempts.
const REMOVAL_RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// Processes of every sandbox in addition to the code's: the launcher, the first process, and the parent of a process
/// that enters.
const OWN_PROCESSES: u64 = 3;

/// The period of `cpu.max`, in microseconds.
const CPU_PERIOD: u64 = 100_000;

/// The controllers that a group uses.
const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];

/// Returns the cgroup directory that was delegated to this process, if any: the parent of its own group, as systemd
/// sets it up with `Delegate=yes` and `DelegateSubgroup=`. It must be writable and have the memory or the pids
/// controller.
#[must_use]
pub fn delegated_control_groups() -> Option<PathBuf> {
    let groups = Process::myself().and_then(|process| process.cgroups()).ok()?;
    // The hierarchy of version 2 has the number 0.
    let own = groups.into_iter().find(|group| group.hierarchy == 0)?;
    // A process in the root group has no parent group.
    let parent = Path::new(own.pathname.strip_prefix('/')?).parent()?;
    let folder = cgroup2_mount_point()?.join(parent);
    let offered = fs::read_to_string(folder.join("cgroup.controllers")).ok()?;
    let useful = offered.split_whitespace().any(|name| CONTROLLERS[..2].contains(&name));
    let writable = OpenOptions::new().write(true).open(folder.join("cgroup.subtree_control")).is_ok()
        && OpenOptions::new().write(true).open(folder.join("cgroup.procs")).is_ok();
    (useful && writable).then_some(folder)
}

/// Returns the mount point of the cgroup v2 file system.
#[must_use]
pub fn cgroup2_mount_point() -> Option<PathBuf> {
    let mounts = Process::myself().and_then(|process| process.mountinfo()).ok()?;
    mounts.into_iter().find(|mount| mount.fs_type == "cgroup2").map(|mount| mount.mount_point)
}

/// The control group of one sandbox. Dropping it removes the group; its processes must have ended by then.
#[derive(Debug)]
pub(crate) struct ControlGroup {
    folder: PathBuf,
}

impl ControlGroup {
    /// Creates a group for `spec` below `parent`, and moves `process` into it.
    ///
    /// Limits whose controller `parent` does not have are not set: the delegating system chooses the controllers.
    pub(crate) fn new(parent: &Path, spec: &Spec, process: u32) -> Result<Self, Error> {
        for controller in CONTROLLERS {
            // Fails if the parent does not have the controller; has no effect if it is enabled already.
            let _ = write(&parent.join("cgroup.subtree_control"), &format!("+{controller}"));
        }
        let folder = parent.join(format!("belljar-{process}"));
        fs::create_dir(&folder).map_err(Error::failed_to("create a control group"))?;
        let group = Self { folder };
        for (name, value) in settings(spec) {
            let path = group.folder.join(name);
            if path.exists() {
                write(&path, &value).map_err(Error::failed_to("set a limit of a control group"))?;
            }
        }
        let joined = write(&group.folder.join("cgroup.procs"), &process.to_string());
        joined.map_err(Error::failed_to("move the launcher into its control group"))?;
        Ok(group)
    }

    /// Opens `cgroup.procs`, to which a process writes `0` to join the group.
    pub(crate) fn open_procs(&self) -> io::Result<File> {
        OpenOptions::new().write(true).open(self.folder.join("cgroup.procs"))
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // Kills processes that are left, although all should have ended.
        let _ = write(&self.folder.join("cgroup.kill"), "1");
        for _ in 0..MAX_REMOVAL_ATTEMPTS {
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(REMOVAL_RETRY_INTERVAL);
        }
        tracing::warn!(folder = %self.folder.display(), "failed to remove a control group");
    }
}

fn write(path: &Path, value: &str) -> io::Result<()> {
    io::Write::write_all(&mut OpenOptions::new().write(true).open(path)?, value.as_bytes())
}

/// Returns the files of a group and the values to write to them.
fn settings(spec: &Spec) -> Vec<(&'static str, String)> {
    let ResourceLimits { memory_bytes, processes, processors, tmp_bytes, shared_bytes, .. } = spec.limits;
    let folders = spec.folders.iter().map(|folder| match folder.source {
        FolderSource::Memory { bytes, .. } => bytes,
        FolderSource::Host(_) | FolderSource::HostReadOnly(_) => 0,
    });
    let in_files = folders.fold(tmp_bytes.saturating_add(shared_bytes), u64::saturating_add);
    let mut all = vec![
        ("pids.max", (processes.saturating_add(OWN_PROCESSES)).to_string()),
        // The OOM killer kills all processes of the group together.
        ("memory.oom.group", "1".to_owned()),
        ("memory.swap.max", "0".to_owned()),
    ];
    // Files in memory have limits of their own, and also count as memory of the group.
    all.extend(memory_bytes.map(|bytes| ("memory.max", bytes.saturating_add(in_files).to_string())));
    all.extend(
        processors.map(|count| ("cpu.max", format!("{} {CPU_PERIOD}", u64::from(count).saturating_mul(CPU_PERIOD)))),
    );
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Folder;

    #[test]
    fn memory_limit_of_a_group_includes_files() {
        let mut spec = Spec::idle();
        spec.limits =
            ResourceLimits { memory_bytes: Some(100), tmp_bytes: 20, shared_bytes: 3, ..ResourceLimits::default() };
        spec.folders.push(Folder { inside: "/home".into(), source: FolderSource::Memory { bytes: 4000, files: 1 } });
        assert!(settings(&spec).contains(&("memory.max", "4123".to_owned())));
    }

    #[test]
    fn processor_limit_becomes_a_cpu_quota() {
        let mut spec = Spec::idle();
        spec.limits.processors = Some(2);
        assert!(settings(&spec).contains(&("cpu.max", "200000 100000".to_owned())));
    }
}

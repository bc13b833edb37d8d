//! The specification of a sandbox: the program, the files it sees, and its resource limits.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::channel::MAX_MESSAGE_DESCRIPTORS;
use crate::devices;
use crate::error::{Error, SpecError};

const MEBIBYTE: u64 = 1 << 20;

/// The largest number of folders of one sandbox. The descriptors of those in memory go to the host in one message, with
/// three others.
pub(crate) const MAX_FOLDERS: usize = MAX_MESSAGE_DESCRIPTORS - 3;

/// Paths of the sandbox itself, which a [`Spec`] may not cover.
const RESERVED: [&str; 6] = ["/", "/proc", "/dev", "/sys", "/etc", "/usr"];

/// The specification of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// The program, by its absolute path inside, and its arguments. Empty for an idle sandbox: no program is started,
    /// and forked processes [enter](crate::Sandbox::entry) it.
    pub arguments: Vec<OsString>,
    /// The whole environment of the program. Nothing is added or inherited.
    pub environment: BTreeMap<String, String>,
    /// The working directory of the program; a path inside.
    pub directory: PathBuf,
    /// The user and group ID of the code on the host. Required if this process is root: it must not be 0, and must
    /// differ from that of every other session. An ordinary user can only run code as itself.
    pub user: Option<u32>,
    /// Files and folders of the host that are visible inside, read-only, at the path that they have on the host: a
    /// virtual environment, the Python that it was created from. `/usr` is always visible.
    pub readable: Vec<PathBuf>,
    /// Folders at paths of their own. The code may write to them, except for those that are
    /// [read-only](FolderSource::HostReadOnly), as to `/tmp` and `/dev/shm`.
    pub folders: Vec<Folder>,
    /// Symbolic links: the path of each inside, and its target. None of the other paths may be at or below a link. Only
    /// a sandbox with a root of its own has them.
    pub links: BTreeMap<PathBuf, PathBuf>,
    /// Character devices of the host, by their paths below `/dev`, that are visible inside and whose drivers the code
    /// may call: a GPU's. The host's permissions apply. `/dev/null` and similar devices are always visible.
    pub devices: Vec<PathBuf>,
    /// A TCP port of 127.0.0.1 inside, on which the host accepts connections of the code:
    /// [`Sandbox::take_listener`](crate::Sandbox::take_listener). Only a sandbox with namespaces has one.
    pub listener: Option<u16>,
    /// The resource limits of the code.
    pub limits: ResourceLimits,
    /// A cgroup directory in which the sandbox gets a control group of its own, with those of the limits that the group
    /// can enforce: [`delegated_control_groups`](crate::delegated_control_groups), or one that the operator names.
    pub control_groups: Option<PathBuf>,
}

/// A folder at a path of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Folder {
    /// The path inside, which is absolute.
    pub inside: PathBuf,
    /// The storage of the folder.
    pub source: FolderSource,
}

/// The storage of a [`Folder`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FolderSource {
    /// Memory of the machine (tmpfs), bounded, which is freed with the sandbox. The host reaches it by
    /// [`Sandbox::folder`](crate::Sandbox::folder). It is the only folder with a quota, both as root and as an ordinary
    /// user.
    Memory {
        /// The largest total size of its files, in bytes.
        bytes: u64,
        /// The largest number of files and folders.
        files: u64,
    },
    /// A folder of the host, which outlives the sandbox. The host's permissions apply: the sandbox's user must own the
    /// folder, or all users must be able to write to it. Only [`ResourceLimits::file_bytes`] bounds the bytes that are
    /// written to it.
    Host(PathBuf),
    /// A folder of the host that the code may only read, and from which it may run programs. The host's permissions
    /// apply.
    HostReadOnly(PathBuf),
}

impl FolderSource {
    /// Returns whether the folder is a tmpfs, whose descriptor is sent to the host.
    pub(crate) fn is_memory(&self) -> bool {
        matches!(self, Self::Memory { .. })
    }

    /// Returns whether the code may write to the folder.
    pub(crate) fn is_writable(&self) -> bool {
        !matches!(self, Self::HostReadOnly(_))
    }

    /// Returns the path on the host.
    pub(crate) fn host_path(&self) -> Option<&Path> {
        match self {
            Self::Host(path) | Self::HostReadOnly(path) => Some(path),
            Self::Memory { .. } => None,
        }
    }
}

/// The resource limits of the code. The sandbox sets no limit for a `None`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimits {
    /// Memory of all processes together, with their pipes and sockets, in bytes, without files in memory. The sandbox's
    /// first process measures it four times a second, and kills all processes inside if they exceed it; the heap of
    /// each process is limited to it by the kernel.
    pub memory_bytes: Option<u64>,
    /// Address space of each process, in bytes. Libraries reserve much more than they use: `None` is recommended.
    pub address_bytes: Option<u64>,
    /// The number of processes and threads together.
    pub processes: u64,
    /// The number of open file descriptors of each process.
    pub open_files: u64,
    /// The size of each file, in bytes.
    pub file_bytes: u64,
    /// CPU time of each process, in seconds.
    pub processor_seconds: Option<u64>,
    /// The number of processors whose time all processes may use together. Enforced only with a control group.
    pub processors: Option<u32>,
    /// The size of `/tmp`, in bytes.
    pub tmp_bytes: u64,
    /// The size of `/dev/shm`, where processes share memory, in bytes.
    pub shared_bytes: u64,
    /// The number of files and folders in `/tmp`, and likewise in `/dev/shm`.
    pub tmp_files: u64,
}

impl Default for ResourceLimits {
    fn default() -> Self {
        Self {
            memory_bytes: Some(2048 * MEBIBYTE),
            address_bytes: None,
            processes: 256,
            open_files: 512,
            file_bytes: 1024 * MEBIBYTE,
            processor_seconds: None,
            processors: None,
            tmp_bytes: 256 * MEBIBYTE,
            shared_bytes: 64 * MEBIBYTE,
            tmp_files: 16_384,
        }
    }
}

impl Spec {
    /// Creates the specification of a sandbox that runs `arguments` in `/tmp`, with default limits and a minimal
    /// environment.
    pub fn new(arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        let environment = [("PATH", "/usr/bin:/bin"), ("LANG", "C.UTF-8"), ("HOME", "/tmp")];
        Self {
            arguments: arguments.into_iter().map(Into::into).collect(),
            environment: environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            directory: PathBuf::from("/tmp"),
            user: None,
            readable: Vec::new(),
            folders: Vec::new(),
            links: BTreeMap::new(),
            devices: Vec::new(),
            listener: None,
            limits: ResourceLimits::default(),
            control_groups: None,
        }
    }

    /// Creates the specification of a sandbox without a program, for forked processes that enter it.
    #[must_use]
    pub fn idle() -> Self {
        Self::new(Vec::<OsString>::new())
    }

    /// Checks everything that can be checked before a process is started.
    ///
    /// # Errors
    ///
    /// Returns [`Error::InvalidSpec`] with the invalid value.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if let Some(program) = self.arguments.first()
            && !Path::new(program).is_absolute()
        {
            return Err(SpecError::ProgramNotAbsolute(program.into()).into());
        }
        for (name, value) in &self.environment {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                return Err(SpecError::InvalidVariable(name.clone()).into());
            }
        }
        if self.arguments.iter().any(|argument| argument.as_encoded_bytes().contains(&0)) {
            return Err(SpecError::NulInArgument.into());
        }
        for path in self.readable.iter().chain(self.folders.iter().map(|folder| &folder.inside)) {
            check_plain(path)?;
            if RESERVED.iter().any(|reserved| path == Path::new(reserved)) {
                return Err(SpecError::ReservedPath(path.clone()).into());
            }
        }
        for link in self.links.keys() {
            check_plain(link)?;
            // The link's target is a path inside, but mounts are made while it would lead to a path of the host.
            let mut mounted = self.readable.iter().chain(self.folders.iter().map(|folder| &folder.inside));
            let is_own = RESERVED.iter().skip(1).any(|reserved| link.starts_with(reserved));
            if is_own || link == Path::new("/") || mounted.any(|path| path.starts_with(link)) {
                return Err(SpecError::ReservedPath(link.clone()).into());
            }
        }
        devices::check(&self.devices)?;
        if self.folders.len() > MAX_FOLDERS {
            return Err(SpecError::TooManyFolders { count: self.folders.len(), max: MAX_FOLDERS }.into());
        }
        for folder in &self.folders {
            // A mount there would cover files that the sandbox itself puts there.
            if ["/proc", "/dev", "/sys", "/etc", "/usr"].iter().any(|own| folder.inside.starts_with(own)) {
                return Err(SpecError::ReservedPath(folder.inside.clone()).into());
            }
            if let Some(path) = folder.source.host_path() {
                check_plain(path)?;
            }
        }
        Ok(check_plain(&self.directory)?)
    }
}

/// Checks that `path` is absolute and contains neither `..` nor a NUL, which cannot be passed to the kernel.
fn check_plain(path: &Path) -> Result<(), SpecError> {
    let plain = path.is_absolute()
        && path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
        && !path.as_os_str().as_encoded_bytes().contains(&0);
    if plain { Ok(()) } else { Err(SpecError::NotPlainPath(path.to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_that_leads_elsewhere_is_refused() {
        for path in ["relative", "/a/../b", "/", "/proc", "/dev", "/etc"] {
            let mut spec = Spec::new(["/bin/true"]);
            spec.readable.push(path.into());
            assert!(matches!(spec.check(), Err(Error::InvalidSpec(_))), "{path} was accepted");
        }
    }

    #[test]
    fn mount_at_or_below_a_link_is_refused() {
        let mut spec = Spec::new(["/bin/true"]);
        spec.links.insert("/mnt/data".into(), "/session".into());
        spec.check().unwrap();
        for path in ["/mnt/data", "/mnt/data/inner"] {
            let mut covered = spec.clone();
            covered.readable.push(path.into());
            assert!(matches!(covered.check(), Err(Error::InvalidSpec(_))), "{path} was accepted");
        }
        spec.links.insert("/etc/passwd".into(), "/session".into());
        assert!(matches!(spec.check(), Err(Error::InvalidSpec(_))));
    }

    #[test]
    fn folder_over_a_system_path_is_refused() {
        for path in ["/usr/lib/x", "/proc/1", "/dev/shm/x", "/etc/x"] {
            let mut spec = Spec::new(["/bin/true"]);
            spec.folders.push(Folder { inside: path.into(), source: FolderSource::Memory { bytes: 1, files: 1 } });
            assert!(matches!(spec.check(), Err(Error::InvalidSpec(_))), "{path} was accepted");
        }
    }

    #[test]
    fn invalid_variable_name_is_refused() {
        for name in ["", "A=B", "A\0"] {
            let mut spec = Spec::new(["/bin/true"]);
            spec.environment.insert(name.to_owned(), "1".to_owned());
            assert!(matches!(spec.check(), Err(Error::InvalidSpec(_))), "{name:?} was accepted");
        }
    }

    #[test]
    fn program_without_a_path_is_refused() {
        assert!(matches!(Spec::new(["true"]).check(), Err(Error::InvalidSpec(SpecError::ProgramNotAbsolute(_)))));
    }
}

//! What runs in a sandbox, and with how much: the description that whoever wants one writes.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::running::MOST_FOLDERS;
use super::{Error, devices};

const MEBIBYTE: u64 = 1 << 20;

/// Paths of the sandbox that are its own, which no [`Spec`] may cover.
const RESERVED: [&str; 6] = ["/", "/proc", "/dev", "/sys", "/etc", "/usr"];

/// A sandbox, before it is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// The program, by its absolute path inside, and its arguments. Empty: nothing is started, and the sandbox waits
    /// for processes that [enter](super::Sandbox::entry) it.
    pub arguments: Vec<OsString>,
    /// The whole environment. Nothing of ours is added or inherited.
    pub environment: BTreeMap<String, String>,
    /// Where the program starts; a path inside.
    pub directory: PathBuf,
    /// The user and group that the code is on the host. As root it must be given, differ from every other session's,
    /// and not be 0. As an ordinary user it is that user whatever stands here.
    pub user: Option<u32>,
    /// Files and folders of the host that are seen inside, read-only, at the path that they have on the host: a
    /// virtual environment, the Python that it is made of. `/usr` is always there.
    pub readable: Vec<PathBuf>,
    /// Folders that the code writes to, besides `/tmp` and `/dev/shm`.
    pub folders: Vec<Folder>,
    /// Character devices of the host, by their paths below `/dev`, that are there inside as well, and whose drivers the
    /// code may call: a GPU's. The host's permissions hold. `/dev/null` and its like are always there.
    pub devices: Vec<PathBuf>,
    /// How much of each thing the code may use.
    pub limits: Limits,
    /// A folder of control groups in which the sandbox gets one of its own, with those of the limits that it can hold:
    /// [`delegated_control_groups`](super::delegated_control_groups), or one that the operator names.
    pub control_groups: Option<PathBuf>,
}

/// A folder that the code may write to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Folder {
    /// Where it is inside: an absolute path.
    pub inside: PathBuf,
    /// What is behind it.
    pub source: Source,
}

/// What is behind a [`Folder`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// Memory of the machine, bounded, which is freed with the sandbox. The host reaches it by
    /// [`Sandbox::folder`](super::Sandbox::folder). This is the folder with a quota, as root and as an ordinary user.
    Memory {
        /// Bytes that its files may take.
        bytes: u64,
        /// How many files and folders there may be.
        files: u64,
    },
    /// A folder of the host, which must belong to the sandbox's user. It stays after the sandbox. Nothing but
    /// [`Limits::file_bytes`] bounds what is written to it.
    Host(PathBuf),
}

/// How much of each thing the code may use. What is `None` has no limit of ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Memory of all processes together, in bytes, without files in memory. The sandbox's first process looks four
    /// times a second, and kills everything inside when there is more; one process's heap is held to it at once.
    pub memory_bytes: Option<u64>,
    /// Address space of each process, in bytes. Libraries reserve much more than they use; leave it open if unsure.
    pub address_bytes: Option<u64>,
    /// Processes and threads together.
    pub processes: u64,
    /// Open descriptors of each process.
    pub descriptors: u64,
    /// Size of any one file, in bytes.
    pub file_bytes: u64,
    /// Processor time of each process, in seconds.
    pub processor_seconds: Option<u64>,
    /// How many processors' time all processes may take together, where there is a control group.
    pub processors: Option<u32>,
    /// Bytes in `/tmp`.
    pub tmp_bytes: u64,
    /// Bytes in `/dev/shm`, where processes share memory.
    pub shared_bytes: u64,
    /// Files and folders in `/tmp`, and as many in `/dev/shm`.
    pub tmp_files: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_bytes: Some(2048 * MEBIBYTE),
            address_bytes: None,
            processes: 256,
            descriptors: 1024,
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
    /// A sandbox around `arguments`, with default limits, in `/tmp` and with a minimal environment.
    pub fn new(arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        let environment = [("PATH", "/usr/bin:/bin"), ("LANG", "C.UTF-8"), ("HOME", "/tmp")];
        Self {
            arguments: arguments.into_iter().map(Into::into).collect(),
            environment: environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            directory: PathBuf::from("/tmp"),
            user: None,
            readable: Vec::new(),
            folders: Vec::new(),
            devices: Vec::new(),
            limits: Limits::default(),
            control_groups: None,
        }
    }

    /// A sandbox in which nothing runs yet, for processes that enter it.
    #[must_use]
    pub fn waiting() -> Self {
        Self::new(Vec::<OsString>::new())
    }

    /// Checks what can be checked before anything is started.
    ///
    /// # Errors
    ///
    /// [`Error::Specification`] that names what is wrong.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let wrong = |what: String| Err(Error::Specification(what));
        if let Some(program) = self.arguments.first()
            && !Path::new(program).is_absolute()
        {
            return wrong(format!("{} is not an absolute path of a program", program.display()));
        }
        for (name, value) in &self.environment {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                return wrong(format!("{name:?} cannot be an environment variable"));
            }
        }
        if self.arguments.iter().any(|argument| argument.as_encoded_bytes().contains(&0)) {
            return wrong("an argument contains a NUL".to_owned());
        }
        for path in self.readable.iter().chain(self.folders.iter().map(|folder| &folder.inside)) {
            if !is_plain(path) || RESERVED.iter().any(|reserved| path == Path::new(reserved)) {
                return wrong(format!("{} cannot be shown inside", path.display()));
            }
        }
        devices::check(&self.devices)?;
        if self.folders.len() > MOST_FOLDERS {
            return wrong(format!("{} folders are more than {MOST_FOLDERS}", self.folders.len()));
        }
        for folder in &self.folders {
            // Mounting there would cover what the sandbox puts there itself.
            let below_own = ["/proc", "/dev", "/sys", "/etc", "/usr"].iter().any(|own| folder.inside.starts_with(own));
            if below_own {
                return wrong(format!("{} is a place of the system's own", folder.inside.display()));
            }
            if let Source::Host(path) = &folder.source
                && !is_plain(path)
            {
                return wrong(format!("{} is not a plain absolute path", path.display()));
            }
        }
        if !is_plain(&self.directory) {
            return wrong(format!("{} is not a plain absolute path", self.directory.display()));
        }
        Ok(())
    }
}

/// Whether `path` is absolute and has no `..`, and no NUL, which the system could not be told.
fn is_plain(path: &Path) -> bool {
    path.is_absolute()
        && path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
        && !path.as_os_str().as_encoded_bytes().contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_leads_elsewhere_is_refused() {
        for path in ["relative", "/a/../b", "/", "/proc", "/dev", "/etc"] {
            let mut spec = Spec::new(["/bin/true"]);
            spec.readable.push(path.into());
            assert!(matches!(spec.check(), Err(Error::Specification(_))), "{path} was taken");
        }
    }

    #[test]
    fn a_folder_over_the_systems_own_is_refused() {
        for path in ["/usr/lib/x", "/proc/1", "/dev/shm/x", "/etc/x"] {
            let mut spec = Spec::new(["/bin/true"]);
            spec.folders.push(Folder { inside: path.into(), source: Source::Memory { bytes: 1, files: 1 } });
            assert!(matches!(spec.check(), Err(Error::Specification(_))), "{path} was taken");
        }
    }

    #[test]
    fn a_name_that_is_no_variable_is_refused() {
        for name in ["", "A=B", "A\0"] {
            let mut spec = Spec::new(["/bin/true"]);
            spec.environment.insert(name.to_owned(), "1".to_owned());
            assert!(matches!(spec.check(), Err(Error::Specification(_))), "{name:?} was taken");
        }
    }

    #[test]
    fn a_program_by_its_name_alone_is_refused() {
        assert!(matches!(Spec::new(["true"]).check(), Err(Error::Specification(_))));
    }
}

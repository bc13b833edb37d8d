//! The files that the code can open, by rules of Landlock. They hold independently of the mounts.
//!
//! Landlock also keeps the code from tracing and signalling processes outside, and limits writes to the writable
//! folders even for files of other mounts: a process that entered from outside can still reach its own executable
//! through a mount of the host (`/proc/self/exe`).

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use ::landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, Scope,
};

use crate::error::{Step, StepFailure};
use crate::policy::IsolationLevel;
use crate::syscalls;

/// The newest version of Landlock that was tested. Older kernels handle less; see [`min_version`].
const VERSION: ABI = ABI::V6;

/// Devices that may be read and written. `/dev/zero` may only be read: a shared, writable mapping of it is memory that
/// no limit counts.
const DEVICES: [&str; 3] = ["/dev/null", "/dev/full", "/dev/tty"];

/// Paths of the host that programs read, for [`IsolationLevel::Weak`], in which the code sees the host's root.
const SYSTEM: [&str; 15] = [
    "/usr",
    "/bin",
    "/lib",
    "/lib64",
    "/etc/ld.so.cache",
    "/etc/ssl",
    "/etc/fonts",
    "/etc/mime.types",
    "/etc/localtime",
    "/etc/alternatives",
    "/dev/urandom",
    "/dev/random",
    "/dev/zero",
    "/proc/self",
    "/sys/devices/system/cpu",
];

/// Returns the oldest version of Landlock with which `level` is complete.
fn min_version(level: IsolationLevel) -> i64 {
    match level {
        // Mounts and namespaces enforce the same restrictions.
        IsolationLevel::Full => 1,
        // Only version 6 restricts signals to other processes and abstract sockets.
        IsolationLevel::Weak => 6,
    }
}

/// The paths of one sandbox that the code can open, in addition to those of every sandbox of its level.
#[derive(Clone, Copy)]
pub(crate) struct LandlockAccess<'a> {
    /// Readable paths. Empty if the sandbox has a root of its own.
    pub(crate) readable: &'a [PathBuf],
    /// Writable folders.
    pub(crate) writable: &'a [PathBuf],
    /// Devices whose drivers may be called.
    pub(crate) devices: &'a [PathBuf],
}

/// Creates the ruleset of a sandbox, to be applied with `landlock_restrict_self(2)`. Paths are resolved in this
/// process's mount namespace.
pub(crate) fn create_ruleset(level: IsolationLevel, access: LandlockAccess<'_>) -> Result<OwnedFd, StepFailure> {
    let version = syscalls::landlock_version()
        .map_err(|error| StepFailure::new(Step::Landlock, "reading the version of Landlock", &error))?;
    let min_version = min_version(level);
    if version < min_version {
        let reason = format!("this kernel has version {version} of Landlock, and version {min_version} is required");
        return Err(StepFailure::from_reason(Step::Landlock, reason));
    }
    let ruleset = build(level, access).map_err(|error| StepFailure::from_reason(Step::Landlock, error.to_string()))?;
    Option::<OwnedFd>::from(ruleset)
        .ok_or_else(|| StepFailure::from_reason(Step::Landlock, "the kernel created no ruleset"))
}

/// Creates the ruleset of a process that may open no file, connect to no port and signal no other process.
pub(crate) fn create_empty_ruleset() -> Result<OwnedFd, StepFailure> {
    syscalls::landlock_version()
        .map_err(|error| StepFailure::new(Step::Landlock, "reading the version of Landlock", &error))?;
    let create = || {
        Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(VERSION))?
            .handle_access(AccessNet::from_all(VERSION))?
            .scope(Scope::from_all(VERSION))?
            .create()
    };
    let created = create()
        .map_err(|error: ::landlock::RulesetError| StepFailure::from_reason(Step::Landlock, error.to_string()))?;
    Option::<OwnedFd>::from(created)
        .ok_or_else(|| StepFailure::from_reason(Step::Landlock, "the kernel created no ruleset"))
}

fn build(level: IsolationLevel, access: LandlockAccess<'_>) -> Result<RulesetCreated, ::landlock::RulesetError> {
    let everything = AccessFs::from_all(VERSION);
    let reading = AccessFs::from_read(VERSION);
    let mut ruleset = Ruleset::default().set_compatibility(CompatLevel::BestEffort).handle_access(everything)?;
    if level == IsolationLevel::Weak {
        ruleset = ruleset.handle_access(AccessNet::from_all(VERSION))?;
    }
    let mut rules = ruleset.scope(Scope::from_all(VERSION))?.create()?;
    match level {
        IsolationLevel::Full => rules = allow(rules, Path::new("/"), reading)?,
        IsolationLevel::Weak => {
            for path in SYSTEM.iter().map(Path::new).chain(access.readable.iter().map(PathBuf::as_path)) {
                rules = allow(rules, path, reading)?;
            }
        }
    }
    // Creating device files would require a capability as well.
    let writing = everything & !(AccessFs::MakeChar | AccessFs::MakeBlock);
    for path in access.writable {
        rules = allow(rules, path, writing & !AccessFs::IoctlDev)?;
    }
    let own = DEVICES.iter().chain(&["/dev/pts", "/dev/ptmx"]).map(Path::new);
    for path in own.chain(access.devices.iter().map(PathBuf::as_path)) {
        rules = allow(rules, path, reading | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev)?;
    }
    Ok(rules)
}

/// Adds a rule for `path` and all files below it. A path that does not exist is skipped.
fn allow(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, ::landlock::RulesetError> {
    let Ok(opened) = PathFd::new(path) else { return Ok(rules) };
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(VERSION) };
    rules.add_rule(PathBeneath::new(opened.as_fd(), access))
}

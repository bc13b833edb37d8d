//! Which files the code reaches, by the rules of Landlock: held on its own account, should a mount be wrong.
//!
//! It also keeps what is inside from tracing and signalling what is not, and is what makes a file writable only through
//! the folders that are meant to be: a process that entered from outside still knows its own executable by a mount of
//! the host (`/proc/self/exe`).

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use ::landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, Scope,
};

use super::calls;
use super::{Failure, Step, Strength};

/// The newest version that this was tested with. Older kernels do less; see [`least_version`].
const VERSION: ABI = ABI::V6;

/// Devices that are read and written. `/dev/zero` is read alone: what is mapped from it to be shared and written is memory
/// that no limit counts.
const DEVICES: [&str; 3] = ["/dev/null", "/dev/full", "/dev/tty"];

/// What a system of its own shows, when there is no root of our own: for [`Strength::Weak`].
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

/// The version of Landlock without which a sandbox of `strength` is not what it says.
fn least_version(strength: Strength) -> i64 {
    match strength {
        // Mounts and namespaces do the same work again.
        Strength::Full => 1,
        // Signals to other processes and abstract sockets are held back by nothing else.
        Strength::Weak => 6,
    }
}

/// What the code reaches, besides what every sandbox of its strength shows.
#[derive(Clone, Copy)]
pub(super) struct Reach<'a> {
    /// To be read: where there is no root of our own.
    pub(super) readable: &'a [PathBuf],
    /// Folders to be written to.
    pub(super) writable: &'a [PathBuf],
    /// Devices whose drivers may be called.
    pub(super) devices: &'a [PathBuf],
}

/// The rules for a sandbox, to be applied with `landlock_restrict_self(2)`. Paths are those that this process sees.
pub(super) fn rules(strength: Strength, reach: Reach<'_>) -> Result<OwnedFd, Failure> {
    let version =
        calls::landlock_version().map_err(|error| Failure::new(Step::Landlock, "asking for Landlock", &error))?;
    let least = least_version(strength);
    if version < least {
        let tried = format!("this kernel has version {version} of Landlock, and {least} is needed");
        return Err(Failure::plain(Step::Landlock, tried));
    }
    let rules = build(strength, reach).map_err(|error| Failure::plain(Step::Landlock, error.to_string()))?;
    Option::<OwnedFd>::from(rules).ok_or_else(|| Failure::plain(Step::Landlock, "the kernel made no ruleset"))
}

fn build(strength: Strength, reach: Reach<'_>) -> Result<RulesetCreated, ::landlock::RulesetError> {
    let everything = AccessFs::from_all(VERSION);
    let reading = AccessFs::from_read(VERSION);
    let mut ruleset = Ruleset::default().set_compatibility(CompatLevel::BestEffort).handle_access(everything)?;
    if strength == Strength::Weak {
        ruleset = ruleset.handle_access(AccessNet::from_all(VERSION))?;
    }
    let mut rules = ruleset.scope(Scope::from_all(VERSION))?.create()?;
    match strength {
        Strength::Full => rules = allow(rules, Path::new("/"), reading)?,
        Strength::Weak => {
            for path in SYSTEM.iter().map(Path::new).chain(reach.readable.iter().map(PathBuf::as_path)) {
                rules = allow(rules, path, reading)?;
            }
        }
    }
    // Devices of other kinds could be made in none of these anyway: that takes a capability.
    let making = everything & !(AccessFs::MakeChar | AccessFs::MakeBlock);
    for path in reach.writable {
        rules = allow(rules, path, making & !AccessFs::IoctlDev)?;
    }
    let own = DEVICES.iter().chain(&["/dev/pts", "/dev/ptmx"]).map(Path::new);
    for path in own.chain(reach.devices.iter().map(PathBuf::as_path)) {
        rules = allow(rules, path, reading | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev)?;
    }
    Ok(rules)
}

/// Adds a rule for `path` and what is below it. A path that is not there needs none.
fn allow(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, ::landlock::RulesetError> {
    let Ok(opened) = PathFd::new(path) else { return Ok(rules) };
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(VERSION) };
    rules.add_rule(PathBeneath::new(opened.as_fd(), access))
}

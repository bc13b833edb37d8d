//! The check of devices of the host that the operator passes through to the code, for example a GPU.
//!
//! The code can do everything that the driver of such a device allows: the sandbox adds no restrictions to the
//! driver's.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

use crate::error::{DeviceError, Error, SpecError};
use crate::syscalls;

/// Paths at which the sandbox has files of its own.
const OWN: [&str; 6] = ["/dev/pts", "/dev/ptmx", "/dev/shm", "/dev/mqueue", "/dev/fd", "/dev/console"];

/// The largest number of devices of one sandbox. Each takes a file in its `/dev`.
const MAX_DEVICES: usize = 32;

/// The major number of the memory devices, and the minor numbers of those that give access to the machine's memory, I/O
/// ports and log (`Documentation/admin-guide/devices.txt` in Linux).
const MEMORY_DEVICES: u32 = 1;
const MACHINE_DEVICES: [u32; 4] = [1, 2, 4, 11];

/// Checks that each of `devices` can be passed through.
///
/// # Errors
///
/// Returns [`Error::InvalidSpec`] with the first device that cannot be passed through.
pub fn check(devices: &[PathBuf]) -> Result<(), Error> {
    if devices.len() > MAX_DEVICES {
        return Err(SpecError::TooManyDevices { count: devices.len(), max: MAX_DEVICES }.into());
    }
    devices
        .iter()
        .try_for_each(|path| check_one(path).map_err(|reason| SpecError::Device { path: path.clone(), reason }.into()))
}

fn check_one(path: &Path) -> Result<(), DeviceError> {
    let plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if !plain || !path.starts_with("/dev") || path.as_os_str().as_encoded_bytes().contains(&0) {
        return Err(DeviceError::NotBelowDev);
    }
    if OWN.iter().any(|own| path.starts_with(own)) {
        return Err(DeviceError::OwnDevice);
    }
    // A link could lead elsewhere by the time that it is followed.
    let metadata = fs::symlink_metadata(path)?;
    if metadata.file_type().is_symlink() {
        return Err(DeviceError::Symlink);
    }
    if !metadata.file_type().is_char_device() {
        return Err(DeviceError::NotCharacterDevice);
    }
    let (major, minor) = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
    if major == MEMORY_DEVICES && MACHINE_DEVICES.contains(&minor) {
        return Err(DeviceError::MachineDevice);
    }
    // As root, the code runs as a session user without supplementary groups.
    let may_read = if syscalls::user() == 0 {
        metadata.mode() & 0o004 != 0
    } else {
        rustix::fs::access(path, rustix::fs::Access::READ_OK).is_ok()
    };
    if !may_read {
        return Err(DeviceError::PermissionDenied { mode: metadata.mode() & 0o777 });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsuitable_path_is_refused() {
        for (path, why) in [
            ("dev/null", "below /dev"),
            ("/etc/passwd", "below /dev"),
            ("/dev/../etc/passwd", "below /dev"),
            ("/devil", "below /dev"),
            ("/dev", "not a character device"),
            ("/dev/pts/0", "its own"),
            ("/dev/shm/x", "its own"),
            ("/dev/there-is-no-such-device", "No such file"),
            ("/dev/stdin", "symbolic link"),
        ] {
            let refused = check(&[path.into()]).unwrap_err().to_string();
            assert!(refused.contains(path) && refused.contains(why), "{refused}");
        }
        assert!(check(&vec!["/dev/null".into(); MAX_DEVICES + 1]).is_err());
        check(&["/dev/null".into(), "/dev/full".into()]).unwrap();
    }

    #[test]
    fn memory_and_log_of_the_machine_are_refused() {
        for path in ["/dev/mem", "/dev/port", "/dev/kmsg"].into_iter().filter(|path| Path::new(path).exists()) {
            assert!(check(&[path.into()]).unwrap_err().to_string().contains("of the machine"), "{path}");
        }
    }
}

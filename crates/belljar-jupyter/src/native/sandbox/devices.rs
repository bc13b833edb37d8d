//! Devices of the host that the operator hands to the code: a GPU's, for one. By name, and none unless asked for.
//!
//! What such a device lets its users do, the code can do: the sandbox adds nothing to what its driver refuses.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

use super::{Error, calls};

/// The sandbox has these itself, of its own.
const OWN: [&str; 6] = ["/dev/pts", "/dev/ptmx", "/dev/shm", "/dev/mqueue", "/dev/fd", "/dev/console"];

/// The most that one sandbox has: each takes a file in its `/dev`.
const MOST: usize = 32;

/// Major number of the memory devices, and those of them that reach the machine's memory, ports and log
/// (`Documentation/admin-guide/devices.txt` in Linux).
const MEMORY_DEVICES: u32 = 1;
const OF_THE_MACHINE: [u32; 4] = [1, 2, 4, 11];

/// Checks that each of these can be handed in.
///
/// # Errors
///
/// [`Error::Specification`] that names the one which cannot, and why.
pub(crate) fn check(devices: &[PathBuf]) -> Result<(), Error> {
    if devices.len() > MOST {
        return Err(Error::Specification(format!("{} devices are more than {MOST}", devices.len())));
    }
    devices.iter().try_for_each(|path| {
        check_one(path).map_err(|why| Error::Specification(format!("the device {}: {why}", path.display())))
    })
}

fn check_one(path: &Path) -> Result<(), String> {
    let plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if !plain || !path.starts_with("/dev") || path.as_os_str().as_encoded_bytes().contains(&0) {
        return Err("it must be named by its path below /dev".into());
    }
    if OWN.iter().any(|own| path.starts_with(own)) {
        return Err("the sandbox has one of its own".into());
    }
    // A link could lead elsewhere by the time that it is followed.
    let metadata = fs::symlink_metadata(path).map_err(|error| error.to_string())?;
    if metadata.file_type().is_symlink() {
        return Err("it is a link: name what it leads to".into());
    }
    if !metadata.file_type().is_char_device() {
        return Err("it is no character device".into());
    }
    let (major, minor) = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
    if major == MEMORY_DEVICES && OF_THE_MACHINE.contains(&minor) {
        return Err("it reaches the memory, the ports or the log of the machine".into());
    }
    // As root, the code is a user of its own, of no group.
    let may_read = if calls::user() == 0 {
        metadata.mode() & 0o004 != 0
    } else {
        rustix::fs::access(path, rustix::fs::Access::READ_OK).is_ok()
    };
    if !may_read {
        let mode = metadata.mode() & 0o777;
        return Err(format!(
            "the session's user cannot open it (mode {mode:03o}): chmod o+rw, or for good a rule of udev with MODE=\"0666\""
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_device_to_hand_in_is_refused() {
        for (path, why) in [
            ("dev/null", "below /dev"),
            ("/etc/passwd", "below /dev"),
            ("/dev/../etc/passwd", "below /dev"),
            ("/devil", "below /dev"),
            ("/dev", "no character device"),
            ("/dev/pts/0", "of its own"),
            ("/dev/shm/x", "of its own"),
            ("/dev/there-is-no-such-device", "No such file"),
            ("/dev/stdin", "a link"),
        ] {
            let refused = check(&[path.into()]).unwrap_err().to_string();
            assert!(refused.contains(path) && refused.contains(why), "{refused}");
        }
        assert!(check(&vec!["/dev/null".into(); MOST + 1]).is_err());
        check(&["/dev/null".into(), "/dev/full".into()]).unwrap();
    }

    #[test]
    fn the_machines_memory_and_log_are_refused() {
        for path in ["/dev/mem", "/dev/port", "/dev/kmsg"].into_iter().filter(|path| Path::new(path).exists()) {
            assert!(check(&[path.into()]).unwrap_err().to_string().contains("of the machine"), "{path}");
        }
    }
}

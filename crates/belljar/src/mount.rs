//! The value of `--mount HOST:GUEST[:ro|:rw]`.

use std::path::PathBuf;
use std::str::FromStr;

/// A directory of the host that is mounted into the file system of the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    pub(crate) host: PathBuf,
    pub(crate) guest: String,
    pub(crate) writable: bool,
}

impl FromStr for Mount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (paths, writable) = match text.rsplit_once(':') {
            Some((paths, "ro")) => (paths, false),
            Some((paths, "rw")) => (paths, true),
            _ => (text, false),
        };
        let (host, guest) = paths.rsplit_once(':').ok_or("write HOST:GUEST, such as ./data:/data")?;
        if host.is_empty() || !guest.starts_with('/') || guest.split('/').any(|part| part == "..") {
            return Err("the guest's path must be absolute and without `..`, such as /data".into());
        }
        Ok(Self { host: host.into(), guest: guest.into(), writable })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_read_only_by_default() {
        let mount = |text: &str| text.parse::<Mount>();
        let expected = Mount { host: "./d".into(), guest: "/data".into(), writable: false };
        assert_eq!(mount("./d:/data"), Ok(expected.clone()));
        assert_eq!(mount("./d:/data:ro"), Ok(expected.clone()));
        assert_eq!(mount("./d:/data:rw"), Ok(Mount { writable: true, ..expected }));
        for bad in ["./d", "./d:data", ":/data", "./d:/a/../b", "ro", "./d:rw"] {
            assert!(mount(bad).is_err(), "{bad}");
        }
    }
}

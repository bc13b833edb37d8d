//! The value of `--mount HOST:GUEST[:ro|:rw]`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use belljar_emscripten::fs::HostDirectory;
use belljar_python::{GuestMount, SESSION_DIRECTORY};

use crate::command_error::CommandError;
use crate::sandbox_options::Sandbox;

/// The directories of the WebAssembly sandbox's own files.
const RESERVED_WASM: &[&str] = &["/dev", "/lib", "/proc"];
/// The directories of the native sandbox's own files.
const RESERVED_NATIVE: &[&str] = &[
    "/bin", "/dev", "/etc", "/kernel", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/sbin", "/sys", "/tmp", "/usr",
];

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

impl Mount {
    /// Opens the directory for interpreters of the WebAssembly sandbox.
    pub(crate) fn open(&self) -> Result<GuestMount, CommandError> {
        let directory = HostDirectory::open(&self.host, self.writable)
            .map_err(|error| format!("failed to mount {}: {error}", self.host.display()))?;
        Ok(GuestMount { guest: self.guest.clone(), directory: Arc::new(directory) })
    }
}

impl fmt::Display for Mount {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suffix = if self.writable { ":rw" } else { "" };
        write!(formatter, "{}:{}{suffix}", self.host.display(), self.guest)
    }
}

/// Returns the mounts of a server with absolute paths of the host, without links, and normal paths inside.
///
/// # Errors
/// Returns an error if a directory does not exist, or if a path inside is reserved or covers that of another mount.
pub(crate) fn for_server(mounts: &[Mount], sandbox: Sandbox) -> Result<Vec<Mount>, CommandError> {
    let mut resolved: Vec<Mount> = Vec::new();
    for mount in mounts {
        let wrong = |reason: String| CommandError::new(format!("--mount {mount}: {reason}"));
        let host = existing_directory(&mount.host).map_err(wrong)?;
        let parts: Vec<&str> = mount.guest.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        let guest = format!("/{}", parts.join("/"));
        let (working_directory, reserved) = match sandbox {
            Sandbox::Wasm => (SESSION_DIRECTORY, RESERVED_WASM),
            Sandbox::Native => ("/session", RESERVED_NATIVE),
            // The code sees the directory at its own path, and nothing is mounted.
            Sandbox::NativeWeak => ("", &[] as &[&str]),
        };
        if !working_directory.is_empty() && Path::new(&guest).starts_with(working_directory) {
            return Err(wrong(format!("{working_directory} is the working directory of the code"))
                .with_hint("mount it at another path, such as /data; --files DIR keeps the files of sessions in DIR"));
        }
        if guest == "/" || reserved.iter().any(|reserved| Path::new(&guest).starts_with(reserved)) {
            return Err(wrong(format!("{guest} is reserved for the sandbox"))
                .with_hint("mount it at another path, such as /data"));
        }
        let path = Path::new(&guest);
        let covers = |other: &&Mount| path.starts_with(&other.guest) || Path::new(&other.guest).starts_with(path);
        if let Some(other) = resolved.iter().find(covers) {
            return Err(wrong(format!("another directory is mounted at {}", other.guest))
                .with_hint("mount each directory at a path of its own that is not inside of another"));
        }
        resolved.push(Mount { host, guest, writable: mount.writable });
    }
    Ok(resolved)
}

/// Returns the absolute path of an existing directory, without links.
///
/// # Errors
/// Returns the reason why it cannot be used.
pub(crate) fn existing_directory(path: &Path) -> Result<PathBuf, String> {
    match path.canonicalize() {
        Ok(found) if found.is_dir() => Ok(found),
        Ok(_) => Err(format!("{} is not a directory", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(format!("{} does not exist", path.display())),
        Err(error) => Err(format!("failed to open {}: {error}", path.display())),
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

    #[test]
    fn mounts_of_servers_are_resolved_or_refused() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("file"), "").unwrap();
        let host = directory.path().canonicalize().unwrap();
        let resolve = |guests: &[&str], sandbox| {
            let mounts: Vec<Mount> =
                guests.iter().map(|guest| format!("{}:{guest}", host.display()).parse().unwrap()).collect();
            for_server(&mounts, sandbox)
        };
        for sandbox in [Sandbox::Wasm, Sandbox::Native] {
            let resolved = resolve(&["//data/./in/", "/data2:rw"], sandbox).unwrap();
            assert_eq!(resolved[0], Mount { host: host.clone(), guest: "/data/in".into(), writable: false });
            assert_eq!((resolved[1].guest.as_str(), resolved[1].writable), ("/data2", true));
            for (guests, reason) in [
                (&["/"][..], "reserved"),
                (&["/dev/shm"], "reserved"),
                (&["/lib"], "reserved"),
                (&["/data", "/data"], "another directory"),
                (&["/data", "/data/x"], "another directory"),
                (&["/data/x", "/data"], "another directory"),
            ] {
                let error = resolve(guests, sandbox).unwrap_err().to_string();
                assert!(error.contains(reason), "{guests:?}: {error}");
            }
            for missing in ["missing", "file"] {
                let mount = format!("{}/{missing}:/data", host.display()).parse().unwrap();
                assert!(for_server(&[mount], sandbox).is_err(), "{missing}");
            }
        }
        assert!(resolve(&["/home/x"], Sandbox::Wasm).unwrap_err().to_string().contains("--files"));
        assert!(resolve(&["/session"], Sandbox::Native).unwrap_err().to_string().contains("--files"));
        assert!(resolve(&["/home/x"], Sandbox::Native).is_ok());
    }
}

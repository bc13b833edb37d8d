//! The packages of a session: a directory that the host writes to, and that the sandbox shows read-only. An
//! installation succeeds completely and within its limits, or leaves the directory unchanged.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The number of bytes that a file takes of a disk at least, and the unit in which it grows.
const BLOCK_BYTES: u64 = 4096;

/// The directory of packages, and two working directories on the same file system.
#[derive(Debug, Clone)]
pub(crate) struct SitePackages {
    directory: PathBuf,
    /// The packages as they were before an installation, as hard links: installers write new files and rename them.
    backup: PathBuf,
    /// The directory of installers' temporary files.
    staging: PathBuf,
}

impl SitePackages {
    /// Uses three empty directories.
    pub(crate) fn new(directory: PathBuf, backup: PathBuf, staging: PathBuf) -> Self {
        Self { directory, backup, staging }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn staging(&self) -> &Path {
        &self.staging
    }

    /// Returns the number of bytes that the packages take.
    pub(crate) fn bytes(&self) -> u64 {
        bytes_below(&self.directory)
    }

    /// Returns the number of bytes that the packages and an installer's temporary files take.
    pub(crate) fn bytes_with_staging(&self) -> u64 {
        self.bytes().saturating_add(bytes_below(&self.staging))
    }

    /// Deletes the working files that a killed installation may have left.
    pub(crate) fn clean_staging(&self) {
        // Errors are ignored: the files that stay are counted, so that the limit refuses installations in the end.
        let _ = clear(&self.backup).and_then(|()| clear(&self.staging));
    }

    /// Runs `install`, which changes the packages. When it fails, the packages are restored.
    ///
    /// # Errors
    /// Those of `install`, and those of the file system while the packages are backed up or restored.
    pub(crate) fn transaction<T, E: From<io::Error>>(&self, install: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        clear(&self.backup)?;
        link_all(&self.directory, &self.backup)?;
        let installed = install();
        if installed.is_err() {
            clear(&self.directory)?;
            move_all(&self.backup, &self.directory)?;
        }
        self.clean_staging();
        installed
    }
}

/// Returns the number of bytes of all files below a directory. Files that disappear meanwhile are not counted.
fn bytes_below(directory: &Path) -> u64 {
    let mut bytes: u64 = 0;
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            let size = metadata.len().max(1).checked_next_multiple_of(BLOCK_BYTES).unwrap_or(u64::MAX);
            bytes = bytes.saturating_add(size);
            if metadata.is_dir() {
                directories.push(entry.path());
            }
        }
    }
    bytes
}

/// Makes hard links to the files of a directory tree in another directory.
fn link_all(from: &Path, to: &Path) -> io::Result<()> {
    let mut directories = vec![(from.to_owned(), to.to_owned())];
    while let Some((from, to)) = directories.pop() {
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            let target = to.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                fs::create_dir(&target)?;
                directories.push((entry.path(), target));
            } else {
                // Links a symbolic link itself.
                fs::hard_link(entry.path(), target)?;
            }
        }
    }
    Ok(())
}

fn move_all(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::rename(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

/// Deletes the content of a directory without following links.
fn clear(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() { fs::remove_dir_all(entry.path())? } else { fs::remove_file(entry.path())? }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site_packages() -> (tempfile::TempDir, SitePackages) {
        let root = tempfile::tempdir().unwrap();
        let directory = |name: &str| {
            let path = root.path().join(name);
            fs::create_dir(&path).unwrap();
            path
        };
        let site = SitePackages::new(directory("site"), directory("backup"), directory("staging"));
        (root, site)
    }

    #[test]
    fn failed_installation_is_rolled_back() {
        let (_root, site) = site_packages();
        let at = |name: &str| site.directory().join(name);
        let installed = site.transaction(|| {
            fs::create_dir(at("old")).unwrap();
            fs::write(at("old/a.py"), "1").unwrap();
            Ok::<_, io::Error>(5)
        });
        assert_eq!(installed.unwrap(), 5);
        let failed = site.transaction(|| {
            fs::remove_dir_all(at("old")).unwrap();
            fs::write(at("new.py"), "2").unwrap();
            fs::write(site.staging().join("rest"), "3").unwrap();
            Err::<(), _>(io::Error::other("no"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "no");
        assert_eq!(fs::read_to_string(at("old/a.py")).unwrap(), "1");
        assert!(!at("new.py").exists());
        assert_eq!(site.bytes_with_staging(), 2 * BLOCK_BYTES, "only the directory and the file are left");
    }

    #[test]
    fn every_file_and_directory_counts() {
        let (_root, site) = site_packages();
        assert_eq!(site.bytes(), 0);
        fs::create_dir(site.directory().join("p")).unwrap();
        fs::write(site.directory().join("p/empty"), "").unwrap();
        fs::write(site.directory().join("p/large"), vec![0; 10_000]).unwrap();
        std::os::unix::fs::symlink("/", site.directory().join("p/link")).unwrap();
        assert_eq!(site.bytes(), (1 + 1 + 3 + 1) * BLOCK_BYTES);
    }
}

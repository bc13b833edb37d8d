//! A session's packages: a folder that the host writes to, and that the sandbox shows read-only. An installation is there
//! as a whole and within its bounds, or leaves no trace.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What a file takes of a disk at least, and by what it grows.
const BLOCK: u64 = 4096;

/// The folder, and two beside it on the same file system.
#[derive(Debug, Clone)]
pub(crate) struct Site {
    folder: PathBuf,
    /// What it was before an installation, by links to the same files: installers write new ones and rename them.
    before: PathBuf,
    /// Where installers have their temporary files.
    incoming: PathBuf,
}

impl Site {
    /// Of three empty folders.
    pub(crate) fn new(folder: PathBuf, before: PathBuf, incoming: PathBuf) -> Self {
        Self { folder, before, incoming }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn incoming(&self) -> &Path {
        &self.incoming
    }

    /// Bytes that the packages take.
    pub(crate) fn bytes(&self) -> u64 {
        bytes_below(&self.folder)
    }

    /// Bytes that are taken while an installer is at work.
    pub(crate) fn bytes_at_work(&self) -> u64 {
        self.bytes().saturating_add(bytes_below(&self.incoming))
    }

    /// Deletes what an installation may have left that was ended.
    pub(crate) fn tidy(&self) {
        // What stays is counted, and so refused at last.
        let _ = clear(&self.before).and_then(|()| clear(&self.incoming));
    }

    /// Does something that changes the packages; what fails changes nothing.
    ///
    /// # Errors
    /// Those of `change`, and when the disk does not take what is to be kept meanwhile.
    pub(crate) fn change<T>(&self, change: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
        let failed = |error: io::Error| format!("the session's packages cannot be written: {error}");
        clear(&self.before).and_then(|()| link_all(&self.folder, &self.before)).map_err(failed)?;
        let changed = change();
        if changed.is_err() {
            clear(&self.folder).and_then(|()| move_all(&self.before, &self.folder)).map_err(failed)?;
        }
        self.tidy();
        changed
    }
}

/// Bytes of all files below a folder. What vanishes meanwhile takes none.
fn bytes_below(folder: &Path) -> u64 {
    let mut bytes: u64 = 0;
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            bytes = bytes.saturating_add(metadata.len().max(1).checked_next_multiple_of(BLOCK).unwrap_or(u64::MAX));
            if metadata.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    bytes
}

/// Has the same files in another folder as well.
fn link_all(from: &Path, to: &Path) -> io::Result<()> {
    let mut folders = vec![(from.to_owned(), to.to_owned())];
    while let Some((from, to)) = folders.pop() {
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            let there = to.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                fs::create_dir(&there)?;
                folders.push((entry.path(), there));
            } else {
                // Of a link, the link itself.
                fs::hard_link(entry.path(), there)?;
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

/// Deletes what is in a folder, and not what links lead to.
fn clear(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() { fs::remove_dir_all(entry.path())? } else { fs::remove_file(entry.path())? }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site() -> (tempfile::TempDir, Site) {
        let place = tempfile::tempdir().unwrap();
        let folder = |name: &str| {
            let path = place.path().join(name);
            fs::create_dir(&path).unwrap();
            path
        };
        let site = Site::new(folder("site"), folder("before"), folder("incoming"));
        (place, site)
    }

    #[test]
    fn what_fails_changes_nothing() {
        let (_place, site) = site();
        let at = |name: &str| site.folder().join(name);
        let made = site.change(|| {
            fs::create_dir(at("old")).unwrap();
            fs::write(at("old/a.py"), "1").unwrap();
            Ok(5)
        });
        assert_eq!(made, Ok(5));
        let failed: Result<(), _> = site.change(|| {
            fs::remove_dir_all(at("old")).unwrap();
            fs::write(at("new.py"), "2").unwrap();
            fs::write(site.incoming().join("rest"), "3").unwrap();
            Err("no".into())
        });
        assert_eq!(failed, Err("no".into()));
        assert_eq!(fs::read_to_string(at("old/a.py")).unwrap(), "1");
        assert!(!at("new.py").exists());
        assert_eq!(site.bytes_at_work(), 2 * BLOCK, "nothing is left but the folder and the file");
    }

    #[test]
    fn all_that_takes_room_is_counted() {
        let (_place, site) = site();
        assert_eq!(site.bytes(), 0);
        fs::create_dir(site.folder().join("p")).unwrap();
        fs::write(site.folder().join("p/empty"), "").unwrap();
        fs::write(site.folder().join("p/large"), vec![0; 10_000]).unwrap();
        std::os::unix::fs::symlink("/", site.folder().join("p/link")).unwrap();
        assert_eq!(site.bytes(), (1 + 1 + 3 + 1) * BLOCK);
    }
}

//! Checks of the paths in an archive: each path must be valid, and no two paths may refer to the same file.

use std::collections::HashMap;

/// The maximum length of a path in bytes.
const MAX_PATH_BYTES: usize = 1024;
/// The maximum length of a path component in bytes, which is Linux's limit.
const MAX_COMPONENT_BYTES: usize = 255;

/// Returns the reason that a path in an archive is refused, or `None` if it is valid. Paths of directories end with
/// `/`.
pub(super) fn path_violation(path: &str) -> Option<&'static str> {
    let plain = path.strip_suffix('/').unwrap_or(path);
    if plain.is_empty() {
        return Some(if path.is_empty() { "it is empty" } else { "it is absolute" });
    }
    if plain.contains('\0') {
        return Some("it contains NUL");
    }
    if plain.chars().any(char::is_control) {
        return Some("it contains a control character");
    }
    if plain.contains('\\') {
        return Some("it contains a backslash");
    }
    if plain.starts_with('/') {
        return Some("it is absolute");
    }
    if plain.as_bytes().get(1) == Some(&b':') {
        return Some("it names a drive");
    }
    if plain.len() > MAX_PATH_BYTES {
        return Some("it is too long");
    }
    for component in plain.split('/') {
        match component {
            "" => return Some("it has an empty component"),
            "." | ".." => return Some("it has a relative component"),
            _ if component.len() > MAX_COMPONENT_BYTES => return Some("it has a component that is too long"),
            _ => {}
        }
    }
    None
}

/// The paths of an archive. Paths that differ only in case are the same file on some systems, so they are refused.
#[derive(Debug, Default)]
pub(super) struct PathRegistry {
    /// Maps a case-folded path to the original path and its kind.
    paths: HashMap<String, (String, PathKind)>,
}

/// The conflict of a path with another path of the archive.
#[derive(Debug, thiserror::Error)]
pub(super) enum PathConflict {
    #[error("it occurs twice")]
    Duplicate,
    #[error("it is both a file and a directory")]
    FileAndDirectory,
    #[error("it differs from {0:?} only in case")]
    CaseOnly(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathKind {
    File,
    Directory,
}

impl PathRegistry {
    /// Adds a file's path.
    ///
    /// # Errors
    /// Returns the conflict of the path or of one of its parent directories with another path.
    pub(super) fn add_file(&mut self, path: &str) -> Result<(), PathConflict> {
        self.add_parents(path)?;
        match self.paths.insert(folded(path), (path.to_owned(), PathKind::File)) {
            None => Ok(()),
            Some((first, PathKind::File)) if first == path => Err(PathConflict::Duplicate),
            Some((_, PathKind::Directory)) => Err(PathConflict::FileAndDirectory),
            Some((first, PathKind::File)) => Err(PathConflict::CaseOnly(first)),
        }
    }

    /// Adds a directory's path, which has no trailing `/`.
    ///
    /// # Errors
    /// Returns the conflict of the path or of one of its parent directories with another path.
    pub(super) fn add_directory(&mut self, path: &str) -> Result<(), PathConflict> {
        self.add_parents(path)?;
        match self.paths.get(&folded(path)) {
            None => {
                self.paths.insert(folded(path), (path.to_owned(), PathKind::Directory));
                Ok(())
            }
            Some((_, PathKind::File)) => Err(PathConflict::FileAndDirectory),
            Some((first, PathKind::Directory)) if first == path => Ok(()),
            Some((first, PathKind::Directory)) => Err(PathConflict::CaseOnly(first.clone())),
        }
    }

    fn add_parents(&mut self, path: &str) -> Result<(), PathConflict> {
        match path.rsplit_once('/') {
            Some((parent, _)) => self.add_directory(parent),
            None => Ok(()),
        }
    }
}

/// Returns a path as case-insensitive file systems compare it.
fn folded(path: &str) -> String {
    path.to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::{PathRegistry, path_violation};

    #[test]
    fn ordinary_paths_are_valid() {
        for path in ["a.py", "a/b/c.py", "a/", "é/ü.txt", "a..b/c", "...", "a b.txt"] {
            assert_eq!(path_violation(path), None, "{path}");
        }
    }

    #[test]
    fn absolute_relative_and_malformed_paths_are_refused() {
        for path in [
            "", "/", "/a", "//a", "../a", "a/../b", "a/..", "./a", "a//b", "a\\b", "..\\a", "C:/a", "c:a", "a\0b",
            "a\nb", "a/./b",
        ] {
            assert!(path_violation(path).is_some(), "{path:?}");
        }
        assert!(path_violation(&"a/".repeat(600)).is_some());
        assert!(path_violation(&"a".repeat(300)).is_some());
    }

    #[test]
    fn conflicting_paths_are_refused() {
        let mut paths = PathRegistry::default();
        paths.add_file("a/b.py").unwrap();
        paths.add_directory("a").unwrap();
        assert!(paths.add_file("a/b.py").unwrap_err().to_string().contains("twice"));
        assert!(paths.add_file("a/B.py").unwrap_err().to_string().contains("case"));
        assert!(paths.add_file("A/c.py").unwrap_err().to_string().contains("case"));
        assert!(paths.add_file("a").unwrap_err().to_string().contains("file and a directory"));
        assert!(paths.add_file("a/b.py/c").unwrap_err().to_string().contains("file and a directory"));
    }
}

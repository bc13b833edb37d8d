//! Which paths a file of an archive may have, and that no two of them mean the same.

use std::collections::HashMap;

/// Longest path, in bytes.
const MAX_PATH: usize = 1024;
/// Longest part of a path, in bytes: what Linux allows.
const MAX_COMPONENT: usize = 255;

/// Says what is wrong with a path of an archive, which may end with `/` for a directory.
pub(super) fn objection(path: &str) -> Option<&'static str> {
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
    if plain.len() > MAX_PATH {
        return Some("it is too long");
    }
    for component in plain.split('/') {
        match component {
            "" => return Some("it has an empty part"),
            "." | ".." => return Some("it leads elsewhere"),
            _ if component.len() > MAX_COMPONENT => return Some("it has a part that is too long"),
            _ => {}
        }
    }
    None
}

/// The paths taken so far. Those that differ in case alone are one file on some systems, and so are refused on all.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// Folded path to the path as it was first written, and what it is.
    paths: HashMap<String, (String, Kind)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Directory,
}

impl Taken {
    /// Takes a file's path. Says what is wrong if it, or a directory above it, stands for something else already.
    pub(super) fn file(&mut self, path: &str) -> Result<(), String> {
        self.directories_above(path)?;
        match self.paths.insert(folded(path), (path.to_owned(), Kind::File)) {
            None => Ok(()),
            Some((first, Kind::File)) if first == path => Err("it is there twice".to_owned()),
            Some((_, Kind::Directory)) => Err("it is both a file and a directory".to_owned()),
            Some((first, Kind::File)) => Err(format!("it differs from {first:?} in case alone")),
        }
    }

    /// Takes a directory's path, without `/` at its end.
    pub(super) fn directory(&mut self, path: &str) -> Result<(), String> {
        self.directories_above(path)?;
        match self.paths.get(&folded(path)) {
            None => {
                self.paths.insert(folded(path), (path.to_owned(), Kind::Directory));
                Ok(())
            }
            Some((_, Kind::File)) => Err("it is both a file and a directory".to_owned()),
            Some((first, Kind::Directory)) if first == path => Ok(()),
            Some((first, Kind::Directory)) => Err(format!("it differs from {first:?} in case alone")),
        }
    }

    fn directories_above(&mut self, path: &str) -> Result<(), String> {
        match path.rsplit_once('/') {
            Some((above, _)) => self.directory(above),
            None => Ok(()),
        }
    }
}

/// A path as file systems without case see it.
fn folded(path: &str) -> String {
    path.to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::{Taken, objection};

    #[test]
    fn ordinary_paths_pass() {
        for path in ["a.py", "a/b/c.py", "a/", "é/ü.txt", "a..b/c", "...", "a b.txt"] {
            assert_eq!(objection(path), None, "{path}");
        }
    }

    #[test]
    fn paths_that_lead_elsewhere_or_nowhere_are_objected_to() {
        for path in [
            "", "/", "/a", "//a", "../a", "a/../b", "a/..", "./a", "a//b", "a\\b", "..\\a", "C:/a", "c:a", "a\0b",
            "a\nb", "a/./b",
        ] {
            assert!(objection(path).is_some(), "{path:?}");
        }
        assert!(objection(&"a/".repeat(600)).is_some());
        assert!(objection(&"a".repeat(300)).is_some());
    }

    #[test]
    fn a_path_is_taken_once_in_one_case_and_as_one_thing() {
        let mut taken = Taken::default();
        taken.file("a/b.py").unwrap();
        taken.directory("a").unwrap();
        assert!(taken.file("a/b.py").unwrap_err().contains("twice"));
        assert!(taken.file("a/B.py").unwrap_err().contains("case"));
        assert!(taken.file("A/c.py").unwrap_err().contains("case"));
        assert!(taken.file("a").unwrap_err().contains("file and a directory"));
        assert!(taken.file("a/b.py/c").unwrap_err().contains("file and a directory"));
    }
}

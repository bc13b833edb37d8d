//! The search for library files.

use super::error::LinkError;
use super::{Context, LinkState};
use crate::fs::{AT_FDCWD, FileBytes};
use crate::guest_memory::PATH_MAX;

/// The default search path of libc.
const DEFAULT: [&str; 2] = ["/usr/lib", "/lib"];

/// A library file that may be loaded.
pub(super) struct LibraryFile {
    /// An absolute path without `.` and `..`.
    pub(super) path: String,
    /// Its index among the loaded libraries, or else the file's contents.
    pub(super) file: Result<usize, FileBytes>,
}

/// Finds the file that a program passes to `dlopen`. A name with a slash is a path; for others, libc has searched its
/// own search path before it calls the host.
pub(super) fn resolve_dlopen(store: &mut Context<'_>, name: &str) -> Result<LibraryFile, LinkError> {
    if name.contains('/') {
        let directory = store.data().files.working_directory(PATH_MAX).unwrap_or_else(|_| "/".into());
        return first_of(store, name, vec![join(&directory, name)]);
    }
    let directories = environment_path(store).into_iter().chain(DEFAULT.map(String::from));
    let candidates = directories.map(|directory| join(&directory, name)).collect();
    first_of(store, name, candidates)
}

/// Finds the file of a dependency of the library at `requester`, whose run path is `runtime_path`.
pub(super) fn resolve_needed(
    store: &mut Context<'_>,
    requester: &str,
    runtime_path: &[String],
    name: &str,
) -> Result<LibraryFile, LinkError> {
    let origin = requester.rsplit_once('/').map_or("/", |(directory, _)| directory);
    if name.contains('/') {
        return first_of(store, name, vec![join(origin, &with_origin(name, origin))]);
    }
    let runtime = runtime_path.iter().map(|entry| with_origin(entry, origin)).collect::<Vec<_>>();
    let directories =
        runtime.into_iter().chain(environment_path(store)).chain([origin.to_owned()]).chain(DEFAULT.map(String::from));
    let candidates = directories.map(|directory| join(&join(origin, &directory), name)).collect();
    first_of(store, name, candidates)
}

/// Returns `LD_LIBRARY_PATH` as set when the program was started.
fn environment_path(store: &Context<'_>) -> Vec<String> {
    let value = store.data().environment.iter().find_map(|entry| entry.strip_prefix("LD_LIBRARY_PATH="));
    value.into_iter().flat_map(|value| value.split(':')).filter(|entry| !entry.is_empty()).map(String::from).collect()
}

/// Returns the first candidate that is loaded or that the host installed. Files that the guest wrote are skipped, but
/// the error mentions the first of them if it finds no other.
fn first_of(store: &mut Context<'_>, name: &str, candidates: Vec<String>) -> Result<LibraryFile, LinkError> {
    let mut foreign = None;
    for path in &candidates {
        let host = store.data_mut();
        if let Some(index) = LinkState::by_path(&host.linked, path) {
            return Ok(LibraryFile { path: path.clone(), file: Ok(index) });
        }
        if let Some(bytes) = host.files.unmodified(path) {
            return Ok(LibraryFile { path: path.clone(), file: Err(bytes) });
        }
        if foreign.is_none() && host.files.stat_at(AT_FDCWD, path, true).is_ok() {
            foreign = Some(path.clone());
        }
    }
    Err(match foreign {
        Some(path) => LinkError::NotInstalled { path },
        None => LinkError::NotFound { name: name.to_owned(), searched: directories_of(&candidates) },
    })
}

fn directories_of(candidates: &[String]) -> String {
    let mut directories: Vec<&str> = Vec::new();
    for candidate in candidates {
        let directory = match candidate.rsplit_once('/') {
            Some(("", _)) | None => "/",
            Some((directory, _)) => directory,
        };
        if !directories.contains(&directory) {
            directories.push(directory);
        }
    }
    directories.join(":")
}

/// Replaces `$ORIGIN` by the directory of the requesting library.
fn with_origin(path: &str, origin: &str) -> String {
    path.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)
}

/// Joins `path` to `directory` and removes `.` and `..`, ignoring links as Emscripten does (`PATH.normalize`).
fn join(directory: &str, path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    let from = if path.starts_with('/') { "" } else { directory };
    for part in from.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_made_absolute_and_plain() {
        assert_eq!(join("/a/b", "c.so"), "/a/b/c.so");
        assert_eq!(join("/a/b", "/c/./d//e.so"), "/c/d/e.so");
        assert_eq!(join("/a/b", "../../../x.so"), "/x.so");
        assert_eq!(join("/site/numpy", &with_origin("$ORIGIN/../numpy.libs", "/site/numpy")), "/site/numpy.libs");
    }

    #[test]
    fn an_error_lists_each_directory_once() {
        let candidates = ["/lib/x.so", "/usr/lib/x.so", "/lib/x.so", "/x.so"].map(String::from);
        assert_eq!(directories_of(&candidates), "/lib:/usr/lib:/");
    }
}

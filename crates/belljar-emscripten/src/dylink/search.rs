//! Where a library is looked for.

use super::error::LinkError;
use super::{Context, Linked};
use crate::fs::{AT_FDCWD, FileBytes};
use crate::guest::PATH_MAX;

/// Where libc looks when nothing else is said.
const DEFAULT: [&str; 2] = ["/usr/lib", "/lib"];

/// A library file that may be loaded.
pub(super) struct Found {
    /// Absolute, without `.` and `..`.
    pub(super) path: String,
    /// Its place among the loaded libraries, if it is there already; else the file's contents.
    pub(super) file: Result<usize, FileBytes>,
}

/// The file that a program names in `dlopen`. A name with a slash is a path; libc has looked for others itself, in
/// its own search path, before it asks the host.
pub(super) fn for_program(store: &mut Context<'_>, name: &str) -> Result<Found, LinkError> {
    if name.contains('/') {
        let directory = store.data().files.working_directory(PATH_MAX).unwrap_or_else(|_| "/".into());
        return first_of(store, name, vec![join(&directory, name)]);
    }
    let directories = environment_path(store).into_iter().chain(DEFAULT.map(String::from));
    let candidates = directories.map(|directory| join(&directory, name)).collect();
    first_of(store, name, candidates)
}

/// The file that the library at `requester`, whose `runtime_path` is given, names as needed.
pub(super) fn for_library(
    store: &mut Context<'_>,
    requester: &str,
    runtime_path: &[String],
    name: &str,
) -> Result<Found, LinkError> {
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

/// `LD_LIBRARY_PATH` as the program was started with it.
fn environment_path(store: &Context<'_>) -> Vec<String> {
    let value = store.data().environment.iter().find_map(|entry| entry.strip_prefix("LD_LIBRARY_PATH="));
    value.into_iter().flat_map(|value| value.split(':')).filter(|entry| !entry.is_empty()).map(String::from).collect()
}

/// Takes the first candidate that is loaded or that the host installed. A file that the guest wrote stands in
/// nobody's way, but it is what the error is about when there is no other.
fn first_of(store: &mut Context<'_>, name: &str, candidates: Vec<String>) -> Result<Found, LinkError> {
    let mut foreign = None;
    for path in &candidates {
        let host = store.data_mut();
        if let Some(index) = Linked::by_path(&host.linked, path) {
            return Ok(Found { path: path.clone(), file: Ok(index) });
        }
        if let Some(bytes) = host.files.pristine(path) {
            return Ok(Found { path: path.clone(), file: Err(bytes) });
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

/// `$ORIGIN` stands for the directory of the library that asks.
fn with_origin(path: &str, origin: &str) -> String {
    path.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)
}

/// `path`, relative to `directory`, without `.` and `..`. As in Emscripten (`PATH.normalize`), links do not count.
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

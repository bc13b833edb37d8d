//! The note about files that a program wrote into its sandbox, which ends with it.

use belljar_emscripten::fs::{FileType, Filesystem};
use belljar_python::SESSION_DIRECTORY;

use crate::console::print_note;
use crate::siblings::Siblings;

/// The maximum number of files that are looked at, and of names in the note.
const MAX_FILES: usize = 10_000;
const MAX_NAMES: usize = 3;
/// The maximum length of a name in the note, in characters.
const MAX_NAME: usize = 80;

/// Writes a note to standard error if the program has written files into its working directory.
pub(crate) fn report(files: &mut Filesystem, siblings: &Siblings) {
    // Files in a directory of the host are kept.
    if files.is_on_host(SESSION_DIRECTORY) {
        return;
    }
    let Ok(listing) = files.list(SESSION_DIRECTORY, MAX_FILES) else { return };
    let is_internal = |path: &str| path.split('/').any(|name| name.starts_with('.') || name == "__pycache__");
    let written = listing.files.into_iter().filter(|file| file.file_type == FileType::Regular);
    let paths = written.map(|file| file.path).filter(|path| !is_internal(path) && !siblings.contains(path));
    if let Some(note) = describe(&paths.collect::<Vec<_>>()) {
        print_note(&note);
    }
}

/// Returns the note about these files, whose names the program chose.
fn describe(paths: &[String]) -> Option<String> {
    let name = |path: &String| path.chars().take(MAX_NAME).flat_map(char::escape_debug).collect::<String>();
    let mut names = paths.iter().take(MAX_NAMES).map(name).collect::<Vec<_>>().join(", ");
    match paths.len().saturating_sub(MAX_NAMES) {
        0 if paths.is_empty() => return None,
        0 => {}
        1 => names.push_str(" and 1 other file"),
        more => names.push_str(&format!(" and {more} other files")),
    }
    Some(format!(
        "not kept after the run: {names}\nhint: --mount DIR:/out:rw keeps the files that the code writes to /out"
    ))
}

#[cfg(test)]
mod tests {
    use super::describe;

    #[test]
    fn names_are_bounded_and_escaped() {
        assert_eq!(describe(&[]), None);
        let note = describe(&["\u{1b}[31ma".into(), "b".repeat(1000), "c".into(), "d".into(), "e".into()]).unwrap();
        let names = format!("\\u{{1b}}[31ma, {}, c and 2 other files", "b".repeat(80));
        assert!(note.starts_with(&format!("not kept after the run: {names}\nhint: ")), "{note}");
    }
}

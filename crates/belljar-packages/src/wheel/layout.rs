//! The layout of a wheel's files, relative to the interpreter's prefix.

use super::dist_info::{self, DistInfo};
use super::entry_points::{self, SHEBANG};
use super::error::WheelError;
use super::paths::PathRegistry;
use super::{UnpackedFile, UnpackedWheel, Wheel, archive, is_library_name, record, top_level};
use crate::resolution::FileKind;

/// The content of `.dist-info/INSTALLER`.
const INSTALLER: &str = "belljar\n";

/// Checks a wheel and returns its files at their installed paths.
pub(super) fn wheel(wheel: &Wheel, bytes: &[u8]) -> Result<UnpackedWheel, WheelError> {
    let mut files = archive::read(&wheel.filename, bytes)?;
    let info = dist_info::read_consistent(wheel, &files)?;
    record::check(&wheel.filename, &info.directory, &files)?;

    let site = wheel.platform.site_packages();
    let entry_points_path = format!("{}/entry_points.txt", info.directory);
    let scripts = match files.get(&entry_points_path) {
        Some(text) => entry_points::scripts(&String::from_utf8_lossy(text)),
        None => Vec::new(),
    };
    // Both files are replaced: INSTALLER names Belljar, and RECORD lists the installed paths.
    let installer = format!("{}/INSTALLER", info.directory);
    let record_path = format!("{}/RECORD", info.directory);
    for replaced in [&installer, &record_path] {
        files.remove(replaced);
    }

    let mut layout = Layout { wheel, site: &site, paths: PathRegistry::default(), files: Vec::new() };
    for (path, content) in files {
        // Files compiled for another platform are left out, and the package works without them.
        if wheel.kind == FileKind::PythonOnly && is_library_name(&path) {
            continue;
        }
        layout.add(&info, path, content)?;
    }
    for (name, text) in scripts {
        // A package may both contain a script and declare it as an entry point.
        if layout.paths.add_file(&format!("bin/{name}")).is_ok() {
            layout.files.push(UnpackedFile::new(format!("bin/{name}"), text.into_bytes()));
        }
    }
    layout.push(format!("{site}/{installer}"), INSTALLER.as_bytes().to_vec())?;

    let mut files = layout.files;
    let record_path = format!("{site}/{record_path}");
    let record = record::for_layout(&site, &record_path, &files);
    files.push(UnpackedFile::new(record_path, record.into_bytes()));
    files.sort_by(|one, other| one.path.cmp(&other.path));
    let prefix = format!("{site}/");
    let top_level = top_level::modules(files.iter().filter_map(|file| file.path.strip_prefix(&prefix)));
    Ok(UnpackedWheel { files, top_level })
}

/// Returns the libraries in one of Pyodide's zips. These have no RECORD; Pyodide's lock has the hash of the whole zip.
pub(super) fn shared_library(wheel: &Wheel, bytes: &[u8]) -> Result<UnpackedWheel, WheelError> {
    let mut layout = Layout { wheel, site: "", paths: PathRegistry::default(), files: Vec::new() };
    for (path, content) in archive::read(&wheel.filename, bytes)? {
        // Skip static libraries and headers, which are used by builds only.
        if !is_library_name(&path) {
            continue;
        }
        let name = path.rsplit('/').next().unwrap_or(&path).to_owned();
        layout.push(format!("lib/{name}"), content)?;
    }
    Ok(UnpackedWheel { files: layout.files, top_level: Vec::new() })
}

struct Layout<'a> {
    wheel: &'a Wheel,
    site: &'a str,
    paths: PathRegistry,
    files: Vec<UnpackedFile>,
}

impl Layout<'_> {
    /// Adds one of the archive's files at its installed path.
    fn add(&mut self, info: &DistInfo, path: String, content: Vec<u8>) -> Result<(), WheelError> {
        let inside = |directory: &String| path.strip_prefix(directory.as_str()).and_then(|rest| rest.strip_prefix('/'));
        let Some(rest) = info.data.as_ref().and_then(inside) else {
            return self.push(format!("{}/{path}", self.site), content);
        };
        match rest.split_once('/') {
            Some(("purelib" | "platlib", rest)) => self.push(format!("{}/{rest}", self.site), content),
            Some(("headers", _)) => Ok(()),
            Some(("scripts", name)) if entry_points::is_command(name) => match script(&content) {
                Some(text) => self.push(format!("bin/{name}"), text),
                // A native executable, which the guest cannot run.
                None => Ok(()),
            },
            Some(("data", rest)) => {
                let reserved = rest.starts_with("lib/python") || rest.starts_with("bin/python");
                match reserved {
                    true => Err(self.refuse(&path, "packages must not install files into Python's own directories")),
                    false => self.push(rest.to_owned(), content),
                }
            }
            _ => Err(self.refuse(&path, "the wheel format does not define this part of a .data directory")),
        }
    }

    fn push(&mut self, path: String, content: Vec<u8>) -> Result<(), WheelError> {
        self.paths.add_file(&path).map_err(|conflict| self.refuse(&path, &conflict.to_string()))?;
        self.files.push(UnpackedFile::new(path, content));
        Ok(())
    }

    fn refuse(&self, path: &str, reason: &str) -> WheelError {
        WheelError::Path { file: self.wheel.filename.clone(), path: path.to_owned(), reason: reason.to_owned() }
    }
}

/// Returns a script with its first line set to the guest's interpreter, or `None` if it is not a text file.
fn script(content: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(content).ok().filter(|text| !text.contains('\0'))?;
    let Some(rest) = text.strip_prefix("#!python") else { return Some(content.to_vec()) };
    let rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
    Some(format!("{SHEBANG}{rest}").into_bytes())
}

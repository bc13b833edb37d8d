//! Where the files of an archive go, relative to the interpreter's prefix.

use super::dist_info::{self, DistInfo};
use super::entry_points::{self, SHEBANG};
use super::error::WheelError;
use super::paths::Taken;
use super::{Unpacked, UnpackedFile, Wheel, archive, is_library_name, record, top_level};
use crate::resolution::Kind;

/// What stands in `.dist-info/INSTALLER`.
const INSTALLER: &str = "belljar\n";

/// The files of a wheel, checked and laid out.
pub(super) fn wheel(wheel: &Wheel, bytes: &[u8]) -> Result<Unpacked, WheelError> {
    let mut files = archive::read(&wheel.filename, bytes)?;
    let info = dist_info::agree(wheel, &files)?;
    record::check(&wheel.filename, &info.directory, &files)?;

    let site = wheel.platform.site_packages();
    let entry_points_path = format!("{}/entry_points.txt", info.directory);
    let scripts = match files.get(&entry_points_path) {
        Some(text) => entry_points::scripts(&String::from_utf8_lossy(text)),
        None => Vec::new(),
    };
    // Both are written anew: who installed, and where the files are.
    let installer = format!("{}/INSTALLER", info.directory);
    let record_path = format!("{}/RECORD", info.directory);
    for gone in [&installer, &record_path] {
        files.remove(gone);
    }

    let mut layout = Layout { wheel, site: &site, taken: Taken::default(), files: Vec::new() };
    for (path, content) in files {
        // What was compiled for another platform is of no use, and the package does without it.
        if wheel.kind == Kind::PythonOnly && is_library_name(&path) {
            continue;
        }
        layout.place(&info, path, content)?;
    }
    for (name, text) in scripts {
        // A package may ship a script and declare it too.
        if layout.taken.file(&format!("bin/{name}")).is_ok() {
            layout.files.push(UnpackedFile::new(format!("bin/{name}"), text.into_bytes()));
        }
    }
    layout.push(format!("{site}/{installer}"), INSTALLER.as_bytes().to_vec())?;

    let mut files = layout.files;
    let record_path = format!("{site}/{record_path}");
    let record = record::of_layout(&site, &record_path, &files);
    files.push(UnpackedFile::new(record_path, record.into_bytes()));
    files.sort_by(|one, other| one.path.cmp(&other.path));
    let prefix = format!("{site}/");
    let top_level = top_level::modules(files.iter().filter_map(|file| file.path.strip_prefix(&prefix)));
    Ok(Unpacked { files, top_level })
}

/// The libraries of one of Pyodide's zips, which have no RECORD: the hash of the whole stands in Pyodide's lock.
pub(super) fn shared_library(wheel: &Wheel, bytes: &[u8]) -> Result<Unpacked, WheelError> {
    let mut layout = Layout { wheel, site: "", taken: Taken::default(), files: Vec::new() };
    for (path, content) in archive::read(&wheel.filename, bytes)? {
        // Static libraries and headers are for building.
        if !is_library_name(&path) {
            continue;
        }
        let name = path.rsplit('/').next().unwrap_or(&path).to_owned();
        layout.push(format!("lib/{name}"), content)?;
    }
    Ok(Unpacked { files: layout.files, top_level: Vec::new() })
}

struct Layout<'a> {
    wheel: &'a Wheel,
    site: &'a str,
    taken: Taken,
    files: Vec<UnpackedFile>,
}

impl Layout<'_> {
    /// Finds the place of one of the archive's files.
    fn place(&mut self, info: &DistInfo, path: String, content: Vec<u8>) -> Result<(), WheelError> {
        let inside = |directory: &String| path.strip_prefix(directory.as_str()).and_then(|rest| rest.strip_prefix('/'));
        let Some(rest) = info.data.as_ref().and_then(inside) else {
            return self.push(format!("{}/{path}", self.site), content);
        };
        match rest.split_once('/') {
            Some(("purelib" | "platlib", rest)) => self.push(format!("{}/{rest}", self.site), content),
            Some(("headers", _)) => Ok(()),
            Some(("scripts", name)) if entry_points::is_command(name) => match script(&content) {
                Some(text) => self.push(format!("bin/{name}"), text),
                // A program for some machine: nothing that the guest could run.
                None => Ok(()),
            },
            Some(("data", rest)) => {
                let reserved = rest.starts_with("lib/python") || rest.starts_with("bin/python");
                match reserved {
                    true => Err(self.refuse(&path, "a package may not put files among Python's own")),
                    false => self.push(rest.to_owned(), content),
                }
            }
            _ => Err(self.refuse(&path, "the wheel format has no such place in a .data directory")),
        }
    }

    fn push(&mut self, path: String, content: Vec<u8>) -> Result<(), WheelError> {
        self.taken.file(&path).map_err(|reason| self.refuse(&path, &reason))?;
        self.files.push(UnpackedFile::new(path, content));
        Ok(())
    }

    fn refuse(&self, path: &str, reason: &str) -> WheelError {
        WheelError::Path { file: self.wheel.filename.clone(), path: path.to_owned(), reason: reason.to_owned() }
    }
}

/// A script with its first line set to the guest's interpreter, if it is a text at all.
fn script(content: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(content).ok().filter(|text| !text.contains('\0'))?;
    let Some(rest) = text.strip_prefix("#!python") else { return Some(content.to_vec()) };
    let rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
    Some(format!("{SHEBANG}{rest}").into_bytes())
}

//! The modules that are in the same folder as a program: finds those that it imports, for copying into the sandbox.
//!
//! They are found from the source text, without running it: the modules that the program imports, those that these
//! import, and so on. Only these files become visible to the code. A module that is chosen while the code runs
//! (`importlib.import_module(name)`) is not found.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use belljar_emscripten::fs::Filesystem;
use belljar_packages::inference::in_standard_library;
use belljar_packages::{ImportedModule, imported_modules};
use belljar_python::SESSION_DIRECTORY;

use crate::command_error::CommandError;

/// The maximum number of files.
const MAX_FILES: usize = 1000;
/// The maximum size of all files, in bytes.
const MAX_BYTES: usize = 16 << 20;
/// The maximum number of parts of a module's name.
const MAX_PARTS: usize = 32;
/// The file that makes a folder a regular package.
const INIT: &str = "__init__.py";

/// The modules that a program imports from its own folder.
#[derive(Debug, Default)]
pub(crate) struct Siblings {
    /// The contents of the files, by path relative to the folder.
    files: BTreeMap<String, Vec<u8>>,
    /// The top-level modules that the files provide.
    modules: BTreeSet<String>,
    /// The files and folders that are links to places outside of the folder. They are not copied.
    refused: BTreeSet<String>,
}

impl Siblings {
    /// Finds the modules that `sources`, which are in `folder`, import.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read, or if there are too many.
    pub(crate) fn find<'a>(folder: &Path, sources: impl IntoIterator<Item = &'a str>) -> Result<Self, CommandError> {
        let root = folder.canonicalize().map_err(|error| format!("failed to open {}: {error}", folder.display()))?;
        let mut search = Search { root, found: Self::default(), sources: VecDeque::new(), bytes: 0 };
        for source in sources {
            search.add_imports(source, &[])?;
        }
        while let Some((source, package)) = search.sources.pop_front() {
            search.add_imports(&source, &package)?;
        }
        Ok(search.found)
    }

    /// Finds the modules that a script imports. They are in the folder of the file itself, also if the script is a link
    /// to it, as in Python. A script that is not a file, such as a pipe, has none.
    ///
    /// # Errors
    /// The same as those of [`Siblings::find`].
    pub(crate) fn for_script(script: &Path, source: &str) -> Result<Self, CommandError> {
        match script.canonicalize().ok().filter(|file| file.is_file()).as_deref().and_then(Path::parent) {
            Some(folder) => Self::find(folder, [source]),
            None => Ok(Self::default()),
        }
    }

    /// Returns the source texts of the files.
    pub(crate) fn sources(&self) -> impl Iterator<Item = String> {
        self.files.values().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    /// Returns the top-level modules that the files provide.
    pub(crate) fn modules(&self) -> impl Iterator<Item = String> {
        self.modules.iter().cloned()
    }

    /// Returns the files and their contents, by path relative to the folder.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.files.iter().map(|(path, bytes)| (path.as_str(), bytes.as_slice()))
    }

    /// Returns whether the program has a file of this path, relative to its folder.
    pub(crate) fn contains(&self, path: &str) -> bool {
        self.files.contains_key(path)
    }

    /// Writes a line to standard error for each file and folder that is a link to a place outside of the folder.
    pub(crate) fn warn_of_refused(&self) {
        for path in &self.refused {
            eprintln!("belljar: {path} is not copied into the sandbox: it is a link to a place outside of the folder");
        }
    }

    /// Copies the files into the working directory of the guest.
    ///
    /// # Errors
    /// Returns an error if the files exceed the guest's disk quota.
    pub(crate) fn copy_into(&self, guest: &mut Filesystem) -> Result<(), CommandError> {
        let failed = |path: &str, error| format!("failed to copy {path} into the sandbox: {error}");
        for (path, bytes) in &self.files {
            let result = guest.write_file(&format!("{SESSION_DIRECTORY}/{path}"), bytes);
            result.map_err(|error| failed(path, error.errno))?;
        }
        Ok(())
    }
}

/// A search in progress.
struct Search {
    /// The folder, without links.
    root: PathBuf,
    found: Siblings,
    /// The sources whose imports have not been searched yet, with the packages that they are in.
    sources: VecDeque<(String, Vec<String>)>,
    /// The size of the files.
    bytes: usize,
}

/// The kind of a path in the folder.
enum Entry {
    File(PathBuf),
    Folder,
    Missing,
    /// A link to a place outside of the folder.
    Outside,
}

impl Search {
    /// Adds the modules that a source imports. `package` is the package that contains the source.
    fn add_imports(&mut self, source: &str, package: &[String]) -> Result<(), CommandError> {
        for ImportedModule { level, name } in imported_modules(source) {
            let mut parts: Vec<&str> = Vec::new();
            if level > 0 {
                // One dot is the package itself.
                let Some(depth) = package.len().checked_sub(level as usize - 1).filter(|depth| *depth > 0) else {
                    continue;
                };
                parts.extend(package[..depth].iter().map(String::as_str));
            }
            parts.extend(name.split('.').filter(|part| !part.is_empty()));
            if !parts.is_empty() {
                self.add_module(&parts)?;
            }
        }
        Ok(())
    }

    /// Adds a module and the packages that it is in, as Python finds them: a package, then a file, then a folder
    /// without `__init__.py`. Such a folder counts only if the module is in it: otherwise Python prefers any package.
    fn add_module(&mut self, parts: &[&str]) -> Result<(), CommandError> {
        let mut folder = String::new();
        for (index, part) in parts.iter().take(MAX_PARTS).enumerate() {
            let path = if index == 0 { (*part).to_owned() } else { format!("{folder}/{part}") };
            let (init, file) = (format!("{path}/{INIT}"), format!("{path}.py"));
            let is_folder = match self.entry(&path) {
                Entry::Folder => true,
                Entry::Outside => {
                    self.refuse(path, parts);
                    break;
                }
                Entry::File(_) | Entry::Missing => false,
            };
            let is_package = is_folder && !matches!(self.entry(&init), Entry::Missing);
            let file = if is_package { init } else { file };
            match self.entry(&file) {
                Entry::File(real) => {
                    let package = &parts[..index + usize::from(is_package)];
                    self.add_file(&file, &real, package.iter().map(|part| (*part).to_owned()).collect())?;
                    self.found.modules.insert(parts[0].to_owned());
                    if !is_package {
                        break;
                    }
                }
                Entry::Outside => {
                    self.refuse(file, parts);
                    break;
                }
                // The standard library takes precedence over a folder without `__init__.py`.
                Entry::Folder | Entry::Missing if !is_folder || (index == 0 && in_standard_library(part)) => break,
                Entry::Folder | Entry::Missing => {}
            }
            folder = path;
        }
        Ok(())
    }

    /// Records a link to a place outside of the folder. The module is not taken from a package either.
    fn refuse(&mut self, path: String, parts: &[&str]) {
        self.found.refused.insert(path);
        self.found.modules.insert(parts[0].to_owned());
    }

    /// Returns what a path is, relative to the folder. Links are followed inside of the folder.
    fn entry(&self, path: &str) -> Entry {
        let Ok(real) = self.root.join(path).canonicalize() else { return Entry::Missing };
        if !real.starts_with(&self.root) {
            return Entry::Outside;
        }
        match real.metadata() {
            Ok(metadata) if metadata.is_file() => Entry::File(real),
            Ok(metadata) if metadata.is_dir() => Entry::Folder,
            _ => Entry::Missing,
        }
    }

    /// Adds a file, whose imports are searched later.
    fn add_file(&mut self, path: &str, file: &Path, package: Vec<String>) -> Result<(), CommandError> {
        if self.found.files.contains_key(path) {
            return Ok(());
        }
        let too_large = |limit: String| {
            CommandError::new(format!("the program imports more than {limit} of modules in its own folder"))
                .with_hint("--mount FOLDER:/home makes a folder visible as a whole")
        };
        if self.found.files.len() >= MAX_FILES {
            return Err(too_large(format!("{MAX_FILES} files")));
        }
        let room = MAX_BYTES - self.bytes;
        let mut bytes = Vec::new();
        let read = File::open(file).and_then(|file| file.take(room as u64 + 1).read_to_end(&mut bytes));
        read.map_err(|error| format!("failed to read {path}: {error}"))?;
        if bytes.len() > room {
            return Err(too_large(format!("{} MiB", MAX_BYTES >> 20)));
        }
        self.bytes += bytes.len();
        self.sources.push_back((String::from_utf8_lossy(&bytes).into_owned(), package));
        self.found.files.insert(path.to_owned(), bytes);
        Ok(())
    }
}

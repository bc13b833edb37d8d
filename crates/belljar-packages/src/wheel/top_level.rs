//! The modules that a wheel provides, inferred from the paths of its files.

use std::collections::{BTreeMap, BTreeSet};

use super::is_library_name;

/// Returns the top-level modules and packages, sorted. A namespace package, which has no `__init__`, is replaced by the
/// packages in it: `google.protobuf`. `paths` are relative to site-packages.
pub(super) fn modules<'a>(paths: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut root = Directory::default();
    for path in paths {
        root.add(path);
    }
    let mut found = BTreeSet::new();
    root.collect("", &mut found);
    found.into_iter().collect()
}

#[derive(Default)]
struct Directory<'a> {
    modules: BTreeSet<&'a str>,
    directories: BTreeMap<&'a str, Directory<'a>>,
}

impl<'a> Directory<'a> {
    fn add(&mut self, path: &'a str) {
        match path.split_once('/') {
            Some((directory, rest)) if is_identifier(directory) && directory != "__pycache__" => {
                self.directories.entry(directory).or_default().add(rest);
            }
            Some(_) => {}
            None => self.modules.extend(module(path)),
        }
    }

    fn collect(&self, prefix: &str, found: &mut BTreeSet<String>) {
        found.extend(self.modules.iter().map(|module| format!("{prefix}{module}")));
        for (name, directory) in &self.directories {
            if directory.modules.contains("__init__") {
                found.insert(format!("{prefix}{name}"));
            } else {
                directory.collect(&format!("{prefix}{name}."), found);
            }
        }
    }
}

/// Returns the name of a file's module: `a` for `a.py`, `a.so` and `a.cpython-314-wasm32-emscripten.so`.
fn module(file: &str) -> Option<&str> {
    let name = match file.strip_suffix(".py") {
        Some(name) => name,
        None if is_library_name(file) => file.split('.').next()?,
        None => return None,
    };
    is_identifier(name).then_some(name)
}

fn is_identifier(name: &str) -> bool {
    !name.starts_with(|first: char| first.is_ascii_digit())
        && !name.is_empty()
        && name.chars().all(|character| character == '_' || character.is_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::modules;

    #[test]
    fn packages_modules_libraries_and_namespaces_are_found() {
        let paths = [
            "six.py",
            "yaml/__init__.py",
            "yaml/loader.py",
            "_yaml.cpython-314-wasm32-emscripten.so",
            "google/protobuf/__init__.py",
            "google/protobuf/any.py",
            "ruamel/yaml/main.py",
            "six-1.0.dist-info/METADATA",
            "__pycache__/six.pyc",
            "data/readme.txt",
        ];
        assert_eq!(modules(paths.into_iter()), ["_yaml", "google.protobuf", "ruamel.yaml.main", "six", "yaml"]);
    }
}

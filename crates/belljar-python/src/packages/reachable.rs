//! The modules of wheels that an import executes, as far as their sources show. Only these are compiled to bytecode
//! before they are needed: most programs import a small part of the packages that they install.
//!
//! The result depends on the wheels and the imports alone: it determines which bytecode an image is built with, and
//! images are reproducible.

use std::collections::{BTreeSet, HashMap};

use belljar_emscripten::fs::{FileBytes, LayerContent};
use belljar_packages::{ImportedModule, imported_modules, modules_imported_on_import};

use super::set::PackageSet;
use super::wheel::is_module;

/// The version of the rules below. It is part of the keys of images.
pub(crate) const VERSION: u32 = 1;

/// The imports that are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Those that run when a module is imported.
    Imports,
    /// Those in functions, too.
    Functions,
}

/// The paths in the guest, without a leading slash, of the sources of modules: one list for each wheel of a set.
pub(crate) type ModulePaths = Vec<Vec<String>>;

/// A module of a set.
struct Module {
    wheel: usize,
    path: String,
    source: FileBytes,
    is_package: bool,
}

/// Returns the modules of `set` that importing the modules `roots` (dotted names) imports, with the packages around
/// them, but without those in `left_out` and what only these import.
pub(crate) fn reachable(set: &PackageSet, roots: &[String], reach: Reach, left_out: &[&str]) -> ModulePaths {
    let modules = modules(set);
    let mut paths = vec![Vec::new(); set.wheels().len()];
    let mut seen = BTreeSet::new();
    let mut pending: Vec<String> = roots.to_vec();
    while let Some(name) = pending.pop() {
        let is_left_out = |name: &str| left_out.iter().any(|module| is_in(name, module));
        for name in with_packages(&name).filter(|name| !is_left_out(name)) {
            let Some((name, module)) = modules.get_key_value(name) else { continue };
            if !seen.insert(name) {
                continue;
            }
            paths[module.wheel].push(module.path.clone());
            let Ok(source) = std::str::from_utf8(&module.source) else { continue };
            let imports = match reach {
                Reach::Imports => modules_imported_on_import(source),
                Reach::Functions => imported_modules(source),
            };
            pending.extend(imports.iter().filter_map(|import| absolute(import, name, module.is_package)));
        }
    }
    paths.iter_mut().for_each(|paths| paths.sort());
    paths
}

/// Returns all modules of `set`.
pub(crate) fn all(set: &PackageSet) -> ModulePaths {
    let mut paths = vec![Vec::new(); set.wheels().len()];
    for module in modules(set).into_values() {
        paths[module.wheel].push(module.path);
    }
    paths.iter_mut().for_each(|paths| paths.sort());
    paths
}

/// Returns the modules of a set by their dotted names. Where wheels provide the same module, the last one counts.
fn modules(set: &PackageSet) -> HashMap<String, Module> {
    let mut modules = HashMap::new();
    for (wheel, installed) in set.wheels().iter().enumerate() {
        for (path, content) in installed.layer.contents() {
            let LayerContent::File(source) = content else { continue };
            let Some((_, relative)) = path.split_once("/site-packages/").filter(|_| is_module(&path)) else { continue };
            let stem = relative.strip_suffix(".py").unwrap_or(relative);
            let (stem, is_package) = match stem.strip_suffix("/__init__") {
                Some(package) => (package, true),
                None => (stem, false),
            };
            let name = stem.replace('/', ".");
            modules.insert(name, Module { wheel, source: source.clone(), is_package, path });
        }
    }
    modules
}

/// Returns the packages around a module, the outermost first, and the module.
fn with_packages(name: &str) -> impl Iterator<Item = &str> {
    let ends = name.match_indices('.').map(|(at, _)| at).chain([name.len()]);
    ends.map(|end| &name[..end])
}

/// Returns whether the module `name` is `package`, or one of its modules.
fn is_in(name: &str, package: &str) -> bool {
    name.strip_prefix(package).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Returns the absolute name of a module that the module `name` imports.
fn absolute(import: &ImportedModule, name: &str, is_package: bool) -> Option<String> {
    if import.level == 0 {
        return Some(import.name.clone());
    }
    // One dot is the package itself.
    let outward = import.level as usize - usize::from(is_package);
    let package =
        (0..outward).try_fold(name, |name, _| Some(name.rsplit_once('.').map_or("", |(package, _)| package)))?;
    match (package.is_empty(), import.name.is_empty()) {
        (true, _) => None,
        (false, true) => Some(package.to_owned()),
        (false, false) => Some(format!("{package}.{}", import.name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_imports_start_at_the_package() {
        let absolute = |level, name: &str, module, is_package| {
            absolute(&ImportedModule { level, name: name.into() }, module, is_package)
        };
        assert_eq!(absolute(0, "x.y", "a.b", false).as_deref(), Some("x.y"));
        assert_eq!(absolute(1, "c", "a.b", false).as_deref(), Some("a.c"));
        assert_eq!(absolute(1, "c", "a.b", true).as_deref(), Some("a.b.c"));
        assert_eq!(absolute(2, "c.d", "a.b", true).as_deref(), Some("a.c.d"));
        assert_eq!(absolute(1, "", "a.b", false).as_deref(), Some("a"));
        assert_eq!(absolute(5, "c", "a.b", false), None);
        assert_eq!(absolute(2, "c", "a", false), None);
    }

    #[test]
    fn packages_come_before_their_modules() {
        assert_eq!(with_packages("a.bc.d").collect::<Vec<_>>(), ["a", "a.bc", "a.bc.d"]);
    }
}

//! Every Rust file of every crate's tests is compiled: a file that no `mod` names would be a test that nothing runs.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use regex::Regex;

#[test]
fn every_test_file_belongs_to_a_module() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let mut packages: Vec<PathBuf> = subfolders(&workspace.join("crates"));
    packages.push(workspace.join("xtask"));
    let folders: Vec<PathBuf> =
        packages.iter().map(|package| package.join("tests")).filter(|tests| tests.is_dir()).collect();
    assert!(folders.len() >= 5, "tests of the crates were not found: {folders:?}");
    let forgotten: Vec<PathBuf> = folders.iter().flat_map(|tests| forgotten(tests)).collect();
    assert_eq!(forgotten, Vec::<PathBuf>::new(), "no `mod` names these files");
}

#[test]
fn a_file_without_a_module_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("alone.rs", "");
    write(
        "it/main.rs",
        "mod a;\npub(crate) mod b;\n#[cfg(x)]\n#[path = \"c_linux.rs\"]\n#[allow(x)]\nmod c;\nmod inline {}\n",
    );
    write("it/a.rs", "mod inner;");
    write("it/a/inner.rs", "// mod comment;");
    write("it/b/mod.rs", "mod near;");
    write("it/b/near.rs", "");
    write("it/c_linux.rs", "");
    assert_eq!(forgotten(folder.path()), Vec::<PathBuf>::new());
    write("it/b/far.rs", "");
    write("it/a/comment.rs", "");
    write("it/inline.rs", "");
    let expected = ["it/a/comment.rs", "it/b/far.rs", "it/inline.rs"].map(|path| folder.path().join(path));
    assert_eq!(forgotten(folder.path()), expected);
}

/// Returns the Rust files below `tests` that neither are the root of a test program nor belong to one.
fn forgotten(tests: &Path) -> Vec<PathBuf> {
    // Cargo finds `tests/name.rs` and `tests/name/main.rs`.
    let mut roots: Vec<PathBuf> = files(tests).into_iter().filter(|file| is_rust(file)).collect();
    roots.extend(subfolders(tests).into_iter().map(|folder| folder.join("main.rs")).filter(|root| root.exists()));
    let mut reached = BTreeSet::new();
    for root in roots {
        let folder = root.parent().unwrap().to_owned();
        reach(&root, &folder, &mut reached);
    }
    let mut all = BTreeSet::new();
    collect(tests, &mut all);
    all.difference(&reached).cloned().collect()
}

/// Adds `file` and the files of its modules, which are in `folder`, to `reached`.
fn reach(file: &Path, folder: &Path, reached: &mut BTreeSet<PathBuf>) {
    if !reached.insert(normal(file)) {
        return;
    }
    let declaration = Regex::new(
        r#"(?m)^\s*(?:#\[path = "([^"]+)"\]\s*(?:#\[[^\]]*\]\s*)*)?(?:pub(?:\([a-z]+\))?\s+)?mod\s+(\w+)\s*;"#,
    )
    .unwrap();
    let text = std::fs::read_to_string(file).unwrap();
    for found in declaration.captures_iter(&text) {
        if let Some(path) = found.get(1) {
            let file = file.parent().unwrap().join(path.as_str());
            let folder = file.parent().unwrap().to_owned();
            reach(&file, &folder, reached);
            continue;
        }
        let name = &found[2];
        let within = folder.join(name);
        let candidates = [folder.join(format!("{name}.rs")), within.join("mod.rs")];
        if let Some(file) = candidates.iter().find(|file| file.exists()) {
            reach(file, &within, reached);
        }
    }
}

/// Removes `..` from a path, as `#[path]` may have it.
fn normal(path: &Path) -> PathBuf {
    path.canonicalize().unwrap()
}

fn collect(folder: &Path, all: &mut BTreeSet<PathBuf>) {
    all.extend(files(folder).iter().filter(|file| is_rust(file)).map(|file| normal(file)));
    for folder in subfolders(folder) {
        collect(&folder, all);
    }
}

fn is_rust(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "rs")
}

fn files(folder: &Path) -> Vec<PathBuf> {
    entries(folder).into_iter().filter(|entry| entry.is_file()).collect()
}

fn subfolders(folder: &Path) -> Vec<PathBuf> {
    entries(folder).into_iter().filter(|entry| entry.is_dir()).collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect()
}

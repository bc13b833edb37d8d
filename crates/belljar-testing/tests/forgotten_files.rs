//! Every file of every crate's tests is used. A Rust file that no `mod` names, a Python file that pytest does not
//! collect, and a data file that no test reads would be tests that nothing runs.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use regex::Regex;

#[test]
fn every_test_file_belongs_to_a_module() {
    let folders: Vec<PathBuf> =
        packages().iter().map(|package| package.join("tests")).filter(|tests| tests.is_dir()).collect();
    assert!(folders.len() >= 5, "tests of the crates were not found: {folders:?}");
    let forgotten: Vec<PathBuf> = folders.iter().flat_map(|tests| forgotten(tests, &roots_of_tests(tests))).collect();
    assert_eq!(forgotten, Vec::<PathBuf>::new(), "no `mod` names these files");
}

#[test]
fn every_source_file_belongs_to_a_module() {
    let folders: Vec<PathBuf> =
        packages().iter().map(|package| package.join("src")).filter(|sources| sources.is_dir()).collect();
    assert!(folders.len() >= 12, "sources of the crates were not found: {folders:?}");
    let forgotten: Vec<PathBuf> =
        folders.iter().flat_map(|sources| forgotten(sources, &roots_of_sources(sources))).collect();
    assert_eq!(forgotten, Vec::<PathBuf>::new(), "no `mod` names these files, some of which may have tests");
}

#[test]
fn every_python_test_file_is_collected() {
    let tests = workspace().join("python/tests");
    let mut found = 0;
    for file in files(&tests).into_iter().filter(|file| has_extension(file, "py")) {
        // Other modules help the tests.
        let has_tests = std::fs::read_to_string(&file).unwrap().contains("def test_");
        assert!(is_collected(&file) || !has_tests, "pytest does not collect {}", file.display());
        found += usize::from(is_collected(&file));
    }
    assert!(found >= 5, "{} has {found} files", tests.display());
}

/// Returns whether pytest collects a file.
fn is_collected(file: &Path) -> bool {
    has_extension(file, "py") && file.file_name().unwrap().to_string_lossy().starts_with("test_")
}

#[test]
fn every_data_file_of_tests_is_read() {
    let mut found = 0;
    let mut unread = Vec::new();
    for package in packages() {
        let mut data = BTreeSet::new();
        let is_data = |file: &Path| !is_rust(file) && !has_extension(file, "snap") && !is_collected(file);
        collect(&package.join("tests"), &is_data, &mut data);
        let mut code = BTreeSet::new();
        for folder in ["tests", "benches", "src"] {
            collect(&package.join(folder), &|file| is_rust(file) || has_extension(file, "py"), &mut code);
        }
        let read = |file: &PathBuf| (file.clone(), std::fs::read_to_string(file).unwrap_or_default());
        let code: Vec<(PathBuf, String)> = code.iter().map(read).collect();
        found += data.len();
        unread.extend(data.into_iter().filter(|file| !is_read(&package, file, &code)));
    }
    assert!(found > 50, "{found} files were found");
    assert_eq!(unread, Vec::<PathBuf>::new(), "no test names these files");
}

/// Folders, relative to a package, all of whose files a test reads: it lists the folder.
const LISTED_FOLDERS: [&str; 2] = ["tests/cells", "tests/snippets/sandboxes"];
/// A folder of which a test reads all files, also those in folders within.
const LISTED_TREE: &str = "tests/stored";

/// Returns whether other code of the package names `file`, or reads its folder.
fn is_read(package: &Path, file: &Path, code: &[(PathBuf, String)]) -> bool {
    let package = normal(package);
    let is_in = |listed: &&str| file.parent().is_some_and(|folder| package.join(listed) == folder);
    if LISTED_FOLDERS.iter().any(is_in) || file.starts_with(package.join(LISTED_TREE)) {
        return true;
    }
    // A name, perhaps without its extension: a list of programs or of Python modules.
    let stem = regex::escape(&file.file_stem().unwrap().to_string_lossy());
    let named = Regex::new(&format!(r"\b{stem}\b")).unwrap();
    code.iter().any(|(path, text)| path != file && named.is_match(text))
}

#[test]
fn file_that_is_not_named_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "").unwrap();
        normal(&path)
    };
    let code = [(folder.path().join("tests/it.rs"), "check(\"named.py\"); programs! { listed }".to_owned())];
    for (path, expected) in [
        ("tests/data/named.py", true),
        ("tests/data/listed.py", true),
        ("tests/cells/any.py", true),
        ("tests/stored/deeper/any", true),
        ("tests/data/forgotten.py", false),
        ("tests/data/list.py", false),
        ("tests/cells/deeper/any.py", false),
    ] {
        assert_eq!(is_read(folder.path(), &write(path), &code), expected, "{path}");
    }
}

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

/// Returns the folders of all packages.
fn packages() -> Vec<PathBuf> {
    let mut packages = subfolders(&workspace().join("crates"));
    packages.extend([workspace().join("xtask"), workspace().join("python")]);
    packages
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
        "mod a;\npub(crate) mod b;\n#[cfg(x)]\n#[path = \"c_linux.rs\"]\n#[allow(x)]\nmod c;\n\
         #[cfg_attr(windows, path = \"d_windows.rs\")]\nmod d;\nmod inline {}\n",
    );
    write("it/a.rs", "mod inner;");
    write("it/a/inner.rs", "// mod comment;");
    write("it/b/mod.rs", "mod near;");
    write("it/b/near.rs", "");
    write("it/c_linux.rs", "");
    write("it/d.rs", "");
    write("it/d_windows.rs", "");
    let forgotten = || forgotten(folder.path(), &roots_of_tests(folder.path()));
    assert_eq!(forgotten(), Vec::<PathBuf>::new());
    write("it/b/far.rs", "");
    write("it/a/comment.rs", "");
    write("it/inline.rs", "");
    let expected = ["it/a/comment.rs", "it/b/far.rs", "it/inline.rs"].map(|path| folder.path().join(path));
    assert_eq!(forgotten(), expected);
}

#[test]
fn a_source_file_without_a_module_is_found() {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in [
        ("lib.rs", "mod a;\n#[cfg(test)]\nmod tests;"),
        ("main.rs", ""),
        ("bin/tool.rs", "mod part;"),
        ("bin/part.rs", ""),
        ("a/mod.rs", "#[cfg(test)]\nmod tests;"),
        ("a/tests/mod.rs", "mod one;"),
        ("a/tests/one.rs", ""),
        ("a/tests/two.rs", ""),
        ("tests.rs", ""),
    ] {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let two = normal(&folder.path().join("a/tests/two.rs"));
    assert_eq!(forgotten(folder.path(), &roots_of_sources(folder.path())), [two]);
}

/// Returns the roots of test programs: Cargo finds `tests/name.rs` and `tests/name/main.rs`.
fn roots_of_tests(tests: &Path) -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> = files(tests).into_iter().filter(|file| is_rust(file)).collect();
    roots.extend(subfolders(tests).into_iter().map(|folder| folder.join("main.rs")).filter(|root| root.exists()));
    roots
}

/// Returns the roots of a library and its programs.
fn roots_of_sources(sources: &Path) -> Vec<PathBuf> {
    let mut roots = vec![sources.join("lib.rs"), sources.join("main.rs")];
    if sources.join("bin").is_dir() {
        roots.extend(roots_of_tests(&sources.join("bin")));
    }
    roots.retain(|root| root.exists());
    roots
}

/// Returns the Rust files below `folder` that neither are one of `roots` nor belong to one.
fn forgotten(folder: &Path, roots: &[PathBuf]) -> Vec<PathBuf> {
    let mut reached = BTreeSet::new();
    for root in roots {
        let folder = root.parent().unwrap().to_owned();
        reach(root, &folder, &mut reached);
    }
    let mut all = BTreeSet::new();
    collect(folder, &is_rust, &mut all);
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
    // The file of a module on another platform.
    let alternative = Regex::new(r#"(?m)^\s*#\[cfg_attr\(\w+, path = "([^"]+)"\)\]"#).unwrap();
    let text = std::fs::read_to_string(file).unwrap();
    for found in alternative.captures_iter(&text) {
        let file = file.parent().unwrap().join(&found[1]);
        let folder = file.parent().unwrap().to_owned();
        reach(&file, &folder, reached);
    }
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

/// Adds the files below `folder` that `belongs` accepts to `all`. A folder that does not exist has none.
fn collect(folder: &Path, belongs: &dyn Fn(&Path) -> bool, all: &mut BTreeSet<PathBuf>) {
    if !folder.is_dir() {
        return;
    }
    all.extend(files(folder).iter().filter(|file| belongs(file)).map(|file| normal(file)));
    for folder in subfolders(folder).iter().filter(|folder| !folder.ends_with("__pycache__")) {
        collect(folder, belongs, all);
    }
}

fn is_rust(file: &Path) -> bool {
    has_extension(file, "rs")
}

fn has_extension(file: &Path, wanted: &str) -> bool {
    file.extension().is_some_and(|extension| extension == wanted)
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

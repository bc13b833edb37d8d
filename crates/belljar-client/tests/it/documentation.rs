//! Checks that every public item has an example, and that the guide is complete. `cargo test --doc` compiles the
//! examples.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{legacy_python, pydantic_ai_2, script};

/// Returns every Rust file under this directory.
fn sources(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

/// Returns the public items of a file whose documentation lacks an example.
fn without_example(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let (mut has_example, mut is_hidden) = (false, false);
    let own = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    for line in own.lines().map(str::trim) {
        if line.starts_with("///") {
            has_example |= line.contains("```");
        } else if line.starts_with("#[") {
            is_hidden |= line.contains("doc(hidden)");
        } else {
            let item = line.strip_prefix("pub ").map(|item| item.trim_start_matches("async "));
            let is_item = item.is_some_and(|item| {
                ["fn ", "struct ", "enum ", "trait ", "type ", "const "].iter().any(|kind| item.starts_with(kind))
            });
            if is_item && !has_example && !is_hidden {
                found.push(line);
            }
            (has_example, is_hidden) = (false, false);
        }
    }
    found
}

#[test]
fn every_public_item_has_an_example() {
    let files = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    assert!(files.len() > 30, "{files:?}");
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let found = without_example(&text);
        assert!(found.is_empty(), "{}: no example for {found:#?}", path.display());
    }
}

#[test]
fn item_without_an_example_is_found() {
    assert_eq!(without_example("/// Does.\npub fn does() {}\n"), ["pub fn does() {}"]);
    assert!(
        without_example("/// ```\n/// does();\n/// ```\n#[must_use]\npub fn does() {}\npub(crate) fn x() {}")
            .is_empty()
    );
}

#[test]
fn code_of_every_page_of_the_guide_is_compiled() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let guide = std::fs::read_to_string(root.join("src/guide.rs")).unwrap();
    let pages = std::fs::read_dir(root.join("../../docs/client")).unwrap();
    let mut names: Vec<String> = pages
        .map(|page| page.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".md"))
        .collect();
    names.sort();
    assert!(names.len() > 5, "{names:?}");
    let walk = std::fs::read_to_string(root.join("../../docs/client.md")).unwrap();
    for name in names {
        assert!(guide.contains(&format!("\"client/{name}\"")), "src/guide.rs does not include {name}");
        assert!(walk.contains(&format!("(client/{name})")), "docs/client.md does not link to {name}");
    }
}

#[test]
fn migration_page_names_every_argument_and_method_of_pydantic_ai() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/client/migration.md");
    let page = std::fs::read_to_string(page).unwrap();
    let words: BTreeSet<&str> = page.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    for python in [legacy_python(), pydantic_ai_2()] {
        let output = Command::new(&python).arg(script("signatures.py")).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let names: Vec<String> = serde_json::from_slice(&output.stdout).unwrap();
        assert!(names.len() > 50, "{names:?}");
        let missing: Vec<&String> = names.iter().filter(|name| !words.contains(name.as_str())).collect();
        assert!(missing.is_empty(), "{python}: {missing:?}");
    }
}

/// Returns the version of a package in the workspace's lock file.
fn locked(package: &str) -> String {
    let lock = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock")).unwrap();
    let entry = lock.split("[[package]]").find(|entry| entry.contains(&format!("name = \"{package}\"\n"))).unwrap();
    entry.split("version = \"").nth(1).unwrap().split('"').next().unwrap().to_owned()
}

#[test]
fn documented_versions_are_those_of_the_build() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap().replace('\n', " ");
    let guide = std::fs::read_to_string(root.join("../../docs/client.md")).unwrap();
    let tested = locked("rmcp");
    assert!(readme.contains(&format!("`rmcp` from 3.9 to before 4: it is tested with {tested},")), "{tested}");
    let minor: u32 = tested.strip_prefix("3.").unwrap().split('.').next().unwrap().parse().unwrap();
    assert!(minor >= 9, "{tested} is outside of the documented range");
    let lowest = env!("CARGO_PKG_RUST_VERSION");
    assert!(readme.contains(&format!("The lowest version of Rust is {lowest}")), "{lowest}");
    assert!(guide.contains(&format!("| Rust | {lowest} and later")), "{lowest}");
}

//! The licences of other software in the wheel: of the Rust crates of the extension module, and of what CPython for
//! WebAssembly consists of.
//!
//! The texts of crates are in their sources, which Cargo has unpacked. For a crate whose sources lack it, the standard
//! text of its licence is included, with the crate's authors. The crate `spdx`, which the module contains as well, has
//! these texts.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::cargo_graph::{LinkedPackages, cargo_metadata};
use crate::workspace::host;

/// The name of the file with the licences, which `pyproject.toml` includes.
pub(super) const FILE: &str = "THIRD-PARTY.txt";

const HEAD: &str = "\
Belljar's Python package contains the software below. Belljar itself is licensed under MIT or Apache-2.0, at your
option. NOTICE.md describes the parts. Texts that several packages share are printed once.

";
/// The software that is not a crate, with the identifiers of the licences whose texts are printed for it: CPython for
/// WebAssembly with the libraries of its built-in modules, and what compilers add.
const BUNDLED: [(&str, &[&str]); 15] = [
    ("CPython and its standard library", &["PSF-2.0", "Python-2.0.1"]),
    ("Pyodide", &["MPL-2.0"]),
    ("Emscripten and its system libraries", &["MIT", "NCSA"]),
    ("musl", &["MIT"]),
    ("LLVM's compiler-rt", &["Apache-2.0 WITH LLVM-exception"]),
    ("zlib", &["Zlib"]),
    ("bzip2", &["bzip2-1.0.6"]),
    ("liblzma of XZ Utils", &["0BSD"]),
    ("Zstandard", &["BSD-3-Clause"]),
    ("SQLite", &["blessing"]),
    ("libffi", &["MIT"]),
    ("Expat", &["MIT"]),
    ("libmpdec", &["BSD-2-Clause"]),
    ("HACL*", &["MIT"]),
    ("Rust's standard library", &["MIT", "Apache-2.0"]),
];
/// The beginnings of the names of files with licences, in lower case.
const NAMES: [&str; 8] = ["authors", "copying", "copyright", "licence", "license", "notice", "patents", "unlicense"];
/// The extensions of files that have such names and are something else.
const OTHER_FILES: [&str; 9] = ["c", "go", "h", "js", "json", "pl", "py", "rs", "toml"];
/// The directories whose files do not become part of a program; `text` is that of the standard texts.
const OTHER_DIRECTORIES: [&str; 10] =
    ["benches", "doc", "docs", "examples", "fixtures", "target", "test", "testdata", "tests", "text"];
/// The licences of crates without a text, preferred ones first: of those of an expression with `OR`, one is enough.
const PREFERRED: [&str; 5] = ["Apache-2.0 WITH LLVM-exception", "Apache-2.0", "MIT", "BSD-3-Clause", "MPL-2.0"];

/// Writes the file into the directory of the package's sources.
///
/// # Errors
///
/// Fails if Cargo fails, or if a crate has neither a text nor a licence whose standard text is known.
pub(super) fn write(sources: &Path) -> Result<(), String> {
    let path = sources.join(FILE);
    let metadata = cargo_metadata(sources, &["--filter-platform", &host()?])?;
    std::fs::write(&path, text(&metadata)?).map_err(|error| format!("failed to write {}: {error}", path.display()))
}

/// A text, and the packages that it is the licence of.
struct Licence {
    text: String,
    packages: Vec<String>,
}

/// The texts, by their words: texts that differ in spaces only are one.
#[derive(Default)]
struct Licences(BTreeMap<String, Licence>);

impl Licences {
    fn add(&mut self, package: String, text: &str) {
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let new =
            || Licence { text: text.replace("\r\n", "\n").trim_matches('\n').trim_end().to_owned(), packages: vec![] };
        self.0.entry(words).or_insert_with(new).packages.push(package);
    }
}

fn text(metadata: &Value) -> Result<String, String> {
    let linked = LinkedPackages::of(metadata, "belljar-extension")?;
    let mut crates = linked.edges.keys().map(|id| linked.package(id)).collect::<Result<Vec<_>, _>>()?;
    // Packages of the workspace have no source.
    crates.retain(|package| !package["source"].is_null());
    crates.sort_by_key(|package| name(package));
    let standard = StandardTexts::new(&crates)?;
    let (mut text, mut licences) = (HEAD.to_owned(), Licences::default());
    text.push_str("CPython for WebAssembly, and what compilers add\n\n");
    for (part, identifiers) in BUNDLED {
        let _ = writeln!(text, "- {part}: {}", identifiers.join(", "));
        for identifier in identifiers {
            licences.add(format!("{part} ({identifier})"), &standard.text(identifier)?);
        }
    }
    text.push_str("\nRust crates of the extension module\n\n");
    for package in crates {
        let (name, field) = (name(package), |name: &str| package[name].as_str().unwrap_or_default());
        let _ = writeln!(text, "- {name}: {} {}", field("license"), field("repository"));
        let files = licence_files(&directory(package)?)?;
        for (file, content) in &files {
            licences.add(format!("{name} ({file})"), content);
        }
        if files.is_empty() {
            let authors = package["authors"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let authors = authors.collect::<Vec<_>>().join(", ");
            let by = if authors.is_empty() { String::new() } else { format!(" by {authors}") };
            for identifier in licences_without_text(field("license")).map_err(|error| format!("{name}: {error}"))? {
                licences.add(format!("{name}{by} (standard text of {identifier})"), &standard.text(identifier)?);
            }
        }
    }
    let mut licences: Vec<Licence> = licences.0.into_values().collect();
    licences.sort_by(|one, other| one.packages.cmp(&other.packages));
    for Licence { text: content, packages } in licences {
        let _ = write!(text, "\n{}\n{}\n\n{content}\n", "=".repeat(80), packages.join("\n"));
    }
    Ok(text)
}

/// Returns the name of a package with its version.
fn name(package: &Value) -> String {
    let field = |name: &str| package[name].as_str().unwrap_or_default();
    format!("{} {}", field("name"), field("version"))
}

/// Returns the directory of a package's sources.
fn directory(package: &Value) -> Result<PathBuf, String> {
    let manifest = package["manifest_path"].as_str().map(Path::new).and_then(Path::parent);
    manifest.map(Path::to_owned).ok_or_else(|| format!("Cargo's metadata does not locate {}", name(package)))
}

/// Returns the licences in a directory and below: paths and texts. Sources that a crate includes have their own.
fn licence_files(root: &Path) -> Result<BTreeMap<String, String>, String> {
    let (mut files, mut directories) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(directory) = directories.pop() {
        let failed = |error: std::io::Error| format!("failed to read {}: {error}", directory.display());
        for entry in directory.read_dir().map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let (path, file_name) = (entry.path(), entry.file_name().to_string_lossy().to_lowercase());
            let kind = entry.file_type().map_err(failed)?;
            if kind.is_dir() && !OTHER_DIRECTORIES.contains(&file_name.as_str()) {
                directories.push(path);
            } else if kind.is_file() && is_licence(&file_name) {
                let content = std::fs::read(&path).map_err(failed)?;
                let inside = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
                files.insert(inside, String::from_utf8_lossy(&content).into_owned());
            }
        }
    }
    Ok(files)
}

/// Returns whether a file of this name, in lower case, is a licence.
fn is_licence(name: &str) -> bool {
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    NAMES.iter().any(|start| name.starts_with(start)) && !OTHER_FILES.contains(&extension)
}

/// Returns the licences of an SPDX expression that have to be printed.
fn licences_without_text(expression: &str) -> Result<Vec<&'static str>, String> {
    let expression = expression.replace('/', " OR ");
    let alternatives: Vec<&str> = expression.split(" OR ").map(str::trim).collect();
    let found = PREFERRED.into_iter().find(|preferred| alternatives.contains(preferred));
    found.map(|found| vec![found]).ok_or_else(|| format!("its sources have no licence, which is {expression:?}"))
}

/// The standard texts of licences.
struct StandardTexts(PathBuf);

impl StandardTexts {
    fn new(crates: &[&Value]) -> Result<Self, String> {
        let spdx = crates.iter().find(|package| package["name"] == "spdx");
        Ok(Self(directory(spdx.ok_or("no crate has the standard texts of licences: spdx is not linked any more")?)?))
    }

    /// Returns the text of a licence, with its exception.
    fn text(&self, identifier: &str) -> Result<String, String> {
        let read = |kind: &str, name: &str| {
            let path = self.0.join("src/text").join(kind).join(name);
            let text = std::fs::read_to_string(&path);
            let text = text.map_err(|error| format!("failed to read {}: {error}", path.display()))?;
            // The file is a literal of Rust: r#"…"#.
            let literal = text.trim().trim_start_matches('r').trim_matches('#');
            let text = literal.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
            text.map(str::to_owned).ok_or_else(|| format!("{} is not a literal of Rust", path.display()))
        };
        match identifier.split_once(" WITH ") {
            Some((licence, exception)) => {
                Ok(format!("{}\n\n{}", read("licenses", licence)?, read("exceptions", exception)?))
            }
            None => read("licenses", identifier),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::workspace;

    #[test]
    fn every_crate_of_the_wheel_is_listed_with_a_text() {
        let metadata =
            cargo_metadata(&workspace().unwrap().join("python"), &["--filter-platform", &host().unwrap()]).unwrap();
        let text = text(&metadata).unwrap();
        let (listed, texts) = text.split_once(&format!("\n{}\n", "=".repeat(80))).unwrap();
        let crates: Vec<&str> =
            listed.lines().filter_map(|line| Some(line.strip_prefix("- ")?.split_once(": ")?.0)).collect();
        assert!(crates.len() > 400, "{}", crates.len());
        for name in crates {
            assert!(texts.lines().any(|line| line.starts_with(&format!("{name} "))), "{name}");
        }
        for part in ["wasmtime ", "uv-resolver ", "pyo3 ", "CPython and its standard library"] {
            assert!(listed.contains(&format!("- {part}")), "{part}");
        }
        // A dependency of tests, a program of the workspace, and a dependency of build scripts.
        for other in ["libtest-mimic ", "xtask ", "cc "] {
            assert!(!listed.contains(&format!("- {other}")), "{other}");
        }
        for words in ["PYTHON SOFTWARE FOUNDATION LICENSE", "Mozilla Public License", "LLVM Exceptions"] {
            assert!(texts.contains(words), "{words}");
        }
    }

    #[test]
    fn one_licence_of_alternatives_is_enough() {
        assert_eq!(licences_without_text("MIT OR Apache-2.0"), Ok(vec!["Apache-2.0"]));
        assert_eq!(licences_without_text("MIT/Apache-2.0"), Ok(vec!["Apache-2.0"]));
        assert_eq!(licences_without_text("Apache-2.0 WITH LLVM-exception"), Ok(vec!["Apache-2.0 WITH LLVM-exception"]));
        assert_eq!(licences_without_text("LGPL-3.0-or-later OR MPL-2.0"), Ok(vec!["MPL-2.0"]));
        assert!(licences_without_text("MIT AND BSD-3-Clause").is_err());
    }

    #[test]
    fn sources_are_no_licences() {
        for name in ["license", "license-mit", "licence.md", "copying.txt", "license.apache", "notice"] {
            assert!(is_licence(name), "{name}");
        }
        for name in ["license.rs", "notices.json", "mylicense", "readme.md"] {
            assert!(!is_licence(name), "{name}");
        }
    }
}

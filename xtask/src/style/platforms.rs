//! Conditions on the platform: each package has them in one place.
//!
//! A condition is a `cfg` that names an operating system or a processor architecture. Its place is the module `os` of
//! the package, and for architectures also the module `architecture`. A package without a module `os` may have one
//! other place, such as its root: one condition, or several on adjacent items of one line. Tests may have any, and so
//! may all that is outside of `src`.

use std::collections::BTreeMap;

use super::count::Hit;
use super::source::{Source, Token};

/// Names in conditions on the operating system.
const SYSTEM: [&str; 7] =
    ["target_abi", "target_env", "target_family", "target_os", "target_vendor", "unix", "windows"];
/// Names in conditions on the processor's architecture.
const ARCHITECTURE: [&str; 3] = ["target_arch", "target_endian", "target_pointer_width"];

/// The number of lines from a condition to the next one of the same place: the condition's own, and that of its item.
const ADJACENT: usize = 2;

/// The conditions of all packages.
#[derive(Debug, Default)]
pub(super) struct Platforms {
    /// By the packages' directories.
    packages: BTreeMap<String, Package>,
}

#[derive(Debug, Default)]
struct Package {
    /// True if the package has a module `os`.
    has_os: bool,
    /// The conditions outside of the modules for them, by file.
    outside: Vec<Hit>,
}

impl Platforms {
    /// Adds the conditions of a file, of which `hit` describes a line.
    pub(super) fn add(&mut self, path: &str, source: &Source, hit: impl Fn(usize) -> Hit) {
        let Some((package, file)) = path.split_once("/src/") else { return };
        let is_member = package.starts_with("crates/") || matches!(package, "python" | "xtask");
        let is_test = file.split('/').any(|part| matches!(part, "tests" | "tests.rs"));
        if !is_member || is_test {
            return;
        }
        let package = self.packages.entry(package.to_owned()).or_default();
        if is_in_module(file, "os") {
            package.has_os = true;
            return;
        }
        let is_architecture = is_in_module(file, "architecture");
        let outside = conditions(&source.tokens).into_iter();
        let outside = outside.filter(|condition| condition.names_system || !is_architecture);
        package.outside.extend(outside.map(|condition| hit(condition.line)));
    }

    /// Returns the conditions that are not in a place for them.
    pub(super) fn outside(self) -> Vec<Hit> {
        let packages = self.packages.into_values();
        packages.filter(|package| package.has_os || places(&package.outside) > 1).flat_map(|it| it.outside).collect()
    }
}

/// Returns whether a file, whose path is below `src`, is a part of this module.
fn is_in_module(file: &str, module: &str) -> bool {
    file.strip_prefix(module).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
}

/// Returns the number of places of conditions, which are in the order of files and lines.
fn places(conditions: &[Hit]) -> usize {
    let is_same = |one: &Hit, next: &Hit| one.path == next.path && next.line.abs_diff(one.line) <= ADJACENT;
    conditions.chunk_by(is_same).count()
}

/// A condition on the platform.
#[derive(Debug, PartialEq)]
struct Condition {
    line: usize,
    /// True if it names an operating system, and not only an architecture.
    names_system: bool,
}

/// Returns the conditions on the platform in code, except those of tests.
fn conditions(tokens: &[Token]) -> Vec<Condition> {
    let mut found = Vec::new();
    // The number of open brackets.
    let mut depth = 0_usize;
    // The depth of the item for tests that comes next, and the depth around the one whose block is open.
    let (mut next_test, mut open_test) = (None, None);
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        at += 1;
        match token.text.as_str() {
            name @ ("cfg" | "cfg_attr" | "cfg_select") => {
                let is_attribute = at > 1 && tokens[at - 2].text == "[";
                let predicate = predicate(&tokens[at..]);
                at += predicate.len();
                if is_for_tests(predicate) {
                    if name == "cfg" && is_attribute {
                        next_test = depth.checked_sub(1);
                    }
                } else if next_test.is_none() && open_test.is_none() {
                    found.extend(condition(token.line, predicate));
                }
            }
            bracket @ ("(" | "[" | "{") => {
                if bracket == "{" && open_test.is_none() && next_test == Some(depth) {
                    open_test = next_test.take();
                }
                depth += 1;
            }
            ")" | "]" | "}" => {
                depth = depth.saturating_sub(1);
                if open_test == Some(depth) {
                    open_test = None;
                }
                if next_test.is_some_and(|test| depth < test) {
                    next_test = None;
                }
            }
            ";" if next_test == Some(depth) => next_test = None,
            _ => {}
        }
    }
    found
}

/// Returns the tokens of the predicate that follows `cfg`, with its brackets; none if `cfg` is another name.
fn predicate(tokens: &[Token]) -> &[Token] {
    let is_macro = tokens.first().is_some_and(|token| token.text == "!");
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate().skip(usize::from(is_macro)) {
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" if depth == 1 => return &tokens[..=index],
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return &[];
        }
    }
    &[]
}

/// Returns whether a predicate is for tests alone: `test`, and neither `not(test)` nor `any(test, …)`.
fn is_for_tests(predicate: &[Token]) -> bool {
    let text = |index: Option<usize>| index.and_then(|index| predicate.get(index)).map(|token| token.text.as_str());
    (0..predicate.len()).any(|index| {
        let function = (text(index.checked_sub(1)) == Some("(")).then(|| text(index.checked_sub(2))).flatten();
        text(Some(index)) == Some("test") && !matches!(function, Some("not" | "any"))
    })
}

fn condition(line: usize, predicate: &[Token]) -> Option<Condition> {
    let has = |names: &[&str]| predicate.iter().any(|token| names.contains(&token.text.as_str()));
    let names_system = has(&SYSTEM);
    (names_system || has(&ARCHITECTURE)).then_some(Condition { line, names_system })
}

#[cfg(test)]
mod tests {
    use super::super::rust;
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        conditions(&rust::read(text).tokens).iter().map(|condition| condition.line).collect()
    }

    /// Returns the paths and lines of the conditions that are not in a place for them.
    fn outside(files: &[(&str, &str)]) -> Vec<String> {
        let mut platforms = Platforms::default();
        for (path, text) in files {
            let hit = |line| Hit { path: (*path).to_owned(), line, text: String::new() };
            platforms.add(path, &rust::read(text), hit);
        }
        platforms.outside().iter().map(|hit| format!("{}:{}", hit.path, hit.line)).collect()
    }

    const GATE: &str = "#[cfg(unix)]\nmod system;\n#[cfg(windows)]\nmod system;\n";

    #[test]
    fn attributes_and_macros_are_conditions() {
        let text = "#[cfg(unix)]\nfn f() {}\nlet a = if cfg!(any(\n  windows, target_os = \"macos\")) { 1 } else { 2 };\n\
                    #[cfg_attr(windows, path = \"a_windows.rs\")]\nmod a;\n#![cfg(target_arch = \"x86_64\")]\n\
                    cfg_select! { unix => { f() } }\n";
        assert_eq!(lines(text), [1, 3, 5, 7, 8]);
    }

    #[test]
    fn features_texts_and_other_names_are_not_conditions_on_the_platform() {
        let text = "#[cfg(feature = \"unix\")]\n// cfg(unix)\nlet a = \"cfg(unix)\";\nmod cfg;\nuse a::{cfg, unix};\n\
                    fn windows(cfg: u8) -> u8 { cfg }\n#[cfg(debug_assertions)]\nlet b = unix(cfg);\n";
        assert_eq!(lines(text), [0; 0]);
    }

    #[test]
    fn conditions_of_tests_are_exempt() {
        let text = "#[cfg(test)]\nmod tests {\n  #[cfg(unix)]\n  fn f() { g(cfg!(windows)) }\n}\n#[cfg(unix)]\nfn g() {}\n\
                    #[cfg(all(test, unix))]\nmod more;\n#[cfg(test)]\n#[cfg(unix)]\nmod others;\n\
                    #[cfg(all(unix, not(test)))]\nfn h() {}\n#[cfg(any(test, unix))]\nfn i() {}\n";
        assert_eq!(lines(text), [6, 13, 15]);
    }

    #[test]
    fn module_os_is_the_only_place_of_a_package_that_has_one() {
        let files = [("crates/a/src/lib.rs", GATE), ("crates/a/src/os/mod.rs", GATE), ("crates/b/src/os.rs", GATE)];
        assert_eq!(outside(&files), ["crates/a/src/lib.rs:1", "crates/a/src/lib.rs:3"]);
        assert_eq!(outside(&files[1..]), [""; 0]);
    }

    #[test]
    fn package_without_a_module_os_has_one_place() {
        assert_eq!(outside(&[("xtask/src/main.rs", GATE)]), [""; 0]);
        let apart = GATE.replace("mod system;", "mod system {\n  fn f() {}\n}");
        assert_eq!(outside(&[("xtask/src/main.rs", apart.as_str())]), ["xtask/src/main.rs:1", "xtask/src/main.rs:5"]);
        let files = [("python/src/a.rs", "#[cfg(unix)]\nmod b;"), ("python/src/c.rs", "#[cfg(unix)]\nmod d;")];
        assert_eq!(outside(&files).len(), 2);
    }

    #[test]
    fn architectures_have_a_module_of_their_own() {
        let architectures =
            GATE.replace("unix", "target_arch = \"x86_64\"").replace("windows", "target_arch = \"arm\"");
        let os = ("crates/a/src/os/mod.rs", GATE);
        let architectures = architectures.as_str();
        assert_eq!(outside(&[("crates/a/src/architecture/mod.rs", architectures), os]), [""; 0]);
        assert_eq!(outside(&[("crates/a/src/architecture.rs", GATE), os]).len(), 2);
        assert_eq!(outside(&[("crates/a/src/processor.rs", architectures), os]).len(), 2);
    }

    #[test]
    fn files_of_tests_and_files_outside_of_sources_are_exempt() {
        let apart = format!("{GATE}\n\n{GATE}");
        let paths =
            ["crates/a/src/b/tests.rs", "crates/a/src/tests/b.rs", "crates/a/tests/b.rs", "patches/a/src/lib.rs"];
        assert_eq!(outside(&paths.map(|path| (path, apart.as_str()))), [""; 0]);
    }
}

//! The page of the panel: one HTML document without addresses, since clients embed it without a server.
//!
//! The modules of the console are plain ECMAScript modules that import each other by name. Here each becomes a function
//! that returns its exports, in one inline script, so that the console and the panel have the same components without a
//! build. The policy of the page allows this script by its hash, and no other.

use std::fmt::Write as _;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

/// The page's policy, besides that of the client: no requests, no other scripts, no HTML made of text except for frames
/// without scripts. Inline styles are those of the frames, which inherit the policy.
const POLICY: &str = "default-src 'none'; script-src 'sha256-HASH'; style-src 'unsafe-inline'; img-src data:; \
    base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types belljar-frame";
const PAGE: &str = include_str!("../console/assets/panel.html");
const STYLES: [&str; 2] = [include_str!("../console/assets/style.css"), include_str!("../console/assets/panel.css")];
/// The modules, each after those that it imports: name, text.
const MODULES: [(&str, &str); 14] = [
    ("dom.js", include_str!("../console/assets/dom.js")),
    ("ansi.js", include_str!("../console/assets/ansi.js")),
    ("format.js", include_str!("../console/assets/format.js")),
    ("highlight.js", include_str!("../console/assets/highlight.js")),
    ("table.js", include_str!("../console/assets/table.js")),
    ("outputs.js", include_str!("../console/assets/outputs.js")),
    ("calls.js", include_str!("../console/assets/calls.js")),
    ("embedded.js", include_str!("../console/assets/embedded.js")),
    ("host.js", include_str!("../console/assets/host.js")),
    ("results.js", include_str!("../console/assets/results.js")),
    ("decisions.js", include_str!("../console/assets/decisions.js")),
    ("questions.js", include_str!("../console/assets/questions.js")),
    ("saved-files.js", include_str!("../console/assets/saved-files.js")),
    ("panel.js", include_str!("../console/assets/panel.js")),
];

/// Returns the page.
pub(super) fn page() -> &'static str {
    static BUILT: LazyLock<String> = LazyLock::new(|| {
        let script = script();
        let hash = STANDARD.encode(Sha256::digest(&script));
        PAGE.replace("POLICY", &POLICY.replace("HASH", &hash))
            .replace("STYLE", &STYLES.concat())
            .replace("VERSION", env!("CARGO_PKG_VERSION"))
            .replace("SCRIPT", &script)
    });
    &BUILT
}

/// Returns the modules as one script.
fn script() -> String {
    let mut script = String::from("\"use strict\";\n");
    for (name, text) in MODULES {
        let mut exports = Vec::new();
        // Writing to a string does not fail.
        let _ = writeln!(script, "const {} = (() => {{", variable(name));
        for line in text.lines() {
            if let Some((names, module)) = imported(line) {
                let _ = writeln!(script, "const {names} = {};", variable(module));
            } else if let Some(exported) = line.strip_prefix("export ") {
                exports.push(declared(exported));
                let _ = writeln!(script, "{exported}");
            } else {
                let _ = writeln!(script, "{line}");
            }
        }
        let _ = writeln!(script, "return {{ {} }};\n}})();", exports.join(", "));
    }
    script
}

/// Returns the names and the module of a line `import { … } from "./module.js";`.
fn imported(line: &str) -> Option<(&str, &str)> {
    let (names, module) = line.strip_prefix("import ")?.split_once(" from \"./")?;
    Some((names, module.strip_suffix("\";")?))
}

/// Returns the name that a declaration declares.
fn declared(declaration: &str) -> &str {
    let keywords = ["async ", "function ", "class ", "const "];
    let name = keywords.iter().fold(declaration, |rest, keyword| rest.strip_prefix(keyword).unwrap_or(rest));
    name.split(|character: char| !character.is_ascii_alphanumeric()).next().unwrap_or_default()
}

/// Returns the name of a module as a variable.
fn variable(module: &str) -> String {
    format!("module_{}", module.trim_end_matches(".js").replace('-', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_become_one_script() {
        let script = script();
        for line in script.lines() {
            assert!(!line.starts_with("import") && !line.starts_with("export"), "{line}");
        }
        // They would end the element of the script.
        for forbidden in ["</script", "<script", "<!--"] {
            assert!(!script.to_lowercase().contains(forbidden), "{forbidden}");
        }
        for (at, (name, text)) in MODULES.iter().enumerate() {
            for (_, module) in text.lines().filter_map(imported) {
                assert!(MODULES[..at].iter().any(|(earlier, _)| *earlier == module), "{name} imports {module}");
            }
        }
    }

    #[test]
    fn page_has_no_addresses_and_is_small() {
        let page = page();
        for forbidden in ["http:", "https:", " src=", "href=\"", "innerHTML", "insertAdjacentHTML", "eval(", "@import"]
        {
            let found: Vec<&str> = page.lines().filter(|line| line.contains(forbidden)).collect();
            assert!(found.iter().all(|line| line.contains("http://www.w3.org/2000/svg")), "{forbidden}: {found:?}");
        }
        for left in ["POLICY", "HASH'", "STYLE<", "SCRIPT<", "\"VERSION\""] {
            assert!(!page.contains(left), "{left}");
        }
        eprintln!("bytes of the panel: {}", page.len());
        assert!(page.len() < 120_000, "{} bytes", page.len());
    }
}

//! Python identifiers for the names of servers, tools and parameters, which are arbitrary text.

use std::collections::{BTreeMap, BTreeSet};

use unicode_ident::{is_xid_continue, is_xid_start};
use unicode_normalization::UnicodeNormalization as _;

/// The maximum length of an identifier, in characters.
const MAX_LENGTH: usize = 80;

/// Python's keywords (`keyword.kwlist`). Soft keywords such as `match` are valid names.
const KEYWORDS: [&str; 35] = [
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del",
    "elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "nonlocal",
    "not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
];

/// Returns whether `name` is an identifier that Python code can use as it is.
pub(crate) fn is_identifier(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|first| first == '_' || is_xid_start(first))
        && chars.all(is_xid_continue)
        && !KEYWORDS.contains(&name)
        && name.nfkc().eq(name.chars())
}

/// Returns an identifier that resembles `name`; `fallback` if nothing of it is left.
///
/// Python normalizes identifiers to NFKC, so that the result is in this form, too. Names with two leading underscores
/// are Python's own.
pub(crate) fn identifier(name: &str, fallback: &str) -> String {
    let mut converted = String::new();
    for c in name.nfkc().take(MAX_LENGTH) {
        converted.push(if is_xid_continue(c) { c } else { '_' });
    }
    // Replacing characters can change which characters combine.
    converted = converted.nfkc().collect();
    if converted.chars().all(|c| c == '_') {
        return fallback.to_owned();
    }
    if converted.starts_with("__") {
        converted.insert_str(0, fallback);
    } else if !converted.starts_with(|first: char| first == '_' || is_xid_start(first)) {
        converted.insert(0, '_');
    }
    if KEYWORDS.contains(&converted.as_str()) {
        converted.push('_');
    }
    converted
}

/// Returns the identifiers of `names`, each different from the others and from `reserved`.
///
/// A name that is an identifier keeps it, also if another name, converted, would be equal. The other names are
/// converted in their order, and get a number if need be.
pub(crate) fn identifiers<'a>(
    names: impl IntoIterator<Item = &'a str> + Clone,
    fallback: &str,
    reserved: &[&str],
) -> Vec<String> {
    let is_free = |name: &str| is_identifier(name) && !name.starts_with("__") && !reserved.contains(&name);
    let fits = |name: &str| is_free(name) && name.chars().count() <= MAX_LENGTH;
    let mut taken: BTreeSet<String> = reserved.iter().map(|name| (*name).to_owned()).collect();
    let mut kept: BTreeMap<&str, bool> = BTreeMap::new();
    for name in names.clone() {
        if fits(name) {
            taken.insert(name.to_owned());
            kept.insert(name, true);
        }
    }
    let mut next_numbers: BTreeMap<String, u64> = BTreeMap::new();
    names
        .into_iter()
        .map(|name| {
            // The first tool of a name keeps it: a server may list a name twice.
            if let Some(is_unused) = kept.get_mut(name)
                && std::mem::take(is_unused)
            {
                return name.to_owned();
            }
            let base = identifier(name, fallback);
            if taken.insert(base.clone()) {
                return base;
            }
            let number = next_numbers.entry(base.clone()).or_insert(2);
            loop {
                let numbered = format!("{base}_{number}");
                *number += 1;
                if taken.insert(numbered.clone()) {
                    return numbered;
                }
            }
        })
        .collect()
}

/// Returns a name for a class: `search_issues` becomes `SearchIssues`.
pub(crate) fn class_name(parts: &[&str]) -> String {
    let mut name = String::new();
    for part in parts {
        let converted = identifier(part, "");
        for word in converted.split('_').filter(|word| !word.is_empty()) {
            let mut chars = word.chars();
            name.extend(chars.next().into_iter().flat_map(char::to_uppercase));
            name.push_str(chars.as_str());
        }
    }
    let name: String = name.chars().take(MAX_LENGTH).collect();
    identifier(&name, "Value")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str) -> String {
        identifier(name, "tool")
    }

    #[test]
    fn names_become_identifiers() {
        assert_eq!(one("search-issues"), "search_issues");
        assert_eq!(one("repo.get/file"), "repo_get_file");
        assert_eq!(one("3d"), "_3d");
        assert_eq!(one("class"), "class_");
        assert_eq!(one("__import__"), "tool__import__");
        assert_eq!(one("検索"), "検索");
        assert_eq!(one("ﬁnd"), "find");
        assert_eq!(one("\u{202e}x\n"), "_x_");
        assert_eq!(one(""), "tool");
        assert_eq!(one("\u{0}\"'"), "tool");
        for name in ["a", "match", "_x", "naïve"] {
            assert!(is_identifier(name), "{name}");
        }
        for name in ["", "a-b", "1a", "None", "a b", "ﬁ"] {
            assert!(!is_identifier(name), "{name}");
        }
    }

    #[test]
    fn clashing_names_get_numbers() {
        let names = ["a-b", "a_b", "a.b", "a_b", "resources", "a_b_2"];
        let found = identifiers(names, "tool", &["resources"]);
        assert_eq!(found, ["a_b_3", "a_b", "a_b_4", "a_b_5", "resources_2", "a_b_2"]);
    }

    #[test]
    fn class_names_are_in_camel_case() {
        assert_eq!(class_name(&["search_issues", "sort-by"]), "SearchIssuesSortBy");
        assert_eq!(class_name(&["123"]), "_123");
        assert_eq!(class_name(&["none"]), "None_");
        assert_eq!(class_name(&["\n"]), "Value");
    }
}

//! The names of tools in the form that providers accept, and back.

use std::collections::{HashMap, HashSet};

/// The maximum length of a name. All providers accept 64 characters of `A-Z`, `a-z`, `0-9`, `_` and `-`.
pub(super) const MAX_NAME: usize = 64;

/// The length of the suffix that makes a changed name unique: an underscore and eight hexadecimal digits.
const SUFFIX: usize = 9;

/// The names of tools for a provider, without clashes.
#[derive(Debug, Clone, Default)]
pub(in crate::adapters) struct Names {
    to_provider: HashMap<String, String>,
    from_provider: HashMap<String, String>,
}

impl Names {
    /// Chooses a name for each tool: its own if the provider accepts it, else one without the invalid characters.
    pub(in crate::adapters) fn new<'a>(names: impl Iterator<Item = &'a str>, needs_letter: bool) -> Self {
        let names: Vec<&str> = names.collect();
        let is_valid = |name: &str| cleaned(name, needs_letter) == name;
        let mut taken: HashSet<String> =
            names.iter().filter(|name| is_valid(name)).map(|name| (*name).to_owned()).collect();
        let mut all = Self::default();
        for name in names {
            let clean = cleaned(name, needs_letter);
            let chosen =
                if clean == name || taken.insert(clean.clone()) { clean } else { distinct(name, &clean, &taken) };
            taken.insert(chosen.clone());
            all.from_provider.insert(chosen.clone(), name.to_owned());
            all.to_provider.insert(name.to_owned(), chosen);
        }
        all
    }

    /// Returns the provider's name of a tool. A tool that is not in the list keeps its name, made valid.
    pub(in crate::adapters) fn to_provider(&self, name: &str) -> String {
        self.to_provider.get(name).cloned().unwrap_or_else(|| cleaned(name, true))
    }

    /// Returns the tool of a provider's name. A name that the model invented is returned as it is.
    pub(in crate::adapters) fn original(&self, name: &str) -> String {
        self.from_provider.get(name).map_or_else(|| name.to_owned(), Clone::clone)
    }
}

/// Returns a name without invalid characters, of at most 64 characters. A name that is too long ends with a hash, so
/// that two names with the same beginning differ.
fn cleaned(name: &str, needs_letter: bool) -> String {
    let valid = |character: char| character.is_ascii_alphanumeric() || character == '_' || character == '-';
    let mut clean: String = name.chars().map(|character| if valid(character) { character } else { '_' }).collect();
    let starts_well = |first: char| first.is_ascii_alphabetic() || first == '_';
    if clean.is_empty() || (needs_letter && !clean.starts_with(starts_well)) {
        clean.insert(0, '_');
    }
    if clean.len() > MAX_NAME { with_suffix(&clean, hash(name)) } else { clean }
}

/// Returns a name that is not taken.
fn distinct(name: &str, clean: &str, taken: &HashSet<String>) -> String {
    let mut number = hash(name);
    loop {
        let candidate = with_suffix(clean, number);
        if !taken.contains(&candidate) {
            return candidate;
        }
        number = number.wrapping_add(1);
    }
}

fn with_suffix(clean: &str, number: u32) -> String {
    let kept = &clean[..clean.len().min(MAX_NAME - SUFFIX)];
    format!("{kept}_{number:08x}")
}

/// Returns the FNV-1a hash of a name. It must be the same in each process: stored histories contain the names.
fn hash(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_valid_distinct_and_map_back() {
        let long = "x".repeat(100);
        let other = format!("{long}y");
        let names = ["read", "files.read", "files_read", "files/read", "", "7up", "日本", &long, &other];
        for needs_letter in [false, true] {
            let map = Names::new(names.iter().copied(), needs_letter);
            let chosen: HashSet<String> = names.iter().map(|name| map.to_provider(name)).collect();
            assert_eq!(chosen.len(), names.len(), "{chosen:?}");
            for name in names {
                let chosen = map.to_provider(name);
                assert!((1..=MAX_NAME).contains(&chosen.len()), "{chosen}");
                assert!(chosen.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)), "{chosen}");
                assert_eq!(map.original(&chosen), name);
            }
            assert_eq!(map.to_provider("files_read"), "files_read");
            assert_eq!(map.to_provider("7up"), if needs_letter { "_7up" } else { "7up" });
        }
        assert_eq!(Names::default().original("invented"), "invented");
    }

    #[test]
    fn name_does_not_depend_on_the_process() {
        let map = Names::new(["a.b", "a_b"].into_iter(), false);
        assert_eq!(map.to_provider("a.b"), "a_b_108bf50c");
    }
}

//! Names that a misspelt one may have meant.

use crate::needs::distributions;
use crate::pyodide::PyodideLock;

/// At most so many names are suggested.
const SHOWN: usize = 3;

/// Known packages whose names look like `name`, nearest first: those of Pyodide's lock and of the reviewed table.
/// The name of a module that another package provides counts too.
pub(crate) fn for_name(name: &str, lock: Option<&PyodideLock>) -> Vec<String> {
    let mut found: Vec<(usize, String)> = Vec::new();
    if let Some(package) = distributions::reviewed(name).filter(|package| *package != name) {
        found.push((0, package.to_owned()));
    }
    // Two letters wrong in a short name make it another name.
    let tolerated = match name.len() {
        0..=3 => 0,
        4..=5 => 1,
        _ => 2,
    };
    let mut known: Vec<&str> = distributions::known_packages().collect();
    known.extend(lock.into_iter().flat_map(|lock| lock.names().collect::<Vec<_>>()));
    for candidate in known {
        let distance = strsim::osa_distance(name, candidate);
        let same_words = name.replace('-', "") == candidate.replace('-', "");
        if candidate != name && (distance <= tolerated || same_words) {
            found.push((distance, candidate.to_owned()));
        }
    }
    found.sort();
    found.dedup_by(|one, other| one.1 == other.1);
    found.into_iter().map(|(_, name)| name).take(SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use super::for_name;

    #[test]
    fn misspelt_names_find_the_right_ones() {
        assert_eq!(for_name("pyadntic", None), ["pydantic"]);
        assert_eq!(for_name("beautifulsoup", None), ["beautifulsoup4"]);
        assert_eq!(for_name("entirely-another-name", None), Vec::<String>::new());
        assert_eq!(for_name("beautiful-soup4", None), ["beautifulsoup4"]);
    }

    #[test]
    fn the_name_of_a_module_finds_the_package_that_provides_it() {
        assert_eq!(for_name("cv2", None), ["opencv-python"]);
    }
}

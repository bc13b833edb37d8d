//! Suggestions for misspelt package names.

use crate::inference::distributions;
use crate::pyodide::PyodideLock;

/// The maximum number of suggestions.
const MAX_SUGGESTIONS: usize = 3;

/// Returns packages with names similar to `name`, nearest first. Candidates are the packages of Pyodide's lock and of
/// the reviewed table. If `name` is a module of a package with another name, that package is suggested too.
pub(crate) fn for_name(name: &str, lock: Option<&PyodideLock>) -> Vec<String> {
    let mut found: Vec<(usize, String)> = Vec::new();
    if let Some(package) = distributions::reviewed_distribution(name).filter(|package| *package != name) {
        found.push((0, package.to_owned()));
    }
    // In short names, fewer differences make an entirely different name.
    let max_distance = match name.len() {
        0..=3 => 0,
        4..=5 => 1,
        _ => 2,
    };
    let mut candidates: Vec<&str> = distributions::known_packages().collect();
    candidates.extend(lock.into_iter().flat_map(|lock| lock.names().collect::<Vec<_>>()));
    for candidate in candidates {
        let distance = strsim::osa_distance(name, candidate);
        let same_words = name.replace('-', "") == candidate.replace('-', "");
        if candidate != name && (distance <= max_distance || same_words) {
            found.push((distance, candidate.to_owned()));
        }
    }
    found.sort();
    found.dedup_by(|one, other| one.1 == other.1);
    found.into_iter().map(|(_, name)| name).take(MAX_SUGGESTIONS).collect()
}

#[cfg(test)]
mod tests {
    use super::for_name;

    #[test]
    fn misspelt_name_gives_the_right_package() {
        assert_eq!(for_name("pyadntic", None), ["pydantic"]);
        assert_eq!(for_name("beautifulsoup", None), ["beautifulsoup4"]);
        assert_eq!(for_name("entirely-another-name", None), Vec::<String>::new());
        assert_eq!(for_name("beautiful-soup4", None), ["beautifulsoup4"]);
    }

    #[test]
    fn module_name_gives_the_package_that_provides_it() {
        assert_eq!(for_name("cv2", None), ["opencv-python"]);
    }
}

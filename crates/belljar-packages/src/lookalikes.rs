//! Names that resemble those of well-known packages.
//!
//! Models and people misspell names (`reqeusts`) and invent them (`sklearn2`), and attackers register what they come up
//! with. A package that is only inferred from an import is therefore not installed if its name resembles a well-known
//! one without being well known itself.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use crate::error::InstallError;
use crate::inference::distributions;
use crate::pyodide::PyodideLock;

/// The maximum number of names in a suggestion.
const MAX_SUGGESTIONS: usize = 3;
/// The length from which on one difference makes a name resemble another. Shorter names are too close to each other.
const MIN_LENGTH_FOR_ONE_DIFFERENCE: usize = 5;
/// The length from which on two differences make a name resemble another.
const MIN_LENGTH_FOR_TWO_DIFFERENCES: usize = 8;
/// The length from which on digits after a name make it resemble that name.
const DIGITS: usize = 4;

/// The list of names, in which `~` marks those that other names are not compared with.
const LIST: &str = include_str!("../data/well_known_packages.txt");

/// The well-known packages that other names are compared with.
pub(crate) fn well_known() -> impl Iterator<Item = &'static str> {
    names().filter(|name| !name.starts_with('~'))
}

fn names() -> impl Iterator<Item = &'static str> {
    LIST.lines().filter(|line| !line.starts_with('#') && !line.is_empty())
}

/// The names of known packages, and of the modules of known packages.
static KNOWN: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let listed = names().map(|name| name.trim_start_matches('~').to_owned());
    let packages = distributions::known_packages().map(str::to_owned);
    listed.chain(packages).chain(distributions::known_modules().map(normalized)).collect()
});

/// Returns the error for installing a package only because an import hints at it, if its normalised name resembles a
/// well-known one. For installers other than [`Installer`](crate::Installer), which applies the rule itself.
pub fn lookalike(name: &str) -> Option<InstallError> {
    let suggestions = resembled(name, None);
    (!suggestions.is_empty()).then(|| InstallError::Lookalike { name: name.to_owned(), suggestions })
}

/// Returns the well-known packages and modules that `name` resembles, nearest first, or an empty list if `name` is
/// known itself or resembles none. `name` is normalised.
pub(crate) fn resembled(name: &str, lock: Option<&PyodideLock>) -> Vec<String> {
    if KNOWN.contains(name) || lock.is_some_and(|lock| lock.names().any(|known| known == name)) {
        return Vec::new();
    }
    let targets =
        distributions::known_packages().map(str::to_owned).chain(distributions::known_modules().map(normalized));
    let targets: BTreeSet<String> = targets.collect();
    let mut found: Vec<(usize, String)> =
        targets.into_iter().filter_map(|target| Some((distance(name, &target)?, target))).collect();
    found.sort();
    found.into_iter().map(|(_, target)| target).take(MAX_SUGGESTIONS).collect()
}

/// Returns the number of differences between a name and the well-known one that it resembles, or `None` if it does not
/// resemble it.
fn distance(name: &str, target: &str) -> Option<usize> {
    let letters = |name: &str| name.replace('-', "");
    let (name, target) = (letters(name), letters(target));
    if name == target {
        return Some(0);
    }
    if target.len() >= DIGITS && name.trim_end_matches(|character: char| character.is_ascii_digit()) == target {
        return Some(1);
    }
    let max_distance = match target.len() {
        MIN_LENGTH_FOR_TWO_DIFFERENCES.. => 2,
        MIN_LENGTH_FOR_ONE_DIFFERENCE.. => 1,
        // Letters that changed places are a slip even in a short name.
        DIGITS.. if name.len() == target.len() => 1,
        _ => return None,
    };
    // An unbounded distance of a name of megabytes would take minutes.
    if name.len().abs_diff(target.len()) > max_distance {
        return None;
    }
    // Different names often differ in the first letter, slips rarely do: unless it is missing, or the second one.
    let first = |name: &str, index| name.as_bytes().get(index).copied();
    let begins_alike = first(&name, 0) == first(&target, 0)
        || name == target.get(1..).unwrap_or_default()
        || (first(&name, 0) == first(&target, 1) && first(&name, 1) == first(&target, 0));
    let distance = strsim::osa_distance(&name, &target);
    let is_transposition = distance == 1 && strsim::levenshtein(&name, &target) == 2;
    (begins_alike && distance <= max_distance && (target.len() >= MIN_LENGTH_FOR_ONE_DIFFERENCE || is_transposition))
        .then_some(distance)
}

/// Returns the name that a package of the module's own name would have.
fn normalized(module: &str) -> String {
    module.to_ascii_lowercase().replace(['_', '.'], "-")
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use uv_normalize::PackageName;

    use super::{distance, names, resembled, well_known};

    #[test]
    fn misspelt_and_invented_names_resemble_known_ones() {
        for (name, known) in [
            ("sklearn2", "sklearn"),
            ("reqeusts", "requests"),
            ("request", "requests"),
            ("requests3", "requests"),
            ("pandsa", "pandas"),
            ("matplotlb", "matplotlib"),
            ("tenserflow", "tensorflow"),
            ("beautifulsoup", "beautifulsoup4"),
            ("umpy", "numpy"),
            ("tdqm", "tqdm"),
            ("scikitlearn", "scikit-learn"),
            ("python-dotenv2", "python-dotenv"),
            ("pilow", "pillow"),
        ] {
            assert_eq!(resembled(name, None).first().map(String::as_str), Some(known), "{name}");
        }
    }

    #[test]
    fn known_and_unrelated_names_resemble_none() {
        for name in [
            "numpy",
            "boto3",
            "sklearn",
            "yaml",
            "bs4",
            "cv2",
            "jinja2",
            "h5py",
            "urllib3",
            "scapy",
            "scrapy",
            "torchx",
            "panda3d",
            "pyaml",
            "willow",
            "grequests",
            "pypdf2",
            "alpha",
            "beta",
            "gamma",
            "helper",
            "inflection",
            "mistune",
            "cowsay",
            "pyjokes",
            "left-pad",
            "rich",
            "ruch",
            "helpers2",
            "google-cloud-vision",
            "toml",
        ] {
            assert_eq!(resembled(name, None), Vec::<String>::new(), "{name}");
        }
    }

    #[test]
    fn long_names_are_compared_quickly() {
        assert!(resembled(&"requests".repeat(100_000), None).is_empty());
        assert_eq!(distance(&"9".repeat(1_000_000), "requests"), None);
    }

    #[test]
    fn list_is_sorted_and_its_names_are_normalised() {
        assert!(names().is_sorted());
        assert!(well_known().count() > 400);
        for name in names() {
            let name = name.trim_start_matches('~');
            assert_eq!(PackageName::from_str(name).unwrap().as_ref(), name);
        }
    }
}

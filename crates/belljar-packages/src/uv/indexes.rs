//! The settings' indexes and directories of wheels as uv takes them.

use std::path::Path;
use std::str::FromStr;

use uv_distribution_types::{Index, IndexLocations, IndexUrl};

use crate::error::InstallError;
use crate::settings::Settings;

/// The indexes, in the order in which they are asked, and the places of wheels without index.
pub(super) fn locations(settings: &Settings) -> Result<IndexLocations, InstallError> {
    let mut indexes = Vec::new();
    for url in &settings.extra_index_urls {
        indexes.push(index("extra index", url)?);
    }
    if let Some(url) = &settings.index_url {
        let mut last = index("index", url)?;
        last.default = true;
        indexes.push(last);
    }
    let links = settings.find_links.iter().map(|place| find_links(place)).collect::<Result<Vec<_>, _>>()?;
    Ok(IndexLocations::new(indexes, links, settings.no_index))
}

/// A page of links in a file.
pub(super) fn page(path: &Path) -> Result<Index, InstallError> {
    find_links(&path.to_string_lossy())
}

/// `URL`, `NAME=URL` (uv's form) or a directory.
fn index(what: &str, text: &str) -> Result<Index, InstallError> {
    Index::from_str(text).map_err(|error| bad(what, text, &error))
}

fn find_links(place: &str) -> Result<Index, InstallError> {
    if !place.contains("://") && !Path::new(place).exists() {
        return Err(InstallError::Setting {
            setting: format!("--find-links {place}"),
            reason: "there is no such file or directory".to_owned(),
        });
    }
    let url = IndexUrl::from_str(place).map_err(|error| bad("find-links", place, &error))?;
    Ok(Index::from_find_links(url))
}

fn bad(what: &str, text: &str, error: &dyn std::fmt::Display) -> InstallError {
    // The text may hold a password; what stands before the last `@` is not shown.
    let shown = match (text.split_once("://"), text.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://…@{rest}"),
        _ => text.to_owned(),
    };
    InstallError::Setting { setting: format!("the {what} `{shown}`"), reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use belljar_cache::Cache;

    use super::locations;
    use crate::settings::Settings;

    #[test]
    fn extra_indexes_are_asked_before_the_default_one() {
        let mut settings = Settings::new(Cache::open(Some("unused".into())).unwrap());
        settings.index_url = Some("https://last.example/simple".into());
        settings.extra_index_urls = vec!["https://first.example/simple".into(), "two=https://second.example".into()];
        let locations = locations(&settings).unwrap();
        let hosts: Vec<_> = locations.indexes().filter_map(|index| index.raw_url().host_str()).collect();
        assert_eq!(hosts, ["first.example", "second.example", "last.example"]);
    }

    #[test]
    fn a_bad_address_is_an_error_that_shows_no_password() {
        let mut settings = Settings::new(Cache::open(Some("unused".into())).unwrap());
        settings.index_url = Some("https://user:secret@[broken/simple".into());
        let error = locations(&settings).unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn a_directory_of_wheels_that_is_not_there_is_an_error() {
        let mut settings = Settings::new(Cache::open(Some("unused".into())).unwrap());
        settings.find_links = vec!["/nowhere/at/all".into()];
        assert!(locations(&settings).unwrap_err().to_string().contains("no such file or directory"));
    }
}

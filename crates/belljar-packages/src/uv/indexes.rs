//! Conversion of the settings' indexes and directories of wheels to uv's types.

use std::path::Path;
use std::str::FromStr;

use uv_distribution_types::{Index, IndexLocations, IndexUrl};

use crate::error::{InstallError, Setting};
use crate::settings::Settings;

/// Returns the indexes in order of priority, and the locations of wheels without an index.
pub(super) fn locations(settings: &Settings) -> Result<IndexLocations, InstallError> {
    let mut indexes = Vec::new();
    for url in &settings.extra_index_urls {
        indexes.push(index(Setting::ExtraIndexUrl, url)?);
    }
    if let Some(url) = &settings.index_url {
        let mut default = index(Setting::IndexUrl, url)?;
        default.default = true;
        indexes.push(default);
    }
    let links = settings.find_links.iter().map(|location| find_links(location)).collect::<Result<Vec<_>, _>>()?;
    Ok(IndexLocations::new(indexes, links, settings.no_index))
}

/// Returns the index for a page of links in a file, or for a directory of wheels.
pub(super) fn page(path: &Path) -> Result<Index, InstallError> {
    find_links(&path.to_string_lossy())
}

/// Parses `URL`, `NAME=URL` (uv's syntax) or a directory.
fn index(setting: Setting, text: &str) -> Result<Index, InstallError> {
    Index::from_str(text).map_err(|error| invalid(setting, text, &error))
}

fn find_links(location: &str) -> Result<Index, InstallError> {
    if !location.contains("://") && !Path::new(location).exists() {
        return Err(invalid(Setting::FindLinks, location, &"no such file or directory"));
    }
    let url = IndexUrl::from_str(location).map_err(|error| invalid(Setting::FindLinks, location, &error))?;
    Ok(Index::from_find_links(url))
}

fn invalid(setting: Setting, text: &str, error: &dyn std::fmt::Display) -> InstallError {
    // The text may contain a password, so everything before the last `@` is left out.
    let value = match (text.split_once("://"), text.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://…@{rest}"),
        _ => text.to_owned(),
    };
    InstallError::Setting { setting, value, reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use belljar_cache::Cache;

    use super::locations;
    use crate::settings::Settings;

    #[test]
    fn extra_indexes_come_before_the_default_one() {
        let mut settings = Settings::new(Cache::open(Some("unused".into())).unwrap());
        settings.index_url = Some("https://last.example/simple".into());
        settings.extra_index_urls = vec!["https://first.example/simple".into(), "two=https://second.example".into()];
        let locations = locations(&settings).unwrap();
        let hosts: Vec<_> = locations.indexes().filter_map(|index| index.raw_url().host_str()).collect();
        assert_eq!(hosts, ["first.example", "second.example", "last.example"]);
    }

    #[test]
    fn error_about_an_invalid_url_hides_the_password() {
        let mut settings = Settings::new(Cache::open(Some("unused".into())).unwrap());
        settings.index_url = Some("https://user:secret@[broken/simple".into());
        let error = locations(&settings).unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn missing_find_links_directory_is_an_error() {
        let mut settings = Settings::new(Cache::open(Some("unused".into())).unwrap());
        settings.find_links = vec!["/nowhere/at/all".into()];
        assert!(locations(&settings).unwrap_err().to_string().contains("no such file or directory"));
    }
}

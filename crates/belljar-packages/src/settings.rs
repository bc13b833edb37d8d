//! Where packages come from, and what of them may be had: chosen by whoever starts Belljar, never by code that runs.
//!
//! The environment variables are uv's (<https://docs.astral.sh/uv/reference/environment/>) and pip's
//! (<https://pip.pypa.io/en/stable/topics/configuration/>). uv's win where both name the same thing. Configuration
//! files of either are not read.

use std::path::PathBuf;
use std::time::Duration;

use belljar_cache::Cache;

use crate::error::InstallError;
use crate::policy::Policy;
use crate::requirement::Requirement;

/// What an [`Installer`](crate::Installer) goes by.
#[derive(Clone)]
pub struct Settings {
    /// Where archives, resolutions and uv's own cache are kept.
    pub cache: Cache,
    /// Nothing is fetched over the network.
    pub offline: bool,
    /// The index that is asked last. `None`: uv's default. May hold credentials; may be a directory.
    pub index_url: Option<String>,
    /// Indexes that are asked before it, in this order. The first that has a package is the only one asked for it.
    pub extra_index_urls: Vec<String>,
    /// No index is asked: wheels come from `find_links` and Pyodide alone.
    pub no_index: bool,
    /// Directories of wheels, or addresses of pages that link to wheels.
    pub find_links: Vec<String>,
    /// Files that were uploaded after this date are ignored: `2026-05-01`, `2026-05-01T12:00:00Z`, `3 days`.
    pub exclude_newer: Option<String>,
    /// Versions to keep to if the packages are needed.
    pub constraints: Vec<Requirement>,
    /// Which packages may be installed.
    pub policy: Policy,
    /// Nothing is installed at all: a need is an error.
    pub no_install: bool,
    /// Pyodide's wheels, preferred for what they carry.
    pub pyodide: Option<PyodideSource>,
    /// How long one resolution with its downloads may take.
    pub timeout: Duration,
    /// The most bytes that one file may have.
    pub max_file_bytes: u64,
    /// A file of certificates to trust instead of the usual ones, where `SSL_CERT_FILE` and `SSL_CERT_DIR`, which
    /// win, are not set.
    pub certificates: Option<PathBuf>,
    /// The platform's certificates are trusted instead of Mozilla's, if it has any. Not uv's default: agents start
    /// servers without the variables that would name a company's own authority.
    pub system_certificates: bool,
    /// Hosts (`HOST` or `HOST:PORT`) whose certificates are not checked.
    pub insecure_hosts: Vec<String>,
}

/// A Pyodide release's wheels: `pyodide-lock.json` and the address of the files that it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PyodideSource {
    /// The lock file. Whoever gives it has checked it.
    pub lock: PathBuf,
    /// The address under which the lock's files are found. May be a `file:` address.
    pub base_url: String,
}

impl PyodideSource {
    /// The wheels of a release (`314.0.7`) on Pyodide's own CDN.
    pub fn on_cdn(lock: PathBuf, release: &str) -> Self {
        PyodideSource { lock, base_url: format!("https://cdn.jsdelivr.net/pyodide/v{release}/full/") }
    }
}

impl Settings {
    /// uv's default index, everything allowed, three minutes.
    pub fn new(cache: Cache) -> Self {
        Settings {
            cache,
            offline: false,
            index_url: None,
            extra_index_urls: Vec::new(),
            no_index: false,
            find_links: Vec::new(),
            exclude_newer: None,
            constraints: Vec::new(),
            policy: Policy::unrestricted(),
            no_install: false,
            pyodide: None,
            timeout: Duration::from_secs(180),
            max_file_bytes: 512 << 20,
            certificates: None,
            system_certificates: true,
            insecure_hosts: Vec::new(),
        }
    }

    /// The same, with what uv's and pip's environment variables say. Proxies, `SSL_CERT_FILE`, `SSL_CERT_DIR` and
    /// `NETRC` are honoured with either constructor.
    pub fn from_environment(cache: Cache) -> Result<Self, InstallError> {
        Self::from_variables(cache, |name| std::env::var(name).ok())
    }

    fn from_variables(cache: Cache, variable: impl Fn(&str) -> Option<String>) -> Result<Self, InstallError> {
        let first = |names: &[&str]| {
            names.iter().find_map(|name| variable(name).map(|value| value.trim().to_owned()).filter(|v| !v.is_empty()))
        };
        let words = |names: &[&str], separators: &[char]| -> Vec<String> {
            first(names)
                .map(|value| value.split(separators).filter(|word| !word.is_empty()).map(str::to_owned).collect())
                .unwrap_or_default()
        };
        let switch = |names: &[&str]| first(names).is_some_and(|value| is_true(&value));
        const SPACE: &[char] = &[' ', '\t', '\n'];

        let mut settings = Settings::new(cache);
        settings.offline = switch(&["UV_OFFLINE"]);
        settings.no_index = switch(&["UV_NO_INDEX", "PIP_NO_INDEX"]);
        settings.index_url = first(&["UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"]);
        settings.extra_index_urls = words(&["UV_INDEX"], SPACE);
        settings.extra_index_urls.extend(words(&["UV_EXTRA_INDEX_URL", "PIP_EXTRA_INDEX_URL"], SPACE));
        settings.find_links = match first(&["UV_FIND_LINKS"]) {
            Some(_) => words(&["UV_FIND_LINKS"], &[',']),
            None => words(&["PIP_FIND_LINKS"], SPACE),
        };
        // pip takes a directory that is not there for an empty one; an option that names one is an error.
        settings.find_links.retain(|place| place.contains("://") || PathBuf::from(place).exists());
        settings.exclude_newer = first(&["UV_EXCLUDE_NEWER"]);
        for file in words(&["UV_CONSTRAINT", "PIP_CONSTRAINT"], SPACE) {
            let constraints = crate::requirement_file::read(file.as_ref()).map_err(|error| InstallError::Setting {
                setting: format!("constraints {file}"),
                reason: error.to_string(),
            })?;
            settings.constraints.extend(constraints);
        }
        settings.certificates = first(&["PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"]).map(PathBuf::from);
        settings.system_certificates = first(&["UV_SYSTEM_CERTS", "UV_NATIVE_TLS"]).is_none_or(|value| is_true(&value));
        settings.insecure_hosts = words(&["UV_INSECURE_HOST", "PIP_TRUSTED_HOST"], SPACE);
        Ok(settings)
    }
}

/// What uv and pip both take for yes.
fn is_true(value: &str) -> bool {
    matches!(value.to_ascii_lowercase().as_str(), "1" | "true" | "yes" | "y" | "on" | "t")
}

#[cfg(test)]
mod tests {
    use belljar_cache::Cache;

    use super::Settings;

    fn settings(variables: &[(&str, &str)]) -> Settings {
        let cache = Cache::open(Some("unused".into())).unwrap();
        let find = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Settings::from_variables(cache, find).unwrap()
    }

    #[test]
    fn pips_variables_are_honoured_and_uvs_win() {
        let pip = settings(&[
            ("PIP_INDEX_URL", "https://pip.example/simple"),
            ("PIP_EXTRA_INDEX_URL", "https://a.example https://b.example"),
        ]);
        assert_eq!(pip.index_url.as_deref(), Some("https://pip.example/simple"));
        assert_eq!(pip.extra_index_urls, ["https://a.example", "https://b.example"]);
        let both = settings(&[
            ("PIP_INDEX_URL", "https://pip.example/simple"),
            ("UV_DEFAULT_INDEX", "https://uv.example/simple"),
        ]);
        assert_eq!(both.index_url.as_deref(), Some("https://uv.example/simple"));
    }

    #[test]
    fn empty_variables_are_as_good_as_none() {
        let settings = settings(&[("UV_DEFAULT_INDEX", ""), ("UV_OFFLINE", ""), ("PIP_INDEX_URL", " ")]);
        assert_eq!(settings.index_url, None);
        assert!(!settings.offline);
    }

    #[test]
    fn switches_take_the_words_that_uv_and_pip_take() {
        assert!(settings(&[("UV_OFFLINE", "1")]).offline);
        assert!(settings(&[("PIP_NO_INDEX", "true")]).no_index);
        assert!(!settings(&[("UV_OFFLINE", "0")]).offline);
    }

    #[test]
    fn the_machines_certificates_are_trusted_unless_somebody_says_no() {
        assert!(settings(&[]).system_certificates);
        assert!(settings(&[("UV_SYSTEM_CERTS", "true")]).system_certificates);
        assert!(!settings(&[("UV_SYSTEM_CERTS", "false")]).system_certificates);
        assert!(!settings(&[("UV_NATIVE_TLS", "0")]).system_certificates);
    }

    #[test]
    fn directories_of_wheels_that_are_not_there_are_left_out() {
        let here = tempfile::tempdir().unwrap();
        let here = here.path().to_str().unwrap();
        let settings = settings(&[("PIP_FIND_LINKS", &format!("/nowhere/at/all {here}"))]);
        assert_eq!(settings.find_links, [here]);
    }
}

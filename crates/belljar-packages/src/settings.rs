//! Settings: the sources of packages and the limits on installing them. The operator chooses them, never the code that
//! runs.
//!
//! The environment variables are those of uv (<https://docs.astral.sh/uv/reference/environment/>) and pip
//! (<https://pip.pypa.io/en/stable/topics/configuration/>). uv's variables take precedence over pip's equivalents. The
//! configuration files of both tools are ignored.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use belljar_cache::Cache;

use crate::error::{InstallError, Setting};
use crate::policy::Policy;
use crate::requirement::Requirement;

/// The settings of an [`Installer`](crate::Installer).
#[derive(Clone)]
pub struct Settings {
    /// The cache for wheels, resolutions and uv's own cache.
    pub cache: Cache,
    /// If true, the network is not used.
    pub offline: bool,
    /// The index with the lowest priority: a URL, which may contain credentials, or a directory. Defaults to uv's
    /// default index.
    pub index_url: Option<String>,
    /// Indexes with a higher priority, in this order. A package is taken only from the first index that has it.
    pub extra_index_urls: Vec<String>,
    /// If true, indexes are not used, and wheels come only from `find_links` and Pyodide.
    pub no_index: bool,
    /// Directories of wheels, or URLs of pages that link to wheels.
    pub find_links: Vec<String>,
    /// The date after which uploaded files are ignored: `2026-05-01`, `2026-05-01T12:00:00Z`, `3 days`.
    pub exclude_newer: Option<String>,
    /// Constraints on the versions of packages, which do not cause the packages to be installed.
    pub constraints: Vec<Requirement>,
    /// The policy on which packages may be installed.
    pub policy: Policy,
    /// If true, nothing is installed, and requirements are errors.
    pub no_install: bool,
    /// The wheels of a Pyodide release, which are preferred over those of the indexes.
    pub pyodide: Option<PyodideSource>,
    /// The time limit for one resolution with its downloads.
    pub timeout: Duration,
    /// The maximum size of a file in bytes.
    pub max_file_bytes: u64,
    /// A file of certificates to trust instead of the default ones. `SSL_CERT_FILE` and `SSL_CERT_DIR` take precedence.
    pub certificates: Option<PathBuf>,
    /// If true, the platform's certificates, if it has any, are trusted instead of Mozilla's. This differs from uv's
    /// default, because agents start servers without the variables that would name a company's certificate authority.
    pub system_certificates: bool,
    /// Hosts (`HOST` or `HOST:PORT`) whose certificates are not verified.
    pub insecure_hosts: Vec<String>,
    /// The time from which on answers of indexes, and what was resolved from them, are used. `None` to use older ones
    /// while they are fresh.
    pub refreshed_since: Option<SystemTime>,
}

/// The wheels of a Pyodide release: `pyodide-lock.json` and the base URL of its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PyodideSource {
    /// The lock file. The caller has verified it.
    pub lock: PathBuf,
    /// The base URL of the lock's files, which may be a `file:` URL.
    pub base_url: String,
}

impl PyodideSource {
    /// Returns the wheels of a release (`314.0.7`) on Pyodide's own CDN.
    pub fn on_cdn(lock: PathBuf, release: &str) -> Self {
        PyodideSource { lock, base_url: format!("https://cdn.jsdelivr.net/pyodide/v{release}/full/") }
    }
}

impl Settings {
    /// Creates the default settings: uv's default index, all packages allowed, a time limit of three minutes.
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
            refreshed_since: None,
        }
    }

    /// Creates the default settings as modified by uv's and pip's environment variables. Proxies, `SSL_CERT_FILE`,
    /// `SSL_CERT_DIR` and `NETRC` are used with either constructor.
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
        // pip ignores missing directories in its variable. A missing directory that is set explicitly is an error.
        settings.find_links.retain(|location| location.contains("://") || PathBuf::from(location).exists());
        settings.exclude_newer = first(&["UV_EXCLUDE_NEWER"]);
        for file in words(&["UV_CONSTRAINT", "PIP_CONSTRAINT"], SPACE) {
            let constraints = crate::requirements_file::read(file.as_ref()).map_err(|error| InstallError::Setting {
                setting: Setting::Constraints,
                value: file.clone(),
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

/// Returns whether uv and pip both interpret a value as true.
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
    fn uv_variables_take_precedence_over_pip_variables() {
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
    fn empty_variables_count_as_unset() {
        let settings = settings(&[("UV_DEFAULT_INDEX", ""), ("UV_OFFLINE", ""), ("PIP_INDEX_URL", " ")]);
        assert_eq!(settings.index_url, None);
        assert!(!settings.offline);
    }

    #[test]
    fn boolean_variables_accept_the_values_of_uv_and_pip() {
        assert!(settings(&[("UV_OFFLINE", "1")]).offline);
        assert!(settings(&[("PIP_NO_INDEX", "true")]).no_index);
        assert!(!settings(&[("UV_OFFLINE", "0")]).offline);
    }

    #[test]
    fn system_certificates_are_trusted_unless_disabled() {
        assert!(settings(&[]).system_certificates);
        assert!(settings(&[("UV_SYSTEM_CERTS", "true")]).system_certificates);
        assert!(!settings(&[("UV_SYSTEM_CERTS", "false")]).system_certificates);
        assert!(!settings(&[("UV_NATIVE_TLS", "0")]).system_certificates);
    }

    #[test]
    fn missing_find_links_directories_are_ignored() {
        let here = tempfile::tempdir().unwrap();
        let here = here.path().to_str().unwrap();
        let settings = settings(&[("PIP_FIND_LINKS", &format!("/nowhere/at/all {here}"))]);
        assert_eq!(settings.find_links, [here]);
    }
}

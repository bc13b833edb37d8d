//! The URLs of stores and of coordination services.

use std::path::PathBuf;
use std::str::FromStr;

use percent_encoding::percent_decode_str;
use url::Url;

/// The error of a URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{url:?} is not {expected}: {reason}")]
pub struct UrlError {
    /// The URL, without a password.
    pub url: String,
    /// The kind of URL.
    pub expected: &'static str,
    /// The reason.
    pub reason: String,
}

/// The kind of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreKind {
    /// Amazon S3, or a service with its interface: `s3://BUCKET/PREFIX`.
    S3,
    /// Google Cloud Storage: `gs://BUCKET/PREFIX`.
    Gcs,
    /// Azure Blob Storage: `az://CONTAINER/PREFIX`.
    Azure,
    /// A directory that all replicas share: `file:///PATH`.
    File,
    /// The memory of this process, for tests: `memory:///PREFIX`.
    Memory,
}

/// The URL of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreUrl {
    pub(crate) url: Url,
    pub(crate) kind: StoreKind,
}

impl StoreUrl {
    /// Returns the kind of the store.
    #[must_use]
    pub fn kind(&self) -> StoreKind {
        self.kind
    }

    /// Returns the prefix of the objects, without slashes at its ends.
    pub(crate) fn prefix(&self) -> String {
        match self.kind {
            StoreKind::File => String::new(),
            _ => percent_decode_str(self.url.path().trim_matches('/')).decode_utf8_lossy().into_owned(),
        }
    }
}

impl std::fmt::Display for StoreUrl {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.url.fmt(formatter)
    }
}

impl FromStr for StoreUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let error = |reason: &str| UrlError {
            url: text.to_owned(),
            expected: "the URL of a store (s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX, file:///PATH)",
            reason: reason.to_owned(),
        };
        let url = Url::parse(text).map_err(|cause| error(&cause.to_string()))?;
        let kind = match url.scheme() {
            "s3" => StoreKind::S3,
            "gs" => StoreKind::Gcs,
            "az" => StoreKind::Azure,
            "file" => StoreKind::File,
            "memory" => StoreKind::Memory,
            _ => return Err(error("the scheme is not known")),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(error("credentials are taken from the environment"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(error("it has parameters"));
        }
        let has_host = url.host_str().is_some_and(|host| !host.is_empty());
        match kind {
            StoreKind::File | StoreKind::Memory if has_host => Err(error("it has a host: write three slashes")),
            StoreKind::S3 | StoreKind::Gcs | StoreKind::Azure if !has_host => Err(error("the bucket is missing")),
            _ => Ok(Self { url, kind }),
        }
    }
}

/// The TLS files of connections to etcd. All are PEM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EtcdTls {
    /// The certificates of authorities that are trusted, in place of those of the system: `ca=PATH`.
    pub authorities: Option<PathBuf>,
    /// The certificate of this client: `cert=PATH`.
    pub certificate: Option<PathBuf>,
    /// Its key: `key=PATH`.
    pub key: Option<PathBuf>,
}

/// The URL of an etcd cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdUrl {
    /// The members' client addresses, `HOST:PORT`.
    pub members: Vec<String>,
    /// The prefix of the keys, without slashes at its ends.
    pub prefix: String,
    /// The TLS files; `None` without TLS.
    pub tls: Option<EtcdTls>,
}

/// The service that coordinates the replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClusterUrl {
    /// The conditional writes of the store: `store`.
    Store,
    /// etcd 3.4 or newer: `etcd://A:2379,B:2379/PREFIX?tls&ca=PATH&cert=PATH&key=PATH`.
    ///
    /// The prefix is `belljar` if none is given. Each of the parameters implies `tls`.
    Etcd(EtcdUrl),
}

impl FromStr for ClusterUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let error = |reason: String| UrlError {
            url: text.to_owned(),
            expected: "`store` or the URL of an etcd cluster (etcd://A:2379,B:2379/PREFIX?ca=PATH&cert=PATH&key=PATH)",
            reason,
        };
        if text == "store" {
            return Ok(Self::Store);
        }
        let rest = text.strip_prefix("etcd://").ok_or_else(|| error("the scheme is not etcd".to_owned()))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (members, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if members.contains('@') {
            return Err(UrlError {
                url: "etcd://…".to_owned(),
                ..error("credentials are taken from the environment".to_owned())
            });
        }
        let members: Vec<String> = members
            .split(',')
            .map(member)
            .collect::<Option<_>>()
            .ok_or_else(|| error("the members are not a list of HOST:PORT, separated by commas".to_owned()))?;
        let prefix = prefix.trim_matches('/');
        let prefix = if prefix.is_empty() { "belljar" } else { prefix };
        crate::names::check(prefix).map_err(|cause| error(cause.to_string()))?;
        let tls = tls(query).map_err(error)?;
        Ok(Self::Etcd(EtcdUrl { members, prefix: prefix.to_owned(), tls }))
    }
}

fn member(text: &str) -> Option<String> {
    // The port of etcd's clients, unless there is one. An IPv6 address is in brackets.
    let url = Url::parse(&format!("http://{text}")).ok()?;
    let is_plain = url.path() == "/" && url.query().is_none() && url.username().is_empty() && !text.is_empty();
    is_plain.then(|| format!("{}:{}", url.host_str().unwrap_or_default(), explicit_port(text).unwrap_or(2379)))
}

fn explicit_port(text: &str) -> Option<u16> {
    text.rsplit_once(':')?.1.parse().ok()
}

fn tls(query: &str) -> Result<Option<EtcdTls>, String> {
    let mut tls = EtcdTls::default();
    if query.is_empty() {
        return Ok(None);
    }
    for pair in query.split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let path = percent_decode_str(value).decode_utf8().map_err(|_| format!("{name} is not UTF-8"))?;
        let path = PathBuf::from(path.into_owned());
        match name {
            "tls" => continue,
            "ca" => tls.authorities = Some(path),
            "cert" => tls.certificate = Some(path),
            "key" => tls.key = Some(path),
            _ => return Err(format!("the parameter {name:?} is not known")),
        }
        if value.is_empty() {
            return Err(format!("the parameter {name:?} has no value"));
        }
    }
    if tls.certificate.is_some() != tls.key.is_some() {
        return Err("`cert` and `key` belong together".to_owned());
    }
    Ok(Some(tls))
}

/// The variables that hold credentials: pairs of a name and a value. Use [`std::env::vars`].
///
/// Stores take those of their cloud's tools: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`,
/// `AWS_REGION`, `AWS_ENDPOINT_URL`, `AWS_ALLOW_HTTP`, …; `GOOGLE_APPLICATION_CREDENTIALS`, `GOOGLE_SERVICE_ACCOUNT`,
/// …; `AZURE_STORAGE_ACCOUNT_NAME`, `AZURE_STORAGE_ACCOUNT_KEY`, …. Without any, the roles of the machine or the pod
/// apply. etcd takes `ETCD_USERNAME` and `ETCD_PASSWORD`.
#[derive(Clone, Default)]
pub struct Variables(pub(crate) Vec<(String, String)>);

impl Variables {
    /// Replaces a variable, or adds it.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.0.retain(|(found, _)| found != name);
        self.0.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

impl FromIterator<(String, String)> for Variables {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(variables: I) -> Self {
        let is_known = |name: &str| ["AWS_", "GOOGLE_", "AZURE_", "ETCD_"].iter().any(|start| name.starts_with(start));
        Self(variables.into_iter().filter(|(name, _)| is_known(name)).collect())
    }
}

impl std::fmt::Debug for Variables {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_have_a_bucket_and_a_prefix() {
        let store: StoreUrl = "s3://bucket/a/b/".parse().unwrap();
        assert_eq!((store.kind(), store.prefix().as_str()), (StoreKind::S3, "a/b"));
        for text in ["s3://", "http://bucket", "bucket", "s3://key:secret@bucket", "file://host/path", "s3://b?x=1"] {
            assert!(text.parse::<StoreUrl>().is_err(), "{text}");
        }
    }

    #[test]
    fn etcd_has_members_a_prefix_and_tls() {
        assert_eq!("store".parse::<ClusterUrl>().unwrap(), ClusterUrl::Store);
        let ClusterUrl::Etcd(url) = "etcd://a:2379,b,[::1]:99/x?ca=/c%20a.pem".parse().unwrap() else { panic!() };
        assert_eq!(url.members, ["a:2379", "b:2379", "[::1]:99"]);
        assert_eq!(url.prefix, "x");
        assert_eq!(url.tls.unwrap().authorities.unwrap().to_str(), Some("/c a.pem"));
        let ClusterUrl::Etcd(url) = "etcd://a".parse().unwrap() else { panic!() };
        assert_eq!((url.prefix.as_str(), url.tls), ("belljar", None));
        for text in ["etcd://", "etcd://a,,b", "etcd://u:p@a", "etcd://a?cert=x", "etcd://a?what=x", "redis://a"] {
            assert!(text.parse::<ClusterUrl>().is_err(), "{text}");
        }
    }
}

//! A circuit breaker for a server that has recently failed.
//!
//! While the breaker is open, the server is used only as a last resort, so that new sets of packages do not have to
//! wait for its timeouts.

use std::net::ToSocketAddrs;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, SystemTime};

use belljar_cache::Cache;
use sha2::{Digest, Sha256};
use url::Url;

/// The time after a failure during which the breaker is open.
const TTL: Duration = Duration::from_secs(600);

/// The time limit for a DNS lookup.
const DNS_TIMEOUT: Duration = Duration::from_secs(5);
/// Environment variables that name a proxy. A proxy looks the server's address up itself.
const PROXY_VARIABLES: [&str; 4] = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];

/// The circuit breaker for one server. All processes that use the cache share it.
#[derive(Debug, Clone)]
pub(crate) struct HostOutage {
    /// The file whose modification time is the time of the last failure.
    stamp: PathBuf,
    /// The server's host name and port.
    server: Option<(String, u16)>,
}

impl HostOutage {
    /// Creates the breaker for the server of `base_url`.
    pub(crate) fn new(base_url: &str, cache: &Cache) -> Self {
        let name = format!("outage-{}", hex::encode(Sha256::digest(base_url)));
        let url = Url::parse(base_url).ok();
        let server = url.and_then(|url| Some((url.host_str()?.to_owned(), url.port_or_known_default()?)));
        HostOutage { stamp: cache.root().join("pyodide").join(name), server }
    }

    /// Returns whether the server has recently failed.
    pub(crate) fn is_open(&self) -> bool {
        let written = self.stamp.metadata().and_then(|metadata| metadata.modified());
        // A stamp from the future is ignored: the clock was set back.
        written.is_ok_and(|time| SystemTime::now().duration_since(time).is_ok_and(|age| age < TTL))
    }

    /// Returns whether the DNS lookup of the server's name fails, in which case requests to it cannot succeed.
    pub(crate) fn is_unresolvable(&self) -> bool {
        let Some(server) = self.server.clone() else { return false };
        if PROXY_VARIABLES.iter().any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty())) {
            return false;
        }
        let (sender, receiver) = mpsc::channel();
        // The lookup has no timeout of its own, so it runs on another thread.
        std::thread::spawn(move || {
            // Ignore send errors: the receiver is dropped after the timeout.
            let _ = sender.send(server.to_socket_addrs().is_ok_and(|mut addresses| addresses.next().is_some()));
        });
        receiver.recv_timeout(DNS_TIMEOUT) != Ok(true)
    }

    /// Records a failure of the server, which opens the breaker. Errors are ignored: the server is then tried again.
    pub(crate) fn record_failure(&self) {
        let written = self.stamp.parent().map_or(Ok(()), std::fs::create_dir_all);
        if let Err(error) = written.and_then(|()| std::fs::write(&self.stamp, [])) {
            tracing::debug!(%error, "failed to record an outage");
        }
    }

    /// Records a successful request, which closes the breaker.
    pub(crate) fn record_success(&self) {
        let _ = std::fs::remove_file(&self.stamp);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use belljar_cache::Cache;

    use super::{HostOutage, TTL};

    #[test]
    fn outage_ends_after_a_while_or_when_the_server_answers() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(Some(directory.path().into())).unwrap();
        let (outage, other) =
            (HostOutage::new("https://one.example/", &cache), HostOutage::new("https://two.example/", &cache));
        assert!(!outage.is_open());
        outage.record_failure();
        assert!(outage.is_open() && !other.is_open());
        outage.record_success();
        assert!(!outage.is_open());
        outage.record_failure();
        let unresolvable = HostOutage::new("https://nowhere.invalid/", &cache);
        assert!(unresolvable.is_unresolvable() && !HostOutage::new("http://127.0.0.1:1/", &cache).is_unresolvable());
        for (time, is_open) in [
            (SystemTime::now() - TTL / 2, true),
            (SystemTime::now() - TTL - Duration::from_secs(1), false),
            (SystemTime::now() + Duration::from_secs(3600), false),
        ] {
            std::fs::File::options().write(true).open(&outage.stamp).unwrap().set_modified(time).unwrap();
            assert_eq!(outage.is_open(), is_open);
        }
    }
}

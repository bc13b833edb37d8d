//! A server that did not answer lately: until it may be back, it is asked last, so that not every new set of packages
//! waits for it in vain.

use std::net::ToSocketAddrs;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, SystemTime};

use belljar_cache::Cache;
use sha2::{Digest, Sha256};
use url::Url;

use crate::resolution::hexadecimal;

/// How long a server that did not answer is asked last.
const BELIEVED: Duration = Duration::from_secs(600);

/// How long the address of a server may take to be found.
const LOOKUP: Duration = Duration::from_secs(5);
/// With one of these set, it is a proxy that looks for the server.
const PROXIES: [&str; 4] = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];

/// What is remembered, for all processes, of whether one server answers.
#[derive(Debug, Clone)]
pub(crate) struct Outage {
    /// A file that was written when the server did not answer.
    stamp: PathBuf,
    /// Its name and port.
    server: Option<(String, u16)>,
}

impl Outage {
    /// Of the server that files come from at `base_url`.
    pub(crate) fn of(base_url: &str, cache: &Cache) -> Self {
        let name = format!("outage-{}", hexadecimal(&Sha256::digest(base_url)));
        let url = Url::parse(base_url).ok();
        let server = url.and_then(|url| Some((url.host_str()?.to_owned(), url.port_or_known_default()?)));
        Outage { stamp: cache.root().join("pyodide").join(name), server }
    }

    /// Whether the server did not answer lately.
    pub(crate) fn is_known(&self) -> bool {
        let written = self.stamp.metadata().and_then(|metadata| metadata.modified());
        // A stamp from the future says nothing: the clock was set back.
        written.is_ok_and(|time| SystemTime::now().duration_since(time).is_ok_and(|age| age < BELIEVED))
    }

    /// Whether nobody knows where the server is: then asking it, and once more after a while, is in vain.
    pub(crate) fn is_nowhere(&self) -> bool {
        let Some(server) = self.server.clone() else { return false };
        if PROXIES.iter().any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty())) {
            return false;
        }
        let (found, answer) = mpsc::channel();
        // On a thread of its own, since the lookup has no bound.
        std::thread::spawn(move || {
            // Nobody waits for it in the end, perhaps.
            let _ = found.send(server.to_socket_addrs().is_ok_and(|mut found| found.next().is_some()));
        });
        answer.recv_timeout(LOOKUP) != Ok(true)
    }

    /// The server did not answer. Failing to remember it is fine: then it is asked again.
    pub(crate) fn begin(&self) {
        let written = self.stamp.parent().map_or(Ok(()), std::fs::create_dir_all);
        if let Err(error) = written.and_then(|()| std::fs::write(&self.stamp, [])) {
            tracing::debug!(%error, "an outage cannot be remembered");
        }
    }

    /// The server answered.
    pub(crate) fn end(&self) {
        let _ = std::fs::remove_file(&self.stamp);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use belljar_cache::Cache;

    use super::{BELIEVED, Outage};

    #[test]
    fn an_outage_is_believed_for_a_while_or_until_the_server_answers() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(Some(directory.path().into())).unwrap();
        let (outage, other) = (Outage::of("https://one.example/", &cache), Outage::of("https://two.example/", &cache));
        assert!(!outage.is_known());
        outage.begin();
        assert!(outage.is_known() && !other.is_known());
        outage.end();
        assert!(!outage.is_known());
        outage.begin();
        let nowhere = Outage::of("https://nowhere.invalid/", &cache);
        assert!(nowhere.is_nowhere() && !Outage::of("http://127.0.0.1:1/", &cache).is_nowhere());
        for (time, known) in [
            (SystemTime::now() - BELIEVED / 2, true),
            (SystemTime::now() - BELIEVED - Duration::from_secs(1), false),
            (SystemTime::now() + Duration::from_secs(3600), false),
        ] {
            std::fs::File::options().write(true).open(&outage.stamp).unwrap().set_modified(time).unwrap();
            assert_eq!(outage.is_known(), known);
        }
    }
}

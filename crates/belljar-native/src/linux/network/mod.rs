//! The network of native kernels by policy: a proxy in the host, on a listening socket of the sandbox's namespace.
//!
//! ```text
//!  sandbox's namespace              │ host
//!  code ── HTTP_PROXY ── 127.0.0.1 ─┼─▶ proxy ── Connection (belljar-network) ── policy, limits, records ──▶ server
//! ```
//!
//! The socket is created while the sandbox is set up, and only the host has its descriptor: no process inside takes
//! part. The namespace has no other way out.
//!
//! | file | subject |
//! | --- | --- |
//! | `proxy` | accepts connections and makes those to servers |
//! | `request`, `socks` | the requests of the proxy's clients, by HTTP and by SOCKS5 |
//! | `tunnel` | the bytes of a connection, and TLS in it: passed on, or ended by the host |
//! | `authority` | the certificate authority of a session |
//! | `stream` | a connection of `belljar-network` as a stream of tokio |

mod authority;
mod proxy;
mod request;
mod socks;
mod stream;
mod tunnel;

use std::fs;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use belljar_core::ConnectionRecord;
use belljar_core::kernel::{CellObserver, KernelError};
use belljar_network::{Connections, Network, NetworkObserver, NoNetworkObserver, Policy, Scrubber};
use pem::Pem;
use serde_json::Value;
use tokio::task::AbortHandle;

use crate::linux::network::authority::Authority;
use crate::linux::network::proxy::Proxy;

/// The name of the file of certificates that code trusts.
const TRUST_FILE: &str = "certificates.pem";

/// The first of the ports of proxies, which are those of Linux for outgoing connections.
const FIRST_PORT: u16 = 32_768;
/// The number of ports of proxies.
const PORT_COUNT: u16 = 28_000;

/// The time for which the ends of connections are waited for: servers answer the end of the code's stream.
const CLOSING_TIMEOUT: Duration = Duration::from_millis(200);
const CLOSING_CHECK_INTERVAL: Duration = Duration::from_millis(2);

/// The network of a backend.
pub(crate) struct BackendNetwork {
    network: Arc<Network>,
    /// The certificates that the host trusts, in PEM.
    trusted: String,
    /// A file of these certificates, for sessions without an authority of their own.
    trust_file: PathBuf,
}

impl BackendNetwork {
    /// Creates the network of a backend, with a file of certificates in `directory`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub(crate) fn new(network: Arc<Network>, directory: &Path) -> std::io::Result<Self> {
        let certificates: Vec<Pem> =
            network.trusted_certificates().into_iter().map(|der| Pem::new("CERTIFICATE", der)).collect();
        let trusted = pem::encode_many(&certificates);
        let trust_file = directory.join(TRUST_FILE);
        write_readable(&trust_file, &trusted)?;
        Ok(Self { network, trusted, trust_file })
    }

    /// Returns the scrubber of secrets.
    pub(crate) fn scrubber(&self) -> &Scrubber {
        self.network.scrubber()
    }
}

/// The network of a session: its connections, its certificate authority and its proxy.
pub(crate) struct SessionNetwork {
    network: Arc<Network>,
    connections: Arc<Connections>,
    /// The authority for hosts with rules or secrets; `None` if the policy has none.
    authority: Option<Arc<Authority>>,
    /// The file of certificates that the code trusts, at the same path on the host and inside the sandbox.
    trust_file: PathBuf,
    port: u16,
    proxy: Option<AbortHandle>,
    /// The policy that narrows that of the backend, once a cell has set it.
    narrowed: OnceLock<Value>,
}

impl SessionNetwork {
    /// Creates the network of a session, whose directory on the host is `directory`.
    ///
    /// # Errors
    /// Returns an error if a key cannot be created or the file of certificates cannot be written.
    pub(crate) fn new(backend: &BackendNetwork, directory: &Path) -> std::io::Result<Self> {
        let network = backend.network.clone();
        let connections = network.connections(None, Arc::new(NoNetworkObserver));
        let mut trust_file = backend.trust_file.clone();
        let mut authority = None;
        if connections.may_inspect_tls() {
            let created = Authority::new().map_err(std::io::Error::other)?;
            let folder = directory.join("trust");
            fs::create_dir(&folder)?;
            crate::linux::session_sandbox::set_mode(&folder, 0o755)?;
            trust_file = folder.join(TRUST_FILE);
            write_readable(&trust_file, &format!("{}{}", created.certificate_pem(), backend.trusted))?;
            authority = Some(Arc::new(created));
        }
        // A random port: code that has to know it reads the variables.
        let random = uuid::Uuid::new_v4().as_fields().1;
        let port = FIRST_PORT + random % PORT_COUNT;
        Ok(Self { network, connections, authority, trust_file, port, proxy: None, narrowed: OnceLock::new() })
    }

    /// Returns the port of the proxy, on 127.0.0.1 inside the sandbox.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Returns the path that the sandbox has to show.
    pub(crate) fn readable(&self) -> PathBuf {
        self.trust_file.clone()
    }

    /// Returns the environment variables of the code: the proxy, the certificates that it trusts, and the placeholders
    /// of secrets.
    pub(crate) fn variables(&self) -> Vec<(String, String)> {
        let proxy = format!("http://127.0.0.1:{}", self.port);
        // Code reaches servers of its own session directly, unless the policy names those of the host.
        let direct = if self.connections.reaches_loopback() { "" } else { "localhost,127.0.0.1,::1" };
        let mut variables: Vec<(String, String)> = self
            .network
            .secrets()
            .environment()
            .map(|(name, placeholder)| (name.to_owned(), placeholder.to_owned()))
            .collect();
        // `ALL_PROXY` names the proxy by HTTP as well: httpx fails for a `socks5h:` without a further package.
        let proxies = [("HTTP_PROXY", &*proxy), ("HTTPS_PROXY", &proxy), ("ALL_PROXY", &proxy), ("NO_PROXY", direct)];
        for (name, value) in proxies {
            variables.push((name.to_owned(), value.to_owned()));
            variables.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let trust_file = self.trust_file.display().to_string();
        for name in ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"] {
            variables.push((name.to_owned(), trust_file.clone()));
        }
        variables
    }

    /// Serves the connections of the code to a listening socket of the sandbox, in place of an earlier socket.
    ///
    /// # Errors
    /// Returns an error if the thread of connections cannot be started, or the socket is not one.
    pub(crate) fn serve(&mut self, listener: OwnedFd) -> std::io::Result<()> {
        self.stop();
        let listener = TcpListener::from(listener);
        listener.set_nonblocking(true)?;
        let proxy = Proxy { connections: self.connections.clone(), authority: self.authority.clone() };
        let handle = self.network.handle()?;
        let _in_runtime = handle.enter();
        let listener = tokio::net::TcpListener::from_std(listener)?;
        self.proxy = Some(handle.spawn(proxy.run(listener)).abort_handle());
        Ok(())
    }

    /// Narrows the policy of the session. Only its first cell can do so.
    ///
    /// # Errors
    /// Returns an error if `given` is not a policy, comes too late, or has rules that need TLS to be ended by the host
    /// where the backend's policy needs none of that: the sandbox trusts no authority then.
    pub(crate) fn narrow(&self, given: &Value, is_first_cell: bool) -> Result<(), KernelError> {
        if self.narrowed.get() == Some(given) {
            return Ok(());
        }
        let policy = Policy::from_json(given).map_err(|error| KernelError::InvalidNetwork(error.into()))?;
        if !is_first_cell {
            return Err(KernelError::InvalidNetwork("the first cell of a session sets its policy".into()));
        }
        if policy.has_any_rules() && self.authority.is_none() {
            let message = "a policy with rules cannot narrow that of a native kernel without rules and secrets";
            return Err(KernelError::InvalidNetwork(message.into()));
        }
        if self.narrowed.set(given.clone()).is_err() || !self.connections.narrow(&policy) {
            return Err(KernelError::InvalidNetwork("the session has a policy already".into()));
        }
        Ok(())
    }

    /// Begins a cell: its records are passed to the observer, and the counts of the limits start at zero.
    pub(crate) fn begin_cell(&self, observer: &Arc<dyn CellObserver>) {
        self.connections.set_observer(Arc::new(ObservedConnections(observer.clone())));
        self.connections.start_run();
    }

    /// Returns whether the code has no connections.
    pub(crate) fn is_idle(&self) -> bool {
        self.connections.is_idle()
    }

    /// Returns whether code has begun a connection since the cell began.
    pub(crate) fn any_opened(&self) -> bool {
        self.connections.any_opened()
    }

    /// Waits until the connections of processes that have ended are closed, whose records are made then.
    pub(crate) fn wait_until_idle(&self) {
        let deadline = Instant::now() + CLOSING_TIMEOUT;
        while !self.is_idle() && Instant::now() < deadline {
            std::thread::sleep(CLOSING_CHECK_INTERVAL);
        }
    }

    /// Resets every connection, after the processes of the code were killed.
    pub(crate) fn reset(&self) {
        self.connections.close_all();
    }

    /// Closes the listening socket and every connection.
    fn stop(&mut self) {
        if let Some(proxy) = self.proxy.take() {
            proxy.abort();
        }
        self.reset();
    }
}

impl Drop for SessionNetwork {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Passes records of connections to the observer of the code.
struct ObservedConnections(Arc<dyn CellObserver>);

impl NetworkObserver for ObservedConnections {
    fn on_connection(&self, record: &ConnectionRecord) {
        self.0.on_connection(record);
    }
}

/// Writes a file that all users can read.
fn write_readable(path: &Path, text: &str) -> std::io::Result<()> {
    fs::write(path, text)?;
    crate::linux::session_sandbox::set_mode(path, 0o644)
}

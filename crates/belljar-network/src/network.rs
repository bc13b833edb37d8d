//! The network of a server or a command, which all of its interpreters share.

use std::io;
use std::sync::{Arc, OnceLock};

use belljar_core::ConnectionRecord;
use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};

use crate::connections::Connections;
use crate::limits::NetworkLimits;
use crate::policy::Policy;
use crate::resolver::{Resolver, SystemResolver};
use crate::scrubber::Scrubber;
use crate::secrets::{SecretError, Secrets};
use crate::tls::{Tls, TrustError};

/// Threads for look-ups, which end when they are idle.
const LOOKUP_THREADS: usize = 16;

/// The stack of a thread of look-ups.
const THREAD_STACK: usize = 512 * 1024;

/// An observer of the records of an interpreter. It is called on the thread of all connections: it must not block.
pub trait NetworkObserver: Send + Sync {
    /// Receives the record of a request, a connection or a refusal that is over.
    fn on_connection(&self, record: &ConnectionRecord);
}

/// An observer that ignores records.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoNetworkObserver;

impl NetworkObserver for NoNetworkObserver {
    fn on_connection(&self, _record: &ConnectionRecord) {}
}

/// The options of a [`Network`]. By default, it allows no connection.
#[derive(Default)]
pub struct NetworkOptions {
    /// The accesses that are allowed.
    pub policy: Policy,
    /// Secrets for hosts that the policy allows.
    pub secrets: Secrets,
    /// Certificate authorities in PEM that are trusted as those of the machine are.
    pub extra_ca: Option<Vec<u8>>,
    /// Limits for each interpreter.
    pub limits: NetworkLimits,
    /// The resolver of names. That of the machine, if `None`.
    pub resolver: Option<Arc<dyn Resolver>>,
}

/// Options that are not valid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// A secret is not valid with the policy.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The certificate authorities are not valid.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The source of random numbers failed.
    #[error("failed to create a token: {0}")]
    Random(getrandom::Error),
}

/// The network of a server or a command: policy, secrets and trust. Its thread starts with the first connection.
pub struct Network {
    pub(crate) policy: Policy,
    pub(crate) secrets: Secrets,
    pub(crate) scrubber: Scrubber,
    pub(crate) limits: NetworkLimits,
    pub(crate) resolver: Arc<dyn Resolver>,
    pub(crate) tls: Tls,
    pub(crate) token: [u8; crate::tls_request::TOKEN],
    runtime: OnceLock<OwnedRuntime>,
    /// Held while the runtime is created.
    starting: Mutex<()>,
}

/// A runtime that ends without waiting, so that it may be dropped within another one.
struct OwnedRuntime(Option<Runtime>);

impl Drop for OwnedRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Network {
    /// Creates a network. No thread starts, and the machine's trust store is read with the first use of TLS.
    ///
    /// # Errors
    /// Returns an error if a secret is for a host that the policy does not allow, or if `extra_ca` contains no
    /// certificates.
    pub fn new(options: NetworkOptions) -> Result<Arc<Self>, NetworkError> {
        options.secrets.check(&options.policy)?;
        let mut token = [crate::tls_request::TOKEN_START; crate::tls_request::TOKEN];
        getrandom::fill(&mut token[1..]).map_err(NetworkError::Random)?;
        Ok(Arc::new(Self {
            scrubber: options.secrets.scrubber(),
            policy: options.policy,
            secrets: options.secrets,
            limits: options.limits,
            resolver: options.resolver.unwrap_or_else(|| Arc::new(SystemResolver)),
            tls: Tls::new(options.extra_ca)?,
            token,
            runtime: OnceLock::new(),
            starting: Mutex::new(()),
        }))
    }

    /// Returns the network of one interpreter. With `narrowed`, that policy has to allow an access, too.
    pub fn connections(
        self: &Arc<Self>,
        narrowed: Option<Policy>,
        observer: Arc<dyn NetworkObserver>,
    ) -> Arc<Connections> {
        let policy = match narrowed {
            None => self.policy.clone(),
            Some(narrowed) => self.policy.narrowed_by(&narrowed),
        };
        Arc::new(Connections::new(Arc::clone(self), policy, observer))
    }

    /// Returns the policy. The connections of an interpreter may have a narrower one.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns the secrets, for the environment of the code.
    pub fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// Returns the scrubber of all secrets.
    pub fn scrubber(&self) -> &Scrubber {
        &self.scrubber
    }

    /// Returns the certificate authorities that the host trusts, in DER: the machine's and the extra ones. Each call
    /// reads the machine's trust store.
    pub fn trusted_certificates(&self) -> Vec<Vec<u8>> {
        self.tls.trusted_certificates()
    }

    /// Returns the runtime of the connections, which the first call starts. It has one thread: tasks must not block.
    ///
    /// # Errors
    /// Returns an error if the thread does not start.
    pub fn handle(&self) -> io::Result<Handle> {
        let _starting = self.starting.lock();
        if let Some(OwnedRuntime(Some(runtime))) = self.runtime.get() {
            return Ok(runtime.handle().clone());
        }
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(LOOKUP_THREADS)
            .thread_stack_size(THREAD_STACK)
            .thread_name("belljar-network")
            .enable_io()
            .enable_time()
            .build()?;
        let handle = runtime.handle().clone();
        // The lock is held, so that nothing else set it meanwhile.
        drop(self.runtime.set(OwnedRuntime(Some(runtime))));
        Ok(handle)
    }
}

impl std::fmt::Debug for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Network").field("policy", &self.policy.summary()).field("secrets", &self.secrets).finish()
    }
}

//! The end of a server: by a signal, or by a lost lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use belljar_server::{McpService as _, Server};
use belljar_sessions::Cluster;

use crate::command_error::CommandError;
use crate::os::{EndingSignals, ServiceState, notify_service_manager};

/// The events that end a server.
pub(super) struct Ending {
    cluster: Option<Arc<Cluster>>,
    has_lost_lease: Arc<AtomicBool>,
}

impl Ending {
    pub(super) fn new(server: &Server) -> Self {
        let cluster = server.sessions().and_then(|sessions| sessions.cluster().cloned());
        Self { cluster, has_lost_lease: Arc::default() }
    }

    /// Waits for Ctrl-C or SIGTERM, for SIGHUP if `hangup_ends`, or until this replica has lost its lease. Signals that
    /// arrive before the future is polled are not lost.
    pub(super) fn wait(&self, hangup_ends: bool) -> impl Future<Output = ()> + Send + use<> {
        let (cluster, has_lost_lease) = (self.cluster.clone(), self.has_lost_lease.clone());
        let signals = EndingSignals::catch();
        async move {
            tokio::select! {
                () = signals.wait(hangup_ends) => {}
                () = fenced(cluster) => has_lost_lease.store(true, Ordering::Relaxed),
            }
            notify_service_manager(ServiceState::Stopping);
        }
    }

    /// Checks why the server has ended.
    ///
    /// # Errors
    /// Fails if the server has lost its lease.
    pub(super) fn check(&self) -> Result<(), CommandError> {
        if self.has_lost_lease.load(Ordering::Relaxed) {
            return Err(CommandError::new("this replica has lost its lease: other replicas have its sessions now")
                .with_hint("start it again; a replica that was paused or cut off from the store for 7 s ends itself"));
        }
        Ok(())
    }
}

/// Waits until this replica has lost its lease; for ever without a cluster.
async fn fenced(cluster: Option<Arc<Cluster>>) {
    match cluster {
        Some(cluster) => cluster.fenced().await,
        None => std::future::pending().await,
    }
}

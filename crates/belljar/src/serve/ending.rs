//! The end of a server: signals, a lost lease, and what service managers are told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use belljar_server::{McpService as _, Server};
use belljar_sessions::Cluster;

use crate::command_error::CommandError;

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

/// A state of the server that a service manager waits for.
#[derive(Debug, Clone, Copy)]
pub(super) enum ServiceState {
    /// Requests are accepted.
    Ready,
    /// Calls in flight have a few seconds to end.
    Stopping,
}

/// Reports a state to systemd, if it started this process with `Type=notify`: see sd_notify(3).
pub(super) fn notify_service_manager(state: ServiceState) {
    #[cfg(target_os = "linux")]
    {
        let state = match state {
            ServiceState::Ready => sd_notify::NotifyState::Ready,
            ServiceState::Stopping => sd_notify::NotifyState::Stopping,
        };
        if let Err(error) = sd_notify::notify(&[state]) {
            tracing::warn!(%error, "failed to notify the service manager");
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = state;
}

/// The signals that end a server. They are caught from now on, and not only once they are waited for.
#[cfg(unix)]
struct EndingSignals {
    /// SIGINT, SIGTERM and SIGHUP.
    caught: std::io::Result<[tokio::signal::unix::Signal; 3]>,
}

#[cfg(unix)]
impl EndingSignals {
    fn catch() -> Self {
        use tokio::signal::unix::{SignalKind, signal};
        let catch =
            || Ok([signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?]);
        Self { caught: catch() }
    }

    /// Waits for Ctrl-C or SIGTERM, with which service managers end a process, and for SIGHUP if `hangup_ends`.
    async fn wait(self, hangup_ends: bool) {
        match self.caught {
            Ok([mut interrupt, mut terminate, mut hangup]) => tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                Some(()) = hangup.recv(), if hangup_ends => {}
            },
            Err(error) => {
                tracing::warn!(%error, "failed to handle signals");
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Ctrl-C.
#[cfg(not(unix))]
struct EndingSignals;

#[cfg(not(unix))]
impl EndingSignals {
    fn catch() -> Self {
        Self
    }

    async fn wait(self, _: bool) {
        if let Err(error) = tokio::signal::ctrl_c().await {
            tracing::warn!(%error, "failed to handle Ctrl-C");
            std::future::pending::<()>().await;
        }
    }
}

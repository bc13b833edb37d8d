//! The options of replicas: servers that share sessions through a store.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use belljar_sessions::{Cluster, ClusterOptions, ClusterUrl, Durability, StoreUrl};
use clap::{Args, ValueEnum};

use crate::command_error::CommandError;
use crate::store_credentials;
use crate::value_parsers::seconds;

/// The address of a server on standard streams.
const UNREACHABLE: &str = "stdio:";

/// The options that name the store that servers share.
#[derive(Debug, Clone, Args)]
pub(crate) struct SharedStoreArguments {
    /// Store of the sessions that servers share.
    ///
    /// s3://BUCKET/PREFIX, gs://…, az://… or file:///DIR. Any server answers any request. Credentials are taken from the
    /// environment, as by the cloud's own tools.
    #[arg(
        long,
        value_name = "URL",
        env = "BELLJAR_STORE",
        hide_env_values = true,
        conflicts_with = "data_dir",
        help_heading = "Sessions"
    )]
    pub(crate) store: Option<StoreUrl>,
    /// Coordinator, which decides which server has a session: `store`, or etcd://HOST:PORT,… .
    #[arg(
        long,
        value_name = "URL",
        env = "BELLJAR_CLUSTER",
        hide_env_values = true,
        default_value = "store",
        requires = "store",
        hide_short_help = true
    )]
    pub(crate) cluster: ClusterUrl,
}

/// The options of a replica.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct ClusterArguments {
    #[command(flatten)]
    shared: SharedStoreArguments,
    /// When a cell is answered: once the store has the session's state, once this machine has it, or at once.
    #[arg(long, value_enum, default_value_t, requires = "store", hide_short_help = true)]
    durability: DurabilityArgument,
    /// Address at which other servers reach this one [default: that on which it listens]. Required with --host 0.0.0.0.
    #[arg(
        long,
        value_name = "URL",
        env = "BELLJAR_ADVERTISE",
        hide_env_values = true,
        requires = "store",
        hide_short_help = true
    )]
    advertise: Option<String>,
    /// Time that a server has to give up its sessions when it is asked to end.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "20", requires = "store", hide_short_help = true)]
    drain: Duration,
}

/// The point at which a cell is answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum DurabilityArgument {
    /// When the store has the state: nothing that was answered is lost.
    #[default]
    Store,
    /// When this machine has the state, which the store gets right after.
    Disk,
    /// When it has ended: the store gets the state when the session sleeps or moves, or when its cell waits.
    Memory,
}

/// The times after which the store deletes something.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SessionTimes {
    /// The time without use after which a session ends.
    pub(crate) session_timeout: Duration,
    /// The time for which the result of a run stays.
    pub(crate) run_ttl: Duration,
    /// The time for which a cell may wait.
    pub(crate) max_wait: Duration,
}

impl ClusterArguments {
    /// Returns whether sessions are in a store that servers share.
    pub(crate) fn is_given(&self) -> bool {
        self.shared.store.is_some()
    }

    /// Returns the time that the server has to give up its sessions.
    pub(crate) fn drain(&self) -> Option<Duration> {
        self.is_given().then_some(self.drain)
    }

    /// Checks that other servers can reach this one, which listens on `address`.
    ///
    /// # Errors
    /// Fails if `address` is the address of all interfaces, and the options name none.
    pub(crate) fn check_address(&self, address: IpAddr) -> Result<(), CommandError> {
        if !self.is_given() || self.advertise.is_some() || !address.to_canonical().is_unspecified() {
            return Ok(());
        }
        let error =
            CommandError::new(format!("--advertise is missing: other servers cannot reach this one at {address}"));
        Err(error.with_hint("add --advertise http://HOST:PORT, with a name or an address of this machine"))
    }

    /// Joins the cluster, if the options name a store. `address` is that on which the server listens; without one,
    /// other servers cannot reach it.
    ///
    /// # Errors
    /// Fails if the store or etcd cannot be used.
    pub(crate) fn join(
        &self,
        address: Option<&str>,
        times: SessionTimes,
    ) -> Result<Option<Arc<Cluster>>, CommandError> {
        let Some(store) = &self.shared.store else { return Ok(None) };
        let address = self.advertise.as_deref().or(address).unwrap_or(UNREACHABLE).trim_end_matches('/').to_owned();
        let durability = match self.durability {
            DurabilityArgument::Store => Durability::Store,
            DurabilityArgument::Disk => Durability::Disk,
            DurabilityArgument::Memory => Durability::Memory,
        };
        let SessionTimes { session_timeout, run_ttl, max_wait } = times;
        let settings = settings(store, &self.shared.cluster, session_timeout)?;
        join(ClusterOptions { address, durability, run_ttl, max_wait, ..settings }).map(Some)
    }
}

/// Returns the settings of a process that others cannot reach, and that has no runs.
///
/// # Errors
/// Fails if the credentials of the store cannot be read.
pub(crate) fn settings(
    store: &StoreUrl,
    coordinator: &ClusterUrl,
    session_timeout: Duration,
) -> Result<ClusterOptions, CommandError> {
    Ok(ClusterOptions {
        store: store.clone(),
        coordinator: coordinator.clone(),
        variables: store_credentials::variables(store)?,
        address: UNREACHABLE.to_owned(),
        durability: Durability::default(),
        session_timeout,
        run_ttl: Duration::ZERO,
        max_wait: Duration::ZERO,
    })
}

/// Joins a cluster.
///
/// # Errors
/// Fails if the store or etcd cannot be used.
pub(crate) fn join(options: ClusterOptions) -> Result<Arc<Cluster>, CommandError> {
    let joined = Cluster::join(options);
    let cluster = joined.map_err(|error| CommandError::from_error(&error).context("--store"))?;
    tracing::info!(replica = cluster.node(), "joined the cluster");
    Ok(Arc::new(cluster))
}

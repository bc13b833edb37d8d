//! The place of saved sessions, for commands: a directory, or the store that servers share.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use belljar_sessions::{Cluster, SessionId, Store, StoreError};
use clap::Args;

use crate::cluster_options::{self, SharedStoreArguments};
use crate::command_error::CommandError;

/// The time after which a session that was imported expires if no server uses it.
const UNUSED_IMPORT: Duration = Duration::from_secs(24 * 3600);

/// The options that name the place of saved sessions.
#[derive(Debug, Clone, Args)]
pub(crate) struct SessionPlaceArgs {
    /// Directory in which a server saves its sessions.
    #[arg(
        long,
        value_name = "DIR",
        env = "BELLJAR_DATA_DIR",
        hide_env_values = true,
        required_unless_present = "store"
    )]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    shared: SharedStoreArguments,
}

impl SessionPlaceArgs {
    /// Opens the place. A directory that does not exist is created unless it must `exist`.
    pub(crate) fn open(&self, exist: bool) -> Result<SessionPlace, CommandError> {
        if let Some(url) = &self.shared.store {
            let options = cluster_options::settings(url, &self.shared.cluster, UNUSED_IMPORT)?;
            let cluster = cluster_options::join(options)?;
            let store = Store::in_cluster(cluster.clone()).map_err(|error| CommandError::from_error(&error))?;
            return Ok(SessionPlace { name: format!("{url}"), store, cluster: Some(cluster) });
        }
        let directory =
            self.data_dir.as_deref().ok_or_else(|| CommandError::new("--data-dir or --store is missing"))?;
        let name = directory.display().to_string();
        if exist && !directory.is_dir() {
            return Err(CommandError::new(format!("--data-dir: {name} is not a directory")));
        }
        let opened = Store::open(directory);
        let store = opened.map_err(|error| CommandError::new(format!("failed to open {name}: {error}")))?;
        Ok(SessionPlace { name, store, cluster: None })
    }
}

/// A place of saved sessions.
pub(crate) struct SessionPlace {
    name: String,
    store: Store,
    cluster: Option<Arc<Cluster>>,
}

impl Drop for SessionPlace {
    fn drop(&mut self) {
        // Otherwise the record of this process stays in the store until it is collected.
        if let Some(cluster) = &self.cluster {
            cluster.end();
        }
    }
}

impl SessionPlace {
    /// Returns the name for messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the directory, which is a temporary one in a cluster.
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn cluster(&self) -> Option<&Cluster> {
        self.cluster.as_deref()
    }

    /// Does something with a session that exists.
    pub(crate) fn with_session<T>(
        &self,
        name: &str,
        work: impl FnOnce(&Store, &SessionId) -> Result<T, StoreError>,
    ) -> Result<T, CommandError> {
        let id = SessionId::parse(name).ok_or_else(|| self.not_found(name))?;
        let result = match &self.cluster {
            None => work(&self.store, &id),
            Some(cluster) => cluster.take(&self.store, &id).and_then(|()| {
                let result = work(&self.store, &id);
                cluster.give_back(&self.store, &id)?;
                result
            }),
        };
        result.map_err(|error| self.describe(error, name))
    }

    /// Deletes a session.
    pub(crate) fn remove(&self, name: &str) -> Result<(), CommandError> {
        let id = SessionId::parse(name).ok_or_else(|| self.not_found(name))?;
        let removed = match &self.cluster {
            Some(cluster) => cluster.remove(&self.store, &id),
            None => {
                let store = &self.store;
                store.header(&id).and_then(|_| store.lease(&id, false)).and_then(|_lease| store.remove(&id))
            }
        };
        removed.map_err(|error| self.describe(error, name))?;
        Ok(self.store.clean_up()?)
    }

    /// Adds a session that was exported.
    pub(crate) fn import(&self, id: &SessionId, state: &[u8], cells: &[u8]) -> Result<(), CommandError> {
        self.store.import(id, state, cells)?;
        match &self.cluster {
            Some(cluster) => Ok(cluster.give_back(&self.store, id)?),
            None => Ok(()),
        }
    }

    /// Converts an error about a session.
    fn describe(&self, error: StoreError, session: &str) -> CommandError {
        match error {
            StoreError::Missing => self.not_found(session),
            other => other.into(),
        }
    }

    fn not_found(&self, session: &str) -> CommandError {
        let error = CommandError::new(format!("session {session} does not exist in {}", self.name));
        match self.cluster {
            Some(_) => error,
            None => error.with_hint("`belljar sessions list` lists the sessions"),
        }
    }
}

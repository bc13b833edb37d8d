//! The settings of a session, as its client has configured it.

use serde::{Deserialize, Serialize};

use crate::proto::{Configure, OsPolicy, ResourceLimits};

/// The settings of a session.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct SessionSettings {
    pub(crate) script_name: String,
    pub(crate) limits: ResourceLimits,
    pub(crate) version: u32,
    /// The first two parts of the version of the client, on which the names that it knows depend.
    pub(super) client: [u32; 2],
    pub(super) print_flush_interval: Option<u32>,
    pub(super) os_policy: OsPolicy,
}

impl From<Configure> for SessionSettings {
    fn from(configure: Configure) -> Self {
        Self {
            script_name: configure.script_name,
            limits: configure.limits.unwrap_or_default(),
            version: configure.protocol_version,
            client: client_version(&configure.monty_version),
            print_flush_interval: configure.print_flush_interval_ms,
            os_policy: configure.os_policy.unwrap_or_default(),
        }
    }
}

impl SessionSettings {
    /// Replaces what depends on the client by that of `configured`: another client may load a session than has saved
    /// it.
    pub(crate) fn adopt_client(&mut self, configured: &Self) {
        (self.client, self.version) = (configured.client, configured.version);
    }
}

/// Returns the first two parts of a version; zeros if it has another form.
fn client_version(version: &str) -> [u32; 2] {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    [parts.next().unwrap_or(0), parts.next().unwrap_or(0)]
}

//! All systems but Linux: what requires Linux.

use super::ServiceState;

/// Does nothing: there are neither sandboxes nor worker processes.
pub(crate) fn run_if_child() {}

/// Does nothing: there is no service manager to which servers report their state.
pub(crate) fn notify_service_manager(_: ServiceState) {}

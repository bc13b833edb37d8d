//! Refusals of look-ups and connections.

use std::fmt;

use crate::policy::{Host, Policy};

/// The kind of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusalKind {
    /// The policy does not allow the access. In Python a `PermissionError`.
    Policy,
    /// A limit is reached. In Python an `OSError`.
    Limit,
    /// The name is not one that hosts have. In Python a `socket.gaierror`.
    Name,
    /// The host failed to start the connection.
    Internal,
}

/// An access that was refused. Its text is for the code: the host, the reason, and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    kind: RefusalKind,
    text: String,
}

impl Refusal {
    /// Returns the kind of the refusal.
    pub fn kind(&self) -> RefusalKind {
        self.kind
    }

    /// Creates the refusal of a host that the policy does not allow.
    pub(crate) fn by_policy(host: &Host, port: Option<u16>, reason: Option<&str>, policy: &Policy) -> Self {
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        let text = format!("network access to {host}{port} is not allowed{reason}; allowed: {}", policy.summary());
        Self { kind: RefusalKind::Policy, text }
    }

    pub(crate) fn new(kind: RefusalKind, text: String) -> Self {
        Self { kind, text }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Refusal {}

//! The reasons for which a connection ends early.

use std::io;

/// The reason for which a connection ends early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An error of the network.
    Io(io::Error),
    /// The policy refuses the address. The text is that of the refusal, which is recorded.
    Address(String),
    /// The code violates a protocol that the host checks.
    Refused(String),
    /// The server violates HTTP.
    Protocol(String),
    /// A limit is reached.
    Limit(String),
    /// The code closed the connection.
    Closed,
}

impl Failure {
    /// Returns the error for the code.
    pub(crate) fn to_error(&self) -> io::Error {
        match self {
            // Errors of TLS have the kind `InvalidData`, and those of the system their number.
            Self::Io(error) if error.raw_os_error().is_some() || error.get_ref().is_none() => error.kind().into(),
            Self::Io(error) => io::Error::new(error.kind(), error.to_string()),
            Self::Address(text) => io::Error::new(io::ErrorKind::PermissionDenied, text.clone()),
            Self::Refused(text) | Self::Protocol(text) | Self::Limit(text) => {
                io::Error::new(io::ErrorKind::ConnectionReset, text.clone())
            }
            Self::Closed => io::ErrorKind::ConnectionReset.into(),
        }
    }

    /// Returns the reason for records.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Io(error) => error.to_string(),
            Self::Address(text) | Self::Refused(text) | Self::Protocol(text) | Self::Limit(text) => text.clone(),
            Self::Closed => "the code closed the connection".to_owned(),
        }
    }

    /// Returns whether the policy or a check of the host refused the connection.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Address(_) | Self::Refused(_))
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

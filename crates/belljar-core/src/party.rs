//! The parties that answer questions of code.

/// A party that answers a question of code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Party {
    /// The client whose code it is, or its user.
    Client,
    /// An operator of the server, in place of the client.
    Operator,
}

impl Party {
    /// Returns the name in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Operator => "operator",
        }
    }
}

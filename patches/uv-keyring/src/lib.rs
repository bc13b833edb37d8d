//! A keyring without entries, which replaces the system's (`patches/README.md`).

#![forbid(unsafe_code)]

use std::fmt::{self, Display};

/// An error of the keyring.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The keyring has no such entry.
    NoEntry,
    /// Entries cannot be stored.
    Unsupported,
}

/// The result of an operation on the keyring.
pub type Result<T> = std::result::Result<T, Error>;

/// An entry, which does not exist.
#[derive(Debug)]
pub struct Entry;

impl Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Error::NoEntry => "the keyring has no such entry",
            Error::Unsupported => "Belljar does not use the system's keyring",
        })
    }
}

impl std::error::Error for Error {}

impl Entry {
    /// Creates an entry for a service and a user, without a look at the keyring.
    ///
    /// # Errors
    /// Does not fail.
    pub fn new(_service: &str, _user: &str) -> Result<Self> {
        Ok(Entry)
    }

    /// Returns the password of the entry.
    ///
    /// # Errors
    /// Fails: no entry exists.
    pub async fn get_password(&self) -> Result<String> {
        Err(Error::NoEntry)
    }

    /// Stores a password.
    ///
    /// # Errors
    /// Fails: the keyring stores nothing.
    pub async fn set_password(&self, _password: &str) -> Result<()> {
        Err(Error::Unsupported)
    }

    /// Deletes the entry.
    ///
    /// # Errors
    /// Fails: no entry exists.
    pub async fn delete_credential(&self) -> Result<()> {
        Err(Error::NoEntry)
    }
}

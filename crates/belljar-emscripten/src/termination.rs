//! The error with which a host function ends an instance.

/// The reason why the guest cannot continue. A host function that returns one ends the instance, which must then be
/// dropped.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum Termination {
    /// The program called `exit`.
    #[error("the program exited with status {0}")]
    Exit(i32),
    /// The program called `abort` or failed an assertion.
    #[error("the program aborted: {0}")]
    Abort(String),
    /// A hard stop was requested.
    #[error("the program was stopped")]
    Stopped,
    /// The program exceeded its output limit.
    #[error("the program wrote more than {limit} bytes of output")]
    OutputLimit {
        /// The limit in bytes.
        limit: u64,
    },
    /// The program called an import that this host defines only as a trap.
    #[error("the program called the unsupported host function `{0}`")]
    Unsupported(String),
    /// The program called a function that a library imports but no module defines.
    #[error("the program called the undefined function `{symbol}`, which `{library}` imports")]
    Undefined {
        /// The function.
        symbol: String,
        /// The path of the library that called it.
        library: String,
    },
    /// An invalid call through libffi: the pointer is not a function pointer, or the signature does not match.
    #[error("invalid foreign call: {0}")]
    ForeignCall(String),
    /// The host was called before its main module was ready, or the main module lacks a required export.
    #[error("the program lacks a usable `{0}`")]
    Missing(String),
}

//! Why a wheel is refused.

/// A wheel that cannot be read or is not taken. Each message begins with the file's name.
#[derive(Debug, thiserror::Error)]
pub enum WheelError {
    /// The file cannot be read.
    #[error("{file}: cannot be read from the cache: {source}")]
    Io {
        /// The wheel.
        file: String,
        /// What the system said.
        source: std::io::Error,
    },

    /// It is not a zip archive, or a damaged one, or one of a kind that wheels never are.
    #[error("{file}: not a usable zip archive: {reason}")]
    Archive {
        /// The wheel.
        file: String,
        /// What is wrong with it.
        reason: String,
    },

    /// It would take too much room.
    #[error("{file}: refused, it unpacks to more than is allowed: {reason}")]
    TooLarge {
        /// The wheel.
        file: String,
        /// The limit that it exceeds.
        reason: String,
    },

    /// One of its files has a path that could reach elsewhere, or that is ambiguous.
    #[error("{file}: refused for the path {path:?}: {reason}")]
    Path {
        /// The wheel.
        file: String,
        /// The path, as it stands in the archive.
        path: String,
        /// What is wrong with it.
        reason: String,
    },

    /// Its parts disagree about what it is.
    #[error("{file}: refused, since its metadata disagree: {reason}")]
    Metadata {
        /// The wheel.
        file: String,
        /// Which do.
        reason: String,
    },

    /// A file is not what the wheel's RECORD says.
    #[error("{file}: refused, since {path:?} is not what RECORD says: {reason}")]
    Record {
        /// The wheel.
        file: String,
        /// The file within it.
        path: String,
        /// What differs.
        reason: String,
    },

    /// It is a wheel for another platform or Python.
    #[error("{file}: not a wheel for this platform ({platform})")]
    Platform {
        /// The wheel.
        file: String,
        /// The Python and the platform that it should be for.
        platform: String,
    },
}

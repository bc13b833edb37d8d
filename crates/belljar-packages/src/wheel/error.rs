//! Errors of reading wheels.

/// A wheel that cannot be read or is refused. Each message begins with the file's name.
#[derive(Debug, thiserror::Error)]
pub enum WheelError {
    /// The file cannot be read.
    #[error("{file}: failed to read it from the cache: {source}")]
    Io {
        /// The wheel.
        file: String,
        /// The system's error.
        source: std::io::Error,
    },

    /// The file is not a zip archive, is damaged, or uses features of zip that wheels do not use.
    #[error("{file}: not a usable zip archive: {reason}")]
    Archive {
        /// The wheel.
        file: String,
        /// The reason.
        reason: String,
    },

    /// The unpacked files would exceed a limit.
    #[error("{file}: unpacks to more than is allowed: {reason}")]
    TooLarge {
        /// The wheel.
        file: String,
        /// The exceeded limit.
        reason: String,
    },

    /// A file's path leads out of the wheel or is ambiguous.
    #[error("{file}: invalid entry {path:?}: {reason}")]
    Path {
        /// The wheel.
        file: String,
        /// The path in the archive.
        path: String,
        /// The reason.
        reason: String,
    },

    /// The wheel's parts disagree on its identity.
    #[error("{file}: inconsistent metadata: {reason}")]
    Metadata {
        /// The wheel.
        file: String,
        /// The inconsistency.
        reason: String,
    },

    /// A file differs from the wheel's RECORD.
    #[error("{file}: {path:?} does not match RECORD: {reason}")]
    Record {
        /// The wheel.
        file: String,
        /// The path in the archive.
        path: String,
        /// The difference.
        reason: String,
    },

    /// The wheel is for another platform or Python version.
    #[error("{file}: not a wheel for this platform ({platform})")]
    Platform {
        /// The wheel.
        file: String,
        /// The expected Python version and platform.
        platform: String,
    },
}

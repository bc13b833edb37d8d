//! Installed packages: wheels as read-only layers, sets of them, and images with a set's modules imported.
//!
//! ```text
//! wheels ──▶ layer: files, one cache entry a wheel ──▶ set ──▶ image: restored base, layers, imports
//!       ├──▶ bytecode: of needed modules, in parts ───▶┤
//!       └──▶ library: each `.so`, one cache entry each ┘
//! ```
//!
//! | file | subject |
//! | --- | --- |
//! | `wheel` | the identity of a wheel, and its files |
//! | `layer` | wheels as cache entries and layers |
//! | `background` | compiles modules after they were imported |
//! | `bytecode` | compiles modules with CPython |
//! | `reachable` | the modules that an import executes |
//! | `set` | sets of wheels that are installed together |
//! | `preload` | images by set and imports |

mod background;
mod bytecode;
mod layer;
mod preload;
mod reachable;
mod set;
mod wheel;

pub use set::{PackageSet, SetKey};
pub use wheel::{UnpackedWheel, WheelFile, WheelId};

pub(crate) use background::BytecodeQueue;
pub(crate) use layer::{InstalledWheel, Layers, WheelTable};
pub(crate) use preload::{Preloader, preloadable};
pub(crate) use reachable::{ModulePaths, VERSION as REACHABLE_VERSION, all as all_modules};

/// An error of the supplier of wheels.
pub type SupplyError = Box<dyn std::error::Error + Send + Sync>;

/// An error of installing a wheel's files.
#[derive(Debug, thiserror::Error)]
pub enum WheelLayerError {
    /// The wheel is too large.
    #[error("{wheel} has {what}; the maximum is {limit}")]
    TooLarge {
        /// Name and version.
        wheel: String,
        /// The exceeded quantity: `120000 files`.
        what: String,
        /// The limit.
        limit: u64,
    },
    /// The wheel contains an invalid path.
    #[error("failed to unpack {wheel}: {error}")]
    Path {
        /// Name and version.
        wheel: String,
        /// The problem with the path.
        error: belljar_emscripten::fs::LayerError,
    },
    /// The supplier did not return a requested wheel.
    #[error("{wheel} was not supplied")]
    Missing {
        /// Name and version.
        wheel: String,
    },
    /// The supplier failed.
    #[error("{0}")]
    Supply(SupplyError),
    /// The wheel's cache entry cannot be read.
    #[error("the cache entry of {wheel} is damaged: {reason}")]
    Damaged {
        /// Name and version.
        wheel: String,
        /// The problem with the entry.
        reason: &'static str,
    },
}

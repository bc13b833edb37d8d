//! Installed packages: wheels as read-only layers, sets of them, and images with a set's modules imported.
//!
//! ```text
//! wheels ──▶ layer: files and bytecode, one cache entry a wheel ──▶ set ──▶ image: restored base, layers, imports
//!       └──▶ library: each `.so`, compiled, one cache entry each ────────────▶┘
//! ```
//!
//! | file | subject |
//! | --- | --- |
//! | `wheel` | what is known of a wheel, and its files |
//! | `layer` | a wheel as a cache entry, and as a layer of it |
//! | `bytecode` | has CPython compile a wheel's modules |
//! | `set` | wheels that are installed together |
//! | `preload` | images by set and imports |

mod bytecode;
mod layer;
mod preload;
mod set;
mod wheel;

pub use set::{PackageSet, SetKey};
pub use wheel::{Contents, Member, WheelFile};

pub(crate) use layer::{InstalledWheel, Layers, OpenWheels};
pub(crate) use preload::{Preloader, preloadable};

/// An error of whoever supplies wheels.
pub type SupplyError = Box<dyn std::error::Error + Send + Sync>;

/// Why a wheel's files cannot be installed.
#[derive(Debug, thiserror::Error)]
pub enum WheelLayerError {
    /// It holds more than a wheel may.
    #[error("{wheel} has {what}; at most {limit} are taken")]
    TooLarge {
        /// Name and version.
        wheel: String,
        /// What there is too much of, counted: `120000 files`.
        what: String,
        /// The bound.
        limit: u64,
    },
    /// A path of it cannot be.
    #[error("{wheel} cannot be unpacked: {error}")]
    Path {
        /// Name and version.
        wheel: String,
        /// What is wrong with the path.
        error: belljar_emscripten::fs::LayerError,
    },
    /// The wheels that were asked for are not those that came.
    #[error("{wheel} was not supplied")]
    Missing {
        /// Name and version.
        wheel: String,
    },
    /// Its files could not be had.
    #[error("{0}")]
    Supply(SupplyError),
    /// The cache's entry cannot be read.
    #[error("the cache entry of {wheel} is damaged: {reason}")]
    Damaged {
        /// Name and version.
        wheel: String,
        /// In which way.
        reason: &'static str,
    },
}

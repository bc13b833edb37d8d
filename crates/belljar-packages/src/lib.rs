//! From a piece of Python code to verified wheels.
//!
//! ```text
//! code ──▶ needs ──▶ requests ──▶ Installer::resolve ──▶ Resolution ──▶ Installer::fetch ──▶ Wheel::unpack
//!        (parsing)  (policy)      (uv's resolver)       (pinned, hashed) (cache by sha256)   (checked files)
//! ```
//!
//! Nothing here runs code that a package brings: only wheels are taken, none is ever built, and what is unpacked are
//! bytes in memory. Nothing of the code being run chooses an index, an address or a path: those come from
//! [`Settings`], that is from whoever started the program.
//!
//! uv's crates resolve and download. They are internals of uv without promises, so every use of them is inside this
//! crate and none of their types is seen outside of it.

mod bundle;
mod cached;
mod error;
mod installer;
mod memo;
pub mod needs;
mod outage;
mod platform;
mod policy;
mod pyodide;
mod requirement;
mod requirement_file;
mod resolution;
mod settings;
mod suggestions;
mod uv;
pub mod wheel;

pub use bundle::LOCK_FILE;
pub use cached::{CachedWheel, cached_wheels, clean_wheels};
pub use error::InstallError;
pub use installer::{Installed, Installer, Request};
pub use needs::{Inferred, Known, Needs, NeedsError};
pub use platform::Platform;
pub use policy::{Policy, PolicyError};
pub use requirement::{Requirement, RequirementError};
pub use requirement_file::RequirementFileError;
pub use resolution::{Absent, Kind, Pinned, Resolution, Source};
pub use settings::{PyodideSource, Settings};
pub use wheel::{Unpacked, UnpackedFile, Wheel, WheelError};

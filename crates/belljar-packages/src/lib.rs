//! From a piece of Python code to verified wheels.
//!
//! ```text
//! code ──▶ inference ──▶ PackageRequest ──▶ Installer::resolve ──▶ Resolution ──▶ Installer::fetch ──▶ Wheel::unpack
//!          (parsing)     (policy)           (uv's resolver)        (pinned)       (cache by SHA-256)   (checked files)
//! ```
//!
//! Code of packages is never executed here: packages are taken as wheels only, never built from source, and unpacking
//! produces bytes in memory. The code that is going to run does not choose indexes, URLs or paths. Those come from
//! [`Settings`], which the operator sets.
//!
//! uv's crates resolve and download. They are uv's internals without stability promises, so they are used only inside
//! this crate, and its public API exposes none of their types.
//!
//! | file | subject |
//! | --- | --- |
//! | [`inference`] | the packages that code needs: its imports, its metadata block, the modules of packages |
//! | `requirement`, `requirements_file` | requirements, and files of them |
//! | `installer`, `resolution`, `resolution_cache` | from requirements to fetched wheels |
//! | `lookalikes`, `suggestions` | names that resemble well-known ones |
//! | `policy`, `settings`, `platform` | the settings of the operator, and the interpreter that wheels are for |
//! | `uv` | resolution and downloads by uv |
//! | [`wheel`], `wheel_cache` | verified contents of wheels; listing and deletion of those in the cache |
//! | `pyodide`, `host_outage` | Pyodide's packages, while their server works and while it does not |
//! | `error`, `refusal` | why packages are not installed |
//! | `bundle`, `atomic_file` | directories of wheels for machines without a network; files that are written at once |

mod atomic_file;
mod bundle;
mod error;
mod host_outage;
pub mod inference;
mod installer;
mod lookalikes;
mod platform;
mod policy;
mod pyodide;
mod refusal;
mod requirement;
mod requirements_file;
mod resolution;
mod resolution_cache;
mod settings;
mod suggestions;
mod uv;
pub mod wheel;
mod wheel_cache;

pub use bundle::LOCK_FILE;
pub use error::{GeneralHint, InstallError, Setting, shorten_message};
pub use inference::{
    AvailableModules, Dependencies, DependencyError, ImportedModule, InferredDependency, PipCall, imported_modules,
    modules_imported_on_import, pip_calls,
};
pub use installer::{InstalledPackage, Installer, PackageRequest};
pub use lookalikes::lookalike;
pub use platform::{Platform, PlatformError};
pub use policy::{Policy, PolicyError, PolicyViolation};
pub use requirement::{Requirement, RequirementError};
pub use requirements_file::RequirementsFileError;
pub use resolution::{FileKind, FileSource, MissingPackage, PinnedFile, Resolution};
pub use settings::{PyodideSource, Settings};
pub use wheel::{UnpackedFile, UnpackedWheel, Wheel, WheelError};
pub use wheel_cache::{CachedWheel, cached_wheels, clean_wheels};

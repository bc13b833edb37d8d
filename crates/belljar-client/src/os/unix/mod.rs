//! Linux, macOS and other kinds of Unix.

#[cfg(feature = "oauth")]
pub(crate) mod private_files;
#[cfg(feature = "stdio")]
pub(crate) mod process;

/// The variable of the environment with the path of the user's directory.
#[cfg(feature = "config")]
pub(crate) const HOME_VARIABLE: &str = "HOME";

/// True if every machine has a desktop. Others have one if a variable of the environment names it.
#[cfg(feature = "oauth")]
pub(crate) const HAS_DESKTOP: bool = cfg!(target_os = "macos");

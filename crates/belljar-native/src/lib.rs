//! Native kernels: processes of a Python of this machine, each in a Linux sandbox (crate `belljar-sandbox`).
//!
//! | module | subject |
//! | --- | --- |
//! | [`environment`] | the virtual environment that kernels run in |
//! | `backend`, `kernel_starter` | the backend of sessions and its prestarted kernels; the zygote and cold starts |
//! | `kernel`, `kernel_connection` | the kernel of a session, as sessions use it; its process and connections |
//! | `cell` | runs a cell and enforces its limits |
//! | `shell_request` | requests to the shell other than cells: completions, inspection |
//! | `client`, `zmtp` | the protocol between the host and an untrusted kernel |
//! | `content`, `cell_output` | the contents of a kernel's messages; the output of a cell |
//! | `session_sandbox`, `sandbox_paths` | a session's sandbox and directories; their paths inside, and the specification |
//! | `options`, `native_config` | the options of a backend; the settings that its sessions share |
//! | `environment_view` | the environment at paths that do not name the user of this machine |
//! | `session_dir`, `effective_user` | access to a session's files from the host |
//! | `host_folder` | directories of the host in sandboxes |
//! | `zygote`, `zygote_command`, `kernel_process` | the process that kernels are forked from; kernels' processes |
//! | `start_error` | the reasons why a kernel did not start |
//! | `network` | the proxy by which code reaches the network that the policy allows |
//! | `function_calls` | calls of functions of the host by code |
//! | `cell_packages`, `missing_dependency` | the packages that code imports, and those that it lacks while it runs |
//! | `one_shot` | code that is run once, in a kernel of its own |
//! | `cpu_time` | the processor time of a kernel |
//! | `interrupt` | interrupts and kills a kernel from another thread |
//! | `installer_failure` | the reason why uv or pip installed nothing |
//! | `install_broker`, `pip_requirement` | the requests of a session's pip |
//! | `pip_installer`, `site_packages` | the installation of packages for a session, by the host |
//! | `guest` | the Python that runs in sessions' processes |

pub mod environment;

#[cfg(target_os = "linux")]
mod backend;
#[cfg(target_os = "linux")]
mod cell;
#[cfg(target_os = "linux")]
mod cell_output;
#[cfg(target_os = "linux")]
mod cell_packages;
#[cfg(target_os = "linux")]
mod client;
#[cfg(target_os = "linux")]
mod content;
#[cfg(target_os = "linux")]
mod cpu_time;
#[cfg(target_os = "linux")]
mod effective_user;
#[cfg(target_os = "linux")]
mod environment_view;
#[cfg(target_os = "linux")]
mod function_calls;
#[cfg(target_os = "linux")]
mod guest;
#[cfg(target_os = "linux")]
mod host_folder;
#[cfg(target_os = "linux")]
mod install_broker;
#[cfg(target_os = "linux")]
mod installer_failure;
#[cfg(target_os = "linux")]
mod interrupt;
#[cfg(target_os = "linux")]
mod kernel;
#[cfg(target_os = "linux")]
mod kernel_connection;
#[cfg(target_os = "linux")]
mod kernel_process;
#[cfg(target_os = "linux")]
mod kernel_starter;
mod missing_dependency;
#[cfg(target_os = "linux")]
mod native_config;
#[cfg(target_os = "linux")]
mod network;
#[cfg(target_os = "linux")]
mod one_shot;
#[cfg(target_os = "linux")]
mod options;
#[cfg(target_os = "linux")]
mod pip_installer;
#[cfg(target_os = "linux")]
mod pip_requirement;
#[cfg(target_os = "linux")]
mod sandbox_paths;
#[cfg(target_os = "linux")]
mod session_dir;
#[cfg(target_os = "linux")]
mod session_sandbox;
#[cfg(target_os = "linux")]
mod shell_request;
#[cfg(target_os = "linux")]
mod site_packages;
#[cfg(target_os = "linux")]
mod start_error;
#[cfg(target_os = "linux")]
mod zmtp;
#[cfg(target_os = "linux")]
mod zygote;
#[cfg(target_os = "linux")]
mod zygote_command;

#[cfg(target_os = "linux")]
pub use backend::NativeBackend;
#[cfg(target_os = "linux")]
pub use guest::ENTRY_PYTHON;
#[cfg(target_os = "linux")]
pub use host_folder::NativeMount;
#[cfg(target_os = "linux")]
pub use install_broker::InstallHint;
#[cfg(target_os = "linux")]
pub use installer_failure::InstallerFailure;
#[cfg(target_os = "linux")]
pub use options::{DEFAULT_PACKAGE_BYTES, NativeOptions, NativePackages};
#[cfg(target_os = "linux")]
pub use pip_installer::{InstallError, PackagePolicy};
#[cfg(target_os = "linux")]
pub use pip_requirement::RequirementError;
#[cfg(target_os = "linux")]
pub use start_error::StartError;
#[cfg(target_os = "linux")]
pub use zygote::ZygoteError;
#[cfg(target_os = "linux")]
pub use zygote_command::{ZygoteCommandError, zygote_command};

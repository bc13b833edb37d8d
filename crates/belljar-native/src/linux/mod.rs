//! The kernels, and their backend of sessions.
//!
//! | module | subject |
//! | --- | --- |
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

mod backend;
mod cell;
mod cell_output;
mod cell_packages;
mod client;
mod content;
mod cpu_time;
mod effective_user;
mod environment_view;
mod function_calls;
mod guest;
mod host_folder;
mod install_broker;
mod installer_failure;
mod interrupt;
mod kernel;
mod kernel_connection;
mod kernel_process;
mod kernel_starter;
mod missing_dependency;
mod native_config;
mod network;
mod one_shot;
mod options;
mod pip_installer;
mod pip_requirement;
mod sandbox_paths;
mod session_dir;
mod session_sandbox;
mod shell_request;
mod site_packages;
mod start_error;
mod zmtp;
mod zygote;
mod zygote_command;

pub use backend::NativeBackend;
pub use guest::ENTRY_PYTHON;
pub use host_folder::NativeMount;
pub use install_broker::InstallHint;
pub use installer_failure::InstallerFailure;
pub use options::{DEFAULT_PACKAGE_BYTES, NativeOptions, NativePackages};
pub use pip_installer::{InstallError, PackagePolicy};
pub use pip_requirement::RequirementError;
pub use start_error::StartError;
pub use zygote::ZygoteError;
pub use zygote_command::{ZygoteCommandError, zygote_command};

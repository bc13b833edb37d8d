//! Which sandbox code runs in: CPython in WebAssembly, or a Python of this machine that Linux holds.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use belljar_core::Limits;
use belljar_core::kernel::Backend;
use clap::{Args, ValueEnum};

use crate::packages::PackageOptions;

/// The options.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Sandbox")]
pub(crate) struct SandboxOptions {
    /// What holds the code.
    #[arg(long, value_enum, default_value_t, env = "BELLJAR_SANDBOX", hide_env_values = true)]
    pub(crate) sandbox: Sandbox,
    /// With `--sandbox native`, on a machine where the sandbox does not stand: run the code all the same. It can do whatever
    /// you can.
    #[arg(long)]
    allow_unsandboxed: bool,
    /// The virtual environment of native kernels, with ipykernel in it [default: the one of `belljar native setup`].
    #[arg(long, value_name = "DIR", env = "BELLJAR_VENV", hide_env_values = true)]
    venv: Option<PathBuf>,
    /// Where `belljar native setup` puts environments [default: the platform's directory for data].
    #[arg(long, value_name = "DIR", env = "BELLJAR_NATIVE", hide_env_values = true)]
    native_dir: Option<PathBuf>,
}

/// What holds code.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sandbox {
    /// CPython compiled to WebAssembly. Runs everywhere.
    #[default]
    Wasm,
    /// Linux holds a Python of this machine: namespaces, Landlock, filters of system calls. For wheels that WebAssembly does
    /// not have.
    Native,
    /// The same without namespaces, where they cannot be had: the code sees the machine's processes and network interfaces,
    /// and quotas do not hold.
    NativeWeak,
}

/// How native kernels get packages.
#[derive(Clone)]
pub(crate) struct NativeInstalls {
    /// Whether a package is to be installed: `Err` says why not.
    pub(crate) policy: Arc<dyn Fn(&str) -> Result<(), String> + Send + Sync>,
    /// How long one installation may take.
    pub(crate) timeout: Duration,
}

/// A backend of native kernels, and the Python that it runs.
pub(crate) struct NativeBackend {
    pub(crate) backend: Arc<dyn Backend>,
    /// `3.13.1`
    pub(crate) python: String,
    warm: Box<dyn FnOnce() -> Result<(), String> + Send>,
}

impl NativeBackend {
    /// Does the imports and starts a kernel ahead, on a thread of its own: the first session finds them done.
    pub(crate) fn warm_up_aside(self) -> Arc<dyn Backend> {
        let warm = self.warm;
        std::thread::spawn(move || {
            if let Err(error) = warm() {
                tracing::error!("native kernels are not ready: {error}");
            }
        });
        self.backend
    }
}

impl SandboxOptions {
    /// The backend of native kernels with these limits, if one is asked for. Of `packages` it takes what sessions may
    /// install.
    #[cfg(target_os = "linux")]
    pub(crate) fn native(
        &self,
        limits: Limits,
        color: bool,
        packages: &PackageOptions,
    ) -> Result<Option<NativeBackend>, String> {
        use belljar_jupyter::environment::{Environment, Environments};
        use belljar_jupyter::sandbox::Policy;
        use belljar_jupyter::{Native, NativeOptions, NativePackages};

        let policy = match self.sandbox {
            Sandbox::Wasm if self.allow_unsandboxed || self.venv.is_some() => {
                return Err("--venv and --allow-unsandboxed are for --sandbox native".into());
            }
            Sandbox::Wasm => return Ok(None),
            Sandbox::Native => Policy::Full,
            Sandbox::NativeWeak => Policy::Weak,
        };
        let environment = match &self.venv {
            Some(directory) => Environment::of_directory(directory).map_err(|error| error.to_string())?,
            None => {
                let environments = Environments::new(self.native_dir.clone())
                    .ok_or("this user has no home directory\nhint: --venv DIR names an environment")?;
                environments.current().map_err(|error| error.to_string())?
            }
        };
        let installs = packages.native_installs()?;
        let uv = find_on_path("uv");
        let mut options = NativeOptions::new(environment.interpreter());
        options.limits = limits;
        options.color = color;
        options.policy = policy;
        options.packages =
            installs.map(|NativeInstalls { policy, timeout }| NativePackages { uv, policy: Some(policy), timeout });
        let made = Native::new(options.clone()).map_err(|error| error.to_string());
        let native = match made {
            Ok(native) => {
                if policy == Policy::Weak {
                    eprintln!(
                        "warning: code runs in a weak sandbox (native-weak): it sees this machine's processes and network \
                         interfaces, and quotas do not hold"
                    );
                }
                native
            }
            Err(error) if self.allow_unsandboxed => {
                eprintln!(
                    "warning: code runs WITHOUT a sandbox (--allow-unsandboxed): it can do whatever you can\n\
                     the sandbox does not stand here: {error}"
                );
                options.policy = Policy::Unsandboxed;
                Native::new(options).map_err(|error| error.to_string())?
            }
            Err(error) => return Err(error),
        };
        let warm = native.clone();
        let warm = Box::new(move || warm.warm_up().map_err(|error| error.to_string()));
        Ok(Some(NativeBackend { backend: Arc::new(native), python: environment.python, warm }))
    }

    /// The backend of native kernels: there is none here.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn native(&self, _: Limits, _: bool, _: &PackageOptions) -> Result<Option<NativeBackend>, String> {
        match self.sandbox {
            Sandbox::Wasm => Ok(None),
            _ => Err("native kernels need Linux\nhint: leave out --sandbox".into()),
        }
    }
}

#[cfg(target_os = "linux")]
fn find_on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|file| file.is_file())
}

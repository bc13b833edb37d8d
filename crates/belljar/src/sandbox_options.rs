//! Which sandbox code runs in: CPython in WebAssembly, or a Python of this machine that Linux holds.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use belljar_core::kernel::Backend;
use belljar_core::{Limits, parse_size};
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
    // The variables of these two are read by hand: they may be set for good, and say nothing where code runs in WebAssembly.
    /// The virtual environment of native kernels, with ipykernel in it [default: the one of `belljar native setup`] [env:
    /// BELLJAR_VENV].
    #[arg(long, value_name = "DIR")]
    venv: Option<PathBuf>,
    /// Where `belljar native setup` puts environments [default: the platform's directory for data] [env: BELLJAR_NATIVE].
    #[arg(long, value_name = "DIR")]
    native_dir: Option<PathBuf>,
    /// A device of this machine that native kernels may use, `/dev/nvidia0` for one; may be given again.
    #[arg(long, value_name = "PATH")]
    device: Vec<PathBuf>,
    /// Disk space for the packages that a native session installs [default: 4GB].
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    package_space: Option<u64>,
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

/// Whether a package is to be installed: `Err` says why not.
type PackagePolicy = dyn Fn(&str) -> Result<(), String> + Send + Sync;

/// How native kernels get packages.
#[derive(Clone)]
pub(crate) struct NativeInstalls {
    pub(crate) policy: Arc<PackagePolicy>,
    /// How long one installation may take.
    pub(crate) timeout: Duration,
}

/// A backend of native kernels, and the Python that it runs.
pub(crate) struct NativeBackend {
    pub(crate) backend: Arc<dyn Backend>,
    /// `3.13.1`
    pub(crate) python: String,
    warm: Box<dyn FnOnce() -> Result<(), String> + Send>,
    another: Box<dyn Fn(Limits, bool) -> Result<NativeBackend, String>>,
}

impl NativeBackend {
    /// Another of the same environment, whose kernels have these limits, and tracebacks with colours if `color` says so.
    pub(crate) fn another(&self, limits: Limits, color: bool) -> Result<Self, String> {
        (self.another)(limits, color)
    }

    /// This one, which was made with these options.
    #[cfg(target_os = "linux")]
    fn of(native: belljar_jupyter::Native, options: belljar_jupyter::NativeOptions, python: String) -> Self {
        let backend = Arc::new(native);
        let warm = backend.clone();
        let same = python.clone();
        let another = move |limits: Limits, color: bool| -> Result<Self, String> {
            let options = belljar_jupyter::NativeOptions { limits, color, ..options.clone() };
            let native = belljar_jupyter::Native::new(options.clone()).map_err(|error| error.to_string())?;
            Ok(Self::of(native, options, same.clone()))
        };
        let warm = move || warm.warm_up().map_err(|error| error.to_string());
        Self { backend, python, warm: Box::new(warm), another: Box::new(another) }
    }

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
    /// Whether the options go together: some are for native kernels alone.
    fn check(&self) -> Result<(), String> {
        let only_native = [
            ("--venv", self.venv.is_some()),
            ("--allow-unsandboxed", self.allow_unsandboxed),
            ("--device", !self.device.is_empty()),
            ("--package-space", self.package_space.is_some()),
        ];
        match only_native.into_iter().find(|(_, given)| *given) {
            Some((option, _)) if self.sandbox == Sandbox::Wasm => {
                Err(format!("{option} is for native kernels\nhint: `--sandbox native` runs code in them"))
            }
            _ => Ok(()),
        }
    }

    /// The backend of native kernels with these limits, if one is asked for. Of `packages` it takes what sessions may
    /// install: nothing when it is not to be fetched.
    #[cfg(target_os = "linux")]
    pub(crate) fn native(
        &self,
        limits: Limits,
        color: bool,
        packages: &PackageOptions,
        offline: bool,
    ) -> Result<Option<NativeBackend>, String> {
        use belljar_jupyter::environment::{Environment, Environments};
        use belljar_jupyter::sandbox::Policy;
        use belljar_jupyter::{Native, NativeOptions, NativePackages};

        self.check()?;
        let policy = match self.sandbox {
            Sandbox::Wasm => return Ok(None),
            Sandbox::Native => Policy::Full,
            Sandbox::NativeWeak => Policy::Weak,
        };
        // What is said on the command line comes before what is set for good.
        let variable = |name: &str| std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
        let venv = match (&self.venv, &self.native_dir) {
            (None, None) => variable("BELLJAR_VENV"),
            (venv, _) => venv.clone(),
        };
        let environment = match venv {
            Some(directory) => Environment::of_directory(&directory).map_err(|error| error.to_string())?,
            None => {
                let root = self.native_dir.clone().or_else(|| variable("BELLJAR_NATIVE"));
                let environments = Environments::new(root)
                    .ok_or("this user has no home directory\nhint: --venv DIR names an environment")?;
                environments.current().map_err(|error| error.to_string())?
            }
        };
        let installs = packages.native_installs(offline)?;
        let uv = find_on_path("uv");
        let mut options = NativeOptions::new(environment.interpreter());
        options.limits = limits;
        options.color = color;
        options.policy = policy;
        options.devices.clone_from(&self.device);
        if let Some(space) = self.package_space {
            options.package_bytes = space;
        }
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
                Native::new(options.clone()).map_err(|error| error.to_string())?
            }
            Err(error) => return Err(error),
        };
        Ok(Some(NativeBackend::of(native, options, environment.python)))
    }

    /// The backend of native kernels: there is none here.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn native(
        &self,
        _: Limits,
        _: bool,
        _: &PackageOptions,
        _: bool,
    ) -> Result<Option<NativeBackend>, String> {
        self.check()?;
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

//! The options that select the sandbox: CPython in WebAssembly, or a Python of this machine in a Linux sandbox.

use std::path::PathBuf;
use std::sync::Arc;

use belljar_core::kernel::Backend;
use belljar_core::{Limits, parse_size};
use clap::{Args, ValueEnum};

use crate::command_error::CommandError;
use crate::mount::Mount;
use crate::network::NetworkArguments;
use crate::packages::{NativeInstalls, PackageOptions};

/// The options that select the sandbox.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Sandbox")]
pub(crate) struct SandboxOptions {
    /// Sandbox to run the code in.
    #[arg(long, value_enum, default_value_t, env = "BELLJAR_SANDBOX", hide_env_values = true)]
    pub(crate) sandbox: Sandbox,
    /// UNSAFE: if the native sandbox is unavailable, run the code without a sandbox, with your full privileges.
    #[arg(long, hide_short_help = true)]
    allow_unsandboxed: bool,
    // The environment variables of the next two options are not read by clap: they may be set permanently, and must not
    // cause an error if code runs in WebAssembly.
    /// Virtual environment of native kernels, with ipykernel [default: that of `belljar native setup`] [env:
    /// BELLJAR_VENV].
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    venv: Option<PathBuf>,
    /// Directory of the environments of `belljar native setup` [default: the platform's data directory] [env:
    /// BELLJAR_NATIVE].
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    native_dir: Option<PathBuf>,
    /// Device of this machine that native kernels may use, such as `/dev/nvidia0`. May be repeated.
    #[arg(long, value_name = "PATH", hide_short_help = true)]
    device: Vec<PathBuf>,
    /// Space for the packages that a native session installs [default: 4GB].
    #[arg(long, value_name = "SIZE", value_parser = parse_size, hide_short_help = true)]
    package_space: Option<u64>,
}

/// The packages that descriptions of tools name if the environment has them, by their normalized names.
#[cfg(target_os = "linux")]
const DESCRIBED_PACKAGES: [&str; 10] =
    ["numpy", "pandas", "matplotlib", "scipy", "scikit-learn", "torch", "plotly", "sympy", "requests", "openpyxl"];

/// A sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sandbox {
    /// CPython compiled to WebAssembly. Available on every machine.
    #[default]
    Wasm,
    /// A Python of this machine in a Linux sandbox of namespaces, Landlock and seccomp. For wheels not built for
    /// WebAssembly.
    Native,
    /// The same without namespaces, if they are unavailable: the code sees the processes and network interfaces of the
    /// machine, and quotas do not apply.
    NativeWeak,
}

/// A backend of native kernels and the version of its Python.
pub(crate) struct NativeKernels {
    backend: Arc<dyn Backend>,
    /// The version of Python: `3.13.1`.
    pub(crate) python: String,
    /// Set unless the code runs without a sandbox.
    pub(crate) is_sandboxed: bool,
    /// The well-known packages that the environment has.
    pub(crate) installed: Vec<String>,
    /// Starts the zygote and a first kernel on a separate thread.
    warm_up: Box<dyn FnOnce()>,
    with_limits: Box<dyn Fn(Limits, bool, bool) -> Result<NativeKernels, CommandError>>,
}

/// The settings of a backend of native kernels that do not come from the sandbox's options.
pub(crate) struct NativeSettings<'a> {
    pub(crate) limits: Limits,
    /// Set to color tracebacks.
    pub(crate) color: bool,
    /// The packages that sessions may install. Offline they may not install any.
    pub(crate) packages: &'a PackageOptions,
    pub(crate) offline: bool,
    /// The directories of this machine that code can use.
    pub(crate) mounts: &'a [Mount],
    /// Set if a kernel is started before a session needs it: sessions with folders cannot use it.
    pub(crate) prestart: bool,
    /// Set if code can call tools.
    pub(crate) tools: bool,
    /// The network that code may use.
    pub(crate) network: &'a NetworkArguments,
}

impl NativeKernels {
    /// Creates a second backend of the same environment, with these limits, coloured tracebacks if `color` is set, and
    /// a kernel that is started before a session needs it if `prestart` is set.
    pub(crate) fn with_limits(&self, limits: Limits, color: bool, prestart: bool) -> Result<Self, CommandError> {
        (self.with_limits)(limits, color, prestart)
    }

    #[cfg(target_os = "linux")]
    fn new(
        backend: belljar_native::NativeBackend,
        options: belljar_native::NativeOptions,
        installed: Vec<String>,
    ) -> Self {
        let backend = Arc::new(backend);
        let warm_up = backend.clone();
        let python = options.python_version.clone();
        let is_sandboxed = options.policy != belljar_sandbox::Policy::Unsandboxed;
        let packages = installed.clone();
        let with_limits = move |limits: Limits, color: bool, prestart: bool| -> Result<Self, CommandError> {
            let prestart = usize::from(prestart);
            let options = belljar_native::NativeOptions { limits, color, prestart, ..options.clone() };
            let backend = belljar_native::NativeBackend::new(options.clone())?;
            Ok(Self::new(backend, options, packages.clone()))
        };
        let warm_up = Box::new(move || {
            warm_up.warm_up_in_background(|error| {
                tracing::error!("failed to prepare native kernels: {}", CommandError::from(error));
            });
        });
        Self { backend, python, is_sandboxed, installed, warm_up, with_limits: Box::new(with_limits) }
    }

    /// Starts the zygote and a first kernel on a separate thread, so that the first session does not wait for them.
    pub(crate) fn warm_up_in_background(self) -> Arc<dyn Backend> {
        (self.warm_up)();
        self.backend
    }
}

impl SandboxOptions {
    /// Checks that options for native kernels are used only with them.
    fn check(&self) -> Result<(), CommandError> {
        let only_native = [
            ("--venv", self.venv.is_some()),
            ("--allow-unsandboxed", self.allow_unsandboxed),
            ("--device", !self.device.is_empty()),
            ("--package-space", self.package_space.is_some()),
        ];
        match only_native.into_iter().find(|(_, given)| *given) {
            Some((option, _)) if self.sandbox == Sandbox::Wasm => {
                Err(CommandError::new(format!("{option} applies to native kernels only"))
                    .with_hint("select them with --sandbox native"))
            }
            _ => Ok(()),
        }
    }

    /// Checks that a network policy can be enforced: only the full sandbox has a network of its own.
    #[cfg(target_os = "linux")]
    fn check_network(&self, network: &NetworkArguments) -> Result<(), CommandError> {
        let Some(option) = network.first_given() else { return Ok(()) };
        let without = if self.sandbox == Sandbox::NativeWeak {
            "--sandbox native-weak"
        } else if self.allow_unsandboxed {
            "--allow-unsandboxed"
        } else {
            return Ok(());
        };
        let reason = format!("{option} cannot be used with {without}: the policy would not be enforced");
        Err(CommandError::new(reason)
            .with_hint("use --sandbox native alone, whose kernels have a network of their own"))
    }

    /// Creates the backend of native kernels, if the options select it.
    #[cfg(target_os = "linux")]
    pub(crate) fn native(&self, settings: NativeSettings<'_>) -> Result<Option<NativeKernels>, CommandError> {
        use belljar_native::environment::{Environment, Environments};
        use belljar_native::{NativeBackend, NativeOptions, NativePackages};
        use belljar_sandbox::Policy;

        use crate::notices::{self, Level};

        self.check()?;
        let NativeSettings { limits, color, packages, offline, mounts, prestart, tools, network } = settings;
        let policy = match self.sandbox {
            Sandbox::Wasm => return Ok(None),
            Sandbox::Native => Policy::Full,
            Sandbox::NativeWeak => Policy::Weak,
        };
        self.check_network(network)?;
        // Options override environment variables.
        let variable = |name: &str| std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
        let venv = match (&self.venv, &self.native_dir) {
            (None, None) => variable("BELLJAR_VENV"),
            (venv, _) => venv.clone(),
        };
        let environment = match venv {
            Some(directory) => Environment::from_directory(&directory)?,
            None => {
                let root = self.native_dir.clone().or_else(|| variable("BELLJAR_NATIVE"));
                let environments = Environments::new(root).ok_or_else(|| {
                    CommandError::new("the home directory of this user is unknown")
                        .with_hint("name an environment with --venv DIR")
                })?;
                environments.current()?
            }
        };
        let installs = packages.native_installs(offline)?;
        let installed = environment.installed(&DESCRIBED_PACKAGES);
        let uv = which::which("uv").ok();
        let mut options = NativeOptions::new(environment.interpreter());
        options.python_version = environment.python;
        options.limits = limits;
        options.color = color;
        options.policy = policy;
        options.tools = tools;
        options.network = network.network()?;
        options.devices.clone_from(&self.device);
        let mounts = mounts.iter().map(|Mount { host, guest, writable }| {
            let (source, inside, writable) = (host.clone(), PathBuf::from(guest), *writable);
            belljar_native::NativeMount { source, inside, writable }
        });
        options.mounts = mounts.collect();
        options.prestart = usize::from(prestart);
        if let Some(space) = self.package_space {
            options.package_bytes = space;
        }
        options.packages = installs.map(|NativeInstalls { policy, timeout }| NativePackages {
            uv,
            policy: Some(policy),
            hint: Some(Arc::new(crate::hint::Hint::hint)),
            timeout,
            statistics: belljar_core::InstallStatistics::default(),
        });
        let backend = match NativeBackend::new(options.clone()) {
            Ok(backend) => {
                if policy == Policy::Weak {
                    let message = "code runs in a weak sandbox (native-weak): it sees the processes and network \
                                   interfaces of this machine, and quotas do not apply";
                    notices::write(Level::Warn, &format!("warning: {message}"), message, &[]);
                }
                backend
            }
            Err(error) if self.allow_unsandboxed => {
                let message = "code runs WITHOUT a sandbox (--allow-unsandboxed), with your full privileges";
                let error = error.to_string();
                let line = format!("warning: {message}\nthe sandbox is unavailable: {error}");
                notices::write(Level::Warn, &line, message, &[("error", &error)]);
                options.policy = Policy::Unsandboxed;
                NativeBackend::new(options.clone())?
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Some(NativeKernels::new(backend, options, installed)))
    }

    /// Returns an error if native kernels are selected, because they require Linux.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn native(&self, _: NativeSettings<'_>) -> Result<Option<NativeKernels>, CommandError> {
        self.check()?;
        match self.sandbox {
            Sandbox::Wasm => Ok(None),
            _ => Err(CommandError::new("native kernels require Linux").with_hint("leave out --sandbox")),
        }
    }
}

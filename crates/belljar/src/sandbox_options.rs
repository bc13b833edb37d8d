//! The options that select the sandbox: CPython in WebAssembly, or a Python of this machine in a Linux sandbox.

use std::path::PathBuf;

use belljar_core::{Limits, parse_size};
use belljar_native::environment::{Environment, Environments};
use clap::{Args, ValueEnum};

use crate::command_error::CommandError;
use crate::mount::Mount;
use crate::network::NetworkArguments;
use crate::os::{NativeKernels, NativeRequest, check_native_kernels};
use crate::packages::PackageOptions;

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

    /// Returns the environment of native kernels.
    fn environment(&self) -> Result<Environment, CommandError> {
        // Options override environment variables.
        let variable = |name: &str| std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
        let venv = match (&self.venv, &self.native_dir) {
            (None, None) => variable("BELLJAR_VENV"),
            (venv, _) => venv.clone(),
        };
        if let Some(directory) = venv {
            return Ok(Environment::from_directory(&directory)?);
        }
        let root = self.native_dir.clone().or_else(|| variable("BELLJAR_NATIVE"));
        let environments = Environments::new(root).ok_or_else(|| {
            CommandError::new("the home directory of this user is unknown")
                .with_hint("name an environment with --venv DIR")
        })?;
        Ok(environments.current()?)
    }

    /// Creates the backend of native kernels, if the options select it.
    ///
    /// # Errors
    /// Fails if the system does not have native kernels, if options contradict one another, or if the environment or
    /// the sandbox is unavailable.
    pub(crate) fn native(&self, settings: NativeSettings<'_>) -> Result<Option<NativeKernels>, CommandError> {
        self.check()?;
        if self.sandbox == Sandbox::Wasm {
            return Ok(None);
        }
        check_native_kernels().map_err(|error| error.with_hint("leave out --sandbox"))?;
        let NativeSettings { limits, color, packages, offline, mounts, prestart, tools, network } = settings;
        self.check_network(network)?;
        let environment = self.environment()?;
        let installs = packages.native_installs(offline)?;
        let request = NativeRequest {
            installed: environment.installed(&DESCRIBED_PACKAGES),
            environment,
            is_weak: self.sandbox == Sandbox::NativeWeak,
            allow_unsandboxed: self.allow_unsandboxed,
            devices: self.device.clone(),
            mounts: mounts.to_vec(),
            network: network.network()?,
            installs,
            package_space: self.package_space,
            limits,
            color,
            prestart,
            tools,
        };
        NativeKernels::new(request).map(Some)
    }
}

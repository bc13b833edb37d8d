//! Native kernels: their backend, and the state of their sandbox.

use std::path::PathBuf;
use std::sync::Arc;

use belljar_core::kernel::Backend;
use belljar_core::{InstallStatistics, Limits};
use belljar_native::{NativeBackend, NativeMount, NativeOptions, NativePackages};
use belljar_sandbox::{IsolationLevel, Policy, StepFailure, delegated_control_groups};

use crate::command_error::CommandError;
use crate::hint::Hint;
use crate::mount::Mount;
use crate::notices::{self, Level};
use crate::os::{NativeInstalls, NativeRequest};

/// Checks that this system has native kernels.
pub(crate) fn check_native_kernels() -> Result<(), CommandError> {
    Ok(())
}

/// A backend of native kernels.
pub(crate) struct NativeKernels {
    backend: Arc<NativeBackend>,
    options: NativeOptions,
    installed: Vec<String>,
}

impl NativeKernels {
    /// Creates the backend, without a sandbox if that is unavailable and the request allows it.
    ///
    /// # Errors
    /// Fails if the sandbox is unavailable.
    pub(crate) fn new(request: NativeRequest) -> Result<Self, CommandError> {
        let uv = which::which("uv").ok();
        let mut options = NativeOptions::new(request.environment.interpreter());
        options.python_version = request.environment.python;
        options.limits = request.limits;
        options.color = request.color;
        options.policy = if request.is_weak { Policy::Weak } else { Policy::Full };
        options.tools = request.tools;
        options.network = request.network;
        options.devices = request.devices;
        let mounts = request.mounts.into_iter().map(|Mount { host, guest, writable }| NativeMount {
            source: host,
            inside: PathBuf::from(guest),
            writable,
        });
        options.mounts = mounts.collect();
        options.prestart = usize::from(request.prestart);
        if let Some(space) = request.package_space {
            options.package_bytes = space;
        }
        options.packages = request.installs.map(|NativeInstalls { policy, timeout }| NativePackages {
            uv,
            policy: Some(policy),
            hint: Some(Arc::new(Hint::hint)),
            timeout,
            statistics: InstallStatistics::default(),
        });
        let backend = match NativeBackend::new(options.clone()) {
            Ok(backend) => {
                if request.is_weak {
                    let message = "code runs in a weak sandbox (native-weak): it sees the processes and network \
                                   interfaces of this machine, and quotas do not apply";
                    notices::write(Level::Warn, &format!("warning: {message}"), message, &[]);
                }
                backend
            }
            Err(error) if request.allow_unsandboxed => {
                let message = "code runs WITHOUT a sandbox (--allow-unsandboxed), with your full privileges";
                let error = error.to_string();
                let line = format!("warning: {message}\nthe sandbox is unavailable: {error}");
                notices::write(Level::Warn, &line, message, &[("error", &error)]);
                options.policy = Policy::Unsandboxed;
                NativeBackend::new(options.clone())?
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Self { backend: Arc::new(backend), options, installed: request.installed })
    }

    /// Creates a second backend of the same environment, with these limits, coloured tracebacks if `color` is set, and
    /// a kernel that is started before a session needs it if `prestart` is set.
    pub(crate) fn with_limits(&self, limits: Limits, color: bool, prestart: bool) -> Result<Self, CommandError> {
        let options = NativeOptions { limits, color, prestart: usize::from(prestart), ..self.options.clone() };
        let backend = NativeBackend::new(options.clone())?;
        Ok(Self { backend: Arc::new(backend), options, installed: self.installed.clone() })
    }

    /// Returns the version of Python: `3.13.1`.
    pub(crate) fn python(&self) -> &str {
        &self.options.python_version
    }

    /// Returns whether the code runs in a sandbox.
    pub(crate) fn is_sandboxed(&self) -> bool {
        self.options.policy != Policy::Unsandboxed
    }

    /// Returns the well-known packages that the environment has.
    pub(crate) fn installed(&self) -> &[String] {
        &self.installed
    }

    /// Starts the zygote and a first kernel on a separate thread, so that the first session does not wait for them.
    pub(crate) fn warm_up_in_background(self) -> Arc<dyn Backend> {
        self.backend.warm_up_in_background(|error| {
            tracing::error!("failed to prepare native kernels: {}", CommandError::from(error));
        });
        self.backend
    }
}

/// Describes whether the sandbox of native kernels is available on this machine.
pub(crate) fn describe_sandbox() -> String {
    let lacks = |missing: &Option<StepFailure>| {
        missing.as_ref().map_or_else(String::new, |missing| format!("{missing}\nhint: {}", missing.hint()))
    };
    match NativeBackend::probe_sandbox() {
        Ok(probe) => match probe.level {
            Some(IsolationLevel::Full) => {
                let groups = match delegated_control_groups() {
                    Some(folder) => format!("control groups below {}", folder.display()),
                    None => "control groups are not delegated: processes are limited one by one".into(),
                };
                format!("available (--sandbox native); {groups}")
            }
            Some(IsolationLevel::Weak) => {
                format!("only the weak sandbox is available (--sandbox native-weak): {}", lacks(&probe.missing))
            }
            None => format!("unavailable: {}", lacks(&probe.missing_for_weak)),
        },
        Err(error) => format!("failed to probe: {error}"),
    }
}

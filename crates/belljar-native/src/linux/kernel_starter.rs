//! Starts kernels: keeps the zygote, and falls back to a start from nothing until the zygote is ready.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use belljar_core::SessionFolder;
use belljar_sandbox::Policy;
use parking_lot::Mutex;

use crate::linux::kernel_connection::KernelConnection;
use crate::linux::kernel_process::KernelProcess;
use crate::linux::native_config::NativeConfig;
use crate::linux::session_sandbox::SessionSandbox;
use crate::linux::start_error::StartError;
use crate::linux::zygote::{Zygote, ZygoteConfig, ZygoteError};

/// The time within which a zygote must finish its imports: matplotlib scans all fonts when it is imported first.
const IMPORT_TIMEOUT: Duration = Duration::from_secs(180);
/// The time for which no other zygote is started after one has failed.
const ZYGOTE_RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// The starter of a backend's kernels.
pub(crate) struct KernelStarter {
    zygote: Mutex<ZygoteState>,
    /// The modules that the zygote imports.
    modules: Vec<String>,
    // After the zygote: dropping it deletes the directories that the zygote uses.
    config: NativeConfig,
}

/// The state of the zygote with its imports.
enum ZygoteState {
    /// It was not started yet, or has exited.
    None,
    /// A thread starts it.
    Starting,
    /// A thread waits for its Python and its imports.
    Importing(Arc<Zygote>),
    Ready(Arc<Zygote>),
    /// It did not start, at this time and for this reason.
    Failed(Instant, Arc<ZygoteError>),
}

impl KernelStarter {
    /// Creates a starter. It does not start a process.
    pub(crate) fn new(config: NativeConfig, modules: Vec<String>) -> Self {
        Self { zygote: Mutex::new(ZygoteState::None), modules, config }
    }

    pub(crate) fn config(&self) -> &NativeConfig {
        &self.config
    }

    /// Starts the zygote unless it is running or being started. Returns whether it is ready.
    ///
    /// The starter is not kept alive while the zygote imports: a server that ends meanwhile deletes its directories
    /// without waiting.
    ///
    /// # Errors
    /// Returns an error if the zygote does not start.
    pub(crate) fn warm_up(starter: &Weak<Self>) -> Result<bool, StartError> {
        let Some(this) = starter.upgrade() else { return Ok(false) };
        if this.config.policy == Policy::Weak {
            // Weak kernels are programs, and do not need a zygote.
            return Ok(true);
        }
        {
            let mut state = this.zygote.lock();
            match &*state {
                ZygoteState::Starting | ZygoteState::Importing(_) => return Ok(false),
                ZygoteState::Ready(zygote) if zygote.is_alive() => return Ok(true),
                ZygoteState::Failed(when, error) if when.elapsed() < ZYGOTE_RETRY_INTERVAL => {
                    return Err(StartError::Zygote(error.clone()));
                }
                _ => *state = ZygoteState::Starting,
            }
        }
        let (config, deadline) = (this.zygote_config(this.modules.clone()), Instant::now() + IMPORT_TIMEOUT);
        let started = Zygote::spawn(config, deadline).map(Arc::new).and_then(|zygote| {
            // Before Python runs: dropping the starter kills a zygote that could create the deleted directories again.
            *this.zygote.lock() = ZygoteState::Importing(zygote.clone());
            drop(this);
            zygote.wait_for_hello(deadline)?;
            zygote.ready().map(|()| zygote)
        });
        let Some(this) = starter.upgrade() else { return Ok(false) };
        let mut state = this.zygote.lock();
        match started {
            Ok(zygote) => {
                *state = ZygoteState::Ready(zygote);
                Ok(true)
            }
            Err(error) => {
                let error = Arc::new(error);
                *state = ZygoteState::Failed(Instant::now(), error.clone());
                Err(StartError::Zygote(error))
            }
        }
    }

    fn zygote_config(&self, modules: Vec<String>) -> ZygoteConfig {
        let NativeConfig { python, code, fonts, .. } = &self.config;
        let executable = self.config.guest_python().to_owned();
        ZygoteConfig { python: python.clone(), executable, code: code.clone(), modules, fonts: fonts.clone() }
    }

    /// Returns a zygote to fork a kernel from: the one with its imports if it is ready, or a new one without imports.
    /// Returns `None` if kernels must be programs.
    fn zygote_or_cold(&self) -> Result<Option<Arc<Zygote>>, ZygoteError> {
        if self.config.policy == Policy::Weak {
            return Ok(None);
        }
        if let ZygoteState::Ready(zygote) = &*self.zygote.lock()
            && zygote.is_alive()
        {
            return Ok(Some(zygote.clone()));
        }
        match Zygote::start(self.zygote_config(Vec::new()), Instant::now() + IMPORT_TIMEOUT) {
            Ok(zygote) => Ok(Some(Arc::new(zygote))),
            // The code could change the dynamic loader of this Python: see `zygote_command`.
            Err(ZygoteError::Command(error)) if self.config.policy == Policy::Full && error.allows_program() => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Starts a kernel in the sandbox of a session.
    ///
    /// # Errors
    /// See [`StartError`].
    pub(crate) fn start_kernel(&self, sandbox: &mut SessionSandbox) -> Result<KernelConnection, StartError> {
        KernelConnection::start(&self.config, sandbox, self.zygote_or_cold()?, &|_| {})
    }

    /// Creates the sandbox of a session, whose files are in `folder` if one is given, and starts a kernel in it. Passes
    /// the kernel's process to `on_spawn` before it waits for the kernel.
    ///
    /// # Errors
    /// See [`StartError`].
    pub(crate) fn start_session(
        &self,
        folder: Option<&SessionFolder>,
        on_spawn: &dyn Fn(&Arc<KernelProcess>),
    ) -> Result<(KernelConnection, SessionSandbox), StartError> {
        let zygote = self.zygote_or_cold()?;
        let mut sandbox = SessionSandbox::new(&self.config, zygote.as_deref(), folder)?;
        let connection = KernelConnection::start(&self.config, &mut sandbox, zygote, on_spawn)?;
        Ok((connection, sandbox))
    }
}

impl Drop for KernelStarter {
    fn drop(&mut self) {
        if let ZygoteState::Importing(zygote) = self.zygote.get_mut() {
            // It would write to directories that are about to be deleted.
            zygote.kill();
        }
    }
}

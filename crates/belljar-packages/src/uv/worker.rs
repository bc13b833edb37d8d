//! The thread that runs uv. uv's futures are not `Send`, so they need a thread of their own.
//!
//! The thread starts with the first job and ends when its [`Worker`] is dropped. Jobs run concurrently on it.

use std::rc::Rc;
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use tokio::sync::mpsc as jobs;

use crate::error::InstallError;
use crate::platform::Platform;
use crate::pyodide::PyodideLock;
use crate::settings::Settings;
use crate::uv::Engine;

/// The thread's stack size. uv's resolver is recursive; uv's own binary uses four megabytes in release builds and more
/// in debug builds.
const STACK_BYTES: usize = 16 << 20;

type Job = Box<dyn FnOnce(Rc<EngineCell>) -> LocalBoxFuture<'static, ()> + Send>;

/// A handle to the thread.
pub(crate) struct Worker {
    settings: Settings,
    platform: Platform,
    lock: OnceLock<Option<Arc<PyodideLock>>>,
    jobs: OnceLock<jobs::UnboundedSender<Job>>,
}

/// The arguments of [`Engine::new`].
struct EngineConfig {
    settings: Settings,
    platform: Platform,
    lock: Option<Arc<PyodideLock>>,
}

/// The engine, which is set up by the first job.
struct EngineCell {
    config: EngineConfig,
    engine: tokio::sync::OnceCell<Rc<Engine>>,
}

impl Worker {
    pub(crate) fn new(platform: Platform, settings: Settings) -> Self {
        Worker { settings, platform, lock: OnceLock::new(), jobs: OnceLock::new() }
    }

    /// Returns Pyodide's lock, if the settings contain one. The file is read once.
    pub(crate) fn lock(&self) -> Result<Option<Arc<PyodideLock>>, InstallError> {
        if let Some(lock) = self.lock.get() {
            return Ok(lock.clone());
        }
        let lock = self.settings.pyodide.as_ref().map(PyodideLock::read).transpose()?.map(Arc::new);
        Ok(self.lock.get_or_init(|| lock).clone())
    }

    /// Runs a job on the thread and waits for it for at most `limit`. `doing` describes the job in the timeout error.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        doing: &str,
        limit: Duration,
        work: impl FnOnce(Rc<Engine>) -> LocalBoxFuture<'static, Result<T, InstallError>> + Send + 'static,
    ) -> Result<T, InstallError> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let timeout = InstallError::Timeout { doing: doing.to_owned(), limit: self.settings.timeout };
        let job: Job = Box::new(move |engine| {
            async move {
                let job = async { work(engine.get().await?).await };
                let outcome = tokio::time::timeout(limit, job).await.unwrap_or(Err(timeout));
                // Ignore send errors: the receiver may have been dropped.
                let _ = sender.send(outcome);
            }
            .boxed_local()
        });
        let ended = || InstallError::Internal { reason: "the download thread has ended".to_owned() };
        self.jobs()?.send(job).map_err(|_| ended())?;
        receiver.recv().map_err(|_| ended())?
    }

    fn jobs(&self) -> Result<&jobs::UnboundedSender<Job>, InstallError> {
        if let Some(jobs) = self.jobs.get() {
            return Ok(jobs);
        }
        let (sender, receiver) = jobs::unbounded_channel();
        let config =
            EngineConfig { settings: self.settings.clone(), platform: self.platform.clone(), lock: self.lock()? };
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().thread_stack_size(STACK_BYTES).build().map_err(
                |error| InstallError::Internal { reason: format!("failed to create the download runtime: {error}") },
            )?;
        // If two threads get here at the same time, the second one's sender is dropped, which ends its thread.
        std::thread::Builder::new()
            .name("belljar-packages".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || run_jobs(&runtime, config, receiver))
            .map_err(|error| InstallError::Internal {
                reason: format!("failed to start the download thread: {error}"),
            })?;
        Ok(self.jobs.get_or_init(|| sender))
    }
}

fn run_jobs(runtime: &tokio::runtime::Runtime, config: EngineConfig, mut jobs: jobs::UnboundedReceiver<Job>) {
    let local = tokio::task::LocalSet::new();
    local.block_on(runtime, async move {
        let engine = Rc::new(EngineCell { config, engine: tokio::sync::OnceCell::new() });
        while let Some(job) = jobs.recv().await {
            tokio::task::spawn_local(job(Rc::clone(&engine)));
        }
    });
}

impl EngineCell {
    async fn get(&self) -> Result<Rc<Engine>, InstallError> {
        let engine = self
            .engine
            .get_or_try_init(|| async {
                let EngineConfig { settings, platform, lock } = &self.config;
                Engine::new(platform, settings, lock.clone()).await.map(Rc::new)
            })
            .await?;
        Ok(Rc::clone(engine))
    }
}

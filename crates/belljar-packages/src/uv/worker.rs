//! The thread on which uv runs: its futures may not move between threads, so they get one of their own.
//!
//! The thread starts with the first piece of work and serves until its [`Worker`] is dropped. Pieces of work run
//! concurrently on it.

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

/// uv's resolver recurses; its own binary asks for four megabytes in release builds and more in others.
const STACK_BYTES: usize = 16 << 20;

type Job = Box<dyn FnOnce(Rc<Lazy>) -> LocalBoxFuture<'static, ()> + Send>;

/// A handle to the thread.
pub(crate) struct Worker {
    settings: Settings,
    platform: Platform,
    lock: OnceLock<Option<Arc<PyodideLock>>>,
    jobs: OnceLock<jobs::UnboundedSender<Job>>,
}

/// What the engine is made from.
struct Ingredients {
    settings: Settings,
    platform: Platform,
    lock: Option<Arc<PyodideLock>>,
}

/// The engine, set up by whoever needs it first.
struct Lazy {
    ingredients: Ingredients,
    engine: tokio::sync::OnceCell<Rc<Engine>>,
}

impl Worker {
    pub(crate) fn new(platform: Platform, settings: Settings) -> Self {
        Worker { settings, platform, lock: OnceLock::new(), jobs: OnceLock::new() }
    }

    /// Pyodide's lock, if the settings name one. It is read once.
    pub(crate) fn lock(&self) -> Result<Option<Arc<PyodideLock>>, InstallError> {
        if let Some(lock) = self.lock.get() {
            return Ok(lock.clone());
        }
        let lock = self.settings.pyodide.as_ref().map(PyodideLock::read).transpose()?.map(Arc::new);
        Ok(self.lock.get_or_init(|| lock).clone())
    }

    /// Does a piece of work on the thread and waits for it, for at most `limit`. `doing` says what, for the error.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        doing: &str,
        limit: Duration,
        work: impl FnOnce(Rc<Engine>) -> LocalBoxFuture<'static, Result<T, InstallError>> + Send + 'static,
    ) -> Result<T, InstallError> {
        let (answer, answered) = mpsc::sync_channel(1);
        let timeout = InstallError::Timeout { doing: doing.to_owned(), limit: self.settings.timeout };
        let job: Job = Box::new(move |lazy| {
            async move {
                let whole = async { work(lazy.get().await?).await };
                let outcome = tokio::time::timeout(limit, whole).await.unwrap_or(Err(timeout));
                // Whoever asked may have gone.
                let _ = answer.send(outcome);
            }
            .boxed_local()
        });
        let ended = || InstallError::Internal { what: "the thread that resolves and downloads has ended".to_owned() };
        self.jobs()?.send(job).map_err(|_| ended())?;
        answered.recv().map_err(|_| ended())?
    }

    fn jobs(&self) -> Result<&jobs::UnboundedSender<Job>, InstallError> {
        if let Some(jobs) = self.jobs.get() {
            return Ok(jobs);
        }
        let (sender, receiver) = jobs::unbounded_channel();
        let ingredients =
            Ingredients { settings: self.settings.clone(), platform: self.platform.clone(), lock: self.lock()? };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .thread_stack_size(STACK_BYTES)
            .build()
            .map_err(|error| InstallError::Internal { what: format!("no runtime for downloads: {error}") })?;
        // Should two threads come here at once, the second one's sender is dropped, and its thread ends by that.
        std::thread::Builder::new()
            .name("belljar-packages".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || serve(&runtime, ingredients, receiver))
            .map_err(|error| InstallError::Internal { what: format!("no thread for downloads: {error}") })?;
        Ok(self.jobs.get_or_init(|| sender))
    }
}

fn serve(runtime: &tokio::runtime::Runtime, ingredients: Ingredients, mut jobs: jobs::UnboundedReceiver<Job>) {
    let local = tokio::task::LocalSet::new();
    local.block_on(runtime, async move {
        let lazy = Rc::new(Lazy { ingredients, engine: tokio::sync::OnceCell::new() });
        while let Some(job) = jobs.recv().await {
            tokio::task::spawn_local(job(Rc::clone(&lazy)));
        }
    });
}

impl Lazy {
    async fn get(&self) -> Result<Rc<Engine>, InstallError> {
        let engine = self
            .engine
            .get_or_try_init(|| async {
                let Ingredients { settings, platform, lock } = &self.ingredients;
                Engine::new(platform, settings, lock.clone()).await.map(Rc::new)
            })
            .await?;
        Ok(Rc::clone(engine))
    }
}

//! `belljar monty`: a worker for programs with pydantic-monty's client.

use std::process::ExitCode;
use std::sync::Arc;

use belljar_core::kernel::Backend;
use belljar_core::{Activity, Limits, Progress};
use belljar_monty::{DumpKey, Link, Worker, WorkerOptions, serve_stream};
use belljar_python::{BackendOptions, Python, RuntimeLoader, WasmBackend};
use clap::Args;

use crate::audit_options::AuditArguments;
use crate::command_error::CommandError;
use crate::global_options::GlobalOptions;
use crate::limits::LimitOptions;
use crate::network::NetworkArguments;
use crate::observability::{LogFormat, Observability};
use crate::outcome::fail;
use crate::packages::{PackageOptions, Packages};
use crate::progress;
use crate::shutdown::BackendTracker;

/// The memory in bytes that an interpreter has before a session's first feed. A session's own limit is added to it.
const INTERPRETER_MEMORY: u64 = 128 << 20;

/// The options of `belljar monty`.
#[derive(Debug, Clone, Args)]
pub(crate) struct MontyArguments {
    #[command(flatten)]
    limits: LimitOptions,
    #[command(flatten)]
    packages: PackageOptions,
    #[command(flatten)]
    network: NetworkArguments,
    #[command(flatten)]
    audit: AuditArguments,
}

/// Serves one parent on standard input and output until it ends.
pub(crate) fn monty(global: &GlobalOptions, arguments: &MontyArguments, observability: Observability) -> ExitCode {
    let tracker = BackendTracker::default();
    let result = run(global, arguments, &tracker, &observability);
    tracker.wait();
    observability.end();
    tracker.optimize_libraries(global);
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(error),
    }
}

fn run(
    global: &GlobalOptions,
    arguments: &MontyArguments,
    tracker: &BackendTracker,
    observability: &Observability,
) -> Result<(), CommandError> {
    arguments.packages.check()?;
    // Lines of progress are not objects.
    let quiet = global.quiet || global.log_format == Some(LogFormat::Json);
    let (options, offline) = (global.options()?, global.offline());
    let packages = arguments.packages.clone();
    let loaded = tracker.python();
    let runtime = RuntimeLoader::new(move |progress| {
        let python = Python::open(&options, progress).map_err(CommandError::from)?;
        let _ = loaded.set(python.clone());
        let progress: Arc<dyn Progress> = Arc::from(progress::reporter(quiet));
        Ok(Packages::new(&python, &packages, offline, progress)?.into_runtime(python))
    });
    let network = arguments.network.network()?;
    let activity = observability.start_audit(&arguments.audit, network.as_deref(), "monty")?;
    let options = BackendOptions { limits: arguments.limits.for_run(), network, ..BackendOptions::default() };
    let worker_options = worker_options(Arc::new(runtime), options, DumpKey::for_local_workers());
    let worker_options = WorkerOptions { activity, ..worker_options };
    tracker.add(&worker_options.backend);
    let (link, parent) = Link::to_stream(std::io::stdout());
    std::thread::spawn(move || {
        if let Err(error) = serve_stream(std::io::stdin().lock(), &parent) {
            fail(format!("failed to read a request: {error}"));
        }
    });
    let worker = Worker::new(worker_options, link);
    belljar_python::on_guest_thread(|| worker.serve()).map_err(|error| format!("failed to start a thread: {error}"))?;
    Ok(())
}

/// Returns the options of workers whose sessions have these options.
pub(crate) fn worker_options(runtime: Arc<RuntimeLoader>, options: BackendOptions, dump_key: DumpKey) -> WorkerOptions {
    let backend: Arc<dyn Backend> = Arc::new(WasmBackend::with_options(runtime.clone(), options.clone()));
    let with_memory = move |memory: u64| -> Arc<dyn Backend> {
        let memory = INTERPRETER_MEMORY.saturating_add(memory).min(options.limits.memory);
        let limits = Limits { memory, ..options.limits };
        Arc::new(WasmBackend::with_options(runtime.clone(), BackendOptions { limits, ..options.clone() }))
    };
    let (activity, owner) = (Activity::default(), None);
    WorkerOptions { backend, with_memory: Some(Arc::new(with_memory)), dump_key, activity, owner, view: None }
}

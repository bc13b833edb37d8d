//! Code that is run once and waits, as a snapshot: its memory as a difference from the image of its packages, and the
//! host's half of it.
//!
//! The image itself is not a part of the snapshot. It is found, or built again, from the code and its packages, and
//! must have the same identifier.

use std::sync::Arc;
use std::time::Duration;

use belljar_core::kernel::{CellObserver, KernelError, KernelSnapshot};
use belljar_core::mime::Image as DisplayedImage;
use belljar_core::{
    CallCancellation, Exchange, ImageCollector, ReplySender, RestoredRun, RunReport, RunRequest, Waker,
};
use belljar_emscripten::SnapshotDelta;
use belljar_packages::GeneralHint as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::attempt::{Attempt, Effects};
use super::exchange::{RunCalls, SavedCalls};
use super::one_shot::{self, OneShotRun};
use super::run_interpreter::SavedInterpreter;
use super::runtime::PythonRuntime;
use super::wait_clock::{SavedClock, WaitClock};
use super::{Shared, since_1970};
use crate::interpreter::Renewal;
use crate::packages::WheelId;

/// The name of this backend in snapshots of runs.
const BACKEND_NAME: &str = "wasm-run";

/// The metadata of a snapshot of a run, which is serialized as JSON.
#[derive(Serialize, Deserialize)]
struct RunMetadata {
    /// [`BACKEND_NAME`].
    backend: String,
    /// [`Image::id`](crate::Image::id) of the image that the snapshot differs from.
    image: String,
    /// A description of the Python that ran, for error messages.
    python: String,
    code: String,
    /// The packages of the request, as requirements.
    dependencies: Vec<String>,
    /// The imports of packages that the code turned out to lack.
    sources: Vec<String>,
    tools: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    network: Option<Value>,
    has_exchange: bool,
    /// The wheels of the image, and those that were installed while the code ran.
    members: Vec<WheelId>,
    /// The names of the packages in the report.
    packages: Vec<String>,
    renewal: Renewal,
    /// The images that the code has shown: MIME types and files in base64.
    images: Vec<(String, String)>,
    calls: Option<SavedCalls>,
    clock: SavedClock,
    /// The time that the code has run, in microseconds.
    spent: u64,
    /// The time of the snapshot, in microseconds since 1970.
    taken: u64,
    /// True if a process of its own has chosen the bytes.
    #[serde(default)]
    isolated: bool,
}

/// Returns whether a snapshot is one of a run.
pub(super) fn is_run(snapshot: &KernelSnapshot) -> bool {
    snapshot.metadata.get("backend").and_then(|backend| backend.as_str()) == Some(BACKEND_NAME)
}

/// Takes a snapshot of a run whose `attempt` waits.
pub(super) fn save(run: &OneShotRun, attempt: &mut Attempt) -> Result<KernelSnapshot, KernelError> {
    let unsupported = |reason: &'static str| Err(KernelError::Unsupported(reason.into()));
    if run.request.exchange.as_ref().is_some_and(|exchange| !exchange.is_resumable) {
        return unsupported("a run that exchanges values with its caller waits in its process only");
    }
    if run.image.memory_size() > run.left.memory {
        return unsupported("the image of the run's packages does not fit into its memory limit");
    }
    let calls = match attempt.calls.as_ref().map(RunCalls::save) {
        Some(None) => return unsupported("the waiting run can go on"),
        Some(saved) => saved,
        None => None,
    };
    let failed = |error: Box<dyn std::error::Error + Send + Sync>| KernelError::Failed(error);
    let packages = match attempt.installer.available() {
        None => attempt.installer.packages(),
        // The next process opens the packages of the image.
        Some(available) if available.key() != run.image.packages().key() => {
            return unsupported("code in a worker process that has installed packages while it ran waits there only");
        }
        Some(available) => available,
    };
    let SavedInterpreter { data, renewal, spent } = attempt.interpreter.save(&run.image)?;
    let python = &run.runtime.python;
    let shown = attempt.images.peek();
    let metadata = RunMetadata {
        backend: BACKEND_NAME.into(),
        image: run.image.id().to_owned(),
        python: python.description(),
        code: run.request.code.clone(),
        dependencies: run.dependencies.clone(),
        sources: run.options.sources[run.runtime.options.sources.len()..].to_vec(),
        tools: run.request.tools,
        network: run.network.clone(),
        has_exchange: run.request.exchange.is_some(),
        members: packages.wheel_ids().cloned().collect(),
        packages: run.report.dependencies.clone(),
        renewal,
        images: shown.into_iter().map(|image| (image.format.mime_type().into(), image.base64)).collect(),
        calls,
        clock: run.clock.save(),
        spent: since_1970::microseconds(spent),
        taken: since_1970::microseconds(since_1970::now()),
        isolated: run.backend.processes.is_some(),
    };
    let metadata = serde_json::to_value(metadata).map_err(|error| failed(error.into()))?;
    Ok(KernelSnapshot { metadata, data, is_copy: false, base: Some(run.image.id().to_owned()) })
}

/// Restores a run: see [`Backend::restore_run`](belljar_core::kernel::Backend::restore_run).
pub(super) fn restore(
    runtime: PythonRuntime,
    backend: Arc<Shared>,
    snapshot: &KernelSnapshot,
    observer: Arc<dyn CellObserver>,
    cancellation: CallCancellation,
    waker: Waker,
) -> Result<RestoredRun, KernelError> {
    let incompatible = |reason: String| KernelError::IncompatibleSnapshot(reason.into());
    let metadata: RunMetadata = serde_json::from_value(snapshot.metadata.clone())
        .map_err(|_| incompatible("its description cannot be read".into()))?;
    if metadata.backend != BACKEND_NAME {
        return Err(incompatible(format!("it is not a run of this backend, but of {:?}", metadata.backend)));
    }
    let PythonRuntime { python, installer, .. } = &runtime;
    let mut options = one_shot::options(&runtime, &metadata.dependencies, metadata.tools)?;
    options.sources.extend(metadata.sources);
    let image = python
        .prepare(&metadata.code, &options, &**installer, &*observer)
        .map_err(|error| incompatible(format!("its packages are not available: {}", error.with_general_hint())))?;
    if image.id() != metadata.image {
        let theirs = metadata.python;
        return Err(incompatible(format!(
            "it was saved by another build of Belljar, or with other packages ({theirs})"
        )));
    }
    let packages = python
        .package_set(&metadata.members, &**installer, &*observer)
        .map_err(|error| incompatible(format!("its packages are not available: {error}")))?;
    if metadata.isolated && backend.processes.is_none() {
        return Err(incompatible("a worker process has saved it: --isolation process restores it".into()));
    }
    let limits = backend.limits.with_timeout(metadata.clock.own_timeout());
    let renewal = if snapshot.is_copy { metadata.renewal.of_copy() } else { metadata.renewal };
    // The clock of the code went on while it was in no interpreter.
    let asleep = since_1970::now().saturating_sub(Duration::from_micros(metadata.taken));
    let spent = Duration::from_micros(metadata.spent);
    let calls = metadata
        .calls
        .map(|saved| RunCalls::restored(saved, observer.clone(), waker.clone(), None, backend.scrubber()));
    let replies = match &calls {
        Some(calls) => calls.replies(),
        // The code makes no calls: nothing is sent.
        None => ReplySender::new(std::sync::mpsc::channel().0, None),
    };
    let images = ImageCollector::default();
    for (mime_type, base64) in metadata.images {
        let pushed = DisplayedImage::from_base64(&mime_type, base64).and_then(|image| images.push(image));
        pushed.map_err(|error| incompatible(error.to_string()))?;
    }
    let exchange = metadata.has_exchange.then(|| Exchange { is_resumable: true, ..Exchange::default() });
    let mut report = RunReport::new(limits);
    report.dependencies = metadata.packages;
    let run = OneShotRun {
        owner: None,
        network: metadata.network,
        backend,
        dependencies: metadata.dependencies,
        options,
        request: RunRequest { code: metadata.code, exchange, tools: metadata.tools, ..RunRequest::default() },
        report,
        image,
        left: limits,
        repetitions: 0,
        clock: WaitClock::restored(&limits, metadata.clock, asleep),
        observer,
        cancellation,
        waker: Some(waker),
        waiting: None,
        runtime,
    };
    let attempt = match &run.backend.processes {
        Some(processes) => {
            let start = (Some(&*snapshot.data), renewal);
            let mut interpreter = run.start_isolated(&**processes, &images, calls.clone(), start)?;
            (interpreter.spent, interpreter.asleep) = (spent, asleep);
            Attempt::connect_isolated(&run, interpreter, images, calls, Effects::Unknown)?
        }
        None => {
            let delta = SnapshotDelta::from_bytes(&snapshot.data).map_err(|error| incompatible(error.to_string()))?;
            let python = &run.runtime.python;
            let interpreter =
                python.restore_interpreter(&run.image, &delta, &packages, limits, one_shot::streams(&run.observer));
            let mut interpreter = interpreter.map_err(|error| incompatible(error.to_string()))?;
            interpreter.set_renewal(renewal);
            interpreter.host_mut().clock.advance(asleep);
            interpreter.spent = spent;
            if let Some(calls) = &calls {
                calls.register(&mut interpreter);
            }
            Attempt::connect(&run, interpreter, packages, images, calls, Effects::Unknown)?
        }
    };
    Ok(RestoredRun { run: Box::new(OneShotRun { waiting: Some(attempt), ..run }), replies })
}

//! The host of code in another process: it handles what the code does and asks for.

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use belljar_core::kernel::CellObserver;
use belljar_core::{ImageCollector, Limits, Stream};
use belljar_emscripten::console::{self, OutputSink};
use belljar_emscripten::fs::{Filesystem, Layer, Quota};
use belljar_emscripten::recording::SleepSaver;
use serde_json::value::RawValue;

use super::exchange::{self, RunCalls};
use super::isolated_mounts::IsolatedMounts;
use super::isolated_network::IsolatedNetwork;
use super::mounts::GuestMount;
use super::one_shot::ObserverSink;
use super::shown_images::{DisplayImage, TakesImages};
use crate::host_calls::{HostCall, HostCallContext, HostCallRegistry, RemoteCall};
use crate::isolation::{
    CallRecording, ChangeObserver, HostCallFailure, LayerArchive, MountRequest, MountResult, NetworkReply,
    NetworkRequest, ProcessHost, ProcessHostCall, ProcessHostReply, RecordingHost, RecordingState, RemoteCaller,
    ValueFile,
};
use crate::layer_archive;

/// The recording of code in another process, on the side of its caller.
pub(in crate::backend) struct RecordedCode {
    /// The recording of the next call.
    next: CallRecording,
    /// True while the code repeats what it did.
    pub(in crate::backend) is_replaying: Arc<AtomicBool>,
    /// Saves the code while it sleeps.
    pub(in crate::backend) sleep_saver: Option<Arc<dyn SleepSaver>>,
    /// How the code does not do what it did, if it does not.
    pub(in crate::backend) divergence: Option<String>,
}

impl RecordedCode {
    /// Begins a recording of at most `max_bytes`.
    pub(in crate::backend) fn new(max_bytes: usize, sleep_saver: Arc<dyn SleepSaver>) -> Self {
        let next = CallRecording::New { max_bytes: max_bytes as u64 };
        Self { next, is_replaying: Arc::default(), sleep_saver: Some(sleep_saver), divergence: None }
    }

    /// Begins the replay that a process has prepared.
    pub(in crate::backend) fn replay() -> Self {
        let is_replaying = Arc::new(AtomicBool::new(true));
        Self { next: CallRecording::Continued, is_replaying, sleep_saver: None, divergence: None }
    }

    /// Returns the recording of the next call.
    pub(in crate::backend) fn next_call(&mut self) -> CallRecording {
        std::mem::replace(&mut self.next, CallRecording::Continued)
    }

    /// Receives the state at the end of a call.
    pub(in crate::backend) fn end_call(&mut self, state: Option<RecordingState>) {
        let state = state.unwrap_or(RecordingState { is_replaying: false, divergence: None });
        // The process has told when its replay has ended, and cannot begin another one.
        if !state.is_replaying {
            self.is_replaying.store(false, Ordering::Relaxed);
        }
        self.divergence = self.divergence.take().or(state.divergence);
    }
}

/// The host of code in another process.
pub(in crate::backend) struct IsolatedHost {
    pub(in crate::backend) output: Box<dyn OutputSink>,
    handlers: HostCallRegistry,
    calls: Option<RunCalls>,
    /// The buffers of values that cross, for the handlers.
    pub(in crate::backend) files: Filesystem,
    pub(in crate::backend) network: IsolatedNetwork,
    pub(in crate::backend) mounts: IsolatedMounts,
    /// The recording of the code, if it is recorded.
    pub(in crate::backend) recorded: Option<RecordedCode>,
    /// The number of buffers of replies that have crossed.
    sent_buffers: u64,
}

impl IsolatedHost {
    pub(in crate::backend) fn new(
        observer: Arc<dyn CellObserver>,
        images: ImageCollector,
        calls: Option<RunCalls>,
        mounts: Vec<GuestMount>,
        limits: &Limits,
    ) -> Self {
        let mut host = Self::with_output(Box::new(ObserverSink(observer)), mounts, limits);
        host.register("takes_images", Arc::new(TakesImages));
        host.register("display", Arc::new(DisplayImage(images)));
        host.set_calls(calls);
        host
    }

    /// Creates a host without handlers.
    pub(in crate::backend) fn with_output(
        output: Box<dyn OutputSink>,
        mounts: Vec<GuestMount>,
        limits: &Limits,
    ) -> Self {
        let mounts = IsolatedMounts::new(mounts);
        let (handlers, network) = (HostCallRegistry::default(), IsolatedNetwork::default());
        let files = buffers(limits);
        Self { output, handlers, calls: None, files, network, mounts, recorded: None, sent_buffers: 0 }
    }

    /// Closes the connections and the files of a process that has ended.
    pub(in crate::backend) fn end_process(&mut self) {
        self.network.close_all();
        self.mounts.close_all();
    }

    /// Removes all buffers.
    pub(in crate::backend) fn clear_buffers(&mut self, limits: &Limits) {
        self.files = buffers(limits);
    }

    /// Registers the handler of the host call `name`, in place of an earlier one.
    pub(in crate::backend) fn register(&mut self, name: &str, handler: Arc<dyn HostCall>) {
        self.handlers.0.insert(name.to_owned(), handler);
    }

    /// Sets the calls of functions of the host that the code can make from now on.
    pub(in crate::backend) fn set_calls(&mut self, calls: Option<RunCalls>) {
        for (name, handler) in calls.iter().flat_map(RunCalls::handlers) {
            self.register(name, handler);
        }
        self.sent_buffers = calls.as_ref().map_or(0, RunCalls::written_buffers);
        self.calls = calls;
    }

    /// Takes buffers that the other process has sent, as far as there is room.
    pub(in crate::backend) fn receive(&mut self, files: &[ValueFile]) {
        for file in files.iter().filter(|file| file.has_valid_name()) {
            if let Err(error) = exchange::write_buffer(&mut self.files, &file.name, &file.bytes) {
                tracing::debug!(%error, "a buffer of a worker process does not fit");
            }
        }
    }

    fn sleep_saver(&self) -> Option<Arc<dyn SleepSaver>> {
        self.recorded.as_ref()?.sleep_saver.clone()
    }

    /// Returns the buffers that handlers have written since the last call.
    fn take_replies(&mut self) -> Vec<ValueFile> {
        let written = self.calls.as_ref().map_or(0, RunCalls::written_buffers);
        let names = (self.sent_buffers..written).map(|before| format!("reply-{}", before + 1));
        self.sent_buffers = written;
        exchange::take_files(&mut self.files, names, u64::MAX)
    }
}

/// Creates a file system for buffers.
fn buffers(limits: &Limits) -> Filesystem {
    Filesystem::new(Quota { bytes: limits.disk, ..Quota::default() })
}

impl ProcessHost for IsolatedHost {
    fn write(&mut self, stream: Stream, bytes: &[u8]) {
        let stream = match stream {
            Stream::Stdout => console::Stream::Stdout,
            Stream::Stderr => console::Stream::Stderr,
        };
        self.output.write(stream, bytes);
    }

    fn host_call(
        &mut self,
        ProcessHostCall { name, request, files, continued }: ProcessHostCall<'_>,
        caller: &dyn RemoteCaller,
    ) -> Result<ProcessHostReply, HostCallFailure> {
        let refused = HostCallFailure::Refused;
        let handler = self.handlers.0.get(name).cloned();
        let handler = handler.ok_or_else(|| refused(format!("the host has no handler for `{name}`")))?;
        let request: &RawValue = serde_json::from_str(request).map_err(|error| refused(error.to_string()))?;
        self.receive(&files);
        let known = self.files.layers().len();
        let (continued, incomplete) = (continued.as_deref(), Cell::default());
        let mut context = HostCallContext::remote(RemoteCall { files: &mut self.files, caller, continued, incomplete });
        let reply = handler.call(request, &mut context);
        let incomplete = context.incomplete();
        let names = files.into_iter().filter(ValueFile::has_valid_name).map(|file| file.name);
        drop(exchange::take_files(&mut self.files, names, u64::MAX));
        let text = reply?.get().to_owned();
        let added = self.files.layers().iter().skip(known);
        let layers = added.map(|layer| archive(layer)).collect::<Result<_, _>>().map_err(refused)?;
        Ok(ProcessHostReply { text, files: self.take_replies(), layers, incomplete })
    }

    fn mounts(&mut self, request: MountRequest) -> Option<MountResult> {
        self.mounts.handle(request)
    }

    fn network(&mut self, request: NetworkRequest, notify: &ChangeObserver) -> Option<NetworkReply> {
        self.network.handle(request, notify)
    }
}

impl RecordingHost for IsolatedHost {
    fn on_sleep(&mut self, elapsed: Duration, save: &dyn Fn() -> Result<Vec<u8>, Cow<'static, str>>) {
        if let Some(saver) = self.sleep_saver() {
            saver.on_sleep(elapsed, save);
        }
    }

    fn end_sleep(&mut self) -> Result<(), String> {
        self.sleep_saver().map_or(Ok(()), |saver| saver.end_sleep().map_err(|termination| termination.to_string()))
    }

    fn end_replay(&mut self) {
        if let Some(recorded) = &self.recorded {
            recorded.is_replaying.store(false, Ordering::Relaxed);
        }
    }
}

/// Returns the files of a layer that a handler has added, for the other process.
fn archive(layer: &Layer) -> Result<LayerArchive, String> {
    let mut bytes = Vec::new();
    layer_archive::write(layer, &mut bytes).map_err(|error| error.to_string())?;
    Ok(LayerArchive { id: layer.id().to_owned(), bytes })
}

//! The host of code in another process: it handles what the code does and asks for.

use std::sync::Arc;

use belljar_core::kernel::CellObserver;
use belljar_core::{ImageCollector, Limits, Stream};
use belljar_emscripten::console::{self, OutputSink};
use belljar_emscripten::fs::{Filesystem, Layer, Quota};
use serde_json::value::RawValue;

use super::exchange::{self, RunCalls};
use super::isolated_mounts::IsolatedMounts;
use super::isolated_network::IsolatedNetwork;
use super::mounts::GuestMount;
use super::one_shot::ObserverSink;
use super::shown_images::{DisplayImage, TakesImages};
use crate::host_calls::{HostCall, HostCallContext, HostCallRegistry};
use crate::isolation::{
    ChangeObserver, LayerArchive, MountRequest, MountResult, NetworkReply, NetworkRequest, ProcessHost,
    ProcessHostCall, ProcessHostReply, RemoteSignals, ValueFile,
};
use crate::layer_archive;

/// The host of code in another process.
pub(in crate::backend) struct IsolatedHost {
    pub(in crate::backend) output: Box<dyn OutputSink>,
    handlers: HostCallRegistry,
    calls: Option<RunCalls>,
    /// The buffers of values that cross, for the handlers.
    pub(in crate::backend) files: Filesystem,
    pub(in crate::backend) network: IsolatedNetwork,
    pub(in crate::backend) mounts: IsolatedMounts,
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
        Self { output, handlers, calls: None, files: buffers(limits), network, mounts, sent_buffers: 0 }
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
        ProcessHostCall { name, request, files }: ProcessHostCall<'_>,
        signals: &dyn RemoteSignals,
    ) -> Result<ProcessHostReply, String> {
        let handler = self.handlers.0.get(name).cloned();
        let handler = handler.ok_or_else(|| format!("the host has no handler for `{name}`"))?;
        let request: &RawValue = serde_json::from_str(request).map_err(|error| error.to_string())?;
        self.receive(&files);
        let known = self.files.layers().len();
        let reply = handler.call(request, &mut HostCallContext::remote(&mut self.files, signals));
        let names = files.into_iter().filter(ValueFile::has_valid_name).map(|file| file.name);
        drop(exchange::take_files(&mut self.files, names, u64::MAX));
        let text = reply.map_err(|error| error.to_string())?.get().to_owned();
        let added = self.files.layers().iter().skip(known);
        let layers = added.map(|layer| archive(layer)).collect::<Result<_, _>>()?;
        Ok(ProcessHostReply { text, files: self.take_replies(), layers })
    }

    fn mounts(&mut self, request: MountRequest) -> Option<MountResult> {
        self.mounts.handle(request)
    }

    fn network(&mut self, request: NetworkRequest, notify: &ChangeObserver) -> Option<NetworkReply> {
        self.network.handle(request, notify)
    }
}

/// Returns the files of a layer that a handler has added, for the other process.
fn archive(layer: &Layer) -> Result<LayerArchive, String> {
    let mut bytes = Vec::new();
    layer_archive::write(layer, &mut bytes).map_err(|error| error.to_string())?;
    Ok(LayerArchive { id: layer.id().to_owned(), bytes })
}

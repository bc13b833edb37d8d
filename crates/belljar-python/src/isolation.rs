//! Interpreters in processes of their own: the interface to the crate that provides the processes.
//!
//! The caller of an interpreter stays in this process: it chooses the image, writes the arguments of calls, parses
//! their results, and handles what the code asks of the host. The process has the interpreter alone. All that comes
//! from it is untrusted.

mod mounts;
mod network;
mod recording;

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use belljar_core::kernel::{InterruptHandle, KernelError};
use belljar_core::{ExitReason, Limits, Progress, Stream};
use belljar_emscripten::fs::{FileError, Filesystem};
use belljar_emscripten::termination::Termination;
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::backend;
use crate::guest_call::{GuestFunction, GuestReturn};
use crate::host_calls::CallError;
pub use crate::host_calls::RemoteCaller;
use crate::image::Image;
use crate::kept_image::KeptImage;
use crate::layer_archive;
use crate::network::HOST_CALLS as NETWORK_CALLS;
use crate::packages::PackageSet;
pub use crate::session_files::{
    FileFailure, FileReply, FileRequest, ListedFile, MAX_FILES as MAX_LISTED_FILES, MAX_LISTED_PATHS,
};
pub use mounts::{
    DirectoryRequest, FileId, MAX_NAMES, MountPoint, MountReply, MountRequest, MountResult, MountedFileRequest,
};
pub use network::{
    ChangeObserver, ConnectionId, ConnectionState, MAX_TRANSFER, NetworkReply, NetworkRequest, NewConnection,
};
pub use recording::{CallRecording, RecordingHost, RecordingState};

/// The processes that interpreters run in.
pub trait InterpreterProcesses: Send + Sync {
    /// Starts the interpreter of code that is run once. Making the process ready for packages that were not used before
    /// may take long, which `progress` reports.
    ///
    /// Must be called on a guest thread.
    ///
    /// # Errors
    /// Fails if the process cannot be started, and with [`KernelError::IncompatibleSnapshot`] if the interpreter cannot
    /// be restored from the state.
    fn start(
        &self,
        request: &RunStart<'_>,
        progress: &dyn Progress,
    ) -> Result<Box<dyn InterpreterProcess>, KernelError>;

    /// Makes processes ready for sessions with these packages, which [`SessionRequest::packages`] describes. May take
    /// long, which `progress` reports.
    ///
    /// # Errors
    /// Fails if a process cannot be started.
    fn prepare_sessions(&self, packages: &PackageSet, progress: &dyn Progress) -> Result<(), KernelError>;

    /// Starts the interpreter of a session, in a process in which no other code runs.
    ///
    /// Must be called on a guest thread.
    ///
    /// # Errors
    /// Fails if the process cannot be started, and with [`KernelError::IncompatibleSnapshot`] if the interpreter cannot
    /// be restored from the state.
    fn start_session(
        &self,
        request: &SessionRequest<'_>,
        progress: &dyn Progress,
    ) -> Result<Box<dyn SessionProcess>, KernelError>;
}

/// A request to start the interpreter of code that is run once.
#[derive(Clone, Copy)]
pub struct RunStart<'a> {
    /// The image that it is a copy of.
    pub image: &'a Image,
    /// The limits but for those of time.
    pub limits: &'a Limits,
    /// The owner. Code of another one never runs in the process; without an owner, no other code does.
    pub owner: Option<&'a Arc<str>>,
    /// The directories of the host, which are asked for by [`ProcessHost::mounts`].
    pub mounts: &'a [MountPoint],
    /// The state of an interpreter of the same image that the code goes on with, of [`InterpreterProcess::save`].
    pub state: Option<&'a [u8]>,
}

/// A request to start the interpreter of a session.
#[derive(Clone, Copy)]
pub struct SessionRequest<'a> {
    /// All packages of the session, those of the image of sessions among them.
    pub packages: &'a PackageSet,
    /// The image of sessions, if it is not the current one.
    pub kept_image: Option<&'a KeptImage>,
    /// The limits but for those of time.
    pub limits: &'a Limits,
    /// The size of the memory of the image of sessions, in bytes.
    pub memory: u64,
    /// The beginning.
    pub start: SessionStart<'a>,
    /// The directories of the host.
    pub mounts: &'a [MountPoint],
}

/// The beginning of a session's interpreter. The bytes are those of [`InterpreterProcess::save`].
#[derive(Debug, Clone, Copy)]
pub enum SessionStart<'a> {
    /// A copy of the image of sessions.
    New,
    /// The same with the files of another interpreter of the session.
    Files(&'a [u8]),
    /// The state of another interpreter of the session, or of the one that it was forked from.
    State(&'a [u8]),
}

/// The part of an interpreter that is saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SavedPart {
    /// Its files, which exist after its code has ended it, too.
    Files,
    /// Everything.
    State,
}

/// The interpreter of a session in a process of its own.
pub trait SessionProcess: InterpreterProcess {
    /// Handles a request about files. The reply is one to this request, and untrusted otherwise.
    ///
    /// # Errors
    /// Fails if the process has ended.
    fn files(&mut self, request: &FileRequest) -> Result<FileReply, KernelError>;

    /// Prepares the replay of a recording, which goes on as one of at most `max_bytes`. The next call begins it.
    ///
    /// # Errors
    /// Fails if the process has ended, and with [`KernelError::IncompatibleSnapshot`] if the recording is damaged.
    fn prepare_replay(&mut self, recording: &[u8], max_bytes: u64) -> Result<(), KernelError>;

    /// Returns whether the process has ended, and not only the interpreter in it: its files are lost.
    fn has_ended(&self) -> bool;
}

/// An interpreter in a process of its own.
pub trait InterpreterProcess: Send {
    /// Calls a function of the guest package within the limits of time. `host` receives what the code does meanwhile.
    ///
    /// A process that ends, or that sends something unexpected, is the end of the interpreter.
    fn call(&mut self, call: &ProcessCall<'_>, host: &mut dyn ProcessHost) -> ProcessReturn;

    /// Saves a part of the interpreter, for [`SessionStart`] and [`RunStart`]. The process has chosen the bytes: they
    /// are given to another process of the same session or run only, and never restored in this one.
    ///
    /// # Errors
    /// Fails if the process has ended, or if the part is too large.
    fn save(&mut self, part: SavedPart) -> Result<Vec<u8>, KernelError>;

    /// Returns a handle that stops the code from other threads.
    fn interrupt_handle(&self) -> Arc<dyn InterruptHandle>;

    /// Returns whether the interpreter has ended. Later calls return only errors.
    fn is_dead(&self) -> bool;
}

/// A call of the guest package in another process.
#[derive(Debug, Clone, Copy)]
pub struct ProcessCall<'a> {
    /// The function.
    pub function: GuestFunction,
    /// Its arguments as JSON.
    pub arguments: &'a str,
    /// The buffers of the arguments.
    pub files: &'a [ValueFile],
    /// The limits, of which those of time apply to this call.
    pub limits: &'a Limits,
    /// True for the first call of a cell, and for other requests of a session: the output of each is limited by itself.
    pub is_new_cell: bool,
    /// The time by which the interpreter's clock is set forward first.
    pub asleep: Duration,
    /// True if the code has a network, which is asked by [`ProcessHost::network`].
    pub network: bool,
    /// The recording of the code, which [`RecordingHost`] follows.
    pub recording: CallRecording,
    /// The limits of [`GuestFunction::Finish`], if the process calls it as soon as the code has ended with a value.
    pub finish: Option<&'a Limits>,
}

/// The end of a call of the guest package in another process.
#[derive(Debug)]
pub struct ProcessReturn {
    /// The result.
    pub returned: GuestReturn,
    /// The buffers of the result.
    pub files: Vec<ValueFile>,
    /// The state of the recording, if the code is recorded.
    pub recording: Option<RecordingState>,
    /// The end of [`GuestFunction::Finish`], if it was called.
    pub finish: Option<FinishReturn>,
}

/// The end of [`GuestFunction::Finish`] in another process.
#[derive(Debug)]
pub struct FinishReturn {
    /// The JSON that the function has returned, or the reason why the interpreter has ended.
    pub result: Result<String, ExitReason>,
    /// The time that it has taken.
    pub time: Duration,
}

/// Returns whether a result of the guest package is the value of code that has ended. For the process of the guest.
pub fn is_value(result: &str) -> bool {
    #[derive(Deserialize)]
    struct OfKind<'a> {
        #[serde(borrow)]
        kind: Cow<'a, str>,
    }
    serde_json::from_str::<OfKind<'_>>(result).is_ok_and(|result| result.kind == "value")
}

/// A buffer of a value that crosses between the processes: a file of the guest. See `backend/exchange/buffers.rs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueFile {
    /// Its name in the directory of such files.
    pub name: String,
    /// Its content.
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
}

impl ValueFile {
    /// The maximum length of the name, in bytes.
    const MAX_NAME: usize = 32;

    /// Returns whether the name is one of a file in the directory. Files of other processes are untrusted.
    pub fn has_valid_name(&self) -> bool {
        Self::is_valid_name(&self.name)
    }

    /// Returns whether a name is one of a file in the directory.
    pub fn is_valid_name(name: &str) -> bool {
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (1..=Self::MAX_NAME).contains(&name.len()) && name.bytes().all(is_valid)
    }
}

/// Decodes a list of at most `MAX` elements of an untrusted message: elements may take many times more memory than
/// bytes of the message.
///
/// # Errors
/// The deserializer's, or that the list is too long.
pub fn at_most<'de, D: Deserializer<'de>, T: Deserialize<'de>, const MAX: usize>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    struct Elements<T, const MAX: usize>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Elements<T, MAX> {
        type Value = Vec<T>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(formatter, "at most {MAX} elements")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
            let mut elements = Vec::new();
            while let Some(element) = sequence.next_element()? {
                if elements.len() == MAX {
                    return Err(de::Error::invalid_length(MAX + 1, &self));
                }
                elements.push(element);
            }
            Ok(elements)
        }
    }

    deserializer.deserialize_seq(Elements::<T, MAX>(PhantomData))
}

/// The calls of the guest to the host that a process passes on, by their names.
pub fn forwarded_calls() -> impl Iterator<Item = &'static str> {
    let others = ["takes_images", "display", "install", "show", "input"];
    others.into_iter().chain(backend::CALL_NAMES).chain(NETWORK_CALLS)
}

/// Returns the buffers of a request that the guest makes, at most `limit` bytes. For the process of the guest.
///
/// # Errors
/// Fails if a buffer cannot be read, or there are too many.
pub fn buffers_of(request: &RawValue, files: &mut Filesystem, limit: u64) -> Result<Vec<ValueFile>, CallError> {
    #[derive(Default, Deserialize)]
    struct WithBuffers {
        #[serde(default)]
        buffers: Vec<String>,
    }
    // The other process refuses requests of another form.
    let WithBuffers { buffers } = serde_json::from_str(request.get()).unwrap_or_default();
    backend::read_files(files, buffers, limit)
}

/// Gives the guest buffers. For the process of the guest.
///
/// # Errors
/// Fails if the buffers do not fit into the guest's file system.
pub fn give_buffers(buffers: &[ValueFile], files: &mut Filesystem) -> Result<(), FileError> {
    buffers.iter().try_for_each(|buffer| backend::write_buffer(files, &buffer.name, &buffer.bytes))
}

/// Takes the buffers of the value that the guest has returned, at most `limit` bytes. For the process of the guest.
pub fn take_value(files: &mut Filesystem, limit: u64) -> Vec<ValueFile> {
    backend::take_value(files, limit)
}

/// A call of code in another process to the host.
#[derive(Debug)]
pub struct ProcessHostCall<'a> {
    /// The name.
    pub name: &'a str,
    /// JSON that the code chose.
    pub request: &'a str,
    /// The buffers of the request.
    pub files: Vec<ValueFile>,
    /// The state of the handler, if the code is replayed and waited in this call: see [`RemoteCaller::save`].
    pub continued: Option<Vec<u8>>,
}

/// The reply to a call of code in another process to the host.
#[derive(Debug)]
pub struct ProcessHostReply {
    /// JSON.
    pub text: String,
    /// Its buffers.
    pub files: Vec<ValueFile>,
    /// Files of packages that the process is to have from now on.
    pub layers: Vec<LayerArchive>,
    /// The reason for the end of the code's recording, if this reply ends it.
    pub incomplete: Option<&'static str>,
}

/// The reason why a call of code in another process to the host has no reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostCallFailure {
    /// The call is refused for this reason, which the author of the code is shown.
    Refused(String),
    /// The code ends, since it goes on elsewhere or was killed.
    Stopped,
    /// The code ends for this reason.
    Aborted(String),
}

impl From<CallError> for HostCallFailure {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Refused(reason) => Self::Refused(reason),
            CallError::Terminated(Termination::Stopped) => Self::Stopped,
            CallError::Terminated(other) => Self::Aborted(other.to_string()),
        }
    }
}

impl From<HostCallFailure> for CallError {
    fn from(failure: HostCallFailure) -> Self {
        match failure {
            HostCallFailure::Refused(reason) => Self::Refused(reason),
            HostCallFailure::Stopped => Self::Terminated(Termination::Stopped),
            HostCallFailure::Aborted(reason) => Self::Terminated(Termination::Abort(reason)),
        }
    }
}

/// The files of a package, for a process that cannot open them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerArchive {
    /// The identifier of the layer.
    pub id: String,
    /// A tar archive.
    pub bytes: Vec<u8>,
}

impl LayerArchive {
    /// Adds the files to those of an interpreter. For the process of the interpreter.
    ///
    /// # Errors
    /// Returns the reason why this is not an archive.
    pub fn add_to(&self, files: &mut Filesystem) -> Result<(), String> {
        files.add_layer(layer_archive::read(&self.id, &*self.bytes)?);
        Ok(())
    }
}

/// The receiver of what code in another process does.
pub trait ProcessHost: RecordingHost {
    /// Receives output.
    fn write(&mut self, stream: Stream, bytes: &[u8]);

    /// Handles a call of the code to the host. May wait for as long as `caller` allows.
    ///
    /// # Errors
    /// Fails if the call is refused, or the code has to end.
    fn host_call(
        &mut self,
        call: ProcessHostCall<'_>,
        caller: &dyn RemoteCaller,
    ) -> Result<ProcessHostReply, HostCallFailure>;

    /// Handles a request of the code's files in directories of the host. Returns `None` for a request that
    /// [`belljar_emscripten`] never makes: the caller ends the process.
    fn mounts(&mut self, request: MountRequest) -> Option<MountResult>;

    /// Handles a request of the code's sockets, without waiting for the far end. `notify` is called when a connection
    /// may have changed, from any thread, also after the call has ended. Returns `None` for a request that
    /// [`belljar_emscripten`] never makes: the caller ends the process.
    fn network(&mut self, request: NetworkRequest, notify: &ChangeObserver) -> Option<NetworkReply>;
}

//! Calls of the guest package as text: the interface of an interpreter whose caller is in another process.
//!
//! The caller writes the arguments and reads the result, as [`Interpreter`] does for calls of its own. Nothing of them
//! is interpreted here.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use belljar_core::{ExitReason, Limits, Outcome};
use belljar_emscripten::recording::{DamagedRecording, Recording, SleepSaver};
use serde::{Deserialize, Serialize};

use crate::interpreter::Interpreter;
use crate::isolation::RecordingState;

/// A function of the guest package that runs code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum GuestFunction {
    /// Runs code.
    Run,
    /// Continues code that waits.
    Resume,
    /// Runs what the code has registered for its end.
    Finish,
    /// Runs a cell.
    Execute,
    /// Sends the shell a request that is not a cell.
    Ask,
}

impl GuestFunction {
    /// Returns the name of the function.
    pub fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Resume => "resume",
            Self::Finish => "finish",
            Self::Execute => "execute",
            Self::Ask => "ask",
        }
    }
}

/// The end of a call of the guest package.
#[derive(Debug)]
pub struct GuestReturn {
    /// The JSON that the function has returned, or the reason why the interpreter has ended.
    pub result: Result<String, ExitReason>,
    /// The largest size that the memory has had, in bytes.
    pub peak_memory: u64,
    /// True if the code has written output or read input since the interpreter was created.
    pub has_used_streams: bool,
}

impl Interpreter {
    /// Calls a function of the guest package with arguments and a result of JSON, within the limits of time.
    pub fn call_text(&mut self, function: GuestFunction, arguments: &str, limits: Limits) -> GuestReturn {
        let functions = self.functions();
        let object = match function {
            GuestFunction::Run => functions.run,
            // An image without the function does not wait: the call of the null object is an error.
            GuestFunction::Resume => functions.resume.unwrap_or_default(),
            GuestFunction::Finish => functions.finish,
            GuestFunction::Execute => functions.execute,
            GuestFunction::Ask => functions.ask,
        };
        self.set_limits_of_time(&limits);
        let mut result = Err(ExitReason::Cancelled);
        let execution = self.with_limits(|this| {
            result = this.call_recorded(object, function.name(), arguments);
            result.as_ref().err().map_or(Outcome::Success(None), |reason| Outcome::Exited(reason.clone()))
        });
        self.host_mut().console.flush();
        let peak_memory = execution.statistics.peak_memory;
        GuestReturn { result, peak_memory, has_used_streams: self.has_used_streams() }
    }

    /// Records the code from now on, in at most `max_bytes`. `saver` saves it while it sleeps.
    pub fn start_recording(&mut self, max_bytes: usize, saver: Arc<dyn SleepSaver>) {
        let recording = Recording::new(max_bytes, self.stop_handle());
        recording.set_sleep_saver(saver);
        self.host_mut().start_recording(recording);
    }

    /// Begins the replay of a recording, which goes on as a recording of at most `max_bytes`. Returns what is true
    /// while the code repeats what it did.
    ///
    /// # Errors
    /// Fails if the recording is damaged.
    pub fn start_replay(
        &mut self,
        recording: &[u8],
        max_bytes: usize,
        saver: Arc<dyn SleepSaver>,
    ) -> Result<Arc<AtomicBool>, DamagedRecording> {
        let recording = Recording::replay(recording, max_bytes, self.stop_handle())?;
        recording.set_sleep_saver(saver);
        let flag = recording.replaying_flag();
        self.host_mut().start_recording(recording);
        Ok(flag)
    }

    /// Ends the recording of the code, if it is recorded.
    pub fn stop_recording(&mut self) {
        self.host_mut().stop_recording();
    }

    /// Returns the state of the recording, if the code is recorded.
    pub fn recording_state(&self) -> Option<RecordingState> {
        let recording = self.recording()?;
        Some(RecordingState { is_replaying: recording.is_replaying(), divergence: recording.divergence() })
    }
}

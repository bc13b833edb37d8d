//! Recordings of code in another process, with which a cell goes on elsewhere that holds its thread while it waits.

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The recording of the code of a call: see [`belljar_emscripten::recording`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CallRecording {
    /// The code is not recorded.
    #[default]
    None,
    /// A recording begins with this call.
    New {
        /// Its maximum size, in bytes. A longer one is dropped.
        max_bytes: u64,
    },
    /// The recording of the call before, or the replay that was prepared, goes on.
    Continued,
}

/// The state of the recording of code that has returned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingState {
    /// True if the code repeats what it did.
    pub is_replaying: bool,
    /// How the code does not do what it did, if it does not.
    pub divergence: Option<String>,
}

/// The receiver of what recorded code does in another process.
pub trait RecordingHost {
    /// Receives that the code has slept for this time, and saves it. `save` returns the recording, which the process
    /// has chosen, or the reason why the code cannot be continued elsewhere.
    fn on_sleep(&mut self, elapsed: Duration, save: &dyn Fn() -> Result<Vec<u8>, Cow<'static, str>>);

    /// Receives that the code has gone on after a sleep in which it was saved, and is about to do something.
    ///
    /// # Errors
    /// Returns the reason why the code must not go on.
    fn end_sleep(&mut self) -> Result<(), String>;

    /// Receives that the code has repeated what it did: what it does from now on is new.
    fn end_replay(&mut self);
}

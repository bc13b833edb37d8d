//! The states of a run, as a pure function.
//!
//! ```text
//!            begin             wait              sleep
//!  Pending ────────▶ Running ◀──────▶ Waiting ◀──────────▶ Asleep
//!                       ▲     resume              wake        │
//!                       └─────────────────────────────────────┘ resume
//!  every state ──complete──▶ Completed
//! ```

use serde::{Deserialize, Serialize};

/// The state of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    /// The code has not begun.
    Pending,
    /// The code runs.
    Running,
    /// The code waits, and its interpreter is in memory.
    Waiting,
    /// The code waits, and its interpreter is on the disk.
    Asleep,
    /// The run has ended.
    Completed,
}

/// The outcome of a run so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunOutcome {
    /// The code has ended without an error.
    Completed,
    /// The code waits.
    Paused,
    /// The code has ended with an error, was stopped or was lost.
    Error,
}

impl RunOutcome {
    /// Returns the outcome of code that has ended.
    pub fn from_end(is_error: bool) -> Self {
        if is_error { Self::Error } else { Self::Completed }
    }

    /// Returns the name, as JSON has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Paused => "paused",
            Self::Error => "error",
        }
    }
}

/// An event of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RunEvent {
    /// The code begins.
    Begin,
    /// The code waits.
    Wait,
    /// The interpreter is put on the disk.
    Sleep,
    /// The interpreter is read from the disk, and the code waits on.
    Wake,
    /// The code goes on.
    Resume,
    /// The run ends.
    Complete,
}

/// The error of an event that cannot happen in a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a run that is {state:?} cannot {event:?}")]
pub struct InvalidEvent {
    /// The state.
    pub state: RunState,
    /// The event.
    pub event: RunEvent,
}

impl RunState {
    /// Returns the state after an event.
    ///
    /// # Errors
    /// Fails if the event cannot happen in this state.
    pub fn after(self, event: RunEvent) -> Result<Self, InvalidEvent> {
        match (self, event) {
            (Self::Pending, RunEvent::Begin) | (Self::Waiting | Self::Asleep, RunEvent::Resume) => Ok(Self::Running),
            (Self::Running, RunEvent::Wait) | (Self::Asleep, RunEvent::Wake) => Ok(Self::Waiting),
            (Self::Waiting, RunEvent::Sleep) => Ok(Self::Asleep),
            (Self::Pending | Self::Running | Self::Waiting | Self::Asleep, RunEvent::Complete) => Ok(Self::Completed),
            (state, event) => Err(InvalidEvent { state, event }),
        }
    }

    /// Returns whether the run waits.
    pub fn is_waiting(self) -> bool {
        matches!(self, Self::Waiting | Self::Asleep)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [RunState; 5] =
        [RunState::Pending, RunState::Running, RunState::Waiting, RunState::Asleep, RunState::Completed];
    const EVENTS: [RunEvent; 6] =
        [RunEvent::Begin, RunEvent::Wait, RunEvent::Sleep, RunEvent::Wake, RunEvent::Resume, RunEvent::Complete];

    /// Returns all sequences of events of a length.
    fn sequences(length: usize) -> Vec<Vec<RunEvent>> {
        (0..length).fold(vec![Vec::new()], |all, _| {
            all.iter().flat_map(|first| EVENTS.map(|event| first.iter().copied().chain([event]).collect())).collect()
        })
    }

    #[test]
    fn every_sequence_of_events_keeps_the_properties_of_runs() {
        for events in sequences(7) {
            let (mut state, mut resumed, mut waited) = (RunState::Pending, 0, 0);
            for event in events {
                let Ok(next) = state.after(event) else { continue };
                assert_ne!(state, RunState::Completed, "nothing follows the end");
                match event {
                    RunEvent::Wait => waited += 1,
                    RunEvent::Resume => resumed += 1,
                    _ => {}
                }
                // A run is resumed once for each wait at most.
                assert!(resumed <= waited, "{event:?} after {state:?}");
                assert_eq!(next.is_waiting(), waited > resumed && next != RunState::Completed);
                state = next;
            }
        }
    }

    #[test]
    fn every_run_can_end_once() {
        for state in STATES {
            let ended = state.after(RunEvent::Complete);
            assert_eq!(ended.is_ok(), state != RunState::Completed);
            for event in EVENTS {
                assert!(RunState::Completed.after(event).is_err());
            }
        }
    }
}

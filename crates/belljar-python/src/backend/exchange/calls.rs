//! The calls of functions of the host by one run or cell: their numbers, their replies, and waits for them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use belljar_core::kernel::CellObserver;
use belljar_core::{EncodedValue, FunctionCall, FunctionError, FunctionReply, HeldWaitKind, ReplySender, Waker};
use belljar_emscripten::termination::Termination;
use belljar_network::Scrubber;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::super::held_cell::{BinaryReplies, HeldCell, WaitPoint};
use super::super::since_1970::{microseconds, now};
use super::buffers::scrubbed;
use crate::host_calls::{HostCallContext, WaitError};

/// The time for which a call waits if the guest sets no limit.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(7 * 24 * 3600);
/// The interval at which the observer is informed that the code holds its thread while it waits.
const HOLDING_INTERVAL: Duration = Duration::from_millis(100);
/// The maximum time for which more replies are collected once there is one, and the interval at which they are looked
/// for.
const MAX_LINGER: Duration = Duration::from_millis(1);
const LINGER_INTERVAL: Duration = Duration::from_micros(200);
/// The maximum size of the replies that the guest receives at once, in bytes. One reply may be larger.
const MAX_BATCH: usize = 16 << 20;

/// The state of the calls of a cell that waits, for another process.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(in crate::backend) struct SavedCalls {
    /// The number of the next call.
    next: u64,
    /// The number of buffers that were written for replies.
    buffers: u64,
    /// Replies that the code has not received. Only a cell that holds its thread has any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    replies: Vec<SavedReply>,
}

impl SavedCalls {
    /// Returns the number of replies that the code has not received.
    pub(in crate::backend) fn replies(&self) -> usize {
        self.replies.len()
    }
}

/// A reply without buffers.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct SavedReply {
    id: u64,
    value: Option<Box<RawValue>>,
    error: Option<FunctionError>,
}

impl From<SavedReply> for FunctionReply {
    fn from(SavedReply { id, value, error }: SavedReply) -> Self {
        let interrupted = || FunctionError { name: "RuntimeError".into(), message: "the reply is missing".into() };
        let result = match value {
            Some(json) => Ok(EncodedValue { json, buffers: Vec::new() }),
            None => Err(error.unwrap_or_else(interrupted)),
        };
        Self { id, result }
    }
}

/// The effects that calls of functions of the host may have had.
#[derive(Debug, Clone, Default)]
pub struct CallEffects(Arc<AtomicBool>);

impl CallEffects {
    /// Returns whether the code has made a call that may have had an effect.
    pub fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The calls of one run or cell.
pub(super) struct Calls {
    pub(super) observer: Arc<dyn CellObserver>,
    pub(super) replies: ReplySender,
    pub(super) state: Mutex<State>,
    pub(super) effects: CallEffects,
    /// Set if the cell is recorded.
    held: Option<Arc<HeldCell>>,
    /// Removes secrets from arguments.
    scrubber: Scrubber,
}

pub(super) struct State {
    /// The number of the next call.
    pub(super) next: u64,
    arrived: Receiver<FunctionReply>,
    /// Replies that arrived while another call was waited for.
    pub(super) early: VecDeque<FunctionReply>,
    /// The number of buffers that were written for replies.
    pub(super) buffers: u64,
}

impl State {
    /// Returns the state for another process, unless a reply has buffers.
    pub(super) fn save(&self) -> Result<SavedCalls, BinaryReplies> {
        let reply = |FunctionReply { id, result }: &FunctionReply| match result {
            Ok(value) if !value.buffers.is_empty() => Err(BinaryReplies),
            Ok(value) => Ok(SavedReply { id: *id, value: Some(value.json.clone()), error: None }),
            Err(error) => Ok(SavedReply { id: *id, value: None, error: Some(error.clone()) }),
        };
        let replies = self.early.iter().map(reply).collect::<Result<_, _>>()?;
        Ok(SavedCalls { next: self.next, buffers: self.buffers, replies })
    }

    /// Takes the reply to a call, if it has arrived.
    pub(super) fn take(&mut self, id: u64) -> Option<FunctionReply> {
        let place = self.early.iter().position(|reply| reply.id == id)?;
        self.early.remove(place)
    }

    /// Receives the replies that have arrived.
    pub(super) fn collect(&mut self) {
        self.early.extend(self.arrived.try_iter());
    }

    /// Receives replies until there are `count`, for at most [`MAX_LINGER`]. One sleep for many replies takes less
    /// processor time than waking up for each.
    pub(super) fn linger(&mut self, count: usize, context: &HostCallContext<'_>) {
        self.collect();
        if self.early.len() >= count {
            return;
        }
        let _pause = context.pause();
        let start = Instant::now();
        while self.early.len() < count && start.elapsed() < MAX_LINGER {
            std::thread::sleep(LINGER_INTERVAL);
            self.collect();
        }
    }

    /// Takes the first replies, up to a size.
    pub(super) fn take_batch(&mut self) -> Vec<FunctionReply> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while let Some(reply) = self.early.front() {
            bytes += reply.result.as_ref().map_or(0, |value| value.json.get().len());
            if !batch.is_empty() && bytes > MAX_BATCH {
                break;
            }
            batch.extend(self.early.pop_front());
        }
        batch
    }
}

impl Calls {
    /// Creates the calls of code that goes on from a state.
    pub(super) fn new(
        observer: Arc<dyn CellObserver>,
        waker: Option<Waker>,
        saved: SavedCalls,
        held: Option<Arc<HeldCell>>,
        scrubber: Scrubber,
    ) -> Self {
        let SavedCalls { next, buffers, replies: early } = saved;
        let (replies, arrived) = mpsc::channel();
        let replies = ReplySender::new(replies, waker);
        let state = State { next, arrived, early: early.into_iter().map(Into::into).collect(), buffers };
        Self { observer, replies, state: Mutex::new(state), effects: CallEffects::default(), held, scrubber }
    }

    /// Waits until `is_over` holds while the code holds its thread. Informs the observer of that from time to time, and
    /// has the cell saved. Then `pending` is the state of the host call that waits.
    pub(super) fn wait_holding(
        &self,
        state: &mut State,
        pending: &PendingCall,
        context: &HostCallContext<'_>,
        is_over: impl Fn(&State) -> bool,
    ) -> Result<Result<(), WaitError>, Termination> {
        state.collect();
        if is_over(state) {
            return Ok(Ok(()));
        }
        let start = Instant::now();
        let mut informed = Duration::ZERO;
        let result = loop {
            let (elapsed, left) = (start.elapsed(), pending.left());
            let interval = if self.held.is_some() { HeldCell::interval(elapsed) } else { HOLDING_INTERVAL };
            match context.wait(&state.arrived, left.min(interval))? {
                Ok(reply) => {
                    state.early.push_back(reply);
                    if is_over(state) {
                        break Ok(());
                    }
                }
                Err(WaitError::TimedOut) if !pending.left().is_zero() => {}
                Err(reason) => break Err(reason),
            }
            let elapsed = start.elapsed();
            if elapsed.saturating_sub(informed) >= HOLDING_INTERVAL {
                informed = elapsed;
                self.observer.on_holding_wait();
            }
            if let Some(held) = &self.held {
                let calls = state.save().map(Some);
                let state = RefCell::new(&mut *state);
                let replies = || {
                    let mut state = state.borrow_mut();
                    state.collect();
                    state.early.len()
                };
                let point = WaitPoint {
                    elapsed,
                    kind: HeldWaitKind::Calls,
                    state: pending,
                    calls,
                    replies: &replies,
                    timer: pending.until.map(|_| pending.left()),
                    is_abandoned: false,
                };
                held.on_wait(context, &point)?;
            }
            if is_over(state) {
                break Ok(());
            }
        };
        if let Some(held) = &self.held {
            held.end_wait(start.elapsed())?;
        }
        Ok(result)
    }

    /// Passes a call to the observer, with arguments without secrets.
    pub(super) fn start(&self, mut call: FunctionCall) {
        if !self.scrubber.is_empty() {
            let EncodedValue { json, buffers } = call.arguments;
            let Ok(json) = RawValue::from_string(self.scrubber.scrub_text(json.get()).into_owned()) else {
                let message = "an argument contains a secret".into();
                let result = Err(FunctionError { name: "ValueError".into(), message });
                // Ignore send errors: the code may have ended.
                let _ = self.replies.send(FunctionReply { id: call.id, result });
                return;
            };
            let buffers = buffers.into_iter().map(|buffer| scrubbed(buffer, &self.scrubber)).collect();
            call.arguments = EncodedValue { json, buffers };
        }
        if call.may_have_effects() {
            self.effects.0.store(true, Ordering::Relaxed);
        }
        self.observer.call_function(call, &self.replies);
    }
}

/// A host call that waits for replies, for another process.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct PendingCall {
    /// The number of its first call.
    pub(super) first: u64,
    /// The time at which it ends without a reply, in microseconds since 1970.
    until: Option<u64>,
    #[serde(skip, default = "Instant::now")]
    begin: Instant,
    #[serde(skip)]
    pub(super) timeout: Duration,
}

impl PendingCall {
    pub(super) fn new(first: u64, timeout: Option<Duration>) -> Self {
        let until = timeout.map(|timeout| microseconds(now().saturating_add(timeout)));
        Self { first, until, begin: Instant::now(), timeout: timeout.unwrap_or(MAX_WAIT) }
    }

    /// Continues the call in this process.
    pub(super) fn continued(self) -> Self {
        let timeout = self.until.map(|until| Duration::from_micros(until).saturating_sub(now()));
        Self { timeout: timeout.unwrap_or(MAX_WAIT).min(MAX_WAIT), ..self }
    }

    /// Returns the time that is left.
    pub(super) fn left(&self) -> Duration {
        self.timeout.saturating_sub(self.begin.elapsed())
    }
}

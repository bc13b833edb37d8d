//! Recordings: the data that a program received from its host and that is not a function of its own state.
//!
//! A program has one thread, so that a copy of its state at the start of a recording reaches the same state again when
//! it receives the same: readings of clocks, random bytes, times of files, and the replies to calls of its embedder.
//! A recording can be saved while the program waits in such a call, with its C stack. Replaying it in a copy leads to
//! the same wait, and from there the copy goes on by itself, still recorded. A sleep is such a wait, too.
//!
//! ```text
//!  start ─▶ entries of the replay … ─▶ Pending ─▶ further entries
//!           each must be of the kind that the program asks for, or the replay has diverged
//! ```
//!
//! A recording becomes incomplete, and is dropped, when it exceeds its size or when the program receives something that
//! is not recorded: a signal, or data of a mounted directory.

mod entries;
mod readings;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use crate::stop::{StopHandle, StopReason};
use crate::termination::Termination;
use crate::watchdog::Pause;
use entries::{DIGEST, Kind, Reader, SLEEP, micros, put_data, put_number};

pub use entries::{DamagedRecording, HostCall, RequestDigest};

/// The time of a sleep after which a recording is saved.
const SAVE_SLEEP_AFTER: Duration = Duration::from_secs(1);

/// A recording in progress, or its replay. Clones share it.
#[derive(Clone)]
pub struct Recording(Arc<Shared>);

struct Shared {
    is_replaying: Arc<AtomicBool>,
    sleep_saver: OnceLock<Arc<dyn SleepSaver>>,
    /// True if the recording was saved in a sleep, or that has failed, and nothing was seen of the program since.
    is_sleep_saved: AtomicBool,
    limit: usize,
    stop: Arc<StopHandle>,
    state: Mutex<State>,
}

struct State {
    phase: Phase,
    entries: Vec<u8>,
    /// The position of the next entry to replay.
    position: usize,
    /// True while the embedder handles a call: what it reads meanwhile for itself is not recorded.
    is_in_host: bool,
    /// The last values of the kinds that are recorded as differences.
    last: [u64; 3],
    /// The files of layers whose existence depends on the host, and whether they existed.
    deferred: BTreeMap<(u32, u32), bool>,
    /// The monotonic time at an instant, after a replay. Before, the instance's own clock has it.
    clock: Option<(Instant, Duration)>,
    /// The times at which a recording was saved that is replayed: monotonic, and since 1970.
    saved_at: (Duration, Duration),
    /// Suspends the limit of elapsed time during a replay.
    pause: Option<Pause>,
}

enum Phase {
    Recording,
    Replaying,
    /// The recording was dropped for this reason.
    Incomplete(Cow<'static, str>),
    /// The program did not do what the recording has.
    Diverged(String),
}

/// Saves a recording while the program sleeps.
pub trait SleepSaver: Send + Sync {
    /// Receives that the program has slept for this time, and saves the recording, which `save` returns.
    fn on_sleep(&self, elapsed: Duration, save: &dyn Fn() -> Result<Vec<u8>, Cow<'static, str>>);

    /// Receives that the program has gone on, and is about to do something that can be seen.
    ///
    /// # Errors
    /// Fails if the program must not go on.
    fn end_sleep(&self) -> Result<(), Termination>;
}

impl std::fmt::Debug for Recording {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Recording").field("is_replaying", &self.is_replaying()).finish_non_exhaustive()
    }
}

impl Recording {
    /// Begins a recording of at most `limit` bytes of the program that `stop` belongs to.
    pub fn new(limit: usize, stop: Arc<StopHandle>) -> Self {
        Self::with(limit, stop, Phase::Recording, Vec::new(), BTreeMap::new(), (Duration::ZERO, Duration::ZERO))
    }

    /// Begins the replay of a saved recording, which goes on as a recording of at most `limit` bytes.
    ///
    /// # Errors
    /// Fails if the bytes do not have the form that [`Recording::save`] writes.
    pub fn replay(saved: &[u8], limit: usize, stop: Arc<StopHandle>) -> Result<Self, DamagedRecording> {
        let mut reader = Reader { bytes: saved, position: 0 };
        let mut parse = || {
            let micros = |reader: &mut Reader<'_>| reader.number().map(Duration::from_micros);
            let saved_at = (micros(&mut reader)?, micros(&mut reader)?);
            let mut deferred = BTreeMap::new();
            for _ in 0..reader.number()? {
                let place = (u32::try_from(reader.number()?).ok()?, u32::try_from(reader.number()?).ok()?);
                deferred.insert(place, reader.number()? != 0);
            }
            let entries = reader.data()?.to_vec();
            (reader.position == saved.len()).then_some((saved_at, deferred, entries))
        };
        let (saved_at, deferred, entries) = parse().ok_or(DamagedRecording)?;
        Ok(Self::with(limit, stop, Phase::Replaying, entries, deferred, saved_at))
    }

    fn with(
        limit: usize,
        stop: Arc<StopHandle>,
        phase: Phase,
        entries: Vec<u8>,
        deferred: BTreeMap<(u32, u32), bool>,
        saved_at: (Duration, Duration),
    ) -> Self {
        let is_replaying = Arc::new(AtomicBool::new(matches!(phase, Phase::Replaying)));
        let state = State {
            phase,
            entries,
            position: 0,
            is_in_host: false,
            last: [0; 3],
            deferred,
            clock: None,
            saved_at,
            pause: None,
        };
        let (sleep_saver, is_sleep_saved) = (OnceLock::new(), AtomicBool::new(false));
        Self(Arc::new(Shared { is_replaying, sleep_saver, is_sleep_saved, limit, stop, state: Mutex::new(state) }))
    }

    /// Returns whether the program repeats what it did before: its effects have been seen.
    pub fn is_replaying(&self) -> bool {
        self.0.is_replaying.load(Ordering::Relaxed)
    }

    /// Returns what [`Recording::is_replaying`] returns, for objects that must not own the recording.
    pub fn replaying_flag(&self) -> Arc<AtomicBool> {
        self.0.is_replaying.clone()
    }

    /// Sets what saves the recording while the program sleeps. Only the first call has an effect.
    pub fn set_sleep_saver(&self, saver: Arc<dyn SleepSaver>) {
        let _ = self.0.sleep_saver.set(saver);
    }

    /// Receives that the program has slept for this time. `until` is the end of the sleep, in time since 1970, if it is
    /// known.
    pub(crate) fn on_sleep(&self, elapsed: Duration, until: Option<Duration>, monotonic: Duration) {
        let Some(saver) = self.0.sleep_saver.get() else { return };
        if elapsed < SAVE_SLEEP_AFTER || self.is_replaying() || self.0.is_sleep_saved.swap(true, Ordering::Relaxed) {
            return;
        }
        let until = until.map(micros).unwrap_or_default().to_le_bytes();
        saver.on_sleep(elapsed, &|| self.save(SLEEP, &until, monotonic));
    }

    /// Notes that the program does something that can be seen, and does not sleep any more.
    ///
    /// # Errors
    /// Fails if the program must not go on.
    pub fn end_sleep(&self) -> Result<(), Termination> {
        if !self.0.is_sleep_saved.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        self.0.sleep_saver.get().map_or(Ok(()), |saver| saver.end_sleep())
    }

    /// Returns the reason why the recording cannot be saved, if it cannot.
    pub fn incomplete(&self) -> Option<Cow<'static, str>> {
        match &self.0.state.lock().phase {
            Phase::Incomplete(reason) => Some(reason.clone()),
            _ => None,
        }
    }

    /// Returns how the replay has diverged, if it has.
    pub fn divergence(&self) -> Option<String> {
        match &self.0.state.lock().phase {
            Phase::Diverged(reason) => Some(reason.clone()),
            _ => None,
        }
    }

    /// Drops the recording, since the program received something that is not in it.
    pub fn set_incomplete(&self, reason: impl Into<Cow<'static, str>>) {
        let reason = reason.into();
        let mut state = self.0.state.lock();
        match state.phase {
            Phase::Recording => state.drop_entries(reason),
            Phase::Replaying => self.diverge(&mut state, format!("{reason}, which it did not before")),
            Phase::Incomplete(_) | Phase::Diverged(_) => {}
        }
    }

    /// Returns the recording for a copy of the program at its start, which will wait in the call with this digest. Its
    /// handler then receives `handler_state`. `monotonic` is the program's time now.
    ///
    /// # Errors
    /// Returns the reason why the recording is incomplete.
    pub fn save(
        &self,
        digest: RequestDigest,
        handler_state: &[u8],
        monotonic: Duration,
    ) -> Result<Vec<u8>, Cow<'static, str>> {
        let state = self.0.state.lock();
        match &state.phase {
            Phase::Recording => {}
            Phase::Replaying => return Err("it is replayed".into()),
            Phase::Incomplete(reason) => return Err(reason.clone()),
            Phase::Diverged(_) => return Err("its replay has diverged".into()),
        }
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut pending = vec![Kind::Pending as u8];
        pending.extend_from_slice(&digest.0);
        put_data(&mut pending, handler_state);
        let mut saved = Vec::with_capacity(state.entries.len() + pending.len() + 64);
        for time in [monotonic, since_1970] {
            put_number(&mut saved, micros(time));
        }
        put_number(&mut saved, state.deferred.len() as u64);
        for ((layer, node), exists) in &state.deferred {
            for number in [u64::from(*layer), u64::from(*node), u64::from(*exists)] {
                put_number(&mut saved, number);
            }
        }
        put_number(&mut saved, (state.entries.len() + pending.len()) as u64);
        saved.extend_from_slice(&state.entries);
        saved.extend_from_slice(&pending);
        Ok(saved)
    }

    /// Begins a call of the program. Returns the name and the argument of the recorded call that is to be made instead,
    /// if this is a replay.
    pub fn call(&self, name: &str, argument: &str) -> Option<(String, String)> {
        let mut state = self.0.state.lock();
        match state.phase {
            Phase::Recording => {
                let mut data = Vec::with_capacity(name.len() + argument.len() + 8);
                put_data(&mut data, name.as_bytes());
                put_data(&mut data, argument.as_bytes());
                state.entries.push(Kind::Call as u8);
                state.entries.extend_from_slice(&data);
                self.bound(&mut state);
                None
            }
            Phase::Replaying => {
                state.pause = Some(Pause::start(&self.0.stop));
                let read = |reader: &mut Reader<'_>| {
                    let text = |data: &[u8]| String::from_utf8(data.to_vec()).ok();
                    Some((text(reader.data()?)?, text(reader.data()?)?))
                };
                self.next(&mut state, Kind::Call, read)
            }
            Phase::Incomplete(_) | Phase::Diverged(_) => None,
        }
    }

    /// Notes that a call of the program has returned.
    pub fn end_call(&self) {
        let pause = self.0.state.lock().pause.take();
        drop(pause);
    }

    /// Begins a call of the embedder.
    pub fn host_call(&self, request: &[u8]) -> HostCall {
        let mut state = self.0.state.lock();
        let digest = RequestDigest::new(request);
        match state.phase {
            Phase::Recording | Phase::Incomplete(_) => {
                state.is_in_host = true;
                return HostCall::New(digest);
            }
            Phase::Diverged(_) => return HostCall::Diverged,
            Phase::Replaying => {}
        }
        let is_pending = state.entries.get(state.position) == Some(&(Kind::Pending as u8));
        let kind = if is_pending { Kind::Pending } else { Kind::Reply };
        let begin = state.position;
        let read = |reader: &mut Reader<'_>| Some((reader.take(DIGEST)?.to_vec(), reader.data()?.to_vec()));
        let Some((recorded, data)) = self.next(&mut state, kind, read) else { return HostCall::Diverged };
        if recorded != digest.0 {
            self.diverge(&mut state, "a call of the host has another request".into());
            return HostCall::Diverged;
        }
        if !is_pending {
            return HostCall::Replied(data);
        }
        state.is_in_host = true;
        self.finish(&mut state, begin);
        HostCall::Pending(digest, data)
    }

    /// Ends a replay at its last entry, which begins at a position. It is written again if the wait is saved again.
    fn finish(&self, state: &mut State, begin: usize) {
        state.entries.truncate(begin);
        state.phase = Phase::Recording;
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (monotonic, saved) = state.saved_at;
        state.clock = Some((Instant::now(), monotonic.saturating_add(since_1970.saturating_sub(saved))));
        state.pause = None;
        self.0.is_replaying.store(false, Ordering::Relaxed);
    }

    /// Ends a replay if the program sleeps that was saved in its sleep. Returns the end of the sleep, in microseconds
    /// since 1970, which is 0 if the program knows it.
    fn finish_in_sleep(&self, state: &mut State) -> Option<u64> {
        let begin = state.position;
        let mut reader = Reader { bytes: &state.entries, position: begin };
        let is_sleep = reader.take(1)? == [Kind::Pending as u8] && reader.take(DIGEST)? == SLEEP.0;
        let until = if is_sleep { reader.data()?.try_into().ok()? } else { return None };
        self.finish(state, begin);
        Some(u64::from_le_bytes(until))
    }

    /// Records the reply to a call of the embedder.
    pub fn reply(&self, digest: RequestDigest, reply: &[u8]) {
        let mut state = self.0.state.lock();
        state.is_in_host = false;
        if matches!(state.phase, Phase::Recording) {
            state.entries.push(Kind::Reply as u8);
            state.entries.extend_from_slice(&digest.0);
            put_data(&mut state.entries, reply);
            self.bound(&mut state);
        }
    }

    /// Reads the next entry of a replay, which must be of a kind. Otherwise, the replay has diverged.
    fn next<T>(&self, state: &mut State, kind: Kind, read: impl FnOnce(&mut Reader<'_>) -> Option<T>) -> Option<T> {
        let mut reader = Reader { bytes: &state.entries, position: state.position };
        let found = reader.take(1).and_then(|byte| Kind::from_byte(byte[0]));
        let value = if found == Some(kind) { read(&mut reader) } else { None };
        let position = reader.position;
        match value {
            Some(value) => {
                state.position = position;
                Some(value)
            }
            None => {
                let recorded = found.map_or("nothing", Kind::name);
                self.diverge(state, format!("it asks for {}, and the recording has {recorded}", kind.name()));
                None
            }
        }
    }

    fn diverge(&self, state: &mut State, reason: String) {
        state.entries = Vec::new();
        state.phase = Phase::Diverged(reason);
        // The program runs until its next loop header or call of the host: its output is still suppressed.
        self.0.stop.stop(StopReason::Requested);
    }

    fn bound(&self, state: &mut State) {
        if state.entries.len() > self.0.limit {
            state.drop_entries("its recording is longer than the limit for replays".into());
        }
    }
}

impl State {
    fn drop_entries(&mut self, reason: Cow<'static, str>) {
        self.entries = Vec::new();
        self.phase = Phase::Incomplete(reason);
    }

    fn monotonic(&self, own: impl FnOnce() -> Duration) -> Duration {
        self.clock.map_or_else(own, |(origin, before)| before.saturating_add(origin.elapsed()))
    }
}

#[cfg(test)]
mod tests;

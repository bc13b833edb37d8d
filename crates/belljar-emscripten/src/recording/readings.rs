//! The readings of a recorded program: times, random bytes, sleeps and the existence of files.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::entries::{Kind, Reader, micros, put_data, put_number};
use super::{Phase, Recording, State};

impl Recording {
    /// Returns a reading of the time since 1970.
    pub(crate) fn real_time(&self, read: impl FnOnce() -> Duration) -> Duration {
        Duration::from_micros(self.number(Kind::RealTime, |_| micros(read())))
    }

    /// Returns a reading of the monotonic time. `own` is that of the instance, which holds until a replay.
    pub(crate) fn monotonic(&self, own: impl FnOnce() -> Duration) -> Duration {
        Duration::from_micros(self.number(Kind::Monotonic, |state| micros(state.monotonic(own))))
    }

    /// Returns the monotonic time without recording it.
    pub(crate) fn monotonic_now(&self, own: impl FnOnce() -> Duration) -> Duration {
        self.0.state.lock().monotonic(own)
    }

    /// Returns the time of a change of a file, in nanoseconds.
    pub(crate) fn file_time(&self, read: impl FnOnce() -> u64) -> u64 {
        self.number(Kind::FileTime, |_| read())
    }

    /// Fills a buffer with random bytes.
    pub(crate) fn fill_random<E>(
        &self,
        buffer: &mut [u8],
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut state = self.0.state.lock();
        if matches!(state.phase, Phase::Replaying) {
            let read =
                |reader: &mut Reader<'_>| reader.data().filter(|data| data.len() == buffer.len()).map(<[u8]>::to_vec);
            let drawn = self.next(&mut state, Kind::Random, read).unwrap_or_default();
            buffer.iter_mut().zip(drawn).for_each(|(to, from)| *to = from);
            return Ok(());
        }
        fill(buffer)?;
        if matches!(state.phase, Phase::Recording) && !state.is_in_host {
            state.entries.push(Kind::Random as u8);
            put_data(&mut state.entries, buffer);
            self.bound(&mut state);
        }
        Ok(())
    }

    /// Returns the time for which the program sleeps that asks for `time`: none if the sleep was over before.
    pub(crate) fn sleep_time(&self, time: Duration) -> Duration {
        let mut state = self.0.state.lock();
        if !matches!(state.phase, Phase::Replaying) {
            return time;
        }
        if let Some(until) = self.finish_in_sleep(&mut state) {
            let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            return Duration::from_micros(until).saturating_sub(since_1970);
        }
        let _ = self.next(&mut state, Kind::Sleep, |_| Some(()));
        Duration::ZERO
    }

    /// Records that a sleep was not interrupted.
    pub(crate) fn slept(&self) {
        let mut state = self.0.state.lock();
        if matches!(state.phase, Phase::Recording) {
            state.entries.push(Kind::Sleep as u8);
            self.bound(&mut state);
        }
    }

    /// Returns whether a file of a layer exists whose contents the host supplies at some time. That does not change for
    /// the recorded program.
    pub(crate) fn deferred_exists(&self, layer: u32, node: u32, exists: bool) -> bool {
        let mut state = self.0.state.lock();
        if matches!(state.phase, Phase::Incomplete(_) | Phase::Diverged(_)) {
            return exists;
        }
        let existed = *state.deferred.entry((layer, node)).or_insert(exists);
        if existed && !exists {
            self.diverge(&mut state, "the bytecode of a module is not there any more".into());
        }
        existed && exists
    }

    /// Returns a number that `read` reads now, or that was read before.
    fn number(&self, kind: Kind, read: impl FnOnce(&State) -> u64) -> u64 {
        let mut state = self.0.state.lock();
        let place = kind as usize - 1;
        match state.phase {
            Phase::Recording if state.is_in_host => read(&state),
            Phase::Recording => {
                let number = read(&state);
                let difference = number.wrapping_sub(state.last[place]).cast_signed();
                state.last[place] = number;
                state.entries.push(kind as u8);
                put_number(&mut state.entries, ((difference << 1) ^ (difference >> 63)).cast_unsigned());
                self.bound(&mut state);
                number
            }
            Phase::Replaying => {
                if kind == Kind::Monotonic && self.finish_in_sleep(&mut state).is_some() {
                    drop(state);
                    return self.number(kind, read);
                }
                let encoded = self.next(&mut state, kind, |reader| reader.number()).unwrap_or_default();
                let difference = (encoded >> 1).cast_signed() ^ -((encoded & 1).cast_signed());
                state.last[place] = state.last[place].wrapping_add(difference.cast_unsigned());
                state.last[place]
            }
            Phase::Incomplete(_) => read(&state),
            Phase::Diverged(_) => state.last[place],
        }
    }
}

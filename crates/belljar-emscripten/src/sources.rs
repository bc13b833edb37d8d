//! The sources of an instance's time and randomness: the host's, which may be recorded, or reproducible ones.
//!
//! An instance whose state becomes an image reads reproducible time and randomness: two machines that build the same
//! image get the same bytes. Its random numbers are public. The embedder must ensure that no state derived from them is
//! used by copies of the image, for which [`Readings`] count what the program has read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};

use crate::Errno;
use crate::clock::RESOLUTION;
use crate::fs::Timestamp;
use crate::recording::Recording;

/// The real time at which reproducible clocks start: 2026-01-01 UTC, in time since 1970.
const START: Duration = Duration::from_secs(1_767_225_600);
/// The time that passes between two readings of a clock by a program that sleeps. Emscripten's libc sleeps by reading
/// the clock in a loop.
const SLEEP_STEP: Duration = Duration::from_micros(100);
/// The size of a block of reproducible random bytes.
const BLOCK: usize = 32;

/// The sources of an instance's time and randomness.
#[derive(Debug, Clone, Default)]
pub(crate) enum Sources {
    /// The host's clock and random number generator.
    #[default]
    Host,
    /// A clock that advances when it is read, and a fixed sequence of random bytes.
    Reproducible(Arc<Reproducible>),
    /// The host's, recorded, or those of a recording.
    Recorded(Recording),
}

/// The state of reproducible sources, which the parts of one instance share.
#[derive(Debug)]
pub(crate) struct Reproducible {
    /// The monotonic time, in microseconds.
    time: AtomicU64,
    /// The number of blocks of random bytes drawn.
    blocks: AtomicU64,
    random_reads: AtomicU64,
    real_time_reads: AtomicU64,
}

/// The number of times that a program with reproducible sources has read them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Readings {
    /// Requests for random bytes, through any interface.
    pub random: u64,
    /// Readings of the time since 1970.
    pub real_time: u64,
}

impl Sources {
    /// Creates reproducible sources whose monotonic clock starts at `time`.
    pub(crate) fn reproducible(time: Duration) -> Self {
        Self::Reproducible(Arc::new(Reproducible {
            time: AtomicU64::new(u64::try_from(time.as_micros()).unwrap_or(0)),
            blocks: AtomicU64::new(0),
            random_reads: AtomicU64::new(0),
            real_time_reads: AtomicU64::new(0),
        }))
    }

    /// Returns the reproducible sources, if they are.
    pub(crate) fn as_reproducible(&self) -> Option<&Reproducible> {
        match self {
            Self::Host | Self::Recorded(_) => None,
            Self::Reproducible(sources) => Some(sources),
        }
    }

    /// Returns the recording, if the sources are recorded.
    pub(crate) fn as_recorded(&self) -> Option<&Recording> {
        if let Self::Recorded(recording) = self { Some(recording) } else { None }
    }

    /// Returns the time since 1970 for the program; zero if the host's clock is set before that.
    pub(crate) fn real_time(&self) -> Duration {
        match self {
            Self::Host => host_time(),
            Self::Recorded(recording) => recording.real_time(host_time),
            Self::Reproducible(sources) => {
                sources.real_time_reads.fetch_add(1, Ordering::Relaxed);
                START + sources.advance(RESOLUTION)
            }
        }
    }

    /// Returns the time for a file's status.
    pub(crate) fn file_time(&self) -> Timestamp {
        match self {
            Self::Host => Timestamp::now(),
            Self::Recorded(recording) => Timestamp::since_epoch(Duration::from_nanos(
                recording.file_time(|| u64::try_from(host_time().as_nanos()).unwrap_or(u64::MAX)),
            )),
            Self::Reproducible(sources) => Timestamp::since_epoch(START + sources.advance(RESOLUTION)),
        }
    }

    /// Fills a buffer with random bytes.
    ///
    /// # Errors
    /// Returns [`Errno::EIO`] if the host's generator fails.
    pub(crate) fn fill_random(&self, buffer: &mut [u8]) -> Result<(), Errno> {
        match self {
            Self::Host => host_random(buffer),
            Self::Recorded(recording) => recording.fill_random(buffer, host_random),
            Self::Reproducible(sources) => {
                sources.fill_random(buffer);
                Ok(())
            }
        }
    }

    pub(crate) fn readings(&self) -> Readings {
        self.as_reproducible().map_or(Readings::default(), |sources| Readings {
            random: sources.random_reads.load(Ordering::Relaxed),
            real_time: sources.real_time_reads.load(Ordering::Relaxed),
        })
    }
}

fn host_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn host_random(buffer: &mut [u8]) -> Result<(), Errno> {
    getrandom::fill(buffer).map_err(|_| Errno::EIO)
}

impl Reproducible {
    /// Returns the monotonic time. Time passes with each reading, so that code that waits for a time ends.
    pub(crate) fn monotonic(&self) -> Duration {
        self.advance(RESOLUTION)
    }

    /// Passes time for a program that reads the clock until its sleep is over.
    pub(crate) fn step_of_sleep(&self) {
        self.advance(SLEEP_STEP);
    }

    /// Passes time, and returns the monotonic time before.
    pub(crate) fn advance(&self, by: Duration) -> Duration {
        Duration::from_micros(self.time.fetch_add(u64::try_from(by.as_micros()).unwrap_or(0), Ordering::Relaxed))
    }

    fn fill_random(&self, buffer: &mut [u8]) {
        self.random_reads.fetch_add(1, Ordering::Relaxed);
        for part in buffer.chunks_mut(BLOCK) {
            let number = self.blocks.fetch_add(1, Ordering::Relaxed);
            let block = Sha256::new().chain_update(b"belljar image").chain_update(number.to_le_bytes()).finalize();
            part.copy_from_slice(&block[..part.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reproducible_sources_repeat_and_are_counted() {
        let draw = || {
            let sources = Sources::reproducible(Duration::from_secs(5));
            let mut bytes = [0; 50];
            sources.fill_random(&mut bytes).unwrap();
            (bytes, sources.real_time(), sources.file_time(), sources.readings())
        };
        let (bytes, real_time, file_time, readings) = draw();
        assert_eq!((bytes, real_time, file_time, readings), draw());
        assert_eq!(readings, Readings { random: 1, real_time: 1 });
        assert_eq!(real_time, START + Duration::from_secs(5));
        assert!(Timestamp::since_epoch(real_time) < file_time, "time passes");
        assert_ne!(bytes[..18], bytes[32..], "blocks differ");
    }

    #[test]
    fn sources_of_the_host_differ_and_are_not_counted() {
        let (mut one, mut two) = ([0; 32], [0; 32]);
        for bytes in [&mut one, &mut two] {
            Sources::Host.fill_random(bytes).unwrap();
        }
        assert_ne!(one, two);
        assert_eq!(Sources::Host.readings(), Readings::default());
    }
}

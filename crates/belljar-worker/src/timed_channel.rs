//! Reads and writes of a worker's channel that end at a deadline, however slowly the worker sends and reads.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::silence::{self, Silence};

/// The longest wait until a worker has read a message.
const WRITE_TIMEOUT: Duration = Duration::from_secs(20);
/// The most bytes of one call of the system: no more than one buffer of a socket. The system waits for each buffer as
/// long as the timeout allows.
const MAX_WRITE: usize = 32 << 10;

/// The broker's end of a channel, with the deadline of its reads and writes.
///
/// A timeout of a socket begins again with each call of the system, and most messages take several. So it is set before
/// each of them, to the time that is left.
pub(crate) struct TimedChannel<'a> {
    channel: &'a UnixStream,
    deadline: Option<Instant>,
    /// The observer of silence, during calls.
    silence: Option<Silence<'a>>,
}

impl<'a> TimedChannel<'a> {
    pub(crate) fn new(channel: &'a UnixStream, deadline: Option<Instant>) -> Self {
        Self { channel, deadline, silence: None }
    }

    /// Does the same, and has silence noted.
    pub(crate) fn with_silence(channel: &'a UnixStream, deadline: Option<Instant>, silence: Silence<'a>) -> Self {
        Self { silence: Some(silence), ..Self::new(channel, deadline) }
    }

    /// Sets the deadline of the next reads and writes.
    pub(crate) fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }

    /// Returns the time that is left, if there is a deadline.
    fn time_left(&self) -> io::Result<Option<Duration>> {
        let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        match left {
            Some(Duration::ZERO) => Err(io::ErrorKind::TimedOut.into()),
            left => Ok(left),
        }
    }
}

impl Read for TimedChannel<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Self { silence: Some(_), .. } = self else {
            self.channel.set_read_timeout(self.time_left()?)?;
            return self.channel.read(buffer);
        };
        loop {
            let left = self.time_left()?.map_or(silence::INTERVAL, |left| left.min(silence::INTERVAL));
            self.channel.set_read_timeout(Some(left))?;
            let read = self.channel.read(buffer);
            let is_silent = read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
            match &mut self.silence {
                Some(silence) if is_silent => silence.look(),
                Some(silence) => {
                    silence.end();
                    return read;
                }
                None => return read,
            }
        }
    }
}

impl Write for TimedChannel<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.channel.set_write_timeout(self.time_left()?)?;
        self.channel.write(&bytes[..bytes.len().min(MAX_WRITE)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes frames to a worker, until `deadline` or [`WRITE_TIMEOUT`].
pub(crate) fn write(channel: &UnixStream, frames: &[u8], deadline: Option<Instant>) -> io::Result<()> {
    let latest = Instant::now() + WRITE_TIMEOUT;
    let deadline = deadline.map_or(latest, |deadline| deadline.min(latest));
    TimedChannel::new(channel, Some(deadline)).write_all(frames)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::{self, FrameError};
    use crate::messages::{Event, OutputStream};

    fn soon() -> Option<Instant> {
        Some(Instant::now() + Duration::from_millis(200))
    }

    #[test]
    fn bytes_that_drip_do_not_postpone_the_deadline() {
        let mut frame = Vec::new();
        frames::append(&mut frame, &Event::Output { stream: OutputStream::Stdout, bytes: vec![1; 100] }).unwrap();
        // The contents of the frame drip, or its length, too.
        for (at_once, pause) in [(4, 20), (0, 100)] {
            let (channel, mut worker) = UnixStream::pair().unwrap();
            let frame = frame.clone();
            std::thread::spawn(move || {
                worker.write_all(&frame[..at_once]).unwrap();
                for byte in &frame[at_once..] {
                    std::thread::sleep(Duration::from_millis(pause));
                    if worker.write_all(&[*byte]).is_err() {
                        break;
                    }
                }
            });
            let mut source = TimedChannel::new(&channel, soon());
            let read = frames::read::<Event>(&mut source);
            assert!(matches!(read, Err(FrameError::TimedOut)), "{read:?}");
        }
    }

    #[test]
    fn slow_reader_does_not_postpone_the_deadline() {
        let (channel, mut worker) = UnixStream::pair().unwrap();
        std::thread::spawn(move || {
            let mut part = [0; 64 << 10];
            // Each write goes on before long, and all of them together take seconds.
            while worker.read(&mut part).is_ok_and(|read| read > 0) {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let written = write(&channel, &vec![0; 16 << 20], soon()).map_err(FrameError::from);
        assert!(matches!(written, Err(FrameError::TimedOut)));
    }

    #[test]
    fn deadline_that_is_over_ends_reads_of_bytes_that_are_there() {
        let (channel, mut worker) = UnixStream::pair().unwrap();
        worker.write_all(b"x").unwrap();
        let mut source = TimedChannel::new(&channel, Some(Instant::now()));
        assert_eq!(source.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::TimedOut);
        source.set_deadline(None);
        assert_eq!(source.read(&mut [0]).unwrap(), 1);
    }
}

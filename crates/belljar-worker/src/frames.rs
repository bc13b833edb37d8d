//! The frames of the channel: a length, and a message.

use std::io::{self, Read};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::messages::Event;

/// A message that frames have.
pub(crate) trait Message: DeserializeOwned {
    /// Returns the largest size of a message of a kind, in bytes: its number is the first byte. Returns `None` if the
    /// kind does not exist.
    fn max_size(kind: u8) -> Option<usize>;
}

/// The size of the length.
const LENGTH: usize = size_of::<u32>();
/// The largest size of a message, in bytes: the longest result of a guest, and what surrounds it.
pub(crate) const MAX_MESSAGE: usize = (128 << 20) + 1024;

/// An error in reading a message.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrameError {
    /// The other end is closed.
    #[error("the process has ended")]
    Closed,
    /// The other end was closed before it had read all that it was sent.
    #[error("the process has ended before it read its commands")]
    Unread,
    /// The time for reading is over.
    #[error("the process did not reply in time")]
    TimedOut,
    /// The message is longer than it may be.
    #[error("the process sent a message of {0} bytes")]
    TooLong(usize),
    /// The bytes are not a message.
    #[error("the process sent something that is not a message")]
    Invalid,
    /// The system's error.
    #[error("failed to read from the process: {0}")]
    Io(io::Error),
}

impl From<io::Error> for FrameError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Closed,
            // A Unix socket reports this when data is lost.
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Self::Unread,
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::TimedOut,
            _ => Self::Io(error),
        }
    }
}

/// Appends the frame of `message` to `frames`.
pub(crate) fn append(frames: &mut Vec<u8>, message: &impl Serialize) -> io::Result<()> {
    let start = frames.len();
    frames.extend([0; LENGTH]);
    let mut written = postcard::to_extend(message, std::mem::take(frames)).map_err(io::Error::other)?;
    let length = u32::try_from(written.len() - start - LENGTH).map_err(io::Error::other)?;
    written[start..start + LENGTH].copy_from_slice(&length.to_le_bytes());
    *frames = written;
    Ok(())
}

/// Reads a message.
pub(crate) fn read<T: Message>(source: &mut impl Read) -> Result<T, FrameError> {
    let mut length = [0; LENGTH];
    source.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_MESSAGE {
        return Err(FrameError::TooLong(length));
    }
    if length == 0 {
        return Err(FrameError::Invalid);
    }
    let mut kind = [0];
    source.read_exact(&mut kind)?;
    if length > T::max_size(kind[0]).ok_or(FrameError::Invalid)? {
        return Err(FrameError::TooLong(length));
    }
    let mut bytes = Vec::from(kind);
    // Uses memory only for bytes that arrive.
    source.take(length as u64 - 1).read_to_end(&mut bytes)?;
    if bytes.len() < length {
        return Err(FrameError::Closed);
    }
    match postcard::take_from_bytes(&bytes) {
        Ok((message, [])) => Ok(message),
        _ => Err(FrameError::Invalid),
    }
}

/// Reads the frames of a worker, until the bytes end or are not a message. Returns the messages as they would be
/// written. For fuzz targets.
#[doc(hidden)]
pub fn rewrite_events(mut bytes: &[u8]) -> Vec<u8> {
    let mut frames = Vec::new();
    while let Ok(event) = read::<Event>(&mut bytes) {
        if append(&mut frames, &event).is_err() {
            break;
        }
    }
    frames
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use belljar_emscripten::Errno;
    use belljar_python::GuestFunction;
    use belljar_python::isolation::{
        CallRecording, DirectoryRequest, FileFailure, FileReply, FileRequest, HostCallFailure, ListedFile,
        MAX_LISTED_FILES, MountPoint, MountReply, MountRequest, MountedFileRequest, NetworkReply, NetworkRequest,
        RecordingState, SavedPart, ValueFile,
    };

    use super::*;
    use crate::messages::{Command, EndReason, InterpreterLimits, MAX_FILES, OutputStream, SeenSignals, TimeLimits};

    fn read_event(bytes: &[u8]) -> Result<Event, FrameError> {
        read(&mut &bytes[..])
    }

    fn files() -> Vec<ValueFile> {
        vec![ValueFile { name: "out-0".into(), bytes: vec![0, 255] }]
    }

    fn events() -> Vec<Event> {
        vec![
            Event::Ready,
            Event::Output { stream: OutputStream::Stderr, bytes: vec![0xff; 3000] },
            Event::HostCall {
                name: "display".into(),
                request: "{}".into(),
                files: files(),
                signals: SeenSignals { interrupts: 3, is_pending: true },
                continued: Some(vec![1, 2]),
            },
            Event::Returned {
                result: Ok("{\"kind\":\"value\"}".into()),
                files: files(),
                peak_memory: 1 << 40,
                has_used_streams: true,
                recording: Some(RecordingState { is_replaying: true, divergence: Some("other".into()) }),
                finish: Some((Ok("{}".into()), Duration::from_micros(9))),
            },
            Event::Returned {
                result: Err(EndReason::Crash("ü".into())),
                files: Vec::new(),
                peak_memory: 0,
                has_used_streams: false,
                recording: None,
                finish: None,
            },
            Event::Started(Err("no".into())),
            Event::Files(FileReply::List(vec![listed("d/f.txt")])),
            Event::Files(FileReply::Read(Err(FileFailure::TooLong(9)))),
            Event::StatePart(vec![7; 2000]),
            Event::Saved(Ok(())),
            Event::Grow(u64::MAX),
            Event::Network(NetworkRequest::Read { connection: 1, max: 2, peek: true }),
            Event::Network(NetworkRequest::Connect(([127, 0, 0, 1], 80).into())),
            Event::Waiting,
            Event::Mount(MountRequest::Directory(1, DirectoryRequest::Rename("a".into(), "b".into()))),
            Event::Mount(MountRequest::File(2, MountedFileRequest::Write(3, vec![4]))),
            Event::ReplayPrepared(true),
            Event::ReplayEnded,
            Event::Asleep(Duration::MAX),
        ]
    }

    fn mounts() -> Vec<MountPoint> {
        vec![MountPoint { guest: "/data".into(), is_writable: true }]
    }

    fn listed(path: &str) -> ListedFile {
        ListedFile { path: path.into(), is_regular: true, size: 3, modified: 1 << 70 }
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        let time = TimeLimits { wall: Some(Duration::from_millis(1500)), cpu: None, grace: Duration::ZERO };
        let limits = InterpreterLimits { memory: u64::MAX, output: 1, disk: 2, files: 3, value: 4 };
        let commands = vec![
            Command::Restore { number: 7, limits, mounts: mounts() },
            Command::Call {
                function: GuestFunction::Resume,
                arguments: "{}".into(),
                files: files(),
                time,
                is_new_cell: true,
                asleep: Duration::from_micros(7),
                asks_memory: true,
                network: true,
                interrupts: 5,
                recording: CallRecording::New { max_bytes: 6 },
                finish: Some(time),
                gives_way: true,
            },
            Command::StatePart(vec![1; 3]),
            Command::StartSession { number: 8, limits, start: Some(SavedPart::Files), mounts: mounts() },
            Command::Files(FileRequest::Write { path: "a".into(), bytes: vec![2] }),
            Command::Save(SavedPart::State),
            Command::HostReply {
                result: Err(HostCallFailure::Refused("no".into())),
                files: files(),
                incomplete: Some("why".into()),
            },
            Command::PrepareReplay { max_bytes: 7 },
            Command::SaveRecording(vec![8]),
            Command::SleepOn,
            Command::Discard,
            Command::Grown(true),
            Command::LayerPart { bytes: vec![1], id: Some("wheel".into()) },
            Command::Network(NetworkReply::Read(Err(Errno::EAGAIN))),
            Command::Mount(Ok(MountReply::Written(7))),
        ];
        let mut frames = Vec::new();
        commands.iter().for_each(|command| append(&mut frames, command).unwrap());
        let mut source = &frames[..];
        for command in commands {
            assert_eq!(read::<Command>(&mut source).unwrap(), command);
        }
        let mut frames = Vec::new();
        events().iter().for_each(|event| append(&mut frames, event).unwrap());
        let mut source = &frames[..];
        for event in events() {
            assert_eq!(read::<Event>(&mut source).unwrap(), event);
        }
        assert!(matches!(read::<Event>(&mut source), Err(FrameError::Closed)));
    }

    #[test]
    fn everything_else_is_refused() {
        let frame = |payload: &[u8]| [&(payload.len() as u32).to_le_bytes()[..], payload].concat();
        // Unknown messages, streams and reasons; text that is not UTF-8; lengths beyond the end.
        for payload in [
            &[][..],
            &[4],
            &[8],
            &[9],
            &[9, 9],
            &[11],
            &[11, 3],
            &[12],
            &[12, 2],
            &[14, 1],
            &[15],
            &[5, 3],
            &[0xff],
            &[1, 2, 0],
            &[2, 1, 0xff, 0],
            &[1, 0, 0xff, 0xff, 3],
            &[3, 1, 9],
        ] {
            assert!(matches!(read_event(&frame(payload)), Err(FrameError::Invalid)), "{payload:?}");
        }
        assert!(matches!(read_event(&(MAX_MESSAGE as u32 + 1).to_le_bytes()), Err(FrameError::TooLong(_))));
        // Longer than messages of their kind, of which nothing but the kind is read.
        assert!(matches!(read_event(&frame(&[0, 0])), Err(FrameError::TooLong(2))));
        for kind in [0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14] {
            let head = [&(MAX_MESSAGE as u32).to_le_bytes()[..], &[kind]].concat();
            assert!(matches!(read_event(&head), Err(FrameError::TooLong(MAX_MESSAGE))), "{kind}");
        }
        // A worker that announces a long message and sends none of it.
        assert!(matches!(read_event(&(MAX_MESSAGE as u32).to_le_bytes()), Err(FrameError::Closed)));
        assert!(matches!(read_event(&[1, 2]), Err(FrameError::Closed)));
    }

    #[test]
    fn buffers_and_files_are_counted_while_they_are_decoded() {
        let returned = |count: usize| {
            let files = vec![ValueFile { name: String::new(), bytes: Vec::new() }; count];
            let event = Event::Returned {
                result: Ok(String::new()),
                files,
                peak_memory: 0,
                has_used_streams: false,
                recording: None,
                finish: None,
            };
            let mut frame = Vec::new();
            append(&mut frame, &event).unwrap();
            read_event(&frame)
        };
        assert!(matches!(returned(MAX_FILES), Ok(Event::Returned { files, .. }) if files.len() == MAX_FILES));
        assert!(matches!(returned(MAX_FILES + 1), Err(FrameError::Invalid)));
        let listed = |count: usize| {
            let mut frame = Vec::new();
            append(&mut frame, &Event::Files(FileReply::List(vec![listed("f"); count]))).unwrap();
            read_event(&frame)
        };
        assert!(matches!(listed(MAX_LISTED_FILES), Ok(Event::Files(_))));
        assert!(matches!(listed(MAX_LISTED_FILES + 1), Err(FrameError::Invalid)));
        // A message that announces more buffers than it can have, and has none of them.
        let announced = [3, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f];
        let frame = [&(announced.len() as u32).to_le_bytes()[..], &announced].concat();
        assert!(matches!(read_event(&frame), Err(FrameError::Invalid)));
    }

    #[test]
    fn no_bytes_make_the_reader_panic_or_take_long() {
        // A fixed sequence of bytes, and each of the messages with each of its bytes changed.
        let mut state = 1_u32;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state
        };
        for _ in 0..20_000 {
            let payload: Vec<u8> = (0..next() % 40).map(|_| next() as u8).collect();
            let _ = read_event(&[&(payload.len() as u32).to_le_bytes()[..], &payload].concat());
        }
        for event in events() {
            let mut frame = Vec::new();
            append(&mut frame, &event).unwrap();
            for at in LENGTH..frame.len().min(200) {
                for bit in 0..8 {
                    let mut changed = frame.clone();
                    changed[at] ^= 1 << bit;
                    let _ = read_event(&changed);
                }
            }
        }
    }
}

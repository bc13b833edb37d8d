//! Tests of recordings.

use super::*;
use crate::stop::StopHandle;

const LIMIT: usize = 1 << 20;

fn stop() -> Arc<StopHandle> {
    Arc::default()
}

/// Returns the digest of a call that is carried out.
fn begin(recording: &Recording, request: &[u8]) -> RequestDigest {
    match recording.host_call(request) {
        HostCall::New(digest) => digest,
        other => panic!("{other:?}"),
    }
}

/// Draws from all sources, and returns what they gave. The clocks of the host give `time`.
fn draw(recording: &Recording, time: u64, random: u8) -> (Vec<Duration>, u64, [u8; 5]) {
    let time = Duration::from_micros(time);
    let times = vec![
        recording.real_time(|| time * 3),
        recording.monotonic(|| time),
        recording.monotonic(|| time + Duration::from_micros(7)),
        recording.real_time(|| time * 2),
    ];
    let mut bytes = [0; 5];
    let fill = |buffer: &mut [u8]| -> Result<(), ()> {
        buffer.fill(random);
        Ok(())
    };
    recording.fill_random(&mut bytes, fill).unwrap();
    (times, recording.file_time(|| 1_000_000_007), bytes)
}

/// Records a program that draws, calls the host twice and waits in a third call.
fn saved() -> (Vec<u8>, (Vec<Duration>, u64, [u8; 5])) {
    let recording = Recording::new(LIMIT, stop());
    assert_eq!(recording.call("execute", "arguments"), None);
    let drawn = draw(&recording, 12_345, 9);
    let digest = begin(&recording, b"first");
    recording.reply(digest, b"reply");
    recording.slept();
    assert!(recording.deferred_exists(1, 2, true) && !recording.deferred_exists(1, 3, false));
    let digest = begin(&recording, b"waits");
    (recording.save(digest, b"state", Duration::from_secs(5)).unwrap(), drawn)
}

#[test]
fn replay_gives_what_was_recorded_and_goes_on_at_the_wait() {
    let (saved, drawn) = saved();
    let replay = Recording::replay(&saved, LIMIT, stop()).unwrap();
    assert!(replay.is_replaying());
    assert_eq!(replay.call("resume", ""), Some(("execute".into(), "arguments".into())));
    assert_eq!(draw(&replay, 1, 1), drawn);
    assert!(matches!(replay.host_call(b"first"), HostCall::Replied(reply) if reply == b"reply"));
    assert!(replay.sleep_time(Duration::MAX).is_zero());
    // A file that appeared in the meantime does not exist for the program.
    assert!(replay.deferred_exists(1, 2, true) && !replay.deferred_exists(1, 3, true));
    let HostCall::Pending(digest, state) = replay.host_call(b"waits") else { panic!("it does not wait") };
    assert_eq!(state, b"state");
    assert!(!replay.is_replaying() && replay.divergence().is_none());
    assert_eq!(replay.sleep_time(Duration::MAX), Duration::MAX);
    // The handler's own readings are not recorded.
    replay.file_time(|| 0);
    // The recording goes on, and can be replayed with its second part.
    replay.reply(digest, b"late");
    let monotonic = replay.monotonic(|| Duration::ZERO);
    assert!(monotonic >= Duration::from_secs(5), "the clock goes on: {monotonic:?}");
    let digest = begin(&replay, b"waits again");
    let again = replay.save(digest, b"", monotonic).unwrap();
    let replay = Recording::replay(&again, LIMIT, stop()).unwrap();
    replay.call("resume", "").unwrap();
    assert_eq!(draw(&replay, 1, 1), drawn);
    replay.host_call(b"first");
    replay.sleep_time(Duration::MAX);
    assert!(matches!(replay.host_call(b"waits"), HostCall::Replied(reply) if reply == b"late"));
    assert_eq!(replay.monotonic(|| Duration::ZERO), monotonic);
    assert!(matches!(replay.host_call(b"waits again"), HostCall::Pending(..)));
}

#[test]
fn program_that_does_something_else_is_stopped() {
    let (saved, _) = saved();
    type Divergence<'a> = (&'a dyn Fn(&Recording), &'a str);
    let diverging: [Divergence<'_>; 3] = [
        (&|replay| drop(replay.host_call(b"first")), "a call of the host, and the recording has a reading of a clock"),
        (&|replay| assert!(replay.sleep_time(Duration::MAX).is_zero()), "a sleep, and the recording has"),
        (&|replay| replay.set_incomplete("it used a directory of the host"), "which it did not before"),
    ];
    for (diverge, expected) in diverging {
        let handle = stop();
        let replay = Recording::replay(&saved, LIMIT, handle.clone()).unwrap();
        replay.call("resume", "").unwrap();
        diverge(&replay);
        let reason = replay.divergence().unwrap();
        assert!(reason.contains(expected), "{reason}");
        assert!(handle.stopped() && replay.is_replaying(), "its output is shown");
        assert!(matches!(replay.host_call(b"first"), HostCall::Diverged));
        assert!(replay.save(RequestDigest([0; DIGEST]), b"", Duration::ZERO).is_err());
    }
    let replay = Recording::replay(&saved, LIMIT, stop()).unwrap();
    replay.call("resume", "").unwrap();
    draw(&replay, 1, 1);
    assert!(matches!(replay.host_call(b"other"), HostCall::Diverged));
    assert!(replay.divergence().unwrap().contains("another request"));
}

/// Saves recordings in sleeps.
#[derive(Default)]
struct Saver {
    saved: Mutex<Vec<u8>>,
    ended: AtomicBool,
}

impl SleepSaver for Saver {
    fn on_sleep(&self, _: Duration, save: &dyn Fn() -> Result<Vec<u8>, Cow<'static, str>>) {
        *self.saved.lock() = save().unwrap();
    }

    fn end_sleep(&self) -> Result<(), Termination> {
        self.ended.store(true, Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn recording_is_saved_in_a_sleep_and_goes_on_there() {
    let saver = Arc::new(Saver::default());
    let recording = Recording::new(LIMIT, stop());
    recording.set_sleep_saver(saver.clone());
    recording.call("execute", "");
    let time = |micros| move || Duration::from_micros(micros);
    recording.monotonic(time(5));
    recording.on_sleep(SAVE_SLEEP_AFTER / 2, None, Duration::ZERO);
    assert!(saver.saved.lock().is_empty());
    recording.on_sleep(SAVE_SLEEP_AFTER, Some(Duration::from_micros(77)), Duration::from_secs(9));
    recording.monotonic(time(6));
    assert!(!saver.ended.load(Ordering::Relaxed));
    recording.end_sleep().unwrap();
    assert!(saver.ended.load(Ordering::Relaxed));
    // A program that reads the clock until its sleep is over.
    let replay = || {
        let replay = Recording::replay(&saver.saved.lock(), LIMIT, stop()).unwrap();
        replay.call("resume", "").unwrap();
        assert_eq!(replay.monotonic(time(0)), Duration::from_micros(5));
        assert!(replay.is_replaying());
        replay
    };
    let reading = replay();
    assert!(reading.monotonic(time(0)) >= Duration::from_secs(9) && !reading.is_replaying());
    // A program that passes the time to the host.
    let sleeping = replay();
    assert_eq!(sleeping.sleep_time(Duration::MAX), Duration::ZERO, "the end of the sleep has passed");
    assert!(!sleeping.is_replaying() && sleeping.divergence().is_none());
}

#[test]
fn recording_beyond_its_limit_is_dropped_and_the_program_goes_on() {
    let recording = Recording::new(100, stop());
    let mut readings = 0;
    while recording.incomplete().is_none() {
        assert_eq!(recording.real_time(|| Duration::from_micros(5)), Duration::from_micros(5));
        readings += 1;
        assert!(readings < 100);
    }
    assert!(readings >= 40, "{readings} readings need more than 100 bytes");
    assert_eq!(recording.monotonic(|| Duration::from_micros(6)), Duration::from_micros(6));
    let digest = begin(&recording, b"waits");
    let reason = recording.save(digest, b"", Duration::ZERO).unwrap_err();
    assert!(reason.contains("limit"), "{reason}");
}

#[test]
fn damaged_recordings_are_refused_or_diverge() {
    let (saved, _) = saved();
    for length in 0..saved.len() {
        assert!(Recording::replay(&saved[..length], LIMIT, stop()).is_err(), "{length} bytes");
    }
    let mut seed = 1_u32;
    for _ in 0..2000 {
        let mut damaged = saved.clone();
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let at = seed as usize % damaged.len();
        damaged[at] ^= (seed >> 24) as u8 | 1;
        let Ok(replay) = Recording::replay(&damaged, LIMIT, stop()) else { continue };
        let _ = replay.call("resume", "");
        draw(&replay, 1, 1);
        replay.host_call(b"first");
        replay.sleep_time(Duration::MAX);
        replay.deferred_exists(1, 2, true);
        replay.host_call(b"waits");
    }
}

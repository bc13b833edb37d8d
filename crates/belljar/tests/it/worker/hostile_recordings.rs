//! Recordings of workers that an attacker has taken over.

use belljar_core::ExitReason;
use belljar_core::kernel::KernelError;
use belljar_python::isolation::{CallRecording, ProcessCall};

use super::hostile::{CountingHost, call_recorded, run_call, with_session};

#[test]
fn recordings_of_well_behaved_workers_are_saved() {
    let (returned, is_dead, host) = call_recorded("saved-call");
    assert!(returned.result.is_ok() && !is_dead, "{returned:?}");
    assert_eq!((host.saved, host.ended_sleeps), (vec![b"statestate".to_vec()], 0));
    let (returned, is_dead, host) = call_recorded("refused-recording");
    assert!(returned.result.is_ok() && !is_dead && host.saved.is_empty(), "{returned:?}");
    let (returned, is_dead, host) = call_recorded("sleeps");
    assert!(returned.result.is_ok() && !is_dead, "{returned:?}");
    assert_eq!((host.saved, host.ended_sleeps), (vec![b"state".to_vec()], 1));
}

#[test]
fn forged_recordings_end_the_worker() {
    for (mode, calls, saved) in [
        ("long-recording", 1, 0),
        ("output-as-recording", 1, 0),
        ("recording-without-end", 1, 0),
        ("unasked-recording", 0, 0),
        ("sleeps-again-at-once", 0, 1),
        ("ends-no-replay", 0, 0),
        ("continues-nothing", 0, 0),
        ("long-divergence", 0, 0),
    ] {
        let (returned, is_dead, host) = call_recorded(mode);
        assert!(matches!(returned.result, Err(ExitReason::Crash(_))) && is_dead, "{mode}: {returned:?}");
        assert_eq!((host.calls, host.saved.len()), (calls, saved), "{mode}");
    }
    // Code that is not recorded cannot be saved.
    let (returned, is_dead, host) = super::hostile::call_and_then("sleeps", |_| {});
    assert!(matches!(returned.result, Err(ExitReason::Crash(_))) && is_dead, "{returned:?}");
    assert_eq!(host.saved.len(), 0);
}

#[test]
fn replays_are_prepared_and_one_call_goes_on() {
    let replay = |mode: &str| {
        with_session(mode, |process, limits| {
            let mut process = process.unwrap();
            let mut host = CountingHost::default();
            process.prepare_replay(b"recording", 1000).map(|()| {
                let call = ProcessCall { recording: CallRecording::Continued, ..run_call(limits) };
                let returned = process.call(&call, &mut host).returned;
                (returned.result.is_ok(), process.has_ended(), host)
            })
        })
    };
    let (is_returned, has_ended, host) = replay("replays").unwrap();
    assert_eq!((is_returned, has_ended, host.ended_replays, host.calls), (true, false, 1, 1));
    assert_eq!(host.saved, [b"state".to_vec()]);
    assert!(matches!(replay("damaged-replay").map(drop), Err(KernelError::IncompatibleSnapshot(_))));
    for mode in ["value-as-replay", "end-of-session"] {
        assert!(matches!(replay(mode).map(drop), Err(KernelError::ProcessEnded)), "{mode}");
    }
    for (mode, replays, calls) in [("replays-twice", 1, 0), ("continues-twice", 1, 1)] {
        let (is_returned, has_ended, host) = replay(mode).unwrap();
        assert_eq!((is_returned, has_ended), (false, true), "{mode}");
        assert_eq!((host.ended_replays, host.calls), (replays, calls), "{mode}");
    }
}

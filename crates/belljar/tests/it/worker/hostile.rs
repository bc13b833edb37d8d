//! Workers that an attacker has taken over, as the broker sees them: a Python program in place of template and worker.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use belljar_core::kernel::KernelError;
use belljar_core::{ExitReason, LimitKind, Limits, MeterScope, NoProgress, Stream, current_meter};
use belljar_emscripten::network::ResolveError;
use belljar_python::isolation::{
    CallRecording, ChangeObserver, FileReply, FileRequest, HostCallFailure, InterpreterProcess,
    InterpreterProcesses as _, MountReply, MountRequest, MountResult, NetworkReply, NetworkRequest, ProcessCall,
    ProcessHost, ProcessHostCall, ProcessHostReply, RecordingHost, RemoteCaller, RunStart, SavedPart, SessionProcess,
    SessionRequest, SessionStart,
};
use belljar_python::packages::PackageSet;
use belljar_python::{GuestFunction, GuestReturn, Options, Python, on_guest_thread};
use belljar_worker::{WorkerOptions, WorkerPool};

use crate::harness::cache;

/// A template whose workers send what is named by its first argument.
const TEMPLATE: &str = include_str!("hostile_worker.py");

/// A host that counts what it receives.
#[derive(Default)]
pub(super) struct CountingHost {
    pub(super) output: usize,
    pub(super) calls: usize,
    pub(super) saved: Vec<Vec<u8>>,
    pub(super) ended_sleeps: usize,
    pub(super) ended_replays: usize,
}

impl RecordingHost for CountingHost {
    fn on_sleep(&mut self, _: Duration, save: &dyn Fn() -> Result<Vec<u8>, Cow<'static, str>>) {
        self.saved.extend(save());
    }

    fn end_sleep(&mut self) -> Result<(), String> {
        self.ended_sleeps += 1;
        Ok(())
    }

    fn end_replay(&mut self) {
        self.ended_replays += 1;
    }
}

impl ProcessHost for CountingHost {
    fn write(&mut self, _: Stream, bytes: &[u8]) {
        self.output += bytes.len();
    }

    fn host_call(
        &mut self,
        _: ProcessHostCall<'_>,
        caller: &dyn RemoteCaller,
    ) -> Result<ProcessHostReply, HostCallFailure> {
        self.calls += 1;
        if let Ok(recording) = caller.save(b"state") {
            self.saved.push(recording);
        }
        Ok(ProcessHostReply { text: "true".into(), files: Vec::new(), layers: Vec::new(), incomplete: None })
    }

    fn mounts(&mut self, request: MountRequest) -> Option<MountResult> {
        self.calls += 1;
        match request {
            MountRequest::Directory(0, _) => Some(Ok(MountReply::Done)),
            _ => None,
        }
    }

    fn network(&mut self, request: NetworkRequest, _: &ChangeObserver) -> Option<NetworkReply> {
        self.calls += 1;
        match request {
            NetworkRequest::Resolve { .. } => Some(NetworkReply::Resolved(Err(ResolveError::Unknown))),
            _ => None,
        }
    }
}

/// Returns a call that runs code.
pub(super) fn run_call(limits: &Limits) -> ProcessCall<'_> {
    ProcessCall {
        function: GuestFunction::Run,
        arguments: "{}",
        files: &[],
        limits,
        is_new_cell: false,
        asleep: Duration::ZERO,
        network: false,
        recording: CallRecording::None,
        finish: None,
    }
}

/// Calls an interpreter in a worker that behaves like `mode`.
fn call(mode: &str) -> (GuestReturn, bool, CountingHost) {
    call_and_then(mode, |_| {})
}

/// Calls an interpreter in a worker that behaves like `mode`, with code that is recorded.
pub(super) fn call_recorded(mode: &str) -> (GuestReturn, bool, CountingHost) {
    call_with(mode, |call| ProcessCall { recording: CallRecording::New { max_bytes: 1000 }, ..call }, |_| {})
}

/// Calls an interpreter in a worker that behaves like `mode`, on the current meter, and does something before the
/// interpreter is dropped.
pub(super) fn call_and_then(
    mode: &str,
    then: impl FnOnce(&dyn InterpreterProcess) + Send,
) -> (GuestReturn, bool, CountingHost) {
    call_with(mode, |call| call, then)
}

/// Calls an interpreter in a worker that behaves like `mode`, with code that has a network or not.
fn call_with_network(mode: &str, network: bool) -> (GuestReturn, bool, CountingHost) {
    call_with(mode, |call| ProcessCall { network, ..call }, |_| {})
}

fn call_with(
    mode: &str,
    change: impl FnOnce(ProcessCall<'_>) -> ProcessCall<'_> + Send,
    then: impl FnOnce(&dyn InterpreterProcess) + Send,
) -> (GuestReturn, bool, CountingHost) {
    let meter = current_meter();
    let python = which::which("python3").unwrap().into_os_string();
    let command = vec![python, "-c".into(), TEMPLATE.into(), mode.into()];
    let options = Options { cache: Some(cache().to_owned()), ..Options::default() };
    let (wall_time, memory) = (Some(Duration::from_secs(8)), 64 << 20);
    let limits = Limits { wall_time, wait_time: Some(Duration::ZERO), memory, output: 1_000_000, ..Limits::default() };
    let called = on_guest_thread(|| {
        let _scope = meter.map(MeterScope::enter);
        let python = Python::open(&options, &NoProgress).unwrap();
        let pool = WorkerPool::new(&options, &limits, WorkerOptions { command, ..WorkerOptions::default() }).unwrap();
        pool.open(&python).unwrap();
        let owner: Arc<str> = "owner".into();
        let start = RunStart { image: python.base(), limits: &limits, owner: Some(&owner), mounts: &[], state: None };
        let mut process = pool.start(&start, &NoProgress).unwrap();
        let mut host = CountingHost::default();
        let returned = process.call(&change(run_call(&limits)), &mut host).returned;
        // A handle of an interpreter that has ended does nothing.
        process.interrupt_handle().interrupt();
        then(&*process);
        (returned, process.is_dead(), host)
    });
    called.unwrap()
}

fn read_request() -> FileRequest {
    FileRequest::Read { path: "f.txt".into(), offset: 0, length: Some(2) }
}

/// Has `work` use a session in a worker that behaves like `mode`.
pub(super) fn with_session<T: Send>(
    mode: &str,
    work: impl FnOnce(Result<Box<dyn SessionProcess>, KernelError>, &Limits) -> T + Send,
) -> T {
    let python = which::which("python3").unwrap().into_os_string();
    let command = vec![python, "-c".into(), TEMPLATE.into(), mode.into()];
    let options = Options { cache: Some(cache().to_owned()), ..Options::default() };
    let limits = Limits {
        wall_time: Some(Duration::from_secs(60)),
        memory: 64 << 20,
        disk: 1 << 20,
        files: 10,
        ..Limits::default()
    };
    let worked = on_guest_thread(|| {
        let pool = WorkerPool::new(&options, &limits, WorkerOptions { command, ..WorkerOptions::default() }).unwrap();
        let packages = PackageSet::empty();
        let (packages, limits, start) = (&packages, &limits, SessionStart::New);
        let request = SessionRequest { packages, kept_image: None, limits, memory: 0, start, mounts: &[] };
        work(pool.start_session(&request, &NoProgress), limits)
    });
    worked.unwrap()
}

#[test]
fn well_behaved_worker_of_a_session_is_believed() {
    let saved = with_session("session", |process, _| {
        let mut process = process.unwrap();
        (process.save(SavedPart::State).unwrap(), process.has_ended())
    });
    assert_eq!(saved, (b"statestate".to_vec(), false));
    let read = with_session("read", |process, _| process.unwrap().files(&read_request()).unwrap());
    assert_eq!(read, FileReply::Read(Ok(b"ab".to_vec())));
    let refused = with_session("refused-save", |process, _| {
        let mut process = process.unwrap();
        (process.save(SavedPart::State).unwrap_err().to_string(), process.has_ended())
    });
    assert_eq!(refused, ("failed to save the interpreter: too large".into(), false));
}

#[test]
fn session_that_does_not_start_is_an_error() {
    for mode in ["refused-session", "started-twice", "result-as-start", "long-refusal", "garbage", "end"] {
        let error = with_session(mode, |process, _| process.map(drop).unwrap_err());
        assert!(matches!(error, KernelError::Start(_)), "{mode}: {error:?}");
    }
}

#[test]
fn forged_states_and_files_end_the_worker() {
    let modes = ["empty-part", "long-part", "saved-twice", "output-as-part", "end-of-session", "read", "endless-parts"];
    for mode in modes {
        let ended = with_session(mode, |process, _| {
            let mut process = process.unwrap();
            (matches!(process.save(SavedPart::State), Err(KernelError::ProcessEnded)), process.has_ended())
        });
        assert_eq!(ended, (true, true), "{mode}");
    }
    for mode in ["read-too-much", "list-as-read", "written-as-read", "state-as-read", "end-of-session"] {
        let ended = with_session(mode, |process, _| {
            let mut process = process.unwrap();
            (matches!(process.files(&read_request()), Err(KernelError::ProcessEnded)), process.has_ended())
        });
        assert_eq!(ended, (true, true), "{mode}");
    }
    for mode in ["file-of-call", "unasked-start"] {
        let (returned, has_ended) = with_session(mode, |process, limits| {
            let mut process = process.unwrap();
            let returned = process.call(&run_call(limits), &mut CountingHost::default()).returned;
            (returned, process.has_ended())
        });
        assert!(matches!(returned.result, Err(ExitReason::Crash(_))) && has_ended, "{mode}: {returned:?}");
    }
}

#[test]
fn worker_of_a_session_that_ignores_its_end_is_killed() {
    let (returned, has_ended) = with_session("session-silent", |process, limits| {
        let mut process = process.unwrap();
        process.interrupt_handle().kill();
        let returned = process.call(&run_call(limits), &mut CountingHost::default()).returned;
        (returned, process.has_ended())
    });
    assert!(matches!(returned.result, Err(ExitReason::Cancelled)) && has_ended, "{returned:?}");
}

#[test]
fn well_behaved_worker_is_believed() {
    let (returned, is_dead, host) = call("nothing-wrong");
    assert!(returned.result.is_ok() && !is_dead, "{returned:?}");
    assert_eq!(host.output, 1);
}

#[test]
fn forged_messages_end_the_worker_and_nothing_else() {
    let modes = [
        "garbage",
        "not-ready",
        "ready-twice",
        "unknown-message",
        "too-long",
        "bytes-left-over",
        "invalid-text",
        "two-results",
        "empty-output",
        "long-output",
        "long-name",
        "path-as-name",
        "empty-name",
        "path-of-result",
        "many-buffers",
        "unasked-finish",
        "end",
    ];
    for mode in modes {
        let (returned, is_dead, host) = call(mode);
        assert!(matches!(returned.result, Err(ExitReason::Crash(_))) && is_dead, "{mode}: {returned:?}");
        assert_eq!((host.output, host.calls), (0, 0), "{mode}");
    }
}

#[test]
fn silence_and_excess_end_at_limits() {
    let (returned, is_dead, _) = call("long-and-silent");
    assert!(matches!(returned.result, Err(ExitReason::Limit(LimitKind::WallTime))) && is_dead, "{returned:?}");
    let (returned, is_dead, host) = call("endless-output");
    assert!(matches!(returned.result, Err(ExitReason::Limit(LimitKind::Output))) && is_dead, "{returned:?}");
    assert!(host.output <= 1_000_000);
    let (returned, is_dead, host) = call("endless-calls");
    assert!(returned.result.is_err() && is_dead, "{returned:?}");
    assert!(host.calls <= 100_000);
}

#[test]
fn requests_to_the_network_are_handled_only_for_code_that_has_one() {
    for (mode, network, is_error, requests) in [
        ("resolves", true, false, 1),
        ("resolves", false, true, 0),
        ("waits", true, false, 0),
        ("waits", false, true, 0),
        ("unknown-connection", true, true, 1),
        ("unknown-request", true, true, 0),
    ] {
        let (returned, is_dead, host) = call_with_network(mode, network);
        let is_crash = matches!(returned.result, Err(ExitReason::Crash(_)));
        assert_eq!((is_crash, is_dead, host.calls), (is_error, is_error, requests), "{mode} {network}: {returned:?}");
    }
    for (mode, limit) in [
        ("waits-and-is-silent", LimitKind::WaitTime),
        ("endless-waits", LimitKind::WaitTime),
        ("endless-requests", LimitKind::WallTime),
    ] {
        let (returned, is_dead, _) = call_with_network(mode, true);
        let is_limit = matches!(returned.result, Err(ExitReason::Limit(reached)) if reached == limit);
        assert!(is_limit && is_dead, "{mode}: {returned:?}");
    }
}

#[test]
fn requests_to_directories_are_handled_only_for_those_that_exist() {
    for (mode, is_error) in
        [("directory", false), ("unknown-directory", true), ("unknown-file", true), ("unknown-operation", true)]
    {
        let (returned, is_dead, host) = call(mode);
        let is_crash = matches!(returned.result, Err(ExitReason::Crash(_)));
        let requests = usize::from(mode != "unknown-operation");
        assert_eq!((is_crash, is_dead, host.calls), (is_error, is_error, requests), "{mode}: {returned:?}");
    }
}

#[test]
fn code_that_has_begun_is_not_run_again() {
    // The socket reports the same error as for a worker that ends before it reads its commands.
    let (returned, is_dead, host) = call("ends-before-a-reply");
    assert!(matches!(returned.result, Err(ExitReason::Crash(_))) && is_dead, "{returned:?}");
    assert_eq!(host.calls, 1);
}

#[test]
fn worker_that_uses_more_memory_than_it_may_is_killed() {
    let (returned, is_dead, _) = call("grows");
    assert!(matches!(returned.result, Err(ExitReason::Limit(LimitKind::Memory))) && is_dead, "{returned:?}");
}

#[test]
fn result_that_is_not_json_is_passed_on_as_text() {
    // The caller parses it as the result of a guest, with its bounds.
    let (returned, is_dead, _) = call("deep-result");
    assert!(returned.result.is_ok_and(|text| text.len() == 1_000_000) && !is_dead);
}

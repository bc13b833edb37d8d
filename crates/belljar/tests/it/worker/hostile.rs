//! Workers that an attacker has taken over, as the broker sees them: a Python program in place of template and worker.

use std::sync::Arc;
use std::time::Duration;

use belljar_core::kernel::KernelError;
use belljar_core::{ExitReason, LimitKind, Limits, MeterScope, NoProgress, Stream, current_meter};
use belljar_emscripten::network::ResolveError;
use belljar_python::isolation::{
    ChangeObserver, FileReply, FileRequest, InterpreterProcess, InterpreterProcesses as _, MountReply, MountRequest,
    MountResult, NetworkReply, NetworkRequest, ProcessCall, ProcessHost, ProcessHostCall, ProcessHostReply,
    RemoteSignals, RunStart, SavedPart, SessionProcess, SessionRequest, SessionStart,
};
use belljar_python::packages::PackageSet;
use belljar_python::{GuestFunction, GuestReturn, Options, Python, on_guest_thread};
use belljar_worker::{WorkerOptions, WorkerPool};

use crate::harness::cache;

/// A template whose workers send what is named by its first argument.
const TEMPLATE: &str = r#"
import array, json, os, select, signal, socket, struct, sys, time

mode = sys.argv[1]
host = socket.socket(fileno=0)

def frame(payload):
    return struct.pack("<I", len(payload)) + payload

def text(value):
    length, encoded = len(value), b""
    while length > 127:
        encoded += bytes([length & 127 | 128])
        length >>= 7
    return encoded + bytes([length]) + value

READY, OUTPUT = frame(b"\0"), lambda data: frame(b"\1\0" + text(data))
def files(names):
    length, encoded = len(names), b""
    while length > 127:
        encoded += bytes([length & 127 | 128])
        length >>= 7
    return encoded + bytes([length]) + b"".join(text(name) + text(b"bytes") for name in names)

CALL = lambda name, request, names=(): frame(b"\2" + text(name) + text(request) + files(names) + b"\0\0")
RETURNED = lambda result, names=(): frame(b"\3\0" + text(result) + files(names) + b"\0\0")
VALUE = RETURNED(b'{"kind": "value", "value": "1", "text": "1"}')
SENT = {
    "nothing-wrong": [READY, OUTPUT(b"x"), VALUE],
    "garbage": [READY, b"\xff" * 100],
    "not-ready": [VALUE],
    "ready-twice": [READY, READY],
    "unknown-message": [READY, frame(b"\x0c")],
    "too-long": [READY, struct.pack("<I", 0xffffffff)],
    "long-and-silent": [READY, struct.pack("<I", 128 << 20)],
    "bytes-left-over": [READY, frame(b"\0\0")],
    "invalid-text": [READY, frame(b"\3\0\2\xff\xff\0\0\0")],
    "two-results": [READY, VALUE + VALUE],
    "empty-output": [READY, OUTPUT(b""), VALUE],
    "long-output": [READY, OUTPUT(b"x" * 70_000), VALUE],
    "endless-output": [READY] + [OUTPUT(b"x" * 60_000)] * 40,
    "long-name": [READY, CALL(b"n" * 100, b"{}"), VALUE],
    "path-as-name": [READY, CALL(b"takes_images", b"null", [b"../x"]), VALUE],
    "empty-name": [READY, CALL(b"takes_images", b"null", [b""]), VALUE],
    "path-of-result": [READY, RETURNED(b"{}", [b"/etc/x"])],
    "many-buffers": [READY, RETURNED(b"{}", [b"out-%d" % at for at in range(10_001)])],
    "deep-result": [READY, RETURNED(b"[" * 1_000_000)],
    "end": [READY],
}

GROW = lambda number: frame(b"\x08" + number)
SENT |= {
    "works": [READY, VALUE],
    "unasked-growth": [READY, GROW(b"\x80\x80\x04"), VALUE],
    "growth-by-nothing": [READY, GROW(b"\0"), VALUE],
    # Beyond the limit of one interpreter.
    "growth-beyond-the-limit": [READY, GROW(b"\x80\x80\x80\x80\x08"), VALUE],
}

RESOLVE, WAITING = frame(b"\x09\0\x01n\0\0"), frame(b"\x0a")
SENT |= {
    "resolves": [READY, RESOLVE, VALUE],
    "unknown-connection": [READY, frame(b"\x09\2\7"), VALUE],
    "unknown-request": [READY, frame(b"\x09\x63"), VALUE],
    "waits": [READY, WAITING, WAITING, VALUE],
    "waits-and-is-silent": [READY, WAITING],
    "directory": [READY, frame(b"\x0b\0\0\0\1f"), VALUE],
    "unknown-directory": [READY, frame(b"\x0b\0\1\0\1f"), VALUE],
    "unknown-file": [READY, frame(b"\x0b\1\7\0"), VALUE],
    "unknown-operation": [READY, frame(b"\x0b\0\0\x63"), VALUE],
}

# Waits for the next command.
COMMAND = None
STARTED = frame(b"\4\0")
PART, SAVED = frame(b"\6" + text(b"state")), frame(b"\7\0")
SESSION = [COMMAND, READY, STARTED, COMMAND]
SENT |= {
    "session": SESSION + [PART, PART, SAVED],
    "refused-session": [COMMAND, READY, frame(b"\4\1" + text(b"no memory"))],
    "started-twice": [COMMAND, READY + STARTED + STARTED],
    "result-as-start": [COMMAND, READY, VALUE],
    "long-refusal": [COMMAND, READY, frame(b"\4\1" + text(b"x" * 5000))],
    "refused-save": SESSION + [frame(b"\7\1" + text(b"too large"))],
    "empty-part": SESSION + [frame(b"\6\0"), SAVED],
    "long-part": SESSION + [frame(b"\6" + text(b"x" * (1 << 20 | 1))), SAVED],
    "saved-twice": SESSION + [PART + SAVED + SAVED],
    "output-as-part": SESSION + [OUTPUT(b"x"), SAVED],
    "end-of-session": SESSION,
    "read": SESSION + [frame(b"\5\1\0" + text(b"ab"))],
    "read-too-much": SESSION + [frame(b"\5\1\0" + text(b"abc"))],
    "list-as-read": SESSION + [frame(b"\5\0\0")],
    "written-as-read": SESSION + [frame(b"\5\2\0")],
    "state-as-read": SESSION + [PART],
    "file-of-call": SESSION + [PART],
    "unasked-start": SESSION + [STARTED],
    "endless-parts": SESSION,
    "session-silent": SESSION[:3],
}

def worker(channel):
    for part in SENT[mode]:
        if part is COMMAND:
            channel.recv(1 << 17)
        else:
            channel.sendall(part)
    if mode == "endless-parts":
        while True:
            channel.sendall(frame(b"\6" + text(b"x" * (1 << 20))))
    if mode == "end-of-session":
        return
    if mode == "endless-calls":
        while True:
            channel.sendall(CALL(b"takes_images", b"null"))
    if mode == "endless-waits":
        while True:
            channel.sendall(WAITING)
    if mode == "endless-requests":
        while True:
            channel.sendall(RESOLVE)
            channel.recv(1 << 17)
    if mode == "ends-before-a-reply":
        # The commands are read, and the reply to the call is not.
        channel.recv(1 << 17)
        channel.sendall(CALL(b"takes_images", b"null"))
        select.select([channel], [], [])
        return
    if mode == "grows":
        channel.recv(1 << 17)
        held = []
        while True:
            held.append(bytearray(b"x") * (16 << 20))
            time.sleep(0.03)
    if mode == "works":
        while True:
            pass
    if mode == "endless-growth":
        while True:
            channel.sendall(GROW(b"\x80\x80\x04"))
    if mode == "grows-when-granted":
        channel.recv(1 << 17)
        granted = 0
        while True:
            # 16 MB
            channel.sendall(GROW(b"\x80\x80\x80\x08"))
            if channel.recv(1 << 10)[-1] == 0:
                break
            granted += 1
        channel.sendall(OUTPUT(b"x" * granted) + VALUE)
    if mode != "end":
        time.sleep(600)

def main():
    host.recv(1 << 17)
    host.send(json.dumps({"Ready": {"without_namespaces": None, "without_landlock": None}}).encode())
    while True:
        data, ancillary, _, _ = host.recvmsg(1 << 17, socket.CMSG_SPACE(8))
        if not data:
            return
        channel, control = array.array("i", ancillary[0][2])
        child = os.fork()
        if child == 0:
            host.close()
            try:
                worker(socket.socket(fileno=channel))
            finally:
                os._exit(0)
        os.close(channel)
        os.close(control)
        pidfd = os.pidfd_open(child)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [pidfd]))]
        host.sendmsg([json.dumps({"Forked": json.loads(data)["number"]}).encode()], rights)
        os.close(pidfd)

for other in "endless-calls", "endless-growth", "endless-requests", "endless-waits", "ends-before-a-reply", "grows", "grows-when-granted":
    SENT[other] = [READY]
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
main()
"#;

/// A host that counts what it receives.
#[derive(Default)]
pub(super) struct CountingHost {
    pub(super) output: usize,
    calls: usize,
}

impl ProcessHost for CountingHost {
    fn write(&mut self, _: Stream, bytes: &[u8]) {
        self.output += bytes.len();
    }

    fn host_call(&mut self, _: ProcessHostCall<'_>, _: &dyn RemoteSignals) -> Result<ProcessHostReply, String> {
        self.calls += 1;
        Ok(ProcessHostReply { text: "true".into(), files: Vec::new(), layers: Vec::new() })
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
fn run_call(limits: &Limits) -> ProcessCall<'_> {
    ProcessCall {
        function: GuestFunction::Run,
        arguments: "{}",
        files: &[],
        limits,
        is_new_cell: false,
        asleep: Duration::ZERO,
        network: false,
    }
}

/// Calls an interpreter in a worker that behaves like `mode`.
fn call(mode: &str) -> (GuestReturn, bool, CountingHost) {
    call_and_then(mode, |_| {})
}

/// Calls an interpreter in a worker that behaves like `mode`, on the current meter, and does something before the
/// interpreter is dropped.
pub(super) fn call_and_then(
    mode: &str,
    then: impl FnOnce(&dyn InterpreterProcess) + Send,
) -> (GuestReturn, bool, CountingHost) {
    call_with_network(mode, false, then)
}

/// Does the same with code that has a network or not.
fn call_with_network(
    mode: &str,
    network: bool,
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
        let call = ProcessCall { network, ..run_call(&limits) };
        let returned = process.call(&call, &mut host).returned;
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
fn with_session<T: Send>(
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
        let request =
            SessionRequest { packages: &packages, limits: &limits, memory: 0, start: SessionStart::New, mounts: &[] };
        work(pool.start_session(&request, &NoProgress), &limits)
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
        let (returned, is_dead, host) = call_with_network(mode, network, |_| {});
        let is_crash = matches!(returned.result, Err(ExitReason::Crash(_)));
        assert_eq!((is_crash, is_dead, host.calls), (is_error, is_error, requests), "{mode} {network}: {returned:?}");
    }
    for (mode, limit) in [
        ("waits-and-is-silent", LimitKind::WaitTime),
        ("endless-waits", LimitKind::WaitTime),
        ("endless-requests", LimitKind::WallTime),
    ] {
        let (returned, is_dead, _) = call_with_network(mode, true, |_| {});
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

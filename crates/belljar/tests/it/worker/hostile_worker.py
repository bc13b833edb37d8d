import array, ctypes, json, os, select, signal, socket, struct, sys, time

PR_SET_PDEATHSIG = 1
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

CALL = lambda name, request, names=(), state=b"\0": frame(b"\2" + text(name) + text(request) + files(names) + b"\0\0" + state)
RETURNED = lambda result, names=(), recording=b"\0", finish=b"\0": frame(b"\3\0" + text(result) + files(names) + b"\0\0" + recording + finish)
VALUE = RETURNED(b'{"kind": "value", "value": "1", "text": "1"}')
SENT = {
    "nothing-wrong": [READY, OUTPUT(b"x"), VALUE],
    "garbage": [READY, b"\xff" * 100],
    "not-ready": [VALUE],
    "ready-twice": [READY, READY],
    "unknown-message": [READY, frame(b"\x0f")],
    "too-long": [READY, struct.pack("<I", 0xffffffff)],
    "long-and-silent": [READY, struct.pack("<I", 128 << 20)],
    "bytes-left-over": [READY, frame(b"\0\0")],
    "invalid-text": [READY, frame(b"\3\0\2\xff\xff\0\0\0\0\0")],
    "two-results": [READY, VALUE + VALUE],
    "empty-output": [READY, OUTPUT(b""), VALUE],
    "long-output": [READY, OUTPUT(b"x" * 70_000), VALUE],
    "endless-output": [READY] + [OUTPUT(b"x" * 60_000)] * 40,
    "long-name": [READY, CALL(b"n" * 100, b"{}"), VALUE],
    "path-as-name": [READY, CALL(b"takes_images", b"null", [b"../x"]), VALUE],
    "empty-name": [READY, CALL(b"takes_images", b"null", [b""]), VALUE],
    "path-of-result": [READY, RETURNED(b"{}", [b"/etc/x"])],
    "many-buffers": [READY, RETURNED(b"{}", [b"out-%d" % at for at in range(10_001)])],
    "unasked-finish": [READY, RETURNED(b"{}", finish=b"\1\0" + text(b"{}") + b"\0\0")],
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

ASLEEP, REPLAY_ENDED = frame(b"\x0e\1\0"), frame(b"\x0d")
INPUT = CALL(b"input", b"null")
CONTINUED = CALL(b"input", b"null", state=b"\1" + text(b"state"))
SENT |= {
    # The first command is the call.
    "saved-call": [READY, COMMAND, INPUT, COMMAND, PART, PART, SAVED, COMMAND, VALUE],
    "refused-recording": [READY, COMMAND, INPUT, COMMAND, frame(b"\7\1" + text(b"no")), COMMAND, VALUE],
    "long-recording": [READY, COMMAND, INPUT, COMMAND] + [frame(b"\6" + text(b"x" * (1 << 20)))] * 6,
    "output-as-recording": [READY, COMMAND, INPUT, COMMAND, OUTPUT(b"x")],
    "recording-without-end": [READY, COMMAND, INPUT, COMMAND, PART, VALUE],
    "unasked-recording": [READY, COMMAND, PART, SAVED, VALUE],
    "sleeps": [READY, COMMAND, ASLEEP, COMMAND, PART, SAVED, COMMAND, VALUE],
    "sleeps-again-at-once": [READY, COMMAND, ASLEEP, COMMAND, PART, SAVED, COMMAND, ASLEEP, COMMAND, PART, SAVED, VALUE],
    "ends-no-replay": [READY, COMMAND, REPLAY_ENDED, VALUE],
    "continues-nothing": [READY, COMMAND, CONTINUED, COMMAND, VALUE],
    "long-divergence": [READY, COMMAND, RETURNED(b"{}", recording=b"\1\0\1" + text(b"x" * 5000))],
}
# Waits for the two commands with the recording `recording` of at most 1000 bytes, which may arrive apart.
REPLAY_COMMANDS = len(frame(b"\0" + text(b"recording")) + frame(b"\0\xe8\7"))
# The last command before is that of the session's start, after which nothing follows.
STARTED_SESSION = SESSION[:-1]
PREPARED = STARTED_SESSION + [REPLAY_COMMANDS, frame(b"\x0c\1"), COMMAND]
SENT |= {
    "replays": PREPARED + [REPLAY_ENDED, CONTINUED, COMMAND, PART, SAVED, COMMAND, VALUE],
    "damaged-replay": STARTED_SESSION + [REPLAY_COMMANDS, frame(b"\x0c\0")],
    "value-as-replay": STARTED_SESSION + [REPLAY_COMMANDS, VALUE],
    "replays-twice": PREPARED + [REPLAY_ENDED, REPLAY_ENDED, VALUE],
    "continues-twice": PREPARED + [REPLAY_ENDED, CONTINUED, COMMAND, PART, SAVED, COMMAND, CONTINUED, VALUE],
}

def worker(channel):
    for part in SENT[mode]:
        if part is COMMAND:
            channel.recv(1 << 17)
        elif isinstance(part, int):
            channel.recv(part, socket.MSG_WAITALL)
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
            # Ends with the template, also in an endless loop.
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
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
